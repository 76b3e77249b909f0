package fenceguard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	dataSide    = "data"
	controlSide = "control"
	problemURN  = "urn:fenceguard:problem:"
)

var kinds = map[string]error{"stale": ErrStale, "conflict": ErrConflict, "held": ErrHeld, "lost": ErrLost,
	"unavailable": ErrUnavailable, "unknown": ErrUnknown}

// call is one request. limit is the time for its answer.
type call struct {
	side, method, target, resource string
	header                         http.Header
	body                           []byte
	limit                          time.Duration
}

func (c *call) isRead() bool { return c.method == http.MethodGet || c.method == http.MethodHead }

// quote percent-encodes all but what a path may hold as it is.
func quote(resource string) string {
	var target strings.Builder
	for _, b := range []byte(resource) {
		if 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || strings.IndexByte("-._~/", b) >= 0 {
			target.WriteByte(b)
		} else {
			fmt.Fprintf(&target, "%%%02X", b)
		}
	}
	return target.String()
}

// Verdicts that are no error.
const (
	Admitted  = "admitted"
	Duplicate = "duplicate" // a write of this sequence took effect before
)

// Answer is what the data side said to an admitted operation.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Verdict is Admitted, or Duplicate; "" for a plain read.
func (a *Answer) Verdict() string { return a.Header.Get("Fencing-Verdict") }

// object is the body of a read, nil where there is no object.
func (a *Answer) object() []byte {
	if a.Status == http.StatusNotFound {
		return nil
	}
	return a.Body
}

// problem is what an application/problem+json body says; the zero value where there is none of ours.
type problem struct {
	Type, Detail   string
	Token, Highest string
	Resource       *string
}

func (p *problem) name() string { return strings.TrimPrefix(p.Type, problemURN) }

func problemOf(a *Answer) (p problem) {
	if strings.Contains(a.Header.Get("Content-Type"), "application/problem+json") {
		if json.Unmarshal(a.Body, &p) != nil || !strings.HasPrefix(p.Type, problemURN) {
			return problem{}
		}
	}
	return p
}

// grant is a lease as the control side tells it.
type grant struct {
	Token, Holder, Signature string
	ExpiresIn                int64 `json:"expires_in_ms"`
	token                    int64
}

func (g *grant) term(ttl time.Duration) time.Duration {
	if g.ExpiresIn > 0 {
		return time.Duration(g.ExpiresIn) * time.Millisecond
	}
	return ttl
}

// grantIn is false where the answer holds no lease.
func grantIn(a *Answer) (g grant, isLease bool) {
	if json.Unmarshal(a.Body, &g) != nil {
		return g, false
	}
	number, err := strconv.ParseInt(g.Token, 10, 64)
	g.token = number
	return g, err == nil && g.Holder != ""
}

// judge is nil where the call succeeded. clients/README.md has the table.
func judge(c *call, a *Answer) error {
	p := problemOf(a)
	kind, found := judgeControl(c, a, &p)
	if c.side == dataSide {
		kind, found = judgeData(c, a, &p)
	}
	if p.name() == "" && a.Verdict() == "" && a.Status >= 500 {
		kind, found = ErrUnknown, ""
		if c.isRead() {
			kind = ErrUnavailable
		}
	}
	switch kind {
	case nil:
		return nil
	case ErrStale, ErrConflict:
		refusal := &Refusal{Kind: kind, Resource: c.resource}
		refusal.Token, _ = strconv.ParseInt(p.Token, 10, 64)
		refusal.Highest, _ = strconv.ParseInt(p.Highest, 10, 64)
		return refusal
	}
	fault := &Fault{Kind: kind, Resource: c.resource, Problem: p.name(), Status: a.Status, Found: found,
		Detail: strings.TrimSpace(fmt.Sprintf("%s: %d %s", c.method, a.Status, p.Detail))}
	if seconds, err := strconv.ParseUint(a.Header.Get("Retry-After"), 10, 31); err == nil {
		fault.RetryAfter = time.Duration(seconds) * time.Second
	}
	if kind == ErrLost {
		fault.Reason = Ended
	}
	return fault
}

func judgeData(c *call, a *Answer, p *problem) (kind error, found string) {
	verdict, name, isPlain := a.Verdict(), p.name(), c.header.Get("Fencing-Token") == ""
	isDone := a.Status < 300 || !c.isRead() && 301 <= a.Status && a.Status <= 303
	switch name {
	case "unauthorized", "forbidden", "foreign-origin", "not-found":
		if verdict == "" && (name != "not-found" || p.Resource == nil) {
			return ErrMisdirected, controlSide
		}
	}
	switch {
	case verdict == "" && name == "" && !(isPlain && isDone):
		return ErrMisdirected, "other"
	case kinds[verdict] != nil:
		return kinds[verdict], ""
	case kinds[name] != nil:
		return kinds[name], ""
	case verdict == Duplicate, isDone, c.isRead() && a.Status == http.StatusNotFound:
		return nil, ""
	}
	return ErrRejected, ""
}

func judgeControl(c *call, a *Answer, p *problem) (kind error, found string) {
	name, verdict := p.name(), a.Verdict()
	switch {
	case verdict == Admitted, verdict == "missing", name == "method-not-allowed", name == "missing",
		name == "not-found" && c.method == http.MethodPost:
		return ErrMisdirected, dataSide
	case kinds[name] != nil:
		return kinds[name], ""
	case name == "unauthorized", name == "forbidden":
		return ErrUnauthorized, ""
	case name != "":
		return ErrRejected, ""
	case c.method == http.MethodDelete && a.Status == http.StatusNoContent:
		return nil, ""
	case c.method != http.MethodDelete && (a.Status == http.StatusOK || a.Status == http.StatusCreated):
		if _, isLease := grantIn(a); isLease {
			return nil, ""
		}
	}
	return ErrMisdirected, "other"
}
