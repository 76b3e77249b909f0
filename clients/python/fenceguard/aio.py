"""The client for asyncio: as the blocking one, and every method is awaited. A Client belongs to one event loop."""

import asyncio
import contextlib
import http.client
import io
import ssl
import time

from . import core, wire
from .outcomes import Conflict, FenceguardError, Stale, Unavailable, Unknown

HEAD_BYTES_MAX = 65536


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
        link, is_kept = await self._kept(call.side) or await self._connect(call), False
        try:
            limit = max(0.001, deadline - time.monotonic())
            answer, is_kept = await asyncio.wait_for(link.ask(call.method, message), limit)
            return answer
        except asyncio.TimeoutError as error:
            raise Unknown(f"{call.method} {call.resource}: no whole answer in time", resource=call.resource) from error
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, http.client.HTTPException) as error:
            raise wire.fault_of(call, error) from error
        finally:
            if is_kept:
                self._idle[call.side].append((link, time.monotonic()))
            else:
                link.close()

    async def _kept(self, side):
        while self._idle[side]:
            (link, since), is_quiet = self._idle[side].pop(), False
            try:
                is_quiet = await link.is_quiet() and time.monotonic() - since < core.IDLE_MAX_S
            finally:
                if not is_quiet:
                    link.close()
            if is_quiet:
                return link
        return None

    async def _connect(self, call):
        (name, port), host, is_tls = self._places[call.side]
        tls = (self._tls or ssl.create_default_context()) if is_tls else None
        try:
            connecting = asyncio.open_connection(name, port, ssl=tls, limit=HEAD_BYTES_MAX)
            return _Link(*await asyncio.wait_for(connecting, min(core.CONNECT_MAX_S, call.limit)))
        except (OSError, asyncio.TimeoutError) as error:
            raise Unavailable(f"{host}: {error or 'no connection in time'}", resource=call.resource) from error


class _Link:
    """A connection. Heads of answers are read by http.client; bodies here, because it knows no stream of asyncio's."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self.close = writer.transport.abort

    async def is_quiet(self):
        """Whether nothing has come unasked, not even the end. What has arrived is read in the loop's next two turns."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ahead = asyncio.ensure_future(self._reader.read(1))
        await asyncio.sleep(0)
        is_quiet = ahead.cancel()
        await asyncio.gather(ahead, return_exceptions=True)
        return is_quiet and not self._writer.is_closing()

    async def ask(self, method, message):
        """The answer, and whether the connection can be used again."""
        self._writer.write(message)
        response = wire.Response(io.BytesIO(await self._read_head()), method)
        if response.chunked:
            body = b"".join([chunk async for chunk in self._read_chunks()])
        elif response.length is None:
            body = await self._reader.read()
        else:
            body = await self._reader.readexactly(response.length)
        return response.answer(body), not response.will_close

    async def _read_head(self):
        try:
            head = await self._reader.readexactly(5)
        except asyncio.IncompleteReadError as end:
            return end.partial
        if head == b"HTTP/":
            head += await self._reader.readuntil(b"\r\n\r\n")
        return head if head[8:10] != b" 1" else await self._read_head()

    async def _read_chunks(self):
        size = 1
        while size:
            size = int((await self._reader.readuntil(b"\r\n")).partition(b";")[0], 16)
            yield (await self._reader.readexactly(size + 2))[:size]


@contextlib.asynccontextmanager
async def fenced(resource, **options):
    """async with fenced("accounts/42") as lease: … with a guard on the default ports of this machine."""
    with Client() as client:
        async with client.fenced(resource, **options) as lease:
            yield lease
