"""The storages of the campaign whose clients write to a guard: the embedded one, a lane, the sidecars."""

import contextlib
import os
import re
import sqlite3

import fault_proxy
import support
import upstream_server
from server_process import ServerProcess
from storages import Postgres, Redis, Storage, run
from waiting import wait_until

SETTLE_MS = 1500


class Guard(ServerProcess):
    """fenceguard serve, on Unix sockets, so that clients find it again after a restart."""

    def __init__(self, options, waits=False):
        """waits: for another guard that has the state, which is not waited for here."""
        super().__init__("guard")
        self._control = f"unix:{self.folder}/control"
        self.data = f"{self.folder}/data"
        # Only the first start makes the floor: another would raise it, of which the histories do not tell.
        self._options = options if waits else [*options, "--init", "--settled"]
        self.launch() if waits else self.start()
        if not waits:
            wait_until(self._is_initialised, what="a guard with its floor")
        self._options = options

    def words(self):
        return [support.BINARY, "serve", "--listen", f"unix:{self.data}", "--control", self._control, "--log-level", "warning",
                *self._options]

    def process_options(self):
        return {"env": support.environment()}

    def launch(self):
        self._begun = self._count_begun()
        super().launch()

    def is_ready(self):
        return self._count_begun() > self._begun

    def _count_begun(self):
        return len(re.findall("^listening data=", self.log(), re.MULTILINE))

    def _is_initialised(self):
        return support.request(self._control, "GET", "/readyz").status == 200


class Served(Storage):
    """Clients write to a guard."""

    source_name = "sqlite"

    def open(self):
        self.source = f"sqlite:{self.folder}/leases.db"
        run("fence", "init", "--storage", self.source)
        self.open_server()
        self.guard_options += ["--source", self.source]
        self.start_guard("unix")

    def start_guard(self, scheme):
        self.url = f"{scheme}:{self.folder}/data"
        self.lead_to(Guard(self.guard_options))

    def lead_to(self, guard):
        """Clients find that guard from now on."""
        os.symlink(guard.data, f"{self.folder}/next")
        os.replace(f"{self.folder}/next", f"{self.folder}/data")
        self.guard = guard

    def processes(self):
        return [self.server.pid if hasattr(self, "server") else self.guard.pid]


class Embedded(Served):
    """The file has a trigger for a journal."""

    name = "sqlite"

    def open_server(self):
        self.file = f"{self.folder}/data.db"
        self.unguarded = f"sqlite:{self.file}"
        run("fence", "init", "--storage", self.unguarded)
        columns = "into journal (resource, entry) values (new.path, cast(new.body as text));"
        with contextlib.closing(sqlite3.connect(self.file)) as file:
            file.executescript(
                "create table journal (position integer primary key, resource text, entry text);"
                f"create trigger first after insert on fenceguard_object begin insert {columns} end;"
                f"create trigger further after update on fenceguard_object begin insert {columns} end;")
        self.guard_options = ["--storage", self.unguarded]

    def entries(self, resource):
        with contextlib.closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as file:
            return [entry for (entry,) in file.execute(
                "select entry from journal where resource = ? order by position", (resource,))]

    def open_unguarded(self):
        self.guard.stop()


class RedisSidecar(Served):
    name = "redis sidecar"
    source_name = "redis"
    entries = Redis.entries
    make = Redis.make

    def open(self):
        self.server = Redis.start(self)
        self.source = self.server.url("/0")
        self.guard_options = ["--storage", self.source]
        self.start_guard("sidecar")


class PostgresSidecar(Served):
    name = "postgres sidecar"
    source_name = "postgres"
    entries = Postgres.entries
    make = Postgres.make
    processes = Postgres.processes

    def open(self):
        self.server = Postgres.start(self)
        self.source = self.server.url("campaign")
        self.guard_options = ["--storage", self.source]
        self.start_guard("pgsidecar")
        os.symlink("data", f"{self.folder}/.s.PGSQL.5432")  # as libpq calls a socket
        self.url = f"pgsidecar:{self.folder}"


class Lane(Served):
    name = "http"
    change = None  # of what passes between guard and upstream, as a FaultProxy has it

    def open_server(self):
        self.server = upstream_server.Server()
        self.link = fault_proxy.FaultProxy(self.server.port, self._change)
        self.unguarded = self.server.url()
        self.guard_options = ["--storage", f"http://127.0.0.1:{self.link.port}", "--state", f"sqlite:{self.folder}/state.db",
                              "--settle", f"{SETTLE_MS}ms", "--upstream-timeout", "500ms", "--lock-wait", "30s"]

    def _change(self, *piece):
        return self.change(*piece) if self.change else piece[-1]

    def entries(self, resource):
        return [event["body"] for event in self.server.applied() if event["path"] == "/" + resource]

    def close(self):
        super().close()
        if hasattr(self, "link"):
            self.link.close()
