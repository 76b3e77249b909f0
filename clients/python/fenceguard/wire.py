"""Calls and answers by http.client, and what an answer means (the table is in clients/README.md)."""

import dataclasses
import http.client
import io
import json
import time
import urllib.parse

from . import outcomes
from .outcomes import Lost, Misdirected, Rejected, Unauthorized, Unavailable, Unknown

PROBLEM = "urn:fenceguard:problem:"
NAMED = {kind.__name__.lower(): kind for kind in (outcomes.Stale, outcomes.Conflict, outcomes.Held, Lost, Unavailable,
                                                  Unknown)}
FOUND = {"data": "the data side of a guard", "control": "the control side of a guard", "other": "no fenceguard"}


@dataclasses.dataclass
class Call:
    """One request. limit: seconds for its answer."""
    side: str
    method: str
    target: str
    headers: dict = dataclasses.field(repr=False)  # of a claim, and of the bearer token
    body: bytes = dataclasses.field(repr=False)
    limit: float
    resource: str

    @property
    def is_read(self):
        return self.method in ("GET", "HEAD")

    def encode(self, host):
        fields = {**self.headers, "Host": host, "Content-Length": len(self.body)}
        lines = [f"{self.method} {self.target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        if any(not line.isprintable() for line in lines):
            raise ValueError("a header field holds a control character")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


@dataclasses.dataclass
class Answer:
    """headers by names in lower case."""
    status: int
    headers: dict
    body: bytes = b""

    @property
    def verdict(self):
        return self.headers.get("fencing-verdict")


def place(url):
    """(host, port), what Host says, and whether it is TLS."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise ValueError(f"a side of a guard is http://HOST:PORT, not {url!r}")
    is_tls = parts.scheme == "https"
    return (parts.hostname, parts.port or (443 if is_tls else 80)), parts.netloc.rpartition("@")[2], is_tls


def quote(resource):
    return urllib.parse.quote(resource, safe="/")


class Received(io.RawIOBase):
    """What a socket receives until a deadline, of time.monotonic()."""

    def __init__(self, sock, deadline):
        self._sock, self._deadline = sock, deadline

    def readable(self):
        return True

    def readinto(self, buffer):
        self._sock.settimeout(max(0.001, self._deadline - time.monotonic()))
        return self._sock.recv_into(buffer)


class _Lines(io.BufferedReader):
    """Lines that are whole: http.client takes a head that ends early for a whole one."""

    def readline(self, limit=-1):
        line = super().readline(limit)
        if not line.endswith(b"\n"):
            raise Unknown("the connection ended before the answer did")
        return line


class Response(http.client.HTTPResponse):
    """The answer in a raw stream, once its head is whole. It raises what is none."""

    def __init__(self, raw, method):
        self.makefile = lambda _mode: _Lines(raw)
        super().__init__(self, method=method)
        first = self.fp.peek(5)[:5]
        if first != b"HTTP/"[:len(first)]:
            raise http.client.BadStatusLine("no HTTP")
        while self.headers is None or self.status < 200:
            self.headers = None
            self.begin()
        if self.length is None and not self.chunked and "Fencing-Verdict" in self.headers:
            raise Unknown("an answer without a length: whether it is whole is not known")

    def answer(self, body):
        return Answer(self.status, {name.lower(): value for name, value in self.getheaders()}, body)


def fault_of(call, error):
    """What an error means that a connection ended with after the call was sent."""
    if isinstance(error, (http.client.BadStatusLine, http.client.UnknownProtocol)):
        return Misdirected("what answers speaks no HTTP", resource=call.resource, found="other")
    return Unknown(f"{call.method} {call.resource}: no whole answer: {error}", resource=call.resource)


def _members(answer):
    try:
        members = json.loads(answer.body)
    except ValueError:
        return {}
    return members if isinstance(members, dict) else {}


def lease_in(answer):
    """The members of a lease, or None."""
    members = _members(answer)
    return members if str(members.get("token")).isdigit() and isinstance(members.get("holder"), str) else None


def judge(call, answer):
    """Returns where the call succeeded, and raises what else it ended with."""
    is_problem = "application/problem+json" in answer.headers.get("content-type", "")
    members = _members(answer) if is_problem else {}
    kind = str(members.get("type", ""))
    name = kind[len(PROBLEM):] if kind.startswith(PROBLEM) else None
    raised, found = (_judge_data if call.side == "data" else _judge_control)(call, answer, name, members)
    if raised is None:
        return
    facts = {member: int(members[member]) for member in ("token", "highest") if str(members.get(member)).isdigit()}
    if answer.headers.get("retry-after", "").isdigit():
        facts["retry_after"] = float(answer.headers["retry-after"])
    told = FOUND[found] if raised is Misdirected else members.get("detail", "")
    raise raised(f"{call.method} {call.resource}: {answer.status} {told}".rstrip(), resource=call.resource,
                 problem=name, status=answer.status, found=found, reason="ended" if raised is Lost else None, **facts)


def _judge_data(call, answer, name, members):
    verdict, status = answer.verdict, answer.status
    if not verdict and not name:
        if status >= 500:
            return Unavailable if call.is_read else Unknown, None
        is_plain = "Fencing-Token" not in call.headers and (status < 300 or status == 404)
        return None if is_plain else Misdirected, "other"
    if not verdict and (name in ("unauthorized", "forbidden", "foreign-origin")
                        or name == "not-found" and "resource" not in members):
        return Misdirected, "control"
    is_done = status < 300 or (status == 404 if call.is_read else status in (301, 302, 303))
    return NAMED.get(verdict) or NAMED.get(name) or (None if verdict == "duplicate" or is_done else Rejected), None


def _judge_control(call, answer, name, members):
    if not answer.verdict and not name and answer.status >= 500:
        return Unknown, None
    if answer.verdict in ("admitted", "missing") or name in ("method-not-allowed", "missing") \
            or name == "not-found" and call.method == "POST":
        return Misdirected, "data"
    if name:
        return NAMED.get(name) or (Unauthorized if name in ("unauthorized", "forbidden") else Rejected), None
    is_done = answer.status == 204 if call.method == "DELETE" else answer.status in (200, 201) and lease_in(answer)
    return None if is_done else Misdirected, "other"
