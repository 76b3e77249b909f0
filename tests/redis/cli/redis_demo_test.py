"""The stories of Redis in 'fenceguard demo', with real servers: what they observe, and that they leave nothing."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import unittest
import xml.etree.ElementTree

import support
from support import processes_with, wait_until

STORIES = ("expire-crash", "foreign-unlock", "failover", "redlock-restart", "clock-jump")
LIMIT_S = 120
COLUMNS_MAX = 100


class Demo(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.temp = pathlib.Path(self.folder) / "tmp"
        self.temp.mkdir()
        self.variables = {"TMPDIR": str(self.temp), "LC_ALL": "C", "TERM": "dumb"}

    def nothing_is_left(self):
        return not self.processes() and not list(self.temp.iterdir())

    def processes(self):
        return processes_with(f"TMPDIR={self.temp}")

    def demo(self, *arguments, env=None):
        done = self.run_binary("demo", *arguments, env={**self.variables, **(env or {})}, limit_s=LIMIT_S)
        wait_until(self.nothing_is_left, what="an end without processes and folders")
        return done

    def report(self, story):
        done = self.demo(story, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        report = json.loads(done.stdout)
        self.assertEqual(report["scenario"], story)
        self.assertTrue(report["as_it_must_be"])
        for telling in ("round", "through"):
            self.assertTrue(report[telling]["as_it_must_be"])
            times = [event["at_us"] for event in report[telling]["events"]]
            self.assertEqual(times, sorted(times))
            self.assertGreater(len(times), 3)
        return report["round"]["facts"], report["through"]["facts"], report

    def refusals(self, report):
        return [event for event in report["through"]["events"] if event.get("answer", "").startswith("REFUSED")]


class Stories(Demo):
    def test_expire_crash(self):
        round_, through, report = self.report("expire-crash")
        self.assertEqual((round_["taken_by_b"], round_["pttl_ms"]), ("0", "-1"))
        self.assertGreater(int(round_["refusals"]), 3)
        self.assertGreater(int(through["token_b"]), int(through["token_a"]))
        self.assertEqual((through["verdict_a"], through["balance"]), ("stale", "130"))
        self.assertEqual(len(self.refusals(report)), 1)

    def test_foreign_unlock(self):
        round_, through, report = self.report("foreign-unlock")
        self.assertEqual((round_["del"], round_["c_set"]), ("1", "OK"))
        self.assertNotEqual(round_["balance"], round_["expected"])
        self.assertEqual((through["verdict_a"], through["late_release"], through["c_waits"]),
                         ("stale", "not_held", "1"))
        self.assertEqual(through["balance"], through["expected"])
        self.assertEqual(len(self.refusals(report)), 2)

    def test_failover(self):
        round_, through, report = self.report("failover")
        self.assertEqual(round_["token_a"], round_["token_b"])
        self.assertNotEqual(round_["balance"], round_["expected"])
        self.assertEqual(through["plain_token_a"], through["plain_token_b"])
        self.assertEqual((through["verdict_b"], through["verdict_a"]), ("conflict", "stale"))
        self.assertGreater(int(through["token_b"]), int(through["token_a"]))
        self.assertEqual(through["balance"], through["expected"])
        self.assertEqual(len(self.refusals(report)), 2)

    def test_redlock_restart(self):
        round_, through, report = self.report("redlock-restart")
        for facts in (round_, through):
            self.assertGreaterEqual(int(facts["votes_a"]), 3)
            self.assertGreaterEqual(int(facts["votes_b"]), 3)
        self.assertNotEqual(round_["balance"], round_["expected"])
        self.assertGreater(int(through["token_b"]), int(through["token_a"]))
        self.assertEqual((through["verdict_a"], through["first_balance"]), ("stale", "130"))
        self.assertEqual((through["quorum_b_waited"], through["quorum_verdict_a"]), ("1", "stale"))
        self.assertGreater(int(through["quorum_token_b"]), int(through["quorum_token_a"]))
        self.assertEqual(through["balance"], through["expected"])
        self.assertEqual(len(self.refusals(report)), 2)

    def test_clock_jump(self):
        round_, through, report = self.report("clock-jump")
        self.assertGreater(int(round_["pttl_ms"]), 30_000)
        self.assertGreaterEqual(int(round_["jump_s"]), 3600)
        self.assertEqual(round_["b_set"], "OK")
        self.assertNotEqual(round_["balance"], round_["expected"])
        self.assertGreater(int(through["token_b"]), int(through["token_a"]))
        self.assertEqual((through["verdict_a"], through["balance"]), ("stale", through["expected"]))
        self.assertEqual(len(self.refusals(report)), 1)


class Telling(Demo):
    def test_the_text_and_the_page(self):
        for story in STORIES:
            with self.subTest(story=story):
                page = pathlib.Path(self.folder) / f"{story}.html"
                done = self.demo(story, "--timeline", str(page))
                self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
                text = done.stdout
                for part in ("1. WITHOUT THE GUARD", "2. WITH THE GUARD", "without the guard:", "with the guard:"):
                    self.assertIn(part, text)
                self.assertTrue(text.isascii())
                self.assertLessEqual(max(map(len, text.splitlines())), COLUMNS_MAX)
                self.assertIn("REFUSED", text)
                html = page.read_text(encoding="utf-8")
                self.assertEqual(set(re.findall(r"https?://[^'\" ]+", html)), {"http://www.w3.org/2000/svg"})
                pictures = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
                self.assertEqual(len(pictures), 2)
                for picture in pictures:
                    xml.etree.ElementTree.fromstring(picture)

    def test_help_and_an_unknown_name_list_all_stories(self):
        helped = self.expect(0, "demo", "--help").stdout
        refused = self.demo("split-brain")
        self.assertEqual((refused.returncode, refused.stdout), (2, ""))
        for text in (helped, refused.stderr):
            for story in ("gc-pause", *STORIES):
                self.assertRegex(text, rf"(?m)^  {story} +\S.*$")

    def test_urls_are_refused_by_stories_with_servers_of_their_own(self):
        for option in ("--storage", "--source"):
            done = self.demo("failover", option, "redis://:secret@127.0.0.1:1/")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertNotIn("secret", done.stderr)

    def test_a_missing_program_is_3_with_its_package(self):
        for story in STORIES:
            done = self.demo(story, "--json", env={"PATH": self.folder})
            self.assertEqual((done.returncode, done.stdout), (3, ""))
            self.assertIn("package redis-server", done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
        os.symlink(shutil.which("redis-server"), self.path("redis-server"))
        done = self.demo("expire-crash", env={"PATH": self.folder})
        self.assertEqual(done.returncode, 3)
        self.assertIn("package redis-tools", done.stderr)

    def interrupted(self, story, number):
        """The status of a story that got the signal while a server of it ran. One that was faster is told again."""
        for _ in range(50):
            process = subprocess.Popen([support.BINARY, "demo", story], cwd=self.folder,
                                       env=support.environment(self.variables), stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(support.end_process, process)
            wait_until(lambda: process.poll() is not None or len(self.processes()) > 1, what="a server of the story")
            process.send_signal(number)
            process.communicate(timeout=LIMIT_S)
            if process.returncode != 0:
                return process.returncode
        raise AssertionError(f"{story} was always over before it could be interrupted")

    def test_a_signal_in_the_middle_leaves_nothing(self):
        for story in STORIES:
            for number in (signal.SIGTERM, signal.SIGINT):
                with self.subTest(story=story, number=number):
                    self.assertEqual(self.interrupted(story, number), 128 + number)
                    wait_until(self.nothing_is_left, what="an end without processes and folders")

    def test_its_servers_die_with_it(self):
        self.assertEqual(self.interrupted("expire-crash", signal.SIGKILL), -signal.SIGKILL)
        wait_until(lambda: not self.processes(), what="an end of all servers")


if __name__ == "__main__":
    unittest.main()
