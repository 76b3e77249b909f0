// Package fencesql puts a claim into a transaction of database/sql, so that fence and data stand or fall together. The
// database is PostgreSQL with the schema of fenceguard (fenceguard sql postgres); every driver does whose errors have a
// method SQLState, such as pgx and lib/pq.
package fencesql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"io"
	"net"
	"reflect"
	"strconv"
	"strings"
	"syscall"

	fenceguard "github.com/fenceguard/fenceguard/clients/go"
)

// Transaction is what a claim can be admitted in. Not *sql.DB, which runs each query on any connection, so that an
// admission would guard nothing. A *sql.Conn needs an open transaction.
type Transaction interface {
	*sql.Tx | *sql.Conn
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Beginner is *sql.DB or *sql.Conn.
type Beginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// Transact begins a transaction, admits the claim, calls body, and commits. After an error it rolls back. Where a write
// of the claim's sequence took effect before, body is not called. body is not to end the transaction itself: what it had
// committed would be called stale.
//
// What ends the session before COMMIT was sent (the next holder's drain, an administrator, the network) is
// fenceguard.ErrStale: nothing was committed, and Client.Run takes the lock again. fenceguard.ErrUnknown: COMMIT was
// sent, and its answer did not come. Other errors of body pass through, but for what Outcome maps.
func Transact(ctx context.Context, db Beginner, claim fenceguard.Claim, body func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		if isLost(err) {
			return &fenceguard.Fault{Kind: fenceguard.ErrUnavailable, Resource: claim.Resource, Detail: "begin", Err: err}
		}
		return err
	}
	isOpen := true
	defer func() {
		if isOpen { // body panicked
			_ = tx.Rollback()
		}
	}()
	verdict, err := Admit(ctx, tx, claim)
	if err == nil && verdict == fenceguard.Admitted {
		err = body(tx)
	}
	isOpen = false
	if err == nil {
		return Commit(tx)
	}
	// A rollback that the server answers shows that its session is alive; one that the context made needs none.
	ended := tx.Rollback()
	if ended != nil && !errors.Is(ended, sql.ErrTxDone) && isLost(err) && !isJudged(err) {
		return endedInside(err, claim)
	}
	return outcomeInside(err, claim)
}

// Admit judges the claim in the transaction, and for it. It is to be called before the first savepoint, before anything
// is read that the writes depend on, and in READ COMMITTED for a claim that is newer than the fence: there it waits for
// older transactions. It answers fenceguard.Admitted, or fenceguard.Duplicate: a write of this sequence took effect
// before, so nothing is to be written. After an error the transaction is to be rolled back. Where no transaction is open
// on a *sql.Conn it fails, and nothing is guarded.
func Admit[T Transaction](ctx context.Context, tx T, claim fenceguard.Claim) (verdict string, err error) {
	row := tx.QueryRowContext(ctx, "select fenceguard.admit($1, $2, $3, $4)", claim.Resource, claim.Token, claim.Holder,
		claim.Sequence)
	if err := row.Scan(&verdict); err != nil {
		if isLost(err) {
			return "", endedInside(err, claim)
		}
		return "", outcomeInside(err, claim)
	}
	if _, isTransaction := any(tx).(*sql.Tx); isTransaction || verdict != fenceguard.Admitted {
		return verdict, nil
	}
	// Every admission assigns its transaction a number; one that was a transaction of its own guards nothing.
	isOpen := false
	row = tx.QueryRowContext(ctx, "select pg_catalog.pg_current_xact_id_if_assigned() is not null")
	if err := row.Scan(&isOpen); err != nil {
		return "", outcomeInside(err, claim)
	}
	if !isOpen {
		return "", errors.New("fencesql: Admit belongs into the transaction that writes, and none is open on this *sql.Conn")
	}
	return verdict, nil
}

// Commit commits. fenceguard.ErrUnknown: the connection ended before the answer, so it may have taken effect.
func Commit(tx *sql.Tx) error {
	err := tx.Commit()
	state := stateOf(err)
	isKnown := state != "" && !isOfClass(state, "40003", "08", "25P04", "57P", "58", "XX")
	if err == nil || isKnown || errors.Is(err, sql.ErrTxDone) {
		return Outcome(err)
	}
	return &fenceguard.Fault{Kind: fenceguard.ErrUnknown, Detail: "commit", Err: err}
}

// Outcome is what an error of the database says about the claim: a *fenceguard.Refusal for stale and conflict; a
// *fenceguard.Fault for a write without a claim (Problem "missing"), an implausible token, a malformed claim, and for
// older transactions that may not be ended (fenceguard.ErrUnavailable). Where the server ended the session (57P01) it is
// fenceguard.ErrUnknown, because it may be the answer to COMMIT; Transact and Admit know that it is not. Every other
// error, 40001 among them, is returned as it is. A COMMIT is for Commit, which knows of more errors that they prove
// nothing.
func Outcome(err error) error {
	if isJudged(err) {
		return err
	}
	var told struct{ Resource, Token, Highest string }
	// Without a detail, or with another, the numbers stay unknown.
	_ = json.Unmarshal([]byte(detailOf(err)), &told)
	fault := &fenceguard.Fault{Kind: fenceguard.ErrRejected, Resource: told.Resource, Err: err}
	switch stateOf(err) {
	case "ZF001":
		return refusal(fenceguard.ErrStale, told.Resource, told.Token, told.Highest)
	case "ZF002":
		return refusal(fenceguard.ErrConflict, told.Resource, told.Token, told.Highest)
	case "25P03": // it is judged before the next statement runs
		return endedInside(err, fenceguard.Claim{})
	case "57P01", "57P02", "57P03", "57P04", "57P05", "25P04":
		fault.Kind, fault.Problem = fenceguard.ErrUnknown, "session-ended"
	case "ZF003":
		fault.Problem = "missing"
	case "ZF004":
		fault.Problem = "implausible"
	case "22023":
		fault.Problem = "malformed"
	case "55P03":
		fault.Kind = fenceguard.ErrUnavailable
	default:
		return err
	}
	return fault
}

func refusal(kind error, resource, token, highest string) error {
	r := &fenceguard.Refusal{Kind: kind, Resource: resource}
	r.Token, _ = strconv.ParseInt(token, 10, 64)
	r.Highest, _ = strconv.ParseInt(highest, 10, 64)
	return r
}

// outcomeInside is the outcome of an error before COMMIT was sent.
func outcomeInside(err error, claim fenceguard.Claim) error {
	if !isJudged(err) && isOfClass(stateOf(err), "57P0", "25P03", "25P04") {
		return endedInside(err, claim)
	}
	return Outcome(err)
}

func endedInside(err error, claim fenceguard.Claim) error {
	return &fenceguard.Refusal{Kind: fenceguard.ErrStale, Resource: claim.Resource, Token: claim.Token, Err: err}
}

// isJudged is whether the error is one of ours already.
func isJudged(err error) bool {
	var refusal *fenceguard.Refusal
	var fault *fenceguard.Fault
	return errors.As(err, &refusal) || errors.As(err, &fault)
}

// isLost is whether the error can be that of a session that has ended: the table 'In a transaction of PostgreSQL' of
// clients/README.md.
func isLost(err error) bool {
	if state := stateOf(err); state != "" {
		return isOfClass(state, "08", "57P", "25P03", "25P04")
	}
	for _, ended := range []error{driver.ErrBadConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		syscall.ECONNRESET, syscall.EPIPE, syscall.ETIMEDOUT} {
		if errors.Is(err, ended) {
			return true
		}
	}
	var failure *net.OpError
	return errors.As(err, &failure) || err.Error() == "conn closed" // the last is pgx's
}

func isOfClass(state string, classes ...string) bool {
	for _, class := range classes {
		if strings.HasPrefix(state, class) {
			return true
		}
	}
	return false
}

// stateOf is the SQLSTATE of an error of the database, or "".
func stateOf(err error) string {
	var failure interface{ SQLState() string }
	if errors.As(err, &failure) {
		return failure.SQLState()
	}
	return ""
}

// detailOf is the error's field Detail, for which drivers have no method in common.
func detailOf(err error) string {
	var failure interface{ SQLState() string }
	if !errors.As(err, &failure) {
		return ""
	}
	value := reflect.Indirect(reflect.ValueOf(failure))
	if value.Kind() == reflect.Struct {
		if field := value.FieldByName("Detail"); field.IsValid() && field.Kind() == reflect.String {
			return field.String()
		}
	}
	return ""
}
