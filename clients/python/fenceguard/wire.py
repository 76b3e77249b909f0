"""Requests and answers of HTTP/1.1 as bytes, and what an answer means. No socket: see client.py and aio.py."""

import dataclasses
import json
import urllib.parse

from . import outcomes
from .outcomes import Misdirected, Rejected, Unavailable, Unknown

HEAD_BYTES_MAX = 65536
PROBLEM = "urn:fenceguard:problem:"
CONTROL_ONLY = ("unauthorized", "forbidden", "foreign-origin")
NAMED = {name.lower(): getattr(outcomes, name) for name in ("Stale", "Conflict", "Held", "Lost", "Unavailable",
                                                            "Unknown")}


@dataclasses.dataclass
class Call:
    """One request. limit: seconds for its answer."""

    side: str
    method: str
    target: str
    headers: dict
    body: bytes = b""
    limit: float = 10.0
    resource: str = None

    @property
    def is_read(self):
        return self.method in ("GET", "HEAD")

    def encode(self, host):
        lines = [f"{self.method} {self.target} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(self.body)}",
                 *(f"{name}: {value}" for name, value in self.headers.items())]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header field holds a line feed")
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

    @property
    def is_kept(self):
        """The connection may be used again."""
        return self.headers.get("connection", "").lower() != "close"


def quote(resource):
    return urllib.parse.quote(resource, safe="/")


def read_answer(method):
    """A generator: takes pieces as they arrive (b'' is the end) and returns the Answer."""
    received = b""
    while True:
        while b"\r\n\r\n" not in received:
            if not received.startswith(b"HTTP/"[:len(received)]) or len(received) > HEAD_BYTES_MAX:
                raise Misdirected("what answers speaks no HTTP", found="other")
            received = yield from _more(received)
        head, _, received = received.partition(b"\r\n\r\n")
        try:
            first, *lines = head.decode("latin-1").split("\r\n")
            status = int(first.split(" ")[1])
        except (IndexError, ValueError):
            raise Misdirected("what answers speaks no HTTP", found="other") from None
        if status >= 200:
            break
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    answer = Answer(status, headers)
    if method == "HEAD" or status in (204, 304):
        return answer
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while True:
            while b"\r\n" not in received:
                received = yield from _more(received)
            size, _, received = received.partition(b"\r\n")
            count = int(size.split(b";")[0], 16)
            while len(received) < count + 2:
                received = yield from _more(received)
            answer.body, received = answer.body + received[:count], received[count + 2:]
            if count == 0:
                return answer
    if "content-length" in headers:
        while len(received) < int(headers["content-length"]):
            received = yield from _more(received)
        answer.body = received
        return answer
    headers["connection"] = "close"
    while piece := (yield):
        received += piece
    if answer.verdict:
        raise Unknown("an answer without a length: whether it is whole is not known")
    answer.body = received
    return answer


def _more(received):
    piece = yield
    if not piece:
        raise Unknown("the connection ended before the answer did")
    return received + piece


def problem_of(answer):
    """Its name and members; None where it is not one of ours."""
    try:
        members = json.loads(answer.body) if "application/problem+json" in answer.headers.get("content-type", "") else {}
        name = members["type"] if members["type"].startswith(PROBLEM) else ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, {}
    return name[len(PROBLEM):] or None, members


def judge(call, answer):
    """Returns where the call succeeded; raises what else it ended with. clients/README.md has the table."""
    name, members = problem_of(answer)
    facts = {"resource": call.resource, "status": answer.status, "problem": name}
    for member in ("token", "highest"):
        facts[member] = int(members[member]) if str(members.get(member, "")).isdigit() else None
    seconds = answer.headers.get("retry-after", "")
    facts["retry_after"] = float(seconds) if seconds.isdigit() else None
    told = f"{call.method} {call.resource}: {answer.status} {members.get('detail', answer.verdict or '')}".rstrip()
    if not name and not answer.verdict and answer.status >= 500:
        raise (Unavailable if call.is_read else Unknown)(f"{told}, from something in between", **facts)
    (_judge_data if call.side == "data" else _judge_control)(call, answer, name, members, told, facts)


def _judge_data(call, answer, name, members, told, facts):
    verdict, is_plain = answer.verdict, "Fencing-Token" not in call.headers
    is_done = answer.status < 300 or not call.is_read and answer.status in (301, 302, 303)
    if not verdict and (name in CONTROL_ONLY or name == "not-found" and "resource" not in members):
        raise Misdirected(f"{told}: this is a control side, not the data side", **facts, found="control")
    if not verdict and not name and not (is_plain and is_done):
        raise Misdirected(f"{told}: this is not the data side of a fenceguard", **facts, found="other")
    if word := next((word for word in (verdict, name) if word in NAMED), None):
        raise NAMED[word](told, **facts)
    if verdict == "duplicate" or is_done or call.is_read and answer.status == 404:
        return
    raise Rejected(told, **facts)


def _judge_control(call, answer, name, members, told, facts):
    is_ask = call.method == "POST"
    if answer.verdict in ("admitted", "missing") or name in ("method-not-allowed", "missing") \
            or is_ask and name == "not-found":
        raise Misdirected(f"{told}: this is a data side, not the control side", **facts, found="data")
    if name in NAMED:
        raise NAMED[name](told, **facts, **({"reason": "ended"} if name == "lost" else {}))
    if name:
        raise (outcomes.Unauthorized if name in ("unauthorized", "forbidden") else Rejected)(told, **facts)
    if not (answer.status == 204 if call.method == "DELETE" else answer.status in (200, 201) and lease_in(answer)):
        raise Misdirected(f"{told}: this is not the control side of a fenceguard", **facts, found="other")


def lease_in(answer):
    """The members of a lease; None where there is none."""
    try:
        members = json.loads(answer.body)
        return members if members["token"].isdigit() and isinstance(members["holder"], str) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
