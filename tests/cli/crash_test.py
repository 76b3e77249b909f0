"""A server that is killed with -9, again and again, under concurrent writers with several tokens.

Shows: no acknowledged write or advance is lost, no fence goes back, and a lower token is refused after the
restart. How: writers take turns on each resource with rising tokens and write down what was acknowledged;
after each kill the next server is asked for what it has.
"""

import collections
import os
import random
import threading
import time
import unittest

import parts
import support

ROUNDS = int(os.environ.get("FENCEGUARD_CRASH_ROUNDS", parts.rounds(300)))
WRITERS = 6
RESOURCES = 4


class History:
    """What was acknowledged per resource: the highest token, and the last number written under it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.last_token = collections.Counter()
        self.acknowledged = {}
        self.writes = 0

    def next_token(self, resource):
        with self.lock:
            self.last_token[resource] += 1
            return self.last_token[resource]

    def acknowledge(self, resource, token, number):
        with self.lock:
            self.writes += 1
            self.acknowledged[resource] = max(self.acknowledged.get(resource, (0, 0)), (token, number))


def write_until_refused(link, history, resource):
    """A holder's tenure: writes under one token until a newer one is seen, or it has written enough."""
    token = history.next_token(resource)
    for number in range(1, random.randint(2, 12)):
        headers = {"Fencing-Token": str(token), "Fencing-Holder": f"h{token}"}
        link.request("PUT", f"/{resource}", body=f"{token} {number}", headers=headers)
        answer = link.getresponse()
        answer.read()
        if answer.status == 412:
            return
        if answer.status not in (201, 204):
            raise AssertionError(f"unexpected answer {answer.status}")
        history.acknowledge(resource, token, number)


def write_until_killed(address, history, seed, mistakes):
    chooser = random.Random(seed)
    link = support.connection(address)
    try:
        while True:
            write_until_refused(link, history, f"accounts/{chooser.randrange(RESOURCES)}")
    except (OSError, support.http.client.HTTPException):
        pass  # killed
    except AssertionError as mistake:
        mistakes.append(mistake)
    finally:
        link.close()


class CrashTest(support.BinaryTest):
    def check(self, server, history):
        for resource, (token, number) in sorted(history.acknowledged.items()):
            fence = server.call("GET", f"/v1/fences/{resource}")
            self.assertEqual(fence.status, 200, resource)
            seen = int(fence.json["token"])
            self.assertGreaterEqual(seen, token, f"the fence of {resource} went back")
            kept = server.request("GET", f"/{resource}")
            self.assertEqual(kept.status, 200, resource)
            kept_token, kept_number = map(int, kept.body.split())
            self.assertGreaterEqual((kept_token, kept_number), (token, number),
                                    f"an acknowledged write of {resource} is lost")
            self.assertLessEqual(kept_token, seen)
            if seen > 1:
                stale = server.request("PUT", f"/{resource}", {"Fencing-Token": str(seen - 1),
                                                               "Fencing-Holder": f"h{seen - 1}"}, b"stale")
                self.assertEqual(stale.status, 412, resource)

    def test_nothing_acknowledged_is_lost_and_no_fence_goes_back(self):
        seed = random.randrange(2**32)
        print(f"seed {seed}", flush=True)
        random.seed(seed)
        history = History()
        slowest_s = 0.0
        for number in range(ROUNDS):
            started = time.monotonic()
            server = support.Server(self.folder, ["--storage", "sqlite:data.db", "--log-level", "error"])
            self.addCleanup(server.kill)
            self.assertEqual(server.request("GET", "/nothing").status, 404)
            slowest_s = max(slowest_s, time.monotonic() - started)
            self.check(server, history)
            mistakes = []
            writers = [threading.Thread(target=write_until_killed,
                                        args=(server.data, history, seed + number * WRITERS + i, mistakes))
                       for i in range(WRITERS)]
            for writer in writers:
                writer.start()
            time.sleep(random.uniform(0.005, 0.08))  # the moment of the crash is what is random here
            server.process.kill()
            for writer in writers:
                writer.join()
            server.wait()
            self.assertEqual(mistakes, [])
        print(f"{ROUNDS} kills, {history.writes} acknowledged writes, slowest start to first answer "
              f"{slowest_s * 1000:.0f} ms", flush=True)
        self.assertGreater(history.writes, ROUNDS)


if __name__ == "__main__":
    unittest.main()
