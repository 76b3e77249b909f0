"""'fenceguard exec': a command under a lock, its environment, its end and its signals."""

import os
import pty
import signal
import sys
import unittest

import support
from support import wait_until

SOURCE = ["--source", "sqlite:leases.db", "--resource", "a"]
PYTHON = sys.executable


class Exec(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.make_file("leases.db")

    def running(self, *arguments, script, env=None, **options):
        """exec with a shell script that writes the file 'up' when it runs."""
        process = self.start("exec", *SOURCE, *arguments, "--", "sh", "-c", script, env=env, **options)
        wait_until(lambda: os.path.exists(self.path("up")), what="the command's start")
        return process


class Ending(Exec):
    def test_the_commands_own_status_is_passed_on(self):
        for status in (0, 1, 7, 255):
            self.expect(status, "exec", *SOURCE, "--", "sh", "-c", f"exit {status}")

    def test_a_command_that_a_signal_killed_is_128_plus_its_number(self):
        self.expect(128 + 9, "exec", *SOURCE, "--", "sh", "-c", "kill -9 $$")
        self.expect(128 + 15, "exec", *SOURCE, "--", "sh", "-c", "kill -15 $$")

    def test_a_command_that_cannot_be_run(self):
        self.expect(127, "exec", *SOURCE, "--", "no-such-command")
        self.expect(126, "exec", *SOURCE, "--", self.folder)
        self.expect(126, "exec", *SOURCE, "--", self.write("not-executable", "x"))
        self.expect(0, "exec", *SOURCE, "--wait", "0s", "--", "true")

    def test_faults_of_its_own_are_125(self):
        self.expect(125, "exec", *SOURCE)
        self.expect(125, "exec", *SOURCE, "true")
        self.expect(125, "exec", "--resource", "a", "--", "true")
        self.expect(125, "exec", "--source", "sqlite:leases.db", "--", "true")
        self.expect(125, "exec", *SOURCE, "--ttl", "1ms", "--", "true")
        self.expect(125, "exec", *SOURCE, "--conflict-exit-code", "256", "--", "true")
        self.expect(125, "exec", "--source", "oracle:x", "--resource", "a", "--", "true")
        self.expect(125, "exec", "--source", "sqlite:no/such/folder/l.db", "--resource", "a", "--", "true")
        self.expect(125, "exec", *SOURCE, "--storage", "sqlite:missing.db", "--", "true")

    def test_ttl_without_room_for_kill_after_is_refused(self):
        done = self.expect(125, "exec", *SOURCE, "--ttl", "10s", "--kill-after", "5001ms", "--", "touch", "ran")
        self.assertRegex(done.stderr, "--ttl of at least 10002ms, or a --kill-after of at most 5000ms")
        self.assertFalse(os.path.exists(self.path("ran")))
        self.expect(0, "exec", *SOURCE, "--ttl", "10s", "--kill-after", "5s", "--", "true")
        self.expect(0, "exec", *SOURCE, "--ttl", "5s", "--", "true")  # the default is less where the lease is short

    def test_a_lock_that_is_held_is_1_or_the_code_asked_for(self):
        self.expect(0, "lease", "acquire", *SOURCE)
        done = self.expect(1, "exec", *SOURCE, "--wait", "50ms", "--", "touch", "ran")
        self.assertIn("held", done.stderr)
        self.expect(75, "exec", *SOURCE, "--wait", "50ms", "--conflict-exit-code", "75", "--", "touch", "ran")
        self.assertFalse(os.path.exists(self.path("ran")))

    def test_the_lock_is_free_as_soon_as_exec_has_ended(self):
        for _ in range(3):
            self.expect(0, "exec", *SOURCE, "--wait", "0s", "--ttl", "24m", "--", "true")

    def test_the_lease_is_kept_for_longer_than_its_time_to_live(self):
        process = self.running("--ttl", "12s", script="touch up; read -r line; exit 5",
                               stdin=support.subprocess.PIPE)
        shown = []

        def has_been_renewed():
            record = self.expect_json(0, "lease", "show", *SOURCE)
            shown.append(record["remaining_ms"])
            return any(later > earlier for earlier, later in zip(shown, shown[1:]))
        for _ in range(3):
            wait_until(has_been_renewed, what="a renewal")
            shown.clear()
        process.stdin.write("go\n")
        process.stdin.flush()
        self.assertEqual(process.wait(support.LIMIT_S), 5)

    def test_processes_of_the_command_end_before_the_lock_is_free(self):
        mark = f"MARK={self.folder}"
        self.expect(4, "exec", *SOURCE, "--kill-after", "200ms", "--", "sh", "-c",
                    "trap '' TERM; sleep 1000 & sleep 1000 & exit 4", env={"MARK": self.folder})
        self.assertEqual(support.processes_with(mark), [])


class Environment(Exec):
    def variables(self, *way, env=None):
        done = self.expect(0, "exec", *way, "--", "env", env=env)
        return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)

    def test_the_command_finds_its_claim(self):
        found = self.variables("--storage", "sqlite:data.db", "--init", "--resource", "accounts/42")
        fence = self.expect_json(0, "fence", "show", "--storage", "sqlite:data.db", "--resource",
                                 "accounts/42")
        self.assertEqual(found["FENCING_RESOURCE"], "accounts/42")
        self.assertEqual(found["FENCING_TOKEN"], fence["token"])
        self.assertRegex(found["FENCING_HOLDER"], r"^[0-9a-f]{32}$")

    def test_urls_and_tokens_of_ours_are_not_handed_on(self):
        env = {"FENCEGUARD_SOURCE": "sqlite:leases.db", "FENCEGUARD_SERVER_TOKEN": "s3cret",
               "FENCEGUARD_STATE": "postgres://u:s3cret@h/d", "FENCEGUARD_TOKEN": "3",
               "FENCEGUARD_LOG_LEVEL": "debug",
               "OTHER": "kept"}
        found = self.variables("--resource", "a", env=env)
        self.assertEqual({name for name in found if name.startswith("FENCEGUARD_")}, {"FENCEGUARD_LOG_LEVEL"})
        self.assertEqual(found["OTHER"], "kept")
        self.assertNotIn("s3cret", str(found))

    def test_over_a_server_the_claim_is_good_at_the_guard(self):
        server = self.serve()
        script = ('import http.client, os; link = http.client.HTTPConnection(os.environ["DATA"]); '
                  'link.request("PUT", "/a", b"x", {"Fencing-Token": os.environ["FENCING_TOKEN"], '
                  '"Fencing-Holder": os.environ["FENCING_HOLDER"]}); '
                  'print(link.getresponse().getheader("Fencing-Verdict"))')
        done = self.expect(0, "exec", "--server", server.url, "--resource", "a", "--", PYTHON, "-c", script,
                           env={"DATA": server.data})
        self.assertEqual(done.stdout, "admitted\n")
        self.assertEqual(done.stderr, "")

    def test_nothing_of_ours_is_open_in_the_command(self):
        done = self.expect(0, "exec", *SOURCE, "--", "ls", "-l", "/proc/self/fd")
        self.assertNotIn("socket:", done.stdout)
        self.assertNotIn("leases.db", done.stdout)
        self.assertNotIn("anon_inode", done.stdout)

    def test_command_inherits_the_callers_signal_mask(self):
        script = ("import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "
                  "signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1))")
        direct = support.subprocess.run([PYTHON, "-c", script], capture_output=True, text=True).stdout
        self.assertEqual(self.expect(0, "exec", *SOURCE, "--", PYTHON, "-c", script).stdout, direct)


class Signals(Exec):
    def test_signals_reach_the_command(self):
        for name in ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"]:
            with self.subTest(name):
                process = self.running(script=f"trap 'echo got {name}; exit 9' {name}; touch up; "
                                              "while :; do sleep 0.02; done")
                process.send_signal(getattr(signal, f"SIG{name}"))
                output, _ = process.communicate(timeout=support.LIMIT_S)
                self.assertEqual((process.returncode, output), (9, f"got {name}\n"))
                os.remove(self.path("up"))

    def test_signals_reach_the_whole_group(self):
        inner = "trap \"touch inner; exit\" TERM; touch up; while :; do sleep 0.02; done"
        process = self.running(script=f"sh -c '{inner}'; :")
        process.terminate()
        self.assertEqual(process.wait(support.LIMIT_S), 128 + signal.SIGTERM)
        wait_until(lambda: os.path.exists(self.path("inner")), what="the inner command's signal")

    def test_a_command_that_dies_of_a_forwarded_signal(self):
        process = self.running(script="touch up; exec sleep 1000")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(support.LIMIT_S), 128 + signal.SIGINT)
        self.expect(1, "lease", "show", *SOURCE)

    def test_a_signal_while_waiting_ends_the_wait(self):
        self.expect(0, "lease", "acquire", *SOURCE, "--ttl", "24m")
        process = self.start("exec", *SOURCE, "--wait", "24m", "--", "touch", "ran")
        wait_until(lambda: len(support.descendants(process.pid)) == 1, what="the supervisor")
        wait_until(lambda: signal.SIGTERM in blocked_signals(process.pid), what="exec's signal mask")
        process.terminate()
        self.assertEqual(process.wait(support.LIMIT_S), 128 + signal.SIGTERM)
        self.assertFalse(os.path.exists(self.path("ran")))

    def test_sigtstp_stops_exec_and_command_and_sigcont_resumes(self):
        # A group of its own in our session: the kernel drops SIGTSTP for a group that nobody in its session
        # looks after. A command that makes others would stop only in part where the signal meets its vfork(2).
        process = self.running("--ttl", "24m", script="touch up; exec sleep 1000", start_new_session=False,
                               process_group=0)
        os.set_blocking(process.stdout.fileno(), False)
        process.send_signal(signal.SIGTSTP)
        # exec stops itself only after its command: what continues it before is for the command alone.
        wait_until(lambda: state(process.pid) == "T", what="exec's stop")
        command = [pid for pid in support.descendants(process.pid) if state(pid) == "T"]
        self.assertNotEqual(command, [])
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: all(state(pid) != "T" for pid in [process.pid, *command]), what="the continuation")
        process.terminate()
        self.assertEqual(process.wait(support.LIMIT_S), 128 + signal.SIGTERM)

    def test_the_command_has_the_terminal(self):
        # On a terminal of its own: the command is in the foreground, Ctrl-C reaches it, and exec takes its
        # status.
        script = ("import os, signal, sys, time\n"
                  "signal.signal(signal.SIGINT, lambda *_: sys.exit(11))\n"
                  "print('foreground', os.tcgetpgrp(0) == os.getpgrp(), flush=True)\n"
                  "while True: time.sleep(0.05)\n")
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execve(support.BINARY, [support.BINARY, "exec", *SOURCE, "--", PYTHON, "-c", script],
                      support.environment())
        self.addCleanup(os.close, terminal)
        shown = b""
        while b"foreground True" not in shown:
            self.assertNotIn(b"foreground False", shown)
            shown += os.read(terminal, 1024)
        os.write(terminal, b"\x03")
        ended = wait_until(lambda: (found := os.waitpid(pid, os.WNOHANG))[0] and found, what="exec's end")
        self.assertEqual(os.waitstatus_to_exitcode(ended[1]), 11)


def state(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def blocked_signals(pid):
    with open(f"/proc/{pid}/status") as status:
        mask = next(int(line.split()[1], 16) for line in status if line.startswith("SigBlk:"))
    return {number for number in range(1, 64) if mask >> (number - 1) & 1}


if __name__ == "__main__":
    unittest.main()
