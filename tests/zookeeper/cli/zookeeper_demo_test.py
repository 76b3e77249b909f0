"""The stories of ZooKeeper in 'fenceguard demo', with real servers: what they observe, and that they leave nothing."""

import signal

import parts
from demo_case import DemoTest
from support import wait_until

STORIES = ("session-expiry", "herd")


class Stories(DemoTest):
    def test_session_expiry(self):
        round_, through, report = self.report("session-expiry")
        self.assertEqual((round_["b_waited"], round_["session_a"], round_["verdict_a"]), ("1", "expired", "admitted"))
        self.assertLess(round_["node_a"], round_["node_b"])
        self.assertEqual((round_["balance"], round_["expected"]), ("150", "180"))
        self.assertEqual((through["b_waited"], through["session_a"], through["verdict_a"]), ("1", "lost", "stale"))
        self.assertGreater(int(through["token_b"]), int(through["token_a"]))
        self.assertEqual(through["balance"], through["expected"])
        self.assertEqual(len(self.refusals(report)), 1)

    def test_herd(self):
        round_, through, _ = self.report("herd")
        for facts, woken in ((round_, 199), (through, 1)):
            self.assertEqual((facts["clients"], facts["hand_overs"]), ("200", "10"))
            self.assertEqual((facts["woken_least"], facts["woken_most"]), (str(woken), str(woken)))
            self.assertEqual((facts["woken"], facts["woken_by_server"]), (str(10 * woken), str(10 * woken)))


class Telling(DemoTest):
    def test_the_text_and_the_page(self):
        for story in STORIES:
            with self.subTest(story=story):
                self.require_text_and_page(story)

    def test_help_lists_all_stories(self):
        self.require_listed("gc-pause", *STORIES)

    def test_urls_are_refused(self):
        for option in ("--storage", "--source"):
            done = self.demo("session-expiry", option, "zookeeper://user:secret@127.0.0.1:1/")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertNotIn("secret", done.stderr)

    def test_a_missing_program_is_3_with_its_package(self):
        for story in STORIES:
            self.require_missing(story, "default-jre-headless", self.folder)

    def test_a_signal_in_the_middle_leaves_nothing(self):
        self.require_clean_interruption("session-expiry", self.has_server)
        self.require_clean_interruption("session-expiry", self.has_paused_process)
        self.require_clean_interruption("herd", self.has_many_threads)

    def test_its_processes_die_with_it(self):
        """The paused client too: SIGKILL reaches a process that is stopped."""
        self.assertEqual(self.interrupted("session-expiry", signal.SIGKILL, self.has_paused_process),
                         -signal.SIGKILL)
        wait_until(lambda: not self.processes(), what="an end of all processes")


if __name__ == "__main__":
    parts.main()
