"""Connections of whom nobody knows yet, or will: thousands that say nothing, half handshakes, claims with signatures that are
not theirs. Each is let go, others are served, and memory and descriptors stay within bounds."""

import base64
import json
import os
import resource
import socket
import ssl
import struct
import unittest
from unittest import mock

import psycopg
import raw_client
import support
from certificates import Certificates
from raw_client import RawClient
from sidecar_case import SidecarTest, claims_text
from waiting import LIMIT_S, wait_until

ONE = ("accounts/1", 34, "holder-1")
TLS_REQUEST = struct.pack("!ii", 8, 80_877_103)
HALF_STARTUP = struct.pack("!ii", 80, 196_608) + b"user\0post"
CROWD = 5_000
HEADER_MAX = "5s"  # within which those that say all of it are heard, however slow the machine is
BYTES_EACH_MAX = 40 * 1024  # of memory, of a connection that has said nothing of use; a sanitizer needs most of it


class StrangersTest(SidecarTest):
    def strangers(self, sidecar, count, *words):
        """So many connections; each says the next of the words."""
        host, _, port = sidecar.data.rpartition(":")
        links = []
        self.addCleanup(lambda: [link.close() for link in links])
        for number in range(count):
            links.append(socket.create_connection((host, int(port)), timeout=LIMIT_S))
            links[-1].sendall(words[number % len(words)])
        return links

    def descriptors(self, sidecar):
        return len(os.listdir(f"/proc/{sidecar.process.pid}/fd"))

    def memory(self, sidecar):
        with open(f"/proc/{sidecar.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096

    def is_served(self, sidecar):
        self.assertEqual(self.psql(sidecar, "select 1", ONE), "1")

    def end_of(self, link):
        """What it still hears."""
        heard = b""
        try:
            while part := link.recv(65536):
                heard += part
        except ConnectionResetError:
            pass
        return heard

    def test_thousands_that_never_authenticate(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.assertGreaterEqual(hard, 3 * CROWD, "more descriptors are needed: ulimit -n")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        sidecar = self.start_sidecar("--header-timeout", "10m")
        before = self.descriptors(sidecar)
        self.is_served(sidecar)
        wait_until(lambda: self.descriptors(sidecar) <= before, what="an end of the one that was served")
        memory = self.memory(sidecar)
        links = []
        for count in range(100, CROWD + 1, 100):  # so that none waits for the kernel to offer it again
            links += self.strangers(sidecar, 100, b"", b"\0\0", TLS_REQUEST, HALF_STARTUP)
            wait_until(lambda: self.descriptors(sidecar) >= before + count, what="connections that were taken")
        self.is_served(sidecar)
        each = (self.memory(sidecar) - memory) / CROWD
        print(f"{CROWD} connections that never authenticate: {each:.0f} bytes of memory each", flush=True)
        self.assertLess(each, BYTES_EACH_MAX)
        for link in links:
            link.close()
        wait_until(lambda: self.descriptors(sidecar) <= before + 4, what="an end of connections that were closed")

    def test_those_that_say_nothing_are_let_go(self):
        sidecar = self.start_sidecar("--header-timeout", HEADER_MAX)
        before = self.descriptors(sidecar)
        words = (b"", b"\0\0", TLS_REQUEST, HALF_STARTUP)
        for link, word in zip(self.strangers(sidecar, 40, *words), words * 10):
            self.assertEqual(self.end_of(link), b"N" if word == TLS_REQUEST else b"")
        wait_until(lambda: self.descriptors(sidecar) <= before, what="an end of their connections")
        self.is_served(sidecar)

    def test_they_count_as_connections(self):
        sidecar = self.start_sidecar("--max-connections", "20", "--header-timeout", "10m")
        before = self.descriptors(sidecar)
        links = self.strangers(sidecar, 20, b"")
        wait_until(lambda: self.descriptors(sidecar) >= before + 20, what="connections that were taken")
        client = RawClient(sidecar.data)
        self.addCleanup(client.close)
        self.assertEqual(raw_client.states(client.start(("user", "postgres"))), ["53300"])
        # Some more are told so, too; of further ones nothing is read.
        links += self.strangers(sidecar, 200, b"")
        self.assertLess(self.descriptors(sidecar), before + 20 + 20)
        self.assertEqual(sidecar.call("GET", "/healthz").status, 200)
        for link in links:
            link.close()
        wait_until(lambda: self.lets_in(sidecar), what="a place")

    def test_there_is_a_descriptor_for_the_server_of_each_client(self):
        """As many clients as are let in have a connection to the server each, and the control side still answers."""
        limited = self.write("limited", f'#!/bin/sh\nulimit -n 256\nexec "{support.BINARY}" "$@"\n')
        os.chmod(limited, 0o700)
        with mock.patch.object(support, "BINARY", limited):
            sidecar = self.start_sidecar("--threads", "1")
        links = []
        self.addCleanup(lambda: [link.close() for link in links])
        with self.assertRaisesRegex(psycopg.OperationalError, "too many clients already"):
            while len(links) < 150:
                links.append(psycopg.connect(self.conninfo(sidecar)))
        self.assertGreater(len(links), 80)
        self.assertEqual(sidecar.call("GET", "/readyz").status, 200)
        self.assertEqual(links[-1].execute("select 1").fetchone(), (1,))

    def test_half_handshakes_of_tls(self):
        certificates = Certificates(self.folder)
        certificates.sign("server")
        sidecar = self.start_sidecar("--tls-certificate", certificates.file("server"), "--tls-key", certificates.key("server"),
                                     "--header-timeout", HEADER_MAX)
        before = self.descriptors(sidecar)
        context = ssl.create_default_context(cafile=certificates.file("ca"))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with self.assertRaises(ssl.SSLWantReadError):
            context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
        hello = outgoing.read()
        silent = []
        for after in (b"", hello[:1], hello[:len(hello) // 2], hello[:-1], hello, b"\x16\x03\x01\xff\xff" + b"x" * 100,
                      b"GET / HTTP/1.1\r\n\r\n", HALF_STARTUP, TLS_REQUEST):
            silent += self.strangers(sidecar, 10, TLS_REQUEST)
            for link in silent[-10:]:
                self.assertEqual(link.recv(1), b"S")
                link.sendall(after)
            with psycopg.connect(self.conninfo(sidecar, ONE), sslmode="require") as link:
                self.assertEqual(link.execute("select 1").fetchone(), (1,))
        # Encrypted, and then nothing, or half of what is asked for.
        context.check_hostname = False
        for after in (b"", HALF_STARTUP):
            [link] = self.strangers(sidecar, 1, TLS_REQUEST)
            self.assertEqual(link.recv(1), b"S")
            encrypted = context.wrap_socket(link)
            self.addCleanup(encrypted.close)
            encrypted.sendall(after)
            silent.append(encrypted)
        for link in silent[:-2]:
            self.assertNotIn(b"AuthenticationOk", self.end_of(link))
        for encrypted in silent[-2:]:
            self.assertEqual(self.end_of(encrypted), b"")
        # What stands behind the request in the clear is not taken for encrypted.
        [link] = self.strangers(sidecar, 1, TLS_REQUEST + HALF_STARTUP)
        self.assertIn(b"C08P01\0", self.end_of(link))
        wait_until(lambda: self.descriptors(sidecar) <= before + 4, what="an end of their connections")


class SignaturesTest(SidecarTest):
    def setUp(self):
        super().setUp()
        self.sidecar = self.signing_sidecar(b"k")

    def signing_sidecar(self, byte):
        key = base64.urlsafe_b64encode(byte * 32).rstrip(b"=").decode()
        return self.start_sidecar("--claim-key", self.write_private("keys" + byte.decode(), f"k1 {key}\n"), "--require-signature")

    def start(self, *claims):
        """Of dictionaries. What a client with these claims hears up to the end of its startup."""
        client = RawClient(self.sidecar.data)
        self.addCleanup(client.close)
        self.client = client
        return client.start(("user", "postgres"), ("database", self.database), ("fenceguard.session_claims", json.dumps(claims)))

    def claim(self, name, sidecar=None, holder=None):
        lease = (sidecar or self.sidecar).lease(name, holder=holder).json
        return {member: lease[member] for member in ("resource", "token", "holder", "signature")}

    def test_what_is_not_signed_so_is_not_let_in(self):
        mine, his = self.claim("accounts/1"), self.claim("accounts/2")
        fences = "select string_agg(f::text, ' ' order by resource) from fenceguard.fences f"
        foreign = self.claim("accounts/3", self.signing_sidecar(b"j"))
        before = self.run_directly(fences)
        signature = mine["signature"]
        flipped = [signature[:at] + ("A" if signature[at] != "A" else "B") + signature[at + 1:] for at in range(len(signature))]
        forged = [{**mine, "signature": each} for each in (
            *flipped, "", signature[:-1], signature + "=", signature + "A", " " + signature, his["signature"],
            foreign["signature"], signature.replace("k1", "k2"), signature.partition(".")[2], "é" * 40, "x" * 9000)]
        forged += [{**mine, "resource": "accounts/2"}, {**mine, "resource": "accounts/1/x"}, {**mine, "holder": "other"},
                   {**mine, "token": str(int(mine["token"]) + 1)}, foreign,
                   {name: value for name, value in mine.items() if name != "signature"}]
        for each in forged:
            with self.subTest(each):
                heard = self.start(each)
                self.assertEqual(raw_client.states(heard), ["28000"])
                self.assertTrue(raw_client.has_ended(heard))
        # One of two is not enough, in either order.
        for pair in ((mine, forged[0]), (forged[0], mine), (his, forged[0]), (forged[0], his)):
            self.assertIn(raw_client.states(self.start(*pair)), (["28000"], ["22023"]))
        self.assertEqual(self.run_directly(fences), before)
        self.assertEqual(self.start(mine)[-1], (b"Z", b"I"))
        self.assertEqual(self.start(his, mine)[-1], (b"Z", b"I"))

    def test_holders_of_odd_characters(self):
        """Each is quoted wherever it goes: signed, advanced and admitted, it writes; another one is refused."""
        for number, holder in enumerate(("'", "''", "\\", "\\'", '"', "$$", "');drop/**/table/**/entries;--", "{}%s%%", "$1",
                                         "E'\\047'", "*/;--", "".join(map(chr, range(33, 127))), "x" * 128)):
            with self.subTest(holder):
                mine = self.claim(f"odd/{number}", holder=holder)
                self.assertEqual(mine["holder"], holder)
                self.assertEqual(self.start(mine)[-1], (b"Z", b"I"))
                self.assertEqual(raw_client.states(self.client.ask(raw_client.query("insert into entries (who) values ('a')"))), [])
                self.assertEqual(self.run_directly(f"select holder from fenceguard.fences where resource = 'odd/{number}'"), holder)
                self.assertEqual(raw_client.states(self.start({**mine, "holder": holder[:-1] + "y"})), ["28000"])
        self.assertEqual(self.run_directly("select count(*) from entries"), "13")

    def test_holders_that_are_none(self):
        sidecar = self.start_sidecar()
        for holder in ("a b", "a\tb", "a\0b", "é", "x" * 129, "\x7f"):
            client = RawClient(sidecar.data)
            self.addCleanup(client.close)
            heard = client.start(("user", "postgres"), ("database", self.database), ("fenceguard.session_claims", json.dumps(
                [{"resource": "accounts/1", "token": "5", "holder": holder}])))
            with self.subTest(holder):
                self.assertEqual(raw_client.states(heard), ["22023"])
        self.assertEqual(self.run_directly("select count(*) from fenceguard.fences"), "0")


if __name__ == "__main__":
    unittest.main()
