package fenceguard

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"
)

const (
	connectMax = 5 * time.Second
	idleMax    = 20 * time.Second // a third of what the server allows a connection
)

var errNoHTTP = errors.New("what answers speaks no HTTP")

// link is a connection that is given up once its first bytes are seen not to be HTTP.
type link struct {
	net.Conn
	seen     int // of protocol
	isNoHTTP atomic.Bool
}

const protocol = "HTTP/"

func (l *link) Read(buffer []byte) (int, error) {
	count, err := l.Conn.Read(buffer)
	for i := 0; i < count && l.seen < len(protocol); i++ {
		if buffer[i] != protocol[l.seen] {
			l.isNoHTTP.Store(true)
			return 0, errNoHTTP
		}
		l.seen++
	}
	return count, err
}

type dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

func linking(by dialer) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := by.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &link{Conn: connection}, nil
	}
}

// transport has no proxy, follows no redirect, and repeats a write only where no byte of it was sent.
func (c *Client) transport() *http.Transport {
	c.once.Do(func() {
		plain := &net.Dialer{Timeout: connectMax}
		c.http = &http.Transport{DialContext: linking(plain), IdleConnTimeout: idleMax, MaxIdleConnsPerHost: 100,
			DialTLSContext: linking(&tls.Dialer{NetDialer: plain, Config: c.TLS}), DisableCompression: true}
	})
	return c.http
}

// send sends the call once.
func (c *Client) send(ctx context.Context, call *call) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, call.limit)
	defer cancel()
	var used net.Conn // nil: nothing was sent
	request, err := call.request(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { used = nil }, // the connection before took no byte, or the call is a read
		GotConn: func(got httptrace.GotConnInfo) { used = got.Conn }}), c.url(call.side))
	if err != nil {
		return nil, &Fault{Kind: ErrRejected, Resource: call.resource, Err: err}
	}
	response, err := c.transport().RoundTrip(request)
	var answer *Answer
	if err == nil {
		answer, err = receive(response)
	}
	if err == nil {
		return answer, nil
	}
	if l, isOne := used.(*link); isOne && l.isNoHTTP.Load() {
		return nil, &Fault{Kind: ErrMisdirected, Resource: call.resource, Found: "other", Err: errNoHTTP}
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if used == nil {
		return nil, &Fault{Kind: ErrUnavailable, Resource: call.resource, Err: err}
	}
	return nil, &Fault{Kind: ErrUnknown, Resource: call.resource, Detail: "no complete answer", Err: err}
}

// request is the call as it is sent, with the target as it stands.
func (c *call) request(ctx context.Context, side string) (*http.Request, error) {
	url := strings.TrimSuffix(side, "/") + c.target
	request, err := http.NewRequestWithContext(ctx, c.method, url, bytes.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	for name, values := range c.header {
		for _, value := range values {
			if strings.ContainsAny(name+value, "\r\n") {
				return nil, errors.New("a header field holds a line feed")
			}
		}
		// By its name in capitals a transport takes it for leave to repeat the request.
		if key := http.CanonicalHeaderKey(name); key == "Idempotency-Key" || key == "X-Idempotency-Key" {
			name = strings.ToLower(name)
		}
		request.Header[name] = values
	}
	return request, nil
}

func receive(response *http.Response) (*Answer, error) {
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	answer := &Answer{Status: response.StatusCode, Header: response.Header, Body: body}
	hasLength := response.ContentLength >= 0 || len(response.TransferEncoding) > 0 ||
		response.Request.Method == http.MethodHead
	if !hasLength && answer.Verdict() != "" {
		return nil, errors.New("whether an answer without a length is whole is not known")
	}
	return answer, nil
}
