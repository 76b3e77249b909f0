"""The driver of clients/README.md over the blocking client."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fenceguard  # noqa: E402, from beside this folder

CLAIMS = ("token", "highest")


def say(answer):
    print(json.dumps(answer), flush=True)


def told(error):
    """The answer that an outcome is."""
    answer = {"outcome": type(error).__name__.lower(), "detail": str(error)}
    answer.update({name: str(getattr(error, name)) for name in CLAIMS if getattr(error, name) is not None})
    answer.update({name: getattr(error, name) for name in ("problem", "status", "found", "reason")})
    if error.retry_after is not None:
        answer["retry_after_ms"] = round(error.retry_after * 1000)
    return answer


class Driver:
    def __init__(self):
        self._leases = {}

    def _lease(self, command):
        return self._leases[command.get("lease", "main")]

    @staticmethod
    def _times(command):
        return {"ttl": command["ttl_ms"] / 1000, "wait": command.get("wait_ms", 0) / 1000}

    def client(self, command):
        self._client = fenceguard.Client(command["data"], command["control"], token=command.get("bearer"))
        return {"outcome": "ok"}

    def acquire(self, command):
        lease = self._client.acquire(command["resource"], renew=command.get("renew", True), **self._times(command))
        self._leases[command.get("lease", "main")] = lease
        return {"outcome": "granted", "token": str(lease.token), "holder": lease.holder}

    def adopt(self, command):
        self._leases[command.get("lease", "main")] = self._client.adopt(command["resource"], command["token"],
                                                                        command["holder"])
        return {"outcome": "ok"}

    def renew(self, command):
        self._lease(command).renew()
        return {"outcome": "renewed"}

    def lost(self, command):
        return {"outcome": "ok", "lost": self._lease(command).lost.is_set()}

    def wait_lost(self, command):
        lost = self._lease(command).lost
        return {"outcome": "lost", "reason": lost.reason} if lost.wait(command["limit_ms"] / 1000) else \
            {"outcome": "timeout"}

    def write(self, command):
        return {"outcome": self._lease(command).write(command["body"], sequence=command.get("sequence")).verdict}

    def delete(self, command):
        return {"outcome": self._lease(command).delete().verdict}

    def read(self, command):
        return self._body(self._lease(command).read())

    def plain_read(self, command):
        return self._body(self._client.read(command["resource"]))

    @staticmethod
    def _body(body):
        return {"outcome": "admitted", "body": None if body is None else body.decode()}

    def release(self, command):
        self._lease(command).release()
        return {"outcome": "released"}

    def run(self, command):
        grants = 0

        def add(lease):
            nonlocal grants
            grants += 1
            total = int(lease.read() or 0) + command["add"]
            if command.get("pause") and grants == 1:
                say({"event": "paused"})
                sys.stdin.readline()
            lease.write(str(total))
            return total

        value = self._client.run(command["resource"], add, attempts=command["attempts"], **self._times(command))
        return {"outcome": "done", "value": value, "attempts": grants}

    def answer(self, command):
        try:
            return getattr(self, command["do"])(command)
        except fenceguard.FenceguardError as error:
            return told(error)
        except Exception as error:  # whatever is none of the outcomes fails the scenario
            return {"outcome": "error", "detail": repr(error)}


if __name__ == "__main__":
    driver = Driver()
    for line in iter(sys.stdin.readline, ""):
        say(driver.answer(json.loads(line)))
