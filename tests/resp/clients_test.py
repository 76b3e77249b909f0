"""Clients as people have them, through the sidecar: redis-cli, redis-benchmark, redis-py, hiredis, ioredis and node-redis.

Each says FENCE and writes, and after a newer holder has advanced its write is refused by an error that names STALE. Those
with a pool say FENCED, or FENCE at each new connection. What the tests need of npm is installed once, in
FENCEGUARD_NODE_FOLDER, as node/package-lock.json says.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import threading
import unittest

import redis

import redis_server
import resp_case
import support
import wire
from waiting import LIMIT_S

HERE = pathlib.Path(__file__).resolve().parent
RUN_MAX_S = 300
STALE = "STALE token=34 highest=35 resource=a: nothing was written"


def setUpModule():
    global SERVER
    SERVER = redis_server.Server()
    unittest.addModuleCleanup(SERVER.remove)


class ClientTest(resp_case.SidecarTest):
    def setUp(self):
        support.BinaryTest.setUp(self)
        self.redis = SERVER
        SERVER.cli("FLUSHALL")
        self.sidecar = self.start_sidecar()
        self.port = int(self.sidecar.data.rpartition(":")[2])

    def take_over(self, token=35):
        self.expect(0, "fence", "advance", "--storage", SERVER.url("/0"), "--resource", "a", "--token", str(token), "--holder",
                    "bob")

    def talk(self, *words, taken_over=True):
        """What a program prints that says 'ready' before a newer holder advances, and waits for a line after it."""
        program = subprocess.Popen(words, cwd=self.folder, env=support.environment(), text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(support.end_process, program)
        said = []
        for line in program.stdout:
            said.append(line.rstrip("\n"))
            if said[-1] == "ready":
                break
        else:
            self.fail("\n".join(said))
        self.take_over()
        rest, _ = program.communicate("go on\n", timeout=RUN_MAX_S)
        self.assertEqual(program.returncode, 0, rest)
        return said[:-1], rest.splitlines()


class RedisCli(ClientTest):
    def cli(self, *words, given=None):
        return subprocess.run(["redis-cli", "-p", str(self.port), *words], input=given, capture_output=True, text=True, check=False,
                              timeout=LIMIT_S).stdout

    def test_lines_of_one_session(self):
        before = self.cli(given="SET {a}n 1\nFENCE a 34 ada\nSET {a}n 'b c'\nFENCES\nFENCE.SHOW a\nLPOP {a}none 2\n")
        self.assertEqual(before.splitlines(), [
            "NOFENCE resource=a: this connection holds no claim to it; say FENCE a TOKEN HOLDER first"
            " (sent again after a lost connection, the first sending may have taken effect)", "", "OK", "OK", "a", "34",
            "34", "", "0", ""])
        self.take_over()
        self.assertEqual(self.cli(given="FENCE a 34 ada\nSET {a}n 2\nGET {a}n\n").splitlines(), [STALE, "", STALE, "", "b c"])
        self.assertIn(STALE, self.cli("FENCED", "a", "34", "ada", "SET", "{a}n", "2"))

    def test_mass_insertion_by_pipe(self):
        told = self.cli("--pipe", given="FENCE a 34 ada\r\n" + "".join(f"SET {{a}}{number} x\r\n" for number in range(5_000)))
        self.assertIn("errors: 0, replies: 5001", told)
        self.assertEqual(SERVER.cli("EXISTS", *(f"{{a}}{number}" for number in range(5_000))), 5_000)
        self.take_over()
        self.assertIn("errors: 2, replies: 2", self.cli("--pipe", given="FENCE a 34 ada\r\nSET {a}1 y\r\n"))
        self.assertEqual(SERVER.cli("GET", "{a}1"), "x")

    def test_inline_commands_without_a_client(self):
        with socket.create_connection(("127.0.0.1", self.port), LIMIT_S) as link:
            link.sendall(b"FENCE a 34 ada\r\nSET {a}n \"b\\x00 c\"\nGET {a}n\r\nQUIT\r\n")
            with link.makefile("rb") as answers:
                self.assertEqual(answers.read(), b"+OK\r\n+OK\r\n$4\r\nb\x00 c\r\n+OK\r\n")


class RedisBenchmark(ClientTest):
    def benchmark(self, *words):
        done = subprocess.run(["redis-benchmark", "-p", str(self.port), "-q", "-n", "2000", "-c", "5", "-r", "1000", *words],
                              capture_output=True, text=True, check=False, timeout=RUN_MAX_S)
        return done.stdout + done.stderr

    def test_writes_under_a_claim_of_each_command(self):
        told = self.benchmark("-P", "16", "FENCED", "a", "34", "ada", "INCR", "{a}n")
        self.assertIn("requests per second", told)
        self.assertNotIn("STALE", told)
        self.assertEqual(SERVER.cli("GET", "{a}n"), "2000")
        self.take_over()
        self.assertIn("STALE", self.benchmark("FENCED", "a", "34", "ada", "INCR", "{a}n"))
        self.assertEqual(SERVER.cli("GET", "{a}n"), "2000")

    def test_its_own_tests_where_writes_without_a_claim_pass(self):
        self.port = int(self.start_sidecar("--unfenced", "allow").data.rpartition(":")[2])
        told = self.benchmark("-P", "4", "-t", "ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange,mset")
        self.assertGreaterEqual(told.count("requests per second"), 19, told)
        self.assertNotIn("rror from server: NOFENCE", told)


class RedisPy(ClientTest):
    """Of the system: before 8 it speaks RESP2 as it comes."""

    def client(self, **options):
        if int(redis.__version__.split(".")[0]) >= 5:
            options.setdefault("protocol", 2)
        client = redis.Redis(host="127.0.0.1", port=self.port, **options)
        self.addCleanup(client.connection_pool.disconnect)
        return client

    def fenced_client(self, **options):
        """Each connection of its pool says FENCE when it is made, also when it is made anew."""
        def begin(connection):
            connection.on_connect()
            connection.send_command("FENCE", "a", 34, "ada")
            connection.read_response()
        return self.client(redis_connect_func=begin, **options)

    def test_a_pool_that_says_fenced(self):
        client = self.client()
        with self.assertRaisesRegex(redis.ResponseError, "^NOFENCE resource=a"):
            client.set("{a}n", 1)
        threads = [threading.Thread(target=lambda: [client.execute_command("FENCED", "a", 34, "ada", "INCR", "{a}n")
                                                    for _ in range(50)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(client.get("{a}n"), b"400")
        self.take_over()
        with self.assertRaises(redis.ResponseError) as raised:
            client.execute_command("FENCED", "a", 34, "ada", "INCR", "{a}n")
        self.assertEqual(str(raised.exception), STALE)
        self.assertEqual(client.get("{a}n"), b"400")

    def test_pipelines_with_and_without_a_transaction(self):
        client = self.fenced_client()
        for is_transaction in (True, False):
            with client.pipeline(transaction=is_transaction) as pipeline:
                pipeline.delete("{a}l", "{a}n").rpush("{a}l", "x", "y").lpop("{a}l", 5).lpop("{a}l", 5).set("{a}n", "1").get("{a}n")
                self.assertEqual(pipeline.execute()[1:], [2, [b"x", b"y"], None, True, b"1"])
            with client.pipeline(transaction=is_transaction) as pipeline:
                pipeline.incr("{a}l").incr("{a}n").hset("{a}n", "f", "v")
                replies = pipeline.execute(raise_on_error=False)
                self.assertEqual([type(reply).__name__ for reply in replies], ["int", "int", "ResponseError"])
        self.take_over()
        for is_transaction in (True, False):
            with client.pipeline(transaction=is_transaction) as pipeline:
                pipeline.set("{a}n", "7").set("{a}n", "8")
                with self.assertRaisesRegex(redis.ResponseError, "STALE token=34 highest=35"):
                    pipeline.execute()
        self.assertEqual(client.get("{a}n"), b"2")

    def test_pool_that_says_fence_writes_until_a_newer_holder(self):
        client = self.fenced_client()
        self.assertTrue(client.set("{a}n", 1))
        client.connection_pool.disconnect()
        self.assertTrue(client.set("{a}n", 2))
        self.take_over()
        with self.assertRaisesRegex(redis.ResponseError, "^STALE"):
            client.set("{a}n", 3)
        client.connection_pool.disconnect()
        with self.assertRaisesRegex(redis.ResponseError, "^STALE"):
            client.set("{a}n", 3)

    def test_loops_that_watch_lose_no_step(self):
        client = self.fenced_client()

        def step(pipeline):
            value = int(pipeline.get("{a}n") or 0)
            pipeline.multi()
            pipeline.set("{a}n", value + 1)

        def climb():
            for _ in range(25):
                client.transaction(step, "{a}n")

        threads = [threading.Thread(target=climb) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(client.get("{a}n"), b"100")

    def test_subscriptions(self):
        client = self.client()
        with client.pubsub() as listening:
            listening.subscribe("news")
            listening.psubscribe("n*")
            for kind in ("subscribe", "psubscribe"):
                self.assertEqual(listening.get_message(timeout=LIMIT_S)["type"], kind)
            self.assertEqual(client.publish("news", "hello"), 2)
            heard = [listening.get_message(timeout=LIMIT_S) for _ in range(2)]
            self.assertEqual([(one["type"], one["data"]) for one in heard], [("message", b"hello"), ("pmessage", b"hello")])

    def test_blocking_reads_of_streams(self):
        client = self.fenced_client()
        reading = threading.Thread(target=lambda: self.read.append(client.xread({"{a}s": "0"}, block=int(LIMIT_S * 1000))))
        self.read = []
        reading.start()
        client.xadd("{a}s", {"f": "v"}, id="1-1")
        reading.join(LIMIT_S)
        self.assertEqual(self.read, [[[b"{a}s", [(b"1-1", {b"f": b"v"})]]]])
        with self.assertRaisesRegex(redis.ResponseError, "say LPOP instead"):
            client.blpop("{a}l", 1)


class Hiredis(ClientTest):
    def test_flights_of_commands(self):
        before, after = self.talk(os.environ["FENCEGUARD_HIREDIS_CLIENT"], str(self.port))
        self.assertRegex(before[0], "^error NOFENCE resource=a")
        self.assertRegex(before[-1], "^error NOFENCE resource=b")
        self.assertEqual(before[1:-1], [
            "text OK", "text OK", "integer 9007199254740994", "nil", "integer 2", "text 9007199254740994",
            "error WRONGTYPE Operation against a key holding the wrong kind of value", "text OK", "text QUEUED", "text QUEUED",
            "array 2", "text OK"])
        self.assertEqual(after, [f"error {STALE}", "text 2", "text OK", "text QUEUED", f"error {STALE}"])


class Npm(ClientTest):
    @classmethod
    def setUpClass(cls):
        cls.packages = pathlib.Path(os.environ["FENCEGUARD_NODE_FOLDER"])
        support.install_packages(HERE / "node", cls.packages)

    def setUp(self):
        super().setUp()
        os.symlink(self.packages / "node_modules", self.path("node_modules"))
        shutil.copy(HERE / "node" / "clients.mjs", self.folder)

    def test_ioredis_and_node_redis_of_two_versions(self):
        for library in ("ioredis", "redis", "redis-4"):
            with self.subTest(library=library):
                SERVER.cli("FLUSHALL")
                self.expect(0, "fence", "init", "--storage", SERVER.url("/0"), "--floor", "0")
                _, after = self.talk("node", "clients.mjs", library, str(self.port))
                self.assertEqual(after, ["done"])


class Hello(ClientTest):
    """HELLO 3 is answered as by a Redis before 6, from which clients fall back."""

    def test_version_2_in_full_and_3_as_a_command_that_is_not_known(self):
        link = wire.Wire(("127.0.0.1", self.port))
        self.addCleanup(link.close)
        told = link.call("HELLO")
        self.assertEqual([told[at] for at in (0, 2, 4)], [b"server", b"version", b"proto"])
        self.assertEqual(told[5], 2)
        self.assertEqual(link.call("HELLO", 2)[5], 2)
        self.assertIn("ERR unknown command 'HELLO'", str(link.call("HELLO", 3)))
        self.assertEqual(link.call("PING"), b"PONG")


if __name__ == "__main__":
    unittest.main()
