"""Redis's protocol as bytes, for tests that compare replies to the byte: what is sent, and where a reply ends."""

import socket

from waiting import LIMIT_S


def encode(words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def parse(raw, at=0):
    """The value of a reply, and where it ends: bytes, int, None, a list, or an Exception for an error."""
    end = raw.index(b"\r\n", at)
    kind, rest, after = raw[at:at + 1], raw[at + 1:end], end + 2
    if kind == b"+":
        return rest, after
    if kind == b"-":
        return RuntimeError(rest), after
    if kind == b":":
        return int(rest), after
    size = int(rest)
    if size < 0:
        return None, after
    if kind == b"$":
        return raw[after:after + size], after + size + 2
    values = []
    for _ in range(size):
        value, after = parse(raw, after)
        values.append(value)
    return values, after


def value_of(raw):
    return parse(raw)[0]


class Wire:
    """A connection on which requests are sent and replies are read as bytes."""

    def __init__(self, address, timeout_s=LIMIT_S):
        self._socket = socket.create_connection(address, timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._bytes = b""
        self._at = 0

    def close(self):
        self._socket.close()

    def send(self, *commands):
        self._socket.sendall(b"".join(map(encode, commands)))

    def read(self):
        """The bytes of one reply."""
        begin, left = self._at, 1
        while left:
            line = self._line()
            left -= 1
            if line[:1] == b"$" and line != b"$-1":
                self._skip(int(line[1:]) + 2)
            elif line[:1] == b"*":
                left += max(0, int(line[1:]))
        reply = self._bytes[begin:self._at]
        if self._at == len(self._bytes) or self._at > 1 << 20:
            self._bytes, self._at = self._bytes[self._at:], 0
        return reply

    def call(self, *words):
        self.send([word if isinstance(word, bytes) else str(word).encode() for word in words])
        return value_of(self.read())

    def _line(self):
        while (end := self._bytes.find(b"\r\n", self._at)) < 0:
            self._receive()
        line, self._at = self._bytes[self._at:end], end + 2
        return line

    def _skip(self, size):
        while len(self._bytes) < self._at + size:
            self._receive()
        self._at += size

    def _receive(self):
        chunk = self._socket.recv(1 << 18)
        if not chunk:
            raise ConnectionError("the server hung up")
        self._bytes += chunk
