"""The PostgreSQL examples as a user runs them, against a server of their own."""

import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import postgres_server
from postgres_server import wait_until

EXAMPLES = os.environ["FENCEGUARD_EXAMPLES"]
LIBRARY = os.environ["FENCEGUARD_LIBRARY_POSTGRES"]
TRANSFER = os.environ["FENCEGUARD_TRANSFER_POSTGRES"]
SHELL = os.path.join(EXAMPLES, "transfer_postgres.sh")
LEASE_S = 0.3  # of transfer_postgres
TELLINGS_MAX = 5


class PostgresExample(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = postgres_server.Server()
        cls.addClassCleanup(cls.server.remove)

    def setUp(self):
        self.database = self.server.create_database(install=True)
        self.url = self.server.url(self.database)

    def ask(self, sql):
        return self.server.psql(sql, self.database)

    def make_accounts(self):
        self.ask("create table account (id bigint primary key, balance bigint not null); "
                 "insert into account select i, 1000 from generate_series(1, 4) i")

    def start(self, *command, environment=None):
        return subprocess.Popen(command, env=postgres_server.environment(environment), text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def ended(self, process, limit_s=120):
        printed, error = process.communicate(timeout=limit_s)
        return process.returncode, printed, error

    def test_the_stale_holder_is_refused_in_its_own_transaction(self):
        for _ in range(2):
            status, printed, error = self.ended(self.start(LIBRARY, self.url))
            self.assertEqual((status, error), (0, ""))
            self.assertEqual(printed, "A writes 70: admitted\nB writes 50: admitted\nA writes 60: stale\n")
            self.assertEqual(self.ask("select balance from account where id = 42"), "50")

    def test_the_sum_never_changes_however_processes_are_paused(self):
        """Several processes transfer; each is stopped again and again for longer than its leases last. Told again
        where the pauses met nobody who held a lease."""
        self.make_accounts()
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        dice = random.Random(seed)
        for _ in range(TELLINGS_MAX):
            pauses, refusals = self.transfer_and_pause(dice)
            if pauses > 5 and refusals > 0:
                break
        self.assertGreater(pauses, 5)
        self.assertGreater(refusals, 0)
        self.assertNotEqual(self.ask("select string_agg(distinct balance::text, ' ') from account"), "1000")

    def transfer_and_pause(self, dice):
        """How many pauses there were, and how many refusals."""
        running = [self.start(TRANSFER, self.url, "40") for _ in range(5)]
        self.addCleanup(lambda: [process.kill() for process in running if process.poll() is None])
        pauses = 0
        while any(process.poll() is None for process in running):
            victim = dice.choice(running)
            if pauses < 25 and victim.poll() is None:
                victim.send_signal(signal.SIGSTOP)
                # What is waited for is the pause itself: longer than a lease.
                time.sleep(LEASE_S + dice.random() * 0.3)
                victim.send_signal(signal.SIGCONT)
                pauses += 1
            self.assertEqual(self.ask("select sum(balance) from account"), "4000")
            time.sleep(dice.random() * 0.1)
        tallies = [self.ended(process) for process in running]
        print(tallies)
        refusals = 0
        for status, printed, error in tallies:
            self.assertEqual((status, error), (0, ""))
            pattern = r"(\d+) done, (\d+) refused and tried again, (\d+) unknown\n"
            done, refused, unknown = map(int, re.fullmatch(pattern, printed).groups())
            refusals += refused
            self.assertEqual(done + unknown, 40)
        self.assertEqual(self.ask("select sum(balance) from account"), "4000")
        return pauses, refusals

    def test_psql_alone_moves_money(self):
        self.make_accounts()
        self.assertEqual(self.ended(self.start(SHELL, self.url, "1", "2", "30")), (0, "moved\n", ""))
        self.assertEqual(self.ended(self.start(SHELL, self.url, "2", "1", "10")), (0, "moved\n", ""))
        self.assertEqual(self.ask("select string_agg(balance::text, ' ' order by id) from account"),
                         "980 1020 1000 1000")

    def start_and_keep_thinking(self, *command, environment):
        """A process, and what ends its thinking once it is called: the sleep that it finds is one of this test's."""
        folder = tempfile.mkdtemp(prefix="fenceguard-")
        self.addCleanup(shutil.rmtree, folder)
        alarm, sleep = os.path.join(folder, "alarm"), os.path.join(folder, "sleep")
        os.mkfifo(alarm)
        with open(sleep, "w", encoding="ascii") as script:
            script.write(f'#!/bin/sh\n[ "$1" = "$THINK_S" ] && read -r _ < {alarm}\n')
        os.chmod(sleep, 0o755)
        line = os.open(alarm, os.O_RDWR)  # either end is there, so that nobody waits for the other
        self.addCleanup(os.close, line)
        path = folder + os.pathsep + os.environ["PATH"]
        return self.start(*command, environment={**environment, "PATH": path}), lambda: os.write(line, b"\n")

    def test_psql_alone_is_refused_after_a_pause_and_the_sum_stays(self):
        self.make_accounts()
        slow, wake = self.start_and_keep_thinking(SHELL, self.url, "1", "2", "30",
                                                  environment={"TTL": "300 ms", "THINK_S": "2"})
        wait_until(lambda: self.ask("select count(*) from fenceguard.fence") == "2")
        status, _, error = self.ended(self.start(SHELL, self.url, "1", "3", "1"))
        self.assertIn(status, (0, 1), error)
        wait_until(lambda: self.ended(self.start(SHELL, self.url, "2", "1", "5"))[0] == 0)
        wake()
        status, printed, error = self.ended(slow)
        self.assertEqual((status, printed), (1, ""))
        self.assertIn("is stale", error)
        self.assertEqual(self.ask("select sum(balance) from account"), "4000")
        self.assertEqual(self.ask("select balance from account where id = 2"), "995")

    def test_psql_alone_finds_an_account_locked(self):
        self.make_accounts()
        self.ask("select fenceguard.acquire('accounts/2', '1 hour')")
        status, _, error = self.ended(self.start(SHELL, self.url, "1", "2", "30"))
        self.assertEqual(status, 1)
        self.assertIn("locked by somebody else", error)
        self.assertEqual(self.ask("select count(*) from fenceguard.lease"), "1")


if __name__ == "__main__":
    unittest.main()
