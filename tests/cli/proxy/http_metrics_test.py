"""What /metrics shows of a guard in front of an HTTP storage: each figure rises and falls with real requests.

How: the storage sleeps (SIGSTOP) where a write is to be under way, so that nothing depends on how fast the machine is.
"""

import base64
import os
import re
import threading
import unittest

import http_load
import support
from waiting import wait_until

NEVER_MS = 60_000
SETTLE_MS = 4_000  # longer than a busy machine needs to look at what is closed
DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../docs/http.md")
# Of every storage; those of the lane are taken from the docs.
NAMES = ["fenceguard_verdicts_total", "fenceguard_advances_total", "fenceguard_in_flight",
         "fenceguard_write_duration_seconds", "fenceguard_resources", "fenceguard_floor", "fenceguard_leases_total",
         "fenceguard_source_regressions_total", "fenceguard_token_conflicts_total", "fenceguard_unknown_total",
         "fenceguard_build_info"]
LANE = ["fenceguard_lane_waiting", "fenceguard_in_flight", "fenceguard_lane_quarantined"]


def text_of(server):
    return server.call("GET", "/metrics").body.decode()


def figures(server):
    """{'fenceguard_in_flight': 1, 'fenceguard_verdicts_total stale': 2, …}; other labels stay as they are."""
    found = {}
    for line in text_of(server).splitlines():
        if line.startswith("#"):
            continue
        name, value = line.rsplit(" ", 1)
        verdict = re.fullmatch(r'(fenceguard_verdicts_total)\{storage="http",verdict="(\w+)"\}', name)
        found[" ".join(verdict.groups()) if verdict else name] = float(value)
    return found


class HttpMetrics(http_load.GuardedTest):
    def lane(self, server):
        found = figures(server)
        return tuple(found[name] for name in LANE)

    def await_lane(self, server, waiting, in_flight, closed=0):
        expected = (waiting, in_flight, closed)
        wait_until(lambda: self.lane(server) == expected, what=f"{LANE} as {expected}")

    def ask(self, guarded, server, token, method="PUT"):
        """A request by a thread of its own, which ends with the test; its status comes as the answer's only member."""
        told = []
        claim = {"Fencing-Token": str(token), "Fencing-Holder": f"h{token}"}
        thread = threading.Thread(target=lambda: told.append(
            server.request(method, "/r/0", claim, "x" if method == "PUT" else None).status))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(guarded.upstream.resume)
        return told

    def test_documented_metrics_exist_and_no_resource_is_a_label(self):
        guarded = self.guarded(upstream_timeout_ms=NEVER_MS)
        server = self.serve(guarded)
        self.assertEqual(self.status_of(guarded, server, 2), 201)
        with open(DOCS, encoding="utf-8") as file:
            section = file.read().split("## Watching it")[1].split("\n## ")[0]
        names = re.findall(r"`(fenceguard_\w+)`", section)
        self.assertGreater(len(names), 5)
        text = text_of(server)
        for name in names + NAMES:
            self.assertRegex(text, rf"(?m)^# HELP {name} \S.*\n# TYPE {name} (counter|gauge|histogram)$")
        self.assertNotIn("r/0", text)
        self.assertIn("\nfenceguard_resources 1\n", text)

    def test_running_write_is_in_flight_and_the_next_one_waiting(self):
        guarded = self.guarded(upstream_timeout_ms=NEVER_MS)
        server = self.serve(guarded)
        self.assertEqual(self.status_of(guarded, server, 2), 201)
        self.await_lane(server, 0, 0)
        guarded.upstream.pause()
        under_way = self.ask(guarded, server, 2)
        self.await_lane(server, 0, 1)
        writer = self.ask(guarded, server, 3)
        self.await_lane(server, 1, 2)
        reader = self.ask(guarded, server, 3, "GET")
        self.await_lane(server, 2, 3)
        gone = support.connection(server.data)
        gone.request("PUT", "/r/0", "x", {"Fencing-Token": "3", "Fencing-Holder": "h3"})
        self.await_lane(server, 3, 4)
        self.assertEqual(figures(server)["fenceguard_lane_writes"], 1)
        gone.close()
        self.await_lane(server, 2, 3)
        before = figures(server)
        guarded.upstream.resume()
        self.await_lane(server, 0, 0)
        for told, status in ((under_way, 204), (writer, 204), (reader, 200)):
            self.assertEqual(wait_until(lambda told=told: told, what="an answer"), [status])
        after = figures(server)
        self.assertEqual(after["fenceguard_settle_closures_total"], 0)
        for name, rise in (("fenceguard_verdicts_total admitted", 3), ("fenceguard_upstream_duration_seconds_count", 3),
                           ("fenceguard_write_duration_seconds_count", 2), ("fenceguard_unknown_total", 0)):
            self.assertEqual(after[name] - before[name], rise, name)

    def test_the_upstreams_latency_is_that_of_the_upstream(self):
        guarded = self.guarded(upstream_timeout_ms=NEVER_MS)
        server = self.serve(guarded)
        for deed in ("", "hold=300ms", "hold-answer=300ms"):
            self.assertIn(self.status_of(guarded, server, 2, deed=deed), (201, 204))
        found = figures(server)
        name = "fenceguard_upstream_duration_seconds"
        self.assertEqual(found[f"{name}_count"], 3)
        self.assertGreaterEqual(found[f"{name}_sum"], 0.6)
        self.assertLessEqual(found[f'{name}_bucket{{le="0.25"}}'], 1)
        self.assertEqual(found[f'{name}_bucket{{le="+Inf"}}'], 3)

    def test_unknown_outcome_closes_its_resource_for_the_settle_time(self):
        guarded = self.guarded(upstream_timeout_ms=5_000, settle_ms=SETTLE_MS)
        server = self.serve(guarded)
        for resource in (0, 1):
            self.assertEqual(self.status_of(guarded, server, 2, resource), 201)
        before = figures(server)
        self.assertEqual(self.status_of(guarded, server, 2, 0, deed="hold=8s"), 504)
        self.await_lane(server, 0, 0, closed=1)
        self.assertEqual(self.status_of(guarded, server, 2, 1, deed="apply-reset"), 502)
        self.await_lane(server, 0, 0, closed=2)
        self.assertEqual(self.status_of(guarded, server, 2, 1), 503)
        self.assertEqual(self.status_of(guarded, server, 3, 1), 503)
        self.await_lane(server, 0, 0, closed=0)
        self.assertEqual(self.status_of(guarded, server, 3, 1), 204)
        after = figures(server)
        for name, rise in (("fenceguard_settle_closures_total", 2), ("fenceguard_unknown_total", 2),
                           ("fenceguard_verdicts_total unknown", 2), ("fenceguard_verdicts_total unavailable", 2),
                           ("fenceguard_verdicts_total admitted", 1),
                           ("fenceguard_upstream_duration_seconds_count", 3)):
            self.assertEqual(after[name] - before[name], rise, name)

    def test_every_verdict_is_counted_as_it_is_answered(self):
        guarded = self.guarded(upstream_timeout_ms=NEVER_MS, settle_ms=SETTLE_MS)
        keys = self.write_private("keys", f"k1 {base64.urlsafe_b64encode(b'k' * 33).decode()}\n")
        server = self.serve(guarded, "--max-jump", "1000", log_level="info")
        for verdict, claim in (
                ("admitted", {"Token": 5, "Holder": "a", "Sequence": 1}),
                ("duplicate", {"Token": 5, "Holder": "a", "Sequence": 1}),
                ("stale", {"Token": 4, "Holder": "a"}),
                ("conflict", {"Token": 5, "Holder": "b"}),
                ("missing", {}),
                ("implausible", {"Token": 5000, "Holder": "a"}),
                ("unknown", {"Token": 5, "Holder": "a"}),
                ("unavailable", {"Token": 5, "Holder": "a"})):
            self.expect_counted(guarded, server, verdict, claim)
        self.assertEqual(figures(server)["fenceguard_token_conflicts_total"], 1)
        self.assertRegex(server.log(), r" verdict=(stale|conflict|implausible|unknown) .* client=127\.0\.0\.1 ")
        self.assertEqual(server.stop(), 0)
        server = self.serve(guarded, "--claim-key", keys, "--require-signature")
        self.expect_counted(guarded, server, "unsigned", {"Token": 6, "Holder": "a"})

    def expect_counted(self, guarded, server, verdict, claim):
        before = figures(server)
        headers = {f"Fencing-{name}": str(value) for name, value in claim.items()}
        headers["Upstream-Do"] = "drop" if verdict == "unknown" else ""
        answer = server.request("PUT", "/r/0", headers, "x")
        self.assertEqual(answer.headers["fencing-verdict"], verdict, answer)
        after = figures(server)
        risen = [name for name in after if "verdicts_total " in name and after[name] != before[name]]
        self.assertEqual(risen, [f"fenceguard_verdicts_total {verdict}"])
        self.assertEqual(after[risen[0]] - before[risen[0]], 1)


if __name__ == "__main__":
    unittest.main()
