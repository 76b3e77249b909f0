"""The stories of Redis in 'fenceguard demo', with real servers: what they observe, and that they leave nothing."""

import os
import pathlib
import shutil
import signal
import subprocess
import unittest

import support
from demo_case import LIMIT_S, DemoTest, status_of
from support import wait_until

STORIES = ("expire-crash", "foreign-unlock", "failover", "redlock-restart", "clock-jump")
# Version 8 does not run with libfaketime.
VERSION = subprocess.run(["redis-server", "--version"], check=True, capture_output=True, text=True).stdout
TOLD = STORIES if " v=7." in VERSION else STORIES[:-1]


class Stories(DemoTest):
    def test_expire_crash(self):
        round_, through, report = self.report("expire-crash")
        self.assertEqual((round_["taken_by_b"], round_["pttl_ms"]), ("0", "-1"))
        self.assertGreater(int(round_["refusals"]), 0)
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
        if "clock-jump" not in TOLD:
            done = self.demo("clock-jump", "--json")
            self.assertEqual((done.returncode, done.stdout), (3, ""))
            self.assertIn("redis-server does not run with libfaketime here", done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
            return
        round_, through, report = self.report("clock-jump")
        self.assertGreater(int(round_["pttl_ms"]), 30_000)
        self.assertGreaterEqual(int(round_["jump_s"]), 3600)
        self.assertEqual(round_["b_set"], "OK")
        self.assertNotEqual(round_["balance"], round_["expected"])
        self.assertGreater(int(through["token_b"]), int(through["token_a"]))
        self.assertEqual((through["verdict_a"], through["balance"]), ("stale", through["expected"]))
        self.assertEqual(len(self.refusals(report)), 1)


class ViaTheSidecar(DemoTest):
    """gc-pause with redis-cli as both clients, and a Redis of its own."""

    def test_the_late_write_of_redis_cli_is_refused(self):
        page = pathlib.Path(self.folder) / "story.html"
        done = self.demo("gc-pause", "--via", "sidecar", "--timeline", str(page))
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        for part in ("1. ROUND THE GUARD", "2. THROUGH THE GUARD", "REFUSED as stale", "Both are redis-cli",
                     "round the guard:   150, should be 180: B's +30 is LOST",
                     "through the guard: 180: both updates survive"):
            self.assertIn(part, done.stdout)
        self.require_page(page)

    def test_it_is_redis_cli_that_is_stopped(self):
        def has_stopped_cli():
            return any(status_of(pid, "Name") == "redis-cli" and status_of(pid, "State").startswith("T")
                       for pid in self.processes())
        status = support.interrupted(lambda: self.start("demo", "gc-pause", "--via", "sidecar", env=self.variables),
                                     signal.SIGTERM, has_stopped_cli, LIMIT_S)
        self.assertEqual(status, 128 + signal.SIGTERM)
        self.require_nothing_is_left()

    def test_it_is_for_gc_pause_on_redis_alone(self):
        for arguments in (["gc-pause", "--storage", "sqlite:x.db", "--via", "sidecar"],
                          ["gc-pause", "--storage", "http", "--via", "sidecar"],
                          ["failover", "--via", "sidecar"], ["gc-pause", "--via", "elsewhere"]):
            done = self.demo(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertIn("--via", done.stderr)

    def test_a_missing_program_is_3_with_its_package(self):
        os.symlink(shutil.which("redis-server"), self.path("redis-server"))
        done = self.demo("gc-pause", "--via", "sidecar", "--json", env={"PATH": self.folder})
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("package redis-tools", done.stderr)


class Telling(DemoTest):
    def test_the_text_and_the_page(self):
        for story in TOLD:
            with self.subTest(story=story):
                self.assertIn("REFUSED", self.require_text_and_page(story))

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

    def test_a_signal_in_the_middle_leaves_nothing(self):
        for story in TOLD:
            self.require_clean_interruption(story, self.has_server)

    def test_its_servers_die_with_it(self):
        self.assertEqual(self.interrupted("expire-crash", signal.SIGKILL, self.has_server), -signal.SIGKILL)
        wait_until(lambda: not self.processes(), what="an end of all servers")


if __name__ == "__main__":
    unittest.main()
