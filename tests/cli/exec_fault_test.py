"""'fenceguard exec' when it is killed, stopped, or loses its lease: nothing of its command stays behind."""

import os
import signal
import unittest

import support
from support import processes_with, wait_until

SOURCE = ["--source", "sqlite:leases.db", "--resource", "a"]
# A command with a child, a grandchild, one that ignores SIGTERM, and one that has left the process group.
TREE = ("sh -c 'sleep 1000 & wait' & sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' & setsid sleep 1000 & "
        "touch up; wait")


class ExecFaults(support.BinaryTest):
    def setUp(self):
        super().setUp()
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
        # The kill comes after 0, 1, 2, ... ms, through every step of starting up; the loop ends when the
        # command had begun to run in several of the rounds.
        ran = 0
        for delay_ms in range(1000):
            process = self.start("exec", *SOURCE, "--ttl", "100ms", "--", "sh", "-c",
                                 f"touch ran{delay_ms}; sleep 1000", env={"MARK": self.folder})
            try:
                process.wait(delay_ms / 1000)
            except support.subprocess.TimeoutExpired:
                pass
            process.kill()
            process.wait(support.LIMIT_S)
            self.expect_nothing_left()
            ran += os.path.exists(self.path(f"ran{delay_ms}"))
            if ran == 10:
                return
        self.fail("the command never came to run")

    def test_killing_the_supervisor_ends_the_command_and_exec_says_so(self):
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
        self.assertIn("was lost", errors)
        self.assertEqual(processes_with(self.mark), [])
        self.assertEqual(self.expect_json(0, "lease", "show", *SOURCE)["token"], taken["token"])

    def test_a_lease_that_was_revoked_ends_the_command_with_124(self):
        server = self.serve()
        process = self.start("exec", "--server", server.url, "--resource", "a", "--ttl", "4s", "--", "sh",
                             "-c",
                             "touch up; sleep 1000", env={"MARK": self.folder})
        wait_until(lambda: os.path.exists(self.path("up")), what="the command's start")
        self.expect(0, "fence", "revoke", "--server", server.url, "--resource", "a")
        self.assertEqual(process.wait(support.LIMIT_S), 124)
        self.expect_nothing_left()

    def test_a_server_that_is_gone_is_a_lost_lease(self):
        server = self.serve()
        process = self.start("exec", "--server", server.url, "--resource", "a", "--ttl", "4s", "--", "sh",
                             "-c",
                             "touch up; sleep 1000", env={"MARK": self.folder})
        wait_until(lambda: os.path.exists(self.path("up")), what="the command's start")
        server.kill()
        self.assertEqual(process.wait(support.LIMIT_S), 124)
        self.expect_nothing_left()

    def test_a_lease_lost_under_a_command_that_ends_meanwhile_is_124(self):
        # The command ends while exec is stopped; its status would say that all was well under the lock.
        process = self.tree("--ttl", "4s", script="touch up; while ! test -e end; do sleep 0.01; done",
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
