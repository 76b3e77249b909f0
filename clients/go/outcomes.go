package fenceguard

import (
	"errors"
	"fmt"
	"time"
)

// What a call can end with beside success. errors.Is tells them apart, and an error is of one kind only. A *Refusal is
// stale or conflict, a *Fault every other kind.
var (
	// ErrStale: a newer token was seen, the fence was closed, or an own later write overtook this one.
	ErrStale = errors.New("stale")
	// ErrConflict: another holder uses the same token; the token source issued it twice.
	ErrConflict = errors.New("conflict")
	// ErrHeld: another holder has the lock.
	ErrHeld = errors.New("held")
	// ErrLost: the lease ended. Reason says how.
	ErrLost = errors.New("lost")
	// ErrUnavailable: nothing was written; there is no server, or it says so, or ctx ended before anything was sent.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnknown: the call may or may not have taken effect. Read before you decide; it was not repeated.
	ErrUnknown = errors.New("unknown")
	// ErrMisdirected: something else answered, which Found names. Only a guard judges, so nothing is known of a write
	// that an 'other' server answered.
	ErrMisdirected = errors.New("misdirected")
	// ErrUnauthorized: the bearer token is missing, wrong, expired or not enough.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrRejected: a clear no of another kind, with nothing written. Problem is its name.
	ErrRejected = errors.New("rejected")
)

// How a lease was lost: the server said so, or its term is over.
const (
	Ended   = "ended"
	Expired = "expired"
)

// Refusal is a claim that was refused, with nothing written: undo, take the lock again, start over from the read.
type Refusal struct {
	Kind           error // ErrStale or ErrConflict
	Resource       string
	Token, Highest int64 // of the claim, and of the fence; 0 is not known
	// Err is set where no verdict came: the session ended inside a transaction, before COMMIT.
	Err error
}

func (r *Refusal) Error() string {
	if r.Err != nil {
		return fmt.Sprintf("fenceguard: %s: %v: the session ended inside the transaction, before COMMIT: nothing was "+
			"committed: %v", r.Resource, r.Kind, r.Err)
	}
	return fmt.Sprintf("fenceguard: %s: %v, token %d, highest %d", r.Resource, r.Kind, r.Token, r.Highest)
}

func (r *Refusal) Unwrap() error { return r.Err }

func (r *Refusal) Is(target error) bool { return target == r.Kind }

// Fault is every other end. Members that do not apply are zero.
type Fault struct {
	Kind       error
	Resource   string
	RetryAfter time.Duration
	Problem    string // the name of the server's problem
	Status     int    // of the answer
	Found      string // what was met instead: "data", "control" or "other"
	Reason     string // how a lease was lost: Ended or Expired
	Detail     string
	Err        error // the cause, such as an error of net, or that of a context
}

func (f *Fault) Error() string {
	text := fmt.Sprintf("fenceguard: %s: %v", f.Resource, f.Kind)
	if f.Detail != "" {
		text += ": " + f.Detail
	}
	if f.Err != nil {
		text += ": " + f.Err.Error()
	}
	return text
}

func (f *Fault) Is(target error) bool { return target == f.Kind }

func (f *Fault) Unwrap() error { return f.Err }

// as is the same fault as another kind.
func (f *Fault) as(kind error) *Fault {
	other := *f
	other.Kind = kind
	return &other
}
