// The driver of clients/README.md over the Go client.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	fenceguard "github.com/fenceguard/fenceguard/clients/go"
)

type command struct {
	Do, Data, Control, Bearer, Resource, Lease, Token, Holder, Body string
	TTL                                                             int64 `json:"ttl_ms"`
	Wait                                                            int64 `json:"wait_ms"`
	Limit                                                           int64 `json:"limit_ms"`
	Timeout                                                         int64 `json:"timeout_ms"`
	Renew                                                           *bool
	Sequence                                                        *int64
	Attempts, Add                                                   int
	Pause                                                           bool
}

type answer map[string]any

type driver struct {
	ctx    context.Context
	input  *bufio.Scanner
	client *fenceguard.Client
	leases map[string]*fenceguard.Lease
}

func (d *driver) say(a answer) {
	line, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func (c *command) options() []fenceguard.Option {
	options := []fenceguard.Option{fenceguard.TTL(time.Duration(c.TTL) * time.Millisecond),
		fenceguard.Wait(time.Duration(c.Wait) * time.Millisecond)}
	if c.Renew != nil && !*c.Renew {
		options = append(options, fenceguard.WithoutRenewal())
	}
	if c.Attempts > 0 {
		options = append(options, fenceguard.Attempts(c.Attempts))
	}
	return options
}

func told(err error) answer {
	a := answer{"outcome": "error", "detail": err.Error()}
	var refusal *fenceguard.Refusal
	var fault *fenceguard.Fault
	switch {
	case errors.As(err, &refusal):
		a["outcome"] = refusal.Kind.Error()
		a["token"], a["highest"] = fmt.Sprint(refusal.Token), fmt.Sprint(refusal.Highest)
	case errors.As(err, &fault):
		a["outcome"] = fault.Kind.Error()
		a["problem"], a["status"], a["found"], a["reason"] = fault.Problem, fault.Status, fault.Found, fault.Reason
		if fault.RetryAfter > 0 {
			a["retry_after_ms"] = fault.RetryAfter.Milliseconds()
		}
	}
	return a
}

// done is the success, or what the error says.
func done(outcome string, err error) answer {
	if err != nil {
		return told(err)
	}
	return answer{"outcome": outcome}
}

func object(body []byte, err error) answer {
	a := done("admitted", err)
	if body != nil {
		a["body"] = string(body)
	} else if err == nil {
		a["body"] = nil
	}
	return a
}

func (d *driver) send(c *command, lease *fenceguard.Lease, method string) answer {
	sent, err := lease.Do(d.ctx, fenceguard.Operation{Method: method, Body: []byte(c.Body), Sequence: c.Sequence})
	if err != nil {
		return told(err)
	}
	return answer{"outcome": sent.Verdict()}
}

func (d *driver) waitLost(lease *fenceguard.Lease, limit time.Duration) answer {
	select {
	case <-lease.Done():
		return answer{"outcome": "lost", "reason": lease.Reason()}
	case <-time.After(limit):
		return answer{"outcome": "timeout"}
	}
}

func (d *driver) run(c *command) answer {
	grants, total := 0, 0
	err := d.client.Run(d.ctx, c.Resource, func(ctx context.Context, lease *fenceguard.Lease) error {
		grants++
		body, err := lease.Read(ctx)
		if err != nil {
			return err
		}
		if total = c.Add; body != nil {
			before, err := strconv.Atoi(string(body))
			if err != nil {
				return err
			}
			total += before
		}
		if c.Pause && grants == 1 {
			d.say(answer{"event": "paused"})
			d.input.Scan()
		}
		return lease.Write(ctx, []byte(strconv.Itoa(total)))
	}, c.options()...)
	if err != nil {
		return told(err)
	}
	return answer{"outcome": "done", "value": total, "attempts": grants}
}

func (d *driver) take(c *command) answer {
	lease, err := d.client.Acquire(d.ctx, c.Resource, c.options()...)
	if err != nil {
		return told(err)
	}
	d.leases[c.Lease] = lease
	return answer{"outcome": "granted", "token": fmt.Sprint(lease.Claim().Token), "holder": lease.Claim().Holder}
}

func (d *driver) adopt(c *command) answer {
	token, err := strconv.ParseInt(c.Token, 10, 64)
	d.leases[c.Lease] = d.client.Adopt(fenceguard.Claim{Resource: c.Resource, Token: token, Holder: c.Holder})
	return done("ok", err)
}

func (d *driver) answer(c *command) answer {
	lease := d.leases[c.Lease]
	switch c.Do {
	case "client":
		d.client = &fenceguard.Client{Data: c.Data, Control: c.Control, Token: c.Bearer,
			Timeout: time.Duration(c.Timeout) * time.Millisecond}
		return answer{"outcome": "ok", "timeout_ms": d.client.AnswerTimeout().Milliseconds()}
	case "acquire":
		return d.take(c)
	case "adopt":
		return d.adopt(c)
	case "renew":
		return done("renewed", lease.Renew(d.ctx))
	case "lost":
		return answer{"outcome": "ok", "lost": lease.Lost()}
	case "wait_lost":
		return d.waitLost(lease, time.Duration(c.Limit)*time.Millisecond)
	case "write":
		return d.send(c, lease, "PUT")
	case "delete":
		return d.send(c, lease, "DELETE")
	case "read":
		return object(lease.Read(d.ctx))
	case "plain_read":
		return object(d.client.Read(d.ctx, c.Resource))
	case "release":
		return done("released", lease.Release(d.ctx))
	case "run":
		return d.run(c)
	}
	return answer{"outcome": "error", "detail": "there is no such command"}
}

func main() {
	d := driver{ctx: context.Background(), input: bufio.NewScanner(os.Stdin), leases: map[string]*fenceguard.Lease{}}
	for d.input.Scan() {
		c := command{Lease: "main"}
		if err := json.Unmarshal(d.input.Bytes(), &c); err != nil {
			d.say(answer{"outcome": "error", "detail": err.Error()})
			continue
		}
		d.say(d.answer(&c))
	}
}
