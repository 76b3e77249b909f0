"""A Galera cluster: a lock is of one server, and a commit is certified by what was written. What a stale writer on one
server does while the next holder advances on another."""

import os
import random
import re
import subprocess
import sys
import threading
import unittest

import pymysql

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", folder) for folder in ("", "sql")]

from galera import Cluster  # noqa: E402
from mariadb_server import MALFORMED_PACKET  # noqa: E402
from server_process import program  # noqa: E402
from waiting import run_all  # noqa: E402

DEADLOCK = 1213  # also where the certification failed: nothing was committed
LOCK_WAIT_TIMEOUT = 1205  # an advance behind writers
SMALL, LARGE = 50_000, 800_000  # rows
ENOUGH = 5  # commits of a crowd, which goes on until then: most of its members are overtaken each time


class GaleraTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster({"log-bin": "log", "log-slave-updates": "ON", "sync-binlog": 1})
        cls.addClassCleanup(cls.cluster.remove)
        cls.first, cls.second, cls.third = cls.cluster.members
        cls.dbname = cls.first.create_database()
        cls.first.run("create table history (id int auto_increment primary key, resource varchar(20), token bigint, "
                      "number bigint) engine = innodb", cls.dbname)
        cls.first.run("create table ballast (id int auto_increment primary key, text varchar(200)) engine = innodb",
                      cls.dbname)

    def session(self, node):
        session = node.session(self.dbname)
        self.addCleanup(session.close)
        session.run("set session wsrep_sync_wait = 15")  # what was committed elsewhere is seen
        return session

    def after(self, error, session, number):
        """A server that repeats a call whose certification failed may have begun to answer: then the session is of no use."""
        return session if error.args[0] != MALFORMED_PACKET else self.session(self.cluster.members[number % 3])

    def advance(self, node, token, holder):
        return self.session(node).run("call advance('r', %s, %s)", (token, holder))[0][0]

    def history(self):
        return [row[0] for row in self.session(self.first).run("select token from history where resource = 'r' order by id")]

    def take_over_behind(self, admission, token):
        """A writes on the first server under a token; the next holder advances and writes on the second, while the first
        is busy applying what came before. The commit's error, or null; and whether the advance was on the first by then."""
        self.advance(self.first, token, "a")
        self.session(self.first).run("delete from history")
        writer = self.session(self.first)
        writer.run("start transaction")
        writer.run(admission.format(token=token))
        writer.run("insert into history (resource, token) values ('r', %s)", (token,))
        other = self.session(self.second)
        other.run("insert into ballast (text) select repeat('x', 200) from seq_1_to_%s" % self.rows)
        self.assertEqual(self.advance(self.second, token + 1, "b"), "admitted")
        other.run("insert into history (resource, token) values ('r', %s)", (token + 1,))
        try:
            writer.run("commit")
        except pymysql.Error as error:
            return error.args[0]
        return None

    def test_lock_alone_admits_a_stale_write_and_admission_does_not(self):
        token, self.rows = 10, SMALL
        control = "select token from fences where resource = 'r' lock in share mode"
        while self.take_over_behind(control, token) is not None:  # the first was not busy enough
            token, self.rows = token + 10, self.rows * 2
            self.assertLess(self.rows, LARGE, "a lock alone was enough each time: the test shows nothing")
        self.assertEqual(self.history(), [token, token + 1])
        self.assertEqual(self.take_over_behind("call admit('r', {token}, 'a', null)", token + 10), DEADLOCK)
        self.assertEqual(self.history(), [token + 11])

    def test_leases_of_all_servers_have_one_number_each(self):
        granted, lock = [], threading.Lock()

        def contend(number):
            session = self.session(self.cluster.members[number % 3])
            count = 0
            while count < 8:
                try:
                    answer = session.run("call acquire('lease', 60000, %s)", (f"h{number}",))[0]
                    if answer[0] != "granted":
                        continue
                    if answer[2]:  # else its release failed, or the answer to the first was lost
                        with lock:
                            granted.append(answer[1])
                    self.assertEqual(session.run("call release_lease('lease', %s, %s)", (answer[1], f"h{number}"))[0][0], 1)
                    count += 1
                except pymysql.Error as error:
                    session = self.after(error, session, number)
                    if error.args[0] not in (DEADLOCK, MALFORMED_PACKET):
                        raise

        run_all([lambda number=number: contend(number) for number in range(6)])
        self.assertEqual(len(set(granted)), len(granted))

    def test_a_lease_by_a_session_is_refused(self):
        with self.assertRaisesRegex(pymysql.Error, "Galera"):
            self.session(self.first).run("call acquire_named('a', 1000, 'h')")

    def test_writers_on_all_servers_are_never_stale_and_lose_none(self):
        seed = random.randrange(10**6)
        acknowledged, numbers = [], iter(range(1, 10**6))
        lock = threading.Lock()
        tokens = iter(range(1000, 10**6))

        def write(number):
            randomness = random.Random(seed + number)
            session = self.session(self.cluster.members[number % 3])
            token = 0
            for turn in range(600):
                if turn >= 60 and len(acknowledged) > ENOUGH:
                    break
                try:
                    if not token or randomness.random() < 0.1:
                        with lock:
                            token = next(tokens)
                        session.run("call advance('crowd', %s, %s)", (token, f"h{token}"))
                    with lock:
                        count = next(numbers)
                    session.run("start transaction")
                    session.run("call admit('crowd', %s, %s, null)", (token, f"h{token}"))
                    session.run("insert into history (resource, token, number) values ('crowd', %s, %s)", (token, count))
                    session.run("commit")
                    with lock:
                        acknowledged.append(count)
                except pymysql.Error as error:
                    session = self.after(error, session, number)
                    self.assertIn(error.args[0], (DEADLOCK, LOCK_WAIT_TIMEOUT, 1644, MALFORMED_PACKET), f"seed {seed}: {error}")
                    token = 0 if error.args[0] in (1644, MALFORMED_PACKET) else token
                    session.run("rollback")

        run_all([lambda number=number: write(number) for number in range(6)])
        print(len(acknowledged), "acknowledged", end=" ... ", flush=True)
        self.assertGreater(len(acknowledged), ENOUGH, f"seed {seed}")
        for node in self.cluster.members:
            rows = self.session(node).run("select number from history where resource = 'crowd'")
            self.assertEqual({number for number, in rows}, set(acknowledged), f"seed {seed}")
            tokens = self.tokens_in_order_of_commits(node)
            self.assertEqual(len(tokens), len(acknowledged))
            self.assertEqual(tokens, sorted(tokens), f"seed {seed}")

    def tokens_in_order_of_commits(self, node):
        """As its binary log has it; a cluster's AUTO_INCREMENT is no order."""
        node.run("flush binary logs")
        files = sorted(name for name in os.listdir(node.data) if re.fullmatch(r"log\.\d+", name))
        text = subprocess.run([program("mariadb-binlog"), "--no-defaults", "--base64-output=decode-rows", "-v", *files],
                              cwd=node.data, check=True, capture_output=True, text=True).stdout
        return [int(token) for token in re.findall(r"INSERT INTO `\w+`\.`history`\n### SET\n###   @1=\d+\n###   @2='crowd'\n"
                                                   r"###   @3=(\d+)", text)]


if __name__ == "__main__":
    unittest.main()
