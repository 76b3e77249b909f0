"""What serve tells a service manager by the protocol of sd_notify(3), whose socket the test owns."""

import ctypes
import os
import pathlib
import re
import signal
import socket
import time
import unittest

import support
from waiting import LIMIT_S, wait_until

PTRACE_ATTACH, PTRACE_DETACH, WAIT_ALL = 16, 17, 0x40000000


class Manager:
    """The socket that NOTIFY_SOCKET names: a path, or an abstract name that begins with @."""

    def __init__(self, name):
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + name[1:] if name.startswith("@") else name)

    def close(self):
        self._socket.close()

    def receive(self, limit_s=LIMIT_S):
        """The next message as a dict; nothing if none comes within the limit."""
        self._socket.settimeout(limit_s)
        try:
            message = self._socket.recv(65536).decode()
        except (TimeoutError, BlockingIOError):
            return None
        return dict(line.split("=", 1) for line in message.split("\n"))

    def receive_until(self, name):
        """All messages up to one that has name, which is the last."""
        found = []
        while not found or name not in found[-1]:
            message = self.receive()
            if message is None:
                raise AssertionError(f"{name} did not come, but {found}")
            found.append(message)
        return found

    def drain(self):
        """What has come already."""
        found = []
        while (message := self.receive(0)) is not None:
            found.append(message)
        return found


class StoppedThread:
    """One thread of another process, held still by a debugger's means, while its other threads go on."""

    def __init__(self, thread):
        self._thread = thread
        self._library = ctypes.CDLL(None, use_errno=True)

    def _ask(self, request):
        if self._library.ptrace(request, self._thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def __enter__(self):
        self._ask(PTRACE_ATTACH)
        os.waitpid(self._thread, WAIT_ALL)

    def __exit__(self, *_):
        self._ask(PTRACE_DETACH)


def state_of(process):
    return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def event_loops(process):
    """The threads that wait in epoll, once they are three."""
    found = [int(thread) for thread in os.listdir(f"/proc/{process}/task")
             if re.search("epoll|ep_poll", pathlib.Path(f"/proc/{process}/task/{thread}/wchan").read_text())]
    return found if len(found) == 3 else None


class Notify(support.BinaryTest):
    def manager(self, name=None):
        manager = Manager(name or self.path("notify"))
        self.addCleanup(manager.close)
        return manager

    def serve_for(self, manager, *arguments, **variables):
        return self.serve(*arguments, env={"NOTIFY_SOCKET": manager.name, **variables})

    def test_ready_is_told_once_the_ports_are_bound(self):
        for name in (self.path("notify"), f"@fenceguard-{os.getpid()}"):
            manager = self.manager(name)
            server = self.serve_for(manager, "--storage", f"sqlite:{abs(hash(name))}.db")
            # A slow start says first that it waits.
            ready = manager.receive_until("READY")[-1]
            self.assertEqual(ready["READY"], "1")
            self.assertIn(f"data {server.data}, control {server.control}", ready["STATUS"])
            for address in (server.data, server.control):
                self.assertIn(support.request(address, "GET", "/healthz").status, (200, 404))
            self.assertEqual(server.stop(), 0)

    def test_a_start_that_fails_is_never_ready(self):
        manager = self.manager()
        self.expect(2, "serve", "--threads", "many", env={"NOTIFY_SOCKET": manager.name})
        taken = self.serve()
        self.expect(3, "serve", "--storage", "sqlite:other.db", "--listen", taken.data, "--control", "127.0.0.1:0",
                    env={"NOTIFY_SOCKET": manager.name})
        self.assertEqual([message for message in manager.drain() if "READY" in message], [])

    def test_a_standby_is_not_ready_and_asks_for_time(self):
        first = self.serve()
        manager = self.manager()
        second = self.start("serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--lock-wait", "10m",
                            env={"NOTIFY_SOCKET": manager.name})
        waiting = manager.receive()
        self.assertNotIn("READY", waiting)
        self.assertGreater(int(waiting["EXTEND_TIMEOUT_USEC"]), 600_000_000)
        self.assertIn("another guard", waiting["STATUS"])
        self.assertEqual(manager.drain(), [])
        self.assertEqual(first.stop(), 0)
        self.assertEqual(manager.receive()["READY"], "1")
        second.send_signal(signal.SIGTERM)
        self.assertEqual(second.wait(LIMIT_S), 0)

    def test_stopping_is_told_before_it_has_stopped(self):
        manager = self.manager()
        server = self.serve_for(manager, "--drain-timeout", "10m", "--body-timeout", "10m")
        lease = server.lease("a").json
        claim = {"Fencing-Token": lease["token"], "Fencing-Holder": lease["holder"]}
        with server.half_sent("PUT", "/a", claim, "hello") as write:
            server.process.send_signal(signal.SIGTERM)
            stopping = manager.receive_until("STOPPING")[-1]
            self.assertGreater(int(stopping["EXTEND_TIMEOUT_USEC"]), 600_000_000)
            self.assertEqual(write.finish().status, 201)
        self.assertEqual(server.wait(), 0)

    def test_a_reload_ends_with_ready_and_says_what_was_not_taken(self):
        manager = self.manager()
        tokens = self.write_private("tokens", "admin first-0123456789\n")
        server = self.serve_for(manager, "--control-token-file", tokens)
        status = manager.receive_until("READY")[-1]["STATUS"]
        for text, expected in (("nonsense\n", "see the log"), ("admin second-0123456789\n", status)):
            self.write_private("tokens", text)
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            server.process.send_signal(signal.SIGHUP)
            reloading, ready = manager.receive(), manager.receive()
            self.assertEqual((reloading["RELOADING"], ready["READY"]), ("1", "1"))
            self.assertGreaterEqual(int(reloading["MONOTONIC_USEC"]), before)
            self.assertIn(expected, ready["STATUS"])
        self.assertEqual(ready["STATUS"], status)

    def test_the_watchdog_hears_nothing_of_a_stopped_process(self):
        manager = self.manager()
        server = self.serve_for(manager, WATCHDOG_USEC="100000")
        manager.receive_until("WATCHDOG")
        server.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: state_of(server.process.pid) == "T", what="the stop")
        manager.drain()
        self.assertIsNone(manager.receive(0.5))
        server.process.send_signal(signal.SIGCONT)
        manager.receive_until("WATCHDOG")

    def test_the_watchdog_hears_nothing_where_one_event_loop_hangs(self):
        # Those of the data side, of the control side and of the leases are held still in turn; the main thread goes on.
        manager = self.manager()
        server = self.serve_for(manager, "--threads", "1", WATCHDOG_USEC="120000")
        loops = wait_until(lambda: event_loops(server.process.pid), what="that all three wait for events")
        for thread in loops:
            manager.receive_until("WATCHDOG")
            with StoppedThread(thread):
                told = server.log().count("event=hanging")
                wait_until(lambda: server.log().count("event=hanging") > told + 1, what="the sentence")
                manager.drain()
                self.assertIsNone(manager.receive(0.2))
        manager.receive_until("WATCHDOG")
        self.assertEqual(server.stop(), 0)

    def test_what_is_meant_for_another_process_is_left_alone(self):
        manager = self.manager()
        server = self.serve_for(manager, WATCHDOG_USEC="1000", WATCHDOG_PID="1")
        manager.receive_until("READY")
        server.process.send_signal(signal.SIGHUP)
        self.assertEqual([message for message in manager.receive_until("READY") if "WATCHDOG" in message], [])

    def test_a_manager_that_does_not_listen_changes_nothing(self):
        for name in (self.path("nowhere"), self.path("x" * 200)):
            server = self.serve(env={"NOTIFY_SOCKET": name})
            wait_until(lambda: "event=notify_failed" in server.log(), what="the line")
            self.assertEqual(server.call("GET", "/readyz").status, 200)
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
