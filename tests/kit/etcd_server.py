"""Real etcd members for tests: one, or three as a cluster, each in a temporary folder, on free ports, gone afterwards."""

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request

import support
from server_process import Members, ServerProcess, free_ports, program
from waiting import LIMIT_S

ANSWER_S = 1


class Server(ServerProcess):
    """password: authentication is switched on, with it for the user root."""

    def __init__(self, password=None):
        super().__init__("etcd")
        self.password = None
        self.start_on_free_ports()
        if password:
            self.ctl("user", "add", f"root:{password}")
            self.ctl("user", "grant-role", "root", "root")
            self.ctl("auth", "enable")
        self.password = password

    def choose_ports(self):
        self.port, self._peer_port = free_ports(2)
        shutil.rmtree(os.path.join(self.folder, "data"), ignore_errors=True)  # which would hold the ports before

    def words(self):
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self._peer_port}"
        return [program("etcd"), "--name", "one", "--data-dir", os.path.join(self.folder, "data"),
                "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
                "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}",
                "--heartbeat-interval", "50", "--election-timeout", "500", "--logger", "zap", "--log-level", "error"]

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=ANSWER_S) as answer:
                return b'"true"' in answer.read()
        except (OSError, urllib.error.URLError):
            return False

    def _words_of_ctl(self, arguments):
        user = ["--user", f"root:{self.password}"] if self.password else []
        return [program("etcdctl"), f"--endpoints=127.0.0.1:{self.port}", "--dial-timeout=20s", "--command-timeout=20s", *user,
                *arguments]

    def ctl(self, *arguments):
        """The output of etcdctl."""
        done = subprocess.run(self._words_of_ctl(arguments), env=support.environment({"ETCDCTL_API": "3"}),
                              capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if done.returncode != 0:
            raise AssertionError(f"etcdctl {arguments} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def start_ctl(self, *arguments):
        """etcdctl, as a process that stays."""
        return subprocess.Popen(self._words_of_ctl(arguments), env=support.environment({"ETCDCTL_API": "3"}), text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def url(self, rest=""):
        """etcd://…@127.0.0.1:PORT and rest: '/prefix?tls=1'. With the password, if there is one."""
        credentials = f"root:{self.password}@" if self.password else ""
        return f"etcd://{credentials}127.0.0.1:{self.port}{rest}"


class Member(Server):
    """One of a cluster, which gives it its ports."""

    def __init__(self, name, ports, peers):
        self._name, self._ports, self._peers = name, ports, peers
        super().__init__()

    def start_on_free_ports(self):
        self.port, self._peer_port = self._ports
        self.launch()

    def words(self):
        words = super().words()
        words[words.index("--name") + 1] = self._name
        words[words.index("--initial-cluster") + 1] = self._peers
        return words

    def is_leader(self):
        """False where it does not answer, too."""
        if not self.is_running() or self._is_paused:
            return False
        try:
            status = json.loads(self.ctl("endpoint", "status", "-w", "json"))[0]["Status"]
        except (AssertionError, ValueError, KeyError):
            return False
        return status.get("leader") == status["header"]["member_id"]


class Cluster(Members):
    def __init__(self, count=3):
        super().__init__("etcd")
        self.start_on_free_ports(lambda: self._start(count))

    def _start(self, count):
        ports = free_ports(2 * count)
        pairs = list(zip(ports[::2], ports[1::2]))
        peers = ",".join(f"m{i}=http://127.0.0.1:{peer}" for i, (_, peer) in enumerate(pairs))
        for i, pair in enumerate(pairs):
            self.members.append(Member(f"m{i}", pair, peers))
        for member in self.members:
            member.await_ready()
