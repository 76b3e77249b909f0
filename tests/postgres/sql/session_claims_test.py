"""Claims of a session (the setting fenceguard.session_claims) against other sessions: what a take-over in between does to
them, what an old snapshot may do, and what nobody can get by setting anything.

A test waits until the server says that one session waits for the other; nothing here is left to luck.
"""

import json
import random
import subprocess
import threading
import unittest

import parts
from postgres_server import FAST, SqlError, program, session_claims_option, wait_until
from sessions import ServerTest

READ_AND_WRITE = "update guarded set balance = (select balance from guarded where id = 1) where id = 2"


def claims(*parts):
    return json.dumps([{"resource": resource, "token": str(token), "holder": holder} for resource, token, holder in parts])


class SessionClaims(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.psql("create table ledger (id bigint, note text);"
                        "create table entry (id bigint primary key, account bigint references account on delete cascade);"
                        "select fenceguard.protect('entry', $$ 'accounts/' || account $$)", cls.installed)

    def claimant(self, *parts, user="postgres"):
        """A session that was given these claims as it connected; without any: those of a to accounts 1 and 2."""
        parts = parts or (("accounts/1", 34, "a"), ("accounts/2", 34, "a"))
        session = self.server.session(self.dbname, user, env={"PGOPTIONS": session_claims_option(claims(*parts))})
        self.addCleanup(session.close)
        return session

    def advance(self, token=34, holder="a", ids=(1, 2)):
        self.sql("".join(f"select fenceguard.advance('accounts/{i}', {token}, '{holder}');" for i in ids))

    def balance(self, number):
        return self.sql(f"select balance from guarded where id = {number}")

    def test_unaware_program_writes_under_its_connections_claims(self):
        self.advance()
        program_ = self.claimant()
        for sql in ("update guarded set balance = 1 where id = 1",
                    "begin; update guarded set balance = 2 where id = 1; savepoint s; update guarded set balance = 3 "
                    "where id = 2; rollback to s; update guarded set balance = 4 where id in (1, 2); commit",
                    "begin isolation level serializable; update guarded set balance = balance + 1 where id = 1; commit",
                    "do $$ begin update guarded set balance = balance + 1 where id = 1; commit; "
                    "update guarded set balance = balance + 1 where id = 1; end $$",
                    "prepare w as update guarded set balance = balance + 1 where id = 2; execute w; execute w",
                    "begin; declare k cursor for select * from guarded where id = 2; fetch k \\g /dev/null\n"
                    "update guarded set balance = balance + 1 where current of k; commit",
                    "with w as (update guarded set balance = balance where id = 1 returning id) "
                    "update guarded set balance = balance + 1 where id = 2",
                    "merge into guarded using (select 1) s on id = 1 when matched then update set balance = balance + 1",
                    "insert into guarded values (1, 0) on conflict (id) do update set balance = guarded.balance"):
            with self.subTest(sql):
                program_.run(sql)
        self.assertEqual((self.balance(1), self.balance(2)), ("8", "8"))
        self.assert_fails("ZF003", program_.run, "update guarded set balance = 9 where id = 3")

    def test_advance_waits_for_such_a_transaction_then_cuts_it(self):
        self.advance()
        old = self.claimant()
        old.run("begin; update guarded set balance = 70 where id = 1")
        new = self.session()
        self.begin_waiting(new, "select fenceguard.advance('accounts/1', 35, 'b', cut => false)")
        old.run("commit")
        self.assertEqual(new.wait(), "admitted")
        self.assertEqual(self.balance(1), "70")
        self.assert_fails("ZF001", old.run, "update guarded set balance = 71 where id = 1")
        old.run("update guarded set balance = 71 where id = 2")
        old.run("begin; update guarded set balance = 72 where id = 2")
        self.assertEqual(self.sql("set fenceguard.drain = '10 ms'; select fenceguard.advance('accounts/2', 35, 'b')"),
                         "admitted")
        with self.assertRaises(SqlError):
            old.run("commit")
        self.assertEqual(self.balance(2), "71")

    def test_a_copy_whose_client_sends_nothing_more_is_cut_as_well(self):
        """It has written no row that was checked yet: rows are checked at its end."""
        self.advance(ids=(11,))
        old = self.claimant(("accounts/11", 34, "a"))
        old.run("select 1")
        copy = subprocess.Popen([program("psql"), "-Xq", self.server.conninfo(self.dbname), "-c",
                                 "copy guarded from stdin"], stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={"PGOPTIONS": session_claims_option(claims(("accounts/11", 34, "a")))})
        self.addCleanup(copy.stderr.close)
        wait_until(lambda: self.sql("select count(*) from pg_locks where locktype = 'advisory' and objsubid = 1 and "
                                    "((classid::bigint << 32) | objid::bigint) = fenceguard.lock_key('accounts/11')") == "1",
                   30, "the lock of the fence")
        self.sql("set fenceguard.drain = '10 ms'; select fenceguard.advance('accounts/11', 35, 'b')")
        copy.stdin.write(b"11\t666\n")
        copy.stdin.close()
        self.assertNotEqual(copy.wait(30), 0)
        self.assertEqual(self.sql("select count(*) from guarded where id = 11"), "0")

    def test_statement_waiting_while_its_claim_goes_stale(self):
        self.advance()
        locker, old, new = self.session(), self.claimant(), self.session()
        locker.run("begin; select from guarded where id = 1 for update")
        self.begin_waiting(old, "update guarded set balance = balance + 1 where id = 1")
        self.begin_waiting(new, "select fenceguard.advance('accounts/1', 35, 'b', cut => false)")
        late = self.claimant()
        self.begin_waiting(late, "update guarded set balance = 666 where id = 1")
        locker.run("commit")
        old.wait()
        self.assertEqual(new.wait(), "admitted")
        self.assert_fails("ZF001", late.wait)
        self.assertEqual(self.balance(1), "101")

    def test_new_holder_advances_and_writes_in_one_transaction(self):
        """The older writer waits at the fence, and not with the row in its hands."""
        self.advance()
        new, old = self.session(), self.claimant()
        new.run("begin; select fenceguard.admit('accounts/1', 35, 'b')")
        self.begin_waiting(old, "update guarded set balance = 666 where id = 1")
        new.run("set lock_timeout = '5 s'; update guarded set balance = 35 where id = 1; commit")
        self.assert_fails("ZF001", old.wait)
        self.assertEqual(self.balance(1), "35")

    def old_snapshot(self, new, statement):
        """Begins a statement of the new holder's whose snapshot is older than its advance, for which an older write was
        waited for; new.wait() tells how it ended."""
        gate = self.session()
        gate.run("select pg_advisory_lock(1)")
        self.begin_waiting(new, statement)
        self.sql("begin; select fenceguard.admit('accounts/1', 34, 'a'), fenceguard.admit('accounts/2', 34, 'a');"
                 "update guarded set balance = 70 where id = 1; commit")
        self.advance(35, "b")
        gate.run("select pg_advisory_unlock(1)")

    GATES = {
        "a statement": ("create trigger a_gate before update on guarded for each statement execute function pass_gate()",
                        READ_AND_WRITE),
        "a function": ("", "select pass(), write()"),
        "a DO block": ("", f"do $$ begin perform pass(); {READ_AND_WRITE}; end $$"),
        "a cascade": ("create trigger a_gate before delete on account for each statement execute function pass_gate()",
                      "delete from account where id = (select balance - 99 from guarded where id = 1)"),
    }

    def test_statement_with_a_snapshot_before_its_advance_is_40001(self):
        """With an old transaction open beside it, so that nothing but the statement's own snapshot can tell."""
        self.sql("""create or replace function pass_gate() returns trigger language plpgsql as
                    $$ begin
                      if current_setting('application_name') = 'gated' then perform pass(); end if;
                      return null;
                    end $$;
                    create or replace function pass(out x int) language plpgsql as
                    $$ begin perform pg_advisory_lock(1); perform pg_advisory_unlock(1); end $$;
                    create or replace function write(out x int) language plpgsql as $$ begin """ + READ_AND_WRITE + "; end $$")
        for (name, (gate, statement)) in self.GATES.items():
            for is_busy in (False, True):
                with self.subTest(f"{name}, {is_busy}"):
                    self.setUp()
                    self.advance()
                    self.sql("delete from entry where false; alter table entry disable trigger all;"
                             "delete from entry; insert into entry values (1, 1);"
                             "alter table entry enable trigger all; alter table entry enable always trigger fenceguard_rows;"
                             "alter table entry enable always trigger fenceguard_session")
                    busy = self.session()
                    if is_busy:
                        busy.run("begin; insert into ledger values (1)")
                    self.sql(gate or "select 1")
                    new = self.claimant(("accounts/1", 35, "b"), ("accounts/2", 35, "b"))
                    new.run("set application_name = gated")
                    try:
                        self.old_snapshot(new, statement)
                        self.assert_fails("40001", new.wait)
                        self.assertEqual(self.balance(2), "100")
                        new.run(READ_AND_WRITE)  # a new statement sees it
                        self.assertEqual(self.balance(2), "70")
                    finally:
                        self.sql("drop trigger if exists a_gate on guarded; drop trigger if exists a_gate on account")
                        busy.run("rollback")

    def test_transaction_begun_before_the_advance_is_40001(self):
        for level in ("repeatable read", "serializable"):
            for waiting in (False, True):
                with self.subTest(f"{level}, {waiting}"):
                    self.setUp()
                    self.advance()
                    new = self.claimant(("accounts/1", 35, "b"), ("accounts/2", 35, "b"))
                    new.run(f"begin isolation level {level}; select from account \\g /dev/null\n")
                    self.advance(35, "b")
                    self.assert_fails("40001", new.run, READ_AND_WRITE)
                    new.run("rollback")
                    new.run(f"begin isolation level {level}; {READ_AND_WRITE}; commit")

    def test_a_cursor_from_before_the_advance_writes_nothing(self):
        self.advance()
        new, busy = self.claimant(("accounts/1", 35, "b")), self.session()
        busy.run("begin; insert into ledger values (1)")
        new.run("begin; declare k cursor for select * from guarded where id = 1; fetch k \\g /dev/null\n")
        self.advance(35, "b")
        self.assert_fails("40001", new.run, "update guarded set balance = 1 where current of k")
        new.run("rollback")
        new.run("update guarded set balance = 1 where id = 1")

    def test_claim_that_was_not_advanced_is_40001_for_its_own_rows(self):
        self.advance()
        program_ = self.claimant(("accounts/1", 35, "b"), ("accounts/2", 34, "a"))
        program_.run("update guarded set balance = 1 where id = 2")
        error = self.assert_fails("40001", program_.run, "update guarded set balance = 1 where id = 1")
        self.assertIn("before the program starts", error.stderr)
        self.advance(35, "b", ids=(1,))
        program_.run("update guarded set balance = 1 where id = 1")

    def test_advance_during_a_transaction_is_seen_afterwards(self):
        self.advance()
        program_ = self.claimant(("accounts/1", 35, "b"), ("accounts/2", 34, "a"))
        program_.run("begin; update guarded set balance = 1 where id = 2")
        self.advance(35, "b", ids=(1,))
        program_.run("update guarded set balance = 2 where id = 1; commit")
        self.assertEqual(self.balance(1), "2")

    def test_a_stale_or_conflicting_claim_holds_nobody_up(self):
        self.advance(36, "c", ids=(1,))
        self.advance(34, "other", ids=(2,))
        program_ = self.claimant(("accounts/1", 34, "a"), ("accounts/2", 34, "a"), ("accounts/3", 34, "a"))
        self.advance(ids=(3,))
        program_.run("begin; update guarded set balance = 1 where id = 3")
        self.sql("set lock_timeout = '5 s'; select fenceguard.advance('accounts/1', 37, 'c', cut => false), "
                 "fenceguard.advance('accounts/2', 37, 'c', cut => false)")
        program_.run("commit")
        error = self.assert_fails("ZF001", program_.run, "update guarded set balance = 1 where id = 1")
        self.assertIn("the claim to 'accounts/1' is stale", error.stderr)
        self.advance(34, "other", ids=(4,))
        program_ = self.claimant(("accounts/4", 34, "a"))
        self.assert_fails("ZF002", program_.run, "update guarded set balance = 1 where id = 4")

    def test_nothing_that_a_session_sets_passes_for_an_admission(self):
        self.advance()
        self.sql("do $$ begin create role mortal login; exception when duplicate_object then null; end $$;"
                 "grant all on guarded to mortal")
        good = claims(("accounts/1", 34, "a"))
        stale = claims(("accounts/1", 33, "a"))
        forger = self.session("mortal")
        seen = "set_config('fenceguard.session_claims_seen', pg_current_xact_id() || E'\\n{}', {})"
        for what, sql, states in (
                ("a mark without an admission", f"begin; set local fenceguard.session_claims = '{good}'; "
                 f"select {seen.format(good, 'true')} \\g /dev/null\n", "40001"),
                ("a mark with a stale claim", f"begin; set local fenceguard.session_claims = '{stale}'; "
                 f"select {seen.format(stale, 'true')} \\g /dev/null\n", "ZF001"),
                ("a stale claim", f"begin; set local fenceguard.session_claims = '{stale}'", "ZF001"),
                ("a mark alone", f"begin; select {seen.format('', 'false')} \\g /dev/null\n", "ZF003"),
                ("the claim in the setting of the notes", "begin; " + "".join(
                    f"set local fenceguard.claims_{i} = '{good}';" for i in range(64)), "ZF003"),
                ("a claim of which the holder is guessed", "begin; set local fenceguard.session_claims = "
                 f"'{claims(('accounts/1', 34, ''))}'", "ZF002")):
            if FAST and what == "a mark without an admission":
                continue  # the extension keeps no mark, and admits that claim, which is a good one
            with self.subTest(what):
                self.assert_fails(states, forger.run, sql + "; update guarded set balance = 666 where id = 1")
                forger.run("rollback; discard all")
        self.assertEqual(self.balance(1), "100")

    def test_mark_of_rolled_back_savepoint_is_ignored(self):
        self.advance()
        program_ = self.claimant()
        program_.run("begin; update guarded set balance = 1 where id = 1; "
                     "select set_config('fenceguard.session_claims_seen', current_setting('fenceguard.session_claims_seen'), "
                     "false), set_config(n, current_setting(n), false) from (select 'fenceguard.claims_' || i as n "
                     "from generate_series(0, 63) i) x where current_setting(n, true) <> '' \\g /dev/null\ncommit")
        self.advance(35, "b")
        self.assert_fails("ZF001", program_.run, "update guarded set balance = 666 where id = 1")
        program_ = self.claimant(("accounts/1", 35, "b"))
        program_.run("begin; savepoint s; update guarded set balance = 2 where id = 1; rollback to s")
        self.assertEqual(self.sql("set lock_timeout = '5 s'; select fenceguard.advance('accounts/1', 36, 'c', cut => false)"),
                         "admitted")
        self.assert_fails("ZF001", program_.run, "update guarded set balance = 666 where id = 1")
        self.assertEqual(self.balance(1), "1")

    def test_withdrawn_claim_stays_admitted_and_another_is_judged(self):
        self.advance()
        session = self.session()
        session.run(f"begin; set local fenceguard.session_claims = '{claims(('accounts/1', 34, 'a'))}'; "
                    "update guarded set balance = 1 where id = 1; "
                    f"set local fenceguard.session_claims = '{claims(('accounts/2', 34, 'a'))}'; "
                    "update guarded set balance = 1 where id in (1, 2); "
                    "set local fenceguard.session_claims = ''; update guarded set balance = 2 where id in (1, 2)")
        self.assert_fails("ZF003", session.run, "update guarded set balance = 1 where id = 3")

    def test_malformed_claims_are_reported_and_admit_nothing(self):
        self.advance()
        many = [("accounts/1", 34, "a")] + [(f"x/{i:0200}", 1, "") for i in range(80)]
        for given, words in {
                "accounts/1": "invalid input syntax for type json", "{}": "claims are a JSON array", "[]": "a JSON array",
                '["x"]': "has no token", '[{"resource": "accounts/1"}]': "has no token",
                '[{"token": 34}]': "a resource is missing",
                claims(("accounts/1", 0, "a")): "a token is a number from 1", claims(("accounts/1", 2 ** 63, "a")): "out of range",
                claims(("accounts/1", 34, "a"), ("accounts/1", 34, "a")): "two claims of one call name the same resource",
                claims(("accounts//1", 34, "a")): "no empty segment", claims(*many): "longer than 16384 bytes",
                '[{"resource": "accounts/1", "token": 34, "holder": "a", "sequence": 1}]': "has a sequence"}.items():
            with self.subTest(given[:80]):
                session = self.session()
                session.run(f"set fenceguard.session_claims = '{given}'")
                error = self.assert_fails("22023", session.run, "update guarded set balance = 666 where id = 1")
                self.assertIn("the setting fenceguard.session_claims cannot be used", error.stderr)
                self.assertIn(words, error.stderr)
        self.assertEqual(self.balance(1), "100")

    def test_table_protected_by_an_older_install_says_what_to_do(self):
        self.advance()
        self.sql("alter table guarded disable trigger fenceguard_session")
        error = self.assert_fails("ZF003", self.claimant().run, "update guarded set balance = 666 where id = 1")
        self.assertIn("Call fenceguard.protect() again", error.stderr)

    def test_history_under_takeovers_has_no_stale_and_no_lost_write(self):
        """Programs with claims of their connections append, one after another takes over: the tokens of what landed only
        rise in the order of the commits under the row's lock, and what was acknowledged is there."""
        self.sql("drop table if exists history; create table history (id bigint, n bigint, token bigint, who text);"
                 "drop table if exists counter; create table counter (id bigint primary key, n bigint);"
                 "insert into counter values (1, 0); select fenceguard.protect('history', $$ 'accounts/' || id $$), "
                 "fenceguard.protect('counter', $$ 'accounts/' || id $$)")
        seed = random.randrange(2 ** 32)
        print(f"seed {seed}")
        acknowledged, refused, faults = [], [], []
        ended = threading.Event()

        def write(token, who):
            with self.server.session(self.dbname, env={
                    "PGOPTIONS": session_claims_option(claims(("accounts/1", token, "h")))}) as session:
                number = 0
                while not ended.is_set():
                    number += 1
                    try:
                        session.run("begin; update counter set n = n + 1 where id = 1; insert into history select 1, n, "
                                    f"{token}, '{who}/{number}' from counter where id = 1; commit")
                        acknowledged.append(f"{who}/{number}")
                    except SqlError as error:
                        session.run("rollback")
                        if error.sqlstate == "ZF001":
                            refused.append(token)
                            return
                        faults.append(error.stderr)
                        return

        self.sql("select fenceguard.advance('accounts/1', 1, 'h')")
        threads = []
        generator = random.Random(seed)
        for token in range(1, 13):
            self.sql(f"set fenceguard.cut = off; set fenceguard.drain = '30 s'; select fenceguard.advance('accounts/1', {token}, 'h')")
            started = len(acknowledged)
            for who in range(3):
                threads.append(threading.Thread(target=write, args=(token, f"{token}/{who}")))
                threads[-1].start()
            goal = started + generator.randrange(5, 40)
            wait_until(lambda: len(acknowledged) >= goal or faults, 60, "writes")
        # On a busy machine one may not have come to its next write yet.
        wait_until(lambda: len(refused) >= 33 or faults, 60, "the refusals of all older writers")
        ended.set()
        for thread in threads:
            thread.join()
        self.assertEqual(faults, [])
        self.assertEqual(len(refused), 33, "each older writer was told")
        rows = self.sql("select string_agg(token || ' ' || who, ',' order by n) from history").split(",")
        tokens = [int(row.split()[0]) for row in rows]
        self.assertEqual(tokens, sorted(tokens))
        self.assertEqual(sorted(row.split()[1] for row in rows), sorted(acknowledged))
        self.assertEqual(self.sql("select n from counter"), str(len(rows)))


if __name__ == "__main__":
    parts.main(form=1 if FAST else 0)
