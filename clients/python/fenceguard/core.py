"""What a client does, without saying how it waits: generators that yield a Call or a number of seconds to pause, and
are given the Answer. client.py and aio.py run them."""

import json
import secrets
import time

from . import wire
from .outcomes import FenceguardError, Held, Lost, Unavailable, Unknown
from .wire import Call

WAIT_MAX_S = 600
ANSWER_MAX_S = 10.0
RELEASE_MAX_S = 5.0
PAUSE_S = 0.1


def clock():
    """Seconds, going on while the machine sleeps where there is such a clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def calling(call):
    """Sends it once; a read once more where no whole answer came."""
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


def reading_plainly(resource):
    answer = yield from calling(Call("data", "GET", "/" + wire.quote(resource), {}, resource=resource))
    return None if answer.status == 404 else answer.body


def acquiring(new_lease, bearer, resource, ttl, wait):
    """Returns a lease. The same holder asks again after a fault, until wait is over."""
    holder, over_at, is_uncertain = secrets.token_hex(16), clock() + wait, False
    while True:
        left = max(0.0, over_at - clock())
        try:
            return (yield from _asking(new_lease, bearer, resource, ttl, left, holder))
        except (Held, Lost, Unavailable, Unknown) as fault:
            left = over_at - clock()
            is_first_unknown = isinstance(fault, Unknown) and not is_uncertain
            is_uncertain = is_uncertain or isinstance(fault, Unknown)
            if left <= 0 and not is_first_unknown:
                if is_uncertain and isinstance(fault, Unavailable):
                    raise Unknown(f"{resource}: a lease may stand: {fault}", resource=resource) from fault
                raise
            retry_after = fault.retry_after if isinstance(fault, Unavailable) else None
        yield min(retry_after or PAUSE_S, max(left, PAUSE_S))


def _asking(new_lease, bearer, resource, ttl, wait, holder):
    wish = {"resource": resource, "ttl_ms": round(ttl * 1000), "wait_ms": round(min(wait, WAIT_MAX_S) * 1000),
            "holder": holder}
    call = Call("control", "POST", "/v1/leases", {"Content-Type": "application/json", **bearer},
                json.dumps(wish).encode(), wait + ANSWER_MAX_S, resource)
    sent_at = clock()
    answer = yield from calling(call)
    grant = wire.lease_in(answer)
    lease = new_lease(resource, int(grant["token"]), grant["holder"], grant.get("signature"), ttl)
    lease.extend(sent_at, grant)
    if answer.status == 200 or clock() - sent_at > ttl / 3:
        try:
            yield from lease.renewing()
        except (Unavailable, Unknown):
            pass  # the term that is known stands
    return lease


class Claim:
    """A token and its holder, how long they are known to be held, and the calls that carry them."""

    def __init__(self, resource, token, holder, signature=None, ttl=None, bearer=None):
        self.resource, self.token, self.holder, self.signature = resource, int(token), holder, signature
        self.ttl = ttl
        self._bearer = bearer or {}
        self._over_at = None if ttl is None else clock()
        self.reason = None
        self.renewed_at = clock()

    def __repr__(self):
        return f"<{type(self).__name__} {self.resource} token={self.token}>"

    @property
    def left(self):
        """Seconds for which the lease is known to be held; None for a claim that was granted elsewhere."""
        return None if self._over_at is None else self._over_at - clock()

    @property
    def is_lost(self):
        if self.reason is None and self._over_at is not None and self.left <= 0:
            self.reason = "expired"
        return self.reason is not None

    def extend(self, sent_at, grant):
        self.renewed_at = sent_at
        self._over_at = sent_at + grant.get("expires_in_ms", self.ttl * 1000) / 1000

    def renewing(self):
        """One renewal; a lease that was lost stays lost."""
        ttl = self.ttl or ANSWER_MAX_S
        was_lost, sent_at = self.is_lost, clock()
        call = self._control("PUT", min(ttl / 3, ANSWER_MAX_S), json.dumps({"ttl_ms": round(ttl * 1000)}).encode())
        try:
            answer = yield from calling(call)
        except Lost:
            self.reason = self.reason or "ended"
            raise
        grant = wire.lease_in(answer)
        self.signature = grant.get("signature", self.signature)
        if not was_lost and self.ttl is not None:
            self.extend(sent_at, grant)

    def releasing(self):
        try:
            yield from calling(self._control("DELETE", RELEASE_MAX_S))
        finally:
            self.reason = self.reason or "ended"

    def sending(self, method, body=b"", path=None, sequence=None, headers=None):
        fields = {**(headers or {}), **self.fields()}
        if sequence is not None:
            fields["Fencing-Sequence"] = sequence
        target = "/" + wire.quote(self.resource if path is None else path)
        return (yield from calling(Call("data", method, target, fields, body, resource=self.resource)))

    def fields(self):
        """The header fields of the claim."""
        fields = {"Fencing-Token": self.token, "Fencing-Holder": self.holder}
        return {**fields, "Fencing-Signature": self.signature} if self.signature else fields

    def _control(self, method, limit, body=b""):
        kind = {"Content-Type": "application/json"} if body else {}
        return Call("control", method, "/v1/leases/" + wire.quote(self.resource),
                    {**kind, **self._bearer, **self.fields()}, body, limit, self.resource)

    def next_renewal_in(self, has_failed):
        """Seconds until the background renews."""
        pause = self.ttl / 20 if has_failed else self.renewed_at + self.ttl / 3 - clock()
        return max(0.0, min(pause, self.left))

    def is_over_after(self, fault):
        """Whether the background has nothing left to do after a renewal that failed."""
        return isinstance(fault, Lost) or self.is_lost or not isinstance(fault, FenceguardError)
