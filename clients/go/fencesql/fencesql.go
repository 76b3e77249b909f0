// Package fencesql puts a claim into a transaction of database/sql, so that fence and data stand or fall together. The
// database is PostgreSQL with the schema of fenceguard (fenceguard sql postgres); every driver does whose errors have a
// method SQLState, such as pgx and lib/pq.
package fencesql

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"

	fenceguard "github.com/fenceguard/fenceguard/clients/go"
)

// Querier is *sql.Tx or a *sql.Conn with an open transaction.
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Admit judges the claim in the transaction, and for it. It is to be called before the first savepoint, before anything
// is read that the writes depend on, and in READ COMMITTED for a claim that is newer than the fence: there it waits for
// older transactions. It answers fenceguard.Admitted, or fenceguard.Duplicate: a write of this sequence took effect
// before, so nothing is to be written. After an error the transaction is to be rolled back.
func Admit(ctx context.Context, tx Querier, claim fenceguard.Claim) (verdict string, err error) {
	row := tx.QueryRowContext(ctx, "select fenceguard.admit($1, $2, $3, $4)", claim.Resource, claim.Token, claim.Holder,
		claim.Sequence)
	if err := row.Scan(&verdict); err != nil {
		return "", Outcome(err)
	}
	return verdict, nil
}

// Commit commits. fenceguard.ErrUnknown: the connection ended before the answer, so it may have taken effect.
func Commit(tx *sql.Tx) error {
	err := tx.Commit()
	state := stateOf(err)
	isKnown := state != "" && state != "40003" && !strings.HasPrefix(state, "08") && !strings.HasPrefix(state, "57P")
	if err == nil || isKnown || errors.Is(err, sql.ErrTxDone) {
		return Outcome(err)
	}
	return &fenceguard.Fault{Kind: fenceguard.ErrUnknown, Detail: "commit", Err: err}
}

// Outcome is what an error of a statement says about the claim: a *fenceguard.Refusal for stale and conflict; a
// *fenceguard.Fault for a write without a claim (Problem "missing"), an implausible token, a malformed claim, and for
// older transactions that may not be ended (fenceguard.ErrUnavailable). Every other error, 40001 among them, is
// returned as it is.
func Outcome(err error) error {
	var told struct{ Resource, Token, Highest string }
	// Without a detail, or with another, the numbers stay unknown.
	_ = json.Unmarshal([]byte(detailOf(err)), &told)
	fault := &fenceguard.Fault{Kind: fenceguard.ErrRejected, Resource: told.Resource, Err: err}
	switch stateOf(err) {
	case "ZF001":
		return refusal(fenceguard.ErrStale, told.Resource, told.Token, told.Highest)
	case "ZF002":
		return refusal(fenceguard.ErrConflict, told.Resource, told.Token, told.Highest)
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
