"""Clients that write down what they did: holders that were stopped go on under tokens that were overtaken long ago.

Each client is a process of its own and writes a file of its own, one operation a line, as linearizability.py reads it.
"""

import http.client
import json
import multiprocessing
import os
import random
import signal
import time

import postgres_server
import support

RESOURCES = ("r/0", "r/1")
KINDS = ("write", "write", "write", "read", "read", "read", "read", "look", "advance")
OUTCOME_OF = {"admitted": "done", "stale": "stale", "unavailable": "nothing", "unknown": "unknown"}


class Gone(Exception):
    """Whoever is asked cannot be reached; nothing was sent."""


class HttpAsker:
    """Asks a guard's data side. words: of the upstream behind it, per kind."""

    def __init__(self, address, chooser, words=None):
        self._link = support.connection(address)
        self._chooser = chooser
        self._words = words or {}

    def ask(self, line):
        if self._link.sock is None:
            try:
                self._link.connect()
            except OSError as error:
                raise Gone from error
        kind, token = line["kind"], line.get("token")
        headers = {} if token is None else {"Fencing-Token": str(token), "Fencing-Holder": f"h{token}"}
        if kind in self._words:
            headers["Upstream-Do"] = self._chooser.choice(self._words[kind])
        method = {"write": "PUT", "advance": "HEAD"}.get(kind, "GET")
        line["begun"] = time.monotonic()
        try:
            self._link.request(method, "/" + line["resource"], body=line.get("value"), headers=headers)
            answer = self._link.getresponse()
            body = answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            self._link.close()
            line.update(outcome="unknown", why=repr(error))
            return
        self._note(line, answer, body)

    @staticmethod
    def _note(line, answer, body):
        verdict = answer.headers["Fencing-Verdict"]
        line.update(status=answer.status, outcome=OUTCOME_OF["admitted" if verdict is None else verdict])
        is_refused = answer.status >= 300 and line["kind"] == "write"
        if line["kind"] == "look" and answer.status not in (200, 404):
            line["outcome"] = "nothing"
        elif line["outcome"] == "done" and is_refused:
            line["kind"] = "advance"  # the storage's own refusal: nothing was written under this token
        elif line["outcome"] == "done" and line["kind"] in ("read", "look"):
            line["seen"] = body if answer.status == 200 else None

    def close(self):
        self._link.close()


class PostgresAsker:
    """Transactions of psql, each judged within itself. Whoever ends the backend ends the session."""

    def __init__(self, server, dbname, chooser):
        self._server = server
        self._dbname = dbname
        self._chooser = chooser
        self._session = None

    def _sql(self, line):
        name = postgres_server.literal(line["resource"])
        claim = f"{name}, {line.get('token')}, 'h{line.get('token')}'"
        look = f"select 'seen ' || value from data where resource = {name};"
        if line["kind"] == "look":
            return look
        if line["kind"] == "advance":
            return f"select fenceguard.advance({claim});"
        write = (f"insert into data values ({name}, {postgres_server.literal(line.get('value'))}) "
                 "on conflict (resource) do update set value = excluded.value;")
        level = self._chooser.choice(["read committed", "read committed", "repeatable read", "serializable"])
        return (f"begin isolation level {level}; select fenceguard.admit({claim}); "
                f"{write if line['kind'] == 'write' else look} commit;")

    def ask(self, line):
        try:
            if self._session is None:
                self._session = self._server.session(self._dbname)
        except (postgres_server.SqlError, postgres_server.ConnectionLost) as error:
            raise Gone from error
        line["begun"] = time.monotonic()
        try:
            said = self._session.run(self._sql(line))
        except (postgres_server.ConnectionLost, postgres_server.SqlError) as error:
            if isinstance(error, postgres_server.ConnectionLost) or "FATAL:" in str(error):
                self.close()
                line.update(outcome="unknown", why=str(error))
                return
            line.update(outcome="stale" if "ZF001" in str(error) else "nothing", why=str(error))
            line["ended"] = time.monotonic()
            self._roll_back()
            return
        line["outcome"] = "done"
        if line["kind"] in ("read", "look"):
            seen = [row.removeprefix("seen ") for row in said.splitlines() if row.startswith("seen ")]
            line["seen"] = seen[0] if seen else None

    def _roll_back(self):
        try:
            self._session.run("rollback")
        except (postgres_server.ConnectionLost, postgres_server.SqlError):
            self.close()

    def close(self):
        if self._session is not None:
            self._session.kill()
            self._session = None


class Client:
    """One process. tokens: the last one that was granted, shared."""

    def __init__(self, number, seed, path, tokens, is_over):
        self.number = number
        self.path = path
        self._chooser = random.Random(seed)
        self._tokens = tokens
        self._is_over = is_over
        self._held = {}  # resource: the token that this client took last, however long ago
        self._values = 0

    def run(self, make_asker):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        asker = make_asker(self._chooser)
        with open(self.path, "w", encoding="utf-8") as file:
            while not self._is_over.is_set():
                resource = self._chooser.choice(RESOURCES)
                if resource not in self._held or self._chooser.random() < 0.4:
                    with self._tokens.get_lock():
                        self._tokens.value += 1
                        self._held[resource] = self._tokens.value
                for _ in range(self._chooser.randint(1, 6)):
                    self._act(asker, resource, file)
        asker.close()

    def _act(self, asker, resource, file):
        line = {"resource": resource, "client": self.number, "kind": self._chooser.choice(KINDS)}
        if line["kind"] != "look":
            line["token"] = self._held[resource]
        if line["kind"] == "write":
            self._values += 1
            line["value"] = f"{line['token']} {self.number} {self._values}"
        try:
            asker.ask(line)
        except Gone:
            time.sleep(0.01)
            return
        line.setdefault("ended", time.monotonic())
        file.write(json.dumps(line) + "\n")
        file.flush()


class Clients:
    """Processes of Client, started; a context manager that ends them. lines() afterwards."""

    def __init__(self, count, folder, seed, make_asker):
        context = multiprocessing.get_context("fork")
        self._tokens = context.Value("q", 1)  # 'serve --init' may have made 1 the floor
        self._is_over = context.Event()
        self._chooser = random.Random(seed)
        clients = [Client(i, seed * 100 + i, os.path.join(folder, f"client-{i}"), self._tokens, self._is_over)
                   for i in range(count)]
        self._paths = [one.path for one in clients]
        self._processes = [context.Process(target=one.run, args=(make_asker,), daemon=True) for one in clients]
        for process in self._processes:
            process.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._is_over.set()
        for process in self._processes:
            process.join(support.LIMIT_S)
            if process.exitcode != 0:
                process.kill()
                raise AssertionError(f"a client ended with {process.exitcode}")

    def pause_one(self):
        """One of them stands still for a moment, in the middle of whatever it does."""
        pid = self._chooser.choice(self._processes).pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self._chooser.uniform(0.01, 0.2))
        os.kill(pid, signal.SIGCONT)

    def lines(self):
        found = []
        for path in self._paths:
            with open(path, encoding="utf-8") as file:
                found += [json.loads(line) for line in file]
        return found
