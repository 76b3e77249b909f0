"""Several sessions at once against real fences: who waits for whom, who is cut, what an old snapshot may do.

Every test has a database of its own with account (id, balance), which is not protected, and the same as guarded, which
is, both with accounts 1 to 9. The resource of an account is accounts/ID. Where a test holds two sessions against each
other, it waits until the server says that one waits for the other.
"""

import os
import random
import threading
import time
import unittest

from postgres_server import ConnectionLost, Server, SqlError, wait_until

SET_UP = """
create table account (id bigint primary key, balance bigint not null);
insert into account select i, 100 from generate_series(1, 9) i;
create table guarded (id bigint primary key, balance bigint not null);
insert into guarded select i, 100 from generate_series(1, 9) i;
select fenceguard.protect('guarded', $$ 'accounts/' || id $$);
"""
R = "accounts/1"
# The ways of one write to account 1 under a claim, each in one transaction that is already open.
ADMIT = "select fenceguard.admit('accounts/1', {token}, '{holder}')"
WRITES = {
    "admit": ADMIT + "; update account set balance = {value} where id = 1",
    "admit with a sequence": "select fenceguard.admit('accounts/1', {token}, '{holder}', {value}); "
                             "update account set balance = {value} where id = 1",
    "admitted": "update account set balance = {value} where id = 1 "
                "and fenceguard.admitted('accounts/1', {token}, '{holder}')",
    "try_admit": "with g as materialized (select * from fenceguard.try_admit('accounts/1', {token}, '{holder}')) "
                 "update account set balance = {value} from g where g.verdict = 'admitted' and id = 1",
    "admit_all": "select fenceguard.admit_all('[{{\"resource\": \"accounts/1\", \"token\": {token}, "
                 "\"holder\": \"{holder}\"}}]'); update account set balance = {value} where id = 1",
    "protected": ADMIT + "; update guarded set balance = {value} where id = 1",
    "protected, noted by hand": "select set_config('fenceguard.claims', E'\\naccounts/1\\t{token}\\t{holder}\\n', true); "
                                "update guarded set balance = {value} where id = 1",
}
BALANCES = "select a.balance || ' ' || g.balance from account a join guarded g using (id) where id = 1"


class ServerTest(unittest.TestCase):
    """Tests that share a server and a database of their class's own, which is as new for each of them."""

    settings = {}

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.settings)
        cls.addClassCleanup(cls.server.remove)
        cls.installed = cls.server.create_database(install=True)
        cls.server.psql(SET_UP, cls.installed)

    def setUp(self):
        """Also between the parts of a test: ends what others have open, and puts everything back."""
        self.dbname = self.installed
        for prepared in self.sql("select gid from pg_prepared_xacts").split():
            self.sql(f"rollback prepared '{prepared}'")
        self.sql(f"select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '{self.installed}' "
                 "and pid <> pg_backend_pid()")
        self.sql("""
            delete from fenceguard.fences;
            delete from fenceguard.leases;
            delete from fenceguard.floor;
            insert into fenceguard.floor (floor) values (0);
            alter table guarded disable trigger all;
            update account set balance = 100;
            update guarded set balance = 100;
            alter table guarded enable always trigger fenceguard_rows;
            alter table guarded enable always trigger fenceguard_truncate;
            drop table if exists granted, drawn""")

    def session(self, user="postgres"):
        session = self.server.session(self.dbname, user)
        self.addCleanup(session.close)
        return session

    def sql(self, text, user="postgres"):
        return self.server.psql(text, self.dbname, user)

    def assert_fails(self, sqlstates, function, *arguments):
        with self.assertRaises(SqlError) as caught:
            function(*arguments)
        states = (sqlstates,) if isinstance(sqlstates, str) else sqlstates
        self.assertIn(caught.exception.sqlstate, states, caught.exception.stderr)
        return caught.exception

    def begin_waiting(self, session, sql):
        session.begin_run(sql)
        self.server.wait_until_waiting(session)


class TakeOver(ServerTest):
    def test_an_advance_waits_for_an_older_write_in_flight_and_then_sees_it(self):
        for way, write in WRITES.items():
            with self.subTest(way):
                self.setUp()
                old, new = self.session(), self.session()
                self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                old.run("begin")
                old.run(write.format(token=34, holder="a", value=7))
                self.begin_waiting(new, "select fenceguard.advance('accounts/1', 35, 'b', cut => false)")
                old.run("commit")
                self.assertEqual(new.wait(), "admitted")
                self.assertIn("7", new.run(BALANCES).split())
                self.assert_fails(("ZF001", "ZF003"), old.run,
                                  "begin; " + write.format(token=34, holder="a", value=8)
                                  + "; do $$ begin if (select verdict from fenceguard.try_admit('accounts/1', 34, 'a')) "
                                    "= 'stale' then raise sqlstate 'ZF001'; end if; end $$")
                old.run("rollback")
                self.assertNotIn("8", new.run(BALANCES).split())

    def test_a_revoke_waits_as_well(self):
        old, new = self.session(), self.session()
        old.run("begin; " + WRITES["admit"].format(token=34, holder="a", value=7))
        self.begin_waiting(new, "select fenceguard.revoke('accounts/1', cut => false)")
        old.run("commit")
        self.assertEqual(new.wait(), "t")
        self.assertEqual(new.run(BALANCES), "7 100")
        self.assert_fails("ZF001", old.run, ADMIT.format(token=34, holder="a"))

    def test_a_plain_look_at_the_fence_row_would_not_be_enough_and_is_not_what_is_done(self):
        """The older transaction has claimed and not written yet: the advance waits all the same."""
        old, new = self.session(), self.session()
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        old.run("begin; " + ADMIT.format(token=34, holder="a"))
        self.begin_waiting(new, "select fenceguard.advance('accounts/1', 35, 'b', cut => false)")
        old.run("update account set balance = 7 where id = 1")
        self.assertTrue(self.server.is_waiting(new))
        old.run("rollback")
        self.assertEqual(new.wait(), "admitted")

    def test_from_the_moment_an_advance_waits_older_claims_are_not_let_in(self):
        old, new, late = self.session(), self.session(), self.session()
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        old.run("begin; " + WRITES["admit"].format(token=34, holder="a", value=7))
        self.begin_waiting(new, "select fenceguard.advance('accounts/1', 35, 'b', cut => false)")
        self.begin_waiting(late, ADMIT.format(token=34, holder="a"))
        old.run("commit")
        self.assertEqual(new.wait(), "admitted")
        self.assert_fails("ZF001", late.wait)

    def test_writers_under_one_token_do_not_wait_for_each_other(self):
        for way in ("admit", "admitted", "try_admit", "admit_all", "protected", "protected, noted by hand"):
            with self.subTest(way):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                sessions = [self.session() for _ in range(3)]
                for number, session in enumerate(sessions):
                    session.run("set lock_timeout = '5s'; begin")
                    write = WRITES[way].format(token=34, holder="a", value=7)
                    if "guarded" in write:  # another row of the same resource
                        write = ADMIT.format(token=34, holder="a")
                    session.run(write if number == 0 else ADMIT.format(token=34, holder="a"))
                for session in sessions:
                    session.run("commit")

    def test_an_advance_is_not_starved_by_a_stream_of_writers_under_one_token(self):
        """16 writers whose transactions overlap without a gap; the advance neither cuts nor waits for their end."""
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        writers = [self.session() for _ in range(16)]
        for writer in writers:
            writer.begin_run("do $$ begin loop perform fenceguard.admit('accounts/1', 34, 'a'); "
                             "perform pg_sleep(0.03); commit; end loop; end $$")
        wait_until(lambda: int(self.sql("select count(*) from pg_locks where locktype = 'advisory' and granted")) >= 12,
                   what="an overlap of the writers")
        begun = time.monotonic()
        self.assertEqual(self.sql("select fenceguard.advance('accounts/1', 35, 'b', '20 s', false)"), "admitted")
        took = time.monotonic() - begun
        print(f"advance against 16 writers: {took * 1000:.0f} ms, with psql's start")
        self.assertLess(took, 2)
        for writer in writers:
            self.assert_fails("ZF001", writer.wait)

    def test_an_older_holder_in_line_behind_a_newer_one_is_stale_when_its_turn_comes(self):
        first, newer, older = self.session(), self.session(), self.session()
        first.run("begin; " + WRITES["admit"].format(token=34, holder="a", value=7))
        self.begin_waiting(newer, "select fenceguard.advance('accounts/1', 36, 'c', cut => false)")
        self.begin_waiting(older, "select fenceguard.advance('accounts/1', 35, 'b', cut => false)")
        first.run("commit")
        self.assertEqual(newer.wait(), "admitted")
        self.assert_fails("ZF001", older.wait)


class Snapshots(ServerTest):
    levels = ("repeatable read", "serializable")

    def old_snapshot(self, level):
        session = self.session()
        session.run(f"begin isolation level {level}; select * from account")
        return session

    def assert_no_stale_write(self, session, token):
        """All that this session can try with a claim that is stale by now. 40001 is a fine answer; a write is not."""
        for way, write in WRITES.items():
            session.run("savepoint s")
            try:
                session.run(write.format(token=token, holder="a", value=666))
                session.run("release s")
            except SqlError as error:
                self.assertIn(error.sqlstate, ("40001", "ZF001", "ZF003"), f"{way}: {error.stderr}")
                session.run("rollback to s")
        try:
            session.run("commit")
        except SqlError as error:
            self.assertEqual(error.sqlstate, "40001")
        self.assertNotIn("666", self.sql(BALANCES).split())

    def test_a_claim_that_equalled_the_fence_in_an_old_snapshot_writes_nothing_after_the_take_over(self):
        for level in self.levels:
            with self.subTest(level):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                session = self.old_snapshot(level)
                self.sql("select fenceguard.advance('accounts/1', 35, 'b'); update account set balance = 35 where id = 1")
                self.assert_no_stale_write(session, 34)

    def test_nor_where_the_snapshot_is_older_than_the_first_record(self):
        for level in self.levels:
            with self.subTest(level):
                self.setUp()
                session = self.old_snapshot(level)
                self.sql("select fenceguard.advance('accounts/1', 35, 'b')")
                self.assert_no_stale_write(session, 34)

    def test_nor_where_a_record_was_made_and_compacted_behind_it(self):
        for level in self.levels:
            for before in ("select 1", "select fenceguard.advance('accounts/1', 34, 'a')"):
                with self.subTest(f"{level}: {before}"):
                    self.setUp()
                    self.sql(before)
                    session = self.old_snapshot(level)
                    self.sql("select fenceguard.advance('accounts/1', 35, 'b'); select fenceguard.compact(36)")
                    self.assertEqual(self.sql("select count(*) from fenceguard.fences"), "0")
                    self.assert_no_stale_write(session, 34)

    def test_nor_where_it_was_revoked_behind_it(self):
        for level in self.levels:
            with self.subTest(level):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                session = self.old_snapshot(level)
                self.sql("select fenceguard.revoke('accounts/1')")
                self.assert_no_stale_write(session, 34)

    def test_nor_where_the_floor_was_raised_behind_it(self):
        for level in self.levels:
            with self.subTest(level):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                session = self.old_snapshot(level)
                self.sql("select fenceguard.init(40)")
                self.assert_no_stale_write(session, 34)

    def test_a_take_over_above_read_committed_is_told_to_advance_first(self):
        """It would wait for the older write, and then read and commit without it."""
        for level in self.levels:
            with self.subTest(level):
                self.setUp()
                old = self.session()
                old.run("begin; " + WRITES["admit"].format(token=34, holder="a", value=7))
                new = self.old_snapshot(level)
                error = self.assert_fails("40001", new.run, ADMIT.format(token=35, holder="b"))
                self.assertIn("fenceguard.advance(", error.hint)
                old.run("commit")

    def test_a_claim_that_equals_the_fence_is_admitted_above_read_committed(self):
        for level in self.levels:
            with self.subTest(level):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 35, 'b')")
                session = self.old_snapshot(level)
                session.run(WRITES["protected"].format(token=35, holder="b", value=8) + "; commit")
                self.assertEqual(self.sql(BALANCES), "100 8")

    def test_a_claim_that_waits_in_read_committed_is_ruled_on_by_what_is_there_then(self):
        for behind in ("", "; select fenceguard.compact(36)"):
            with self.subTest(behind):
                self.setUp()
                newer, late = self.session(), self.session()
                self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                newer.run("begin; select fenceguard.admit('accounts/1', 35, 'b')")
                self.begin_waiting(late, ADMIT.format(token=34, holder="a"))
                newer.run("commit" + behind)
                self.assert_fails("ZF001", late.wait)

    def test_a_statement_that_waited_reads_no_row_from_before_the_wait(self):
        """The older writer's row and the claim in one statement: what it writes is built on what the writer left."""
        old, new, late = self.session(), self.session(), self.session()
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        old.run("begin; " + ADMIT.format(token=34, holder="a") + "; update account set balance = balance - 30 where id = 1")
        self.begin_waiting(new, "select fenceguard.advance('accounts/1', 35, 'b', cut => false)")
        self.begin_waiting(late, "update account set balance = balance - 5 where id = 1 "
                                 "and fenceguard.admitted('accounts/1', 35, 'b')")
        old.run("commit")
        new.wait()
        try:
            late.wait()
        except SqlError as error:
            self.assertEqual(error.sqlstate, "40001")
        self.assertIn(self.sql(BALANCES), ("65 100", "70 100"))


class Cutting(ServerTest):
    def test_a_holder_that_is_stopped_in_its_transaction_is_cut_after_the_drain(self):
        for way, write in WRITES.items():
            with self.subTest(way):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                stopped = self.session()
                stopped.run("begin; " + write.format(token=34, holder="a", value=666))
                begun = time.monotonic()
                self.assertEqual(self.sql("select fenceguard.advance('accounts/1', 35, 'b', '0.3 s')"), "admitted")
                self.assertGreaterEqual(time.monotonic() - begun, 0.3)
                self.assert_fails("57P01", stopped.run, "commit")
                self.assertEqual(self.sql(BALANCES), "100 100")

    def test_one_that_holds_the_fence_alone_is_cut_too(self):
        for sql in ("select fenceguard.admit('accounts/1', 34, 'a')", "select fenceguard.advance('accounts/1', 34, 'a')",
                    "select fenceguard.admit('accounts/1', 34, 'a', 1)",
                    "select fenceguard.admit_all('[{\"resource\": \"accounts/1\", \"token\": 34}]')",
                    "select fenceguard.admit('accounts/1', 33, 'z'), fenceguard.admit('accounts/1', 34, 'a')"):
            for token in (35, 2 ** 31, 2 ** 42 + 34, 2 ** 63 - 1):
                with self.subTest(f"{sql}, {token}"):
                    self.setUp()
                    stopped = self.session()
                    stopped.run(f"begin; {sql}; update account set balance = 666 where id = 1")
                    self.assertEqual(self.sql(f"select fenceguard.advance('accounts/1', {token}, 'b', '0.1 s')"),
                                     "admitted")
                    self.assert_fails("57P01", stopped.run, "commit")
                    self.assertEqual(self.sql(BALANCES), "100 100")

    def test_a_revoke_cuts_the_present_holder(self):
        for sequence in ("null", "7"):
            with self.subTest(sequence):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                stopped = self.session()
                stopped.run(f"begin; select fenceguard.admit('accounts/1', 34, 'a', {sequence})")
                self.assertEqual(self.sql("select fenceguard.revoke('accounts/1', drain => '0.1 s')"), "t")
                self.assert_fails("57P01", stopped.run, "commit")

    def test_told_to_wait_only_it_answers_that_the_lock_is_not_available(self):
        stopped = self.session()
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        stopped.run("begin; " + WRITES["admit"].format(token=34, holder="a", value=7))
        for sql in ("select fenceguard.advance('accounts/1', 35, 'b', '0.1 s', false)",
                    "set fenceguard.drain = '0.1 s'; set fenceguard.cut = off; select fenceguard.admit('accounts/1', 35, 'b')",
                    "select fenceguard.revoke('accounts/1', null, '', '0.1 s', false)"):
            error = self.assert_fails("55P03", self.sql, sql)
            self.assertIn(f"backend {stopped.pid}", error.detail)
        self.assertEqual(self.sql("select token || holder || closed from fenceguard.fence"), "34afalse")
        stopped.run("commit")
        self.assertEqual(self.sql(BALANCES), "7 100")
        self.assertEqual(self.sql("select fenceguard.advance('accounts/1', 35, 'b')"), "admitted")

    def test_a_newer_holder_is_not_cut_by_an_older_one_that_waits(self):
        for sql in ("select fenceguard.admit('accounts/1', 36, 'c')", "select fenceguard.admit('accounts/1', 36, 'c', 1)",
                    "select fenceguard.admit('accounts/1', 36, 'c'); select fenceguard.admit('accounts/1', 36, 'c')",
                    "select fenceguard.admit('accounts/1', 36, 'c'); update guarded set balance = 7 where id = 1",
                    "select fenceguard.admit('accounts/1', 36, 'c'), fenceguard.try_admit('accounts/1', 36, 'c')"):
            for before in ("select 1", "select fenceguard.advance('accounts/1', 34, 'a')"):
                with self.subTest(f"{before}; {sql}"):
                    self.setUp()
                    self.sql(before)
                    newer = self.session()
                    newer.run(f"begin; {sql}")
                    self.assert_fails("55P03", self.sql, "select fenceguard.advance('accounts/1', 35, 'b', '0.1 s')")
                    self.assertEqual(self.sql("select fenceguard.cut('accounts/1', 36)"), "0")
                    newer.run("commit")
                    self.assert_fails("ZF001", self.sql, "select fenceguard.advance('accounts/1', 35, 'b')")

    def test_a_newer_one_that_waits_behind_the_same_stopped_holder_is_not_cut(self):
        stopped, newer, older = self.session(), self.session(), self.session()
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        stopped.run("begin; " + ADMIT.format(token=34, holder="a"))
        self.begin_waiting(newer, "begin; select fenceguard.advance('accounts/1', 36, 'c', '20 s')")
        self.begin_waiting(older, "select fenceguard.advance('accounts/1', 35, 'b', '0.2 s')")
        self.assertEqual(newer.wait(), "admitted")  # the older one cut the stopped one
        self.assert_fails("57P01", stopped.run, "commit")
        try:
            newer.run("commit")
        finally:
            self.assert_fails(("ZF001", "55P03"), older.wait)

    def test_by_hand_those_are_cut_that_keep_somebody_waiting(self):
        stopped, bystander, new = self.session(), self.session(), self.session()
        self.sql("select fenceguard.advance('accounts/1', 34, 'a'), fenceguard.advance('accounts/2', 34, 'a')")
        stopped.run("begin; " + ADMIT.format(token=34, holder="a"))
        bystander.run("begin; select fenceguard.admit('accounts/2', 34, 'a')")
        self.assertEqual(self.sql("select fenceguard.cut('accounts/1')"), "0")  # nobody waits
        self.assertEqual(self.sql("select fenceguard.cut('accounts/1', 34)"), "0")  # it is not older than 34
        self.begin_waiting(new, "select fenceguard.advance('accounts/1', 35, 'b', '20 s')")
        self.assertEqual(self.sql("select fenceguard.cut('accounts/1')"), "1")
        self.assertEqual(new.wait(), "admitted")
        self.assert_fails("57P01", stopped.run, "commit")
        bystander.run("commit")

    def test_who_may_not_end_a_backend_is_told_what_to_grant(self):
        self.server.psql("create role plain_installer login; create role application login; create role taker login")
        self.dbname = self.server.create_database(owner="plain_installer")
        self.server.install(self.dbname, "plain_installer")
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')", "application")
        stopped, new = self.session("application"), self.session("taker")
        stopped.run("begin; " + ADMIT.format(token=34, holder="a"))
        error = self.assert_fails("42501", new.run, "select fenceguard.advance('accounts/1', 35, 'b', '0.1 s')")
        self.assertIn("grant pg_signal_backend to plain_installer", error.hint)
        self.begin_waiting(new, "select fenceguard.advance('accounts/1', 35, 'b', '20 s')")
        error = self.assert_fails("42501", self.sql, "select fenceguard.cut('accounts/1')", "plain_installer")
        self.assertIn("pg_signal_backend", error.hint)
        self.server.psql("grant pg_signal_backend to plain_installer")
        self.assertEqual(self.sql("select fenceguard.cut('accounts/1')", "plain_installer"), "1")
        self.assertEqual(new.wait(), "admitted")
        self.assert_fails("57P01", stopped.run, "commit")

    def test_a_prepared_transaction_under_a_claim_is_named_and_waited_for(self):
        for sql in (ADMIT.format(token=34, holder="a"), "select fenceguard.admit('accounts/1', 34, 'a', 7)"):
            with self.subTest(sql):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                self.sql(f"begin; {sql}; update account set balance = 7 where id = 1; prepare transaction 'p'")
                error = self.assert_fails("55P03", self.sql, "select fenceguard.advance('accounts/1', 35, 'b', '0.1 s')")
                self.assertIn("a prepared transaction", error.detail)
                self.server.restart("immediate")
                self.assert_fails("55P03", self.sql, "select fenceguard.advance('accounts/1', 35, 'b', '0.1 s')")
                self.sql("commit prepared 'p'")
                self.assertEqual(self.sql("select fenceguard.advance('accounts/1', 35, 'b')"), "admitted")
                self.assertEqual(self.sql(BALANCES), "7 100")

    def test_a_savepoint_that_is_rolled_back_takes_the_admission_with_it(self):
        old = self.session()
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        old.run("begin; savepoint s; " + WRITES["protected"].format(token=34, holder="a", value=7) + "; rollback to s")
        self.assertEqual(self.sql("select fenceguard.advance('accounts/1', 35, 'b', cut => false)"), "admitted")
        self.assert_fails("ZF003", old.run, "update guarded set balance = 666 where id = 1")
        old.run("rollback; begin")
        self.assert_fails("ZF001", old.run, WRITES["protected, noted by hand"].format(token=34, holder="a", value=666))

    def test_the_sessions_own_timeouts_count_and_leave_nothing_behind(self):
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        holder, waiter = self.session(), self.session()
        holder.run("begin; " + ADMIT.format(token=34, holder="a"))
        for setting, state in (("statement_timeout = '200ms'", "57014"), ("lock_timeout = '200ms'", "55P03")):
            for sql in ("select fenceguard.advance('accounts/1', 35, 'b', '20 s')",
                        "select fenceguard.admit('accounts/1', 35, 'b')", "select fenceguard.revoke('accounts/1')",
                        "select fenceguard.admit('accounts/1', 34, 'a', 5)"):
                with self.subTest(f"{setting}: {sql}"):
                    begun = time.monotonic()
                    self.assert_fails(state, waiter.run, f"begin; set local {setting}; {sql}")
                    self.assertLess(time.monotonic() - begun, 3)
                    waiter.run("rollback")
                    self.assertEqual(self.sql(f"select count(*) from pg_locks where pid = {waiter.pid} "
                                              "and locktype = 'advisory'"), "0")
        self.assertEqual(waiter.run("show lock_timeout"), "0")
        holder.run("commit")
        newer = self.session()
        newer.run("begin; select fenceguard.admit('accounts/1', 35, 'b')")
        for way in ("admit", "admitted", "try_admit", "protected, noted by hand"):
            write = WRITES[way].format(token=34, holder="a", value=666)
            self.assert_fails("55P03", waiter.run, f"begin; set local lock_timeout = '100ms'; {write}")
            waiter.run("rollback")
        newer.run("commit")
        self.assertEqual(self.sql(BALANCES), "100 100")

    def test_the_sessions_lock_timeout_is_as_before_afterwards(self):
        session, holder = self.session(), self.session()
        holder.run("begin; " + ADMIT.format(token=34, holder="a"))
        session.run("set lock_timeout = '17s'")
        session.begin_run("begin; select fenceguard.admit('accounts/1', 35, 'b')")
        self.server.wait_until_waiting(session)
        holder.run("commit")
        session.wait()
        self.assertEqual(session.run("show lock_timeout"), "17s")
        session.run("commit")
        self.assertEqual(session.run("show lock_timeout"), "17s")


class Crowds(ServerTest):
    def test_overlapping_sets_in_opposite_orders_do_not_deadlock(self):
        """Transfers between random accounts in random order, by 8 sessions with equal, newer and sequenced claims."""
        seed = int(os.environ.get("SEED", random.randrange(2 ** 32)))
        print(f"SEED={seed}")
        self.sql("select fenceguard.advance('accounts/' || i, 1, 'h') from generate_series(1, 9) i")
        workers = [self.session() for _ in range(8)]
        for number, worker in enumerate(workers):
            worker.begin_run(f"select setseed({((seed + number) % 1000) / 1000})")
            worker.wait()
            worker.begin_run("""do $$
              declare
                ids bigint[];
                refused integer := 0;
              begin
                for round in 1..60 loop
                  begin
                    select array_agg(i) into ids from (select i from generate_series(1, 9) i order by random() limit 4) x;
                    perform fenceguard.admit_all((select jsonb_agg(jsonb_build_object('resource', 'accounts/' || i, 'token',
                      case when random() < 0.05 then 2 else coalesce((select f.token from fenceguard.fences f
                        where f.resource = 'accounts/' || i), 1) end, 'holder', 'h',
                      'sequence', case when random() < 0.2 then round * 100 end)) from unnest(ids) i));
                    update guarded set balance = balance + case id when ids[1] then 1 else -1 end where id = any (ids[1:2]);
                  exception when sqlstate 'ZF001' then refused := refused + 1;
                  end;
                  commit;
                end loop;
                raise notice 'refused: %', refused;
              end $$""")
        for worker in workers:
            try:
                worker.wait(50)
            except SqlError as error:
                # Two transactions that write rows of one token in opposite orders are the callers' own deadlock; the
                # fences' locks are advisory ones.
                self.assertNotIn("advisory", error.stderr)
                self.assertEqual(error.sqlstate, "40P01", error.stderr)
        self.assertEqual(self.sql("select sum(balance) from guarded"), "900")

    def test_writers_of_one_token_with_and_without_sequences_do_not_deadlock(self):
        self.sql("select fenceguard.advance('accounts/1', 1, 'h')")
        workers = [self.session() for _ in range(8)]
        for number, worker in enumerate(workers):
            sequence = "null" if number % 2 else f"round * 8 + {number}"
            worker.begin_run("do $$ begin for round in 1..50 loop begin "
                             f"perform fenceguard.admit('accounts/1', 1, 'h', {sequence}); "
                             "update guarded set balance = balance + 1 where id = 1; "
                             "exception when sqlstate 'ZF001' then null; end; commit; end loop; end $$")
        for worker in workers:
            worker.wait(50)

    def test_tokens_rise_strictly_under_contention(self):
        """50 sessions take one lock again and again; each grant is logged while the lease's row is locked."""
        self.sql("create table granted (place serial, token bigint, holder text)")
        takers = [self.session() for _ in range(50)]
        for taker in takers:
            taker.begin_run("""do $$
              declare
                g record;
                had integer := 0;
              begin
                while had < 4 loop
                  select * into g from fenceguard.acquire('accounts/1', '1 hour');
                  if g.verdict = 'granted' then
                    insert into granted (token, holder) values (g.token, g.granted_to);
                    commit;
                    perform fenceguard.release('accounts/1', g.token, g.granted_to);
                    had := had + 1;
                  end if;
                  commit;
                  perform pg_sleep(0.002);
                end loop;
              end $$""")
        for taker in takers:
            taker.wait(60)
        self.assertEqual(self.sql("select count(*), count(distinct token), count(distinct holder) from granted"),
                         "200|200|200")
        self.assertEqual(self.sql("select count(*) from (select token <= lag(token) over (order by place) as falls "
                                  "from granted) x where falls"), "0")

    def test_numbers_that_are_drawn_while_the_counter_is_lifted_are_unique_and_above_the_mark(self):
        self.sql("create table drawn (at_least bigint, token bigint)")
        workers = [self.session() for _ in range(10)]
        for number, worker in enumerate(workers):
            if number < 3:
                step = (f"mark := round * 10 + {number}; perform fenceguard.raise(mark); commit; "
                        "insert into drawn select mark, fenceguard.draw(); commit;")
            elif number < 6:
                step = "insert into drawn select 0, fenceguard.draw(); commit;"
            else:
                step = (f"insert into drawn select 0, (fenceguard.acquire('l/{number}/' || round, '1 s')).token; commit;")
            worker.begin_run("do $$ declare mark bigint; begin for round in 1..40 loop " + step + " end loop; end $$")
        for worker in workers:
            worker.wait(60)
        self.assertEqual(self.sql("select count(*) - count(distinct token), count(*) filter (where token <= at_least) "
                                  "from drawn"), "0|0")


class Durability(ServerTest):
    """A crash right after the commit was acknowledged. The WAL writer sleeps, so what was not flushed is lost."""

    settings = {"wal_writer_delay": "10s", "synchronous_commit": "off", "bgwriter_delay": "10s", "autovacuum": "off"}

    def crash_after(self, sql):
        """Answers what the statements said, the last of which commits."""
        self.server.psql("checkpoint")
        session = self.server.session(self.dbname)
        answer = session.run(sql)
        self.server.stop("immediate")
        session.close()
        self.server.start()
        return answer

    def test_without_it_a_commit_is_lost(self):
        """The control: on this server an asynchronous commit does not survive."""
        self.crash_after("update account set balance = 7 where id = 1")
        self.assertEqual(self.sql(BALANCES), "100 100")

    def test_an_advance_that_was_acknowledged_survives_whatever_the_session_says(self):
        for number, sql in enumerate((
                "select fenceguard.advance('accounts/1', 34, 'a')", "select fenceguard.admit('accounts/1', 34, 'a')",
                "select fenceguard.admit('accounts/1', 34, 'a', 7)",
                "select fenceguard.admit_all('[{\"resource\": \"accounts/1\", \"token\": 34}]')",
                "begin; select fenceguard.admit('accounts/1', 34, 'a'); set local synchronous_commit = off; commit",
                "begin; select fenceguard.admit('accounts/1', 34, 'a'); set local synchronous_commit = local; commit",
                "begin; set local synchronous_commit = on; select fenceguard.admit('accounts/1', 34, 'a'); "
                "set local synchronous_commit = off; commit",
                "begin; select fenceguard.admit('accounts/1', 34, 'a'); set synchronous_commit = off; commit",
                "begin; set local session_replication_role = replica; select fenceguard.admit('accounts/1', 34, 'a'); "
                "set local synchronous_commit = off; commit",
                "begin; savepoint s; select fenceguard.admit('accounts/1', 34, 'a'); release s; savepoint t; "
                "set local synchronous_commit = off; commit",
                "begin; set constraints all immediate; select fenceguard.admit('accounts/1', 34, 'a'); "
                "set local synchronous_commit = off; commit",
                "begin; select fenceguard.admit('accounts/1', 34, 'a'); set constraints all immediate; "
                "set local synchronous_commit = off; commit",
                "begin; select fenceguard.admit('accounts/1', 34, 'a'); prepare transaction 'p'; commit prepared 'p'")):
            with self.subTest(sql):
                self.setUp()
                self.crash_after(sql)
                self.assertEqual(self.sql("select token from fenceguard.fence where resource = 'accounts/1'"), "34")

    def test_so_do_a_revoke_the_floor_and_a_rebase(self):
        for sql, look in (
                ("select fenceguard.revoke('accounts/1')", "select closed from fenceguard.fence"),
                ("begin; select fenceguard.revoke('accounts/1'); set local synchronous_commit = off; commit",
                 "select closed from fenceguard.fence"),
                ("select fenceguard.init(1000)", "select floor = 1000 from fenceguard.floor"),
                ("delete from fenceguard.floor; select fenceguard.init(1000)", "select floor = 1000 from fenceguard.floor"),
                ("select fenceguard.compact(40)", "select floor = 33 from fenceguard.floor"),
                ("select fenceguard.rebase('accounts/1', 30)", "select token = 30 from fenceguard.fence")):
            with self.subTest(sql):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 33, 'a')")
                self.crash_after(sql)
                self.assertEqual(self.sql(look), "t")

    def test_no_token_is_issued_twice(self):
        for take in ("select (fenceguard.acquire('accounts/1', '1 hour')).token", "select fenceguard.draw()",
                     "select (fenceguard.acquire_kept('accounts/1', 'h', 'row', pg_backend_pid())).token",
                     "begin; select (fenceguard.acquire('accounts/1', '1 hour')).token; set local synchronous_commit = off;"
                     "commit",
                     "begin; set constraints all immediate; select (fenceguard.acquire('accounts/1', '1 hour')).token; "
                     "set local synchronous_commit = off; commit",
                     "begin; set constraints all immediate; select fenceguard.draw(); set local synchronous_commit = off; "
                     "commit"):
            with self.subTest(take):
                self.setUp()
                tokens = []
                for round in range(3):
                    tokens.append(int(self.crash_after(take.replace("accounts/1", f"accounts/{round}"))))
                tokens.append(int(self.sql("select fenceguard.draw()")))
                self.assertEqual(tokens, sorted(set(tokens)))

    def test_a_grant_that_was_acknowledged_is_still_held(self):
        token = self.crash_after("select (fenceguard.acquire('accounts/1', '1 hour', 'h')).token")
        self.assertEqual(self.sql("select token, holder from fenceguard.lease"), f"{token}|h")

    def test_a_counter_that_was_lifted_stays_up(self):
        for sql in ("select fenceguard.raise(5000)",
                    "begin; select fenceguard.raise(5000); set local synchronous_commit = off; commit"):
            self.setUp()
            self.crash_after(sql)
            self.assertEqual(self.sql("select fenceguard.draw()"), "5001")


if __name__ == "__main__":
    unittest.main()
