package fenceguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Claim is what a write is judged by. A sequence rises with each write under one token, so that a duplicate is told.
// Package fmt shows no holder and no signature of it or of a Lease: with the token they are a claim, and logs are read.
type Claim struct {
	Resource  string
	Token     int64
	Holder    string
	Signature string
	Sequence  *int64
}

func (c Claim) String() string { return fmt.Sprintf("claim of %s, token %d", c.Resource, c.Token) }

// Format shows String, whatever the verb.
func (c Claim) Format(state fmt.State, _ rune) { io.WriteString(state, c.String()) }

// Sequence is a number as a pointer, for Claim and Operation.
func Sequence(number int64) *int64 { return &number }

// Lease is a lock that is held, and renewed every third of its time to live until Release. Once it is no longer known
// to be held it is lost, for good; whether a write is still good is the guard's to judge. Many goroutines may use it.
type Lease struct {
	client *Client
	ttl    time.Duration // 0 for a claim that was granted elsewhere
	ctx    context.Context
	cancel context.CancelFunc

	mu                sync.Mutex
	claim             *Claim // a pointer, which fmt does not follow in what it has no access to
	reason            string // of its loss
	renewedAt, overAt time.Duration
}

// Operation is a request to the data side. Path: an object below the resource, instead of the resource itself.
type Operation struct {
	Method, Path string
	Body         []byte
	Sequence     *int64
	Header       http.Header
}

// Claim is the token and its holder, for an operation that goes elsewhere, such as that of package fencesql.
func (l *Lease) Claim() Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.claim
}

func (l *Lease) String() string {
	claim := l.Claim()
	return fmt.Sprintf("lease of %s, token %d", claim.Resource, claim.Token)
}

// Format shows String, whatever the verb.
func (l *Lease) Format(state fmt.State, _ rune) { io.WriteString(state, l.String()) }

// Lost is true when the lease is not known to be held any more. It looks at the clock, so that a process that was
// stopped knows when it goes on.
func (l *Lease) Lost() bool { return l.Reason() != "" }

// Reason is how it was lost: Ended (also by Release), Expired, or "" while it is held.
func (l *Lease) Reason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ttl > 0 && l.overAt <= now() {
		l.end(Expired)
	}
	return l.reason
}

// Done is closed when the lease is lost or released.
func (l *Lease) Done() <-chan struct{} { return l.ctx.Done() }

// Context is cancelled when the lease is lost or released.
func (l *Lease) Context() context.Context { return l.ctx }

// Write puts an object at the resource. It is sent once.
func (l *Lease) Write(ctx context.Context, body []byte) error {
	_, err := l.Do(ctx, Operation{Method: http.MethodPut, Body: body})
	return err
}

// Delete deletes the object at the resource. It is sent once.
func (l *Lease) Delete(ctx context.Context) error {
	_, err := l.Do(ctx, Operation{Method: http.MethodDelete})
	return err
}

// Read is a fenced read: every write below the token was either seen by it or never takes effect. nil where there is no
// object.
func (l *Lease) Read(ctx context.Context) ([]byte, error) {
	answer, err := l.Do(ctx, Operation{Method: http.MethodGet})
	if err != nil {
		return nil, err
	}
	return answer.object(), nil
}

// Do sends the operation under the claim, once; a GET or HEAD once more where no complete answer came.
func (l *Lease) Do(ctx context.Context, operation Operation) (*Answer, error) {
	claim, header, target := l.Claim(), operation.Header.Clone(), operation.Path
	if target == "" {
		target = claim.Resource
	}
	header = claim.addTo(header)
	if operation.Sequence != nil {
		header.Set("Fencing-Sequence", strconv.FormatInt(*operation.Sequence, 10))
	}
	return l.client.perform(ctx, &call{side: dataSide, method: operation.Method, target: "/" + quote(target),
		resource: claim.Resource, header: header, body: operation.Body, limit: l.client.AnswerTimeout()})
}

func (c *Claim) addTo(header http.Header) http.Header {
	if header == nil {
		header = http.Header{}
	}
	header.Set("Fencing-Token", strconv.FormatInt(c.Token, 10))
	header.Set("Fencing-Holder", c.Holder)
	if c.Signature != "" {
		header.Set("Fencing-Signature", c.Signature)
	}
	return header
}

func (l *Lease) control(ctx context.Context, method string, body []byte, limit time.Duration) (*Answer, error) {
	claim := l.Claim()
	return l.client.perform(ctx, &call{side: controlSide, method: method, target: "/v1/leases/" + quote(claim.Resource),
		resource: claim.Resource, header: l.client.control(claim.addTo(nil)), body: body, limit: limit})
}

// Renew renews once, now. A lease that was lost stays lost, whatever the server says.
func (l *Lease) Renew(ctx context.Context) error {
	ttl := l.ttl
	if ttl == 0 {
		ttl = answerMax
	}
	body, err := json.Marshal(map[string]int64{"ttl_ms": ttl.Milliseconds()})
	if err != nil {
		return err
	}
	sentAt := now()
	answer, err := l.control(ctx, http.MethodPut, body, shorter(ttl/3, answerMax))
	if err != nil {
		if errors.Is(err, ErrLost) {
			l.finish(Ended)
		}
		return err
	}
	g, _ := grantIn(answer)
	l.extend(sentAt, &g)
	return nil
}

// Release gives the lock back. It ends the lease for this client whatever it answers.
func (l *Lease) Release(ctx context.Context) error {
	l.finish(Ended)
	_, err := l.control(ctx, http.MethodDelete, nil, releaseMax)
	return err
}

// extend counts the term from the moment before the grant or renewal was sent.
func (l *Lease) extend(sentAt time.Duration, g *grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.Signature != "" {
		l.claim.Signature = g.Signature
	}
	if l.reason == "" {
		l.renewedAt, l.overAt = sentAt, sentAt+g.term(l.ttl)
	}
}

func (l *Lease) finish(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(reason)
}

// end REQUIRES: mu is held. The first reason stays.
func (l *Lease) end(reason string) {
	if l.reason == "" {
		l.reason = reason
		l.cancel()
	}
}

// start looks after the term, and renews in the background.
func (l *Lease) start(isKept bool) {
	go func() {
		for !l.Lost() {
			l.sleepUntil(func() time.Duration { return l.overAt })
		}
	}()
	if isKept {
		go l.keepRenewed()
	}
}

// sleepUntil returns at a time, or when the lease is lost.
func (l *Lease) sleepUntil(moment func() time.Duration) {
	l.mu.Lock()
	timer := time.NewTimer(moment() - now())
	l.mu.Unlock()
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.ctx.Done():
	}
}

func (l *Lease) keepRenewed() {
	for {
		l.sleepUntil(func() time.Duration { return l.renewedAt + l.ttl/3 })
		for !l.Lost() && l.Renew(l.ctx) != nil {
			again := now() + l.ttl/20
			l.sleepUntil(func() time.Duration { return again })
		}
		if l.Lost() {
			return
		}
	}
}
