package clienttest

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	fenceguard "github.com/fenceguard/fenceguard/clients/go"
)

const limit = time.Minute

var ctx = context.Background()

func guard() *fenceguard.Client {
	return &fenceguard.Client{Data: os.Getenv("GUARD_DATA"), Control: os.Getenv("GUARD_CONTROL")}
}

func take(t *testing.T, client *fenceguard.Client, resource string) *fenceguard.Lease {
	t.Helper()
	lease, err := client.Acquire(ctx, resource, fenceguard.TTL(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// What is shown: the end of the context makes unknown what was sent. How: its server takes the request and ends it.
func TestAContextThatEndsMakesUnknownWhatWasSent(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ending, end := context.WithCancel(ctx)
	go func() {
		if link, err := silent.Accept(); err == nil {
			defer link.Close()
			_, _ = link.Read(make([]byte, 1))
			end()
			_, _ = io.Copy(io.Discard, link) // it stays open until the client closes it
		}
	}()
	client := &fenceguard.Client{Control: "http://" + silent.Addr().String()}
	_, err = client.Acquire(ending, "a", fenceguard.Wait(limit))
	if !errors.Is(err, fenceguard.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// kept starts a server that answers the first request of its first connection, and on the second does as it is told.
// Every later connection is answered. requests are the methods of all requests, in their order.
func kept(t *testing.T, second func(link net.Conn, request *http.Request) error) (url string, requests func() []string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	var mu sync.Mutex
	var seen []string
	serve := func(link net.Conn, isFirst bool) {
		defer link.Close()
		for reader, number := bufio.NewReader(link), 0; ; number++ {
			request, err := http.ReadRequest(reader)
			if err != nil {
				return
			}
			mu.Lock()
			seen = append(seen, request.Method)
			mu.Unlock()
			if isFirst && number == 1 {
				if second(link, request) != nil {
					return
				}
			}
			_, _ = io.Copy(io.Discard, request.Body)
			_, _ = io.WriteString(link, "HTTP/1.1 200 OK\r\nFencing-Verdict: admitted\r\nContent-Length: 0\r\n\r\n")
		}
	}
	go func() {
		for isFirst := true; ; isFirst = false {
			link, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(link, isFirst)
		}
	}()
	return "http://" + listener.Addr().String(), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), seen...)
	}
}

// What is shown: of all requests only GET, HEAD, OPTIONS and TRACE, which change nothing, are sent a second time by
// net/http, whatever body and header they have. How: a kept connection ends once the request was read.
func TestNoWriteOnAKeptConnectionIsSentTwice(t *testing.T) {
	ends := map[string]func(net.Conn, *http.Request) error{
		"end":   func(net.Conn, *http.Request) error { return io.EOF },
		"reset": func(link net.Conn, _ *http.Request) error { _ = link.(*net.TCPConn).SetLinger(0); return io.EOF },
		"half": func(link net.Conn, _ *http.Request) error {
			_, err := io.WriteString(link, "HTTP/1.1 200 OK\r\nFencing-Ver")
			if err == nil {
				err = io.EOF
			}
			return err
		},
	}
	for _, method := range []string{"PUT", "POST", "PATCH", "DELETE", "MOVE", "GET", "HEAD", "OPTIONS", "TRACE"} {
		for _, key := range []string{"", "Idempotency-Key", "x-IDEMPOTENCY-key"} {
			for _, body := range []string{"", "body"} {
				for how, end := range ends {
					name := strings.Join([]string{method, key, body, how}, " ")
					url, requests := kept(t, end)
					client := &fenceguard.Client{Data: url}
					lease := client.Adopt(fenceguard.Claim{Resource: "a", Token: 1, Holder: "h"})
					if err := lease.Write(ctx, nil); err != nil {
						t.Fatal(name, err)
					}
					operation := fenceguard.Operation{Method: method, Body: []byte(body), Header: http.Header{}}
					if key != "" {
						operation.Header[key] = []string{"1"}
					}
					_, err := lease.Do(ctx, operation)
					isSafe := method == "GET" || method == "HEAD" || method == "OPTIONS" || method == "TRACE"
					switch count := len(requests()) - 1; {
					case isSafe && how != "half" && (err != nil || count != 2):
						t.Error(name, err, count, "times")
					case !isSafe && (!errors.Is(err, fenceguard.ErrUnknown) || count != 1):
						t.Error(name, err, count, "times")
					}
					client.Close()
				}
			}
		}
	}
}

// What is shown: a write that meets the end of a kept connection is sent on another one or ends unknown, and is sent once
// at most. How: the server ends each connection with its first answer, while the next write is on its way.
func TestAWriteThatMeetsTheEndOfItsConnectionIsSentOnce(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		seen[string(body)]++
		mu.Unlock()
		w.Header().Set("Fencing-Verdict", "admitted")
		if link, buffer, err := w.(http.Hijacker).Hijack(); err == nil {
			_, _ = buffer.WriteString("HTTP/1.1 200 OK\r\nFencing-Verdict: admitted\r\nContent-Length: 0\r\n\r\n")
			buffer.Flush()
			link.Close() // without a word of it in the answer
		}
	}))
	defer server.Close()
	client := &fenceguard.Client{Data: server.URL}
	defer client.Close()
	lease := client.Adopt(fenceguard.Claim{Resource: "a", Token: 1, Holder: "h"})
	for i := 0; i < 300; i++ {
		body := strconv.Itoa(i)
		err := lease.Write(ctx, []byte(body))
		mu.Lock()
		count := seen[body]
		mu.Unlock()
		isRight := err == nil && count == 1 || errors.Is(err, fenceguard.ErrUnknown) && count <= 1
		if !isRight {
			t.Fatal(i, err, count, "times")
		}
	}
}

// What is shown: a redirect is not followed, and a proxy of the environment is not asked.
func TestNeitherRedirectNorProxyOfTheEnvironmentIsFollowed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Error(r.Method, r.URL, "came to another server")
	}))
	defer other.Close()
	t.Setenv("HTTP_PROXY", other.URL)
	t.Setenv("http_proxy", other.URL)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	client := &fenceguard.Client{Data: server.URL, Control: server.URL, Token: "bearer"}
	lease := client.Adopt(fenceguard.Claim{Resource: "a", Token: 1, Holder: "h"})
	_, readError := lease.Read(ctx)
	for _, err := range []error{lease.Write(ctx, nil), readError, lease.Renew(ctx)} {
		if !errors.Is(err, fenceguard.ErrMisdirected) {
			t.Error(err)
		}
	}
}

func TestAContextThatHasEndedWithholdsAWrite(t *testing.T) {
	client := guard()
	lease := take(t, client, "withheld")
	if err := lease.Write(ctx, []byte("1")); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	err := lease.Write(ended, []byte("2"))
	if !errors.Is(err, fenceguard.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if body, err := lease.Read(ctx); err != nil || string(body) != "1" {
		t.Fatal(string(body), err)
	}
}

func TestALeaseEndsWithItsRelease(t *testing.T) {
	lease := take(t, guard(), "released")
	if lease.Lost() || lease.Context().Err() != nil {
		t.Fatal("it is lost from the start")
	}
	if err := lease.Release(ctx); err != nil {
		t.Fatal(err)
	}
	<-lease.Done()
	if !lease.Lost() || lease.Context().Err() == nil {
		t.Fatal("it is not lost")
	}
}

func TestManyGoroutinesUseOneLease(t *testing.T) {
	client := guard()
	defer client.Close()
	lease := take(t, client, "shared")
	var all sync.WaitGroup
	for i := 0; i < 8; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for j := 0; j < 10; j++ {
				if err := lease.Write(ctx, []byte("1")); err != nil {
					t.Error(err)
				}
				if err := lease.Renew(ctx); err != nil || lease.Lost() {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
}

func TestTheDataSideOverTLS(t *testing.T) {
	authority, err := os.ReadFile(os.Getenv("GUARD_AUTHORITY"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	secure := guard()
	secure.Data = strings.Replace(os.Getenv("GUARD_TLS_DATA"), "127.0.0.1", "localhost", 1)
	secure.Control = os.Getenv("GUARD_TLS_CONTROL")
	lease := take(t, secure, "secure")
	if err := lease.Write(ctx, []byte("1")); !errors.Is(err, fenceguard.ErrUnavailable) {
		t.Fatal("an authority that is not known:", err)
	}
	secure = &fenceguard.Client{Data: secure.Data, TLS: &tls.Config{RootCAs: roots}}
	lease = secure.Adopt(lease.Claim())
	for i := 0; i < 3; i++ {
		if err := lease.Write(ctx, []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
}
