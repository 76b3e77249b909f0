#!/usr/bin/python3
"""Clients that take leases and write under them while the server crashes again and again: backends killed with SIGKILL,
pg_ctl stop -m immediate, the postmaster killed, backends ended in the middle of a commit, and clients that are stopped
inside their transactions for longer than their lease and the drain.

Every client keeps a diary of what it was told. Afterwards the table tells what took effect, and the two are compared:
no write landed below a token that had been admitted, no acknowledged one is missing, none that was refused or rolled
back is there, and only those whose end was not seen may be either.
"""

import contextlib
import os
import random
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "kit"))
from postgres_server import ConnectionLost, Server, SqlError  # noqa: E402

CYCLES = int(os.environ.get("FENCEGUARD_CRASH_ROUNDS", "60"))
CLIENTS = 6
RESOURCES = 2
TABLES = """
create table account(resource text primary key, balance bigint not null);
insert into account select 'accounts/' || g, 0 from generate_series(0, {last}) g;
create table journal(resource text, n bigint, token bigint not null, holder text not null, write text not null unique,
                     primary key (resource, n));
-- Commits that take a while, so that some are hit in the middle.
create function pause() returns trigger language plpgsql as $$
  begin if random() < 0.3 then perform pg_sleep(random() * 0.05); end if; return null; end $$;
create constraint trigger pause after insert on journal deferrable initially deferred
  for each row execute function pause();
"""
SETTINGS = {"recovery_init_sync_method": "syncfs", "deadlock_timeout": "200ms"}
# Ends that prove that the transaction was rolled back: the server said so before it saw COMMIT, or answered it.
KNOWN_REFUSALS = {"ZF001": "stale", "ZF002": "conflict", "40001": "rolled back", "40P01": "rolled back",
                  "55P03": "rolled back", "57014": "rolled back"}


class Client(threading.Thread):
    """Takes the lock, advances, reads, and writes what it read plus one, several times; all with plain SQL."""

    def __init__(self, server, database, name, stop, seed):
        super().__init__(daemon=True)
        self.server, self.database, self.name_, self.stop = server, database, name, stop
        self.random = random.Random(seed)
        self.session = None
        self.acknowledged, self.unknown, self.refused, self.failed = {}, {}, set(), set()
        self.grants = []
        self.advanced = []
        self.is_durable = True
        self.error = None

    def run(self):
        try:
            while not self.stop.is_set():
                try:
                    self.tenure()
                except ConnectionLost:
                    self.hang_up()
        except Exception as error:  # told by the test
            self.error = error
        finally:
            self.hang_up()

    def hang_up(self):
        if self.session is not None:
            self.session.close()
            self.session = None

    def connect(self):
        while self.session is None and not self.stop.is_set():
            try:
                self.session = self.server.session(self.database)
                # With 'off' the server promises nothing for the data; grants and advances are durable all the same.
                setting = self.random.choice(["on", "off", "local"])
                self.session.run(f"set fenceguard.drain = '300ms'; set synchronous_commit = {setting}")
                self.is_durable = setting != "off"
            except ConnectionLost:  # it is down
                self.hang_up()
                time.sleep(0.02)
        return self.session

    def tenure(self):
        if self.connect() is None:
            return
        resource = f"accounts/{self.random.randrange(RESOURCES)}"
        holder = f"{self.name_}-{self.random.getrandbits(48):x}"
        try:
            answer = self.session.run(f"select verdict, token from fenceguard.acquire('{resource}', '0.2 s', '{holder}')")
            verdict, _, token = answer.partition("|")
            if verdict != "granted":
                time.sleep(self.random.uniform(0.005, 0.05))
                return
            self.grants.append((int(token), resource, holder))
            self.session.run(f"select fenceguard.advance('{resource}', {token}, '{holder}')")
            self.advanced.append((resource, int(token)))
            for turn in range(self.random.randrange(1, 30)):
                self.write(resource, token, holder, f"{holder}/{turn}")
            if self.random.random() < 0.7:
                self.session.run(f"select fenceguard.release('{resource}', {token}, '{holder}')")
        except ConnectionLost:
            raise
        except SqlError as error:
            if error.sqlstate not in KNOWN_REFUSALS:
                raise

    def write(self, resource, token, holder, write):
        """One guarded write. Which list it comes to says what this client may believe of it."""
        is_sent = False
        try:
            if self.random.random() < 0.1:
                time.sleep(self.random.uniform(0, 0.4))  # longer than the lease now and then
            self.session.run(f"begin; select fenceguard.admit('{resource}', {token}, '{holder}')")
            if self.random.random() < 0.08:
                time.sleep(self.random.uniform(0, 0.6))  # inside the transaction, longer than the drain
            self.session.run(f"""with a as (update account set balance = balance + 1 where resource = '{resource}'
                                       returning resource, balance)
                            insert into journal select resource, balance, {token}, '{holder}', '{write}' from a""")
            is_sent = True
            self.session.run("commit")
            (self.acknowledged if self.is_durable else self.unknown)[write] = (resource, int(token))
        except ConnectionLost:
            if is_sent:
                self.unknown[write] = (resource, int(token))
            else:
                self.failed.add(write)
            raise
        except SqlError as error:
            if error.sqlstate not in KNOWN_REFUSALS:
                raise
            self.refused.add(write)
            self.session.run("rollback")
            raise


class CrashTest(unittest.TestCase):
    def test_no_crash_lands_a_stale_write_or_loses_one(self):
        seed = int(os.environ.get("FENCEGUARD_SEED", random.randrange(1 << 30)))
        print(f"seed {seed}", flush=True)
        chance = random.Random(seed)
        with Server(SETTINGS) as server:
            database = server.create_database(install=True)
            server.psql(TABLES.format(last=RESOURCES - 1), database)
            stop = threading.Event()
            clients = [Client(server, database, f"c{i}", stop, chance.random()) for i in range(CLIENTS)]
            for client in clients:
                client.start()
            kinds = self.crash(server, database, chance)
            stop.set()
            for client in clients:
                client.join(60)
                self.assertFalse(client.is_alive(), "a client hangs")
                self.assertIsNone(client.error)
            server.restart("immediate")
            self.compare(server, database, clients, kinds)

    def crash(self, server, database, chance):
        kinds = {}
        for _ in range(CYCLES):
            time.sleep(chance.uniform(0.1, 0.5))
            kind = chance.choice(["kill a backend", "kill a backend", "immediate", "kill the postmaster",
                                  "end a backend", "end a backend", "stop a client"])
            kinds[kind] = kinds.get(kind, 0) + 1
            if kind == "immediate":
                server.restart("immediate")
            elif kind == "kill the postmaster":
                server.kill()
                server.start()
            elif kind == "stop a client":
                self.stop_a_client(server, chance)
            else:
                self.hit_a_backend(server, database, chance,
                                   signal.SIGKILL if kind == "kill a backend" else signal.SIGTERM)
        return kinds

    @staticmethod
    def hit_a_backend(server, database, chance, number):
        try:
            pids = server.psql(f"select pid from pg_stat_activity where datname = '{database}' "
                               "and pid <> pg_backend_pid()").split()
            if pids:
                os.kill(int(chance.choice(pids)), number)
        except (SqlError, ProcessLookupError):
            return
        if number == signal.SIGKILL:  # the whole server recovers
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                try:
                    server.psql("select 1")
                    return
                except SqlError:
                    time.sleep(0.02)
            raise AssertionError("the server did not recover")

    @staticmethod
    def stop_a_client(server, chance):
        """SIGSTOP for longer than lease and drain, wherever it is."""
        sessions = [s for s in server._sessions if s is not server._ruler and s.is_open()]
        if not sessions:
            return
        pid = chance.choice(sessions)._process.pid
        with contextlib.suppress(ProcessLookupError):  # its client may hang up meanwhile
            os.kill(pid, signal.SIGSTOP)
            time.sleep(chance.uniform(0.3, 1))
            os.kill(pid, signal.SIGCONT)

    def compare(self, server, database, clients, kinds):
        rows = [line.split("|") for line in server.psql(
            "select resource, n, token, write from journal order by resource, n", database).splitlines()]
        landed = {write: (resource, int(token)) for resource, _, token, write in rows}
        acknowledged = {w: v for c in clients for w, v in c.acknowledged.items()}
        unknown = {w for c in clients for w in c.unknown}
        not_done = {w for c in clients for w in c.refused | c.failed}
        # In the order in which they took effect, tokens never fall, and nothing was overwritten.
        for resource in {row[0] for row in rows}:
            tokens = [int(row[2]) for row in rows if row[0] == resource]
            self.assertEqual(tokens, sorted(tokens), "a stale write landed")
            numbers = [int(row[1]) for row in rows if row[0] == resource]
            self.assertEqual(numbers, list(range(1, len(numbers) + 1)), "an update was lost")
            self.assertEqual(server.psql(f"select balance from account where resource = '{resource}'", database),
                             str(len(numbers)))
        self.assertEqual({w: v for w, v in acknowledged.items() if landed.get(w) != v}, {}, "an acknowledged write vanished")
        self.assertEqual(not_done & set(landed), set(), "a write that was refused or rolled back landed")
        self.assertEqual(set(landed) - set(acknowledged) - unknown, set(), "a write that nobody knows of landed")
        grants = [token for c in clients for token, _, _ in c.grants]
        self.assertEqual(len(grants), len(set(grants)), "a token was granted twice")
        fences = dict(line.split("|") for line in server.psql(
            "select resource, token from fenceguard.fence", database).splitlines())
        for resource, token in [*landed.values(), *(a for c in clients for a in c.advanced)]:
            self.assertGreaterEqual(int(fences[resource]), token, "a fence went back")
        print(f"{kinds}; {len(acknowledged)} acknowledged, {len(unknown)} unknown "
              f"({len(unknown & set(landed))} of them landed), {len(not_done)} not done, {len(grants)} grants", flush=True)
        self.assertGreater(len(acknowledged), CYCLES)
        self.assertGreater(len(not_done), 0)


if __name__ == "__main__":
    unittest.main()
