package clienttest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
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
