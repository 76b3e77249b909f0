"""The examples as a user runs them: from the command line, the ones that need it against a running guard."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import unittest

BINARY = os.environ["FENCEGUARD_BINARY"]
EXAMPLES = os.environ["FENCEGUARD_EXAMPLES"]
LIBRARY_SQLITE = os.environ["FENCEGUARD_LIBRARY_SQLITE"]


def example(name):
    return os.path.join(EXAMPLES, name)


class ExampleTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="fenceguard-examples-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_program(self, *command, environment=None, status=0):
        """What the program prints; fails with what it said on stderr if it ends otherwise than expected."""
        done = subprocess.run(command, cwd=self.folder, env=os.environ | (environment or {}), text=True,
                              capture_output=True, timeout=60)
        self.assertEqual(done.returncode, status, f"{command}: {done.stdout}{done.stderr}")
        return done.stdout


class Library(ExampleTest):
    def test_the_stale_holder_is_refused_in_its_own_transaction(self):
        printed = self.run_program(LIBRARY_SQLITE, "bank.db")
        self.assertEqual(printed, "A writes 70: admitted\nB writes 50: admitted\nA writes 60: stale\n")
        with sqlite3.connect(os.path.join(self.folder, "bank.db")) as bank:
            self.assertEqual(bank.execute("SELECT balance FROM account WHERE id = 42").fetchall(), [(50,)])

    def test_it_can_be_run_again_on_the_same_file(self):
        first = self.run_program(LIBRARY_SQLITE, "bank.db")
        self.assertEqual(self.run_program(LIBRARY_SQLITE, "bank.db"), first)


class FencedRow(ExampleTest):
    def write(self, token, holder, balance, status=0):
        claim = {"FENCING_TOKEN": str(token), "FENCING_HOLDER": holder}
        self.run_program(example("fenced_row.sh"), "bank.db", str(balance), environment=claim, status=status)

    def row(self):
        with sqlite3.connect(os.path.join(self.folder, "bank.db")) as bank:
            return bank.execute("SELECT balance, fence_token, fence_holder FROM account").fetchone()

    def test_a_lower_token_and_another_holder_are_refused(self):
        self.write(34, "a", 70)
        self.write(35, "b", 50)
        self.write(34, "a", 60, status=1)
        self.write(35, "c", 61, status=1)
        self.assertEqual(self.row(), (50, 35, "b"))
        self.write(35, "b", 51)
        self.assertEqual(self.row(), (51, 35, "b"))

    def test_great_tokens_and_odd_holders_are_kept_exactly(self):
        self.write(9007199254740993, "it's\"1e5", 1)
        self.write(9007199254740992, "x", 2, status=1)
        self.write(9223372036854775807, "34", 3)
        self.assertEqual(self.row(), (3, 9223372036854775807, "34"))

    def test_it_runs_under_exec(self):
        self.run_program(BINARY, "exec", "--source", "sqlite:leases.db", "--resource", "accounts/42", "--",
                         example("fenced_row.sh"), "bank.db", "70")
        balance, token, holder = self.row()
        self.assertEqual(balance, 70)
        self.assertGreaterEqual(token, 1)
        self.assertRegex(holder, "^[0-9a-f]{32}$")


class AgainstARunningGuard(ExampleTest):
    def setUp(self):
        super().setUp()
        log = open(os.path.join(self.folder, "serve.log"), "w+", encoding="utf-8")
        self.addCleanup(log.close)
        self.server = subprocess.Popen(
            [BINARY, "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0",
             "--storage", "sqlite:guard.db"],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=log, text=True)
        self.addCleanup(self.stop)
        limit = threading.Timer(30, self.server.kill)
        limit.start()
        line = self.server.stdout.readline()
        limit.cancel()
        ready = re.fullmatch(r"listening data=(\S+) control=(\S+)\n", line)
        if not ready:
            log.seek(0)
            self.fail(f"the guard did not start: {line}{log.read()}")
        self.data, self.control = (f"http://{address}" for address in ready.groups())

    def stop(self):
        self.server.send_signal(signal.SIGTERM)
        self.server.wait(timeout=30)
        self.server.stdout.close()

    def test_the_story_in_curl_ends_with_a_refusal(self):
        where = {"DATA": self.data, "CONTROL": self.control}
        printed = self.run_program(example("curl_story.sh"), environment=where)
        lines = [re.sub(" +", " ", line) for line in printed.splitlines()]
        first, second = (int(lines[i].split()[-1]) for i in (0, 2))
        self.assertGreater(second, first)
        self.assertEqual(lines[1], "A writes 100: 201 admitted")
        self.assertRegex(lines[3], "^B writes 70: 20[04] admitted$")
        self.assertEqual(lines[4], "A writes 130: 412 stale")
        self.assertEqual(lines[5], "What is kept: 70")

    def test_python_adds_up_under_concurrency(self):
        where = {"FENCEGUARD_DATA": self.data, "FENCEGUARD_CONTROL": self.control}
        command = [sys.executable, "-B", example("sidecar.py"), "42", "10"]
        self.assertEqual(self.run_program(*command, environment=where), "10\n")
        running = [subprocess.Popen(command, env=os.environ | where, stdout=subprocess.PIPE, text=True)
                   for _ in range(4)]
        sums = sorted(int(process.communicate(timeout=60)[0]) for process in running)
        self.assertEqual(sums, [20, 30, 40, 50])

    def test_python_says_that_it_was_refused(self):
        code = ("import sidecar\n"
                "a = sidecar.Lease('accounts/42', ttl_ms=300)\n"
                "b = sidecar.Lease('accounts/42', wait_ms=20000)\n"
                "b.write(b'70')\n"
                "try:\n"
                "    a.write(b'130')\n"
                "except sidecar.Refused as refusal:\n"
                "    print('refused', b.read().decode())\n")
        where = {"FENCEGUARD_DATA": self.data, "FENCEGUARD_CONTROL": self.control, "PYTHONPATH": EXAMPLES}
        self.assertEqual(self.run_program(sys.executable, "-B", "-c", code, environment=where), "refused 70\n")


if __name__ == "__main__":
    unittest.main()
