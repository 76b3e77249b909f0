"""A standby of a guard: it takes over when the first is dead, and never because it is silent.

Shows, on one machine: a paused guard keeps the state, a dead one does not. On two, whose locks the other does not see: a
guard that is paused, cut off from the network, or killed keeps the state until a fence method has shown that it is dead;
then the standby serves, and what the first had let in is awaited for the settle time. How: the machines are network
namespaces with host names of their own; locks of the state always look free to the standby (the LD_PRELOAD of a few
lines), as on a file system that has none for other machines.
"""

import os
import signal
import subprocess
import sys
import time
import unittest

import support
from method import Method, make_script
from waiting import wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proxy"))
import namespaces  # noqa: E402

NO_LOCKS = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/file.h>
int flock(int descriptor, int operation) { (void)descriptor; (void)operation; return 0; }
"""
SETTLE = "5s"  # longer than a busy machine needs to see that nothing is let in
PRIMARY_IP, STANDBY_IP, STORAGE_IP = "10.98.0.1", "10.98.0.2", "10.98.0.3"
KIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "kit")


def run(*words):
    subprocess.run(words, check=True)


class Machine:
    """A network namespace with a host name, on a bridge."""

    def __init__(self, name, address):
        self.name, self.address = name, address
        self.home = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c",
                                      f"hostname {name}; exec sleep infinity"])
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{self.home.pid}/ns/net") != own and self.hostname() == name,
                   what="a machine of its own")
        run("ip", "link", "add", f"{name}0", "type", "veth", "peer", "name", "eth0", "netns", str(self.home.pid))
        run("ip", "link", "set", f"{name}0", "master", "bridge0", "up")
        for words in (["address", "add", f"{address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"],
                      ["link", "set", "lo", "up"]):
            run(*self.inside("ip", *words))

    def hostname(self):
        return subprocess.run(self.inside("hostname"), capture_output=True, text=True, check=False).stdout.strip()

    def inside(self, *words):
        return ["nsenter", "--target", str(self.home.pid), "--net", "--uts", *words]

    def start(self, *words, folder, log, environment=None):
        return subprocess.Popen(self.inside(*words), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=log, text=True, env={**os.environ, **(environment or {})})

    def cut_off(self):
        run("ip", "link", "set", f"{self.name}0", "down")

    def end(self):
        self.home.kill()
        self.home.wait()
        subprocess.run(["ip", "link", "delete", f"{self.name}0"], stderr=subprocess.DEVNULL, check=False)


class TwoMachines(support.BinaryTest):
    def setUp(self):
        super().setUp()
        run("ip", "link", "add", "bridge0", "type", "bridge")
        self.addCleanup(run, "ip", "link", "delete", "bridge0")
        run("ip", "link", "set", "bridge0", "up")
        self.storage, self.primary, self.standby = (self.machine(*words) for words in (
            ("storage", STORAGE_IP), ("primary", PRIMARY_IP), ("standby", STANDBY_IP)))
        with open(self.path("storage.log"), "w") as log:
            web = self.storage.start(sys.executable, "-B", os.path.join(KIT, "upstream.py"), "--host", STORAGE_IP,
                                     "--log", self.path("events"), folder=self.folder, log=log)
        self.addCleanup(support.end_process, web)
        self.port = int(web.stdout.readline().split()[1])
        self.method = Method(self.path("one"), status=1)
        with open(self.path("no_locks.c"), "w") as file:
            file.write(NO_LOCKS)
        run("cc", "-shared", "-fPIC", "-o", self.path("no_locks.so"), self.path("no_locks.c"))

    def machine(self, *words):
        machine = Machine(*words)
        self.addCleanup(machine.end)
        return machine

    def guard(self, machine, *more, sees_locks=True):
        log = open(self.path(f"{machine.name}.log"), "w")
        self.addCleanup(log.close)
        control = f"unix:{self.path(machine.name)}"
        process = machine.start(
            support.BINARY, "serve", "--standby", "--storage", f"http://{STORAGE_IP}:{self.port}", "--state",
            "sqlite:state.db", "--forward-claim", "--settle", SETTLE, "--listen", f"{machine.address}:7420", "--control",
            control, *more, folder=self.folder, log=log,
            environment={} if sees_locks else {"LD_PRELOAD": self.path("no_locks.so")})
        self.addCleanup(support.end_process, process)
        return process

    def said(self, machine):
        with open(self.path(f"{machine.name}.log"), encoding="utf-8") as log:
            return log.read()

    def write(self, machine, token, limit_s=support.LIMIT_S):
        """From the machine of the guard itself; its status, 0: it does not answer."""
        told = subprocess.run(machine.inside(
            "curl", "-s", "-o", "/dev/null", "-m", str(limit_s), "-w", "%{http_code}", "-X", "PUT", "-H",
            f"Fencing-Token: {token}", "-H", f"Fencing-Holder: h{token}", "-d", "x", f"http://{machine.address}:7420/r"),
            capture_output=True, text=True, check=False)
        return int(told.stdout or 0)

    def test_a_primary_that_is_paused_cut_off_and_killed(self):
        primary = self.guard(self.primary, "--init", "--settled")
        self.assertTrue(primary.stdout.readline().startswith("listening"))
        self.assertEqual(self.write(self.primary, 34), 201)
        standby = self.guard(self.standby, "--fence-method", self.method.word, sees_locks=False)
        wait_until(lambda: "no lock tells here whether it lives" in self.said(self.standby), what="a standby that waits")
        primary.send_signal(signal.SIGSTOP)
        self.primary.cut_off()
        tries = len(self.method.runs())
        self.method.await_run(tries + 2)
        self.assertEqual(self.write(self.primary, 34, limit_s=2), 0)
        self.assertEqual(self.write(self.standby, 35, limit_s=2), 0, "silence is no proof")
        self.assertNotIn("event=listening", self.said(self.standby))
        make_script(self.method.path, f"#!/bin/sh\nkill -9 {primary.pid}\nwhile grep -q '^State:.[^Z]' "
                    f"/proc/{primary.pid}/status; do sleep 0.02; done\n")
        self.assertTrue(standby.stdout.readline().startswith("listening"))
        self.assertEqual(primary.wait(), -signal.SIGKILL)
        self.assertEqual(self.write(self.standby, 35), 503, "what the first had let in may still be under way")
        wait_until(lambda: self.write(self.standby, 35) == 204, what="an open lane")
        self.assertEqual(self.write(self.standby, 34), 412)
        self.assertIn('event=fence_method method=command outcome=success resource="*"', self.said(self.standby))

    def test_one_that_ended_in_order_is_followed_without_a_method(self):
        primary = self.guard(self.primary, "--init", "--settled")
        self.assertTrue(primary.stdout.readline().startswith("listening"))
        self.assertEqual(self.write(self.primary, 34), 201)
        standby = self.guard(self.standby, sees_locks=False)
        wait_until(lambda: "give a --fence-method that shows it" in self.said(self.standby), what="a standby that waits")
        primary.send_signal(signal.SIGTERM)
        self.assertTrue(standby.stdout.readline().startswith("listening"))
        self.assertEqual(primary.wait(), 0)
        self.assertEqual(self.write(self.standby, 35), 204, "the state shows that nothing is under way")

    def test_resetting_own_connections_proves_nothing_of_others(self):
        primary = self.guard(self.primary, "--init", "--settled")
        self.assertTrue(primary.stdout.readline().startswith("listening"))
        primary.kill()
        primary.wait()
        self.guard(self.standby, "--fence-method", "upstream-reset", sees_locks=False)
        wait_until(lambda: "give a --fence-method that shows it" in self.said(self.standby), what="a standby that waits")
        self.assertNotIn("event=fence_method", self.said(self.standby))

    def test_of_two_standbys_one_takes_over(self):
        primary = self.guard(self.primary, "--init", "--settled")
        self.assertTrue(primary.stdout.readline().startswith("listening"))
        primary.kill()
        primary.wait()
        third = self.machine("third", "10.98.0.4")
        self.method.hold()
        # True of the first owner, whom both ask about at a time, and of nobody after it.
        folder = self.method.folder
        make_script(self.method.path, f"#!/bin/sh\necho begun '*' 0 0 >> {folder}/runs\nn=$(grep -c begun {folder}/runs)\n"
                    f"while [ -e {folder}/hold ]; do sleep 0.02; done\n[ $n -le 2 ]\n")
        standbys = {machine: self.guard(machine, "--fence-method", self.method.word, sees_locks=False)
                    for machine in (self.standby, third)}
        self.method.await_run(2)
        self.method.release()
        (winner,) = wait_until(lambda: [machine for machine in standbys if "event=listening" in self.said(machine)],
                               what="one that serves")
        (other,) = set(standbys) - {winner}
        wait_until(lambda: f"@{winner.name} has the state" in self.said(other), what="one that waits for the other")
        self.method.await_run(4)
        self.assertNotIn("event=listening", self.said(other))


class OneMachine(support.BinaryTest):
    def words(self):
        return ["--standby", "--storage", "http://127.0.0.1:1", "--state", "sqlite:state.db", "--init", "--settled"]

    def second(self):
        process = self.start("serve", *self.words(), "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0")
        return process

    def test_the_lock_alone_tells_and_a_paused_guard_keeps_it(self):
        first = self.serve(*self.words())
        first.process.send_signal(signal.SIGSTOP)
        second = self.second()
        time.sleep(1)  # for what must not come
        self.assertIsNone(second.poll())
        first.process.send_signal(signal.SIGKILL)
        self.assertTrue(second.stdout.readline().startswith("listening"))

    def test_guard_without_standby_refuses_a_standbys_state(self):
        for end in (signal.SIGKILL, signal.SIGTERM):
            first = self.serve(*self.words())
            first.stop(end)
            told = self.expect(3, "serve", *self.words()[1:])
            self.assertIn("guards with --standby share this state", told.stderr)
            self.assertIn("state.db-owner.", told.stderr)
        for name in os.listdir(self.folder):
            if name.startswith("state.db-owner."):
                os.unlink(self.path(name))
        self.serve(*self.words()[1:])

    def test_it_is_for_a_state_in_a_file(self):
        told = self.expect(2, "serve", "--standby", "--storage", "sqlite:data.db")
        self.assertIn("--standby is for the guard of an http: storage", told.stderr)


if __name__ == "__main__":
    namespaces.enter("net", ["ip", "link", "add", "bridge0", "type", "bridge"])
    run("ip", "link", "set", "lo", "up")
    unittest.main()
