package fenceguard

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

const connectMax = 5 * time.Second

var errNoHTTP = errors.New("what answers speaks no HTTP")

// link is a connection to one side. Requests go over connections of our own, because http.Transport sends some of them
// again by itself, and cannot be asked whether the server has closed a kept connection.
type link struct {
	net.Conn          // TLS where that is spoken
	tcp      net.Conn // below it
	reader   *bufio.Reader
}

// link is a kept connection that the server has not closed, or a new one.
func (c *Client) link(ctx context.Context, side string, isNew bool) (*link, error) {
	for !isNew {
		c.mu.Lock()
		kept := c.idle[side]
		if len(kept) == 0 {
			c.mu.Unlock()
			break
		}
		last := kept[len(kept)-1]
		c.idle[side] = kept[:len(kept)-1]
		c.mu.Unlock()
		if isQuiet(last.tcp) {
			return last, nil
		}
		last.Close()
	}
	return c.connect(ctx, side)
}

func (c *Client) keep(side string, l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle == nil {
		c.idle = map[string][]*link{}
	}
	c.idle[side] = append(c.idle[side], l)
}

// url is where a side is.
func (c *Client) url(side string) (*url.URL, error) {
	address, given := DefaultData, c.Data
	if side == controlSide {
		address, given = DefaultControl, c.Control
	}
	if given != "" {
		address = given
	}
	return url.Parse(address)
}

func (c *Client) connect(ctx context.Context, side string) (*link, error) {
	place, err := c.url(side)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectMax)
	defer cancel()
	port := place.Port()
	if port == "" {
		port = map[string]string{"https": "443"}[place.Scheme]
	}
	if port == "" {
		port = "80"
	}
	tcp, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(place.Hostname(), port))
	if err != nil {
		return nil, err
	}
	l := &link{Conn: tcp, tcp: tcp}
	if place.Scheme == "https" {
		config := &tls.Config{}
		if c.TLS != nil {
			config = c.TLS.Clone()
		}
		if config.ServerName == "" {
			config.ServerName = place.Hostname()
		}
		secure := tls.Client(tcp, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			tcp.Close()
			return nil, err
		}
		l.Conn = secure
	}
	l.reader = bufio.NewReader(l.Conn)
	return l, nil
}

// send sends the call once.
func (c *Client) send(ctx context.Context, call *call, isNew bool) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, call.limit)
	defer cancel()
	place, err := c.url(call.side)
	if err != nil {
		return nil, &Fault{Kind: ErrUnavailable, Resource: call.resource, Err: err}
	}
	message, err := call.encode(place.Host)
	if err != nil {
		return nil, err
	}
	l, err := c.link(ctx, call.side, isNew)
	if err == nil && ctx.Err() != nil {
		l.Close()
		err = ctx.Err()
	}
	if err != nil {
		return nil, &Fault{Kind: ErrUnavailable, Resource: call.resource, Err: err}
	}
	answer, isKept, err := l.exchange(ctx, call, message)
	switch {
	case isKept:
		c.keep(call.side, l)
	default:
		l.Close()
	}
	if errors.Is(err, errNoHTTP) {
		return nil, &Fault{Kind: ErrMisdirected, Resource: call.resource, Found: "other", Err: err}
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, &Fault{Kind: ErrUnknown, Resource: call.resource, Detail: "no complete answer", Err: err}
	}
	return answer, nil
}

// exchange sends the message and reads its answer, until ctx ends. isKept: the connection can be used again.
func (l *link) exchange(ctx context.Context, call *call, message []byte) (answer *Answer, isKept bool, err error) {
	over, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ctx.Done():
			l.SetDeadline(time.Unix(1, 0))
		case <-over:
		}
	}()
	_, sendError := l.Write(message) // a server that had enough may have answered nevertheless
	answer, isKept, err = l.receive(call)
	close(over)
	<-watched
	if err != nil && sendError != nil && !errors.Is(err, errNoHTTP) {
		err = sendError
	}
	return answer, isKept && err == nil && sendError == nil && ctx.Err() == nil, err
}

func (l *link) receive(call *call) (*Answer, bool, error) {
	for {
		for count := 1; count <= len("HTTP/"); count++ {
			begin, err := l.reader.Peek(count)
			if err != nil {
				return nil, false, err
			}
			if string(begin) != "HTTP/"[:count] {
				return nil, false, errNoHTTP
			}
		}
		response, err := http.ReadResponse(l.reader, &http.Request{Method: call.method})
		if err != nil {
			return nil, false, err
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return nil, false, err
		}
		answer := &Answer{Status: response.StatusCode, Header: response.Header, Body: body}
		hasLength := response.ContentLength >= 0 || len(response.TransferEncoding) > 0 || call.method == http.MethodHead
		if !hasLength && answer.Verdict() != "" {
			return nil, false, errors.New("whether an answer without a length is whole is not known")
		}
		if answer.Status >= 200 {
			return answer, hasLength && !response.Close && l.reader.Buffered() == 0, nil
		}
	}
}
