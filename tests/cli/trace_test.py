"""A refused request that carries a traceparent (W3C Trace Context) is found in the log by its trace id; one that is
malformed is passed on like any other field, and told nowhere."""

import unittest

import http_load

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
FORGED = "00-evil trace_id=1"


class Trace(http_load.GuardedTest):
    def claim(self, token, parent=PARENT):
        return {"Fencing-Token": str(token), "Fencing-Holder": f"h{token}", "traceparent": parent}

    def refused_lines(self, server):
        return [line for line in server.log().splitlines() if "event=\"refused\"" in line or "not judged" in line]

    def expect_told(self, server, resource, operation, verdict):
        lines = [line for line in self.refused_lines(server) if f'resource="{resource}"' in line]
        self.assertEqual(len(lines), 1, server.log())
        self.assertRegex(lines[0], rf"operation={operation} verdict={verdict} .* suppressed=0 trace_id={TRACE}$")

    def check(self, server):
        """Each of its own resource, or the next line within a second is left out."""
        for resource in ("r/0", "r/1", "r/2", "r/3"):
            answer = server.request("PUT", f"/{resource}", self.claim(5), "x")
            self.assertEqual(answer.headers["fencing-verdict"], "admitted")
        self.assertNotIn("trace", server.log())
        self.assertEqual(server.request("PUT", "/r/0", self.claim(4), "x").status, 412)
        self.assertEqual(server.request("GET", "/r/1", self.claim(4)).status, 412)
        self.assertEqual(server.call("POST", "/v1/fences/r/2/advance", self.claim(4)).status, 412)
        self.assertEqual(server.request("PUT", "/r/3", self.claim(4, FORGED), "x").status, 412)
        self.expect_told(server, "r/0", "write", "stale")
        self.expect_told(server, "r/1", "read", "stale")
        self.expect_told(server, "r/2", "advance", "stale")
        forged = [line for line in self.refused_lines(server) if 'resource="r/3"' in line]
        self.assertRegex(forged[0], r"suppressed=0$")
        self.assertNotIn("evil", server.log())

    def test_in_front_of_an_http_storage(self):
        guarded = self.guarded(upstream_timeout_ms=60_000)
        server = self.serve(guarded, log_level="info")
        self.check(server)
        heads = [bytes.fromhex(line["head"]).decode() for line in guarded.upstream.events("seen")]
        self.assertEqual([f"traceparent: {PARENT}\r\n" in head for head in heads], [True] * 4, heads)
        self.assertEqual(server.request("PUT", "/r/4", {**self.claim(5), "Upstream-Do": "drop"}, "x").status, 502)
        self.expect_told(server, "r/4", "write", "unknown")

    def test_with_objects_of_its_own(self):
        self.check(super(http_load.GuardedTest, self).serve("--storage", "sqlite:guard.db", "--log-level", "info"))


if __name__ == "__main__":
    unittest.main()
