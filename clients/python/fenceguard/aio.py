"""The client for asyncio: as the blocking one, and every method is awaited. A Client belongs to one event loop."""

import asyncio
import contextlib
import ssl
import time

from . import core, wire
from .outcomes import Conflict, FenceguardError, Stale, Unavailable, Unknown


class Client(core.Calls):
    __doc__ = core.Calls.__doc__

    event = asyncio.Event

    @contextlib.asynccontextmanager
    async def fenced(self, resource, **options):
        """A lease for a block, given back at its end. A release that fails is left to the lease's time to live."""
        lease = await self.acquire(resource, **options)
        try:
            yield lease
        finally:
            with contextlib.suppress(FenceguardError):
                await lease.release()

    async def run(self, resource, body, attempts=5, **options):
        """await body(lease) under the lock, which is taken again after Stale or Conflict, attempts times in all."""
        for attempt in range(attempts):
            try:
                async with self.fenced(resource, **options) as lease:
                    return await body(lease)
            except (Stale, Conflict):
                if attempt == attempts - 1:
                    raise

    def start(self, steps):
        task = asyncio.ensure_future(self.perform(steps))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def perform(self, steps):
        """Runs what core.py yields."""
        try:
            step = next(steps)
            while True:
                try:
                    result = await (self._send(step) if isinstance(step, wire.Call) else self._pause(step))
                except FenceguardError as fault:
                    step = steps.throw(fault)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            return end.value

    @staticmethod
    async def _pause(pause):
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(pause.event.wait(), pause.seconds)

    async def _send(self, call):
        deadline = time.monotonic() + call.limit
        message = call.encode(self._places[call.side][1])
        await asyncio.sleep(0)  # what has arrived on a kept connection is seen in the loop's next two turns
        await asyncio.sleep(0)
        link = self._kept(call.side) or await self._connect(call)
        try:
            return await asyncio.wait_for(link.ask(call.method, message), max(0.001, deadline - time.monotonic()))
        except asyncio.TimeoutError as error:
            raise Unknown(f"{call.method} {call.resource}: no whole answer in time", resource=call.resource) from error
        finally:
            if link.is_quiet:
                self._idle[call.side].append((link, time.monotonic()))
            else:
                link.close()

    def _kept(self, side):
        while self._idle[side]:
            link, since = self._idle[side].pop()
            if link.is_quiet and time.monotonic() - since < core.IDLE_MAX_S:
                return link
            link.close()
        return None

    async def _connect(self, call):
        (name, port), host, is_tls = self._places[call.side]
        tls = (self._tls or ssl.create_default_context()) if is_tls else None
        try:
            connecting = asyncio.get_running_loop().create_connection(_Link, name, port, ssl=tls)
            return (await asyncio.wait_for(connecting, min(core.CONNECT_MAX_S, call.limit)))[1]
        except (OSError, asyncio.TimeoutError) as error:
            raise Unavailable(f"{host}: {error or 'no connection in time'}", resource=call.resource) from error


class _Link(asyncio.Protocol):
    """A connection. is_quiet: it may be used, for no answer is awaited and nothing else has come."""

    def connection_made(self, transport):
        self.transport, self.is_open, self._answer, self._unasked = transport, True, None, []

    @property
    def is_quiet(self):
        return self.is_open and self._answer is None and not self._unasked and not self.transport.is_closing()

    def close(self):
        self.transport.abort()

    async def ask(self, method, message):
        if not self.is_open:
            raise Unavailable("the connection was closed before anything was sent")
        self._answer, self._reader = asyncio.get_running_loop().create_future(), wire.read_answer(method)
        next(self._reader)
        self.transport.write(message)
        pieces, self._unasked = self._unasked, []
        for piece in pieces:
            self.data_received(piece)
        answer = await self._answer
        self.is_open = self.is_open and answer.is_kept
        self._answer = None
        return answer

    def data_received(self, piece):
        if self._answer is None or self._answer.done():
            self._unasked.append(piece)
            return
        try:
            self._reader.send(piece)
        except StopIteration as end:
            self._answer.set_result(end.value)
        except FenceguardError as fault:
            self._answer.set_exception(fault)

    def eof_received(self):
        self.data_received(b"")

    def connection_lost(self, error):
        self.is_open = False
        if self._answer and not self._answer.done():
            self._answer.set_exception(Unknown(f"the connection ended before the answer did: {error or 'closed'}"))


@contextlib.asynccontextmanager
async def fenced(resource, **options):
    """async with fenced("accounts/42") as lease: … with a guard on the default ports of this machine."""
    with Client() as client:
        async with client.fenced(resource, **options) as lease:
            yield lease
