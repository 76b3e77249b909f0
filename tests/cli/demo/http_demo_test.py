"""The stories of a storage over HTTP, told by the real binary: what is seen, and that nothing is left."""

import json
import re
import subprocess
import unittest

import support
from demo_case import DemoTest

STORY = "delayed-packet"
UPSTREAM_TIMEOUT_MS = 500
SETTLE_MS = 2000


class DelayedPacket(DemoTest):
    TELLINGS_MAX = 3

    def demo(self, story, *options, **more):
        """Told again where a clock of the story's own ran out on B or on a read, as it may on a busy machine."""
        for _ in range(self.TELLINGS_MAX):
            done = super().demo(story, *options, **more)
            if not self.was_too_slow(done):
                break
        return done

    @staticmethod
    def was_too_slow(done):
        if done.returncode == 3:
            return "could not read the balance" in done.stderr
        # A's write alone is meant to end like this, once without the guard and once with it.
        ends = [done.stdout.count(end) for end in ("no answer: gives up", ": outcome unknown")]
        return done.returncode == 1 and max(ends) > 1

    def test_packet_lands_after_b_only_without_the_guard(self):
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
        events = report["through"]["events"]
        told = [event for event in events if "504" in event.get("answer", "")]
        reads = [event for event in events if (event["who"], event["what"]) == ("client A", "reads the balance")]
        grants = [event for event in events
                  if event["who"] == "client B" and event.get("answer", "").startswith("token")]
        self.assertEqual((len(told), len(reads), len(grants)), (1, 1, 1))
        # A writes after its read, the guard waits for the storage's answer, and then the lane is closed.
        self.assertGreater(grants[0]["at_us"] - reads[0]["at_us"], (UPSTREAM_TIMEOUT_MS + SETTLE_MS) * 1000)

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
        storage = subprocess.Popen([f"{support.BINARY}-demo", "demo-actor", STORY, "storage"], text=True,
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


class CutOff(DemoTest):
    def test_same_pause_is_refused_and_then_cut_off_in_time(self):
        alone, first, report = self.report("cut-off")
        self.assertEqual((alone["late_status_a"], alone["late_verdict_a"], alone["a_lives"]), ("412", "stale", "1"))
        self.assertEqual((first["a_lives"], first["balance"], alone["balance"]), ("0", "130", "130"))
        events = [event["what"] for event in report["through"]["events"] if event["who"] in ("client A", "client B")]
        shut_out = next(i for i, what in enumerate(events) if what.startswith("SHUT OUT"))
        self.assertTrue(all("reads" not in what for what in events[2:shut_out]), "B reads behind it")
        self.assertEqual(self.refusals(report), [])


if __name__ == "__main__":
    unittest.main()
