"""Real Redis servers for tests: each in a temporary folder, on a free port, and gone afterwards.

A Server keeps no data on disk unless its options say so. A Cluster is several of them as a Redis Cluster. What a
server left behind is ended and removed when the test's process is over, even if that was killed. The program is
redis-server, or what FENCEGUARD_REDIS_SERVER names, such as valkey-server.

Nothing here sleeps for luck: wait_until() waits for a condition, with a limit. A missing server is a failure.
"""

import contextlib
import os
import socket

from server_process import PORT_MIN, Members, ServerProcess, free_ports, program
from waiting import LIMIT_S, wait_until

BUS = 10_000  # a cluster's bus takes the port so far above
PORTS = (PORT_MIN, 32_768 - BUS)  # by default connections are given those from 32768 on


class RedisError(Exception):
    """The server answered with an error: its own words."""


class Link:
    """A connection that speaks RESP. call() answers None, int, str or list, and raises RedisError."""

    def __init__(self, port, timeout_s=LIMIT_S):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._file = self._socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._file.close()
        self._socket.close()

    def call(self, *words):
        encoded = [str(word).encode() for word in words]
        self._socket.sendall(b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in encoded))
        return self._read()

    def _read(self):
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server hung up")
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b"-":
            raise RedisError(rest)
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if rest == "-1":
            return None
        if kind == b"$":
            return self._file.read(int(rest) + 2)[:-2].decode()
        return [self._read() for _ in range(int(rest))]


class Server(ServerProcess):
    """A redis-server. Started by its constructor; a context manager that removes it.

    folder holds everything; port and folder stay the same over stop() or kill() and start(). options: further words
    of its configuration by name ('appendonly': 'yes'). replica_of: a Server. password: of the default user.
    """

    def __init__(self, options=None, replica_of=None, password=None):
        self.options = dict(options or {})
        if replica_of is not None:
            self.options["replicaof"] = ("127.0.0.1", str(replica_of.port))
            if replica_of.password:
                self.options["masterauth"] = replica_of.password
        self.password = password
        if password:
            self.options["requirepass"] = password
        super().__init__("redis")
        self.start_on_free_ports()

    def choose_ports(self):
        while True:
            self.port, = free_ports(1, PORTS)
            with contextlib.suppress(OSError):
                free_ports(1, (self.port + BUS, self.port + BUS + 1))
                return

    def words(self):
        settings = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, "appendonly": "no", "save": "",
                    "daemonize": "no", **self.options}
        words = [program(os.environ.get("FENCEGUARD_REDIS_SERVER", "redis-server"))]
        for name, value in settings.items():
            words += [f"--{name}", *([str(value)] if not isinstance(value, tuple) else value)]
        return words

    def is_ready(self):
        """Whatever it says, even that a password is needed, but that it still loads."""
        try:
            with Link(self.port) as link:
                link.call("PING")
        except RedisError as error:
            return not str(error).startswith("LOADING")
        except OSError:
            return False
        return True

    # -- what is in it ----------------------------------------------------------------------------------------------

    def url(self, rest="", user="", password=None):
        """redis://…@127.0.0.1:PORT and rest: '/0?fair=1'. With the server's own password unless another is given."""
        password = self.password if password is None else password
        credentials = f"{user}:{password}@" if user or password else ""
        return f"redis://{credentials}127.0.0.1:{self.port}{rest}"

    def link(self):
        """A Link that has given the password."""
        link = Link(self.port)
        if self.password:
            link.call("AUTH", self.password)
        return link

    def cli(self, *words):
        """The answer to one command, on a connection of its own. Raises RedisError."""
        with self.link() as link:
            return link.call(*words)

    def info(self, section):
        lines = self.cli("INFO", section).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def wait_for_replicas(self, count=1):
        """Returns when that many replicas follow and have everything."""
        def is_followed():
            info = self.info("replication")
            offset = info["master_repl_offset"]
            lines = [value for name, value in info.items() if name.startswith("slave") and "offset=" in value]
            return sum("state=online" in line and f"offset={offset}," in line for line in lines) >= count
        wait_until(is_followed, what="replicas that follow")


class Cluster(Members):
    """Several masters as a Redis Cluster: self.nodes."""

    def __init__(self, masters=3):
        super().__init__("redis")
        self.nodes = self.members
        try:
            for _ in range(masters):
                self.nodes.append(Server({"cluster-enabled": "yes", "cluster-node-timeout": "60000"}))
            self._join()
        except BaseException:
            self.remove()
            raise

    def _join(self):
        slots, count = 16384, len(self.nodes)
        for index, node in enumerate(self.nodes):
            node.cli("CLUSTER", "ADDSLOTSRANGE", slots * index // count, slots * (index + 1) // count - 1)
            node.cli("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
            if index > 0:
                node.cli("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        wait_until(lambda: all(self._is_whole(node) for node in self.nodes), what="a whole cluster")

    def _is_whole(self, node):
        return ("cluster_state:ok" in node.cli("CLUSTER", "INFO")
                and len(node.cli("CLUSTER", "SLOTS")) == len(self.nodes))
