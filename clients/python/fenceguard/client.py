"""The blocking client. A Client may be used by many threads; each lease is renewed by a thread of its own."""

import contextlib
import http.client
import os
import socket
import ssl
import threading
import time

from . import core, wire
from .outcomes import Conflict, FenceguardError, Stale, Unavailable


class Client(core.Calls):
    __doc__ = core.Calls.__doc__

    event = threading.Event

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
        """body(lease) under the lock, which is taken again after Stale or Conflict, attempts times in all."""
        for attempt in range(attempts):
            try:
                with self.fenced(resource, **options) as lease:
                    return body(lease)
            except (Stale, Conflict):
                if attempt == attempts - 1:
                    raise

    def start(self, steps):
        threading.Thread(target=self.perform, args=(steps,), name="fenceguard renewal", daemon=True).start()

    def perform(self, steps):
        """Runs what core.py yields."""
        try:
            step = next(steps)
            while True:
                try:
                    result = self._send(step) if isinstance(step, wire.Call) else step.event.wait(step.seconds)
                except FenceguardError as fault:
                    step = steps.throw(fault)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            return end.value

    def _send(self, call):
        deadline = time.monotonic() + call.limit
        message = call.encode(self._places[call.side][1])
        link, is_kept = self._kept(call.side) or self._connect(call), False
        try:
            link.sock.settimeout(max(0.001, deadline - time.monotonic()))
            link.send(message)
            response = wire.Response(wire.Received(link.sock, deadline), call.method)
            answer = response.answer(response.read())
            is_kept = not response.will_close
            return answer
        except (OSError, http.client.HTTPException) as error:
            raise wire.fault_of(call, error) from error
        finally:
            if is_kept:
                self._idle[call.side].append((link, time.monotonic()))
            else:
                link.close()

    def _kept(self, side):
        """A connection on which nothing has come since, not even its end; or None. A forked process has none."""
        if self._owner != os.getpid():
            self.close()
        while self._idle[side]:
            with contextlib.suppress(IndexError):  # another thread took it
                link, since = self._idle[side].pop()
                try:
                    link.sock.settimeout(0)
                    if time.monotonic() - since < core.IDLE_MAX_S:
                        socket.socket.recv(link.sock, 1, socket.MSG_PEEK)
                except BlockingIOError:
                    return link
                except OSError:
                    pass
                link.close()
        return None

    def _connect(self, call):
        address, host, is_tls = self._places[call.side]
        limit = min(core.CONNECT_MAX_S, call.limit)
        link = (http.client.HTTPSConnection(*address, timeout=limit, context=self._tls or ssl.create_default_context())
                if is_tls else http.client.HTTPConnection(*address, timeout=limit))
        link.auto_open = 0  # so that it connects here alone
        try:
            link.connect()
            return link
        except OSError as error:
            link.close()
            raise Unavailable(f"{host}: {error}", resource=call.resource) from error


@contextlib.contextmanager
def fenced(resource, **options):
    """with fenced("accounts/42") as lease: … with a guard on the default ports of this machine."""
    with Client() as client, client.fenced(resource, **options) as lease:
        yield lease


def run(resource, body, **options):
    with Client() as client:
        return client.run(resource, body, **options)
