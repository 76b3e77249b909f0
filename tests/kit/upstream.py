#!/usr/bin/python3
"""A web server that knows nothing of tokens, for tests: it does what each request asks of it, and logs what it did.

    upstream.py [--host IP] [--port N] [--do WORDS] [--log FILE] [--backlog N]     prints 'listening PORT'

It keeps objects in memory (upstream_objects.py) and reads strictly (upstream_reading.py). What goes wrong with a
request is said by its header Upstream-Do, or by --do where there is none: words with blanks between.

  before the body is read   early=STATUS     answers, then reads the body and applies nothing
                            die-mid-body     reads some of the body, then resets
  the body                  count            is only counted; a GET of it answers a pattern
  before it is applied      hold=TIME        waits, and then goes on even if the client is gone
                            await=N          likewise, until N writes have taken effect, of all since the start
                            drop             closes the connection; nothing is applied
                            reset            resets it; nothing is applied
                            unapplied        nothing is applied, whatever is answered
  after it is applied       hold-answer=TIME waits
                            apply-reset      resets the connection
                            never            no answer, as long as the client stays
  the answer                status=N  field=NAME:VALUE  body=BYTES (a pattern)  interim=N (before)
                            chunked  until-close  http10  close (says so, and does)
                            half (its head and half of its body, then closes)  half-head
                            twice  garbage  both-framings  slow=TIME (between bytes)
                            await-mid=N (as await, behind the first part of its body)
  after it                  hang-up (closes, and had not said so)  more (bytes that nobody asked for)

TIME reads 500ms or 2s. A request by the method DEFAULT sets what stands for --do, and is not logged.

The log is one JSON object a line, in the order in which things happened, each with event, n and time (CLOCK_MONOTONIC):
  seen      connection, method, path, head (hex): every request, when its head is in
  whole     connection, method, path, body (its first bytes), length, crc: a request whose body is in, to its end
  applied   likewise, and token, destination: a write that took effect
  refused   likewise: a write that was done and had no effect, with its status
  answered  connection, status: the answer has been handed to the kernel whole
  cut       connection, reason: the client went away within a request
  anomaly   connection, reason, bytes (hex): what no careful proxy sends
"""

import argparse
import asyncio
import json
import re
import socket
import struct
import sys
import time
import zlib

from upstream_objects import KEPT_BYTES_MAX, READS, Answer, Content, Objects
from upstream_reading import HEAD_BYTES_MAX, HEAD_END, Anomaly, Body, Head

PIECE_BYTES = 256 * 1024
LOGGED_BYTES = 256
REASONS = {200: "OK", 201: "Created", 202: "Accepted", 204: "No Content", 206: "Partial Content"}
KNOWN = set("early die-mid-body count hold drop reset unapplied hold-answer apply-reset never status field body "
            "interim chunked until-close http10 close half half-head twice garbage both-framings slow hang-up "
            "more await await-mid".split())


class Gone(Exception):
    """The connection is over."""


def parse_words(text):
    """{'hold': '500ms', 'drop': ''}."""
    words = dict(word.partition("=")[::2] for word in text.split())
    if unknown := set(words) - KNOWN:
        raise Anomaly(f"Upstream-Do does not know {sorted(unknown)}")
    return words


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(ms|s)", text).groups()
    return int(number) / (1000 if unit == "ms" else 1)


class Log:
    def __init__(self, path):
        self._file = open(path, "a", encoding="ascii") if path else None
        self._n = 0

    def add(self, event, link, **members):
        self._n += 1
        if self._file:
            line = {"event": event, "n": self._n, "time": time.monotonic(), "connection": link.number, **members}
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()


class Link(asyncio.Protocol):
    """One connection: bytes as they come, with a bound; writes that wait for the client."""

    count = 0

    def __init__(self, serve):
        Link.count += 1
        self.number = Link.count
        self.buffer = bytearray()
        self._serve = serve
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self.is_at_end = False
        self.gone = asyncio.Event()

    def connection_made(self, transport):
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._task = asyncio.ensure_future(self._serve(self))

    def data_received(self, data):
        self.buffer += data
        if len(self.buffer) > 4 * PIECE_BYTES:
            self.transport.pause_reading()
        self._changed.set()

    def eof_received(self):
        self.is_at_end = True
        self._changed.set()
        self.gone.set()
        return True

    def connection_lost(self, _):
        self.is_at_end = True
        for event in (self._changed, self._writable, self.gone):
            event.set()

    def pause_writing(self):
        self._writable.clear()

    def resume_writing(self):
        self._writable.set()

    async def _more(self):
        if self.is_at_end:
            raise Gone("the client closed")
        self._changed.clear()
        self.transport.resume_reading()
        await self._changed.wait()

    async def read_some(self, most):
        while not self.buffer:
            await self._more()
        piece = bytes(self.buffer[:most])
        del self.buffer[:most]
        return piece

    async def read_exactly(self, size):
        while len(self.buffer) < size:
            await self._more()
        return await self.read_some(size)

    async def read_until(self, end, most):
        """Up to and with end."""
        while (at := self.buffer.find(end)) < 0:
            if len(self.buffer) > most:
                raise Anomaly("a line or head without end")
            if self.is_at_end and self.buffer:
                raise Anomaly("the end within a line or head")
            await self._more()
        return await self.read_exactly(at + len(end))

    async def write(self, data, pause_s=0):
        for piece in ([data] if not pause_s else [data[i:i + 1] for i in range(len(data))]):
            await self._writable.wait()
            if self.transport.is_closing():
                raise Gone("the client went away")
            self.transport.write(piece)
            if pause_s:
                await asyncio.sleep(pause_s)
        await self._writable.wait()

    def reset(self):
        """What is on its way to the client is lost, and the client is told by RST."""
        option = struct.pack("ii", 1, 0)
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
        self.transport.abort()


class Upstream:
    def __init__(self, log, default):
        self._log = log
        self._default = default
        self._objects = Objects()
        self._effects = 0  # writes that have taken effect

    async def serve(self, link):
        try:
            while await self._one(link):
                pass
        except Anomaly as anomaly:
            self._log.add("anomaly", link, reason=str(anomaly), bytes=bytes(link.buffer[:4096]).hex())
            if not link.transport.is_closing():
                link.transport.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        except Gone:
            pass
        finally:
            link.transport.close()

    async def _one(self, link):
        """One request and its answer. False: the connection is over."""
        raw = await link.read_until(HEAD_END, HEAD_BYTES_MAX)
        try:
            head = Head(raw)
        except Anomaly as anomaly:
            link.buffer[:0] = raw
            raise anomaly
        if head.method == "DEFAULT":
            self._default = head.fields.get("upstream-do", "")
            parse_words(self._default)
            await link.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            return True
        self._log.add("seen", link, method=head.method, path=head.target, head=raw.hex())
        words = parse_words(head.fields.get("upstream-do", self._default))
        try:
            return await self._handle(link, head, words)
        except Gone as gone:
            self._log.add("cut", link, reason=str(gone))
            raise

    async def _handle(self, link, head, words):
        if "100-continue" in head.fields.get("expect", "").lower() and "early" not in words:
            await link.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "early" in words:
            await self._answer(link, head, Answer(int(words["early"])), words)
        content = await self._read(link, head, words)
        self._log.add("whole", link, method=head.method, path=head.target, **self._told(content))
        if "early" in words:
            return head.is_kept
        if "hold" in words:
            await asyncio.sleep(seconds(words["hold"]))
        if "await" in words:
            await self._await_effects(words["await"])
        if "drop" in words:
            return False
        if "reset" in words:
            link.reset()
            return False
        answer = Answer(200) if "unapplied" in words else self._apply(link, head, content)
        if "status" in words:
            answer.status = int(words["status"])
        return await self._end(link, head, answer, words)

    async def _await_effects(self, count):
        while self._effects < int(count):
            await asyncio.sleep(0.005)

    async def _read(self, link, head, words):
        kept, size, crc = bytearray(), 0, 0
        async for piece in Body(link, head).pieces():
            size += len(piece)
            crc = zlib.crc32(piece, crc)
            if "die-mid-body" in words:
                link.reset()
                raise Gone("died within the body")
            if "count" not in words and size <= KEPT_BYTES_MAX:
                kept += piece
            elif len(kept) < LOGGED_BYTES:
                kept += piece[:LOGGED_BYTES - len(kept)]
        return Content(bytes(kept), size, crc)

    @staticmethod
    def _told(content):
        return {"body": content.data[:LOGGED_BYTES].decode("latin-1"), "length": content.size, "crc": content.crc}

    def _apply(self, link, head, content):
        answer = self._objects.apply(head, content)
        if head.method not in READS:
            took_effect = self._objects.took_effect(head.method, answer.status)
            self._effects += took_effect
            self._log.add("applied" if took_effect else "refused", link, method=head.method, path=head.target,
                          **self._told(content), token=head.fields.get("fencing-token"),
                          destination=head.fields.get("destination"), status=answer.status)
        return answer

    async def _end(self, link, head, answer, words):
        if "hold-answer" in words:
            await asyncio.sleep(seconds(words["hold-answer"]))
        if "apply-reset" in words:
            link.reset()
            return False
        if "never" in words:
            await link.gone.wait()
            return False
        return await self._answer(link, head, answer, words)

    async def _answer(self, link, head, answer, words):
        """Sends it as words ask. False: the connection is over."""
        if "garbage" in words:
            await link.write(b"\x16\x03\x01 this is no HTTP \x00\r\n\r\n")
            return False
        if link.buffer and "early" not in words:
            raise Anomaly("bytes after a request, before its answer")
        if "interim" in words:
            await link.write(f"HTTP/1.1 {words['interim']} Interim\r\nLink: </style.css>; rel=preload\r\n\r\n".encode())
        if "body" in words:
            answer = Answer(answer.status, Content(size=int(words["body"])), answer.fields)
        has_body = head.method != "HEAD" and answer.status not in (204, 304)
        text = self._head_of(head, answer, words)
        pause_s = seconds(words["slow"]) if "slow" in words else 0
        if "half-head" in words:
            await link.write(text[:len(text) // 2])
            return False
        for _ in range(2 if "twice" in words else 1):
            if has_body:
                await self._send_body(link, text, answer, words, pause_s)
            else:
                await link.write(text, pause_s)
        if "half" in words:
            return False
        self._log.add("answered", link, status=answer.status)
        if "more" in words:
            await link.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        return head.is_kept and not {"close", "until-close", "http10", "hang-up"} & set(words)

    @staticmethod
    def _head_of(head, answer, words):
        fields = dict(answer.fields)
        if "both-framings" in words:
            fields.update({"Content-Length": answer.size, "Transfer-Encoding": "chunked"})
        elif "chunked" in words and answer.status != 204:
            fields["Transfer-Encoding"] = "chunked"
        elif "until-close" not in words and answer.status != 204:
            fields["Content-Length"] = answer.size
        if "field" in words:
            name, _, value = words["field"].partition(":")
            fields[name] = value
        if not head.is_kept or {"close", "until-close"} & set(words):
            fields["Connection"] = "close"
        version = "1.0" if "http10" in words else "1.1"
        lines = [f"HTTP/{version} {answer.status} {REASONS.get(answer.status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        return "\r\n".join(lines).encode() + HEAD_END

    async def _send_body(self, link, text, answer, words, pause_s):
        """The head's text is in one piece with the first of the body."""
        is_chunked = "chunked" in words or "both-framings" in words
        end = answer.first + answer.size // 2 if "half" in words else answer.last + 1
        for first in range(answer.first, end, PIECE_BYTES):
            piece = answer.content.part(first, min(first + PIECE_BYTES, end) - 1)
            await link.write(text + (b"%x\r\n%s\r\n" % (len(piece), piece) if is_chunked else piece), pause_s)
            text = b""
            if "await-mid" in words:
                await self._await_effects(words["await-mid"])
        if is_chunked and "half" not in words:
            text += b"0\r\n\r\n"
        if text:
            await link.write(text, pause_s)


async def main():
    parser = argparse.ArgumentParser(description="A web server for tests.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--do", default="", help="what stands for Upstream-Do where a request has none")
    parser.add_argument("--log", help="the file that a line is added to for everything that happens")
    parser.add_argument("--backlog", type=int, default=1024, help="connections that wait to be accepted")
    arguments = parser.parse_args()
    parse_words(arguments.do)
    upstream = Upstream(Log(arguments.log), arguments.do)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Link(upstream.serve), arguments.host, arguments.port,
                                      backlog=arguments.backlog)
    print(f"listening {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(130)
