"""The connections of the sidecar to Redis: one that fails, or a server that becomes another one, is told to those whom it
concerns and to nobody else."""

import itertools
import os
import re
import resource
import select
import socket
import threading
import time
import unittest

import support
from fault_proxy import FaultProxy
from resp_case import LIMIT_S, Failure, RespTest, setUpModule, wait_until  # noqa: F401
from server_process import free_ports

MIB = 1 << 20
NAME = "redis.fenceguard.test"
INSIDE = """for file in hosts resolv.conf nsswitch.conf; do mount --bind {}/$file /etc/$file || exit; done
exec {} "$@"
"""


def descriptors(pid):
    return {int(name) for name in os.listdir(f"/proc/{pid}/fd")}


class WithoutDescriptors:
    """A context in which a process can open nothing."""

    def __init__(self, pid):
        self._pid, self._before = pid, resource.prlimit(pid, resource.RLIMIT_NOFILE)

    def __enter__(self):
        there = descriptors(self._pid)
        first_free = next(number for number in range(1 << 20) if number not in there)
        resource.prlimit(self._pid, resource.RLIMIT_NOFILE, (first_free, self._before[1]))

    def __exit__(self, *_):
        resource.prlimit(self._pid, resource.RLIMIT_NOFILE, self._before)


class Versions(RespTest):
    def test_commands_are_learnt_anew_whenever_the_version_changes(self):
        """And changes back: every other user's connections, for writes and reads, lead to what calls itself a later one."""
        server = self.own_server()
        self.initialise(server)
        version = server.info("server")["redis_version"].encode()
        other = version[:-1] + bytes([version[-1] ^ 1])
        with FaultProxy(server.port, lambda connection, to_server, piece: piece if to_server or connection // 2 % 2 == 0
                        else piece.replace(version, other)) as proxy:
            guard = self.sidecar(url=f"redis://127.0.0.1:{proxy.port}/0")
            told = set()
            for number in range(12):
                server.cli("ACL", "SETUSER", f"u{number}", "on", ">p", "~*", "+@all")
                client = self.client(guard)
                told.add(client.call("HELLO", 2, "AUTH", f"u{number}", "p")[3])
                self.assertIsNone(client.call("GET", "a"))
            self.assertEqual(told, {version.decode(), other.decode()})
            learnt = re.match(r"calls=(\d+),", server.info("commandstats")["cmdstat_command|list"])
            self.assertGreaterEqual(int(learnt[1]), 12)


class Failing(RespTest):
    def test_a_client_that_is_gone_takes_nothing_from_a_list(self):
        """It pipelines a command that waits behind one that is not answered yet, and resets its connection."""
        server = self.own_server()
        self.initialise(server)
        guard = self.sidecar("--unfenced", "allow", server=server)
        gone, other = self.client(guard), self.client(guard)
        self.assertEqual(gone.call("SET", "a", 1), "OK")
        self.assertIsNone(other.call("BLPOP", "nothing", 0.01))
        server.pause()
        try:
            gone.send(("GET", "a"), ("BLPOP", "jobs", 0))
            gone.reset()
        finally:
            server.resume()
        # What is begun for it is begun before these.
        for _ in range(2):
            self.assertIsNone(self.client(guard).call("BLPOP", "nothing", 0.01))
        self.assertEqual(server.info("clients")["blocked_clients"], "0")
        self.assertEqual(server.cli("RPUSH", "jobs", "one"), 1)
        self.assertEqual(server.cli("LRANGE", "jobs", 0, -1), ["one"])

    def test_a_connection_that_cannot_be_made_is_told_and_made_later(self):
        """Of a client's own: for a transaction. Shared: for the first that a client says."""
        guard = self.sidecar()
        pid = guard.process.pid
        client = self.claimed(guard, "r", 5)
        words = (("MULTI",), ("SET", "r", 1), ("EXEC",))
        with WithoutDescriptors(pid):
            for _ in range(2):
                self.assertFailure(client.calls(*words)[2], "UNAVAILABLE ")
            self.assertIsNone(client.call("GET", "r"))
        self.assertEqual(client.calls(*words)[2], ["OK"])
        before = len(descriptors(pid))
        other = self.client(guard)
        wait_until(lambda: len(descriptors(pid)) > before, what="a connection that was accepted")
        with WithoutDescriptors(pid):
            self.assertFailure(other.call("PING"), "UNAVAILABLE ")
        self.assertEqual(other.call("PING"), "PONG")

    def test_a_large_reply_that_comes_slowly_is_no_failure(self):
        """It takes longer than the time for an answer; what counts is that something comes."""
        def slowly(_, to_server, piece):
            if not to_server and len(piece) > 1000:
                time.sleep(0.5)
            return piece

        value = "v" * MIB
        self.redis().call("SET", "large", value)
        with FaultProxy(self.server.port, slowly) as proxy:
            client = self.client(self.sidecar(url=f"redis://127.0.0.1:{proxy.port}/0?timeout=6s"))
            begin = time.monotonic()
            answer = client.call("GET", "large")
            self.assertEqual(answer[:100], value[:100])
            self.assertEqual(len(answer), len(value))
            self.assertGreater(time.monotonic() - begin, 6)


class Paused(RespTest):
    """A server that lets writes wait (CLIENT PAUSE, as in a failover) answers the reads of others."""

    def setUp(self):
        super().setUp()
        self.server = self.own_server()
        self.initialise(self.server)

    def test_reads_of_clients_without_a_claim_go_on(self):
        guard = self.sidecar(server=self.server)
        writers = [self.claimed(guard, f"r{number}", 5) for number in range(2)]  # on each of the shared connections
        for number, writer in enumerate(writers):
            self.assertEqual(writer.call("SET", f"r{number}", "before"), "OK")
        readers = [self.client(guard) for _ in range(4)]
        self.server.cli("CLIENT", "PAUSE", 600_000, "WRITE")
        for number, writer in enumerate(writers):
            writer.send(("SET", f"r{number}", "after"))
        for reader in readers:
            self.assertEqual(reader.calls(("GET", "r0"), ("MGET", "r1", "none"), ("PING",)), ["before", ["before", None], "PONG"])
        self.server.cli("CLIENT", "UNPAUSE")
        self.assertEqual([writer.read() for writer in writers], ["OK", "OK"])
        # Reads and writes in one flight keep their order.
        words = [("GET", "r0"), ("FENCED", "r0", 5, "h", "SET", "r0", 1), ("GET", "r0"), ("FENCED", "r0", 5, "h", "INCR", "r0"),
                 ("GET", "r0"), ("MULTI",), ("GET", "r0"), ("EXEC",), ("GET", "r0")]
        self.assertEqual(readers[0].calls(*words * 20)[:9], ["after", "OK", "1", 2, "2", "OK", "QUEUED", ["2"], "2"])


class Late(RespTest):
    """What was sent on a connection that was lost arrives later, and must not take effect behind a later write of its claim."""

    def setUp(self):
        super().setUp()
        self.server = self.own_server()
        self.initialise(self.server)
        self.begin()

    def begin(self):
        held, is_released = [], threading.Event()

        def hold(connection, to_server, piece):
            if to_server and b"late write" in piece:
                held.append(connection)
                is_released.wait(LIMIT_S)
            return piece

        self.held, self.is_released = held, is_released
        self.proxy = FaultProxy(self.server.port, hold)
        self.addCleanup(self.proxy.close)
        self.addCleanup(is_released.set)

    def lagging(self, *arguments, user=""):
        return self.sidecar(*arguments, url=f"redis://{user}127.0.0.1:{self.proxy.port}/0?timeout=20s", threads=2)

    def send_late(self, client, *commands):
        client.send(*commands)
        wait_until(lambda: self.held, what="the write on its way")

    def lose(self):
        """The sidecar's side of the connection; what was sent on it is on its way."""
        self.proxy.leave(self.held[0])

    def arrive(self):
        self.is_released.set()
        wait_until(lambda: self.proxy.carried(self.held[0]), what="what was on its way")
        self.assertEqual(self.server.cli("PING"), "PONG")

    def test_a_later_write_of_the_claim_stays(self):
        """A run, a transaction, and what only a transaction can do."""
        for late in ([("SET", "r", "late write")], [("MULTI",), ("SET", "r", "late write"), ("EXEC",)],
                     [("BITFIELD", "{r}:late write", "SET", "u8", 0, 1)]):
            with self.subTest(late=late):
                self.server.cli("DEL", "r", "{r}:late write")
                self.begin()
                client = self.claimed(self.lagging(), "r", 5)
                self.send_late(client, *late, ("GET", "r"))
                self.lose()
                self.assertFailure([client.read() for _ in range(len(late) + 1)][-2], "UNKNOWN ")
                self.assertEqual(client.call("SET", "r", "newer"), "OK")
                self.arrive()
                self.assertEqual(self.server.cli("GET", "r"), "newer")
                self.assertEqual(self.server.cli("EXISTS", "{r}:late write"), 0)

    def test_nor_one_of_a_client_that_gave_up_and_came_back(self):
        """Its connection to the sidecar is closed first; those that it has then are on other loops, or lanes."""
        guard = self.lagging()
        gone = self.claimed(guard, "r", 5)
        self.send_late(gone, ("SET", "r", "late write"))
        gone.close()
        again = [self.client(guard) for _ in range(4)]
        for client in again:
            client.send(("FENCED", "r", 5, "h", "SET", "r", "newer"))
        self.lose()
        answers = [client.read() for client in again]
        self.assertIn("OK", answers)
        self.arrive()
        self.assertEqual(self.server.cli("GET", "r"), "newer", answers)

    def test_nor_where_the_connection_only_lags(self):
        """A client gives up and comes back: what it writes then waits for the earlier one, which takes effect in the end."""
        for pipelined in ([("SET", "r", "late write")], [("FENCE", "r", 5, "h"), ("SET", "r", "late write")]):
            with self.subTest(pipelined=pipelined):
                self.server.cli("DEL", "r")
                self.begin()
                guard = self.lagging()
                gone = self.claimed(guard, "r", 5)
                self.send_late(gone, *pipelined)
                gone.close()
                again = [self.client(guard) for _ in range(4)]
                for client in again:  # on both loops, which have seen the end by then
                    self.assertEqual(client.call("PING"), "PONG")
                for client in again:
                    client.send(("FENCED", "r", 5, "h", "SET", "r", "newer"))
                answered, _, _ = select.select([client.socket for client in again], [], [], 0.5)
                self.assertEqual(answered, [])
                self.is_released.set()
                self.assertEqual([client.read() for client in again], ["OK"] * len(again))
                self.assertEqual(self.server.cli("GET", "r"), "newer")

    def test_settle_time_is_waited_where_no_connection_may_be_ended(self):
        """Others go on meanwhile, and so does the next holder."""
        self.server.cli("ACL", "SETUSER", "app", "on", ">p", "~*", "+@all", "-client|kill")
        guard = self.lagging("--settle", "3s", user="app:p@")
        client, next_holder, other = self.claimed(guard, "r", 5), self.client(guard), self.claimed(guard, "other", 5)
        self.send_late(client, ("SET", "r", "late write"))
        begin = time.monotonic()
        self.lose()
        self.assertEqual(other.call("SET", "other", 1), "OK")
        self.assertEqual(next_holder.call("FENCE", "r", 6, "i"), "OK")
        self.assertEqual(next_holder.call("SET", "r", "newer"), "OK")
        answer = client.read()
        self.assertFailure(answer, "UNKNOWN ")
        self.assertIn("NOPERM", answer)
        self.assertGreaterEqual(time.monotonic() - begin, 3)
        self.arrive()
        self.assertEqual(self.server.cli("GET", "r"), "newer")

    def lead_elsewhere(self):
        """Connections that come from now on lead to another server, which is asked to end the one that is lost."""
        other = self.own_server()
        self.initialise(other)
        self.proxy.to_port = other.port
        before = int(other.info("stats")["total_connections_received"])
        self.lose()
        looks = itertools.count(before + 1)
        wait_until(lambda: int(other.info("stats")["total_connections_received"]) > next(looks), what="the question")

    def test_another_server_at_the_address_does_not_end_it(self):
        """A name moves, and back. The other server has no such connection, and the first still has it."""
        client = self.claimed(self.lagging(), "r", 5)
        self.send_late(client, ("SET", "r", "late write"))
        self.lead_elsewhere()
        self.proxy.to_port = self.server.port
        self.assertFailure(client.read(), "UNKNOWN ")
        self.assertEqual(client.call("SET", "r", "newer"), "OK")
        self.arrive()
        self.assertEqual(self.server.cli("GET", "r"), "newer")

    def test_nor_where_the_name_stays_there(self):
        client = self.claimed(self.lagging("--settle", "3s"), "r", 5)
        self.send_late(client, ("SET", "r", "late write"))
        begin = time.monotonic()
        self.lead_elsewhere()
        answer = client.read()
        self.assertFailure(answer, "UNKNOWN ")
        self.assertIn("another server answers there now", answer)
        self.assertGreaterEqual(time.monotonic() - begin, 3)


class Large(RespTest):
    """Requests of more than 1 MiB, which a server may refuse by ending the connection."""

    def connections(self, server):
        return {line.split()[0] for line in server.cli("CLIENT", "LIST").splitlines() if "cmd=client" not in line}

    def test_one_that_redis_refuses_ends_the_connection_of_no_other(self):
        server = self.own_server({"proto-max-bulk-len": "1mb"})
        self.initialise(server)
        guard = self.sidecar(server=server)
        others = [self.client(guard) for _ in range(2)]  # one on each of the shared connections
        client = self.claimed(guard, "r", 5)
        for other in others:
            self.assertIsNone(other.call("GET", "r"))
        before = self.connections(server)
        for large in (("SET", "r", "x" * 2 * MIB), ("FENCED", "r", 5, "h", "SEQ", 1, "SET", "r", "x" * 2 * MIB),
                      ("GET", "x" * 2 * MIB)):
            answers = client.calls(("SET", "r", "small"), large, ("SET", "r", "behind"))
            self.assertEqual(answers[0], "OK")
            # Redis may have reset the connection before its words were read.
            self.assertFailure(answers[1], "ERR Protocol error", "UNKNOWN ", "UNAVAILABLE ")
            self.assertFailure(answers[2], "UNKNOWN ", "UNAVAILABLE ")
            self.assertEqual(client.call("GET", "r"), "small")
        self.assertEqual(before - self.connections(server), set())
        self.assertEqual([other.call("GET", "r") for other in others], ["small"] * 2)

    def test_one_in_a_pipeline_is_answered_in_its_place(self):
        guard = self.sidecar()
        client = self.claimed(guard, "r", 5)
        large = ["x" * (MIB + number) for number in range(3)]
        words = [("APPEND", "r", "a"), ("GET", "r"), ("SET", "{r}:0", large[0]), ("APPEND", "r", "b"), ("STRLEN", "{r}:0"),
                 ("FENCED", "r", 5, "h", "SEQ", 7, "SET", "{r}:1", large[1]), ("APPEND", "r", "c"), ("GET", "r"),
                 ("ECHO", large[2]), ("PUBLISH", "c", "x"), ("STRLEN", "{r}:1")]
        expected = [1, "a", "OK", 2, MIB, "OK", 3, "abc", large[2], 0, MIB + 1]
        self.assertEqual(client.calls(*words), expected)
        before = len(self.connections(self.server))
        client.close()
        wait_until(lambda: len(self.connections(self.server)) < before, what="the end of its connection")

    def test_a_client_has_one_connection_for_them(self):
        """Whichever databases it goes to, and also where it may not go."""
        guard = self.sidecar("--unfenced", "allow")
        client = self.client(guard)
        for database in range(8):
            words = [("SELECT", database), ("SET", "r", "x" * (2 * MIB + database)), ("SELECT", 1000), ("STRLEN", "r"),
                     ("SET", "r", "y" * (MIB + database + 1)), ("STRLEN", "r"), ("DEL", "r")]
            answers = client.calls(*words)
            self.assertFailure(answers.pop(2), "ERR DB index is out of range")
            self.assertEqual(answers, ["OK", "OK", 2 * MIB + database, "OK", MIB + database + 1, 1])
        wait_until(lambda: len([line for line in self.server.cli("CLIENT", "LIST").splitlines()
                                if " cmd=evalsha " in line]) == 1, what="the end of the connections that were left")


class Becoming(RespTest):
    """What answers at the address is not what answered before."""

    def setUp(self):
        super().setUp()
        self.server = self.own_server()
        self.initialise(self.server)

    def test_another_kind_of_server_answers_nobody(self):
        guard = self.sidecar()
        client = self.claimed(guard, "r", 5)
        self.assertEqual(client.call("SET", "r", 1), "OK")
        self.server.stop()
        # Its own is among those that connections to elsewhere are given.
        self.server.options |= {"cluster-enabled": "yes", "cluster-port": str(free_ports(1)[0])}
        self.server.start()
        self.server.cli("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: "cluster_state:ok" in self.server.cli("CLUSTER", "INFO"))
        for words in (("GET", "r"), ("SET", "r", 2), ("FENCE", "r", 6, "h")):
            answer = client.call(*words)
            self.assertFailure(answer, "UNAVAILABLE ")
            self.assertIn("another kind of server", answer)

    def test_a_master_that_becomes_a_replica_is_left(self):
        """Its clients are told so by whatever they say next, and go on where it is the master again."""
        for writes in ([("SET", "r", 1)], [("SET", "r", 1), ("INCR", "r")], [("MULTI",), ("SET", "r", 1), ("EXEC",)],
                       [("MSET", "r", 1, "s", 1)]):
            guard = self.sidecar()
            client = self.claimed(guard, "r", 5)
            self.assertEqual(client.call("FENCE", "s", 5, "h"), "OK")
            self.assertNotIsInstance(client.calls(*writes)[-1], Failure)
            self.server.cli("REPLICAOF", "127.0.0.1", 1)
            answer = client.calls(*writes)[-1]
            self.assertFailure(answer, "READONLY ", "EXECABORT ", "UNKNOWN ")
            for _ in range(2):
                answer = client.calls(*writes)[-1]
                self.assertFailure(answer, "UNAVAILABLE ")
                self.assertIn("is a replica; connect to the master", answer)
            self.server.cli("REPLICAOF", "NO", "ONE")
            self.assertNotIsInstance(client.calls(*writes)[-1], Failure)
            client.close()

    def test_value_like_a_replica_error_is_a_value(self):
        client = self.claimed(self.sidecar(), "r", 5)
        text = "x\r\n-READONLY You can't write against a read only replica."
        words = [("RPUSH", "r", text), ("LRANGE", "r", 0, -1), ("LPOP", "r", 1)]
        before = self.server.info("stats")["total_connections_received"]
        self.assertEqual(client.calls(*words), [1, [text], [text]])
        self.assertEqual(client.call("EXISTS", "r"), 0)
        self.assertEqual(int(self.server.info("stats")["total_connections_received"]), int(before) + 1)

    def test_the_commands_of_another_version_are_asked_for(self):
        version, asked, is_other = self.server.info("server")["redis_version"].encode(), [], threading.Event()

        def change(_, to_server, piece):
            if to_server:
                asked.extend([True] * piece.count(b"COMMAND\r\n$4\r\nLIST"))
            elif is_other.is_set():
                piece = piece.replace(b"\r\n%s\r\n" % version, b"\r\n%s\r\n" % (version[:-1] + b"x"))
            return piece

        with FaultProxy(self.server.port, change) as proxy:
            client = self.client(self.sidecar(url=f"redis://127.0.0.1:{proxy.port}"))

            def reconnect():
                self.server.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                wait_until(lambda: client.call("GET", "r") is None, what="a connection to Redis")

            self.assertIsNone(client.call("GET", "r"))
            first = len(asked)
            reconnect()
            self.assertEqual(len(asked), first)
            is_other.set()
            reconnect()
            wait_until(lambda: len(asked) > first, what="the question for the commands of the other version")


class Resolver(RespTest):
    """One that does not answer holds up nobody: clients are told, and the sidecar ends when it is asked to.

    The sidecar runs in a mount namespace of its own with a file of hosts, in which Redis's name stands at first, and a name
    server that is silent and that the resolver would wait for longer than the test does.
    """

    def setUp(self):
        super().setUp()
        self.silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(self.silent.close)
        address = f"127.77.{os.getpid() % 251}.{os.getpid() // 251 % 251}"
        self.silent.bind((address, 53))
        self.silent.settimeout(LIMIT_S)
        self.write("hosts", f"127.0.0.1 localhost {NAME}\n")
        self.write("resolv.conf", f"nameserver {address}\noptions timeout:30 attempts:5\n")
        self.write("nsswitch.conf", "hosts: files dns\n")
        inside = self.write("inside", INSIDE.format(self.folder, support.BINARY))
        program = self.write("program", f'#!/bin/sh\nexec unshare --mount sh {inside} "$@"\n')
        os.chmod(program, 0o700)
        binary = support.BINARY
        support.BINARY = program
        self.addCleanup(setattr, support, "BINARY", binary)

    def lose_redis(self, server):
        """Its connections, and from then on its name. What was asked of the name server is there then."""
        with open(self.path("hosts"), "w", encoding="ascii") as hosts:
            hosts.write("127.0.0.1 localhost\n")
        server.stop()
        self.silent.recv(512)

    def test_the_end_does_not_wait_for_it(self):
        server = self.own_server()
        self.initialise(server)
        guard = self.sidecar(url=f"redis://{NAME}:{server.port}/0?connect_timeout=3s")
        client = self.claimed(guard, "a", 1)
        self.assertEqual(client.call("SET", "a", 1), "OK")
        self.lose_redis(server)
        wait_until(lambda: "in time" in str(client.call("SET", "a", 1)))
        # A client that waits for a connection, and the control side, which asks each second.
        self.client(guard).send(("GET", "a"))
        wait_until(lambda: guard.call("GET", "/readyz").status == 503)
        self.assertEqual(guard.stop(), 0)


if __name__ == "__main__":
    unittest.main()
