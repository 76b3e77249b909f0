"""Sessions held against each other: who waits for whom, who is cut, what an old snapshot may do.

A test waits until the server says that one session waits for the other; nothing here is left to luck.
"""

import ctypes
import itertools
import time
import unittest

import parts
from postgres_server import FAST, SqlError, wait_until
from sessions import ADMIT, BALANCES, WRITES, ServerTest


def state_of_call(conninfo, oid):
    """The SQLSTATE of a function without parameters that is called by the protocol's own message; None: it went well.
    No text of a query is known to the server meanwhile, as in the workers of logical replication."""
    pq = ctypes.CDLL("libpq.so.5")
    pq.PQconnectdb.restype = pq.PQfn.restype = ctypes.c_void_p
    pq.PQresultErrorField.restype = ctypes.c_char_p
    connection = ctypes.c_void_p(pq.PQconnectdb(conninfo.encode()))
    answer, length = ctypes.create_string_buffer(1 << 10), ctypes.c_int()
    result = ctypes.c_void_p(pq.PQfn(connection, ctypes.c_uint(oid), answer, ctypes.byref(length), 0, None, 0))
    state = pq.PQresultErrorField(result, ord("C"))
    pq.PQclear(result)
    pq.PQfinish(connection)
    return state and state.decode()


class TakeOver(ServerTest):
    def test_advance_waits_for_an_older_write_and_then_sees_it(self):
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

    def test_refused_newer_claim_is_not_cut_by_an_older_one(self):
        """try_admit() shares the lock before it looks, and keeps it: that alone makes nobody an older writer."""
        newest, older = self.session(), self.session()
        self.sql("select fenceguard.advance('accounts/1', 1, 'a')")
        newest.run("begin")
        self.assertEqual(newest.run("select verdict from fenceguard.try_admit('accounts/1', 9, 'newest')"), "advance")
        self.assert_fails("55P03", older.run, "select fenceguard.advance('accounts/1', 2, 'b', drain => '0.1 s')")
        self.assertEqual(newest.run("select 1"), "1")

    def test_claim_in_a_statement_older_than_its_advance_is_refused(self):
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        for number, resource in enumerate(["'accounts/1'", "(select 'accounts/1'::text)"], 35):
            old, new, late = self.session(), self.session(), self.session()
            old.run("begin; " + ADMIT.format(token=number - 1, holder="a"))
            old.run("update account set balance = balance + 1 where id = 1")
            self.begin_waiting(new, f"select fenceguard.advance('accounts/1', {number}, 'a', cut => false)")
            self.begin_waiting(late, "update account set balance = (select balance from account where id = 1) "
                                     f"where id = 2 and fenceguard.admitted({resource}, {number}, 'a')")
            old.run("commit")
            self.assertEqual(new.wait(), "admitted")
            self.assert_fails("40001", late.wait)

    def test_statement_older_than_a_finished_advance_is_refused(self):
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        for number, claim in enumerate(("fenceguard.admitted('accounts/1', {}, 'a')",
                                        "(select verdict = 'admitted' from fenceguard.try_admit('accounts/1', {}, 'a'))"), 35):
            with self.subTest(claim):
                holder, late = self.session(), self.session()
                holder.run("select pg_advisory_lock(1)")
                self.begin_waiting(late, "update account set balance = (select balance from account where id = 1) where id = 2 "
                                         "and (select pg_advisory_xact_lock(1) is not null) and "
                                         + claim.format(number))
                self.sql(f"begin; {ADMIT.format(token=number - 1, holder='a')}; update account set balance = 70 "
                         f"where id = 1; commit; select fenceguard.advance('accounts/1', {number}, 'a')")
                holder.run("select pg_advisory_unlock(1)")
                if "try" in claim:
                    late.wait()
                    self.assertEqual(self.sql("select balance from account where id = 2"), "100")
                else:
                    self.assert_fails("40001", late.wait)

    def test_a_floor_that_is_raised_while_a_row_waits_counts_for_it(self):
        """Claim and write are one message, or one function, so that nothing else lies between them."""
        write = "fenceguard.admit('accounts/1', {}, 'a'); update guarded set balance = 666 where id = 1"
        waits = ("lock table guarded in access exclusive mode", "select from guarded where id = 1 for update")
        forms = ("begin; select {}; commit", "do $$ begin perform {}; end $$")
        for number, (wait, form) in enumerate(itertools.product(waits, forms), 1):
            with self.subTest(f"{wait}, {form}"):
                token = 100 * number
                self.sql(f"select fenceguard.advance('accounts/1', {token}, 'a')")
                locker, writer = self.session(), self.session()
                locker.run(f"begin; {wait}")
                self.begin_waiting(writer, form.format(write.format(token)))
                locker.run(f"select fenceguard.init({token} + 1); commit")
                self.assert_fails("ZF001", writer.wait)
                self.assertNotIn("666", self.sql(BALANCES).split())

    def test_stalled_session_delays_no_grant(self):
        stopped, other = self.session(), self.session()
        stopped.run("begin; select fenceguard.advance('accounts/1', 1, 'a'); set constraints all immediate")
        other.run("select fenceguard.draw()")
        self.assertRegex(other.run("select verdict from fenceguard.acquire('other')"), "granted")
        stopped.run("commit")  # nobody cut it

    def test_a_revoke_waits_as_well(self):
        old, new = self.session(), self.session()
        old.run("begin; " + WRITES["admit"].format(token=34, holder="a", value=7))
        self.begin_waiting(new, "select fenceguard.revoke('accounts/1', cut => false)")
        old.run("commit")
        self.assertEqual(new.wait(), "t")
        self.assertEqual(new.run(BALANCES), "7 100")
        self.assert_fails("ZF001", old.run, ADMIT.format(token=34, holder="a"))

    def test_plain_read_of_the_fence_row_would_not_be_enough(self):
        """The older transaction has claimed and not written yet: the advance waits all the same."""
        old, new = self.session(), self.session()
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        old.run("begin; " + ADMIT.format(token=34, holder="a"))
        self.begin_waiting(new, "select fenceguard.advance('accounts/1', 35, 'b', cut => false)")
        old.run("update account set balance = 7 where id = 1")
        self.assertTrue(self.server.is_waiting(new))
        old.run("rollback")
        self.assertEqual(new.wait(), "admitted")

    def test_while_an_advance_waits_older_claims_are_not_admitted(self):
        old, new, late = self.session(), self.session(), self.session()
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        old.run("begin; " + WRITES["admit"].format(token=34, holder="a", value=7))
        self.begin_waiting(new, "select fenceguard.advance('accounts/1', 35, 'b', cut => false)")
        self.begin_waiting(late, ADMIT.format(token=34, holder="a"))
        old.run("commit")
        self.assertEqual(new.wait(), "admitted")
        self.assert_fails("ZF001", late.wait)

    def test_writers_under_one_token_do_not_wait_for_each_other(self):
        for way in ("admit", "admitted", "try_admit", "admit_all", "protected"):
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

    def test_writers_under_one_token_do_not_starve_an_advance(self):
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
        print(f"advance against 16 writers: {took * 1000:.0f} ms")
        self.assertLess(took, 15)
        for writer in writers:
            self.assert_fails("ZF001", writer.wait)

    def test_older_holder_queued_behind_a_newer_one_becomes_stale(self):
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

    def test_claim_of_an_old_snapshot_writes_nothing_afterwards(self):
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

    def test_nor_in_a_savepoint_that_only_reads_and_is_then_released(self):
        """What only reads need not fail where its snapshot is old. But this reads only for a while."""
        for level in self.levels:
            with self.subTest(level):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                session = self.old_snapshot(level)
                self.sql("select fenceguard.advance('accounts/1', 35, 'b'); update account set balance = 35 where id = 1")
                session.run("savepoint s; set transaction read only")
                try:
                    session.run(ADMIT.format(token=34, holder="a") + "; release s")
                    session.run("update account set balance = 666 where id = 2; commit")
                except SqlError:
                    session.run("rollback")
                self.assertEqual(self.sql("select balance from account where id = 2"), "100")

    def test_what_only_reads_reads_its_snapshot(self):
        for level in self.levels:
            with self.subTest(level):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                session = self.session()
                session.run(f"begin isolation level {level} read only; select * from account")
                self.assertEqual(session.run(ADMIT.format(token=34, holder="a")), "admitted")
                session.run("commit")

    def test_read_uncommitted_is_read_committed_and_advances(self):
        for way, write in WRITES.items():
            with self.subTest(way):
                self.setUp()
                session = self.session()
                session.run("begin isolation level read uncommitted; " + ADMIT.format(token=34, holder="a"))
                session.run(write.format(token=34, holder="a", value=7) + "; commit")
                self.assertIn("7", self.sql(BALANCES).split())
                session.run("begin isolation level read uncommitted; select fenceguard.revoke('accounts/1'), "
                            "fenceguard.cut('accounts/1'); commit")
                self.assert_fails("ZF001", session.run, "begin isolation level read uncommitted; "
                                  + ADMIT.format(token=34, holder="a"))

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

    def test_takeover_above_read_committed_must_advance_first(self):
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

    def test_equal_claim_is_admitted_above_read_committed(self):
        for level in self.levels:
            with self.subTest(level):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 35, 'b')")
                session = self.old_snapshot(level)
                session.run(WRITES["protected"].format(token=35, holder="b", value=8) + "; commit")
                self.assertEqual(self.sql(BALANCES), "100 8")

    def test_waiting_claim_in_read_committed_is_judged_afterwards(self):
        for behind in ("", "; select fenceguard.compact(36)"):
            with self.subTest(behind):
                self.setUp()
                newer, late = self.session(), self.session()
                self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                newer.run("begin; select fenceguard.admit('accounts/1', 35, 'b')")
                self.begin_waiting(late, ADMIT.format(token=34, holder="a"))
                newer.run("commit" + behind)
                self.assert_fails("ZF001", late.wait)

    def waited_through_a_take_over(self, statement):
        """Runs a statement under token 35 that begins before the take-over is through: an older write is in flight, the
        advance waits for it, and the statement waits behind the advance. Answers False if it was refused."""
        old, new, late = self.session(), self.session(), self.session()
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        old.run("begin; " + ADMIT.format(token=34, holder="a") + "; update account set balance = 70 where id = 1")
        self.begin_waiting(new, "select fenceguard.advance('accounts/1', 35, 'b', cut => false)")
        self.begin_waiting(late, statement)
        old.run("commit")
        new.wait()
        try:
            late.wait()
            return True
        except SqlError as error:
            self.assertEqual(error.sqlstate, "40001")
            return False

    def test_waiting_statement_changes_the_row_of_the_older_writer(self):
        was_written = self.waited_through_a_take_over(
            "update account set balance = balance - 5 where id = 1 and fenceguard.admitted('accounts/1', 35, 'b')")
        self.assertEqual(self.sql(BALANCES), "65 100" if was_written else "70 100")

    def test_nor_does_its_sub_select_miss_what_the_older_writer_left(self):
        """Its snapshot is older than its wait. What it reads beside the claim must not be written as if it were new."""
        for statement in (
                "update account set balance = (select balance - 5 from account where id = 1) where id = 2 "
                "and fenceguard.admitted('accounts/1', 35, 'b')",
                "with g as materialized (select * from fenceguard.try_admit('accounts/1', 35, 'b')) update account set "
                "balance = (select balance - 5 from account where id = 1) from g where id = 2 and verdict = 'admitted'"):
            with self.subTest(statement):
                self.setUp()
                self.waited_through_a_take_over(statement)
                self.assertIn(self.sql("select balance from account where id = 2"), ("65", "100"))


class OneStatement(ServerTest):
    """A statement is judged once, whatever it scans, and however often PostgreSQL looks at a row again."""

    def setUp(self):
        super().setUp()
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")

    def test_a_sequence_covers_all_rows_of_its_statement_or_none(self):
        nested = ("set local enable_hashjoin = off; set local enable_mergejoin = off; set local enable_material = off; ")
        from_g = "(select * from fenceguard.try_admit('accounts/1', 34, 'a', 7)) update account set balance = 7 from g " \
                 "where verdict = 'admitted' and id <= 5"
        for statement in ("with g as materialized " + from_g, "with g as " + from_g, nested + "with g as " + from_g,
                          "update account set balance = 7 where id <= 5 and fenceguard.admitted('accounts/1', 34, 'a', 7)"):
            with self.subTest(statement):
                self.setUp()
                try:
                    self.sql(f"begin; {statement}; commit")
                except SqlError as error:
                    self.assertEqual(error.sqlstate, "0A000")
                self.assertIn(self.sql("select count(*) filter (where balance = 7), max(sequence) from account, "
                                       "fenceguard.fence"), ("5|7", "0|"))

    def test_sequence_counts_only_with_the_row_waited_for(self):
        for statement in ("update account set balance = 7 where id = 1 and fenceguard.admitted('accounts/1', 34, 'a', 7)",
                          "with g as (select * from fenceguard.try_admit('accounts/1', 34, 'a', 7)) "
                          "update account set balance = 7 from g where verdict = 'admitted' and id = 1"):
            with self.subTest(statement):
                self.setUp()
                other, late = self.session(), self.session()
                other.run("begin; update account set balance = 50 where id = 1")
                late.begin_run(statement)
                wait_until(lambda: late.is_over() or self.server.is_waiting(late), what="an end or a wait")
                other.run("commit")
                try:
                    late.wait()
                except SqlError as error:
                    self.assertEqual(error.sqlstate, "0A000")
                self.assertIn(self.sql("select balance, sequence from account, fenceguard.fence where id = 1"),
                              ("7|7", "50|"))

    def test_claim_advancing_in_a_statement_does_not_admit_it(self):
        """Its sub-select reads what was there before the wait. What comes after the advance in its transaction may."""
        for before in ("begin", "begin; update account set balance = 100 where id = 9"):
            with self.subTest(before):
                self.setUp()
                old, new = self.session(), self.session()
                old.run("begin; " + ADMIT.format(token=34, holder="a") + "; update account set balance = 70 where id = 1")
                new.run(before)
                self.sql("update account set balance = 100 where id = 8")
                self.begin_waiting(new, "update account set balance = (select balance - 5 from account where id = 1) "
                                        "where id = 2 and fenceguard.admit('accounts/1', 35, 'b') = 'admitted' "
                                        "and fenceguard.admitted('accounts/1', 35, 'b')")
                old.run("commit")
                self.assert_fails("40001", new.wait)
                new.run("rollback; " + before + "; " + ADMIT.format(token=35, holder="b"))
                self.sql("update account set balance = 100 where id = 8")
                new.run("update account set balance = (select balance - 5 from account where id = 1) where id = 2 "
                        "and fenceguard.admitted('accounts/1', 35, 'b'); commit")
                self.assertEqual(self.sql("select balance from account where id = 2"), "65")


class Cursors(ServerTest):
    def test_cursor_older_than_an_advance_is_not_read_after_it(self):
        """It would give what was there before the older write that the advance waited for."""
        for opens in ("declare c cursor for select balance from account where id = 1",
                      "declare c cursor with hold for select balance from account where id = 1"):
            for claim in (ADMIT.format(token=35, holder="b"), "select fenceguard.advance('accounts/1', 35, 'b')",
                          "select fenceguard.admit_all('[{\"resource\": \"accounts/1\", \"token\": 35}]')",
                          "select fenceguard.rule('accounts/1', 35, 'b')",
                          "do $$ begin perform fenceguard.admit('accounts/1', 35, 'b'); end $$"):
                with self.subTest(f"{opens}; {claim}"):
                    self.setUp()
                    old, new = self.session(), self.session()
                    old.run("begin; " + WRITES["admit"].format(token=34, holder="a", value=70))
                    new.run(f"begin; {opens}")
                    new.begin_run(claim)
                    wait_until(lambda: new.is_over() or self.server.is_waiting(new), what="an end or a wait")
                    old.run("commit")
                    error = self.assert_fails("40001", new.wait)
                    self.assertIn("cursor", error.message)
                    new.run("rollback; begin; " + claim + f"; {opens}")
                    self.assertEqual(new.run("fetch c"), "70")
                    new.run("close c; commit")

    def test_no_query_of_a_cursor_runs_after_a_durable_advance(self):
        """That of a cursor WITH HOLD runs at COMMIT behind every trigger, and could switch durability off."""
        session = self.session()
        for claim in ("select fenceguard.advance('accounts/1', 35, 'b')", ADMIT.format(token=35, holder="b"),
                      "select fenceguard.acquire('accounts/1')"):
            with self.subTest(claim):
                session.run(f"begin; {claim}; declare c cursor with hold for "
                            "select set_config('synchronous_commit', 'off', true)")
                self.assert_fails("55000", session.run, "commit")
                self.assertEqual(self.sql("select count(*) from fenceguard.fence where token = 35"), "0")
        session.run("begin; declare c cursor with hold for select 1; commit; close c")
        self.assertEqual(session.run("select fenceguard.advance('accounts/1', 36, 'b')"), "admitted")

    def test_loop_in_a_function_and_cursor_in_one_message_likewise(self):
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        self.assert_fails("40001", self.sql, "do $$ declare r record; begin for r in select * from account loop "
                                             "perform fenceguard.admit('accounts/1', 35, 'b'); end loop; end $$")
        self.assert_fails("40001", self.sql, "begin\\; declare c cursor for select balance from account\\; "
                                             "select fenceguard.admit('accounts/1', 35, 'b')\\; commit;")
        self.assertEqual(self.sql("begin\\; select fenceguard.admit('accounts/1', 35, 'b')\\; commit;"), "admitted")

    def test_cursor_older_than_another_sessions_advance_is_refused(self):
        """The claim then equals the fence, and waits for nothing."""
        writes = {**WRITES, "rule": "select fenceguard.rule('accounts/1', {token}, '{holder}'); "
                                    "update account set balance = {value} where id = 1"}
        for level in ("read committed", "read uncommitted"):
            for way, write in writes.items():
                with self.subTest(f"{level}: {way}"):
                    self.setUp()
                    self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                    session = self.session()
                    session.run(f"begin isolation level {level}; declare c cursor for select balance from account")
                    self.sql(f"begin; {WRITES['admit'].format(token=34, holder='a', value=70)}; commit; "
                             "select fenceguard.advance('accounts/1', 35, 'b')")
                    error = self.assert_fails("40001", session.run, write.format(token=35, holder="b", value=95))
                    self.assertIn("cursor", error.message)
                    session.run("rollback")
                    self.assertEqual(self.sql(BALANCES), "70 100")

    def test_loop_older_than_another_sessions_advance_is_refused(self):
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        for number, claim in enumerate(("fenceguard.admitted('accounts/1', {}, 'a')",
                                        "fenceguard.confirm('accounts/1', {}, 'a') is not null"), 35):
            with self.subTest(claim):
                holder, session = self.session(), self.session()
                holder.run("select pg_advisory_lock(1)")
                session.begin_run("do $$ declare r record; begin for r in select balance from account where id = 1 loop "
                                  "perform pg_advisory_xact_lock(1); update account set balance = r.balance + 1 "
                                  f"where id = 1 and {claim.format(number)}; end loop; end $$")
                self.server.wait_until_waiting(session)
                self.sql(f"begin; {ADMIT.format(token=number - 1, holder='a')}; update account set balance = 70 "
                         f"where id = 1; commit; select fenceguard.advance('accounts/1', {number}, 'a')")
                holder.run("select pg_advisory_unlock(1)")
                self.assert_fails("40001", session.wait)

    def test_cursor_with_a_query_unknown_to_the_server_is_refused(self):
        older = self.session()
        older.run("begin; update account set balance = 100 where id = 9")
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        for token, holder in ((34, "a"), (35, "b")):
            with self.subTest(token):
                oid = self.sql("create or replace function step() returns text language plpgsql as $$ declare r record; begin "
                               f"for r in select * from account loop perform fenceguard.admit('accounts/1', {token}, "
                               f"'{holder}'); end loop; return ''; end $$; select 'step()'::regprocedure::oid::bigint")
                self.addCleanup(self.server.psql, "drop function if exists step()", self.dbname)
                self.assertEqual(state_of_call(self.server.conninfo(self.dbname), int(oid)), "40001")

    def test_cursor_whose_transaction_saw_the_fence_is_refused(self):
        """The first claim fails with its savepoint, the second one finds the cursor that is older still."""
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        session = self.session()
        session.run("begin; declare c cursor for select balance from account")
        self.sql(f"begin; {WRITES['admit'].format(token=34, holder='a', value=70)}; commit; "
                 "select fenceguard.advance('accounts/1', 35, 'b')")
        for _ in range(2):
            session.run("savepoint s")
            self.assert_fails("40001", session.run, ADMIT.format(token=35, holder="b"))
            session.run("rollback to s")
        session.run("close c; " + ADMIT.format(token=35, holder="b") + "; declare c cursor for select balance from account "
                    "where id = 1")
        self.assertEqual(session.run("fetch c"), "70")
        session.run(ADMIT.format(token=35, holder="b") + "; commit")

    def test_claim_admitted_before_the_cursor_may_be_repeated(self):
        older = self.session()
        older.run("begin; update account set balance = 100 where id = 9")
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        for claim in ("update account set balance = 7 where id = 1 and fenceguard.admitted('accounts/1', 34, 'a')",
                      "select fenceguard.confirm('accounts/1', 34, 'a')", "select fenceguard.try_admit('accounts/1', 34, 'a')",
                      ADMIT.format(token=34, holder="a")):
            self.sql(f"begin; {ADMIT.format(token=34, holder='a')}; declare c cursor for select balance from account; "
                     f"{claim}; commit")

    def test_equal_claim_is_admitted_beside_a_cursor(self):
        """Once the fence is older than every transaction that a cursor may not see, or was claimed before the cursor."""
        older = self.session()
        older.run("begin; update account set balance = 100 where id = 9")
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        loop = ("do $$ declare r record; begin for r in select * from account loop "
                "perform fenceguard.admit('accounts/1', 34, 'a'); end loop; end $$")
        self.sql(f"begin; {ADMIT.format(token=34, holder='a')}; {loop}; commit")
        older.run("commit")
        wait_until(lambda: self.sql("select pg_snapshot_xmin(pg_current_snapshot()) > advanced_by "
                                    "from fenceguard.fences") == "t", what="an end of every older transaction")
        self.sql(loop)
        self.sql(f"begin; declare c cursor for select 1; {ADMIT.format(token=34, holder='a')}; commit")


class Cutting(ServerTest):
    def test_holder_stopped_in_its_transaction_is_cut_after_drain(self):
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
            for token in (35, 2 ** 31, 2 ** 42 + 34, 2 ** 63 - 1) if "33" in sql else (35,):
                with self.subTest(f"{sql}, {token}"):
                    self.setUp()
                    stopped = self.session()
                    stopped.run(f"begin; {sql}; update account set balance = 666 where id = 1")
                    self.assertEqual(self.sql(f"select fenceguard.advance('accounts/1', {token}, 'b', '0.1 s')"),
                                     "admitted")
                    self.assert_fails("57P01", stopped.run, "commit")
                    self.assertEqual(self.sql(BALANCES), "100 100")

    def test_session_with_two_tokens_is_as_old_as_the_newer(self):
        """The parts of both are among its locks. Put together wrongly they were a token that is newer than either."""
        for older, newer, taker in ((5, 2 ** 21, 2 ** 21 + 3), (2 ** 21 + 7, 2 ** 22 + 1, 2 ** 22 + 2),
                                    (2 ** 42 - 1, 2 ** 42, 2 ** 42 + 1), (2 ** 62 - 1, 2 ** 62, 2 ** 63 - 1)):
            with self.subTest(newer):
                self.setUp()
                stopped = self.session()
                stopped.run(f"begin; select fenceguard.admit('accounts/1', {older}, 'a'); "
                            f"select fenceguard.admit('accounts/1', {newer}, 'b')")
                self.assert_fails("55P03", self.sql,
                                  f"select fenceguard.advance('accounts/1', {newer - 1}, 'b', '0.1 s')")
                self.assertEqual(stopped.run("select 1"), "1")
                self.assertEqual(self.sql(f"select fenceguard.advance('accounts/1', {taker}, 'c', '0.1 s')"), "admitted")
                self.assert_fails("57P01", stopped.run, "commit")

    def test_a_revoke_cuts_the_present_holder(self):
        for sequence in ("null", "7"):
            with self.subTest(sequence):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                stopped = self.session()
                stopped.run(f"begin; select fenceguard.admit('accounts/1', 34, 'a', {sequence})")
                self.assertEqual(self.sql("select fenceguard.revoke('accounts/1', drain => '0.1 s')"), "t")
                self.assert_fails("57P01", stopped.run, "commit")

    def test_wait_only_advance_reports_lock_not_available(self):
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

    def test_newer_advance_waiting_behind_the_holder_is_not_cut(self):
        stopped, newer, older = self.session(), self.session(), self.session()
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        stopped.run("begin; " + ADMIT.format(token=34, holder="a"))
        self.begin_waiting(newer, "begin; select fenceguard.advance('accounts/1', 36, 'c', '60 s')")
        self.begin_waiting(older, "select fenceguard.advance('accounts/1', 35, 'b', '8 s')")
        self.assertEqual(newer.wait(), "admitted")  # the older one cut the stopped one
        self.assert_fails("57P01", stopped.run, "commit")
        try:
            newer.run("commit")
        finally:
            self.assert_fails(("ZF001", "55P03"), older.wait)

    def test_the_manual_cut_ends_the_sessions_that_block_others(self):
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

    def test_a_role_that_may_not_end_a_backend_is_told_what_to_grant(self):
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

    def test_prepared_transaction_with_a_claim_is_named_and_awaited(self):
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

    def test_rolled_back_savepoint_takes_its_admission_with_it(self):
        old = self.session()
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        old.run("begin; savepoint s; " + WRITES["protected"].format(token=34, holder="a", value=7) + "; rollback to s")
        self.assertEqual(self.sql("select fenceguard.advance('accounts/1', 35, 'b', cut => false)"), "admitted")
        self.assert_fails("ZF003", old.run, "update guarded set balance = 666 where id = 1")

    def test_session_timeouts_apply_and_leave_nothing_behind(self):
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
                    self.assertLess(time.monotonic() - begun, 15)
                    waiter.run("rollback")
                    self.assertEqual(self.sql(f"select count(*) from pg_locks where pid = {waiter.pid} "
                                              "and locktype = 'advisory'"), "0")
        self.assertEqual(waiter.run("show lock_timeout"), "0")
        holder.run("commit")
        newer = self.session()
        newer.run("begin; select fenceguard.admit('accounts/1', 35, 'b')")
        for way in ("admit", "admitted", "try_admit"):
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


class FirstProtect(ServerTest):
    """Until then a statement that judges its own claim leaves no note, and afterwards it does: at once, in every session."""

    def test_sessions_that_were_open_write_what_is_protected_now(self):
        write = "update account set balance = balance + 1 where id = 1 and fenceguard.admitted('accounts/1', 34, 'a')"
        self.leave_notes(False)
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        self.addCleanup(self.sql, "select fenceguard.unprotect('account')")
        before, waiting, owner = self.session(), self.session(), self.session()
        for session in (before, waiting):
            session.run(f"prepare w as {write}")
            for _ in range(7):  # so often that a plan is kept
                session.run("execute w")
        self.assertEqual(self.sql("select fenceguard.leaves_notes()"), "f")
        owner.run("begin; select fenceguard.protect('account', $$ 'accounts/' || id $$)")
        self.begin_waiting(waiting, "execute w")
        owner.run("commit")
        waiting.wait()
        before.run("execute w")
        self.assertEqual(self.sql("select fenceguard.leaves_notes()"), "t")
        self.assertEqual(self.sql("select balance from account where id = 1"), "116")
        self.assert_fails("ZF003", before.run, "update account set balance = 0 where id = 1")

    def test_claim_without_a_note_is_none_to_a_newly_protected_table(self):
        self.leave_notes(False)
        self.sql("select fenceguard.advance('accounts/1', 34, 'a'); create table later (id integer)")
        self.addCleanup(self.sql, "drop table later")
        session = self.session()
        session.run("begin; update account set balance = 7 where id = 1 and fenceguard.admitted('accounts/1', 34, 'a')")
        self.sql("select fenceguard.protect('later', $$ 'accounts/' || id $$)")
        if FAST:  # which keeps every claim in mind
            session.run("insert into later values (1); rollback")
        else:
            self.assert_fails("ZF003", session.run, "insert into later values (1)")

    def test_table_restored_with_its_triggers_says_what_to_do(self):
        self.leave_notes(False)
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        write = "update guarded set balance = 5 where id = 1 and fenceguard.admitted('accounts/1', 34, 'a')"
        if not FAST:
            self.assertIn("fenceguard.leave_notes()", self.assert_fails("ZF003", self.sql, write).hint)
        self.sql(f"select fenceguard.leave_notes(); {write}")

    def test_old_snapshot_misses_no_child_and_no_protection(self):
        plain = "create table whole (id integer); create table part (id integer)"
        kinds = {"inherits": (plain, "alter table part inherit whole"),
                 "attached": (plain.replace("whole (id integer)", "whole (id integer) partition by list (id)"),
                              "alter table whole attach partition part for values in (1)")}
        protect = "select fenceguard.protect('whole', $$ 'accounts/' || id $$)"
        for tables, add in kinds.values():
            for first, later in ((add, protect), (protect, add)):
                for level in ("repeatable read", "serializable"):
                    self.sql(tables)
                    old = self.session()
                    old.run(f"begin isolation level {level}; select 1")
                    self.sql(first)
                    self.assert_fails("25001", old.run, later)
                    old.run("rollback")
                    self.sql(later)
                    for write in ("insert into part values (1)", "truncate part"):
                        self.assert_fails("ZF003", self.sql, write)
                    self.sql("drop table whole cascade; drop table if exists part")

    def test_protecting_waits_for_a_transaction_within_a_limit(self):
        reader, owner = self.session(), self.session()
        reader.run("begin; select * from guarded")
        self.assert_fails("55P03", owner.run, "select fenceguard.protect('guarded', $$ 'accounts/' || id $$)")
        self.assertEqual(owner.run("show lock_timeout"), "0")
        self.assert_fails("ZF003", self.sql, "update guarded set balance = 1 where id = 1")

    def test_two_first_protects_at_once_are_both_one(self):
        self.leave_notes(False)
        self.sql("create table one (id integer); create table two (id integer)")
        self.addCleanup(self.sql, "drop table one, two")
        one, two = self.session(), self.session()
        one.run("begin; select fenceguard.protect('one', 'id')")
        self.begin_waiting(two, "select fenceguard.protect('two', 'id')")
        one.run("commit")
        two.wait()
        self.assertEqual(self.sql("select fenceguard.leaves_notes()"), "t")


class WithoutNotes:
    """As in a database in which no table was ever protected."""

    def setUp(self):
        super().setUp()
        self.leave_notes(False)


class TakeOverWithoutNotes(WithoutNotes, TakeOver):
    pass


class SnapshotsWithoutNotes(WithoutNotes, Snapshots):
    pass


class OneStatementWithoutNotes(WithoutNotes, OneStatement):
    pass


class CursorsWithoutNotes(WithoutNotes, Cursors):
    pass


if __name__ == "__main__":
    parts.main(form=1 if FAST else 0)
