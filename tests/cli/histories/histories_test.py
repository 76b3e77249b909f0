"""Recorded histories: clients with tokens that were overtaken long ago, stopped now and then; a guard that is killed at
random, an upstream that delays and cuts, backends of PostgreSQL that are ended. What the clients wrote down must be
linearizable, with a fenced read as one step (linearizability.py, whose own test is linearizability_test.py).

FENCEGUARD_HISTORIES=N records N histories of each kind instead of one, FENCEGUARD_HISTORY_SECONDS=S makes each as long.
FENCEGUARD_HISTORY_FOLDER=PATH keeps them; one that is not linearizable is kept in any case.
"""

import collections
import json
import os
import random
import shutil
import tempfile
import time
import unittest

import http_load
import linearizability
import postgres_server
import support
from history_clients import Clients, HttpAsker, PostgresAsker

COUNT = int(os.environ.get("FENCEGUARD_HISTORIES", "1"))
SECONDS = float(os.environ.get("FENCEGUARD_HISTORY_SECONDS", "6"))
CLIENTS = 6
# Longer than the upstream can be late with what it was sent, however busy the machine is.
SETTLE_MS = 3_000
ATTEMPTS = 3
# A write whose end is not seen closes its resource for that long: so there are few of them.
WORDS = {
    "write": [*30 * ["", "hold=20ms", "hold-answer=20ms"], "status=409 unapplied", f"hold={http_load.SLOW_MS}ms",
              "apply-reset", "drop", "half", "status=503"],
    "read": ["", "", "hold=20ms", "hold-answer=20ms", f"hold={http_load.SLOW_MS}ms", "drop", "half", "slow=1ms"],
}


class Histories(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.seed = random.randrange(2**32)
        self.chooser = random.Random(self.seed)
        print(f"seed {self.seed}", flush=True)

    def check(self, lines, model, name):
        """Writes the history down, and checks it. Answers how often each outcome was told."""
        folder = os.environ.get("FENCEGUARD_HISTORY_FOLDER") or self.folder
        path = os.path.join(folder, f"{name}-{self.seed}-{time.monotonic_ns()}.jsonl")
        lines.sort(key=lambda line: line["begun"])
        with open(path, "w", encoding="utf-8") as file:
            for line in [{"model": model, "seed": self.seed}, *lines]:
                file.write(json.dumps(line) + "\n")
        counts = collections.Counter((line["kind"], line["outcome"]) for line in lines)
        print(f"{name}: {len(lines)} operations, " + ", ".join(
            f"{kind} {outcome} {count}" for (kind, outcome), count in sorted(counts.items())), flush=True)
        began = time.monotonic()
        found = linearizability.check_file(path)
        print(f"{name}: checked in {time.monotonic() - began:.1f} s", flush=True)
        if found:
            kept = shutil.copy(path, tempfile.mkdtemp(prefix="fenceguard-history-"))
            self.fail(f"seed {self.seed}, kept in {kept}:\n" + "\n".join(found))
        for kind in ("write", "read", "advance"):
            self.assertGreater(counts[kind, "done"], 0, name)
            self.assertGreater(counts[kind, "stale"], 0, name)
        return counts

    def disturb(self, clients, strike, apart_s, seconds=SECONDS):
        """Until the time is over: stops one of the clients now and then, and strikes, on average so far apart."""
        until = time.monotonic() + seconds
        next_strike = time.monotonic() + self.chooser.uniform(0.5, 1.5) * apart_s
        while time.monotonic() < until:
            time.sleep(self.chooser.uniform(0.02, 0.2))
            clients.pause_one()
            if time.monotonic() > next_strike:
                strike()
                next_strike = time.monotonic() + self.chooser.uniform(0.5, 1.5) * apart_s

    def record_http(self, arguments, words, name, **rhythm):
        folder = self.path(name)
        os.mkdir(folder)
        data = f"unix:{folder}/data"
        options = ["--listen", data, "--control", "127.0.0.1:0", "--log-level", "off", *arguments]
        servers = [support.Server(folder, options, listen=False)]
        self.addCleanup(lambda: servers[-1].kill())

        def kill_guard():
            servers[-1].kill()
            servers.append(support.Server(folder, options, listen=False))

        with Clients(CLIENTS, folder, self.chooser.randrange(2**32),
                     lambda chooser: HttpAsker(data, chooser, words)) as clients:
            self.disturb(clients, kill_guard, **rhythm)
        print(f"{name}: {len(servers) - 1} kills", flush=True)
        return clients.lines()

    def test_of_the_embedded_storage(self):
        for i in range(COUNT):
            lines = self.record_http(["--storage", "sqlite:data.db"], {}, f"embedded-{i}", apart_s=0.6)
            self.check(lines, "transaction", "embedded")

    def test_of_lanes(self):
        for i in range(COUNT):
            for attempt in range(ATTEMPTS):
                guarded = http_load.Guarded(self.folder, settle_ms=SETTLE_MS)
                self.addCleanup(guarded.remove)
                arguments = ["--storage", guarded.upstream.url(), "--state", "sqlite:state.db", "--init",
                             "--settled", "--settle", f"{SETTLE_MS}ms", "--upstream-timeout", f"{guarded.upstream_timeout_ms}ms"]
                # After each kill everything is closed for the settle time.
                lines = self.record_http(arguments, WORDS, f"lanes-{i}-{attempt}", apart_s=2 * SETTLE_MS / 1000,
                                         seconds=2.5 * SECONDS)
                late_s = self.latest_s(lines, guarded.upstream)
                print(f"lanes: a write took effect at most {late_s:.2f} s after it was sent", flush=True)
                if late_s < SETTLE_MS / 1000:
                    break
            else:
                self.fail("the upstream was always slower than the settle time: nothing is promised of it then")
            self.check(lines, "lane", "lanes")

    @staticmethod
    def latest_s(lines, upstream):
        """How long after it was sent to the guard a write took effect, at most."""
        begun = {line["value"]: line["begun"] for line in lines if "value" in line}
        return max((event["time"] - begun[event["body"]] for event in upstream.applied() if event["body"] in begun),
                   default=0)

    def test_of_postgresql(self):
        with postgres_server.Server() as server:
            for i in range(COUNT):
                folder = self.path(f"postgres-{i}")
                os.mkdir(folder)
                dbname = server.create_database(install=True)
                server.psql("create table data (resource text primary key, value text)", dbname)
                with Clients(CLIENTS, folder, self.chooser.randrange(2**32),
                             lambda chooser: PostgresAsker(server, dbname, chooser)) as clients:
                    self.disturb(clients, lambda: self.end_backend(server, dbname), apart_s=0.2)
                self.check(clients.lines(), "transaction", "postgres")

    @staticmethod
    def end_backend(server, dbname):
        server.ruler().run("select pg_terminate_backend(pid) from (select pid from pg_stat_activity where datname = "
                           f"{postgres_server.literal(dbname)} order by random() limit 1) one")


if __name__ == "__main__":
    unittest.main()
