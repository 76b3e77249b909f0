"""The driver of clients/README.md: over the blocking client, or with --asyncio over the other one.

usage: driver.py [--asyncio]
"""

import asyncio
import inspect
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fenceguard  # noqa: E402, from beside this folder
import fenceguard.aio  # noqa: E402


def say(answer):
    print(json.dumps(answer), flush=True)


def told(error):
    """The answer that an outcome is."""
    answer = {"outcome": type(error).__name__.lower(), "detail": str(error)}
    answer.update({name: str(getattr(error, name)) for name in ("token", "highest")
                   if getattr(error, name) is not None})
    answer.update({name: getattr(error, name) for name in ("problem", "status", "found", "reason")})
    if error.retry_after is not None:
        answer["retry_after_ms"] = round(error.retry_after * 1000)
    return answer


async def settled(value):
    """What a call answers: the client for asyncio gives something to await."""
    return await value if inspect.isawaitable(value) else value


def drive(coroutine):
    """Runs what never waits for an event loop, because the client blocks."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits for an event loop")


class Driver:
    """One method for each command."""

    is_asyncio = False
    Client = fenceguard.Client

    def __init__(self):
        self._leases = {}

    async def read_line(self):
        return sys.stdin.readline()

    def _lease(self, command):
        return self._leases[command.get("lease", "main")]

    @staticmethod
    def _times(command):
        return {"ttl": command["ttl_ms"] / 1000, "wait": command.get("wait_ms", 0) / 1000}

    @staticmethod
    def _object(body):
        return {"outcome": "admitted", "body": None if body is None else body.decode()}

    async def client(self, command):
        limit = {"timeout": command["timeout_ms"] / 1000} if "timeout_ms" in command else {}
        self._client = self.Client(command["data"], command["control"], token=command.get("bearer"), **limit)
        return {"outcome": "ok", "timeout_ms": round(self._client.timeout * 1000)}

    async def acquire(self, command):
        lease = await settled(self._client.acquire(command["resource"], renew=command.get("renew", True),
                                                   **self._times(command)))
        self._leases[command.get("lease", "main")] = lease
        return {"outcome": "granted", "token": str(lease.token), "holder": lease.holder}

    async def adopt(self, command):
        claim = self._client.adopt(command["resource"], command["token"], command["holder"])
        self._leases[command.get("lease", "main")] = claim
        return {"outcome": "ok"}

    async def renew(self, command):
        await settled(self._lease(command).renew())
        return {"outcome": "renewed"}

    async def lost(self, command):
        return {"outcome": "ok", "lost": self._lease(command).lost.is_set()}

    async def wait_lost(self, command):
        lost = self._lease(command).lost
        is_lost = await settled(lost.wait(command["limit_ms"] / 1000))
        return {"outcome": "lost", "reason": lost.reason} if is_lost else {"outcome": "timeout"}

    async def write(self, command):
        answer = await settled(self._lease(command).write(command["body"], sequence=command.get("sequence")))
        return {"outcome": answer.verdict}

    async def delete(self, command):
        return {"outcome": (await settled(self._lease(command).delete())).verdict}

    async def read(self, command):
        return self._object(await settled(self._lease(command).read()))

    async def plain_read(self, command):
        return self._object(await settled(self._client.read(command["resource"])))

    async def release(self, command):
        await settled(self._lease(command).release())
        return {"outcome": "released"}

    async def run(self, command):
        grants = 0

        async def add(lease):
            nonlocal grants
            grants += 1
            total = int(await settled(lease.read()) or 0) + command["add"]
            if command.get("pause") and grants == 1:
                say({"event": "paused"})
                await self.read_line()
            await settled(lease.write(str(total)))
            return total

        body = add if self.is_asyncio else lambda lease: drive(add(lease))
        value = await settled(self._client.run(command["resource"], body, attempts=command["attempts"],
                                               **self._times(command)))
        return {"outcome": "done", "value": value, "attempts": grants}

    async def answer_all(self):
        while line := await self.read_line():
            command = json.loads(line)
            try:
                say(await getattr(self, command["do"])(command))
            except fenceguard.FenceguardError as error:
                say(told(error))
            except Exception as error:  # what is none of the outcomes fails the scenario
                say({"outcome": "error", "detail": repr(error)})


class AsyncioDriver(Driver):
    is_asyncio = True
    Client = fenceguard.aio.Client

    async def read_line(self):
        return await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


if __name__ == "__main__":
    if sys.argv[1:] == ["--asyncio"]:
        asyncio.run(AsyncioDriver().answer_all())
    else:
        drive(Driver().answer_all())
