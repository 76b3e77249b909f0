"""What the scenarios of all clients leave out: Python's README, its package, threads, and asyncio."""

import asyncio
import contextlib
import itertools
import json
import os
import pathlib
import re
import socket
import ssl
import struct
import subprocess
import sys
import threading
import unittest
import unittest.mock

import fenceguard
import fenceguard.aio
import fenceguard.core
import postgres_server
import support
from certificates import Certificates
from fault_proxy import Listener
from upstream_server import Server as Upstream

PYTHON = pathlib.Path(fenceguard.__file__).resolve().parents[1]


def snippets():
    return re.findall(r"^```python\n(.*?)^```", (PYTHON / "README.md").read_text(encoding="utf-8"), re.M | re.S)


class Readme(support.BinaryTest):
    """Each snippet is run as it is, but for the addresses."""

    def run_snippet(self, code, guard, data, database=""):
        where = {"DATA": f"http://{data}", "CONTROL": guard.url}
        for name, url in where.items():
            code = code.replace(getattr(fenceguard.core, name), url)
        code = code.replace("postgres://app@db/bank", database)
        before = "".join(f"fenceguard.core.{name} = {url!r}\n" for name, url in where.items())
        done = subprocess.run([sys.executable, "-B", "-W", "error", "-c", f"import fenceguard.core\n{before}{code}"],
                              capture_output=True, text=True, timeout=support.LIMIT_S, env=support.environment())
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_each_adds_to_the_balance(self):
        guard = self.serve()
        codes = [code for code in snippets() if "psycopg" not in code]
        self.assertEqual(len(codes), 3)
        for number, code in enumerate(codes, 1):
            self.run_snippet(code, guard, guard.data)
            self.assertEqual(guard.request("GET", "/accounts/42").body, str(30 * number).encode())

    def test_the_one_with_a_database_writes_its_row(self):
        with postgres_server.Server() as server:
            database = server.create_database(install=True)
            server.psql("create table account (id bigint, balance bigint); insert into account values (42, 100)",
                        database)
            guard = self.serve("--control", "127.0.0.1:0", "--storage", server.url(database), listen=False)
            (code,) = [code for code in snippets() if "psycopg" in code]
            self.run_snippet(code, guard, "127.0.0.1:1", server.url(database))
            self.assertEqual(server.psql("select balance from account", database), "130")


class Package(support.BinaryTest):
    def test_a_wheel_holds_the_package_and_needs_nothing(self):
        subprocess.run(["cp", "-r", str(PYTHON), self.path("source")], check=True)
        done = subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation",
                               "--disable-pip-version-check", "-w", self.folder, self.path("source")],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (wheel,) = pathlib.Path(self.folder).glob("fenceguard-*-py3-none-any.whl")
        code = (f"import sys; sys.path.insert(0, {str(wheel)!r}); import fenceguard.aio, fenceguard.postgres; "
                "import importlib.metadata as m; print([r for r in m.requires('fenceguard') if 'extra' not in r])")
        done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("[]\n", ""))


class Running(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.guard = self.serve()
        self.urls = (f"http://{self.guard.data}", self.guard.url)


class Threads(Running):
    def test_a_large_object_comes_whole(self):
        body = os.urandom(1 << 20) * 4
        with fenceguard.Client(*self.urls) as client, client.fenced("a", ttl=60) as lease:
            lease.write(body)
            self.assertEqual(lease.read(), body)

    def test_one_client_adds_up_from_many_threads(self):
        client = fenceguard.Client(*self.urls)
        self.addCleanup(client.close)

        def add(lease):
            lease.write(str(int(lease.read() or 0) + 1))

        threads = [threading.Thread(target=lambda: [client.run("sum", add) for _ in range(5)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(client.read("sum"), b"20")

    def test_a_process_that_was_forked_has_connections_of_its_own(self):
        """Two processes that ask on one connection would be given each other's answers."""
        with fenceguard.Client(*self.urls) as client, client.fenced("a", ttl=60) as lease:
            lease.write("1")
            (kept,) = client._idle["data"]
            child = os.fork()
            if child == 0:
                is_other = kept[0] is not client._kept("data") and lease.read() == b"1"
                os._exit(0 if is_other else 1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(lease.read(), b"1")
            self.assertIs(client._idle["data"][0][0], kept[0])

    def test_a_block_that_raises_gives_the_lock_back(self):
        client = fenceguard.Client(*self.urls)
        self.addCleanup(client.close)
        with self.assertRaises(ZeroDivisionError), client.fenced("a", ttl=60) as lease:
            raise ZeroDivisionError
        self.assertTrue(lease.lost.is_set())
        client.acquire("a", wait=0).release()

    def test_wait_for_a_loss_ends_by_timeout_and_by_release(self):
        client = fenceguard.Client(*self.urls)
        self.addCleanup(client.close)
        lease = client.acquire("a", ttl=60)
        self.assertFalse(lease.lost.wait(0.01))
        waiting = threading.Thread(target=lease.lost.wait)
        waiting.start()
        lease.release()
        waiting.join(support.LIMIT_S)
        self.assertFalse(waiting.is_alive())


class OverTls(support.BinaryTest):
    def test_the_data_side_with_an_authority_of_ours_alone(self):
        certificates = Certificates(self.folder)
        certificates.sign("guard")
        guard = self.serve("--tls-certificate", certificates.file("guard"), "--tls-key", certificates.key("guard"))
        data = "https://" + guard.data.replace("127.0.0.1", "localhost")

        async def write_thrice(kind, tls):
            with kind(data, guard.url, tls=tls) as client:
                lease, told = client.acquire(kind.__module__ + str(bool(tls)), ttl=60), []
                lease = await lease if kind is fenceguard.aio.Client else lease
                for _ in range(3):
                    answer = lease.write("1")
                    told.append(await answer if kind is fenceguard.aio.Client else answer)
                given_back = lease.release()
                if kind is fenceguard.aio.Client:
                    await given_back
                return [answer.verdict for answer in told]
        for kind in (fenceguard.Client, fenceguard.aio.Client):
            tls = ssl.create_default_context(cafile=certificates.file("ca"))
            self.assertEqual(asyncio.run(write_thrice(kind, tls)), ["admitted"] * 3)
        for kind in (fenceguard.Client, fenceguard.aio.Client):
            with self.subTest(kind=kind), self.assertRaises(fenceguard.Unavailable):
                asyncio.run(write_thrice(kind, None))


class InFrontOfAStorage(support.BinaryTest):
    def test_a_plain_read_is_answered_by_the_storage_alone(self):
        """No word of the guard's is in such an answer, and a 404 of the storage's own is no object."""
        with Upstream() as upstream:
            guard = self.serve("--storage", upstream.url(), "--state", "sqlite:state.db", "--init", "--settled")
            with fenceguard.Client(f"http://{guard.data}", guard.url) as client:
                self.assertIsNone(client.read("a"))
                with client.fenced("a", ttl=60) as lease:
                    self.assertIsNone(lease.read())
                    lease.write("1")
                self.assertEqual(client.read("a"), b"1")


class Grants(unittest.TestCase):
    """What a lease makes of a grant, told by a server of the test's own."""

    def acquire(self, **members):
        grant = json.dumps({"resource": "a", "token": "7", "holder": "h", "ttl_ms": 60000, **members}).encode()

        def serve(link):
            with link:
                while link.recv(65536):
                    link.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s" % (len(grant), grant))
        with Listener(serve) as listener, fenceguard.Client(control=listener.url) as client:
            return client.acquire("a", ttl=60, renew=False)

    def test_a_lease_ends_when_the_server_says_that_it_does(self):
        self.assertFalse(self.acquire().lost.is_set())
        self.assertFalse(self.acquire(expires_in_ms=50_000).lost.is_set())
        lease = self.acquire(expires_in_ms=1)
        self.assertTrue(lease.lost.wait(support.LIMIT_S))
        self.assertEqual(lease.lost.reason, "expired")

    def test_what_is_printed_is_no_claim(self):
        lease = fenceguard.Client(token="bearer").adopt("a", 7, "who-it-is", "sealed")
        for printed in (lease, lease.lost, lease._call("PUT", "1"), lease._control("PUT", 1), lease._client):
            self.assertNotRegex(f"{printed} {printed!r}", "who-it-is|sealed|bearer")

    def test_a_signature_goes_with_every_claim(self):
        self.assertEqual(self.acquire(signature="s").claim(),
                         {"Fencing-Token": 7, "Fencing-Holder": "h", "Fencing-Signature": "s"})


class Asyncio(Running, unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = fenceguard.aio.Client(*self.urls)
        self.addCleanup(self.client.close)

    async def waiting(self):
        metrics = await asyncio.to_thread(self.guard.call, "GET", "/metrics")
        return int(re.search(rb"^fenceguard_leases_waiting (\d+)$", metrics.body, re.M)[1])

    async def until_waiting(self, count):
        async with asyncio.timeout(support.LIMIT_S) if hasattr(asyncio, "timeout") else contextlib.AsyncExitStack():
            while await self.waiting() != count:
                await asyncio.sleep(0.01)

    async def test_many_add_up(self):
        async def add(lease):
            await lease.write(str(int(await lease.read() or 0) + 1))

        await asyncio.gather(*(self.client.run("sum", add) for _ in range(20)))
        self.assertEqual(await self.client.read("sum"), b"20")

    async def test_an_acquire_that_is_cancelled_is_withdrawn(self):
        """The one behind it is granted the lock that the other would have waited for."""
        first = await self.client.acquire("a", ttl=60)
        cancelled = asyncio.ensure_future(self.client.acquire("a", ttl=60))
        await self.until_waiting(1)
        cancelled.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await cancelled
        await self.until_waiting(0)
        await first.release()
        second = await self.client.acquire("a", ttl=60)
        self.assertGreater(second.token, first.token)

    async def test_a_write_that_is_cancelled_leaves_no_answer_to_the_next(self):
        async with self.client.fenced("a", ttl=60) as lease:
            writing = asyncio.ensure_future(lease.write("1"))
            await asyncio.sleep(0)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await lease.write("2")
            self.assertEqual(await lease.read(), b"2")


EMPTY = b"HTTP/1.1 200 OK\r\nFencing-Verdict: admitted\r\nContent-Length: 0\r\n\r\n"


class KeptConnections(unittest.TestCase):
    """What http.client and asyncio make of a call, told by servers of the test's own."""

    def outcomes(self, kind, url, *calls, **options):
        """What each call on a lease of one client ends with."""
        async def call_all():
            told = []
            with kind(data=url, control=url, token="bearer", **options) as client:
                lease = client.adopt("a", 1, "h")
                for call in calls:
                    try:
                        answer = call(lease)
                        told.append(await answer if kind is fenceguard.aio.Client else answer)
                    except fenceguard.FenceguardError as error:
                        told.append(type(error).__name__)
            return told
        return asyncio.run(call_all())

    def test_no_request_but_a_read_is_sent_twice(self):
        half = b"HTTP/1.1 200 OK\r\nFencing-Ver"
        methods, kinds = ("PUT", "POST", "DELETE", "MOVE", "OPTIONS", "GET"), (fenceguard.Client, fenceguard.aio.Client)
        for method, end, kind in itertools.product(methods, ("end", "reset", "half"), kinds):
            seen = []

            def serve(link, end=end, seen=seen):
                with link:
                    while received := link.recv(65536):
                        seen.append(received.partition(b" ")[0].decode())
                        if len(seen) != 2:
                            link.sendall(EMPTY)
                            continue
                        if end == "half":
                            link.sendall(half)
                        if end == "reset":
                            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        return
            with self.subTest(method=method, end=end, kind=kind), Listener(serve) as listener:
                is_read = method == "GET"
                told = self.outcomes(kind, listener.url, lambda lease: lease.write(b""),
                                     lambda lease: lease.read() if is_read else lease.send(method))
                self.assertEqual(told[1], b"" if is_read else "Unknown")
                self.assertEqual(seen, ["PUT", method] + [method] * is_read)

    def test_no_unasked_answer_or_end_meets_the_next_write(self):
        """Either has arrived before the next write; that goes over a connection of its own."""
        for unasked, kind in itertools.product((b"", EMPTY.replace(b"admitted", b"duplicate")),
                                               (fenceguard.Client, fenceguard.aio.Client)):
            is_out = threading.Event()

            def serve(link, unasked=unasked, is_out=is_out):
                with link:
                    link.recv(65536)
                    link.sendall(EMPTY)
                    is_taken.wait(support.LIMIT_S)
                    link.sendall(unasked)
                    if not unasked:
                        link.shutdown(socket.SHUT_RDWR)
                    is_out.set()
                    link.recv(65536)
            is_taken = threading.Event()

            def write_later(lease):
                is_taken.set()
                is_out.wait(support.LIMIT_S)
                return lease.write(b"")
            with self.subTest(unasked=unasked, kind=kind), Listener(serve) as listener:
                told = self.outcomes(kind, listener.url, lambda lease: lease.write(b""), write_later)
                self.assertEqual([answer.verdict for answer in told], ["admitted", "admitted"])

    def test_redirect_and_proxy_variables_are_not_followed(self):
        seen = []

        def serve_other(link):
            with link:
                seen.append(link.recv(65536))

        with Listener(serve_other) as other, unittest.mock.patch.dict(
                os.environ, {name: other.url for name in ("HTTP_PROXY", "http_proxy")}):
            def serve(link):
                with link:
                    while link.recv(65536):
                        link.sendall(b"HTTP/1.1 307 There\r\nContent-Length: 0\r\n"
                                     b"Location: %s/\r\n\r\n" % other.url.encode())
            for kind in (fenceguard.Client, fenceguard.aio.Client):
                with self.subTest(kind=kind), Listener(serve) as listener:
                    told = self.outcomes(kind, listener.url, lambda lease: lease.write(b""), lambda lease: lease.read(),
                                         lambda lease: lease.renew())
                    self.assertEqual(told, ["Misdirected"] * 3)
        self.assertEqual(seen, [])

    def test_trickling_answer_is_not_awaited_beyond_the_limit(self):
        def serve(link):
            with link, contextlib.suppress(OSError):
                link.recv(65536)
                for octet in EMPTY * 1000:
                    link.sendall(bytes([octet]))
                    if is_over.wait(0.05):
                        return
        for kind in (fenceguard.Client, fenceguard.aio.Client):
            is_over = threading.Event()
            with self.subTest(kind=kind), Listener(serve) as listener:
                told = self.outcomes(kind, listener.url, lambda lease: lease.write(b""), timeout=0.3)
                is_over.set()
                self.assertIn(told, (["Unknown"], ["Unavailable"]))  # that where even the connection took so long


class BadInput(unittest.TestCase):
    def test_an_address_that_is_none(self):
        for url in ("127.0.0.1:7420", "ftp://127.0.0.1", "http://", "http://127.0.0.1:7420/path"):
            with self.assertRaisesRegex(ValueError, "http://HOST:PORT"):
                fenceguard.Client(data=url)

    def test_a_claim_that_is_none(self):
        client = fenceguard.Client()
        for token, holder in (("12\r\nX: y", "h"), ("-", "h")):
            with self.assertRaises(ValueError):
                client.adopt("a", token, holder)
        with self.assertRaisesRegex(ValueError, "control character"):
            client.adopt("a", 1, "h\r\nX: y").write("1")

    def test_answers_that_are_none(self):
        """What a call ends with on each of these answers, of which none is a guard's."""
        ours = b"HTTP/1.1 200 OK\r\nFencing-Verdict: admitted\r\n"
        chunked = ours + b"Transfer-Encoding: chunked\r\n\r\n"
        cases = {ours + b"Content-Length: 2\r\n\r\nbody": "Answer", b"": "Unknown", b"HTT": "Unknown", b"HTTP/1.1 2": "Unknown", b"HTTP/1.1 200 OK\r\n": "Unknown",
                 b"HTTP/1.1 204 No Content\r\nFencing-Verdict: admitted\r\n": "Unknown",
                 ours + b"\r\nbody": "Unknown",
                 ours + b"Content-Length: 5\r\n\r\nbody": "Unknown",
                 chunked + b"4\r\nbody\r\n": "Unknown",
                 chunked + b"x\r\n": "Unknown",
                 b"HTTP/1.1 200 OK\r\n\r\nhello": "Misdirected", b"HTTP/1.1 502 Bad Gateway\r\n\r\n": "Unknown",
                 b"HTTP/1.1 huh\r\n\r\n": "Misdirected", b"+PONG\r\n": "Misdirected", b"\x15\x03\x01": "Misdirected",
                 b"HTTP/1.1 100 Continue\r\n\r\n": "Unknown",
                 b"HTTP/1.1 412 No\r\nContent-Type: application/problem+json\r\nContent-Length: 2\r\n\r\n[]":
                     "Misdirected",
                 b"HTTP/1.1 204 No Content\r\nFencing-Verdict: admitted\r\n\r\n": "Answer",
                 chunked + b"0\r\n\r\n": "Answer"}
        for said, ending in cases.items():
            def serve(link, said=said):
                with link:
                    link.recv(65536)
                    link.sendall(said)
            for kind in (fenceguard.Client, fenceguard.aio.Client):
                with self.subTest(said=said, kind=kind), Listener(serve) as listener:
                    self.assertEqual(self.ending_of(kind, listener.url), ending)

    def test_what_speaks_first_is_no_guard(self):
        def serve(link):
            with link:
                link.sendall(b"SSH-2.0-OpenSSH\r\n")
                while link.recv(65536):
                    pass
        for kind in (fenceguard.Client, fenceguard.aio.Client):
            with self.subTest(kind=kind), Listener(serve) as listener:
                self.assertEqual(self.ending_of(kind, listener.url), "Misdirected")

    @staticmethod
    def ending_of(kind, url):
        async def write():
            with kind(data=url) as client:
                answer = client.adopt("a", 1, "h").write("1")
                return await answer if kind is fenceguard.aio.Client else answer
        try:
            answer = asyncio.run(write())
        except fenceguard.FenceguardError as error:
            return type(error).__name__
        return type(answer).__name__


if __name__ == "__main__":
    unittest.main()
