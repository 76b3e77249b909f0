"""Two sidecars hold one resource in turn while the holder is stopped, killed or told to end at any moment, and writers that know
nothing of it insert through both: no row of an older token lands behind one of a newer, and what was said of each is so.

Each row has the token of the fence as its own transaction sees it, under which it was admitted: the fence does not move before
the transaction is over. Its number comes from a sequence that is asked behind the admission, so that rows in the order of their
numbers are in the order of their tokens, or a stale one has landed.

Some cycles in the tests; with --cycles 200 that many.
"""

import argparse
import random
import signal
import sys
import threading
import time
import unittest

from demo_case import status_of
from hold_test import RESOURCE, HoldCase
from raw_client import SYNC, RawClient, has_ended, query, run, states
from waiting import wait_until

CYCLES = 6
SOON = ("--hold-ttl", "1s")


class Writer(threading.Thread):
    """Inserts rows through a sidecar of one name, whichever process that is; each is 'told', 'refused' or 'unknown' after."""

    def __init__(self, case, index):
        super().__init__(daemon=True)
        self.case, self.name_of_sidecar = case, "ab"[index % 2]
        self.next = index * 1_000_000
        self.outcomes = {}  # by numbers that no other writer has
        self.is_over = False
        self.failure = None
        self.random = random.Random(f"{case.seed} {index}")

    def run(self):
        try:
            while not self.is_over:
                self.write_in_one_session()
        except Exception as error:  # pylint: disable=broad-except
            self.failure = error

    def write_in_one_session(self):
        try:
            client = RawClient(self.case.sidecars[self.name_of_sidecar].data)
        except OSError:
            return time.sleep(0.01)
        try:
            if client.start(("user", "postgres"), ("database", self.case.database))[-1][0] != b"Z":
                return time.sleep(0.01)
            while not self.is_over and self.write(client):
                pass
        finally:
            client.close()

    def write(self, client):
        """One row. False: the session is over."""
        number, self.next = self.next, self.next + 1
        insert = ("insert into history (who, number, token) "
                  f"select '{self.name_of_sidecar}', {number}, token from fenceguard.fences where resource = '{RESOURCE}'")
        self.outcomes[number] = "refused"
        kind = self.random.randrange(3)
        if kind == 0:
            return self.end_with(client, number, query(insert), b"INSERT 0 1\0")
        if kind == 1:
            return self.end_with(client, number, run(insert) + SYNC, b"INSERT 0 1\0")
        for step in (query("begin"), query(insert)):
            said = client.ask(step)
            if states(said) or has_ended(said):
                if not has_ended(said):
                    client.ask(query("rollback"))
                return not has_ended(said)
        time.sleep(self.random.random() * 0.02)
        return self.end_with(client, number, query("commit"), b"COMMIT\0")

    def end_with(self, client, number, request, tag):
        """The request with which the row is committed, or is not."""
        said = client.ask(request)
        if (b"C", tag) in said:
            self.outcomes[number] = "told"
        elif not states(said):
            self.outcomes[number] = "unknown"
        return not has_ended(said)


class HoldFaultTest(HoldCase):
    def setUp(self):
        super().setUp()
        self.seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {self.seed}", flush=True)
        self.random = random.Random(self.seed)
        self.run_directly("create table history (id serial primary key, who text, number int, token bigint)")
        self.sidecars = {name: self.hold(*SOON) for name in "ab"}
        self.faults = {"stopped": 0, "killed": 0, "ended": 0}

    def holder(self):
        return next((name for name, sidecar in self.sidecars.items() if self.is_held(sidecar)), None)

    def stop_holder(self, name):
        process = self.sidecars[name].process
        process.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: status_of(process.pid, "State").startswith("T"))
            self.await_held(self.sidecars["b" if name == "a" else "a"])
        finally:
            process.send_signal(signal.SIGCONT)
        self.faults["stopped"] += 1

    def replace_holder(self, name, number):
        process = self.sidecars[name].process
        process.send_signal(number)
        self.await_held(self.sidecars["b" if name == "a" else "a"])
        process.wait(60)
        self.sidecars[name] = self.hold(*SOON)
        self.faults["killed" if number == signal.SIGKILL else "ended"] += 1

    def test_no_stale_row_lands_and_every_outcome_is_so(self):
        writers = [Writer(self, index) for index in range(4)]
        for writer in writers:
            writer.start()
        first = self.token()
        for cycle in range(CYCLES):
            time.sleep(self.random.random() * 0.3)
            before, name = 0, None
            while before != self.token():  # the lease may have passed on by itself
                before, name = self.token(), wait_until(self.holder, what="a sidecar that holds")
            kind = (cycle + self.seed) % 3
            if kind == 0:
                self.stop_holder(name)
            else:
                self.replace_holder(name, signal.SIGKILL if kind == 1 else signal.SIGTERM)
            self.assertGreater(self.token(), before)
        wait_until(lambda: int(self.run_directly("select coalesce(max(token), 0) from history")) >= first + CYCLES
                   and sum(list(writer.outcomes.values()).count("told") for writer in writers) > CYCLES,
                   what="a row of the last one that holds")
        for writer in writers:
            writer.is_over = True
        for writer in writers:
            writer.join(60)
            self.assertFalse(writer.is_alive())
            if writer.failure:
                raise writer.failure
        self.check(writers, first)

    def check(self, writers, first):
        # What a writer that is gone has begun at the server is over.
        wait_until(lambda: self.run_directly(
            f"select count(*) from pg_stat_activity where datname = '{self.database}' and query like '%history%' "
            "and state <> 'idle' and pid <> pg_backend_pid()") == "0")
        rows = [line.split("|") for line in
                self.run_directly("select who, number, token from history order by id").splitlines()]
        tokens = [int(token) for _, _, token in rows]
        self.assertEqual(tokens, sorted(tokens), "a row of an older token landed behind one of a newer")
        holders = {}
        for who, _, token in rows:
            self.assertEqual(holders.setdefault(token, who), who, "two sidecars wrote under one token")
        landed = [int(number) for _, number, _ in rows]
        self.assertEqual(len(landed), len(set(landed)), "a row landed twice")
        said = {outcome: {number for writer in writers for number, each in writer.outcomes.items() if each == outcome}
                for outcome in ("told", "refused", "unknown")}
        self.assertEqual(said["told"] - set(landed), set(), "what was told is lost")
        self.assertEqual(said["refused"] & set(landed), set(), "what was refused is there")
        counts = {outcome: len(numbers) for outcome, numbers in said.items()}
        print(f"{self.faults}; {len(rows)} rows under {len(holders)} tokens; {counts}", flush=True)
        self.assertGreater(counts["told"], CYCLES)
        self.assertGreaterEqual(int(max(tokens)), first + CYCLES)
        self.assertEqual(sum(self.faults.values()), CYCLES)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=CYCLES)
    options, rest = parser.parse_known_args()
    CYCLES = options.cycles
    unittest.main(argv=[sys.argv[0], *rest])
