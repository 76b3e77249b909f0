// Package fenceguard takes locks whose writes are fenced: a write under a lease that was lost is refused by the guard.
// clients/README.md of the project says what every client does.
package fenceguard

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Where a guard listens unless it is told otherwise.
const (
	DefaultData    = "http://127.0.0.1:7420"
	DefaultControl = "http://127.0.0.1:7421"
)

// DefaultTimeout is the time for an answer of the data side: a write may wait in its lane.
const DefaultTimeout = 60 * time.Second

const (
	waitMax    = 600 * time.Second
	answerMax  = 10 * time.Second // of the control side
	releaseMax = 5 * time.Second
	retryPause = 100 * time.Millisecond
)

// Client is a guard's two sides. The zero value is the guard at the default ports. Its fields are set before its first
// call, and then it may be used by many goroutines.
type Client struct {
	Data, Control string      // URLs
	Token         string      // the bearer token, which goes to the control side alone
	TLS           *tls.Config // for https
	// Timeout is for an answer of the data side; 0 is DefaultTimeout. What was sent is then ErrUnknown.
	Timeout time.Duration

	once sync.Once
	http *http.Transport // see transport()
}

// Format shows the sides and not the bearer token, whatever the verb.
func (c *Client) Format(state fmt.State, _ rune) {
	fmt.Fprintf(state, "client of %s and %s", c.url(dataSide), c.url(controlSide))
}

// url is where a side is.
func (c *Client) url(side string) string {
	url, otherwise := c.Data, DefaultData
	if side == controlSide {
		url, otherwise = c.Control, DefaultControl
	}
	if url == "" {
		return otherwise
	}
	return url
}

type wish struct {
	ttl, wait time.Duration
	attempts  int
	isKept    bool
}

// Option changes how a lock is taken.
type Option func(*wish)

// TTL is the time to live of the lease, 10 s by default.
func TTL(ttl time.Duration) Option { return func(w *wish) { w.ttl = ttl } }

// Wait is how long a lock that is held is waited for, 30 s by default.
func Wait(wait time.Duration) Option { return func(w *wish) { w.wait = wait } }

// Attempts is how often Run takes the lock at most, 5 times by default.
func Attempts(count int) Option { return func(w *wish) { w.attempts = count } }

// WithoutRenewal leaves the renewal to the caller.
func WithoutRenewal() Option { return func(w *wish) { w.isKept = false } }

func wishOf(options []Option) wish {
	w := wish{ttl: 10 * time.Second, wait: 30 * time.Second, attempts: 5, isKept: true}
	for _, option := range options {
		option(&w)
	}
	return w
}

// Acquire takes the lock, which is to be released, and keeps it renewed. ErrHeld: it was waited for in vain.
// ErrUnknown: a lease may stand until its time to live is over. The end of ctx after the return does nothing to it.
func (c *Client) Acquire(ctx context.Context, resource string, options ...Option) (*Lease, error) {
	w, bits := wishOf(options), make([]byte, 16)
	if _, err := rand.Read(bits); err != nil {
		return nil, err
	}
	holder, overAt, isUncertain := hex.EncodeToString(bits), now()+w.wait, false
	for {
		left := overAt - now()
		lease, err := c.ask(ctx, resource, holder, w, left)
		if err == nil {
			lease.start(w.isKept)
			return lease, nil
		}
		left = overAt - now()
		var fault *Fault
		isFault, isUnknown := errors.As(err, &fault), errors.Is(err, ErrUnknown)
		isAskedAgain := isFault && ctx.Err() == nil && (left > 0 || isUnknown && !isUncertain)
		isUncertain = isUncertain || isUnknown
		switch {
		case isAskedAgain && isOneOf(err, ErrHeld, ErrLost, ErrUnavailable, ErrUnknown):
		case isUncertain && errors.Is(err, ErrUnavailable):
			return nil, fault.as(ErrUnknown)
		default:
			return nil, err
		}
		pause := retryPause
		if fault.Kind == ErrUnavailable && fault.RetryAfter > 0 {
			pause = fault.RetryAfter
		}
		select {
		case <-ctx.Done():
		case <-time.After(longer(retryPause, shorter(pause, left))):
		}
	}
}

func isOneOf(err error, kinds ...error) bool {
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func longer(a, b time.Duration) time.Duration {
	if a > b {
		return a
	}
	return b
}

func shorter(a, b time.Duration) time.Duration { return a + b - longer(a, b) }

// ask asks once.
func (c *Client) ask(ctx context.Context, resource, holder string, w wish, wait time.Duration) (*Lease, error) {
	wait = longer(0, wait)
	body, err := json.Marshal(map[string]any{"resource": resource, "ttl_ms": w.ttl.Milliseconds(),
		"wait_ms": shorter(wait, waitMax).Milliseconds(), "holder": holder})
	if err != nil {
		return nil, err
	}
	sentAt := now()
	answer, err := c.perform(ctx, &call{side: controlSide, method: http.MethodPost, target: "/v1/leases",
		resource: resource, header: c.control(http.Header{}), body: body, limit: wait + answerMax})
	if err != nil {
		return nil, err
	}
	g, _ := grantIn(answer)
	lease := c.Adopt(Claim{Resource: resource, Token: g.token, Holder: g.Holder, Signature: g.Signature})
	lease.ttl = w.ttl
	lease.extend(sentAt, &g)
	if answer.Status == http.StatusOK || now()-sentAt > w.ttl/3 {
		// Where nothing is known of the renewal, the term that is known stands.
		if err := lease.Renew(ctx); err != nil && !isOneOf(err, ErrUnavailable, ErrUnknown) {
			return nil, err
		}
	}
	return lease, nil
}

// control adds what goes to the control side.
func (c *Client) control(header http.Header) http.Header {
	header.Set("Content-Type", "application/json")
	if c.Token != "" {
		header.Set("Authorization", "Bearer "+c.Token)
	}
	return header
}

// Run calls body under the lock and releases it. It takes the lock again after ErrStale or ErrConflict, and then body
// starts over; nothing is repeated after any other error. ctx is passed on as it is: a lease that was lost is no reason
// to withhold a write, because the guard decides. What is to stop when the lease is lost uses lease.Context().
func (c *Client) Run(ctx context.Context, resource string, body func(context.Context, *Lease) error,
	options ...Option) error {
	for attempt := 1; ; attempt++ {
		err := c.runOnce(ctx, resource, body, options)
		if attempt >= wishOf(options).attempts || !isOneOf(err, ErrStale, ErrConflict) {
			return err
		}
	}
}

func (c *Client) runOnce(ctx context.Context, resource string, body func(context.Context, *Lease) error,
	options []Option) error {
	lease, err := c.Acquire(ctx, resource, options...)
	if err != nil {
		return err
	}
	defer lease.Release(context.Background()) // where it fails, the lease ends with its time to live
	return body(ctx, lease)
}

// Adopt is a claim that was granted elsewhere, such as to 'fenceguard exec'. It is not renewed and does not expire.
func (c *Client) Adopt(claim Claim) *Lease {
	lease := &Lease{client: c, claim: &claim}
	lease.ctx, lease.cancel = context.WithCancel(context.Background())
	return lease
}

// Read is a plain read, without a claim; nil where there is no object.
func (c *Client) Read(ctx context.Context, resource string) ([]byte, error) {
	answer, err := c.perform(ctx, &call{side: dataSide, method: http.MethodGet, target: "/" + quote(resource),
		resource: resource, limit: c.AnswerTimeout()})
	if err != nil {
		return nil, err
	}
	return answer.object(), nil
}

// AnswerTimeout is Timeout, or its default.
func (c *Client) AnswerTimeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return DefaultTimeout
}

// perform sends the call once, a read once more where no complete answer came, and judges the answer.
func (c *Client) perform(ctx context.Context, call *call) (*Answer, error) {
	answer, err := c.send(ctx, call)
	if call.isRead() && errors.Is(err, ErrUnknown) {
		c.Close() // so that it goes over a new one
		answer, err = c.send(ctx, call)
		var fault *Fault
		if errors.Is(err, ErrUnknown) && errors.As(err, &fault) {
			err = fault.as(ErrUnavailable)
		}
	}
	if err == nil {
		err = judge(call, answer)
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// Close closes the kept connections. Leases stay until they are released.
func (c *Client) Close() { c.transport().CloseIdleConnections() }
