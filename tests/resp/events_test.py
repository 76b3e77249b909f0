"""What an operator sees of the sidecar's rulings: a fence that was raised is an event and is counted, however it came about."""

import json
import unittest

import support
from resp_case import LIMIT_S, RespTest, setUpModule  # noqa: F401


def events(guard, count):
    """(kind, resource, token) of the first that there are."""
    link = support.connection(guard.control, LIMIT_S)
    try:
        link.request("GET", "/v1/events")
        answer, found = link.getresponse(), []
        while len(found) < count:
            name, _, value = answer.readline().decode().strip().partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                data = json.loads(value)
                found.append((kind, data["resource"], data["token"]))
        return found
    finally:
        link.close()


class TakeOvers(RespTest):
    def test_each_way_to_raise_a_fence_is_told_once(self):
        """Under FENCED by the script of one write, by that of a sequence, by one that only reads, and in a transaction; and a
        write under a claim whose fence was lost. What is written under the token that stands is none."""
        guard = self.sidecar()
        client = self.client(guard)
        self.assertEqual(client.call("FENCE", "a", 1, "h"), "OK")
        expected = [("a", "1")]
        for token, words in ((2, ("SET", "a", 1)), (3, ("SEQ", 1, "SET", "a", 1)), (4, ("GET", "a")),
                             (5, ("BITFIELD", "a", "SET", "u8", 0, 65))):
            for _ in range(2):
                self.assertNotIsInstance(client.call("FENCED", "a", token, "h", *words), Exception)
                if "SEQ" in words:
                    words = ("SEQ", 2, *words[2:])
            expected.append(("a", str(token)))
        self.assertEqual(client.calls(("FENCE", "a", 6, "h"), ("SET", "a", 1), ("FENCE", "a", 6, "h")), ["OK"] * 3)
        expected.append(("a", "6"))
        self.server.cli("FLUSHALL")
        self.initialise(self.server)
        self.assertEqual(client.call("SET", "a", 2), "OK")
        expected.append(("a", "6"))
        # What comes last shows that there was nothing in between.
        self.assertEqual(client.call("FENCE", "last", 9, "h"), "OK")
        expected.append(("last", "9"))
        self.assertEqual(events(guard, len(expected)), [("takeover", *one) for one in expected])
        page = guard.call("GET", "/metrics").body.decode()
        advances = next(line for line in page.splitlines() if line.startswith("fenceguard_advances_total"))
        self.assertEqual(int(float(advances.split()[-1])), len(expected))


if __name__ == "__main__":
    unittest.main()
