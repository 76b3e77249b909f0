"""A client that speaks PostgreSQL's protocol message by message, for what no driver does."""

import contextlib
import socket
import struct

from waiting import LIMIT_S


def message(kind, body=b""):
    return kind + struct.pack("!i", len(body) + 4) + body


def text(value):
    return (value if isinstance(value, bytes) else value.encode()) + b"\0"


def query(sql):
    return message(b"Q", text(sql))


def parse(sql, name=""):
    return message(b"P", text(name) + text(sql) + b"\0\0")


def bind(name="", portal=""):
    return message(b"B", text(portal) + text(name) + b"\0" * 6)


def execute(portal="", rows=0):
    return message(b"E", text(portal) + struct.pack("!i", rows))


def run(sql, name=""):
    """Parsed, bound and executed."""
    return parse(sql, name) + bind(name) + execute()


SYNC, FLUSH, COPY_DONE = message(b"S"), message(b"H"), message(b"c")


def copy_data(data):
    return message(b"d", data)


class RawClient:
    """send() and receive() of messages; an end of the connection is a message of type None."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=LIMIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def close(self):
        self._socket.close()

    def encrypt(self, context, is_direct=False):
        """Before start(). is_direct: without asking."""
        if not is_direct:
            self.send(struct.pack("!ii", 8, 80877103))
            assert self._socket.recv(1) == b"S"
        self._socket = context.wrap_socket(self._socket, server_hostname="localhost")

    def start(self, *parameters):
        """Parameters: (name, value), in their order. Answers the messages up to ReadyForQuery, or to the end."""
        body = struct.pack("!i", 196608) + b"".join(text(name) + text(value) for name, value in parameters) + b"\0"
        self.send(struct.pack("!i", len(body) + 4) + body)
        return self.until(b"Z")

    def end_sending(self):
        """Its own side ends; it still reads."""
        with contextlib.suppress(OSError):  # the other side was faster
            self._socket.shutdown(socket.SHUT_WR)

    def reset(self):
        """Closes it so that the other side sees a broken connection."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close()

    def send(self, data):
        self.sends(data)  # receive() tells

    def sends(self, data):
        """Whether it could; False: the connection has ended."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            return False
        return True

    def receive(self):
        """(type, body) of the next message."""
        while len(self._received) < 5 or len(self._received) < 1 + struct.unpack("!i", self._received[1:5])[0]:
            try:
                data = self._socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return None, b""
            self._received += data
        size = 1 + struct.unpack("!i", self._received[1:5])[0]
        found, self._received = self._received[:size], self._received[size:]
        return found[:1], found[5:]

    def until(self, *kinds):
        """The messages up to one of these types, or to the end of the connection."""
        found = [self.receive()]
        while found[-1][0] not in (*kinds, None):
            found.append(self.receive())
        return found

    def ask(self, data):
        self.send(data)
        return self.until(b"Z")


def states(messages):
    """The SQLSTATEs of the errors among them."""
    return [part[1:].decode() for kind, body in messages if kind == b"E" for part in body.split(b"\0") if part[:1] == b"C"]


def has_ended(messages):
    return messages[-1][0] is None
