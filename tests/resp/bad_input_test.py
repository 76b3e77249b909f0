"""What no well-behaved client sends to the sidecar in front of Redis: it is answered in Redis's words or hung up on, the
memory that one client takes is bounded, and the others are served meanwhile."""

import contextlib
import os
import random
import re
import socket
import time
import unittest
import unittest.mock

import support
from resp_case import (Bystander, Client, Failure, RespTest, encoded, forget_peak, memory_mib, setUpModule,  # noqa: F401
                       wait_until)

MIB = 1024 * 1024
END = encoded("QUIT")  # what is whole so far is answered, and the connection ended

# Answered by Redis with the same bytes, or ended with the same words.
AS_REDIS = {
    "a negative count asks for nothing": b"*-1\r\n*0\r\n" + END,
    "a huge count": b"*9999999999\r\n",
    "a count beyond 64 bits": b"*99999999999999999999\r\n",
    "a count that is no number": b"*abc\r\n",
    "a count with a sign": b"*+1\r\n",
    "a count of nothing": b"*\r\n",
    "a count without an end": b"*" + b"1" * 70_000,
    "a negative length": b"*1\r\n$-1\r\n",
    "a huge length": b"*1\r\n$536870913\r\n",
    "a length beyond 64 bits": b"*1\r\n$9223372036854775808\r\n",
    "a length that is no number": b"*1\r\n$x\r\n",
    "a length with a leading zero": b"*1\r\n$04\r\nPING\r\n",
    "a length without an end": b"*1\r\n$" + b"1" * 70_000,
    "a wrong header": b"*1\r\n+PING\r\n",
    "a wrong second header": b"*2\r\n$4\r\nECHO\r\n:1\r\n",
    "a single quote that stays open": b"ECHO 'a\r\n",
    "a double quote that stays open": b'ECHO "a\r\n',
    "text behind a quote": b'ECHO "a"b\r\n',
    "an inline command without an end": b"x" * 70_000,
    "empty lines and blanks": b"\r\n\n   \r\n\tPING  \r\n" + END,
    "escapes": b'ECHO "\\x41\\n\\"\\q"\r\nECHO \'a\\\'b\\n\'\r\nECHO ""\r\n' + END,
    "a name that is not known": encoded("NOSUCH", "a", "b" * 200) + END,
    "an empty name": encoded("") + END,
    "too few words": encoded("GET") + encoded("SET", "k") + encoded("AUTH") + encoded("EXEC", "x") + END,
    "too many words": encoded("GET", "a", "b") + encoded("MULTI", "x") + encoded("SELECT", 1, 2) + END,
    "a subcommand that is not known": encoded("OBJECT", "NOSUCH", "k") + END,
    "EXEC and DISCARD without MULTI": encoded("EXEC") + encoded("DISCARD") + END,
    "MULTI within MULTI": encoded("MULTI") + encoded("MULTI") + encoded("GET", "k") + encoded("EXEC") + END,
    "a wrong database": encoded("SELECT", "x") + encoded("SELECT", -1) + encoded("SELECT", 99) + END,
    "a wrong protocol": encoded("HELLO", "x") + encoded("HELLO", 9) + encoded("HELLO", 2, "NO") + END,
    "a password that is not needed": encoded("AUTH", "x") + encoded("PING") + END,
}

# Which a web page can have a browser send to this machine: nothing behind the first such line is a command.
OF_A_BROWSER = (b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET k v\r\nPING\r\n",
                b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nSET k v\r\nPING\r\n")

# Stricter than Redis, so that what was read may be sent on as it came.
HUNG_UP = {
    "another end of a line": b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n",
    "a length of 512 MiB": b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\n",
    "more words than are taken": b"*1048577\r\n",
}


class Requests(RespTest):
    def said(self, address, data):
        with Client(address) as client:
            with contextlib.suppress(Client.Gone):
                client.send_bytes(data)
            return client.rest()

    def test_what_redis_says_is_said(self):
        sidecar = self.sidecar()
        for name, data in AS_REDIS.items():
            with self.subTest(name):
                self.assertEqual(self.said(sidecar.data, data), self.said(self.server.port, data))

    def test_a_browser_is_hung_up_on(self):
        sidecar = self.sidecar("--unfenced", "allow")
        for data in OF_A_BROWSER:
            for address in (sidecar.data, self.server.port):
                said = self.said(address, data)
                self.assertNotIn(b"PONG", said)
                self.assertNotIn(b"OK", said)
        self.assertIsNone(self.redis().call("GET", "k"))

    def test_what_is_refused_ends_the_connection(self):
        sidecar = self.sidecar()
        for name, data in HUNG_UP.items():
            with self.subTest(name):
                self.assertRegex(self.said(sidecar.data, data), rb"\A-ERR Protocol error: [ -~]+\r\n\Z")

    def test_what_stands_before_it_is_answered_first(self):
        """A transaction's answer is not taken for the error behind it."""
        sidecar = self.sidecar()
        client = self.claimed(sidecar, "r", 5)
        client.send_bytes(encoded("SET", "r", "1") + b"*1\r\n$x\r\n")
        self.assertEqual(client.rest(), b"+OK\r\n-ERR Protocol error: invalid bulk length\r\n")
        client = self.claimed(sidecar, "r", 5)
        client.send_bytes(encoded("MULTI") + encoded("INCR", "r") + encoded("EXEC") + b"*1\r\n$x\r\n")
        self.assertEqual(client.rest(), b"+OK\r\n+QUEUED\r\n*1\r\n:2\r\n-ERR Protocol error: invalid bulk length\r\n")
        client = self.client(sidecar)
        client.send_bytes(encoded("SELECT", 1) + b"*1\r\n$x\r\n")
        self.assertEqual(client.rest(), b"+OK\r\n-ERR Protocol error: invalid bulk length\r\n")

    def test_a_client_that_ends_its_side_is_answered(self):
        client = self.client(self.sidecar())
        client.send(("SELECT", 1), ("SELECT", 0), ("PING",), ("FENCE", "r", 1, "h"), ("SET", "r", 1), ("MULTI",),
                    ("INCR", "r"), ("EXEC",))
        client.socket.shutdown(socket.SHUT_WR)
        self.assertEqual(client.rest(), b"+OK\r\n+OK\r\n+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n:2\r\n")

    def test_what_was_sent_is_broken_at_random(self):
        """Bytes of a pipeline are changed, left out and said twice: the guard lives, and keeps to its claims."""
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {seed}")
        chance = random.Random(seed)
        guard = self.sidecar()
        whole = (encoded("FENCE", "r", "5", "h") + encoded("SET", "r", "x" * 50) + encoded("MULTI") + encoded("INCR", "{r}:n")
                 + encoded("EXEC") + encoded("FENCED", "s", 7, "h", "SEQ", 3, "SET", "s", 1) + b'SET {r}:i "a\\n"\r\n'
                 + encoded("WATCH", "r") + encoded("UNFENCE") + encoded("SUBSCRIBE", "c") + encoded("RESET"))
        clients = []
        for _ in range(400):
            data = bytearray(whole)
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(len(data))
                data[at:at + chance.choice((0, 1, 1, 9))] = chance.choice(
                    (b"", bytes([chance.randrange(256)]), b"\r\n", b"$-1\r\n", b"*3\r\n", b"99999", bytes(data[:at])))
            clients.append(Client(guard.data))
            with contextlib.suppress(Client.Gone):
                clients[-1].send_bytes(bytes(data))
        for client in clients:
            client.close()
        self.assertEqual(self.claimed(guard, "t", 1).call("SET", "t", 1), "OK")
        keys = [key for key in self.redis().call("KEYS", "*") if not key.startswith("fenceguard:")]
        fences = {key[len("fenceguard:{"):-1] for key in self.redis().call("KEYS", "fenceguard:{*")}
        self.assertLessEqual({re.sub(r".*\{(.+?)\}.*", r"\1", key) for key in keys}, fences)

    def test_a_transaction_that_is_too_large(self):
        client = self.claimed(self.sidecar(), "r", 5)
        self.assertEqual(client.call("MULTI"), "OK")
        answers = [client.call("SET", "r", "x" * 16 * MIB) for _ in range(4)]
        self.assertEqual(answers[:3], ["QUEUED"] * 3)
        self.assertFailure(answers[3], "ERR fenceguard: the transaction is larger")
        self.assertFailure(client.call("EXEC"), "EXECABORT ")
        self.assertEqual(client.calls(("EXISTS", "r"), ("PING",)), [0, "PONG"])

    def test_half_a_request_and_silence(self):
        sidecar = self.sidecar("--idle-timeout", "200ms")
        whole = encoded("FENCE", "r", "1", "h")
        for size in range(1, len(whole)):
            with Client(sidecar.data) as client:
                client.send_bytes(whole[:size])
        client = self.client(sidecar)
        client.send_bytes(whole[:-1])
        self.assertEqual(client.rest(), b"")
        self.assertEqual(self.redis().call("EXISTS", "fenceguard:{r}"), 0)


class Memory(RespTest):
    """What one client can make the sidecar hold, while another is served."""

    def setUp(self):
        super().setUp()
        self.guard = self.sidecar()
        self.assertEqual(self.redis().call("SET", "seen", "yes"), "OK")
        forget_peak(self.guard.process.pid)
        self.before = memory_mib(self.guard.process.pid)

    @contextlib.contextmanager
    def takes_at_most(self, mib):
        with Bystander(self.guard.data, "GET", "seen", answer="yes") as other:
            wait_until(lambda: other.answers > 0 or other.wrong)
            begun = other.answers
            yield
            wait_until(lambda: other.answers > begun or other.wrong, what="an answer to the other client")
        self.assertIsNone(other.wrong)
        self.assertPeakLess(mib, f"MiB; the other client waited up to {other.longest_s:.2f} s")

    def assertPeakLess(self, mib, told=None):
        """Under a sanitizer, which keeps what was given back, nothing is compared."""
        with open(support.BINARY, "rb") as file:
            if b"__asan_init" in (binary := file.read()) or b"__tsan_init" in binary:
                return
        self.assertLess(memory_mib(self.guard.process.pid, "VmHWM") - self.before, mib, told)

    def test_a_million_tiny_arguments(self):
        words = [b"k"] * 1_000_000
        with self.takes_at_most(200):
            client = self.client(self.guard)
            self.assertEqual(client.call("EXISTS", *words), 0)
            self.assertFailure(client.call("DEL", *words), "NOFENCE resource=k")
            self.assertEqual(client.call("FENCE", "k", 1, "h"), "OK")
            self.assertEqual(client.call("SET", "k", "1"), "OK")
            self.assertEqual(client.call("DEL", *words), 1)
            self.assertFailure(client.call("NOSUCH", *words), "ERR unknown command")

    def test_memory_of_one_request_is_freed_while_client_stays(self):
        clients = [self.client(self.guard) for _ in range(8)]
        with self.takes_at_most(150):
            for client in clients:
                self.assertEqual(client.call("EXISTS", *[b"none"] * 500_000), 0)
                self.assertEqual(client.call("FENCE", "k", 1, "h"), "OK")
                client.send(("MULTI",), ("SET", "k", "x" * 8 * MIB), ("EXEC",))
                self.assertEqual([client.read() for _ in range(3)], ["OK", "QUEUED", ["OK"]])
                self.assertEqual(client.calls(("PING",), ("GET", "seen")), ["PONG", "yes"])

    def test_words_behind_a_pipeline_are_read_once(self):
        data = encoded("SET", "seen", "yes")
        client = self.claimed(self.guard, "seen", 1)
        pipeline = encoded("GET", "seen") * 4_000 + encoded("MSET", *["seen", "yes"] * 100_000) + data
        with self.takes_at_most(150):
            client.send_bytes(pipeline)
            self.assertEqual({client.read() for _ in range(4_000)}, {"yes"})
            self.assertEqual([client.read(), client.read()], ["OK", "OK"])

    def test_one_command_over_thousands_of_claims(self):
        """Each of them is watched and judged once, and found without a search through the others."""
        names = [f"r{i}" for i in range(2_000)]
        client = self.client(self.guard)
        for answer in client.calls(*[("FENCE", name, 1, "h") for name in names]):
            self.assertEqual(answer, "OK")
        pairs = [word for i in range(100_000) for word in (names[i % len(names)], i)]
        with self.takes_at_most(200):
            self.assertEqual(client.call("MSET", *pairs), "OK")
        self.assertEqual(self.redis().call("GET", "r1999"), "99999")

    def test_half_a_gibibyte_announced_and_sent(self):
        with self.takes_at_most(80):
            client = self.client(self.guard)
            client.send_bytes(b"*3\r\n$3\r\nSET\r\n$4\r\nseen\r\n$536870912\r\n")
            with contextlib.suppress(Client.Gone):
                for _ in range(512):
                    client.send_bytes(b"x" * MIB)
            self.assertIn(client.rest(), (b"", b"-ERR Protocol error: invalid bulk length\r\n"))

    def test_a_large_value_that_is_permitted(self):
        with self.takes_at_most(400):
            client = self.claimed(self.guard, "large", 1)
            value = "x" * (32 * MIB)
            self.assertEqual(client.call("SET", "large", value), "OK")
            self.assertEqual(client.call("GET", "large"), value)

    def test_ten_thousand_commands_of_a_client_that_does_not_read(self):
        self.redis().call("SET", "large", "x" * 100_000)
        with self.takes_at_most(250):
            client = self.client(self.guard)
            client.send(*[("GET", "large")] * 10_000)
            wait_until(lambda: self.commands() >= 1_500, what="so many replies that the client's side is full")
            self.quiet()
        # A slow client is not one that has gone, for which the sidecar looks each second.
        time.sleep(2.5)
        # It reads after all, and has lost nothing.
        for _ in range(10_000):
            self.assertEqual(len(client.read()), 100_000)

    def commands(self):
        return int(self.server.info("commandstats").get("cmdstat_get", "calls=0,").split("calls=")[1].split(",")[0])

    def quiet(self):
        """Waits until the sidecar takes no more memory."""
        seen = []
        wait_until(lambda: seen.append(memory_mib(self.guard.process.pid)) or len(seen) > 30
                   and max(seen[-30:]) - min(seen[-30:]) < 1, what="a sidecar at rest")

    def test_a_client_that_only_writes_is_not_read_without_end(self):
        client = self.claimed(self.guard, "seen", 1)
        client.socket.settimeout(1)
        piece = encoded("GETRANGE", "seen", 0, 2) * 2_000 + encoded("NOSUCH") * 2_000
        sent = 0
        with self.takes_at_most(100):
            with contextlib.suppress(Client.Gone):
                while sent < 256 * MIB:
                    client.send_bytes(piece)
                    sent += len(piece)
            self.assertLess(sent, 256 * MIB, "all of it was taken")

    def test_what_is_answered_here_waits_for_redis_within_bounds(self):
        """The claims of a connection, listed again and again behind a reply that does not come."""
        names = [f"{i:04}" + "r" * 500 for i in range(1_000)]
        client = self.client(self.guard)
        for answer in client.calls(*[("FENCE", name, 1, "h") for name in names]):
            self.assertEqual(answer, "OK")
        self.server.pause()
        try:
            client.send(("GET", "seen"), *[("FENCES",)] * 2_000)
            self.quiet()
        finally:
            self.server.resume()
        self.assertPeakLess(100)
        self.assertEqual(client.read(), "yes")
        for _ in range(2_000):
            self.assertEqual(len(client.read()), 1_000)

    def test_large_requests_wait_for_redis_within_bounds(self):
        client = self.claimed(self.guard, "seen", 1)
        client.socket.settimeout(1)
        self.server.pause()
        try:
            with contextlib.suppress(Client.Gone):
                client.send(*[("SET", "seen", "x" * MIB)] * 300)
            self.quiet()
        finally:
            self.server.resume()
        self.assertPeakLess(200)

    def test_a_subscriber_that_does_not_read_is_cut(self):
        """As Redis does, which would otherwise keep all of it."""
        client, other = self.client(self.guard), self.redis()
        self.assertEqual(client.call("SUBSCRIBE", "news"), ["subscribe", "news", 1])
        with self.takes_at_most(150):
            for _ in range(200):
                other.call("PUBLISH", "news", "x" * MIB)
            wait_until(lambda: other.call("PUBSUB", "NUMSUB", "news") == ["news", 0], what="an end of the subscriber")

    def test_the_names_that_a_client_subscribes_to_are_bounded(self):
        client = self.client(self.guard)
        client.send(("SUBSCRIBE", *range(9_999)))
        self.assertEqual([client.read() for _ in range(9_999)][-1], ["subscribe", "9998", 9_999])
        # Together they are too many; those that are there are none more.
        client.send(("PSUBSCRIBE", "a", "b"), ("PSUBSCRIBE", "a"), ("SUBSCRIBE", "one more"), ("SUBSCRIBE", 0), ("UNSUBSCRIBE", 0),
                    ("SUBSCRIBE", "c"))
        answers = [client.read() for _ in range(6)]
        for place in (0, 2):
            self.assertFailure(answers[place], "ERR fenceguard: a connection subscribes to up to 10000 names")
        self.assertEqual(answers[1], ["psubscribe", "a", 10_000])
        self.assertEqual(answers[3:], [["subscribe", "0", 10_000], ["unsubscribe", "0", 9_999], ["subscribe", "c", 10_000]])
        client = self.client(self.guard)
        for number in range(4):
            self.assertEqual(client.call("SUBSCRIBE", str(number) * (MIB - 1))[2], number + 1)
        self.assertFailure(client.call("SUBSCRIBE", "x" * MIB), "ERR fenceguard: ")
        self.assertEqual(client.call("UNSUBSCRIBE")[0], "unsubscribe")


class Connections(RespTest):
    def test_too_many_clients(self):
        limited = self.write("limited", f'#!/bin/sh\nulimit -n 128\nexec "{support.BINARY}" "$@"\n')
        os.chmod(limited, 0o700)
        with unittest.mock.patch.object(support, "BINARY", limited):
            sidecar = self.sidecar()
        clients = []
        for _ in range(200):
            clients.append(self.client(sidecar))
            try:
                answer = clients[-1].call("PING")
            except Client.Gone:
                continue  # so far beyond the limit that nothing is said
            if isinstance(answer, Failure):
                break
        self.assertEqual(answer, "ERR max number of clients reached")
        self.assertEqual(clients[0].call("PING"), "PONG")
        for client in clients:
            client.close()
        wait_until(lambda: self.is_served(sidecar), what="a place for a client")

    def has_clients(self, sidecar):
        port = f":{int(sidecar.data.rpartition(':')[2]):04X}"
        with open("/proc/net/tcp", encoding="ascii") as file:
            links = [line.split() for line in file]
        return any(link[1].endswith(port) and link[3] in ("01", "08") for link in links)  # ESTABLISHED, CLOSE-WAIT

    def test_client_that_goes_while_its_command_waits_leaves_nothing(self):
        """Behind more than is read ahead, too, which hides its end."""
        sidecar = self.sidecar()
        for pipelined in (0, 8_000):
            client = self.client(sidecar)
            client.send(("XREAD", "BLOCK", "0", "STREAMS", "nosuch", "$"))
            wait_until(lambda: "cmd=xread" in self.server.cli("CLIENT", "LIST"), what="a command that waits")
            client.send_bytes(encoded("PING") * pipelined)
            client.close()
            wait_until(lambda: "cmd=xread" not in self.server.cli("CLIENT", "LIST"), what="an end of what waits for nobody")
            wait_until(lambda: not self.has_clients(sidecar), what="an end of its connection")

    def test_client_that_leaves_a_silent_server_leaves_nothing(self):
        server = self.own_server()
        self.initialise(server)
        sidecar = self.sidecar("--body-timeout", "1s", url=server.url("/0?timeout=2m"))
        server.pause()
        for pipelined in (0, 8_000):
            client = self.client(sidecar)
            client.send(("GET", "k"))
            client.send_bytes(encoded("PING") * pipelined)
            client.close()
        wait_until(lambda: not self.has_clients(sidecar), what="an end of their connections")
        server.resume()

    def is_served(self, sidecar):
        with Client(sidecar.data) as client:
            try:
                return client.call("PING") == "PONG"
            except Client.Gone:
                return False


if __name__ == "__main__":
    unittest.main()
