"""Sessions that meet: who waits for whom, what an old snapshot sees, and that no advance starves or deadlocks.

Each test is an order of steps, written down; a wait for a lock is looked for, not slept for.
"""

import random
import threading
import unittest

import pymysql

from sessions import LOCK_WAIT_TIMEOUT, ServerTest
from waiting import run_all

LEVELS = ("read uncommitted", "read committed", "repeatable read", "serializable")
ADMIT = "call admit('accounts/1', {}, '{}', null)"
ADVANCE = "call advance('accounts/1', {}, '{}')"


class TakeOver(ServerTest):
    settings = {"innodb-lock-wait-timeout": 60}

    def setUp(self):
        super().setUp()
        self.put("accounts/1", 34, "a")
        # An advance goes on waiting, however slow the next step of the test is.
        self.advance = "call try_advance('accounts/1', {}, '{}', 60, null)"

    def open_write(self, value, level="read committed", token=34, holder="a"):
        writer = self.session(level)
        writer.run("start transaction")
        writer.run(ADMIT.format(token, holder))
        writer.run(f"update account set balance = {value} where id = 1")
        return writer

    def test_advance_waits_for_older_writers_then_refuses_them(self):
        for level in LEVELS:
            self.setUp()
            writer = self.open_write(1, level)
            next_holder = self.session()
            next_holder.begin_run(self.advance.format(35, "b"))
            self.server.wait_until_waiting(next_holder)
            writer.run("commit")
            self.assertEqual(next_holder.wait()[0][0], "admitted", level)
            self.assertEqual(self.balance(), 1)
            writer.run("start transaction")
            self.assertEqual(self.verdict(writer, ADMIT.format(34, "a")), "stale", level)
            writer.run("rollback")

    def test_while_an_advance_waits_no_older_writer_is_admitted(self):
        first = self.open_write(1)
        next_holder = self.session()
        next_holder.begin_run(self.advance.format(35, "b"))
        self.server.wait_until_waiting(next_holder)
        late = self.session()
        late.run("start transaction")
        late.begin_run(ADMIT.format(34, "a"))
        self.server.wait_until_waiting(late)
        first.run("update account set balance = 2 where id = 1")
        first.run(ADMIT.format(34, "a"))  # what it has it has
        first.run("commit")
        self.assertEqual(next_holder.wait()[0][0], "admitted")
        with self.assertRaises(pymysql.Error) as refused:
            late.wait()
        self.assertEqual(self.refusal(refused.exception), "stale")

    def test_writers_of_one_token_run_side_by_side(self):
        first = self.open_write(1)
        second = self.session()
        second.run("start transaction")
        second.run(ADMIT.format(34, "a"))
        second.run("update account set balance = 2 where id = 2")
        second.run("commit")
        first.run("commit")
        self.assertEqual((self.balance(1), self.balance(2)), (1, 2))

    def test_a_snapshot_that_is_older_than_the_advance_is_not_let_in(self):
        """The new holder's transaction read before it advanced; what it would read of the other's write is lost."""
        begin = {"read": ("start transaction", "select balance from account where id = 1"),
                 "begin": ("start transaction with consistent snapshot",)}
        for level in LEVELS:
            for how, steps in begin.items():
                self.setUp()
                writer = self.open_write(70)
                client = self.session(level)
                if level == "serializable" and how == "read":
                    continue  # the read waits for the write
                for step in steps:
                    client.run(step)
                next_holder = self.session()
                next_holder.begin_run(self.advance.format(35, "b"))
                self.server.wait_until_waiting(next_holder)
                writer.run("commit")
                next_holder.wait()
                answer = self.verdict(client, ADMIT.format(35, "b"))
                if level == "repeatable read":
                    self.assertEqual(answer, "advance", how)
                    client.run("rollback")
                    client.run("start transaction")
                    self.assertEqual(self.verdict(client, ADMIT.format(35, "b")), "admitted")
                else:
                    self.assertEqual(answer, "admitted", f"{level} {how}")
                self.assertEqual(client.run("select balance from account where id = 1"), ((70,),), f"{level} {how}")
                client.run("rollback")

    def test_claim_that_would_advance_must_advance_first(self):
        for level in LEVELS:
            client = self.session(level)
            client.run("start transaction")
            self.assertEqual(self.verdict(client, ADMIT.format(35, "b")), "advance", level)
            client.run("rollback")
        self.assertEqual(self.fence("accounts/1"), (34, "a", None, 0))

    def test_with_snapshot_isolation_the_outcome_is_the_same(self):
        client = self.session("repeatable read")
        client.run("set innodb_snapshot_isolation = on")
        client.run("start transaction with consistent snapshot")
        self.session().run(ADVANCE.format(35, "b"))
        self.assertEqual(self.verdict(client, ADMIT.format(35, "b")), "advance")
        client.run("rollback")
        client.run("start transaction with consistent snapshot")
        self.session().run(ADVANCE.format(36, "c"))
        self.assertIn(self.verdict(client, ADMIT.format(35, "b")), ("stale", 1020))

    def test_rolled_back_savepoint_keeps_the_lock_unless_first(self):
        """InnoDB rolls all back to a savepoint that is older than the transaction's first statement; confirm() tells."""
        for first, is_locked in (("select 1 from account limit 1", True), ("do 0", False)):
            self.setUp()
            writer = self.session()
            for sql in ("start transaction", first, "savepoint before_that", ADMIT.format(34, "a"),
                        "rollback to savepoint before_that", "update account set balance = 5 where id = 1"):
                writer.run(sql)
            next_holder = self.session()
            next_holder.begin_run(self.advance.format(35, "b"))
            if is_locked:
                self.server.wait_until_waiting(next_holder)
                writer.run("call confirm('accounts/1', 34, 'a')")
            else:
                self.assertEqual(next_holder.wait()[0][0], "admitted")
                self.assertEqual(self.verdict(writer, "call confirm('accounts/1', 34, 'a')"), "stale")
            writer.run("commit")
            if is_locked:
                next_holder.wait()
            self.assertEqual(self.balance(), 5 if is_locked else 100)

    def test_timed_out_advance_changes_nothing_and_delays_no_writer(self):
        writer = self.open_write(1)
        next_holder = self.session()
        self.assert_fails(next_holder, "call try_advance('accounts/1', 35, 'b', 1, null)", LOCK_WAIT_TIMEOUT)
        self.assertEqual(self.fence("accounts/1"), (34, "a", None, 0))
        self.assertEqual(next_holder.run("select @@innodb_lock_wait_timeout"), ((60,),))
        other = self.session()
        other.run("start transaction")
        self.assertEqual(self.verdict(other, ADMIT.format(34, "a")), "admitted")
        other.run("commit")
        writer.run("commit")
        self.assertEqual(self.verdict(next_holder, self.advance.format(35, "b")), "admitted")

    def test_an_advance_tells_whom_it_found_when_it_had_the_lock(self):
        """Whoever cuts the holder before off must not cut the one that it saw before it waited, and miss the one in between."""
        writer = self.open_write(1)
        holders = [self.session() for _ in range(2)]
        for holder, token in zip(holders, (35, 36)):
            holder.begin_run(f"call try_advance('accounts/1', {token}, 'b', 60, null)")
            self.server.wait_until_waiting(holder)
        writer.run("commit")
        self.assertEqual([holder.wait()[0][2:] for holder in holders], [(1, "34 0 0"), (1, "35 0 1")])
        self.sql("call finish('accounts/1', 36, 'b')")
        self.assertEqual(self.sql("call try_advance('accounts/1', 37, 'c', 60, null)")[0][2:], (1, "36 1 0"))
        self.assertEqual(self.sql("call try_advance('accounts/1', 37, 'c', 60, null)")[0][2:], (0, None))
        self.assertEqual(self.sql("call try_advance('accounts/2', 37, 'c', 60, null)")[0][2:], (1, None))

    def test_finished_is_who_said_so_by_name(self):
        for token, before, overtaken in (
                (35, ["finish('accounts/1', 34, 'a')", "revoke_fence('accounts/1', null, null)"], "34 1 1"),
                (41, ["rebase('accounts/1', 40, 'ann')", "finish('accounts/1', 40, '')"], "40 0 0"),
                (42, ["finish('accounts/1', 41, '')"], "41 0 0"),
                (43, ["revoke_fence('accounts/1', null, null)", "finish('accounts/1', 42, 'a')"], "42 1 1")):
            for call in before:
                self.sql(f"call {call}")
            holder = "" if token == 41 else "a"
            self.assertEqual(self.sql(f"call try_advance('accounts/1', {token}, '{holder}', 60, null)")[0][3], overtaken, before)

    def test_a_revoke_and_a_floor_wait_for_writers_and_shut_them_out(self):
        for call in ("revoke_fence('accounts/1', null, null)", "init(40)"):
            self.setUp()
            writer = self.open_write(1)
            administrator = self.session()
            administrator.begin_run(f"call {call}")
            self.server.wait_until_waiting(administrator)
            writer.run("commit")
            administrator.wait()
            writer.run("start transaction")
            self.assertEqual(self.verdict(writer, ADMIT.format(34, "a")), "stale")
            writer.run("rollback")

    def test_a_compaction_that_meets_a_writer_gives_up(self):
        writer = self.open_write(1)
        self.assert_fails(self.session(), "call compact(50)", LOCK_WAIT_TIMEOUT)
        self.assertEqual(self.verdict(writer, ADMIT.format(34, "a")), "admitted")

    def test_at_serializable_an_admission_shares_the_floor(self):
        """As docs/mariadb says: the server makes a plain read a locking one there."""
        for level in LEVELS:
            writer = self.open_write(1, level)
            other = self.session()
            other.run("start transaction")
            if level == "serializable":
                self.assert_fails(other, "select * from namespace for update nowait", LOCK_WAIT_TIMEOUT)
            else:
                other.run("select * from namespace for update nowait")
            other.run("rollback")
            writer.run("rollback")

    def test_a_record_that_came_and_went_is_stale(self):
        """An old snapshot sees the fence; it was folded into the floor since."""
        client = self.session("repeatable read")
        client.run("start transaction with consistent snapshot")
        self.session().run("call compact(50)")
        self.assertEqual(self.verdict(client, ADMIT.format(34, "a")), "stale")

    def test_a_floor_that_was_raised_after_the_snapshot_counts(self):
        """The snapshot sees the fence and the old floor."""
        for sequence in ("null", 1):
            self.setUp()
            client = self.session("repeatable read")
            client.run("start transaction with consistent snapshot")
            self.session().run("call init(40)")
            self.assertEqual(self.verdict(client, f"call admit('accounts/1', 34, 'a', {sequence})"), "stale")

    def test_an_advance_that_waited_is_judged_by_what_is_there_then(self):
        """Two wait for a writer; the one with the higher token gets the fence first."""
        writer = self.open_write(1)
        later, earlier = self.session(), self.session()
        later.begin_run(self.advance.format(36, "c"))
        self.server.wait_until_waiting(later)
        earlier.begin_run(self.advance.format(35, "b"))
        self.server.wait_until_waiting(earlier)
        writer.run("commit")
        self.assertEqual(later.wait()[0][0], "admitted")
        self.assertEqual(earlier.wait()[0][:2], ("stale", 36))
        self.assertEqual(self.fence("accounts/1"), (36, "c", None, 0))

    def test_two_writes_with_sequences_do_not_deadlock(self):
        """Both wait for the fence, so that they would have a lock that can be shared at once."""
        keeper, *writers = [self.session() for _ in range(3)]
        keeper.run("start transaction")
        keeper.run("select token from fences where resource = 'accounts/1' for update")
        for number, writer in enumerate(writers, 1):
            writer.run("start transaction")
            writer.begin_run(f"call admit('accounts/1', 34, 'a', {number})")
            self.server.wait_until_waiting(writer)
        keeper.run("commit")
        for writer in writers:
            self.assertEqual(writer.wait()[0][0], "admitted")
            writer.run("commit")
        self.assertEqual(self.fence("accounts/1")[2], 2)

    def test_a_sequence_that_was_rolled_back_is_free(self):
        writer = self.session()
        for end, answer in (("rollback", "admitted"), ("commit", "admitted"), ("commit", "duplicate")):
            writer.run("start transaction")
            self.assertEqual(self.verdict(writer, "call admit('accounts/1', 34, 'a', 7)"), answer)
            writer.run(end)


class Crowds(ServerTest):
    def test_a_stream_of_writers_does_not_starve_an_advance(self):
        """Sixteen writers of token 1 that go on until they are refused, each with the fence locked for longer than between."""
        self.session().run("call advance('accounts/1', 1, 'a')")
        refused = []

        def write():
            session = self.session()
            while True:
                session.run("start transaction")
                answer = self.verdict(session, ADMIT.format(1, "a"))
                if answer != "admitted":
                    refused.append(answer)
                    return
                session.run("select sleep(0.005)")
                session.run("commit")

        def take_over():
            self.assertEqual(self.session().run("call try_advance('accounts/1', 2, 'b', 60, null)")[0][0], "admitted")

        run_all([write] * 16 + [take_over])
        self.assertEqual(refused, ["stale"] * 16)

    def test_advances_of_resources_without_a_record_do_not_deadlock(self):
        def advance(number):
            session = self.session()
            order = random.Random(number).sample(range(20), 20)
            for name in order:
                answer = self.verdict(session, f"call try_advance('new/{name}', {number}, 'h{number}', 60, null)")
                self.assertIn(answer, ("admitted", "stale"))

        run_all([lambda n=number: advance(n) for number in range(1, 9)])
        self.assertEqual(self.sql("select count(*), min(token), max(token) from fences"), ((20, 8, 8),))

    def test_writes_with_sequences_at_once_do_not_deadlock(self):
        self.session().run("call advance('accounts/1', 1, 'a')")

        def write(number):
            session = self.session(LEVELS[number % 4])
            for sequence in range(20):
                session.run("start transaction")
                answer = self.verdict(session, f"call admit('accounts/1', 1, 'a', {sequence})")
                self.assertIn(answer, ("admitted", "duplicate", "stale"))
                session.run("commit")

        run_all([lambda n=number: write(n) for number in range(8)])
        self.assertEqual(self.fence("accounts/1")[2], 19)

    def test_no_update_is_lost_whatever_the_level_is(self):
        """Holders that take over from each other without any lock, read, and write; a counter counts what was admitted. The
        last one, which nobody overtakes, commits; of the others none may get that far."""
        holders, times = 8, 25
        seed = random.randrange(10**6)
        numbers = iter(range(1, 10**6))
        draw = threading.Lock()
        admitted = []

        def hold(number):
            randomness = random.Random(seed + number)
            session = self.session(LEVELS[number % 4])
            for _ in range(times):
                with draw:
                    token = next(numbers)
                if self.verdict(session, f"call try_advance('accounts/1', {token}, 'h{token}', 60, null)") != "admitted":
                    continue
                session.run("start transaction")
                if self.verdict(session, ADMIT.format(token, f"h{token}")) != "admitted":
                    session.run("rollback")
                    continue
                value = session.run("select balance from account where id = 1")[0][0]
                session.run(f"update account set balance = {value + 1} where id = 1")
                end = randomness.choice(("commit", "commit", "rollback")) if token < holders * times else "commit"
                session.run(end)
                if end == "commit":
                    admitted.append(token)

        run_all([lambda n=number: hold(n) for number in range(holders)])
        self.assertGreater(len(admitted), 0, f"seed {seed}")
        self.assertEqual(self.balance(), 100 + len(admitted), f"seed {seed}")


if __name__ == "__main__":
    unittest.main()
