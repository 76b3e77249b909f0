"""'fenceguard exec' when it is killed, stopped, or loses its lease: nothing of its command stays behind."""

import http.server
import os
import pty
import shlex
import signal
import sys
import threading
import time
import unittest

import support
from fault_proxy import Listener
from support import processes_with, wait_until
from waiting import run_all

SOURCE = ["--source", "sqlite:leases.db", "--resource", "a"]
# A command with a child, a grandchild, one that ignores SIGTERM, and one that has left the process group.
TREE = ("sh -c 'sleep 1000 & wait' & sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' & setsid sleep 1000 & "
        "touch up; wait")


def is_pending(pid, number):
    """Whether a signal waits for the process to take it."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        masks = dict(line.split(":", 1) for line in status)
    return any(int(masks[name], 16) >> (number - 1) & 1 for name in ("SigPnd", "ShdPnd"))


# A command that ignores SIGTERM, as one in a long call does, and says when it works.
WORKER = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "a") as diary:
    while True:
        print(time.clock_gettime(time.CLOCK_BOOTTIME), file=diary, flush=True)
        time.sleep(0.005)
"""


def boot_time():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def state(pid):
    """Of a process, as ps(1) shows it: T is stopped."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return stat.read().rpartition(")")[2].split()[0]


class HungGuard(Listener):
    """A control side that grants a lease and answers nothing any more: what comes then is kept waiting."""

    def __init__(self):
        self.asked = []  # the methods, in their order
        self.may_grant = threading.Event()
        self.may_grant.set()
        super().__init__(self.answer)

    def answer(self, link):
        head = b""
        while b"\r\n\r\n" not in head and (more := link.recv(65536)):
            head += more
        self.asked.append(head.split(b" ")[0].decode())
        if self.asked[-1] != "POST":
            return
        self.may_grant.wait()
        body = b'{"resource":"a","token":"7","holder":"h","ttl_ms":1}'
        link.sendall(b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nConnection: close\r\n"
                     b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        link.close()


class BusyGuard:
    """A control side that is unavailable for a second, so many times, and then grants a lease."""

    def __init__(self, refusals):
        outer = self
        self.asked = []  # the methods and when they came

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, status, body=b"", headers=()):
                outer.asked.append((self.command, time.monotonic()))
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(status)
                for name, value in (*headers, ("Content-Length", str(len(body)))):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                if len(outer.asked) < refusals:
                    return self.answer(503, b'{"detail":"settling"}', [("Retry-After", "1")])
                return self.answer(201, b'{"resource":"a","token":"7","holder":"h","ttl_ms":10000}')

            def do_PUT(self):
                self.answer(200, b"{}")

            def do_DELETE(self):
                self.answer(204)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class HungServer(support.BinaryTest):
    """exec ends soon after its command, whatever its server does. Its own limits for a renewal and a release are
    10 and 5 s."""

    def setUp(self):
        super().setUp()
        self.guard = HungGuard()
        self.addCleanup(self.guard.close)

    def end_of(self, *arguments, script, go_when=None):
        """Runs exec, whose command finds the file 'go' when the guard was asked that; its status, what it said, and the
        seconds by which it outlived its command."""
        process = self.start("exec", "--server", self.guard.url, "--resource", "a", *arguments, "--", "sh", "-c",
                             script)
        if go_when:
            wait_until(lambda: go_when in self.guard.asked, what=go_when)
            self.write("go", "")
        _, errors = process.communicate(timeout=support.LIMIT_S)
        outlived_s = time.time() - os.stat(self.path("ended")).st_mtime
        return process.returncode, errors, outlived_s

    def test_a_lost_lease_is_not_released_and_nothing_is_waited_for(self):
        # The renewal that goes out at 5.7 s may take 9 s, and the lease is lost at 15.2 s.
        status, errors, outlived_s = self.end_of("--ttl", "18s", "--kill-after", "1s",
                                                 script="trap 'touch ended; exit 0' TERM; while :; do sleep 0.1; done")
        self.assertEqual(status, 124)
        self.assertIn("was lost", errors)
        self.assertIn("PUT", self.guard.asked)
        self.assertNotIn("DELETE", self.guard.asked)
        self.assertLess(outlived_s, 7)  # the next renewal, if one went out before, would be waited for until 24 s

    def test_a_release_that_hangs_is_left_behind_after_kill_after(self):
        for _ in range(3):  # a busy machine may be late, but not each time
            status, errors, outlived_s = self.end_of("--ttl", "60s", "--kill-after", "1s",
                                                     script="touch ended; exit 3")
            self.assertEqual(status, 3)
            self.assertIn("did not answer", errors)
            self.assertIn("DELETE", self.guard.asked)
            if outlived_s < 4.9:
                break
        self.assertLess(outlived_s, 4.9)

    def test_grant_after_a_signal_is_released_within_kill_after(self):
        self.guard.may_grant.clear()
        process = self.start("exec", "--server", self.guard.url, "--resource", "a", "--kill-after", "1s", "--",
                             "touch", "run")
        wait_until(lambda: "POST" in self.guard.asked, what="the ask for the lease")
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: not is_pending(process.pid, signal.SIGTERM), what="the signal to be heard")
        self.guard.may_grant.set()
        _, errors = process.communicate(timeout=support.LIMIT_S)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, errors)
        self.assertFalse(os.path.exists(self.path("run")))

    def test_a_renewal_that_hangs_is_not_waited_for_either(self):
        # The renewal may take 10 s.
        status, errors, outlived_s = self.end_of("--ttl", "24s", "--kill-after", "1s", go_when="PUT",
                                                 script="until test -e go; do sleep 0.1; done; touch ended; exit 3")
        self.assertEqual(status, 3)
        self.assertIn("did not answer", errors)
        self.assertEqual(self.guard.asked, ["POST", "PUT"])
        self.assertLess(outlived_s, 7)


class Overrun(support.BinaryTest):
    """A command that ignores SIGTERM works no more once the next holder has the lock, whatever stands still meanwhile.

    The command notes when it works, which is compared with the moment at which the next holder was let in.
    """

    LEASE = ["--ttl", "8s", "--kill-after", "2s"]
    ROUNDS = 4  # a busy machine may be late with any process, but not each time

    def setUp(self):
        super().setUp()
        self.make_file("leases.db")
        self.write("worker.py", WORKER)

    def words(self, name, *way):
        way = way or ("--source", "sqlite:leases.db", "--resource", name)
        return ["exec", *way, *self.LEASE, "--", sys.executable, "worker.py", self.path(name)]

    def expect_work(self, name):
        wait_until(lambda: os.path.exists(self.path(name)) and os.path.getsize(self.path(name)), what="the command's work")

    def running(self, name, *way):
        # A group of its own in our session: the kernel drops SIGTSTP for a group that nobody in its session looks after.
        process = self.start(*self.words(name, *way), start_new_session=False, process_group=0)
        self.expect_work(name)
        return process

    def let_in_next(self, name):
        """When the next holder was let in."""
        self.expect(0, "lease", "acquire", "--source", "sqlite:leases.db", "--resource", name, "--ttl", "24m", "--wait", "60s")
        return boot_time()

    def expect_loss(self, process):
        _, errors = process.communicate(timeout=support.LIMIT_S)
        self.assertEqual(process.returncode, 124, errors)
        self.assertIn("was lost", errors)

    def stopped_exec(self, name):
        process = self.running(name)
        command = support.descendants(process.pid)[1:]
        process.send_signal(signal.SIGSTOP)
        let_in_at = self.let_in_next(name)
        wait_until(lambda: not any(map(support.is_alive, command)), what="the command's end")
        process.send_signal(signal.SIGCONT)
        self.expect_loss(process)
        return let_in_at

    def stopped_job(self, name):
        process = self.running(name)
        process.send_signal(signal.SIGTSTP)
        wait_until(lambda: state(process.pid) in "TZ", what="exec's stop")
        let_in_at = self.let_in_next(name)
        process.send_signal(signal.SIGCONT)
        self.expect_loss(process)
        return let_in_at

    def stopped_job_and_supervisor(self, name):
        # Nothing can end the command meanwhile, and it does not work either; nor is it continued.
        process = self.running(name)
        supervisor = support.descendants(process.pid)[0]
        process.send_signal(signal.SIGTSTP)
        wait_until(lambda: state(process.pid) in "TZ", what="exec's stop")
        os.kill(supervisor, signal.SIGSTOP)
        let_in_at = self.let_in_next(name)
        process.send_signal(signal.SIGCONT)
        self.expect_loss(process)
        return let_in_at

    def stopped_supervisor(self, name):
        guard = HungGuard()
        self.addCleanup(guard.close)
        before = boot_time()
        process = self.running(name, "--server", guard.url, "--resource", "a")
        os.kill(support.descendants(process.pid)[0], signal.SIGSTOP)
        self.expect_loss(process)
        return before + 8

    def silent_server(self, name):
        guard = HungGuard()
        self.addCleanup(guard.close)
        before = boot_time()
        self.expect_loss(self.running(name, "--server", guard.url, "--resource", "a"))
        return before + 8

    def job_of_a_shell(self, name):
        shell, terminal = pty.fork()
        if shell == 0:
            os.chdir(self.folder)
            os.execve("/bin/sh", ["sh", "-i"], support.environment({"PS1": "$ ", "ENV": ""}))
        self.addCleanup(os.waitpid, shell, 0)
        self.addCleanup(os.close, terminal)
        os.write(terminal, shlex.join([support.BINARY, *self.words(name)]).encode() + b"\n")
        self.expect_work(name)
        job = support.descendants(shell)[0]
        os.write(terminal, b"\x1a")
        wait_until(lambda: state(job) in "TZ", what="the job's stop")
        let_in_at = self.let_in_next(name)
        os.write(terminal, b"fg; echo ended-$?\n")
        shown = b""
        while b"ended-124" not in shown:
            self.assertNotRegex(shown, b"ended-[0-9]+\r", shown)
            shown += os.read(terminal, 1024)
        self.assertIn(b"was lost", shown)
        return let_in_at

    def test_nothing_works_beside_the_next_holder(self):
        def rounds(scenario):
            for number in range(self.ROUNDS):
                name = f"{scenario.__name__}-{number}"
                let_in_at = scenario(name)
                with open(self.path(name), encoding="ascii") as diary:
                    late_s = float(diary.read().split("\n")[-2]) - let_in_at
                if late_s <= 0:
                    return
            raise AssertionError(f"{scenario.__name__}: it worked for {late_s:.3f} s beside the next holder")
        run_all([lambda scenario=scenario: rounds(scenario) for scenario in (
            self.stopped_exec, self.stopped_job, self.stopped_job_and_supervisor, self.stopped_supervisor,
            self.silent_server, self.job_of_a_shell)])


class ExecFaults(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.make_file("leases.db")
        self.mark = f"MARK={self.folder}"
        self.addCleanup(self.end_leftovers)

    def end_leftovers(self):
        for pid in processes_with(self.mark):
            os.kill(pid, signal.SIGKILL)

    def tree(self, *arguments, script=TREE, members=8):
        process = self.start("exec", *SOURCE, *arguments, "--", "sh", "-c", script, env={"MARK": self.folder})
        wait_until(lambda: os.path.exists(self.path("up")), what="the command's start")
        wait_until(lambda: len(processes_with(self.mark)) >= members, what="the command's tree")
        return process

    def expect_nothing_left(self):
        wait_until(lambda: not processes_with(self.mark), what="the end of every process of the tree")

    def test_killing_exec_leaves_nothing_of_the_commands_tree(self):
        process = self.tree()
        process.kill()
        process.wait(support.LIMIT_S)
        self.expect_nothing_left()

    def test_killing_execs_whole_process_group_leaves_nothing(self):
        process = self.start("exec", *SOURCE, "--", "sh", "-c", TREE, env={"MARK": self.folder},
                             process_group=0)
        wait_until(lambda: len(processes_with(self.mark)) >= 8, what="the command's tree")
        os.killpg(process.pid, signal.SIGKILL)
        self.expect_nothing_left()

    def test_killing_exec_at_any_moment_leaves_nothing(self):
        # The kill comes after 0, 1, 2, ... ms, and later in longer steps, through every step of starting up;
        # the loop ends when the command had begun to run in several of the rounds.
        ran = 0
        delay_ms = 0.0
        deadline = time.monotonic() + 300
        while ran < 10:
            self.assertLess(time.monotonic(), deadline, f"it ran in {ran} rounds up to {delay_ms:.0f} ms")
            started = self.path(f"ran{delay_ms}")
            process = self.start("exec", "--source", "sqlite:leases.db", "--resource", f"a{delay_ms}", "--", "sh", "-c",
                                 f"touch '{started}'; sleep 1000", env={"MARK": self.folder})
            try:
                process.wait(delay_ms / 1000)
            except support.subprocess.TimeoutExpired:
                pass
            process.kill()
            process.wait(support.LIMIT_S)
            self.expect_nothing_left()
            ran += os.path.exists(started)
            delay_ms = delay_ms + 1 if delay_ms < 200 else delay_ms * 1.05

    def test_killing_the_supervisor_ends_the_command_and_is_reported(self):
        process = self.tree(script="touch up; sleep 1000 & sleep 1000", members=5)
        supervisor, *_ = support.descendants(process.pid)
        os.kill(supervisor, signal.SIGKILL)
        _, errors = process.communicate(timeout=support.LIMIT_S)
        self.assertEqual(process.returncode, 125)
        self.assertIn("supervisor", errors)
        self.expect_nothing_left()
        self.expect(0, "exec", *SOURCE, "--wait", "0s", "--", "true")

    def test_a_lost_lease_ends_the_command_with_124(self):
        # exec is stopped past its lease, somebody else takes the lock, exec goes on: it must notice, end
        # its command
        # (which ignores SIGTERM) and say 124.
        process = self.tree("--ttl", "4s", "--kill-after", "300ms")
        process.send_signal(signal.SIGSTOP)
        taken = self.expect_json(0, "lease", "acquire", *SOURCE, "--ttl", "24m", "--wait", "30s")
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=support.LIMIT_S)
        self.assertEqual(process.returncode, 124)
        # A renewal that was on its way when exec was stopped may say it first.
        self.assertRegex(errors, "was lost.*(it expired before|its source says that it is over)")
        self.assertEqual(processes_with(self.mark), [])
        self.assertEqual(self.expect_json(0, "lease", "show", *SOURCE)["token"], taken["token"])

    def test_a_lease_that_was_revoked_ends_the_command_with_124(self):
        server = self.serve()
        process = self.start("exec", "--server", server.url, "--resource", "a", "--ttl", "12s", "--", "sh",
                             "-c",
                             "touch up; sleep 1000", env={"MARK": self.folder})
        wait_until(lambda: os.path.exists(self.path("up")), what="the command's start")
        self.expect(0, "fence", "revoke", "--server", server.url, "--resource", "a")
        _, errors = process.communicate(timeout=support.LIMIT_S)
        self.assertEqual(process.returncode, 124)
        self.assertIn("it was revoked", errors)
        self.expect_nothing_left()

    def test_a_server_that_is_gone_is_a_lost_lease(self):
        server = self.serve()
        process = self.start("exec", "--server", server.url, "--resource", "a", "--ttl", "12s", "--", "sh",
                             "-c",
                             "touch up; sleep 1000", env={"MARK": self.folder})
        wait_until(lambda: os.path.exists(self.path("up")), what="the command's start")
        server.kill()
        _, errors = process.communicate(timeout=support.LIMIT_S)
        self.assertEqual(process.returncode, 124)
        self.assertIn("its source is unreachable", errors)
        self.expect_nothing_left()

    @staticmethod
    def failed_asks(server):
        text = server.call("GET", "/metrics").body.decode()
        return int(text.split('\nfenceguard_leases_total{event="failed"} ')[1].split("\n")[0])

    def test_a_wait_covers_a_guard_that_is_unavailable_for_now(self):
        guard = BusyGuard(refusals=3)
        self.addCleanup(guard.close)
        done = self.expect(0, "exec", "--server", guard.url, "--resource", "a", "--wait", "5m", "--ttl", "60s", "--",
                           "touch", "ran")
        self.assertEqual(done.stderr, "")
        self.assertTrue(os.path.exists(self.path("ran")))
        self.assertEqual([method for method, _ in guard.asked], ["POST"] * 4 + ["DELETE"])
        # Not sooner than it was told.
        for (_, earlier), (_, later) in zip(guard.asked[:4], guard.asked[1:4]):
            self.assertGreaterEqual(later - earlier, 0.9)

    def test_wait_for_an_unavailable_guard_ends_with_its_reason(self):
        server = self.serve("--storage", "sqlite:data.db", "--source", "sqlite:leases.db")
        for wait, asked in (("0s", 1), ("5s", 2)):
            before = self.failed_asks(server)
            done = self.expect(125, "exec", "--server", server.url, "--resource", "a", "--wait", wait, "--", "true")
            self.assertIn("fenceguard fence init", done.stderr)
            self.assertGreaterEqual(self.failed_asks(server) - before, asked)

    def test_a_signal_ends_the_wait_for_a_guard_that_is_unavailable(self):
        server = self.serve("--storage", "sqlite:data.db", "--source", "sqlite:leases.db")
        process = self.start("exec", "--server", server.url, "--resource", "a", "--wait", "10m", "--", "true")
        wait_until(lambda: self.failed_asks(server) >= 1, what="a first answer")
        process.terminate()
        self.assertEqual(process.wait(support.LIMIT_S), 128 + signal.SIGTERM)

    def test_a_lease_lost_under_a_command_that_ends_meanwhile_is_124(self):
        # The command ends while exec is stopped; its status would say that all was well under the lock.
        process = self.tree("--ttl", "4s", "--kill-after", "300ms", script="touch up; while ! test -e end; do sleep 0.01; done",
                            members=3)
        process.send_signal(signal.SIGSTOP)
        self.expect(0, "lease", "acquire", *SOURCE, "--ttl", "24m", "--wait", "30s")
        self.write("end", "")
        command = support.descendants(process.pid)
        wait_until(lambda: not any(support.is_alive(pid) for pid in command[1:]), what="the command's end")
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(support.LIMIT_S), 124)


if __name__ == "__main__":
    unittest.main()
