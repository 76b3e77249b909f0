"""Writers for the fault tests of the sidecar in front of PostgreSQL, and what may stand in their history afterwards.

Each writer inserts (token, writer, number) through a sidecar and takes over from the others by ever higher tokens. What
it was told of each row is compared with the table: what was acknowledged is there once, what was refused is not, what is
unknown is there at most once, and of a transaction all is there or nothing.

What proves the order: each row keeps the number of its transaction and the snapshot that its statement had, both as
PostgreSQL says them. A row of a lower token that is in the table in the end, but was not over for the snapshot of a row
with a higher one, was committed behind it. So it needs no clock. 'place', a sequence, is drawn behind the admission: its
order shows what was even executed behind a newer token.
"""

import collections
import csv
import io
import itertools
import random
import threading

import psycopg2
import raw_client
from fault_proxy import CuttingProxy
from raw_client import COPY_DONE, SYNC, RawClient, copy_data, query, run
from sidecar_case import SidecarTest, claims_text
from support import Guard
from waiting import LIMIT_S, wait_until

RESOURCE = "accounts/1"
YES, NO, UNKNOWN = "yes", "no", "unknown"
TLS_REQUEST = (80_877_103).to_bytes(4, "big")
DRAIN_S = 0.2  # before a newer token cuts an open transaction
TABLE = """
  create table history (place bigserial primary key, token bigint, writer text, number bigint,
                        xid xid8 default pg_current_xact_id(), seen pg_snapshot default pg_current_snapshot())"""
Row = collections.namedtuple("Row", "place token writer number xid seen")


def insert(entry):
    return "insert into history (token, writer, number) values ({}, '{}', {})".format(*entry.split())


class History:
    """The next token, and what was said of each entry: 'TOKEN WRITER NUMBER'."""

    def __init__(self):
        self._tokens = itertools.count(1_000_001)  # of one length
        self._numbers = itertools.count(1_000_001)
        self.told = {}
        self.together = []  # entries of one transaction each

    def next_token(self):
        return next(self._tokens)

    def next_entries(self, token, writer, count):
        """Of one transaction, all of them unknown until more is told."""
        entries = [f"{token} {writer} {next(self._numbers)}" for _ in range(count)]
        self.tell(entries, UNKNOWN)
        self.together.append(entries)
        return entries

    def tell(self, entries, outcome):
        for entry in entries:
            self.told[entry] = outcome

    def faults(self, rows):
        """What contradicts. rows: by their place."""
        found = [f"stale: {after} behind {before}" for before, after in itertools.pairwise(rows) if after.token < before.token]
        found += self._behind_a_snapshot(rows)
        count = collections.Counter(f"{row.token} {row.writer} {row.number}" for row in rows)
        for entry, times in count.items():
            if entry not in self.told:
                found.append(f"{entry!r} is there, and was never sent")
            elif times > 1 or self.told[entry] == NO:
                found.append(f"{entry!r}, told {self.told[entry]}, is there {times} times")
        found += [f"lost: {entry!r} was acknowledged" for entry, outcome in self.told.items()
                  if outcome == YES and entry not in count]
        found += [f"{entries} are half there" for entries in self.together
                  if len({entry in count for entry in entries}) > 1]
        return found

    @staticmethod
    def _behind_a_snapshot(rows):
        found, lower, lower_max = [], set(), 0
        for _, group in itertools.groupby(sorted(rows, key=lambda row: row.token), key=lambda row: row.token):
            group = list(group)
            for row in group:
                _, end, running = row.seen.split(":")
                late = lower & {int(xid) for xid in running.split(",") if xid}
                if late or lower_max >= int(end):
                    found.append(f"stale: transactions {late or lower_max} of lower tokens were committed behind {row}")
            lower |= {row.xid for row in group}
            lower_max = max(lower_max, *(row.xid for row in group))
        return found

    def counts(self):
        return dict(sorted(collections.Counter(self.told.values()).items()))


class Refused(Exception):
    """A raw client was not let in, or its connection has ended."""


class Writer:
    """A client of a sidecar that writes under its own claim until it is stopped, whatever happens: psycopg2, or messages
    of the protocol."""

    _names = itertools.count(1)

    def __init__(self, test, guard, seed, is_raw=False):
        self.history, self.name = test.history, f"w{next(self._names)}"
        self.random = random.Random(f"{seed} {self.name}")
        self.counts = collections.Counter()
        self.said = collections.Counter()  # the SQLSTATEs of what was not acknowledged; lost: there was none
        self.last = None  # why it was not let in
        self.wrong = None
        self.token = None
        self.link = None
        self._test, self._guard = test, guard
        if is_raw:
            self._connect, self.ways = self._connect_raw, [self.pipeline, self.one_message, self.copy_raw]
        else:
            self._connect, self.ways = self._connect_psycopg, [self.single, self.block, self.repeatable_read, self.copy]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    # -- a loop in a thread -----------------------------------------------------------------------------------------

    def start(self):
        self._thread.start()

    def stop(self):
        self._is_over.set()
        self._thread.join(2 * LIMIT_S)
        if self._thread.is_alive():
            self.wrong = self.wrong or "it hangs"
        self.close()

    def _run(self):
        try:
            while not self._is_over.is_set():
                if self.link is None and not self.take_over():
                    self._is_over.wait(0.01)
                    continue
                self.write(self.random.choice(self.ways))
                # A takeover now and then, where nobody else does.
                if self.link and self.random.random() < 0.03:
                    self.close()
        except Exception as error:  # the test tells of it
            self.wrong = repr(error)

    # -- one thing at a time ----------------------------------------------------------------------------------------

    def take_over(self):
        """Whether it was let in with a new token."""
        self.token = self.history.next_token()
        try:
            self.link = self._connect((RESOURCE, self.token, self.name))
        except (psycopg2.OperationalError, Refused, OSError) as error:
            self.counts["not let in"] += 1
            self.last = str(error)
            return False
        self.counts["takeovers"] += 1
        return True

    def close(self):
        if self.link:
            self.link.close()
        self.link = None

    def write(self, way, count=None):
        """Answers what was told of one transaction. A link that was refused is used again now and then."""
        entries = self.history.next_entries(self.token, self.name, count or self.random.randint(1, 3))
        outcome, said, is_usable = way(entries)
        self.history.tell(entries, outcome)
        self.counts[outcome] += 1
        if outcome != YES:
            self.said[said] += 1
            if not is_usable or self.random.random() < 0.5:
                self.close()
        return outcome

    # -- psycopg2 ---------------------------------------------------------------------------------------------------

    def _connect_psycopg(self, claim):
        return psycopg2.connect(self._test.conninfo(self._guard, claim))

    def _transaction(self, entries, level="READ COMMITTED", autocommit=False, act=None):
        """What is certain: an error that was answered ended the transaction, and none is committed without a COMMIT."""
        is_sent = autocommit
        try:
            self.link.set_session(isolation_level=level, autocommit=autocommit)
            with self.link.cursor() as cursor:
                if act:
                    act(cursor)
                else:
                    for entry in entries:
                        cursor.execute(insert(entry))
            if not autocommit:
                is_sent = True
                self.link.commit()
            return YES, "", True
        except psycopg2.Error as error:
            is_answer = error.pgcode is not None and error.diag.severity == "ERROR"
            said = error.pgcode or ("57P01" if "due to administrator command" in str(error) else "lost")
            is_usable = is_answer and not self.link.closed
            try:
                self.link.rollback()
            except psycopg2.Error:
                is_usable = False
            return (NO if is_answer or not is_sent else UNKNOWN), said, is_usable

    def single(self, entries):
        return self._transaction(entries, autocommit=True,
                                 act=lambda cursor: cursor.execute(";".join(map(insert, entries))))

    def block(self, entries):
        return self._transaction(entries)

    def repeatable_read(self, entries):
        return self._transaction(entries, "REPEATABLE READ")

    def copy(self, entries):
        text = "".join("\t".join(entry.split()) + "\n" for entry in entries)
        return self._transaction(entries, act=lambda cursor: cursor.copy_expert(
            "copy history (token, writer, number) from stdin", io.StringIO(text)))

    # -- messages ---------------------------------------------------------------------------------------------------

    def _connect_raw(self, claim):
        link = RawClient(self._guard.data)
        started = link.start(("user", "postgres"), ("database", self._test.database), ("options", claims_text(claim)))
        if raw_client.has_ended(started):
            link.close()
            raise Refused(started)
        return link

    def _ask(self, data):
        answer = self.link.ask(data)
        states = raw_client.states(answer)
        if raw_client.has_ended(answer):
            return UNKNOWN, (states or ["lost"])[0], False
        return (NO, states[0], True) if states else (YES, "", True)

    def pipeline(self, entries):
        return self._ask(b"".join(run(insert(entry)) for entry in entries) + SYNC)

    def one_message(self, entries):
        return self._ask(query(";".join(map(insert, entries))))

    def copy_raw(self, entries):
        text = "".join("\t".join(entry.split()) + "\n" for entry in entries).encode()
        return self._ask(run("copy history (token, writer, number) from stdin") + copy_data(text) + COPY_DONE + SYNC)


class Writers:
    """Several writers, as a context manager; at its end none of them may have failed."""

    def __init__(self, test, guards, each=3):
        self._test = test
        self.all = [Writer(test, guard, test.seed, is_raw=number % 3 == 2) for guard in guards for number in range(each)]

    def __enter__(self):
        for writer in self.all:
            writer.start()
        return self

    def __exit__(self, *_):
        for writer in self.all:
            writer.stop()

    def total(self, name):
        return sum((getattr(writer, name) for writer in self.all), collections.Counter())

    def await_more(self, what=YES, count=4):
        before = self.total("counts")[what]
        wait_until(lambda: self.total("counts")[what] >= before + count or any(writer.wrong for writer in self.all),
                   2 * LIMIT_S, f"{count} more of {what!r}; {dict(self.total('counts'))}, {dict(self.total('said'))}")

    def check(self, faults):
        self._test.assertEqual([writer.wrong for writer in self.all if writer.wrong], [])
        self._test.tell(f"{faults}; {dict(self.total('counts'))}; not acknowledged: {dict(self.total('said'))}")


class FaultTest(SidecarTest):
    """self.history of a table 'history'; at the end of each test it has no faults."""

    def setUp(self):
        super().setUp()
        self.seed = random.SystemRandom().randrange(1 << 32)
        self.random = random.Random(self.seed)
        print(f"seed {self.seed}", flush=True)
        self.history = History()
        self.run_directly(TABLE)
        self.run_directly(f"alter database {self.database} set fenceguard.drain = '{DRAIN_S} s'")

    def guard(self, url=None):
        return Guard(lambda *arguments: self.serve("--storage", url or self.postgres.url(self.database), *arguments))

    def rows(self):
        """By their place."""
        text = self.postgres.psql("copy (select * from history order by place) to stdout csv", self.database)
        return [Row(int(place), int(token), writer, int(number), int(xid), seen)
                for place, token, writer, number, xid, seen in csv.reader(io.StringIO(text))]

    def tell(self, what):
        """Checks the history, and says what there was."""
        rows = self.rows()
        self.assertEqual(self.history.faults(rows)[:5], [])
        tokens = len({row.token for row in rows})
        print(f"{self.id().rpartition('.')[2]}: {what}; told {self.history.counts()}; {len(rows)} rows of {tokens} tokens, "
              "0 stale, 0 lost, 0 of what was refused", flush=True)


class MessageProxy(CuttingProxy):
    """Cuts no connections but those whose first bytes hold the mark, and keeps what passed on them in each direction since
    record(): that tells where messages end."""

    def __init__(self, to_port, mark):
        self._mark = mark
        self._marked = {}  # whether it is, by connection
        self.record()
        super().__init__(to_port)

    def record(self):
        self.passed = {True: b"", False: b""}

    def marked_over(self):
        """How many of the marked ones have ended."""
        return sum(self._marked.get(number, False) for number in list(self.over))

    def _share(self, number, to_server, piece):
        if to_server:
            self._marked.setdefault(number, self._mark in piece)
        if not self._marked.get(number):
            return piece, False
        self.passed[to_server] += piece
        return super()._share(number, to_server, piece)

    def ends(self, to_server):
        """Of the messages of one connection: 0, and how many bytes there are up to the end of each."""
        asks_for_tls = self.passed[True][4:8] == TLS_REQUEST
        data, ends = self.passed[to_server], [0]
        if asks_for_tls:
            ends.append(8 if to_server else 1)
        if to_server:  # its startup has no type
            ends.append(ends[-1] + int.from_bytes(data[ends[-1]:ends[-1] + 4], "big"))
        while ends[-1] < len(data):
            ends.append(ends[-1] + 1 + int.from_bytes(data[ends[-1] + 1:ends[-1] + 5], "big"))
        assert ends[-1] == len(data), "not one connection of PostgreSQL's protocol"
        return ends
