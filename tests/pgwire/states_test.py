"""Every message that a client can send, in every state that a session can be in, to PostgreSQL and through the sidecar: the
same answers, and nothing left behind by a client that then goes away.

How: a state is what a client has sent before. To each, each message is added, and the end of the session behind it, so that
all answers are there when the connection ends; they are compared. Then the same, with a client that only goes away: its slot
at the sidecar, its backend and its locks go with it.
"""

import itertools
import os
import re
import unittest

import differential_test
import raw_client
from differential_test import said
from raw_client import COPY_DONE, FLUSH, SYNC, RawClient, bind, copy_data, execute, message, parse, query, run
from sequence_maker import named
from sidecar_case import SidecarTest, claims_text
from waiting import wait_until

CLAIM = ("accounts/1", 34, "holder-1")
INSERT = "insert into entries (who) values ('a')"
COPY = "copy entries (who) from stdin"
COPY_FAIL = message(b"f", b"no more\0")
CURRENT_SETTING = message(b"F", b"\0\0\0\x42" + b"\0\0" + b"\0\0" + b"\0\0")  # a function without arguments

# What was sent before, and of a flight that is not whole the last message that is waited for.
STATES = {
    "idle": b"",
    "in a block that has done nothing": query("begin"),
    "in a block": query("begin") + query(INSERT),
    "in a block that failed": query("begin") + query(INSERT) + query("select 1 / 0"),
    "behind a Query that is under way": query("select pg_sleep(0.05)"),
    "behind a Parse": parse("select 1"),
    "behind a Parse of BEGIN": parse("begin"),
    "behind a Bind": parse(INSERT) + bind(),
    "behind an Execute": run(INSERT),
    "behind an Execute of a CALL": run("do $$ begin perform 1; end $$"),
    "behind a COMMIT in a flight": run("begin") + run(INSERT) + run("commit"),
    "behind a Flush": run(INSERT) + FLUSH,
    "behind a portal that is suspended": parse("select generate_series(1, 3)") + bind() + execute(rows=1),
    "behind a Sync that is not answered yet": run("select pg_sleep(0.05)") + SYNC,
    "behind an error in a flight": run("select 1 / 0"),
    "behind an error in a Parse, and a Flush": parse("selec") + FLUSH,
    "in a COPY": query(COPY),
    "in a COPY that has data": query(COPY) + copy_data(b"a\nhalf"),
    "in a COPY in a block": query("begin") + query(COPY),
    "behind an Execute of a COPY": run(COPY),
    "in a COPY with a Sync": run(COPY) + SYNC,
    "behind a COPY that failed": run("copy nosuch from stdin"),
    "behind a COPY to the client": run("copy (select 5) to stdout"),
}
MESSAGES = {
    "nothing": b"",
    "Query": query("select 2"),
    "empty Query": query(""),
    "Query that fails": query("selec"),
    "Query of a COPY": query(COPY) + copy_data(b"b\n") + COPY_DONE,
    "Parse": parse("select 3", "named"),
    "Bind": bind(),
    "Bind of what is not": bind("nosuch"),
    "Execute": execute(),
    "Describe of a statement": named(b"D", b"S", ""),
    "Describe of a portal": named(b"D", b"P", ""),
    "Close of a statement": named(b"C", b"S", ""),
    "Close of a portal": named(b"C", b"P", ""),
    "Sync": SYNC,
    "Flush": FLUSH,
    "FunctionCall": CURRENT_SETTING,
    "CopyData": copy_data(b"c\n"),
    "much CopyData": copy_data(b"x" * 30_000 + b"\n") * 10,
    "CopyDone": COPY_DONE,
    "CopyFail": COPY_FAIL,
    "CopyData, CopyDone and a statement": copy_data(b"d\n") + COPY_DONE + run("select 4"),
    "password": message(b"p", b"secret\0"),
    "unknown": message(b"z", b"what"),
    "Terminate": message(b"X"),
}
END = COPY_FAIL + SYNC + SYNC + message(b"X")

# What docs/postgres-sidecar.md says of beside what differential_test.py knows: the first two answers that are not the same.
REFUSED_CALL = re.compile(r".* \| E 0A000 a function call of the protocol is relayed only inside a block$", re.DOTALL)


def is_documented(direct, other, flight):
    """Also where both sides end the session because they do not know the client's language any more; PostgreSQL answers first
    what came before."""
    _, *answers = differential_test.first_of(direct, other)
    are_ended = all(said(each).startswith("E 08P01") for each in (direct[-2], answers[1]))
    return are_ended or REFUSED_CALL.match(" | ".join(map(said, answers))) or differential_test.documented(direct, other, flight)


class StatesTest(SidecarTest):
    def client(self, address, *parameters):
        client = RawClient(address)
        self.addCleanup(client.close)
        started = client.start(("user", "postgres"), *parameters)
        self.assertEqual(started[-1], (b"Z", b"I"), started)
        client.pid = next(int.from_bytes(body[:4], "big") for kind, body in started if kind == b"K")
        return client

    def through(self, sidecar, *claims):
        options = [("options", claims_text(*claims))] if claims else []
        return self.client(sidecar.data, ("database", self.database), *options)

    def directly(self):
        return self.client(f"127.0.0.1:{self.postgres.port}", ("database", self.plain))

    def test_answers_are_those_of_postgresql(self):
        self.plain = self.postgres.create_database(install=True)
        self.postgres.psql("create table entries (id serial primary key, who text)", self.plain)
        sidecar = self.start_sidecar()
        differences, known = [], 0
        for (state, before), (name, sent) in itertools.product(STATES.items(), MESSAGES.items()):
            clients = self.directly(), self.through(sidecar, CLAIM)
            for client in clients:
                client.send(before + sent + END)
            answers = [self.heard(client) for client in clients]
            for client in clients:
                client.close()
            if answers[0] == answers[1]:
                continue
            if is_documented(*answers, before + sent):
                known += 1
            else:
                differences.append(f"{name} {state}:\n" + differential_test.first_difference(*answers))
        self.assertEqual(len(differences), 0, "\n".join(differences))
        self.assertLess(known, len(STATES) * len(MESSAGES) / 3)

    def heard(self, client):
        """Up to the end of the connection; what comes to none is told so."""
        found = []
        try:
            while not found or found[-1][0] is not None:
                found.append(client.receive())
        except TimeoutError:
            found.append((None, b"no answer"))
        return [compared(*each) for each in found]

    def test_client_that_goes_away_leaves_nothing(self):
        """At once, however much of an answer is to come, and whether it closes its connection or only its side of it."""
        sidecar = self.start_sidecar()
        before = self.descriptors(sidecar)
        for (state, sent), (claims, is_half) in itertools.product(STATES.items(), (((CLAIM,), False), ((), True))):
            with self.subTest(state, claims=claims, is_half=is_half):
                clients = [self.through(sidecar, *claims) for _ in MESSAGES]
                for client, added in zip(clients, MESSAGES.values()):
                    client.send(sent + added)
                    client.end_sending() if is_half else client.close()
                pids = ", ".join(str(client.pid) for client in clients)
                wait_until(lambda: self.run_directly(
                    f"select (select count(*) from pg_stat_activity where pid in ({pids})) + "
                    f"(select count(*) from pg_locks where pid in ({pids}))") == "0", what="an end of their backends")
                wait_until(lambda: self.descriptors(sidecar) <= before + len(clients) * is_half, what="an end of their connections")
                for client in clients:
                    client.close()

    def test_client_that_leaves_a_silent_server_frees_its_place(self):
        """Behind more than is read ahead, too, which hides its end: 64 KiB, and the rest is in the kernel's buffer. Its backend is as it is at PostgreSQL."""
        sidecar = self.start_sidecar("--body-timeout", "1s")
        before = self.descriptors(sidecar)
        with self.postgres.session(self.database) as other:
            other.run("begin; lock table entries")
            clients = []
            for claims, behind in itertools.product(((CLAIM,), ()), (b"", query("select 1"), query("select 1") * 7_000)):
                clients.append(self.through(sidecar, *claims))
                clients[-1].send(query("select who from entries"))
                wait_until(lambda: self.run_directly(
                    f"select wait_event_type from pg_stat_activity where pid = {clients[-1].pid}") == "Lock")
                clients[-1].send(behind)
                clients[-1].close()
            wait_until(lambda: self.descriptors(sidecar) <= before, what="an end of their connections")
            other.run("commit")
        wait_until(lambda: not any(self.postgres.is_connected(client.pid) for client in clients), what="an end of their backends")

    def test_client_whose_machine_has_gone_is_found_out(self):
        """The kernel asks for it now and then, on both of the session's connections."""
        sidecar = self.start_sidecar()
        self.through(sidecar, CLAIM)
        ports = [int(address.rpartition(":")[2]) for address in (sidecar.data, f":{self.postgres.port}")]
        with open("/proc/net/tcp", encoding="ascii") as file:
            links = [line.split() for line in file][1:]
        timers = [link[5].partition(":")[0] for link in links if link[3] == "01" and (
            link[1].endswith(f":{ports[0]:04X}") or link[2].endswith(f":{ports[1]:04X}"))]
        self.assertEqual(timers, ["02"] * len(timers))  # keepalive
        self.assertGreaterEqual(len(timers), 2)

    def descriptors(self, sidecar):
        return len(os.listdir(f"/proc/{sidecar.process.pid}/fd"))


def compared(kind, body):
    """Of an error or a notice its severity, its SQLSTATE and what it says count."""
    if kind not in (b"E", b"N"):
        return kind, body
    return kind, b"\0".join(field for field in body.split(b"\0") if field[:1] in (b"V", b"C", b"M"))


if __name__ == "__main__":
    unittest.main()
