"""The examples as a user runs them: from the command line, the ones that need it against a running guard."""

import glob
import os
import re
import sqlite3
import subprocess
import sys
import unittest

import support
from server_process import IN_USE, STARTS_MAX
from waiting import wait_until

EXAMPLES = os.environ["FENCEGUARD_EXAMPLES"]
LIBRARY_SQLITE = os.environ["FENCEGUARD_LIBRARY_SQLITE"]


def example(name):
    return os.path.join(EXAMPLES, name)


class ExampleTest(support.BinaryTest):
    def run_program(self, *command, environment=None, status=0):
        """What the program prints; fails with what it said on stderr if it ends otherwise than expected."""
        done = subprocess.run(command, cwd=self.folder, env=support.environment(environment), text=True,
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
        self.run_program(support.BINARY, "exec", "--source", "sqlite:leases.db", "--init", "--resource", "accounts/42",
                         "--", example("fenced_row.sh"), "bank.db", "70")
        balance, token, holder = self.row()
        self.assertEqual(balance, 70)
        self.assertGreaterEqual(token, 1)
        self.assertRegex(holder, "^[0-9a-f]{32}$")


class AgainstARunningGuard(ExampleTest):
    def setUp(self):
        super().setUp()
        data, control = self.start()
        self.where = {"DATA": data, "CONTROL": control, "FENCEGUARD_DATA": data, "FENCEGUARD_CONTROL": control}

    def start(self):
        """A guard; where its data side and its control side are."""
        server = support.Server(self.folder, ["--storage", "sqlite:guard.db"])
        self.addCleanup(server.kill)
        return f"http://{server.data}", server.url

    def test_the_story_in_curl_ends_with_a_refusal(self):
        printed = self.run_program(example("curl_story.sh"), environment=self.where)
        lines = [re.sub(" +", " ", line) for line in printed.splitlines()]
        first, second = (int(lines[i].split()[-1]) for i in (0, 2))
        self.assertGreater(second, first)
        self.assertEqual(lines[1], "A writes 100: 201 admitted")
        self.assertRegex(lines[3], "^B writes 70: 20[04] admitted$")
        self.assertEqual(lines[4], "A writes 130: 412 stale")
        self.assertEqual(lines[5], "What is kept: 70")

    def test_python_adds_up_under_concurrency(self):
        command = [sys.executable, "-B", example("sidecar.py"), "42", "10"]
        self.assertEqual(self.run_program(*command, environment=self.where), "10\n")
        environment = support.environment(self.where)
        running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
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
        where = self.where | {"PYTHONPATH": EXAMPLES}
        self.assertEqual(self.run_program(sys.executable, "-B", "-c", code, environment=where),
                         "refused 70\n")


class InFrontOfNginx(AgainstARunningGuard):
    """The same against nginx's WebDAV behind the guard, as examples/http_storage starts them."""

    storage = "nginx"

    def start(self):
        """Again where another process was quicker to take the port that was free for the storage."""
        self.gone = []
        for _ in range(STARTS_MAX):
            servers, where = self.start_once()
            # A storage notes its process once it has the port; where it does not get it, all servers end.
            wait_until(lambda: servers.poll() is not None or glob.glob(self.path("tmp.*/*.pid")), what="a storage")
            if servers.poll() is None:
                return where
            self.gone.append(servers)
            self.assertIn(IN_USE, self.said().lower())
        raise AssertionError(self.said())

    def start_once(self):
        environment = support.environment({"FENCEGUARD": support.BINARY, "TMPDIR": self.folder})
        os.chmod(self.folder, 0o755)  # the storage runs as another user
        with open(self.path("said.log"), "wb") as log:
            servers = subprocess.Popen([example("http_storage/start.sh"), self.storage], env=environment,
                                       stdout=subprocess.PIPE, stderr=log, text=True)
        self.addCleanup(self.end, servers)
        line = servers.stdout.readline()
        found = re.fullmatch(r"DATA=(\S+) CONTROL=(\S+)\n", line)
        self.assertTrue(found, line + self.said())
        return servers, found.groups()

    def said(self):
        with open(self.path("said.log"), encoding="utf-8") as log:
            return log.read()

    def end(self, servers):
        servers.terminate()
        self.assertEqual(servers.wait(timeout=30), 1 if servers in self.gone else 0)
        servers.stdout.close()
        self.assertEqual(glob.glob(self.path("tmp.*")), [])


class InFrontOfApache(InFrontOfNginx):
    storage = "apache"


if __name__ == "__main__":
    unittest.main()
