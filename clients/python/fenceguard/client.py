"""The blocking client. A Client may be used by many threads; each lease is renewed by a thread of its own."""

import contextlib
import os
import socket
import ssl
import threading
import time

from . import core, wire
from .outcomes import Conflict, FenceguardError, Stale, Unavailable, Unknown


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
        link = self._kept(call.side) or self._connect(call)
        reader = wire.read_answer(call.method)
        next(reader)
        is_kept = False
        try:
            link.settimeout(max(0.001, deadline - time.monotonic()))
            link.sendall(message)
            while True:
                link.settimeout(max(0.001, deadline - time.monotonic()))
                reader.send(link.recv(65536))
        except StopIteration as end:
            is_kept = end.value.is_kept
            return end.value
        except OSError as error:
            told = f"{call.method} {call.resource}: no whole answer: {error}"
            raise Unknown(told, resource=call.resource) from error
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
                    link.settimeout(0)
                    if time.monotonic() - since < core.IDLE_MAX_S:
                        socket.socket.recv(link, 1, socket.MSG_PEEK)
                except BlockingIOError:
                    return link
                except OSError:
                    pass
                link.close()
        return None

    def _connect(self, call):
        address, host, is_tls = self._places[call.side]
        try:
            link = socket.create_connection(address, min(core.CONNECT_MAX_S, call.limit))
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if is_tls:
                link = (self._tls or ssl.create_default_context()).wrap_socket(link, server_hostname=address[0])
            return link
        except OSError as error:
            raise Unavailable(f"{host}: {error}", resource=call.resource) from error


@contextlib.contextmanager
def fenced(resource, **options):
    """with fenced("accounts/42") as lease: … with a guard on the default ports of this machine."""
    with Client() as client, client.fenced(resource, **options) as lease:
        yield lease


def run(resource, body, **options):
    with Client() as client:
        return client.run(resource, body, **options)
