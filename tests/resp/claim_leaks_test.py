"""A claim is of one connection, and of the database that was selected: it leaks to nobody, whatever becomes of its client,
although all clients share a few connections to Redis. And no transaction is applied unjudged."""

import random
import socket
import unittest

from product_case import SECRET
from resp_case import Client, RespTest, encoded, setUpModule, wait_until  # noqa: F401


class Model:
    """What one connection may write, as the sidecar should know it."""

    def __init__(self, client):
        self.client, self.database, self.claims, self.queue = client, 0, {}, None

    def may(self, name):
        return (self.database, name) in self.claims


class Leaks(RespTest):
    def setUp(self):
        super().setUp()
        for database in (1, 2):
            self.initialise(self.server, self.server.url(f"/{database}"))
        self.guard = self.sidecar()

    def test_many_clients_and_each_has_what_it_said(self):
        """Random words of eight clients on two shared connections; each answer is what the model says."""
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {seed}")
        self.random = random.Random(seed)
        self.token = 0
        models = [Model(self.client(self.guard)) for _ in range(8)]
        for step in range(1_500):
            index = self.random.randrange(len(models))
            if self.random.random() < 0.03:
                models[index].client.reset() if self.random.random() < 0.5 else models[index].client.close()
                models[index] = Model(self.client(self.guard))
            with self.subTest(step=step):
                self.step(models[index])

    def step(self, model):
        name = f"r{self.random.randrange(4)}"
        kind = self.random.choice(("fence", "write", "write", "pipeline", "unfence", "select", "reset", "fenced", "list",
                                   "transaction"))
        call = model.client.call
        if kind == "fence":
            self.token += 1
            self.assertEqual(call("FENCE", name, self.token, "h"), "OK")
            model.claims[model.database, name] = self.token
        elif kind == "write":
            self.check(model, name, call("APPEND", name, "x"))
        elif kind == "pipeline":
            names = [f"r{self.random.randrange(4)}" for _ in range(10)]
            for each, answer in zip(names, model.client.calls(*[("APPEND", each, "x") for each in names])):
                self.check(model, each, answer)
        elif kind == "unfence":
            self.assertEqual(model.may(name), call("UNFENCE", name) == "OK")
            model.claims.pop((model.database, name), None)
        elif kind == "select":
            model.database = self.random.randrange(3)
            self.assertEqual(call("SELECT", model.database), "OK")
        elif kind == "reset":
            self.assertEqual(call("RESET"), "RESET")
            model.database, model.claims = 0, {}
        elif kind == "fenced":
            self.token += 1
            self.assertIsInstance(call("FENCED", name, self.token, "h", "APPEND", name, "x"), int)
        elif kind == "list":
            mine = [[key[1], str(token)] for key, token in sorted(model.claims.items()) if key[0] == model.database]
            self.assertEqual(call("FENCES"), mine)
        else:
            self.assertEqual(call("MULTI"), "OK")
            if model.may(name):
                self.assertEqual(call("APPEND", name, "x"), "QUEUED")
                answer = call("EXEC")
                self.check(model, name, answer[0] if isinstance(answer, list) else answer)
            else:
                self.assertFailure(call("APPEND", name, "x"), f"NOFENCE resource={name}")
                self.assertFailure(call("EXEC"), "EXECABORT ")

    def check(self, model, name, answer):
        """Admitted only under a claim; stale where another client, or its own FENCED, said a higher token."""
        if not model.may(name):
            return self.assertFailure(answer, f"NOFENCE resource={name}")
        if not isinstance(answer, int):
            self.assertFailure(answer, f"STALE token={model.claims[model.database, name]} ")

    def test_of_a_client_that_went_away_nothing_stays(self):
        """In the middle of MULTI, of half a request, of a subscription, and with a flight under way."""
        for round_ in range(12):
            gone = self.claimed(self.guard, "r", 10 + round_)
            gone.call("SET", "r", "before")
            is_paused = round_ % 4 == 3
            if is_paused:
                self.server.pause()
            try:
                gone.send_bytes((encoded("MULTI") + encoded("SET", "r", "late"),
                                 encoded("SET", "r", "late")[:-3],
                                 encoded("MULTI") + encoded("SET", "r", "late") + encoded("EXEC")[:5],
                                 encoded("GET", "r") * 50)[round_ % 4])
                gone.reset() if round_ % 2 else gone.close()
                others = [self.client(self.guard) for _ in range(4)]
                for number, other in enumerate(others):
                    other.send(("ECHO", f"{round_} {number}"), ("FENCES",), ("SET", "r", "leaked"), ("EXEC",))
            finally:
                if is_paused:
                    self.server.resume()
            for number, other in enumerate(others):
                self.assertEqual(other.read(), f"{round_} {number}")
                self.assertEqual(other.read(), [])
                self.assertFailure(other.read(), "NOFENCE resource=r")
                self.assertFailure(other.read(), "ERR EXEC without MULTI")
                other.close()
            self.assertEqual(self.redis().call("GET", "r"), "before")

    def test_a_client_that_waited_and_is_gone_takes_nothing(self):
        guard = self.sidecar("--unfenced", "allow")
        redis = self.redis()
        for round_ in range(6):
            client = self.client(guard)
            client.send(("BLPOP", f"q{round_}", 0))
            wait_until(lambda: redis.call("INFO", "clients").split("blocked_clients:")[1].startswith("1"))
            (client.close, client.reset, lambda: client.socket.shutdown(socket.SHUT_WR))[round_ % 3]()
            wait_until(lambda: redis.call("INFO", "clients").split("blocked_clients:")[1].startswith("0"))
            self.assertEqual(redis.calls(("RPUSH", f"q{round_}", 1), ("LLEN", f"q{round_}")), [1, 1])

    def test_unfence_and_reset_let_go(self):
        client = self.claimed(self.guard, "r", 1)
        self.assertEqual(client.call("FENCE", "s", 1, "h"), "OK")
        self.assertEqual(client.calls(("SET", "r", 1), ("UNFENCE", "r"), ("SET", "s", 1)), ["OK"] * 3)
        self.assertFailure(client.call("SET", "r", 1), "NOFENCE resource=r")
        self.assertEqual(client.call("UNFENCE"), "OK")
        self.assertFailure(client.call("SET", "s", 1), "NOFENCE resource=s")
        self.assertEqual(client.calls(("FENCE", "r", 1, "h"), ("MULTI",), ("SET", "r", 2), ("RESET",)),
                         ["OK", "OK", "QUEUED", "RESET"])
        self.assertFailure(client.call("SET", "r", 1), "NOFENCE resource=r")
        self.assertFailure(client.call("EXEC"), "ERR EXEC without MULTI")

    def test_a_claim_is_of_one_database(self):
        client = self.claimed(self.guard, "r", 1)
        # In one pipeline: what stands before SELECT is still of the old one.
        answers = client.calls(("SET", "r", 0), ("SELECT", 1), ("SET", "r", 1), ("FENCE", "r", 7, "h"), ("SET", "r", 2),
                               ("SELECT", 0), ("APPEND", "r", 3), ("FENCES",))
        self.assertFailure(answers.pop(2), "NOFENCE resource=r")
        self.assertEqual(answers, ["OK", "OK", "OK", "OK", "OK", 2, [["r", "1"]]])
        redis = self.redis()
        self.assertEqual(redis.calls(("GET", "r"), ("SELECT", 1), ("GET", "r")), ["03", "OK", "2"])

    def test_a_claim_is_not_of_a_user(self):
        """Two connections of one user share what leads to Redis, and no claim; a change of user takes none along."""
        server = self.own_server()
        self.initialise(server)
        for name in ("alice", "bob"):
            server.cli("ACL", "SETUSER", name, "on", f">{SECRET}", "~*", "+@all")
        guard = self.sidecar(server=server)
        alice, other = self.client(guard), self.client(guard)
        self.assertEqual(alice.calls(("AUTH", "alice", SECRET), ("FENCE", "r", 1, "h"), ("SET", "r", 1)), ["OK"] * 3)
        self.assertEqual(other.call("AUTH", "alice", SECRET), "OK")
        self.assertFailure(other.call("SET", "r", 1), "NOFENCE resource=r")
        self.assertEqual(alice.call("AUTH", "bob", SECRET), "OK")
        self.assertEqual(other.call("AUTH", "bob", SECRET), "OK")
        self.assertFailure(other.call("SET", "r", 1), "NOFENCE resource=r")
        # Its own connection keeps what it said, under the rights of the present user.
        server.cli("ACL", "SETUSER", "bob", "-set")
        self.assertFailure(alice.call("SET", "r", 1), "NOPERM ")
        self.assertEqual(alice.call("APPEND", "r", 1), 2)


class Traps(RespTest):
    """An EXEC that would run unjudged, and commands that would run alone where MULTI was refused."""

    def test_exec_behind_a_script_that_was_forgotten(self):
        guard = self.sidecar()
        for is_watching in (False, True):
            for token in range(10, 20):
                client, other = self.claimed(guard, "r", token), self.client(guard)
                client.call("SET", "r", "mine")
                self.assertEqual(client.calls(("MULTI",), ("SET", "r", "mine"), ("EXEC",))[2], ["OK"])
                if is_watching:
                    self.assertEqual(client.call("WATCH", "{r}:other"), "OK")
                self.assertEqual(client.calls(("MULTI",), ("SET", "r", "stale"), ("SET", "{r}:b", "stale")),
                                 ["OK", "QUEUED", "QUEUED"])
                self.assertEqual(other.call("FENCE", "r", token + 1, "h2"), "OK")
                self.redis().call("SCRIPT", "FLUSH")
                answer = client.call("EXEC")
                self.assertFailure(answer, *(("UNAVAILABLE ",) if is_watching else ("STALE ", )))
                self.assertEqual(self.redis().calls(("GET", "r"), ("GET", "{r}:b")), ["mine", None])
                # And once more, with a claim that is not stale.
                self.assertEqual(other.calls(("MULTI",), ("SET", "r", "theirs"), ("EXEC",))[2], ["OK"])
                self.redis().call("FLUSHALL")
                self.initialise(self.server)

    def test_what_a_user_may_not_do(self):
        server = self.own_server()
        self.initialise(server)
        guard = self.sidecar(server=server)
        self.assertEqual(self.claimed(guard, "r", 5).call("SET", "r", "before"), "OK")
        # Those that would write as a user may not judge, or not begin or watch.
        for number, missing in enumerate((("-eval", "-evalsha"), ("-multi",), ("-watch",), ("-exec",), ("-incr",),
                                          ("-hset", "-hmget"), ("resetkeys", "~r", "~{r}*"))):
            server.cli("ACL", "SETUSER", f"u{number}", "on", f">{SECRET}", "~*", "+@all", *missing)
            client = self.client(guard)
            self.assertEqual(client.call("AUTH", f"u{number}", SECRET), "OK")
            client.call("FENCE", "r", 5, "h")
            client.call("FENCE", "r", 6, "h") if number > 4 else None
            answers = client.calls(("MULTI",), ("SET", "r", "late"), ("INCR", "{r}:n"), ("EXEC",))
            self.assertFailure(answers[3], "NOPERM", "NOFENCE", "UNAVAILABLE", "EXECABORT", "STALE")
            self.assertEqual(self.redis(server).calls(("GET", "r"), ("EXISTS", "{r}:n")), ["before", 0], missing)
            client.close()

    def test_a_server_that_is_busy(self):
        server = self.own_server({"lua-time-limit": "10"})
        self.initialise(server)
        guard = self.sidecar(server=server)
        client, busy, kill = self.claimed(guard, "r", 5), self.redis(server), self.redis(server)
        client.call("SET", "r", "before")
        for is_fresh in (False, True):
            if is_fresh:
                client = self.claimed(guard, "r", 5)
            self.assertEqual(client.calls(("MULTI",), ("SET", "r", "late"), ("SET", "{r}:b", "late")),
                             ["OK", "QUEUED", "QUEUED"])
            busy.send(("EVAL", "while true do end", 0))
            wait_until(lambda: str(kill.call("PING")).startswith("BUSY"), what="a server that is busy")
            try:
                answer = client.call("EXEC")
                self.assertFailure(answer, "BUSY", "UNAVAILABLE", "EXECABORT")
                for words in (("SET", "r", "late"), ("FENCE", "r", 6, "h"), ("BITFIELD", "r", "SET", "u8", 0, 1)):
                    self.assertFailure(client.call(*words), "BUSY", "UNAVAILABLE")
            finally:
                wait_until(lambda: kill.call("SCRIPT", "KILL") == "OK" or kill.call("PING") == "PONG")
            self.assertFailure(busy.read(), "ERR ")
            self.assertEqual(self.redis(server).calls(("GET", "r"), ("EXISTS", "{r}:b")), ["before", 0])
            self.assertEqual(client.calls(("MULTI",), ("APPEND", "r", ""), ("EXEC",))[2], [6])


if __name__ == "__main__":
    unittest.main()
