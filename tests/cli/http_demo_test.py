"""The stories of a storage over HTTP, told by the real binary: what is seen, and that nothing is left."""

import json
import re
import subprocess
import unittest

import support
from demo_case import DemoTest

STORY = "delayed-packet"
SETTLE_MS = 2000


class DelayedPacket(DemoTest):
    def test_the_packet_lands_after_b_without_the_guard_and_before_b_with_it(self):
        round_, through, report = self.report(STORY)
        self.assertEqual((round_["status_a"], round_["read_by_b"], round_["status_b"]), ("0", "100", "204"))
        self.assertEqual((round_["balance"], round_["expected"]), ("150", "180"))
        self.assertEqual((through["status_a"], through["verdict_a"], through["first_status_b"]),
                         ("504", "unknown", "503"))
        self.assertEqual((through["read_by_b"], through["verdict_b"]), ("150", "admitted"))
        self.assertEqual((through["late_status_a"], through["late_verdict_a"]), ("412", "stale"))
        self.assertEqual((through["balance"], through["expected"]), ("180", "180"))
        for facts in (round_, through):
            self.assertGreater(int(facts["token_b"]), int(facts["token_a"]))
        self.assertEqual(len(self.refusals(report)), 1)

    def test_b_is_not_let_in_before_the_settle_time_is_over(self):
        _, through, report = self.report(STORY)
        self.assertGreaterEqual(int(through["refusals_b"]), 1)
        told = [event for event in report["through"]["events"] if "504" in event.get("answer", "")]
        grants = [event for event in report["through"]["events"]
                  if event["who"] == "client B" and event.get("answer", "").startswith("token")]
        self.assertEqual((len(told), len(grants)), (1, 1))
        # The lane was closed a little before A's client had been told.
        self.assertGreater(grants[0]["at_us"] - told[0]["at_us"], (SETTLE_MS - 200) * 1000)

    def test_the_text_and_the_page(self):
        text = self.require_text_and_page(STORY)
        for part in ("HELD in the network", "B's update is LOST", "504: outcome unknown", "REFUSED as stale"):
            self.assertIn(part, text)

    def test_it_is_listed(self):
        self.require_listed(STORY)

    def test_a_signal_in_the_middle_leaves_nothing(self):
        self.require_clean_interruption(STORY, self.has_two_servers)


class GcPause(DemoTest):
    def told(self, storage):
        done = self.demo("gc-pause", "--json", "--storage", storage)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        report = json.loads(done.stdout)
        self.assertEqual((report["round"]["final"], report["round"]["lost_update"]), (150, "B"))
        self.assertEqual((report["through"]["final"], report["through"]["lost_update"]), (180, "none"))
        refused = [event["status"] for event in report["through"]["events"] if event["event"] == "refused"]
        self.assertEqual(refused, [412])

    def test_the_word_http_is_a_storage_of_its_own(self):
        self.told("http")
        done = self.demo("--storage", "http")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for part in ("150, should be 180: B's +30 is LOST", "180: both updates survive", "REFUSED as stale:"):
            self.assertIn(part, done.stdout)

    def test_a_given_http_storage_is_used_and_left_clean(self):
        storage = subprocess.Popen([support.BINARY, "demo-actor", STORY, "storage"], text=True,
                                   env=support.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(support.end_process, storage)
        address = storage.stdout.readline().strip()
        self.told(f"http://{address}")
        done = self.demo("--storage", f"http://{address}")
        account = re.search(r"fenceguard-demo/\w+", done.stdout).group()
        self.assertEqual(support.request(address, "GET", f"/{account}").status, 404)

    def test_a_storage_that_is_none_is_refused_with_what_is_wrong(self):
        done = self.demo("--storage", "htp")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("--storage", done.stderr)


if __name__ == "__main__":
    unittest.main()
