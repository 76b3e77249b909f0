"""A guard in front of an HTTP storage, with real processes: killed, stopped, restarted, and its upstream likewise.

Shows, from the upstream's own log: tokens that take effect never fall; what was answered as done was applied, what was
refused was not, and the rest was told as unknown or not at all; and everything is open again after the settle time.
"""

import os
import random
import shutil
import signal
import threading
import time
import unittest

import http_load
import parts
import support
from http_load import LONG_SETTLE_MS, PATIENT_MS, WIDE_SETTLE_MS
from waiting import wait_until

ROUNDS = int(os.environ.get("FENCEGUARD_CRASH_ROUNDS", parts.rounds(300)))
SIDE_BY_SIDE = 5  # a restart waits for the settle time: several histories go on meanwhile
WRITERS = 4


class HttpFault(http_load.GuardedTest):
    def setUp(self):
        super().setUp()
        self.seed = random.randrange(2**32)
        self.chooser = random.Random(self.seed)

    def status_or_none(self, guarded, server, token, deed):
        try:
            return self.status_of(guarded, server, token, deed=deed)
        except OSError:
            return None  # its guard is gone

    def kill_again_and_again(self, name, rounds, chooser, failures):
        try:
            guarded = self.guarded(name)
            for number in range(rounds):
                server = self.serve(guarded)
                writers = guarded.writers(WRITERS, server.data, threading.Event(), chooser)
                if number == 0 or chooser.random() < 0.5:  # else within the settle time after the last kill
                    self.await_open(guarded, server)
                time.sleep(chooser.uniform(0.0, 0.25))
                server.kill()
                for writer in writers:
                    writer.join()
            self.await_open(guarded, self.serve(guarded))
            statuses = guarded.check(self)
            self.assertGreater(statuses[None], 0, "no write was cut short")
            self.assertGreater(statuses[204], 0)
        except BaseException as failure:  # told by the thread that waits
            failures.append(failure)

    def test_after_any_kill_no_token_falls_and_every_answer_was_true(self):
        failures = []
        threads = [threading.Thread(target=self.kill_again_and_again, args=(
            f"history{i}", ROUNDS // SIDE_BY_SIDE, random.Random(self.seed + i), failures))
            for i in range(SIDE_BY_SIDE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [], f"seed {self.seed}")

    def test_stopped_at_any_moment_and_continued_no_token_falls(self):
        guarded = self.guarded()
        server = self.serve(guarded)
        is_over = threading.Event()
        writers = guarded.writers(WRITERS, server.data, is_over, self.chooser)
        self.await_open(guarded, server)
        for _ in range(max(4, ROUNDS // 10)):
            time.sleep(self.chooser.uniform(0.0, 0.1))
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(self.chooser.uniform(0.0, 0.4))
            server.process.send_signal(signal.SIGCONT)
        is_over.set()
        for writer in writers:
            writer.join()
        self.await_open(guarded, server)
        statuses = guarded.check(self)
        self.assertGreater(statuses[204], 0, f"seed {self.seed}")

    def test_the_upstream_restarts_under_load_and_no_token_falls(self):
        guarded = self.guarded()
        server = self.serve(guarded)
        is_over = threading.Event()
        writers = guarded.writers(WRITERS, server.data, is_over, self.chooser)
        for _ in range(max(2, ROUNDS // 50)):
            time.sleep(self.chooser.uniform(0.1, 0.3))
            guarded.upstream.kill()
            time.sleep(self.chooser.uniform(0.0, 0.1))
            guarded.upstream.start()
        is_over.set()
        for writer in writers:
            writer.join()
        self.await_open(guarded, server)
        guarded.check(self)

    def test_34_times_out_and_35_waits_until_it_is_certainly_over(self):
        guarded = self.guarded(upstream_timeout_ms=2_000, settle_ms=WIDE_SETTLE_MS)
        server = self.serve(guarded)
        first = []
        older = threading.Thread(target=lambda: first.append(
            self.status_of(guarded, server, 34, deed="hold=4s")))
        began = time.monotonic()
        older.start()
        guarded.upstream.wait_for("seen")
        self.assertEqual(self.status_of(guarded, server, 35), 503)  # waited, and was told so when 34 timed out
        older.join()
        self.assertEqual(first, [504])
        self.assertEqual(self.status_of(guarded, server, 35), 503)  # equal now, and still closed
        self.assertEqual(self.status_of(guarded, server, 34), 412)
        wait_until(lambda: self.status_of(guarded, server, 35) == 204, what="an open lane")
        self.assertGreater(time.monotonic() - began, (guarded.upstream_timeout_ms + guarded.settle_ms) / 1000)
        self.assertEqual([line["token"] for line in guarded.upstream.applied()], ["34", "35"])
        guarded.check(self)

    def test_stop_with_a_closed_resource_closes_the_next_start(self):
        guarded = self.guarded(upstream_timeout_ms=PATIENT_MS, settle_ms=WIDE_SETTLE_MS)
        server = self.serve(guarded)
        self.assertEqual(self.status_of(guarded, server, 5, deed="apply-reset"), 502)
        self.assertEqual(server.stop(), 0)
        began = time.monotonic()
        server = self.serve(guarded)
        self.assertEqual(self.status_of(guarded, server, 6, resource=1), 503)
        wait_until(lambda: self.status_of(guarded, server, 7, resource=1) == 201, what="an open lane")
        self.assertGreater(time.monotonic() - began, guarded.settle_ms / 1000)
        self.assertEqual(server.stop(), 0)
        # This time nothing was left open.
        self.assertEqual(self.status_of(guarded, self.serve(guarded), 8, resource=1), 204)
        guarded.check(self)

    def test_outdated_state_is_closed_for_the_settle_time(self):
        """A write is with the storage, its guard is killed, and then the state comes from before that guard."""
        guarded = self.guarded(upstream_timeout_ms=PATIENT_MS, settle_ms=7_000)
        state, backup = os.path.join(guarded.folder, "state.db"), self.path("backup")
        url = f"sqlite:{state}"
        server = self.serve(guarded)
        self.assertEqual(self.status_of(guarded, server, 5), 201)
        self.assertEqual(server.stop(), 0)
        shutil.copytree(guarded.folder, backup)  # of a guard that ended in order
        server = self.serve(guarded)
        self.assertEqual(self.status_of(guarded, server, 6), 204, "nothing was left open, and the state is the same")
        older = threading.Thread(target=self.status_or_none, args=(guarded, server, 34, "hold=7s"))
        older.start()
        guarded.upstream.wait_for("seen", 3)
        server.kill()
        older.join()

        def restore_folder():
            shutil.rmtree(guarded.folder)
            shutil.copytree(backup, guarded.folder)

        def begin_anew():
            shutil.rmtree(guarded.folder)
            os.mkdir(guarded.folder)

        def restore_file():
            begin_anew()
            shutil.copy2(os.path.join(backup, "state.db"), state)

        def init(*floor):
            self.expect(0, "fence", "init", "--storage", url, *(floor or ["--source", url]))

        ways = {
            "the backup, and fence init": lambda: (restore_folder(), init()),
            "the backup's file, and fence init --floor": lambda: (restore_file(), init("--floor", "30")),
            "the backup, and serve --init": lambda: restore_folder() or ["--init"],
            "the backup, and serve --init --settled": lambda: restore_folder() or ["--init", "--settled"],
            "the backup alone": restore_folder,
            "the backup, and fence rebase": lambda: (restore_folder(), self.expect(
                0, "fence", "rebase", "--storage", url, "--resource", "r/0", "--to", "7")),
            "nothing, and serve --init": lambda: begin_anew() or ["--init"],
            "nothing, and fence init": lambda: (begin_anew(), init()),
        }
        for way, prepare in ways.items():
            with self.subTest(way=way):
                more = prepare()
                more = more if isinstance(more, list) else []
                server = self.serve(guarded, *more, begins=False)
                self.assertEqual(self.status_of(guarded, server, 35), 503)
                self.assertEqual(server.call("GET", "/readyz").status, 503)
                server.kill()
        server = self.serve(guarded)
        wait_until(lambda: self.status_of(guarded, server, 36) == 204, what="an open lane")
        self.assertEqual([line["token"] for line in guarded.upstream.applied()], ["5", "6", "34", "36"])

    def test_guard_after_a_killed_one_reports_how_long_it_is_closed(self):
        guarded = self.guarded(upstream_timeout_ms=PATIENT_MS, settle_ms=LONG_SETTLE_MS)
        server = self.serve(guarded)
        for resource in (0, 1):
            self.assertEqual(self.status_of(guarded, server, 5, resource), 201)
        server.kill()
        server = self.serve(guarded, log_level="warning")
        logged = [line for line in server.log().splitlines() if "event=quarantined" in line]
        self.assertEqual(len(logged), 1, server.log())
        self.assertRegex(logged[0], r'level=warning .*resource="\*" reason="the guard before this one ended with a '
                                    r'write unfinished or unknown: .*" left_ms=[1-9]\d*$')
        ready = server.call("GET", "/readyz")
        self.assertEqual(ready.status, 503)
        self.assertIn("quarantined", ready.json["detail"])
        self.assertGreater(int(ready.headers["retry-after"]), 0)
        metrics = server.call("GET", "/metrics").body.decode()
        self.assertIn("\nfenceguard_lane_quarantined 2\n", metrics)
        self.assertIn("\nfenceguard_ready 0\n", metrics)
        shown = self.run_binary("fence", "show", "--server", server.url, "--resource", "r/0")
        self.assertEqual(shown.returncode, 0, shown)
        self.assertRegex(shown.stdout, r"(?m)^closed false$")
        self.assertRegex(shown.stdout, r"(?m)^lane quarantined, [1-9]\d* s left$")
        refused = server.request("PUT", "/r/0", {"Fencing-Token": "6", "Fencing-Holder": "h6"}, "x")
        self.assertEqual(refused.status, 503)
        self.assertIn("the guard before this one", refused.json["detail"])
        self.await_open(guarded, server)
        self.assertEqual(server.call("GET", "/readyz").status, 200)
        metrics = server.call("GET", "/metrics").body.decode()
        self.assertIn("\nfenceguard_lane_quarantined 0\n", metrics)
        self.assertIn("\nfenceguard_ready 1\n", metrics)
        shown = self.run_binary("fence", "show", "--server", server.url, "--resource", "r/0")
        self.assertNotIn("lane", shown.stdout)

    def test_unknown_write_quarantines_only_its_resource(self):
        guarded = self.guarded(upstream_timeout_ms=PATIENT_MS, settle_ms=LONG_SETTLE_MS)
        server = self.serve(guarded, log_level="warning")
        self.assertEqual(self.status_of(guarded, server, 5, deed="apply-reset"), 502)
        self.assertRegex(server.log(), r'event=quarantined resource="r/0" reason="the end of a write on this resource '
                                       r'was not seen: .*" left_ms=[1-9]')
        self.assertEqual(server.call("GET", "/readyz").status, 200)
        self.assertIn("\nfenceguard_lane_quarantined 1\n", server.call("GET", "/metrics").body.decode())
        self.assertGreater(server.call("GET", "/v1/fences/r/0").json["quarantined_ms"], 0)
        self.assertEqual(self.status_of(guarded, server, 5, 1), 201)
        self.assertNotIn("quarantined_ms", server.call("GET", "/v1/fences/r/1").json)
        # A revoke is another matter, and told apart.
        self.assertEqual(server.call("POST", "/v1/fences/r/1/revoke").json["closed"], True)
        shown = self.run_binary("fence", "show", "--server", server.url, "--resource", "r/1")
        self.assertRegex(shown.stdout, r"(?m)^closed true$")
        self.assertNotIn("lane", shown.stdout)

    def test_holder_stopped_during_its_body_is_cut_and_unknown(self):
        guarded = self.guarded(upstream_timeout_ms=PATIENT_MS, settle_ms=WIDE_SETTLE_MS)
        server = self.serve(guarded, "--body-timeout", "2s")
        link = support.connection(server.data)
        self.addCleanup(link.close)
        link.putrequest("PUT", "/r/0")
        for name, value in (("Fencing-Token", "34"), ("Fencing-Holder", "h34"), ("Content-Length", "300000")):
            link.putheader(name, value)
        link.endheaders(b"x" * 150_000)  # more than is held back: it is on its way to the storage
        guarded.upstream.wait_for("seen")
        self.assertEqual(self.status_of(guarded, server, 35), 503)
        self.assertEqual(link.getresponse().status, 504)
        wait_until(lambda: self.status_of(guarded, server, 35) == 201, what="an open lane")
        self.assertEqual([line["token"] for line in guarded.upstream.applied()], ["35"])

    def test_second_guard_takes_over_from_a_dead_not_a_silent_one(self):
        guarded = self.guarded(upstream_timeout_ms=PATIENT_MS, settle_ms=WIDE_SETTLE_MS)
        first = self.serve(guarded)
        self.assertEqual(self.status_of(guarded, first, 2), 201)
        first.process.send_signal(signal.SIGSTOP)
        refused = self.run_binary("serve", "--storage", guarded.upstream.url(), "--state",
                                  f"sqlite:{guarded.folder}/state.db", "--listen", "127.0.0.1:0", "--control",
                                  "127.0.0.1:0", "--lock-wait", "200ms")
        self.assertEqual(refused.returncode, 3)
        self.assertIn("another fenceguard is the guard", refused.stderr)
        probe = f"unix:{self.path('probe')}"
        second = self.start("serve", "--storage", guarded.upstream.url(), "--state",
                            f"sqlite:{guarded.folder}/state.db", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0",
                            "--probe", probe, "--lock-wait", "60s", "--settle", f"{guarded.settle_ms}ms")
        self.await_probe(probe)
        self.assertEqual(support.request(probe, "GET", "/healthz").status, 200)
        self.assertEqual(support.request(probe, "GET", "/readyz").status, 503)
        told = support.request(probe, "GET", "/metrics")
        self.assertEqual(told.status, 200)
        self.assertIn("\nfenceguard_ready 0\n", told.body.decode())
        first.process.send_signal(signal.SIGKILL)
        line = second.stdout.readline()
        self.assertRegex(line, "^listening data=")
        address = line.split()[1].removeprefix("data=")
        # The dead one may have left something open: closed for the settle time, and not ready for as long.
        self.assertEqual(support.request(probe, "GET", "/readyz").status, 503)
        claim = {"Fencing-Token": "3", "Fencing-Holder": "h3"}
        self.assertEqual(support.request(address, "PUT", "/r/0", claim, "x").status, 503)
        wait_until(lambda: support.request(address, "PUT", "/r/0", claim, "x").status == 204, what="an open lane")
        self.assertEqual(support.request(probe, "GET", "/readyz").status, 200)


if __name__ == "__main__":
    parts.main()
