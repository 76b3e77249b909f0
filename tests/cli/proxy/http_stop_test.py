"""A guard in front of an HTTP storage that is stopped (SIGSTOP) at marked instants of a write, and goes on later.

Shows: stopped between judge and forward, or between forward and answer, for longer than any deadline or not, what was
told of the write is true, tokens that take effect never fall, the next holder waits, and no second guard takes over.
How: the storage's queue of connections is full, so that a write is in its lane while nothing of it can be sent; or
the storage's own log says how far it is.
"""

import itertools
import select
import signal
import socket
import threading
import time
import unittest

import http_load
import support
from waiting import wait_until

# Longer than a busy machine needs to see that the instant has come, and to stop the guard.
TIMEOUT_MS = 5_000
NEVER_MS = 60_000
# Nothing is closed. Half of it is the kernel's own limit for a connection that is begun (TCP_USER_TIMEOUT).
LONG_SETTLE_MS = 20_000
ATTEMPTS_MAX = 5
DONE = (201, 204)
SYN_SENT = "02"


def pause(process):
    """SIGSTOP; returns when it has stopped."""
    process.send_signal(signal.SIGSTOP)

    def has_stopped():
        with open(f"/proc/{process.pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "T"
    wait_until(has_stopped, what="a stopped guard")
    return time.monotonic()


def is_connecting_to(port):
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in list(table)[1:]]
    return any(row[3] == SYN_SENT and int(row[2].partition(":")[2], 16) == port for row in rows)


class HttpStop(http_load.GuardedTest):
    def history(self, timeout_ms=TIMEOUT_MS, **options):
        guarded = self.guarded(upstream_timeout_ms=timeout_ms, **options)
        guarded.tokens = itertools.count(36)
        return guarded, self.serve(guarded)

    def ask(self, guarded, server, token, deed=""):
        """A write by a thread of its own; its status comes as the only member of the answer, or None without one."""
        told = []

        def write():
            try:
                told.append(self.status_of(guarded, server, token, deed=deed))
            except OSError:
                told.append(None)
        thread = threading.Thread(target=write)
        thread.start()
        self.addCleanup(thread.join)
        return told

    def answer(self, told):
        return wait_until(lambda: told, what="an answer")[0]

    def shut(self, upstream):
        """The upstream sleeps, and its queue is full: who connects is kept waiting until it is resumed."""
        upstream.pause()
        while True:
            filler = socket.socket()
            self.addCleanup(filler.close)
            filler.settimeout(0.3)
            try:
                filler.connect(("127.0.0.1", upstream.port))
            except socket.timeout:
                filler.close()
                return

    def open_again(self, upstream):
        """Returns when a connection to it is begun and made at once."""
        upstream.resume()

        def connects():
            try:
                socket.create_connection(("127.0.0.1", upstream.port), 0.3).close()
                return True
            except socket.timeout:
                return False
        wait_until(connects, what="a queue with room")

    def stop_before_forwarding(self, settle_ms=LONG_SETTLE_MS, **options):
        """A guard that has let token 34 into its lane and cannot send a byte of it, stopped there."""
        guarded, server = self.history(backlog=1, settle_ms=settle_ms, **options)
        self.shut(guarded.upstream)
        for _ in range(ATTEMPTS_MAX):
            wait_until(lambda: not is_connecting_to(guarded.upstream.port), what="no connection that is begun")
            told = self.ask(guarded, server, 34)
            wait_until(lambda: is_connecting_to(guarded.upstream.port), what="a connection that is begun")
            self.assertEqual(server.call("GET", "/v1/fences/r/0").json["token"], "34")
            if "\nfenceguard_in_flight 1\n" in server.call("GET", "/metrics").body.decode():
                return guarded, server, told, pause(server.process)
            # On a busy machine it may have given up meanwhile, with nothing sent.
            self.assertEqual(self.answer(told), 503)
        return self.fail("the guard gave up before it could be stopped each time")

    def stop_before_the_answer(self, deed, kind, **options):
        """A guard that has sent a write with token 34, stopped when the upstream has logged kind."""
        guarded, server = self.history(**options)
        told = self.ask(guarded, server, 34, deed)
        guarded.upstream.wait_for(kind)
        return guarded, server, told, pause(server.process)

    def start_second(self, guarded):
        """A guard that waits for the same state; answers its process and its probe."""
        probe = f"unix:{self.path('probe')}"
        second = self.start("serve", "--storage", guarded.upstream.url(), "--state",
                            f"sqlite:{guarded.folder}/state.db", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0",
                            "--probe", probe, "--lock-wait", "60s", "--settle", f"{guarded.settle_ms}ms",
                            "--forward-claim")
        self.await_probe(probe)
        return second, probe

    def check_waits(self, second, probe):
        self.assertEqual(support.request(probe, "GET", "/healthz").status, 200)
        self.assertEqual(support.request(probe, "GET", "/readyz").status, 503)
        self.assertEqual(select.select([second.stdout], [], [], 0)[0], [], "the second guard took over")

    def outlast_timeout(self, stopped_at):
        time.sleep(max(0.0, stopped_at + TIMEOUT_MS / 1000 + 0.3 - time.monotonic()))

    def check(self, guarded, server, tokens):
        """These tokens took effect, in this order; what was told is true; and everything is open before long."""
        self.assertEqual([line["token"] for line in guarded.upstream.applied()], tokens)
        took_s = self.await_open(guarded, server)
        self.assertLess(took_s, guarded.settle_ms / 1000 + 10)
        guarded.check(self)

    def closures(self, server):
        lines = server.call("GET", "/metrics").body.decode().splitlines()
        return [line.split()[1] for line in lines if line.startswith("fenceguard_settle_closures_total ")]

    def write_until_done(self, guarded, server, token):
        wait_until(lambda: self.status_of(guarded, server, token) in DONE, what="an open lane")

    def test_pause_before_forwarding_then_in_time_keeps_the_order(self):
        guarded, server, older, _ = self.stop_before_forwarding(timeout_ms=NEVER_MS, settle_ms=NEVER_MS)
        second, probe = self.start_second(guarded)
        newer = self.ask(guarded, server, 35)
        guarded.upstream.resume()
        self.check_waits(second, probe)
        server.process.send_signal(signal.SIGCONT)
        self.assertEqual((self.answer(older), self.answer(newer)), (201, 204))
        self.check_waits(second, probe)
        self.check(guarded, server, ["34", "35"])

    def test_pause_before_forwarding_then_too_late_tells_the_truth(self):
        guarded, server, older, stopped_at = self.stop_before_forwarding()
        second, probe = self.start_second(guarded)
        newer = self.ask(guarded, server, 35)
        guarded.upstream.resume()  # the kernel connects meanwhile, and nobody looks at it
        self.outlast_timeout(stopped_at)
        self.assertEqual(guarded.upstream.events("applied"), [])
        self.check_waits(second, probe)
        server.process.send_signal(signal.SIGCONT)
        status = self.answer(older)
        self.assertIn(status, (201, 502, 503, 504))
        if status in (502, 504):
            self.assertEqual(self.answer(newer), 503)
            self.write_until_done(guarded, server, 35)
        else:
            self.assertIn(self.answer(newer), DONE)
        self.check_waits(second, probe)
        tokens = [line["token"] for line in guarded.upstream.applied()]
        self.assertIn(tokens, (["34", "35"], ["35"]))
        self.check(guarded, server, tokens)

    def test_pause_before_forwarding_to_a_shut_storage_sends_nothing(self):
        guarded, server, older, stopped_at = self.stop_before_forwarding()
        newer = self.ask(guarded, server, 35)
        self.outlast_timeout(stopped_at)
        server.process.send_signal(signal.SIGCONT)
        self.assertEqual((self.answer(older), self.answer(newer)), (503, 503))
        self.assertEqual(self.closures(server), ["0"])  # what was not sent is known
        self.open_again(guarded.upstream)
        self.assertEqual(self.status_of(guarded, server, 34), 412)
        self.assertEqual(self.status_of(guarded, server, 35), 201)
        self.assertEqual(len(guarded.upstream.seen()), 1)
        self.check(guarded, server, ["35"])

    def test_kill_before_forwarding_closes_the_second_guard(self):
        guarded, server, older, _ = self.stop_before_forwarding()
        guarded.settle_ms = http_load.WIDE_SETTLE_MS  # of the second one
        second, probe = self.start_second(guarded)
        self.check_waits(second, probe)
        server.process.send_signal(signal.SIGKILL)
        self.assertIsNone(self.answer(older))
        server.data = second.stdout.readline().split()[1].removeprefix("data=")
        self.assertEqual(support.request(probe, "GET", "/readyz").status, 503)  # for the settle time
        guarded.upstream.resume()
        self.assertEqual(self.status_of(guarded, server, 35), 503)
        self.write_until_done(guarded, server, 35)
        self.check(guarded, server, ["35"])

    def test_pause_before_the_answer_then_in_time_keeps_the_order(self):
        guarded, server, older, _ = self.stop_before_the_answer("hold-answer=500ms", "applied", timeout_ms=NEVER_MS)
        newer = self.ask(guarded, server, 35)
        guarded.upstream.wait_for("answered")
        server.process.send_signal(signal.SIGCONT)
        self.assertEqual((self.answer(older), self.answer(newer)), (201, 204))
        self.assertEqual(self.closures(server), ["0"])
        self.check(guarded, server, ["34", "35"])

    def test_pause_past_the_deadline_is_done_or_unknown(self):
        guarded, server, older, stopped_at = self.stop_before_the_answer("hold-answer=1s", "applied",
                                                                         settle_ms=http_load.WIDE_SETTLE_MS)
        second, probe = self.start_second(guarded)
        newer = self.ask(guarded, server, 35)
        guarded.upstream.wait_for("answered")
        self.outlast_timeout(stopped_at)
        self.check_waits(second, probe)
        server.process.send_signal(signal.SIGCONT)
        status = self.answer(older)
        self.assertIn(status, (201, 502, 504))
        if status == 201:
            self.assertEqual(self.answer(newer), 204)
        else:
            self.assertEqual(self.answer(newer), 503)
            self.write_until_done(guarded, server, 35)
        self.check(guarded, server, ["34", "35"])

    def test_suspension_leaves_writes_unknown_counted_from_resuming(self):
        # The storage is still at it when the guard goes on, and done before the settle time is over.
        guarded, server, older, stopped_at = self.stop_before_the_answer("hold=9s", "seen", settle_ms=7_000)
        newer = self.ask(guarded, server, 35)
        self.outlast_timeout(stopped_at)
        continued_at = time.monotonic()
        server.process.send_signal(signal.SIGCONT)
        self.assertEqual(self.answer(older), 504)
        self.assertEqual(self.answer(newer), 503)
        self.assertEqual(self.closures(server), ["1"])
        self.write_until_done(guarded, server, 35)
        self.assertGreater(time.monotonic() - continued_at, guarded.settle_ms / 1000)
        self.check(guarded, server, ["34", "35"])

    def test_a_guard_killed_before_the_answer_starts_quarantined(self):
        guarded, server, older, _ = self.stop_before_the_answer("hold=4s", "seen", timeout_ms=NEVER_MS,
                                                                settle_ms=6_000)
        server.kill()
        self.assertIsNone(self.answer(older))
        server = self.serve(guarded)
        self.assertEqual(self.status_of(guarded, server, 35), 503)
        self.write_until_done(guarded, server, 35)
        self.check(guarded, server, ["34", "35"])


if __name__ == "__main__":
    unittest.main()
