package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	fenceguard "github.com/fenceguard/fenceguard/clients/go"
	"github.com/fenceguard/fenceguard/clients/go/fencesql"
	_ "github.com/lib/pq"
)

var ctx = context.Background()

// open is the database of the test, with a protected account that holds 100.
func open(t *testing.T) *sql.DB {
	db, err := sql.Open("postgres", os.Getenv("FENCEGUARD_POSTGRES_URL")+"?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	run(t, db, `drop table if exists account`)
	run(t, db, `create table account (id bigint primary key, balance bigint not null)`)
	run(t, db, `insert into account values (42, 100)`)
	run(t, db, `select fenceguard.protect('account', $$ 'accounts/' || id $$)`)
	run(t, db, `delete from fenceguard.fences`)
	return db
}

func run(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		t.Fatal(err)
	}
}

func claim(token int64, holder string) fenceguard.Claim {
	return fenceguard.Claim{Resource: "accounts/42", Token: token, Holder: holder}
}

func expectBalance(t *testing.T, db *sql.DB, wanted int) {
	t.Helper()
	var balance int
	if err := db.QueryRowContext(ctx, "select balance from account where id = 42").Scan(&balance); err != nil {
		t.Fatal(err)
	}
	if balance != wanted {
		t.Fatalf("the balance is %d, not %d", balance, wanted)
	}
}

func expectRefusal(t *testing.T, err, kind error, token, highest int64) {
	t.Helper()
	var refusal *fenceguard.Refusal
	if !errors.Is(err, kind) || !errors.As(err, &refusal) || refusal.Resource != "accounts/42" ||
		refusal.Token != token || refusal.Highest != highest {
		t.Fatalf("not %v of token %d, highest %d: %v", kind, token, highest, err)
	}
}

func TestAnOlderTokenIsRefusedInItsOwnTransaction(t *testing.T) {
	db := open(t)
	if err := deposit(ctx, db, claim(33, "first"), 30); err != nil {
		t.Fatal(err)
	}
	if err := deposit(ctx, db, claim(34, "second"), 5); err != nil {
		t.Fatal(err)
	}
	expectRefusal(t, deposit(ctx, db, claim(33, "first"), 1000), fenceguard.ErrStale, 33, 34)
	expectRefusal(t, deposit(ctx, db, claim(34, "third"), 1000), fenceguard.ErrConflict, 34, 34)
	expectBalance(t, db, 135)
}

func TestAWriteOfTheSameSequenceIsADuplicate(t *testing.T) {
	db := open(t)
	first := claim(9007199254740993, "first")
	first.Sequence = fenceguard.Sequence(7)
	for range [2]int{} {
		if err := deposit(ctx, db, first, 30); err != nil {
			t.Fatal(err)
		}
	}
	expectBalance(t, db, 130)
}

func TestAnAdmissionThatIsRolledBackLeavesNothing(t *testing.T) {
	db := open(t)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if verdict, err := fencesql.Admit(ctx, tx, claim(40, "first")); verdict != fenceguard.Admitted || err != nil {
		t.Fatal(verdict, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := deposit(ctx, db, claim(33, "second"), 30); err != nil {
		t.Fatal(err)
	}
	expectBalance(t, db, 130)
}

func TestAWriteWithoutAClaimAndAMalformedClaimAreRejected(t *testing.T) {
	db := open(t)
	_, err := db.ExecContext(ctx, "update account set balance = 0")
	var fault *fenceguard.Fault
	if err = fencesql.Outcome(err); !errors.Is(err, fenceguard.ErrRejected) || !errors.As(err, &fault) ||
		fault.Problem != "missing" {
		t.Fatal(err)
	}
	if err := deposit(ctx, db, claim(0, "first"), 30); !errors.Is(err, fenceguard.ErrRejected) {
		t.Fatal(err)
	}
	expectBalance(t, db, 100)
}

// What is shown: a commit whose connection has ended is unknown, and not reported as undone.
func TestACommitWhoseConnectionEndedIsUnknown(t *testing.T) {
	db := open(t)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fencesql.Admit(ctx, tx, claim(33, "first")); err != nil {
		t.Fatal(err)
	}
	var backend int
	if err := tx.QueryRowContext(ctx, "select pg_backend_pid()").Scan(&backend); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "select pg_terminate_backend($1, 30000)", backend); err != nil {
		t.Fatal(err)
	}
	if err := fencesql.Commit(tx); !errors.Is(err, fenceguard.ErrUnknown) {
		t.Fatal(err)
	}
	expectBalance(t, db, 100)
}

// ended is the error of a driver.
type ended struct{ state string }

func (e ended) Error() string    { return "terminating connection" }
func (e ended) SQLState() string { return e.state }

// What is shown: Outcome cannot see whether an error answers COMMIT, so that it does not say that nothing was committed.
func TestASessionThatEndedIsUnknownToOutcome(t *testing.T) {
	for _, state := range []string{"57P01", "57P02", "25P04"} {
		if err := fencesql.Outcome(ended{state}); !errors.Is(err, fenceguard.ErrUnknown) {
			t.Fatal(state, err)
		}
	}
	expectCutOff(t, fencesql.Outcome(ended{"25P03"}))
}

const plusOne = "update account set balance = balance + 1"

// terminate ends the session of a transaction.
func terminate(t *testing.T, db *sql.DB, tx *sql.Tx) {
	t.Helper()
	var backend int
	if err := tx.QueryRowContext(ctx, "select pg_backend_pid()").Scan(&backend); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "select pg_terminate_backend($1, 30000)", backend); err != nil {
		t.Fatal(err)
	}
}

func expectCutOff(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, fenceguard.ErrStale) || !strings.Contains(err.Error(), "nothing was committed") {
		t.Fatal(err)
	}
}

// What is shown: a holder that stopped inside its transaction is cut off by the next, and what it hears on waking says
// that nothing was committed.
func TestASessionThatWasEndedInsideTheTransactionIsStale(t *testing.T) {
	db := open(t)
	expectCutOff(t, fencesql.Transact(ctx, db, claim(33, "first"), func(tx *sql.Tx) error {
		terminate(t, db, tx)
		_, err := tx.ExecContext(ctx, plusOne)
		return err
	}))
	expectCutOff(t, fencesql.Transact(ctx, db, claim(33, "first"), func(tx *sql.Tx) error {
		terminate(t, db, tx)
		tx.ExecContext(ctx, plusOne)
		_, err := tx.ExecContext(ctx, plusOne) // the driver itself has no SQLSTATE any more
		return fmt.Errorf("depositing: %w", err)
	}))
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	terminate(t, db, tx)
	_, err = fencesql.Admit(ctx, tx, claim(33, "first"))
	expectCutOff(t, err)
	expectCutOff(t, fencesql.Transact(ctx, db, claim(33, "first"), func(*sql.Tx) error { return ended{"57P01"} }))
	expectBalance(t, db, 100)
}

func TestASessionThatWasEndedBeforeItsCommitWasAnsweredIsUnknown(t *testing.T) {
	db := open(t)
	err := fencesql.Transact(ctx, db, claim(33, "first"), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, plusOne)
		terminate(t, db, tx)
		return err
	})
	if !errors.Is(err, fenceguard.ErrUnknown) {
		t.Fatal(err)
	}
}

func TestWhatTheBodyReturnsPassesThroughARollback(t *testing.T) {
	db := open(t)
	short := errors.New("not enough")
	for _, ends := range []bool{false, true} {
		err := fencesql.Transact(ctx, db, claim(33, "first"), func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, plusOne); err != nil {
				return err
			}
			if ends {
				terminate(t, db, tx)
			}
			return short
		})
		if err != short {
			t.Fatal(err)
		}
	}
	expectBalance(t, db, 100)
}

func TestRunTakesTheLockAgainAfterItsSessionWasEnded(t *testing.T) {
	db := open(t)
	var tokens []int64
	client := &fenceguard.Client{Control: os.Getenv("GUARD_CONTROL")}
	err := client.Run(ctx, "accounts/42", func(ctx context.Context, lease *fenceguard.Lease) error {
		return fencesql.Transact(ctx, db, lease.Claim(), func(tx *sql.Tx) error {
			tokens = append(tokens, lease.Claim().Token)
			if len(tokens) == 1 {
				terminate(t, db, tx)
			}
			_, err := tx.ExecContext(ctx, plusOne)
			return err
		})
	})
	if err != nil || len(tokens) != 2 || tokens[1] <= tokens[0] {
		t.Fatal(err, tokens)
	}
	expectBalance(t, db, 101)
}

func TestAConnectionWithoutATransactionIsRefused(t *testing.T) {
	db := open(t)
	connection, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := fencesql.Admit(ctx, connection, claim(33, "first")); err == nil || !strings.Contains(err.Error(), "none is open") {
		t.Fatal(err)
	}
	if _, err := connection.ExecContext(ctx, "begin"); err != nil {
		t.Fatal(err)
	}
	if verdict, err := fencesql.Admit(ctx, connection, claim(33, "first")); err != nil || verdict != fenceguard.Admitted {
		t.Fatal(err)
	}
	if _, err := connection.ExecContext(ctx, "rollback"); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsPrintedIsNoClaim(t *testing.T) {
	client := &fenceguard.Client{Token: "bearer"}
	secret := fenceguard.Claim{Resource: "accounts/42", Token: 33, Holder: "who", Signature: "sealed"}
	lease := client.Adopt(secret)
	fields := struct {
		Lease *fenceguard.Lease
		Claim fenceguard.Claim
		own   *fenceguard.Lease
	}{lease, secret, lease}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%q"} {
		text := fmt.Sprintf(verb+" "+verb+" "+verb+" "+verb, client, lease, secret, fields)
		for _, word := range []string{"who", "sealed", "bearer"} {
			if strings.Contains(text, word) {
				t.Fatal(text)
			}
		}
		if strings.Count(text, "accounts/42") < 3 {
			t.Fatal(text)
		}
	}
}
