"""Messages that no client of PostgreSQL sends: each is answered or closed as PostgreSQL does, and others are served."""

import os
import socket
import struct
import threading
import unittest

import raw_client
from raw_client import COPY_DONE, SYNC, RawClient, copy_data, message, query, run
from sidecar_case import SidecarTest, claims_text
from waiting import LIMIT_S, wait_until

ONE = ("accounts/1", 34, "holder-1")
MEMORY_MAX = 64 << 20  # bytes that a client which misbehaves may add, of a process that holds statements up to 16 MiB


class BadInputCase(SidecarTest):
    def setUp(self):
        super().setUp()
        self.sidecar = self.start_sidecar()

    def connect(self, *claims):
        client = RawClient(self.sidecar.data)
        self.addCleanup(client.close)
        options = [("options", claims_text(*claims))] if claims else []
        started = client.start(("user", "postgres"), ("database", self.database), *options)
        self.assertEqual(started[-1], (b"Z", b"I"), started)
        self.pid = next(int.from_bytes(body[:4], "big") for kind, body in started if kind == b"K")
        return client

    def others_are_served(self):
        self.assertEqual(self.psql(self.sidecar, "select 1", ONE), "1")

    def memory(self):
        with open(f"/proc/{self.sidecar.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.sidecar.process.pid}/fd"))


class BadInputTest(BadInputCase):
    def test_lengths_that_lie_end_the_connection(self):
        for kind in b"QPBEDCSHF":
            for length in (0, 3, -1, -(1 << 31)):
                with self.subTest(kind=chr(kind), length=length):
                    client = self.connect()
                    client.send(bytes([kind]) + struct.pack("!i", length) + b"x" * 16)
                    answer = client.until(b"Z")
                    self.assertTrue(raw_client.has_ended(answer))
                    self.assertEqual(raw_client.states(answer), ["08P01"])
        self.others_are_served()

    def test_messages_whose_body_is_short_of_what_it_holds(self):
        for kind in (b"Q", b"P", b"B", b"E", b"D", b"C"):
            for body in (b"", b"x", b"S"):
                with self.subTest(kind=kind, body=body):
                    client = self.connect()
                    answer = client.ask(message(kind, body) + SYNC)
                    self.assertEqual(raw_client.states(answer), ["08P01"])
        self.others_are_served()

    def test_two_gibibytes_that_are_announced_take_no_memory(self):
        before = self.memory()
        for kind in b"QPEDC":
            client = self.connect()
            client.send(bytes([kind]) + struct.pack("!i", (1 << 31) - 1))
            answer = client.until(b"Z")
            self.assertTrue(raw_client.has_ended(answer))
            self.assertEqual(raw_client.states(answer), ["54000"])
        self.assertLess(self.memory(), before + MEMORY_MAX)
        self.others_are_served()

    def test_unknown_types_end_the_connection(self):
        for kind in b"\0Az~\xff":
            client = self.connect()
            answer = client.ask(message(bytes([kind]), b"x"))
            self.assertTrue(raw_client.has_ended(answer))
            self.assertEqual(raw_client.states(answer), ["08P01"])
        self.others_are_served()

    def test_query_that_holds_a_nul_is_not_relayed(self):
        client = self.connect()
        answer = client.ask(message(b"Q", b"select 1\0; select 2\0"))
        self.assertEqual(raw_client.states(answer), ["08P01"])

    def test_half_messages_and_silence_hold_up_nobody(self):
        clients = [self.connect() for _ in range(8)]
        for client, size in zip(clients, range(1, 9)):
            client.send(query("select 1")[:size])
        host, _, port = self.sidecar.data.rpartition(":")
        for data in (b"", b"\0", struct.pack("!i", 80), struct.pack("!ii", 80, 196608) + b"user\0"):
            link = socket.create_connection((host, int(port)))
            self.addCleanup(link.close)
            link.sendall(data)
        self.others_are_served()
        for client, size in zip(clients, range(1, 9)):
            self.assertEqual(raw_client.states(client.ask(query("select 1")[size:])), [])

    def test_startup_packets_that_are_none(self):
        host, _, port = self.sidecar.data.rpartition(":")
        for data in (struct.pack("!i", 7) + b"xxx", struct.pack("!i", -1) + b"xxxx", struct.pack("!i", 1 << 30) + b"x" * 8,
                     b"GET / HTTP/1.1\r\n\r\n", struct.pack("!ii", 8, 131072), struct.pack("!ii", 14, 196608) + b"user\0x"):
            with self.subTest(data), socket.create_connection((host, int(port)), timeout=30) as link:
                link.sendall(data)
                received = b""
                while part := link.recv(4096):
                    received += part
                self.assertIn(b"C08P01\0", received)
        self.others_are_served()

    def test_client_that_reads_nothing_takes_bounded_memory(self):
        before = self.memory()
        for request in (query("select repeat('x', 1000) from generate_series(1, 300000)"),
                        run("select repeat('x', 1000) from generate_series(1, 300000)") + SYNC):
            client = self.connect()
            client.send(request)
            wait_until(lambda: self.run_directly("select count(*) from pg_stat_activity where wait_event = 'ClientWrite' and "
                                                 "query like '%repeat(%' and query not like '%activity%'") != "0",
                       what="a server that waits for its client")
            self.others_are_served()
            self.assertLess(self.memory(), before + MEMORY_MAX)
            client.close()
            wait_until(lambda: self.run_directly("select count(*) from pg_stat_activity where wait_event = 'ClientWrite'") == "0",
                       what="an end of what nobody reads")

    def connect_if_free(self):
        client = RawClient(self.sidecar.data)
        self.addCleanup(client.close)
        started = client.start(("user", "postgres"), ("database", self.database), ("options", claims_text(ONE)))
        self.pid = next((int.from_bytes(body[:4], "big") for kind, body in started if kind == b"K"), None)
        if self.pid:
            return client
        client.close()  # it would count for as long as it is open
        return None

    def test_silent_reader_is_closed_with_its_server_session(self):
        """Whether the sidecar still reads for it, or has paused the server amid an endless answer."""
        self.sidecar = self.start_sidecar("--max-connections", "1")
        for rows in (20_000_000, 7_000):
            with self.subTest(rows=rows):
                client = wait_until(self.connect_if_free, what="a free place")
                client.send(query(f"select repeat('x', 1000) from generate_series(1, {rows})"))
                wait_until(lambda: self.run_directly(
                    f"select state = 'idle' or wait_event = 'ClientWrite' from pg_stat_activity where pid = {self.pid}") == "t",
                    what="an answer that nobody reads")
                self.run_directly(f"select pg_terminate_backend({self.pid})")
                wait_until(self.connect_if_free, what="a free place").close()


class CopyTest(BadInputCase):
    """Data without end, of clients that were overtaken or are no more."""

    def overtake(self):
        self.run_directly("set fenceguard.drain = '200 ms'; select fenceguard.advance('accounts/1', 35, 'new')")

    def stream(self, client, most=None):
        """Sends CopyData in a thread until the connection has ended, or for so many bytes."""
        def send():
            data, sent = copy_data((b"stale" * 2_000 + b"\n") * 6), 0  # few rows, which PostgreSQL takes fast
            while (most is None or sent < most) and client.sends(data):
                sent += len(data)
        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        self.addCleanup(lambda: (client.close(), thread.join(LIMIT_S)))
        return thread

    def nothing_landed(self):
        self.assertEqual(self.run_directly("select count(*) from entries"), "0")

    def test_copy_of_a_client_that_was_overtaken(self):
        """It is cut amid its data, and told so; nothing of it is written."""
        before = self.memory()
        for opening in (query("copy entries (who) from stdin"), run("copy entries (who) from stdin")):
            client = self.connect(ONE)
            client.send(opening)
            self.assertEqual(client.until(b"G", b"E")[-1][0], b"G")
            sending = self.stream(client)
            self.overtake()
            answer = client.until()
            self.assertEqual(raw_client.states(answer), ["57P01"])
            sending.join(LIMIT_S)
            self.assertFalse(sending.is_alive())
            self.nothing_landed()
            self.assertLess(self.memory(), before + MEMORY_MAX)
            self.run_directly("delete from fenceguard.fences")
        self.others_are_served()

    def test_copy_data_behind_a_refusal(self):
        """The server ignores it up to the next Sync, and so does the sidecar."""
        client = self.connect(ONE)
        self.overtake()
        before = self.memory()
        client.send(run("copy entries (who) from stdin"))
        self.stream(client, 64 << 20).join(LIMIT_S)
        self.assertEqual(raw_client.states(client.ask(COPY_DONE + SYNC)), ["ZF001"])
        self.assertLess(self.memory(), before + MEMORY_MAX)
        self.assertEqual(raw_client.states(client.ask(query("insert into entries (who) values ('stale')"))), ["ZF001"])
        self.nothing_landed()

    def test_copy_data_for_a_server_that_waits(self):
        """It is not taken before the server asks for it."""
        client = self.connect(ONE)
        before = self.memory()
        with self.postgres.session(self.database) as other:
            other.run("begin; lock table entries")
            client.send(run("copy entries (who) from stdin"))
            wait_until(lambda: self.run_directly(f"select wait_event_type from pg_stat_activity where pid = {self.pid}") == "Lock")
            sending = self.stream(client, 64 << 20)
            self.others_are_served()
            self.assertLess(self.memory(), before + MEMORY_MAX)
            self.assertTrue(sending.is_alive())
            other.run("commit")
        sending.join(LIMIT_S)
        self.assertFalse(sending.is_alive())
        self.assertEqual(raw_client.states(client.ask(COPY_DONE + SYNC)), [])
        self.assertNotEqual(self.run_directly("select count(*) from entries"), "0")
        self.assertLess(self.memory(), before + MEMORY_MAX)

    def test_client_that_is_gone_or_silent_amid_its_copy(self):
        before = self.descriptors()
        for is_gone in (True, False):
            client = self.connect(ONE)
            client.send(query("copy entries (who) from stdin"))
            client.until(b"G")
            client.send(copy_data(b"stale\n" * 1_000)[:-3])
            client.reset() if is_gone else self.overtake()
            wait_until(lambda: not self.postgres.is_connected(self.pid), what="an end of its backend")
            wait_until(lambda: self.descriptors() <= before, what="an end of its connections")
            self.nothing_landed()


if __name__ == "__main__":
    unittest.main()
