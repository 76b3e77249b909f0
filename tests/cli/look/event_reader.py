"""Reads /v1/events as a client does: a socket of its own, an event at a time."""

import json
import socket

from waiting import LIMIT_S


class EventReader:
    """A context manager. last: the id of the last event that came, which a later reader can resume from."""

    def __init__(self, server, last=None, headers=None, receive_buffer=None):
        host, _, port = server.control.rpartition(":")
        self.last = last
        self._link = socket.socket()
        if receive_buffer:
            self._link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._link.settimeout(LIMIT_S)
        self._link.connect((host, int(port)))
        fields = {"Host": server.control, **({"Last-Event-ID": last} if last else {}), **(headers or {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._link.sendall(f"GET /v1/events HTTP/1.1\r\n{lines}\r\n".encode())
        self._file = self._link.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()
        self._link.close()

    def head(self):
        """The status, and the fields by their names in lower case."""
        status = int(self._file.readline().split()[1])
        fields = {}
        while line := self._file.readline().strip():
            name, _, value = line.decode().partition(": ")
            fields[name.lower()] = value
        return status, fields

    def _lines(self):
        rest = b""
        while size := int(self._file.readline() or b"0", 16):
            rest += self._file.read(size)
            self._file.readline()
            *lines, rest = rest.split(b"\n")
            yield from (line.decode() for line in lines)

    def blocks(self):
        """(event, data) of every event, and ('', comment) of every comment; ends with the stream."""
        fields = {}
        for line in self._lines():
            if line.startswith(":"):
                yield "", line
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                self.last = fields.get("id", self.last)
                yield fields["event"], json.loads(fields["data"])
                fields = {}
            else:
                fields = {}

    def events(self, count):
        """The next so many, gaps included."""
        found = []
        for kind, data in self.blocks():
            if kind:
                found.append((kind, data))
            if len(found) == count:
                break
        return found
