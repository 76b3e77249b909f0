"""'fenceguard exec --fence-method': the holder before is cut off behind the advance and before the command runs.

Shows: one that ended well, and left nothing, is cut off by nobody; one that failed, left a process, or whose exec was killed
or paused is; what fails, is lost or is interrupted meanwhile runs no command.
"""

import os
import signal
import unittest

import support
from method import Method
from waiting import wait_until

FILES = ["--source", "sqlite:leases.db", "--storage", "sqlite:data.db", "--resource", "a"]


class ExecTest(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.make_file("leases.db", "data.db")
        self.method = Method(self.path("one"))
        self.words = ["exec", *FILES, "--fence-method", self.method.word]

    def start_holder(self, ttl):
        process = self.start(*self.words, "--ttl", ttl, "--", "sh", "-c",
                             "echo $FENCING_TOKEN $FENCING_HOLDER > new; mv new claim; sleep 100")
        wait_until(lambda: os.path.exists(self.path("claim")), what="the command's start")
        return process

    def end_lease(self):
        """Of a holder that is not there to renew it, before its time is over; its token."""
        token, holder = self.read("claim").split()
        self.expect(0, "lease", "release", *FILES[:2], *FILES[4:], "--token", token, "--holder", holder)
        os.unlink(self.path("claim"))
        return int(token)

    def die(self):
        """A holder whose exec is killed."""
        process = self.start_holder("60s")
        process.send_signal(signal.SIGKILL)
        process.wait()
        return self.end_lease()

    def read(self, name):
        with open(self.path(name), encoding="ascii") as file:
            return file.read()

    def test_one_that_ended_well_is_not_cut_off(self):
        for _ in range(2):
            self.expect(0, *self.words, "--", "true")
        self.assertEqual(self.method.runs(), [])

    def test_failed_holder_is_cut_off(self):
        self.expect(3, *self.words, "--", "sh", "-c", "exit 3")
        self.expect(0, *self.words, "--", "true")
        self.assertEqual(len(self.method.runs()), 1)

    def start_waiting(self):
        """A holder whose command waits for the file 'go'."""
        process = self.start(*self.words, "--ttl", "60s", "--", "sh", "-c",
                             "touch started; while [ ! -e go ]; do sleep 0.02; done")
        wait_until(lambda: os.path.exists(self.path("started")), what="the command's start")
        return process

    def test_one_whose_lease_was_ended_meanwhile_is_told_so(self):
        process = self.start_waiting()
        self.expect(0, "fence", "revoke", "--storage", "sqlite:leases.db", "--resource", "a")
        self.expect(0, *self.words, "--", "true")
        self.write("go", "")
        self.assertEqual(process.wait(), 124)
        self.assertIn("the lease was lost", process.stderr.read())

    def leave_a_process(self, status, and_then):
        """Of a command, outside of its group."""
        self.expect(status, *self.words, "--", "sh", "-c",
                    "setsid sh -c 'echo $$ > left; exec sleep 100' >/dev/null 2>&1 & "
                    f"while [ ! -s left ]; do sleep 0.02; done; {and_then}")
        self.addCleanup(os.kill, int(self.read("left")), signal.SIGKILL)

    def test_one_that_ended_and_left_a_process_is_cut_off(self):
        self.leave_a_process(0, "exit 0")
        self.expect(0, *self.words, "--", "true")
        self.assertEqual(len(self.method.runs()), 1)

    def test_one_that_killed_its_supervisor_is_cut_off(self):
        self.leave_a_process(125, "kill -9 $PPID")
        self.expect(0, *self.words, "--", "true")
        self.assertEqual(len(self.method.runs()), 1)

    def test_holder_of_killed_exec_is_cut_off_before_the_command(self):
        old = self.die()
        self.method.hold()
        process = self.start(*self.words, "--", "sh", "-c", "touch ran")
        self.method.await_run(1)
        self.assertFalse(os.path.exists(self.path("ran")))
        self.method.release()
        self.assertEqual(process.wait(), 0)
        self.assertEqual(self.method.runs("ended"), [("a", old, old + 1)])
        self.assertEqual(process.stderr.read(), "fenceguard: fence method command: success: says 0\n")
        self.expect(0, *self.words, "--", "true")
        self.assertEqual(len(self.method.runs()), 1, "it is done")

    def test_the_lease_is_renewed_meanwhile(self):
        self.die()
        self.method.hold()
        process = self.start(*self.words, "--ttl", "6s", "--", "sh", "-c", "touch ran")
        self.method.await_run(1)
        self.expect(1, "lease", "acquire", "--source", "sqlite:leases.db", "--resource", "a", "--wait", "7s")
        self.method.release()
        self.assertEqual(process.wait(), 0)

    def test_with_wait_no_command_runs_until_a_method_succeeds(self):
        old = self.die()
        self.method.end_with(1)
        told = self.expect(125, *self.words, "--fence-on-failure", "wait", "--", "touch", "ran")
        self.assertIn("fence method command: failure: exit status 1", told.stderr)
        self.assertIn("not run: the holder before could not be cut off", told.stderr)
        self.assertFalse(os.path.exists(self.path("ran")))
        self.expect(0, *self.words, "--fence-on-failure", "continue", "--", "touch", "ran")
        self.assertEqual([run[1] for run in self.method.runs()], [old, old + 1], "all up to that token")

    def test_signal_ends_the_wait_for_a_method_and_frees_the_lock(self):
        self.die()
        self.method.hold()
        process = self.start(*self.words, "--ttl", "60s", "--", "touch", "ran")
        self.method.await_run(1)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(), 128 + signal.SIGTERM)
        self.method.release()
        self.expect(0, *self.words, "--wait", "0s", "--", "true")
        self.assertFalse(os.path.exists(self.path("ran")))

    def test_paused_holder_is_cut_off_and_its_later_writes_refused(self):
        paused = self.start_holder("9s")  # of which it asks for the first time after three
        paused.send_signal(signal.SIGSTOP)
        old = self.end_lease()
        self.expect(0, *self.words, "--", "true")
        self.assertEqual(self.method.runs("ended"), [("a", old, old + 1)])
        paused.send_signal(signal.SIGCONT)
        self.assertEqual(paused.wait(), 124)
        self.expect(0, *self.words, "--", "true")
        self.assertEqual(len(self.method.runs()), 1, "a late end closes no later fence, and opens none")

    def test_one_whose_fence_was_revoked_is_cut_off_all_the_same(self):
        old = self.die()
        self.expect(0, "fence", "revoke", "--storage", "sqlite:data.db", "--resource", "a")
        self.expect(0, *self.words, "--", "true")
        self.assertEqual(self.method.runs("ended"), [("a", old, old + 1)])
        self.expect(0, *self.words, "--", "true")
        self.assertEqual(len(self.method.runs()), 1, "it is done")

    def test_wrong_usage_is_refused_before_the_lock_is_taken(self):
        for sentence, *words in [
                ("give --storage too", "--source", "sqlite:leases.db", "--fence-method", "command:/bin/true"),
                ("the guard that runs there has its own", "--server", "http://127.0.0.1:1", "--fence-method",
                 "command:/bin/true"),
                ("terminate-backends: it is for a postgres: or mariadb: storage, and this is exec on a sqlite: storage", *FILES[:4],
                 "--fence-method", "terminate-backends"),
                ("upstream-reset: it is for serve", *FILES[:4], "--fence-method", "upstream-reset"),
                ("--fence-timeout is for a --fence-method", *FILES[:4], "--fence-timeout", "1s")]:
            told = self.expect(125, "exec", *words, "--resource", "a", "--", "touch", "ran")
            self.assertIn(sentence, told.stderr)
        self.assertFalse(os.path.exists(self.path("ran")))


if __name__ == "__main__":
    unittest.main()
