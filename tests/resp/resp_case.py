"""What the tests of the sidecar in front of Redis share: a client that sees every byte, and a case with a sidecar."""

import socket
import threading
import time
import unittest

import redis_server
import support
from waiting import LIMIT_S, wait_until  # noqa: F401


class Failure(str):
    """An error that was answered: its words, without the '-'."""


def encoded(*words):
    """One request in RESP. Words are bytes, or what str() makes of them."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Client:
    """A connection to HOST:PORT. Replies are None, int, str (in Latin-1), list or Failure; Gone where there is none."""

    class Gone(Exception):
        pass

    def __init__(self, address, limit_s=LIMIT_S):
        host, _, port = str(address).rpartition(":")
        self.socket = socket.create_connection((host or "127.0.0.1", int(port)), limit_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what is sent behind an unanswered request is there
        self._file = self.socket.makefile("rb")

    def encrypt(self, context):
        """From the first byte on."""
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self._file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._file.close()
        self.socket.close()

    def reset(self):
        """Closes it so that the other side sees a broken connection."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close()

    def send(self, *commands):
        """Each a tuple of words."""
        self.send_bytes(b"".join(encoded(*command) for command in commands))

    def send_bytes(self, data):
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise self.Gone(str(error)) from None

    def read(self):
        try:
            line = self._file.readline()
        except OSError as error:
            raise self.Gone(str(error)) from None
        if not line.endswith(b"\r\n"):
            raise self.Gone("the connection has ended")
        kind, rest = line[:1], line[1:-2].decode("latin-1")
        if kind == b"-":
            return Failure(rest)
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if rest == "-1":
            return None
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        data = self._file.read(int(rest) + 2)
        if len(data) != int(rest) + 2:
            raise self.Gone("the connection has ended")
        return data[:-2].decode("latin-1")

    def call(self, *words):
        self.send(words)
        return self.read()

    def calls(self, *commands):
        """The replies to a pipeline."""
        self.send(*commands)
        return [self.read() for _ in commands]

    def rest(self):
        """All that still comes before the other side ends the connection."""
        received = b""
        try:
            while piece := self._file.read1(65536):
                received += piece
        except OSError:
            pass
        return received


def memory_mib(pid, field="VmRSS"):
    """Of a process; 'VmHWM' is the most that it was, since forget_peak()."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field + ":")) / 1024


def forget_peak(pid):
    with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


class Bystander:
    """A client that goes on meanwhile: counts its answers, and remembers the first that was wrong."""

    def __init__(self, address, *call, answer):
        self._call, self._answer = call, answer
        self.answers, self.wrong, self.longest_s = 0, None, 0.0
        self._client = Client(address)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            while not self._is_over.wait(0.005) and self.wrong is None:
                begin = time.monotonic()
                answer = self._client.call(*self._call)
                self.longest_s = max(self.longest_s, time.monotonic() - begin)
                if answer != self._answer:
                    self.wrong = answer
                self.answers += 1
        except Client.Gone as error:
            self.wrong = error

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()
        self._client.close()


def setUpModule():
    global SERVER
    SERVER = redis_server.Server()
    unittest.addModuleCleanup(SERVER.remove)


class RespTest(support.BinaryTest):
    """A case with an empty, initialised Redis of its file, and sidecars on demand."""

    def setUp(self):
        super().setUp()
        self.server = SERVER
        self.server.cli("FLUSHALL")
        self.initialise(self.server)

    def own_server(self, options=None, **more):
        server = redis_server.Server(options, **more)
        self.addCleanup(server.remove)
        return server

    def initialise(self, server, url=None):
        self.expect(0, "fence", "init", "--storage", url or server.url(), "--floor", "0")

    def sidecar(self, *arguments, server=None, url=None, env=None, threads=1):
        """A guard in front of the server; .data is where clients connect."""
        url = url or (server or self.server).url("/0?timeout=20s")
        return self.serve("--storage", url, "--threads", str(threads), *arguments, env=env)

    def client(self, sidecar, limit_s=LIMIT_S):
        client = Client(sidecar if isinstance(sidecar, (int, str)) else sidecar.data, limit_s)
        self.addCleanup(client.close)
        return client

    def redis(self, server=None):
        """A client of Redis itself."""
        return self.client((server or self.server).port)

    def claimed(self, sidecar, resource, token, holder="h"):
        """A client that holds a claim."""
        client = self.client(sidecar)
        self.assertEqual(client.call("FENCE", resource, token, holder), "OK")
        return client

    def assertFailure(self, answer, *beginnings):
        self.assertIsInstance(answer, Failure)
        self.assertTrue(answer.startswith(beginnings), answer)


class SidecarTest(support.BinaryTest):
    """self.redis is a server of the test's own; start_sidecar() puts a sidecar in front of one of its databases."""

    def setUp(self):
        super().setUp()
        self.redis = redis_server.Server()
        self.addCleanup(self.redis.remove)

    def start_sidecar(self, *arguments, database=0):
        url = self.redis.url(f"/{database}")
        self.expect(0, "fence", "init", "--storage", url, "--floor", "0")
        return self.serve("--storage", url, *arguments)
