"""The story of etcd in 'fenceguard demo', with real members: what it observes, and that it leaves nothing."""

import os
import shutil
import signal
import unittest

from demo_case import DemoTest
from support import wait_until

STORY = "etcd-restore"


class EtcdRestore(DemoTest):
    def test_the_new_holder_is_refused_until_the_source_is_raised(self):
        round_, through, report = self.report(STORY)
        for facts in (round_, through):
            self.assertLess(int(facts["revision_after"]), int(facts["revision_before"]))
        self.assertLess(int(round_["number_b"]), int(round_["number_a"]))
        self.assertEqual((round_["b_shut_out"], round_["balance"], round_["expected"]), ("1", "150", "180"))
        self.assertLess(int(through["first_token_b"]), int(through["token_a"]))
        self.assertGreater(int(through["token_b"]), int(through["token_a"]))
        self.assertEqual((through["first_verdict_b"], through["verdict_a"]), ("stale", "stale"))
        self.assertEqual(through["balance"], through["expected"])
        self.assertEqual(len(self.refusals(report)), 2)

    def test_the_text_and_the_page(self):
        self.require_text_and_page(STORY)

    def test_help_lists_it(self):
        self.require_listed("gc-pause", STORY)

    def test_urls_are_refused(self):
        for option in ("--storage", "--source"):
            done = self.demo(STORY, option, "etcd://user:secret@127.0.0.1:1/")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertNotIn("secret", done.stderr)

    def test_a_missing_program_is_3_with_its_package(self):
        self.require_missing(STORY, "etcd-server", self.folder)
        os.symlink(shutil.which("etcd"), self.path("etcd"))
        self.require_missing(STORY, "etcd-client", self.folder)

    def test_a_signal_in_the_middle_leaves_nothing(self):
        self.require_clean_interruption(STORY, self.has_server)
        self.require_clean_interruption(STORY, self.has_two_servers)

    def test_its_members_die_with_it(self):
        self.assertEqual(self.interrupted(STORY, signal.SIGKILL, self.has_two_servers), -signal.SIGKILL)
        wait_until(lambda: not self.processes(), what="an end of all members")


if __name__ == "__main__":
    unittest.main()
