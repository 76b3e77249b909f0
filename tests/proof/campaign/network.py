"""A network of their own for clients, joined to this machine's by a pair of virtual links, which can go down or lead nowhere."""

import contextlib
import os
import random
import subprocess

from waiting import wait_until


def run(*words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: {done.stderr.strip()}")


class Network:
    """host: this machine, as clients there see it. words: what a command begins with that is to run there."""

    def __init__(self):
        chooser = random.SystemRandom()
        net = f"10.{chooser.randrange(200, 256)}.{chooser.randrange(256)}"
        self.host, there = f"{net}.1", f"{net}.2"
        self._link = f"fg{chooser.randrange(16**6):06x}"
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL)
        pid = self._holder.pid
        self.words = ["nsenter", f"--net=/proc/{pid}/ns/net"]
        try:
            wait_until(lambda: os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"), what="a network")
            run("ip", "link", "add", self._link, "type", "veth", "peer", "name", "out", "netns", str(pid))
            run("ip", "address", "add", f"{self.host}/24", "dev", self._link)
            run("ip", "link", "set", self._link, "up")
            run(*self.words, "ip", "address", "add", f"{there}/24", "dev", "out")
            run(*self.words, "ip", "link", "set", "out", "up")
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def down(self):
        run("ip", "link", "set", self._link, "down")
        try:
            yield
        finally:
            run("ip", "link", "set", self._link, "up")

    @contextlib.contextmanager
    def blackhole(self):
        """What clients send goes nowhere; what is sent to them arrives."""
        run(*self.words, "ip", "route", "add", "blackhole", f"{self.host}/32")
        try:
            yield
        finally:
            run(*self.words, "ip", "route", "del", "blackhole", f"{self.host}/32")

    def close(self):
        """The links go with the namespace."""
        self._holder.kill()
        self._holder.wait()
