"""Real ZooKeeper servers for tests: one, or three as an ensemble, each in a temporary folder, on a free port, gone afterwards."""

import glob
import os
import socket

from server_process import Members, ServerProcess, free_ports, program
from waiting import LIMIT_S

SETTINGS = {"tickTime": 100, "minSessionTimeout": 200, "maxSessionTimeout": 60000, "maxClientCnxns": 0,
            "clientPortAddress": "127.0.0.1", "admin.enableServer": "false", "4lw.commands.whitelist": "*"}
ANSWER_S = 1  # a server that is starting may take a connection and never answer on it
CLASSES = ("/usr/share/java/slf4j-simple.jar", "/usr/share/java/zookeeper.jar")


class Server(ServerProcess):
    """settings: further lines of its configuration."""

    def __init__(self, settings=None):
        super().__init__("zookeeper")
        self._settings = settings or {}
        os.mkdir(os.path.join(self.folder, "data"))
        self.configuration = os.path.join(self.folder, "zoo.cfg")
        self.start_on_free_ports()

    def choose_ports(self):
        self.configure(free_ports(1)[0])

    def configure(self, port):
        self.port = port
        lines = {**SETTINGS, "clientPort": self.port, "dataDir": os.path.join(self.folder, "data"), **self._settings}
        with open(self.configuration, "w", encoding="ascii") as file:
            file.writelines(f"{name}={value}\n" for name, value in lines.items())

    def words(self):
        missing = [jar for jar in CLASSES if not glob.glob(jar)]
        if missing:
            raise AssertionError(f"{missing} are not there: install zookeeper")
        return [program("java"), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dzookeeper.jmx.log4j.disable=true",
                "-Dzookeeper.preAllocSize=1024", "-Dzookeeper.fastleader.maxNotificationInterval=1000", "-Dznode.container.checkIntervalMs=500", "-cp", ":".join(CLASSES),
                "org.apache.zookeeper.server.quorum.QuorumPeerMain", self.configuration]

    def is_ready(self):
        try:
            return "Mode: " in self.ask("srvr", ANSWER_S)
        except OSError:
            return False

    def ask(self, word, limit_s=LIMIT_S):
        """The answer to a four-letter word."""
        with socket.create_connection(("127.0.0.1", self.port), limit_s) as link:
            link.sendall(word.encode())
            answer = b""
            while piece := link.recv(65536):
                answer += piece
            return answer.decode()

    def url(self, rest="", user="", password=""):
        """zookeeper://…@127.0.0.1:PORT and rest: '/root?layout=curator'."""
        credentials = f"{user}:{password}@" if user else ""
        return f"zookeeper://{credentials}127.0.0.1:{self.port}{rest}"


class Member(Server):
    """One of an ensemble, which gives it its port."""

    def __init__(self, number, port, peers):
        self._number, self._own_port = number, port
        super().__init__({"initLimit": 100, "syncLimit": 30, **peers})

    def start_on_free_ports(self):
        self.configure(self._own_port)
        with open(os.path.join(self.folder, "data", "myid"), "w", encoding="ascii") as file:
            file.write(str(self._number))
        self.launch()

    def launch(self):
        """A server that was killed before it wrote the first bytes of a new log does not start beside it (ZOOKEEPER-2332)."""
        for log in glob.glob(os.path.join(self.folder, "data", "version-2", "log.*")):
            if os.path.getsize(log) == 0:
                os.remove(log)
        super().launch()

    def is_leader(self):
        if not self.is_running() or self._is_paused:
            return False
        try:
            return "Mode: leader" in self.ask("srvr", ANSWER_S)
        except OSError:
            return False


class Ensemble(Members):
    def __init__(self, count=3):
        super().__init__("zookeeper")
        self.start_on_free_ports(lambda: self._start(count))

    def _start(self, count):
        ports = free_ports(3 * count)
        peers = {f"server.{i + 1}": f"127.0.0.1:{ports[3 * i + 1]}:{ports[3 * i + 2]}" for i in range(count)}
        for i in range(count):
            self.members.append(Member(i + 1, ports[3 * i], peers))
        for member in self.members:
            member.await_ready(2 * LIMIT_S)
