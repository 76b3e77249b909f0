"""What both clients do, without a word on how they wait: generators that yield a Call or a Pause and are sent what
came of it. A method of Lease returns its result, and in fenceguard.aio something to await."""

import dataclasses
import json
import os
import secrets
import time

from . import wire
from .outcomes import FenceguardError, Held, Lost, Unavailable, Unknown
from .wire import Call

WAIT_MAX_S, ANSWER_MAX_S, CONNECT_MAX_S, RELEASE_MAX_S, PAUSE_S = 600.0, 10.0, 5.0, 5.0, 0.1
IDLE_MAX_S = 20.0  # a third of what the server allows a connection
JSON = {"Content-Type": "application/json"}
DATA, CONTROL = "http://127.0.0.1:7420", "http://127.0.0.1:7421"


def clock():
    """Seconds that go on while the machine sleeps, where there is such a clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclasses.dataclass
class Pause:
    """Until the event is set, and no longer than some seconds (None: without end)."""
    seconds: float
    event: object


def calling(call):
    """Sends it once; a read a second time where no whole answer came."""
    try:
        answer = yield call
    except Unknown:
        if not call.is_read:
            raise
        try:
            answer = yield call
        except Unknown as fault:
            raise Unavailable(str(fault), resource=call.resource) from fault
    wire.judge(call, answer)
    return answer


def reading(call):
    answer = yield from calling(call)
    return None if answer.status == 404 else answer.body


def acquiring(client, resource, ttl, wait, renew):
    """The same holder asks again after a fault until wait is over, and after the first Unknown in any case."""
    holder, over_at, is_uncertain = secrets.token_hex(16), clock() + wait, False
    while True:
        try:
            lease = yield from _asking(client, resource, ttl, max(0.0, over_at - clock()), holder)
            if renew:
                client.start(lease.keeping())
            return lease
        except (Held, Unavailable, Unknown) as fault:
            left = over_at - clock()
            if left <= 0 and (is_uncertain or not isinstance(fault, Unknown)):
                if is_uncertain and isinstance(fault, Unavailable):
                    raise Unknown(f"{resource}: a lease may stand: {fault}", resource=resource) from fault
                raise
            is_uncertain = is_uncertain or isinstance(fault, Unknown)
            pause = fault.retry_after if isinstance(fault, Unavailable) else None
        yield Pause(min(pause or PAUSE_S, max(left, PAUSE_S)), client.event())


def _asking(client, resource, ttl, wait, holder):
    wish = {"resource": resource, "ttl_ms": round(ttl * 1000), "wait_ms": round(min(wait, WAIT_MAX_S) * 1000),
            "holder": holder}
    sent_at = clock()
    answer = yield from calling(Call("control", "POST", "/v1/leases", {**JSON, **client.bearer},
                                     json.dumps(wish).encode(), wait + ANSWER_MAX_S, resource))
    grant = wire.lease_in(answer)
    lease = Lease(client, resource, grant["token"], grant["holder"], grant.get("signature"), ttl)
    lease._extend(sent_at, grant)
    if answer.status == 200 or clock() - sent_at > ttl / 3:
        try:
            yield from lease.renewing()
        except (Lost, Unavailable, Unknown):
            pass  # the lease knows how long it stands
    return lease


class Lease:
    """A lock that is held, renewed every third of its ttl until release(). Without a ttl: a claim granted elsewhere.

    lost tells when it is no longer known to be held; whether a write is still good is the guard's to judge.
    """

    def __init__(self, client, resource, token, holder, signature=None, ttl=None):
        self.resource, self.token, self.holder, self.signature, self.ttl = resource, int(token), holder, signature, ttl
        self.lost = LostSignal(client)
        self._client = client

    def __repr__(self):
        return f"<Lease {self.resource} token={self.token}>"

    def write(self, body, **options):
        """PUT body (bytes or str), once. path: an object below the resource. sequence: a number that rises from write
        to write, so that a duplicate is told. headers: more fields. The answer's verdict is 'admitted' or 'duplicate'.
        """
        return self.send("PUT", body, **options)

    def delete(self, **options):
        return self.send("DELETE", **options)

    def send(self, method, body=b"", **options):
        return self._client.perform(calling(self._call(method, body, **options)))

    def read(self, path=None):
        """A fenced read: the object as bytes, or None."""
        return self._client.perform(reading(self._call("GET", path=path)))

    def renew(self):
        return self._client.perform(self.renewing())

    def release(self):
        self.lost.end()
        return self._client.perform(calling(self._control("DELETE", RELEASE_MAX_S)))

    def claim(self):
        """The header fields of the claim."""
        fields = {"Fencing-Token": self.token, "Fencing-Holder": self.holder}
        return {**fields, "Fencing-Signature": self.signature} if self.signature else fields

    def _call(self, method, body=b"", path=None, sequence=None, headers=None):
        fields = {**(headers or {}), **self.claim(), **({} if sequence is None else {"Fencing-Sequence": sequence})}
        body = body.encode() if isinstance(body, str) else body
        return Call("data", method, "/" + wire.quote(path or self.resource), fields, body, self._client.timeout,
                    self.resource)

    def _control(self, method, limit, body=b""):
        fields = {**self._client.bearer, **self.claim(), **(JSON if body else {})}
        target = "/v1/leases/" + wire.quote(self.resource)
        return Call("control", method, target, fields, body, limit, self.resource)

    def _extend(self, sent_at, grant):
        self._sent_at = sent_at
        self.lost.over_at = sent_at + grant.get("expires_in_ms", self.ttl * 1000) / 1000

    def renewing(self):
        """One renewal; a lease that was lost stays lost."""
        ttl, was_lost, sent_at = self.ttl or ANSWER_MAX_S, self.lost.is_set(), clock()
        try:
            answer = yield from calling(self._control("PUT", min(ttl / 3, ANSWER_MAX_S),
                                                      json.dumps({"ttl_ms": round(ttl * 1000)}).encode()))
        except Lost:
            self.lost.end()
            raise
        grant = wire.lease_in(answer)
        self.signature = grant.get("signature", self.signature)
        if self.ttl and not was_lost:
            self._extend(sent_at, grant)

    def keeping(self):
        due_at = self._sent_at + self.ttl / 3
        while not self.lost.is_set():
            yield self.lost.pause(until=due_at)
            if clock() >= due_at and not self.lost.is_set():
                try:
                    yield from self.renewing()
                    due_at = self._sent_at + self.ttl / 3
                except FenceguardError:
                    due_at = clock() + self.ttl / 20


class LostSignal:
    """Like an Event that is set when the lease is lost; reason is then 'ended' or 'expired'. It looks at the clock."""

    def __init__(self, client):
        self._client, self._event, self._reason, self.over_at = client, client.event(), None, None

    @property
    def reason(self):
        if self.over_at is not None and clock() >= self.over_at:
            self._set("expired")
        return self._reason

    def is_set(self):
        return self.reason is not None

    def end(self):
        self._set(self.reason or "ended")

    def _set(self, reason):
        self._reason = self._reason or reason
        self._event.set()

    def wait(self, timeout=None):
        """Whether it is lost, after at most timeout seconds."""
        return self._client.perform(self._waiting(None if timeout is None else clock() + timeout))

    def _waiting(self, until):
        while not self.is_set() and (until is None or clock() < until):
            yield self.pause(until)
        return self.is_set()

    def pause(self, until):
        ends = [end for end in (until, self.over_at) if end is not None]
        return Pause(max(0.0, min(ends) - clock()) if ends else None, self._event)


class Calls:
    """data and control: URLs, by default of this machine's ports 7420 and 7421. token: the bearer token, for the
    control side alone. tls: an ssl.SSLContext for https. timeout: seconds for an answer of the data side."""

    def __init__(self, data=None, control=None, token=None, tls=None, timeout=60.0):
        self.bearer = {"Authorization": f"Bearer {token}"} if token else {}
        self._places = {"data": wire.place(data or DATA), "control": wire.place(control or CONTROL)}
        self._tls, self.timeout = tls, timeout
        self._idle, self._owner, self._tasks = {"data": [], "control": []}, os.getpid(), set()

    def acquire(self, resource, ttl=10.0, wait=30.0, renew=True):
        """Takes the lock, for which it waits; raises Held if that was in vain. To be released."""
        return self.perform(acquiring(self, resource, ttl, wait, renew))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes the connections that are kept. Leases stay until they are released."""
        for links in self._idle.values():
            while links:
                links.pop()[0].close()
        self._owner = os.getpid()

    def adopt(self, resource, token, holder, signature=None):
        """A claim that was granted elsewhere, such as to 'fenceguard exec': it is not renewed, and never expires."""
        return Lease(self, resource, token, holder, signature)

    def read(self, resource):
        """A plain read, without a claim: the object as bytes, or None."""
        return self.perform(reading(Call("data", "GET", "/" + wire.quote(resource), {}, b"", self.timeout, resource)))
