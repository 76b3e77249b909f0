"""The tests' own upstream (upstream.py) as a child process, and what its log tells."""

import http.client
import json
import os
import re
import sys

from server_process import ServerProcess
from waiting import wait_until


class Server(ServerProcess):
    """Started by its constructor; a context manager that removes it. do: as in Upstream-Do, for every request.
    backlog: connections that wait to be accepted."""

    def __init__(self, do="", backlog=1024):
        super().__init__("upstream")
        self._do = do
        self._backlog = backlog
        self.events_path = os.path.join(self.folder, "events")
        self._listened = 0  # how often, before it was launched
        self.start_on_free_ports()

    def words(self):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "upstream.py")
        return [sys.executable, "-B", script, "--port", str(self.port), "--do", self._do, "--log", self.events_path,
                "--backlog", str(self._backlog)]

    def launch(self):
        self._listened = self._count_listened()
        super().launch()

    def is_ready(self):
        return self._count_listened() > self._listened

    def _count_listened(self):
        return len(re.findall(r"^listening \d+$", self.log(), re.MULTILINE))

    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def set_default(self, do):
        """What stands for Upstream-Do in requests without it, until the upstream is started again."""
        link = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            link.request("DEFAULT", "/", headers={"Upstream-Do": do})
            if link.getresponse().status != 204:
                raise AssertionError(f"the upstream does not know {do!r}")
        finally:
            link.close()

    def events(self, kind=None):
        """The lines of its log, over all of its starts; a last one that is not whole is left out."""
        try:
            with open(self.events_path, encoding="ascii") as file:
                lines = [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []
        return [line for line in lines if kind in (None, line["event"])]

    def applied(self):
        """Writes that took effect, in order."""
        return self.events("applied")

    def seen(self):
        """Requests, in order; head is the raw head as bytes."""
        return [{**line, "head": bytes.fromhex(line["head"])} for line in self.events("seen")]

    def anomalies(self):
        return [line["reason"] for line in self.events("anomaly")]

    def wait_for(self, kind, count=1):
        """The events of a kind, once there are as many."""
        wait_until(lambda: len(self.events(kind)) >= count, what=f"{count} times '{kind}' at the upstream")
        return self.events(kind)


def fallen(applied, token_of=lambda line: int(line["token"])):
    """Pairs of writes to one path where the later has the lower token: what must not be."""
    highest, found = {}, []
    for line in applied:
        before = highest.get(line["path"])
        if before and token_of(line) < token_of(before):
            found.append((before, line))
        else:
            highest[line["path"]] = line
    return found
