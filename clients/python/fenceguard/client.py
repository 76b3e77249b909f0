"""The blocking client. A Client may be used by many threads; each lease renews itself on a thread of its own."""

import contextlib
import select
import socket
import ssl
import threading
import time
import urllib.parse

from . import core, wire
from .outcomes import Conflict, FenceguardError, Held, Stale, Unavailable, Unknown

CONNECT_MAX_S = 5.0
DATA, CONTROL = "http://127.0.0.1:7420", "http://127.0.0.1:7421"


class Lease(core.Claim):
    """A lock that is held, and renewed every third of ttl until release(). Times are in seconds.

    lost is set once the lease is no longer known to be held; whether a write is still good is the guard's to judge.
    """

    def __init__(self, client, *claim):
        super().__init__(*claim, bearer=client.bearer)
        self._client, self._released, self.lost = client, threading.Event(), LostSignal(self)

    def write(self, body, **options):
        """PUT body (bytes or str). path: an object below the resource. sequence: a number that rises with each write,
        so that a duplicate is told. headers: more fields. Sent once; the answer's verdict is 'admitted' or 'duplicate'.
        """
        return self.send("PUT", body, **options)

    def delete(self, **options):
        return self.send("DELETE", **options)

    def read(self, path=None):
        """A fenced read: the object as bytes, or None."""
        answer = self.send("GET", path=path)
        return None if answer.status == 404 else answer.body

    def send(self, method, body=b"", path=None, sequence=None, headers=None):
        body = body.encode() if isinstance(body, str) else body
        return self._client.perform(self.sending(method, body, path, sequence, headers))

    def renew(self):
        self._client.perform(self.renewing())

    def release(self):
        self._released.set()
        self._client.perform(self.releasing())

    def _keep(self):
        has_failed = False
        while not self._released.wait(self.next_renewal_in(has_failed)) and not self.is_lost:
            try:
                has_failed = False
                self.renew()
            except FenceguardError as fault:
                has_failed = True
                if self.is_over_after(fault):
                    break
        self.lost.notify()


class LostSignal:
    """Like a threading.Event that is set when the lease is lost; reason is 'ended' or 'expired'."""

    def __init__(self, lease):
        self._lease, self._event = lease, threading.Event()

    @property
    def reason(self):
        return self._lease.reason if self.is_set() else None

    def is_set(self):
        return self._lease.is_lost

    def notify(self):
        self._event.set()

    def wait(self, timeout=None):
        """Whether it is lost, after at most timeout seconds."""
        give_up_at = None if timeout is None else core.clock() + timeout
        while not self.is_set():
            left = [seconds for seconds in (self._lease.left, give_up_at and give_up_at - core.clock())
                    if seconds is not None]
            if give_up_at is not None and left[-1] <= 0:
                return False
            self._event.wait(max(0.0, min(left)) if left else None)
        return True


class Client:
    """data and control: URLs. token: the bearer token, for the control side alone. tls: an ssl.SSLContext for https."""

    def __init__(self, data=DATA, control=CONTROL, token=None, tls=None):
        self._urls = {"data": urllib.parse.urlsplit(data), "control": urllib.parse.urlsplit(control)}
        self.bearer = {"Authorization": f"Bearer {token}"} if token else {}
        self._tls = tls
        self._idle = {"data": [], "control": []}

    def acquire(self, resource, ttl=10.0, wait=30.0, renew=True):
        """Takes the lock, for which it waits; raises Held if that was in vain. To be released."""
        lease = self.perform(core.acquiring(lambda *claim: Lease(self, *claim), self.bearer, resource, ttl, wait))
        if renew:
            threading.Thread(target=lease._keep, name=f"renew {resource}", daemon=True).start()
        return lease

    @contextlib.contextmanager
    def fenced(self, resource, **options):
        """A lease for a block, given back at its end. A release that fails is left to the lease's time to live."""
        lease = self.acquire(resource, **options)
        try:
            yield lease
        finally:
            with contextlib.suppress(FenceguardError):
                lease.release()

    def run(self, resource, body, attempts=5, **options):
        """body(lease) under the lock; taken again after stale or conflict, up to attempts times in all."""
        for attempt in range(attempts):
            try:
                with self.fenced(resource, **options) as lease:
                    return body(lease)
            except (Stale, Conflict):
                if attempt == attempts - 1:
                    raise

    def adopt(self, resource, token, holder, signature=None):
        """A claim that was granted elsewhere, such as to 'fenceguard exec'. It is not renewed and never lost."""
        return Lease(self, resource, token, holder, signature)

    def read(self, resource):
        """A plain read, without a claim: the object as bytes, or None."""
        return self.perform(core.reading_plainly(resource))

    def perform(self, steps):
        """Runs what core.py yields."""
        answer, fault = None, None
        try:
            while True:
                step = steps.throw(fault) if fault else steps.send(answer)
                answer, fault = None, None
                try:
                    answer = self._send(step) if isinstance(step, wire.Call) else time.sleep(step)
                except FenceguardError as raised:
                    fault = raised
        except StopIteration as end:
            return end.value

    def _send(self, call):
        deadline = time.monotonic() + call.limit
        message = call.encode(self._urls[call.side].netloc.rpartition("@")[2])
        link = self._link(call)
        reader = wire.read_answer(call.method)
        next(reader)
        try:
            link.settimeout(max(0.001, deadline - time.monotonic()))
            link.sendall(message)
            while True:
                link.settimeout(max(0.001, deadline - time.monotonic()))
                reader.send(link.recv(65536))
        except StopIteration as end:
            if end.value.is_kept:
                self._idle[call.side].append(link)
            else:
                link.close()
            return end.value
        except OSError as error:
            link.close()
            raise Unknown(f"{call.method} {call.resource}: no whole answer: {error}", resource=call.resource) from error
        except BaseException:
            link.close()
            raise

    def _link(self, call):
        """A kept connection that the server has not closed, or a new one."""
        while self._idle[call.side]:
            with contextlib.suppress(IndexError):
                link = self._idle[call.side].pop()
                if not select.select([link], [], [], 0)[0]:
                    return link
                link.close()
        url = self._urls[call.side]
        try:
            address = (url.hostname, url.port or {"https": 443}.get(url.scheme, 80))
            link = socket.create_connection(address, min(CONNECT_MAX_S, call.limit))
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if url.scheme == "https":
                link = (self._tls or ssl.create_default_context()).wrap_socket(link, server_hostname=url.hostname)
            return link
        except OSError as error:
            raise Unavailable(f"{url.scheme}://{url.netloc.rpartition('@')[2]}: {error}") from error

    def close(self):
        """Closes the kept connections. Leases stay until they are released."""
        for links in self._idle.values():
            while links:
                links.pop().close()


def fenced(resource, client=None, **options):
    """with fenced("accounts/42") as lease: … at the default ports, or by a Client."""
    return (client or Client()).fenced(resource, **options)


def run(resource, body, client=None, **options):
    return (client or Client()).run(resource, body, **options)
