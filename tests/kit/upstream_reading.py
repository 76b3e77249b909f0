"""Reading HTTP/1.1 requests as strictly as a test can: what is not understood beyond doubt is an Anomaly.

A proxy in front must have written every request anew, so whatever is odd here came through it.
"""

import re

HEAD_BYTES_MAX = 256 * 1024
HEAD_END = b"\r\n\r\n"

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (/[!-~]*|\*) HTTP/(1\.[01])")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):"
                    rb"[ \t]*((?:[!-~\x80-\xff](?:[ \t!-~\x80-\xff]*[!-~\x80-\xff])?)?)[ \t]*")
_SIZE_LINE = re.compile(rb"[0-9A-Fa-f]{1,15}")
_ONCE = ("host", "content-length", "transfer-encoding", "connection", "fencing-token", "fencing-holder",
         "fencing-sequence", "destination", "upstream-do")


class Anomaly(Exception):
    """A request that no careful proxy sends."""


class Head:
    """A request line and its fields. length: of the body, or None where it comes in chunks."""

    def __init__(self, raw):
        self.raw = raw
        line, *fields = raw[:-len(HEAD_END)].split(b"\r\n")
        if b"\n" in raw.replace(b"\r\n", b"") or b"\r" in raw.replace(b"\r\n", b""):
            raise Anomaly("a bare CR or LF")
        parts = _REQUEST_LINE.fullmatch(line)
        if not parts:
            raise Anomaly("a request line that cannot be read")
        self.method, self.target, self.version = (part.decode() for part in parts.groups())
        self.fields = {}
        for field in fields:
            self._add(field)
        if self.version == "1.1" and "host" not in self.fields:
            raise Anomaly("no Host")
        self.length = self._length()

    def _add(self, line):
        parts = _FIELD.fullmatch(line)
        if not parts:
            raise Anomaly("a field that cannot be read")
        name, value = parts.group(1).decode().lower(), parts.group(2).decode("latin-1")
        if name in self.fields and name in _ONCE:
            raise Anomaly(f"{name} comes twice")
        self.fields[name] = f"{self.fields[name]}, {value}" if name in self.fields else value

    def _length(self):
        length, coding = self.fields.get("content-length"), self.fields.get("transfer-encoding")
        if coding is not None:
            if length is not None:
                raise Anomaly("both Content-Length and Transfer-Encoding")
            if coding != "chunked" or self.version != "1.1":
                raise Anomaly("a Transfer-Encoding that is not just chunked")
            return None
        if length is None:
            return 0
        if not re.fullmatch("0|[1-9][0-9]{0,17}", length):
            raise Anomaly("an odd Content-Length")
        return int(length)

    @property
    def is_kept(self):
        """Whether the client wants to keep the connection."""
        words = [word.strip() for word in self.fields.get("connection", "").lower().split(",")]
        return "close" not in words and (self.version == "1.1" or "keep-alive" in words)


class Body:
    """Takes a request's body from a link, piece by piece; pieces() ends where the body does."""

    def __init__(self, link, head):
        self._link = link
        self._length = head.length

    async def pieces(self):
        if self._length is not None:
            async for piece in self._exactly(self._length):
                yield piece
            return
        while size := await self._chunk_size():
            async for piece in self._exactly(size):
                yield piece
            if await self._link.read_exactly(2) != b"\r\n":
                raise Anomaly("a chunk that does not end where it says")
        if await self._link.read_exactly(2) != b"\r\n":
            raise Anomaly("a trailer")

    async def _exactly(self, size):
        while size > 0:
            piece = await self._link.read_some(size)
            size -= len(piece)
            yield piece

    async def _chunk_size(self):
        line = await self._link.read_until(b"\r\n", 64)
        if not _SIZE_LINE.fullmatch(line[:-2]):
            raise Anomaly("an odd chunk size")
        return int(line[:-2], 16)
