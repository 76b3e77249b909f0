"""The same messages to PostgreSQL and through the sidecar under a valid claim: the same answers, byte for byte, and the same
tables afterwards.

How: two databases of one server. Each sequence of sequence_maker.py is sent to one of them directly and to the other through
the sidecar, flight by flight; results, tags, notices, errors with all their fields, notifications, parameters that change and
the status of ReadyForQuery are compared as they come, and then everything in the database. Not compared are OIDs and process
ids. What the sidecar refuses on purpose, or does otherwise (docs/postgres-sidecar.md: DOCUMENTED here), is counted, and that
sequence is broken off. pgbench's own scripts run on both, too.

As a test, some hundred sequences. tests/pgwire/differential_test.py --sequences 2000 --seed 1 makes as many as it is told, goes
on after a difference, and prints what was made. FENCEGUARD_BINARY and PYTHONPATH as tests/kit/README.md says.
"""

import argparse
import collections
import itertools
import os
import random
import re
import subprocess
import sys
import time
import unittest

import postgres_server
import raw_client
from raw_client import SYNC, RawClient, query
from sequence_maker import FUNCTIONS, STATE, TABLES, Maker, named
from sidecar_case import SidecarTest, claims_text
from waiting import LIMIT_S

SEQUENCES = int(os.environ.get("FENCEGUARD_DIFFERENTIAL_SEQUENCES", "300"))
SEED = 1  # of the test; others by hand
CLAIM = ("accounts/1", 34, "holder-1")
SESSION_SEQUENCES = 12  # so many are made over one connection

# What docs/postgres-sidecar.md says of: by a name, a pattern of the first two answers that are not the same, as said() has
# them: 'PostgreSQL's | the sidecar's'; and of what the flight holds.
AHEAD = "must be (set|called) before any query"
IN_A_BLOCK = "can only be used in transaction blocks"
DOCUMENTED = tuple((name, re.compile(answers, re.DOTALL), re.compile(flight, re.DOTALL | re.IGNORECASE)) for name, answers, flight in (
    ("control among several", r".* \| E 0A000 several statements in one message, with transaction control", rb";"),
    ("two phases", r".* \| E 0A000 a prepared transaction outlives the session", rb"prepared? "),
    ("default_transaction_read_only", r".* \| E 0A000 default_transaction_read_only is what keeps", rb"set "),
    ("BEGIN or SET bound with parameters", r"E 08P01 (bind message supplies \d parameters, but prepared statement) .* requires 0 \| "
     r"E (08P01 \1 \"fenceguard admission\" requires 0|25P02 .*)$", b""),
    ("position in a statement that SQL prepared", r"(E 42.*) \| \1$", b"execute s "),
    ("portal without a name", r".* \| E 34000 portal \"\" does not exist$", b""),
    ("prepared SET that SQL forgot", r"E 26000 prepared statement \"(one|two|ä)\" does not exist \| 2 $", b""),
    ("BEGIN ATOMIC", r"1  \| E 0A000 the scanner does not read this text", b"begin atomic"),
    ("BEGIN or COMMIT in a named portal", r".* \| E 0A000 a named portal of a statement for transactions", b""),
    ("SET TRANSACTION behind a statement", rf"(C SET|E 25001 SET TRANSACTION .*) \| E 25001 .* {AHEAD}$", b"set (local )?transaction"),
    ("BEGIN with a level behind a statement",
     rf"(C (BEGIN|START TRANSACTION)|E 25001 SET TRANSACTION .*) \| E 25001 .* {AHEAD}$",
     b"(begin|start transaction) isolation level"),
    ("READ ONLY AND CHAIN behind an error in a savepoint", r"E 25006 .* \| (?!E )", b"savepoint.*and chain"),
    ("query amid a flight", r".* \| E 0A000 a query amid messages of the extended protocol", b""),
    ("COMMIT in a procedure", r"C (CALL|DO) \| E 2D000 invalid transaction termination$", b""),
    ("LOCK, DECLARE outside of a block", rf"E 25P01 (LOCK TABLE|DECLARE CURSOR) {IN_A_BLOCK} \| (C \1|E (?!25)\w+ .*)$", b""),
    ("behind a CALL", rf"[EN] 25P01 .* {IN_A_BLOCK} \| (C .*|E 3B001 .*|E 25001 .* {AHEAD})$", rb"(call|do) .*\0E"),
    ("behind a CALL",
     r"(C (BEGIN|START TRANSACTION)|E 25001 SET TRANSACTION .*) \| N 25001 there is already a transaction in progress$",
     rb"(call|do) .*\0E"),
    ("behind a CALL", r"E 25001 (.*) cannot be executed within a pipeline \| E 25001 \1 cannot run inside a transaction block$",
     rb"(call|do) .*\0E"),
    ("behind a CALL", r"N 25P01 there is no transaction in progress \| C (COMMIT|ROLLBACK)$", rb"(call|do) .*\0E"),
    ("alone behind a COMMIT", r"C DISCARD ALL \| E 25001 DISCARD ALL cannot be executed within a pipeline$",
     b"(commit|end|rollback|abort).*discard all"),
))
MARK = named(b"C", b"S", "no such statement") * 3 + SYNC  # answered in every state of a session, and changes none
MARKED = [b"3", b"3", b"3", b"Z"]


class Side:
    """A client of one of the two databases."""

    def __init__(self, address, *parameters):
        self._client = RawClient(address)
        started = self._client.start(*parameters)
        assert started[-1] == (b"Z", b"I"), started
        (self._pid,) = [body[:4] for kind, body in started if kind == b"K"]
        self.parameters = {body.split(b"\0")[0]: body for kind, body in started if kind == b"S"}
        self.is_over = False

    def close(self):
        self._client.close()

    def send(self, flight):
        self._client.send(flight + MARK)

    def answers(self):
        """Up to the mark, or to the end of the connection."""
        found = []
        while [kind for kind, _ in found[-4:]] != MARKED:
            try:
                found.append(self._client.receive())
            except TimeoutError:
                found.append((None, b"no answer"))
            if found[-1][0] is None:
                self.is_over = True
                return [self.as_compared(*each) for each in found]
        return [self.as_compared(*each) for each in found[:-4]] + [found[-1]]

    def as_compared(self, kind, body):
        if kind == b"A" and body[:4] == self._pid:
            return kind, b"self" + body[4:]
        if kind in (b"E", b"N"):  # without the place in PostgreSQL's source that raised it
            return kind, b"\0".join(field for field in body.split(b"\0") if field[:1] not in (b"F", b"L", b"R"))
        if kind != b"T":
            return kind, body
        columns, rest = [], body[2:]
        while rest:
            name, _, rest = rest.partition(b"\0")
            columns.append((name, rest[:4] != b"\0" * 4, rest[4:18] if rest[6:10] < b"\0\0\x40\0" else "made type"))
            rest = rest[18:]
        return kind, columns


def said(answer):
    """The type, and of an error or a notice its SQLSTATE and what it says."""
    if answer is None or answer[0] is None:
        return "the end"
    kind, body = answer[0].decode(), answer[1]
    if kind in "EN":
        fields = {field[:1]: field[1:].decode("utf-8", "replace") for field in body.split(b"\0")}
        return f"{kind} {fields[b'C']} {fields[b'M']}"
    return f"{kind} {body.decode('utf-8', 'replace').rstrip(chr(0)) if kind in 'CZ' else ''}"


def first_of(direct, other):
    """The first two that are not the same, and their place."""
    pairs = itertools.zip_longest(direct, other)
    return next((at, one, two) for at, (one, two) in enumerate(pairs) if one != two)


def documented(direct, other, flight):
    _, *answers = first_of(direct, other)
    both = " | ".join(map(said, answers))
    return next((name for name, pattern, sent in DOCUMENTED if pattern.match(both) and sent.search(flight)), None)


class Differential:
    """A run. self.differences: texts; self.counts, self.documented: how many of what."""

    def __init__(self, case, sidecar, seed, differences_max):
        self.case, self.sidecar, self.maker, self.differences_max = case, sidecar, Maker(seed), differences_max
        self.counts, self.documented, self.differences = collections.Counter(), collections.Counter(), []
        self._sides = []
        self._databases = (case.plain, case.database)
        self._reset = [case.postgres.session(name) for name in self._databases]

    def close(self):
        for each in (*self._sides, *self._reset):
            each.close()

    def connect(self):
        for side in self._sides:
            side.close()
        user = ("user", "postgres")
        self._sides = [Side(f"127.0.0.1:{self.case.postgres.port}", user, ("database", self.case.plain)),
                       Side(self.sidecar.data, user, ("database", self.case.database), ("options", claims_text(CLAIM)))]
        direct, other = (side.parameters for side in self._sides)
        own = b"default_transaction_read_only"
        if {**direct, own: b""} != {**other, own: b""}:
            self.differs(f"parameters at the start: {direct} {other}")

    def differs(self, text):
        print(text, file=sys.stderr, flush=True)
        self.differences.append(text)

    def run(self, count, first=0):
        for _ in range(first):
            self.maker.sequence()
        for number in range(first, first + count):
            for session in self._reset:
                session.run(TABLES)
            if (number - first) % SESSION_SEQUENCES == 0 or any(side.is_over for side in self._sides):
                self.connect()
            if not self.run_sequence(number):
                self.connect()
            self.counts["sequences"] += 1
            if len(self.differences) >= self.differences_max:
                return

    def run_sequence(self, number):
        """Whether the connections can be used again."""
        before = []
        for flight in [*self.maker.sequence(), query("rollback"), query("discard all")]:
            before.append(flight)
            for side in self._sides:
                side.send(flight)
            direct, other = (side.answers() for side in self._sides)
            self.counts["flights"] += 1
            self.counts["messages"] += len(direct)
            if direct == other:
                continue
            name = documented(direct, other, flight)
            if name:
                self.documented[name] += 1
            else:
                self.differs(f"sequence {number}:\n" + shown(before) + "\n" + first_difference(direct, other))
            return False
        states = [session.run(STATE + ";") for session in self._reset]
        if states[0] != states[1]:
            self.differs(f"sequence {number}: other tables:\n" + shown(before) + f"\n{states[0]}\n{states[1]}")
        return not any(side.is_over for side in self._sides)


def shown(flights):
    texts = []
    for flight in flights:
        texts.append("  flight:")
        while flight:
            size = 1 + int.from_bytes(flight[1:5], "big")
            texts.append(f"    {flight[:1].decode()} {flight[5:size][:300]!r}")
            flight = flight[size:]
    return "\n".join(texts)


def first_difference(direct, other):
    at, one, two = first_of(direct, other)
    return f"  message {at}:\n  PostgreSQL: {one!r:.1000}\n  sidecar:    {two!r:.1000}"


class DifferentialTest(SidecarTest):
    """self.plain is the database that is reached directly."""

    def setUp(self):
        super().setUp()
        self.plain = self.postgres.create_database(install=True)
        for name in (self.plain, self.database):
            self.postgres.psql("drop table if exists entries;" + FUNCTIONS, name)

    def differ(self, count, seed, differences_max, first=0):
        run = Differential(self, self.start_sidecar(), seed, differences_max)
        self.addCleanup(run.close)
        run.run(count, first)
        return run

    def test_answers_and_tables_are_those_of_postgresql(self):
        run = self.differ(SEQUENCES, SEED, 1)
        self.assertEqual(len(run.differences), 0)
        self.assertLess(sum(run.documented.values()), SEQUENCES / 2)

    def pgbench(self, target, *arguments):
        done = subprocess.run([postgres_server.program("pgbench"), *arguments, target], capture_output=True, text=True,
                              env=postgres_server.environment(), timeout=4 * LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.findall("^number of transactions actually processed: (.*)$|^(number of failed.*)$", done.stdout, re.MULTILINE)

    def test_scripts_of_pgbench_leave_the_same_tables(self):
        sidecar = self.start_sidecar()
        targets = {self.plain: self.postgres.conninfo(self.plain), self.database: self.conninfo(sidecar, CLAIM)}
        states, said = [], []
        for name, target in targets.items():
            self.pgbench(target, "--initialize", "--init-steps=dtgp", "--quiet")
            said.append([self.pgbench(target, "--no-vacuum", "--random-seed=7", "--client=3", "--transactions=20", f"--builtin={script}", f"--protocol={protocol}")
                         for script in ("tpcb-like", "simple-update", "select-only") for protocol in ("simple", "extended", "prepared")])
            states.append(self.postgres.psql("select * from pgbench_accounts order by aid; select * from pgbench_tellers order by tid; "
                                             "select * from pgbench_branches; select tid, bid, aid, delta from pgbench_history "
                                             "order by 1, 2, 3, 4", name))
        self.assertEqual(said[0], said[1])
        self.assertEqual(said[0][0][0][0], "60/60")
        self.assertEqual(states[0], states[1])
        self.assertEqual(states[0].count("\n"), 100_000 + 10 + 1 + 6 * 60 - 1)


def long_run(options):
    """A test of its own, which no test run finds."""
    class Long(DifferentialTest):
        def runTest(self):
            began = time.monotonic()
            run = self.differ(options.sequences, options.seed, options.differences, options.first)
            print(f"seed {options.seed}: {dict(run.counts)}, broken off as documented: {dict(run.documented)}, "
                  f"{len(run.differences)} differences, {time.monotonic() - began:.0f} s")
            self.assertEqual(len(run.differences), 0)

    return Long()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sequences", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--first", type=int, default=0, help="the number of the first one that is sent")
    parser.add_argument("--differences", type=int, default=20, help="so many, and it ends")
    done = unittest.TextTestRunner().run(unittest.TestSuite([long_run(parser.parse_args())]))
    sys.exit(not done.wasSuccessful())


if __name__ == "__main__":
    if "--sequences" in sys.argv:
        main()
    unittest.main()
