"""Every query of the dashboard and of the alert rules finds its series in a Prometheus that scrapes a guard, which has
meanwhile answered in every way."""

import json
import math
import re
import unittest

import alerts_test
import http_load
import redis_server
import support
from manifests import DEPLOY
from prometheus_server import Prometheus
from waiting import wait_until

SELECTOR = re.compile(r"\b(?:fenceguard|process)_\w+(?:\{[^}]*\})?|\bup\{[^}]*\}")
LIMIT_S = 120
SETTLE_MS = 60_000  # what is closed is to be found closed, however busy the machine is
INTERVAL = "5m"


class Dashboard(http_load.GuardedTest):
    """One guard and one Prometheus for all tests: what they tell is only read."""

    def setUp(self):
        super().setUp()
        with open(DEPLOY / "grafana" / "dashboard.json", encoding="utf-8") as file:
            self.dashboard = json.load(file)
        self.guarded_storage = self.guarded(upstream_timeout_ms=60_000, settle_ms=SETTLE_MS)
        self.server = self.serve(self.guarded_storage, "--max-jump", "1000000")
        self.prometheus = Prometheus({"fenceguard": self.server.control, "holding": self.start_holder().control})
        self.addCleanup(self.prometheus.remove)
        # What is counted before the first scrape has not risen.
        wait_until(lambda: len(self.prometheus.query("fenceguard_ready == 1")) == 2, LIMIT_S, "a first scrape of both")

    def start_holder(self):
        """A guard of another job, which holds a lease for its clients."""
        redis = redis_server.Server()
        self.addCleanup(redis.remove)
        self.expect(0, "fence", "init", "--storage", redis.url(), "--floor", "0")
        return support.BinaryTest.serve(self, "--storage", redis.url(), "--hold", "r")

    def write(self, verdict, resource, token, holder="a", **fields):
        fields = {f"Fencing-{name}": str(value) for name, value in fields.items()}
        claim = {"Fencing-Token": str(token), "Fencing-Holder": holder} if token else {}
        deed = {"Upstream-Do": "drop" if verdict == "unknown" else ""}
        answer = self.server.request("PUT", resource, {**claim, **fields, **deed}, "x")
        self.assertEqual(answer.headers["fencing-verdict"], verdict, answer)

    def make_traffic(self):
        self.write("admitted", "/r/0", 100, Sequence=1)
        self.write("duplicate", "/r/0", 100, Sequence=1)
        self.write("stale", "/r/0", 99)
        self.write("conflict", "/r/0", 100, holder="b")
        self.write("missing", "/r/0", None)
        self.write("implausible", "/r/0", 1 << 40)
        self.write("unknown", "/r/1", 100)
        self.write("unavailable", "/r/1", 100)
        # The source begins at 1: it is behind, and lifted.
        granted = self.server.lease("r/0", holder="c")
        self.assertEqual(granted.status, 201, granted)
        self.assertEqual(self.server.lease("r/0", holder="c").status, 200)
        self.assertEqual(self.server.lease("r/0", holder="d").status, 409)
        claim = {"Fencing-Token": granted.json["token"], "Fencing-Holder": "c"}
        self.assertEqual(self.server.call("PUT", "/v1/leases/r/0", claim).status, 200)
        self.assertEqual(self.server.call("DELETE", "/v1/leases/r/0", claim).status, 204)
        self.assertEqual(self.server.call("PUT", "/v1/leases/r/0", claim).status, 412)
        self.assertEqual(self.server.call("POST", "/v1/fences/r/0/revoke").status, 200)

    def await_scraped(self):
        """Everything that was counted is in Prometheus, and twice at least."""
        for name, count in (("fenceguard_verdicts_total", 8), ("fenceguard_leases_total", 6)):
            risen = f"increase({name}[{INTERVAL}]) > 0"
            wait_until(lambda risen=risen, count=count: len(self.prometheus.query(risen)) >= count, LIMIT_S,
                       f"{count} times {risen}")

    def filled_in(self, expression):
        job = "holding" if "fenceguard_held" in expression else "fenceguard"
        for variable, value in (("$__rate_interval", INTERVAL), ("$job", job), ("$instance", ".*")):
            expression = expression.replace(variable, value)
        self.assertNotIn("$", expression)
        return expression

    def expect_series(self, expression):
        for selector in SELECTOR.findall(expression):
            self.assertTrue(self.prometheus.query(selector), f"{selector} of {expression}")

    def test_every_query_finds_what_it_asks_for(self):
        self.make_traffic()
        self.await_scraped()
        self.check_panels()
        self.check_variables()
        self.check_rules()

    def check_panels(self):
        panels = [panel for panel in self.dashboard["panels"] if panel["type"] != "row"]
        rows = [panel["title"] for panel in self.dashboard["panels"] if panel["type"] == "row"]
        self.assertEqual(rows, ["Guards", "Verdicts", "Refusals", "Leases", "Lanes", "Latencies", "Process"])
        self.assertEqual(len({panel["id"] for panel in self.dashboard["panels"]}), len(self.dashboard["panels"]))
        for panel in panels:
            self.assertTrue(panel["targets"], panel["title"])
            for target in panel["targets"]:
                expression = self.filled_in(target["expr"])
                self.expect_series(expression)
                found = self.prometheus.query(expression)
                self.assertTrue(found, f"{panel['title']}: {expression}")
                self.assertFalse([value for _, value in found if math.isnan(value)], f"{panel['title']}: {expression}")
                for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                    self.assertTrue(all(label in labels for labels, _ in found), f"{panel['title']}: {label}")

    def check_variables(self):
        queries = [variable["definition"] for variable in self.dashboard["templating"]["list"]
                   if variable["type"] == "query"]
        self.assertEqual(len(queries), 2)
        for query in queries:
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", self.filled_in(query)).groups()
            self.assertTrue(self.prometheus.ask(f"label/{label}/values", **{"match[]": selector}), query)

    def check_rules(self):
        for rule in alerts_test.rules():
            self.prometheus.query(rule["expr"])
            self.expect_series(rule["expr"])

        def firing():
            return {alert["labels"]["alertname"]: alert["annotations"]
                    for alert in self.prometheus.ask("alerts")["alerts"] if alert["state"] == "firing"}
        # Those that wait for nothing, and whose reason was given.
        expected = {"FenceguardUnknownOutcomes", "FenceguardTokenConflict", "FenceguardSourceRegression"}
        wait_until(lambda: expected <= set(firing()), LIMIT_S, f"{expected} firing")
        self.assertEqual(firing()["FenceguardUnknownOutcomes"]["summary"],
                         f"Writes through {self.server.control} ended unknown")
        told = [rule for group in self.prometheus.ask("rules")["groups"] for rule in group["rules"]]
        self.assertEqual({rule["name"]: rule["health"] for rule in told if rule["health"] != "ok"}, {})
        self.assertEqual(len(told), len(alerts_test.rules()))


if __name__ == "__main__":
    unittest.main()
