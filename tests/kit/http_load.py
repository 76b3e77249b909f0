"""Writers against a guard in front of the tests' own upstream, and what must be true of what they were told.

Each writer is a holder: it takes a token now and then, and goes on under an old one the rest of the time, as a client
does that was stopped. Each write has a body of its own, so that the upstream's log tells what became of it.
"""

import collections
import http.client
import itertools
import os
import random
import threading
import time

import support
import upstream_server
from waiting import wait_until

RESOURCES = 3
# What the upstream does (but for a second answer, which can be taken for the next request's): more than the guard
# waits for (SLOW), and less than it stays closed for.
UPSTREAM_TIMEOUT_MS = 150
SLOW_MS = 300
SETTLE_MS = 1_000
# Where no answer is to be late, and what is closed is to be found closed, however busy the machine is.
PATIENT_MS = 20_000
WIDE_SETTLE_MS = 5_000
# Where a command is run, too, before it is open again.
LONG_SETTLE_MS = 20_000
DEEDS = ["", "", "", "hold=20ms", "hold-answer=20ms", f"hold={SLOW_MS}ms", f"hold-answer={SLOW_MS}ms", "apply-reset",
         "drop", "reset", "half", "status=409 unapplied", "status=503", "die-mid-body"]


class Guarded:
    """An upstream and the options of a guard in front of it, and every answer that a writer was given."""

    def __init__(self, folder, upstream_timeout_ms=UPSTREAM_TIMEOUT_MS, settle_ms=SETTLE_MS, backlog=1024):
        self.folder = folder
        self.upstream_timeout_ms = upstream_timeout_ms
        self.settle_ms = settle_ms
        self.upstream = upstream_server.Server(backlog=backlog)
        self.tokens = itertools.count(2)
        self.numbers = itertools.count(1)
        self.told = {}  # body: status, or None where there was no answer
        self.lock = threading.Lock()
        self.mistakes = []

    def serve(self, *more, log_level="off", begins=True):
        """begins: with a new state, where there is none."""
        new = support.new_lane(self.folder) if begins else []
        return support.Server(self.folder, [
            "--storage", self.upstream.url(), "--state", "sqlite:state.db", *new,
            "--forward-claim", "--settle", f"{self.settle_ms}ms", "--upstream-timeout",
            f"{self.upstream_timeout_ms}ms", "--log-level", log_level, *more])

    def next_token(self):
        with self.lock:
            return next(self.tokens)

    def write(self, link, resource, token, deed=""):
        """One write over the connection; its status. Raises what the connection raises."""
        with self.lock:
            body = f"{token} {next(self.numbers)}"
            self.told[body] = None
        link.request("PUT", f"/r/{resource}", body=body, headers={
            "Fencing-Token": str(token), "Fencing-Holder": f"h{token}", "Upstream-Do": deed})
        answer = link.getresponse()
        answer.read()
        with self.lock:
            self.told[body] = answer.status
        verdict = answer.headers["Fencing-Verdict"]
        expected = {412: "stale", 502: "unknown", 503: "unavailable", 504: "unknown"}.get(answer.status, "admitted")
        if verdict != expected:
            self.mistakes.append(f"{answer.status} came with the verdict {verdict}")
        return answer.status

    def write_until(self, is_over, address, seed):
        """Writes as a holder that is stopped now and then, until it is over or the guard is gone."""
        chooser = random.Random(seed)
        token = self.next_token()
        link = support.connection(address)
        try:
            while not is_over.is_set():
                if chooser.random() < 0.2:
                    token = self.next_token()
                self.write(link, chooser.randrange(RESOURCES), token, chooser.choice(DEEDS))
        except (OSError, http.client.HTTPException):
            pass  # the guard was killed
        finally:
            link.close()

    def writers(self, count, address, is_over, chooser):
        threads = [threading.Thread(target=self.write_until, args=(is_over, address, chooser.random()))
                   for _ in range(count)]
        for thread in threads:
            thread.start()
        return threads

    def check(self, test):
        """What must hold of every history."""
        applied = self.upstream.applied()
        test.assertEqual(upstream_server.fallen(applied), [])
        test.assertEqual(self.mistakes, [])
        times = collections.Counter(line["body"] for line in applied)
        test.assertEqual([body for body, count in times.items() if count > 1], [], "applied more than once")
        statuses = collections.Counter(self.told.values())
        for body, status in self.told.items():
            if status in (200, 201, 204):
                test.assertEqual(times[body], 1, f"{body!r} was answered {status}, and was never applied")
            if status in (409, 412, 503):
                test.assertEqual(times[body], 0, f"{body!r} was answered {status}, and was applied")
        test.assertEqual(self.upstream.anomalies(), [])
        return statuses

    def remove(self):
        self.upstream.remove()


class GuardedTest(support.BinaryTest):
    """A test of guards in front of upstreams, each in a folder of its own."""

    def guarded(self, name="one", **options):
        folder = self.path(name)
        os.mkdir(folder)
        guarded = Guarded(folder, **options)
        self.addCleanup(guarded.remove)
        return guarded

    def serve(self, guarded, *more, **options):
        server = guarded.serve(*more, **options)
        self.addCleanup(server.kill)
        return server

    def await_probe(self, probe):
        """Returns when somebody answers at unix:/path. Its file is there a little before."""
        def answers():
            try:
                return support.request(probe, "GET", "/healthz")
            except OSError:
                return None
        wait_until(answers, what="a probe")

    def status_of(self, guarded, server, token, resource=0, deed=""):
        link = support.connection(server.data)
        try:
            return guarded.write(link, resource, token, deed)
        finally:
            link.close()

    def await_open(self, guarded, server):
        """Every resource lets a new holder in. Answers how long that took, in seconds: under writers that close
        them again and again it takes some luck, and so a while."""
        began = time.monotonic()
        for resource in range(RESOURCES):
            wait_until(lambda: self.status_of(guarded, server, guarded.next_token(), resource) in (201, 204),
                       limit_s=180, what="an open lane")
        return time.monotonic() - began
