"""A server that is killed (SIGKILL) at any moment, under holders that take over from each other: no stale write lands, and
nothing that was acknowledged is lost. A row of history is written with each write, in its transaction."""

import contextlib
import os
import random
import sys
import threading
import time
import unittest

import pymysql

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from mariadb_server import Server  # noqa: E402

ROUNDS = 8
WRITERS = 6
RESOURCES = 3
ACKNOWLEDGED_MIN = 100  # in each round


class Holder(threading.Thread):
    """Draws numbers, and advances and writes under each for a while; others advance meanwhile."""

    def __init__(self, test, number):
        super().__init__(daemon=True)
        self.test = test
        self.randomness = random.Random(test.seed + number)
        self.writes = 0
        self.failure = None

    def run(self):
        while not self.test.is_over:
            try:
                with self.test.server.session(self.test.dbname) as session:
                    while not self.test.is_over:
                        self.hold(session)
            except (pymysql.err.OperationalError, pymysql.err.InterfaceError, OSError) as error:
                if error.args and error.args[0] in (1205, 1213):
                    continue
                time.sleep(0.02)  # the server is away
            except Exception as error:  # told by the test
                self.failure = error
                return

    def verdict(self, session, sql):
        return session.run(sql)[0][0]

    def hold(self, session):
        resource = self.randomness.randrange(RESOURCES)
        token = session.run("call draw()")[0][0]
        claim = f"'r/{resource}', {token}, 'h{token}'"
        if self.verdict(session, f"call try_advance({claim}, null, null)") != "admitted":
            return
        value = session.run(f"select value from cell where id = {resource}")[0][0]
        for _ in range(self.randomness.randint(1, 5)):
            self.writes += 1
            if self.verdict(session, f"call start_admitted({claim}, {self.writes}, null, null)") != "admitted":
                session.run("rollback")
                return
            value += 1
            # What it writes rests on what it read when it took over.
            session.run(f"update cell set value = {value}, version = version + 1 where id = {resource}")
            session.run(f"insert into history select {resource}, version, {token}, {self.writes}, {value} from cell "
                        f"where id = {resource}")
            session.run("call commit_admitted()")
            self.test.acknowledge(resource, token, self.writes)


class Kill(unittest.TestCase):
    def setUp(self):
        self.seed = random.randrange(10**6)
        print(f"seed {self.seed}", file=sys.stderr)
        self.server = Server()
        self.addCleanup(self.server.remove)
        self.dbname = self.server.create_database()
        self.server.run("create table cell (id int primary key, value bigint not null, version bigint not null) "
                        "engine = innodb", self.dbname)
        self.server.run(f"insert into cell select seq, 0, 0 from seq_0_to_{RESOURCES - 1}", self.dbname)
        self.server.run("create table history (resource int, version bigint, token bigint, number bigint, value bigint, "
                        "primary key (resource, version)) engine = innodb", self.dbname)
        self.is_over = False
        self.lock = threading.Lock()
        self.acknowledged = set()

    def acknowledge(self, *write):
        with self.lock:
            self.acknowledged.add(write)

    def test_nothing_stale_lands_and_nothing_acknowledged_is_lost(self):
        randomness = random.Random(self.seed)
        holders = [Holder(self, number) for number in range(WRITERS)]
        for holder in holders:
            holder.start()
        try:
            for _ in range(ROUNDS):
                before = len(self.acknowledged)
                while len(self.acknowledged) < before + ACKNOWLEDGED_MIN:
                    self.assertTrue(any(holder.is_alive() for holder in holders), [holder.failure for holder in holders])
                    time.sleep(0.01)
                time.sleep(randomness.random() * 0.2)  # any moment of what goes on
                self.server.kill()
                self.server.start()
        finally:
            self.is_over = True
            for holder in holders:
                holder.join(60)
        self.assertEqual([holder.failure for holder in holders if holder.failure], [], f"seed {self.seed}")
        self.check()

    def check(self):
        history = self.server.run("select resource, version, token, number, value from history order by resource, version",
                                  self.dbname)
        for resource in range(RESOURCES):
            rows = [row for row in history if row[0] == resource]
            self.assertEqual([row[1] for row in rows], list(range(1, len(rows) + 1)), f"seed {self.seed}")
            tokens = [row[2] for row in rows]
            self.assertEqual(tokens, sorted(tokens), f"a stale write landed, seed {self.seed}")
            self.assertEqual([row[4] for row in rows], list(range(1, len(rows) + 1)), f"an update was lost, seed {self.seed}")
        landed = {(row[0], row[2], row[3]) for row in history}
        self.assertEqual(self.acknowledged - landed, set(), f"acknowledged and lost, seed {self.seed}")
        with contextlib.suppress(OSError):
            print(f"{len(history)} writes, {len(self.acknowledged)} acknowledged, "
                  f"{len({row[2] for row in history})} holders, {ROUNDS} kills", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
