"""How a connection begins and ends: TLS on either side, passwords, limits, signatures, a server that is gone, SIGTERM."""

import base64
import os
import select
import shutil
import signal
import ssl
import sys
import unittest
import urllib.parse

import psycopg
import postgres_server
from certificates import Certificates
from raw_client import RawClient
from sidecar_case import SidecarTest
from waiting import LIMIT_S, wait_until

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "postgres"))
from pgbouncer import PgBouncer  # noqa: E402

ONE = ("accounts/1", 34, "holder-1")


class ConnectionsTest(SidecarTest):
    def connect(self, sidecar, *claims, **options):
        link = psycopg.connect(self.conninfo(sidecar, *claims), **options)
        self.addCleanup(link.close)
        return link

    def refusal(self, sidecar, *claims, **options):
        with self.assertRaises(psycopg.OperationalError) as raised:
            psycopg.connect(self.conninfo(sidecar, *claims), **options).close()
        return str(raised.exception)

    def test_tls_to_the_client(self):
        certificates = Certificates(self.folder)
        certificates.sign("server")
        sidecar = self.start_sidecar("--tls-certificate", certificates.file("server"), "--tls-key",
                                     certificates.key("server"))
        secret = {"sslmode": "verify-full", "sslrootcert": certificates.file("ca")}
        link = self.connect(sidecar, ONE, autocommit=True, **secret)
        link.execute("insert into entries (who) values ('a')")
        self.assertEqual(link.execute("select repeat('x', 1000000)").fetchone()[0], "x" * 1_000_000)
        self.assertIn("TLS only", self.refusal(sidecar, ONE, sslmode="disable"))
        self.assertIn("certificate verify failed",
                      self.refusal(sidecar, ONE, sslmode="verify-full", sslrootcert=certificates.file("stranger")))
        self.assertEqual(self.entries(), "a")

    def test_pooler_between_is_refused_at_the_start(self):
        bouncer = PgBouncer(self.postgres)
        self.addCleanup(bouncer.remove)
        pooled = bouncer.conninfo(self.database, "postgres")
        refused = self.expect(2, "serve", "--storage", pooled, "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0")
        self.assertRegex(refused.stderr, "a pooler .PgBouncer. stands before --storage.*--listen none")
        control = self.serve("--storage", pooled, "--listen", "none")
        self.assertEqual(control.call("GET", "/healthz").status, 200)

    def test_tls_of_newer_clients(self):
        """libpq 17 names its protocol (ALPN), and may begin with TLS without asking."""
        certificates = Certificates(self.folder)
        certificates.sign("server")
        sidecar = self.start_sidecar("--tls-certificate", certificates.file("server"), "--tls-key",
                                     certificates.key("server"))

        def outcome(is_direct, *protocols):
            context = ssl.create_default_context(cafile=certificates.file("ca"))
            if protocols:
                context.set_alpn_protocols(protocols)
            client = RawClient(sidecar.data)
            self.addCleanup(client.close)
            try:
                client.encrypt(context, is_direct)
            except ssl.SSLError as error:
                return str(error)
            return client.start(("user", "postgres"), ("database", self.database))[-1][0]

        for is_direct in (False, True):
            self.assertEqual(outcome(is_direct, "postgresql"), b"Z")
            self.assertEqual(outcome(is_direct, "h2", "postgresql"), b"Z")
            self.assertIn("no application protocol", outcome(is_direct, "http/1.1"))
        self.assertEqual(outcome(False), b"Z")
        self.assertIsNone(outcome(True))

    def test_tls_to_the_server_and_passwords(self):
        certificates = Certificates(self.folder)
        certificates.sign("server")
        for name in (certificates.file("server"), certificates.key("server")):
            copy = os.path.join(self.postgres.data, os.path.basename(name))
            shutil.copy(name, copy)
            postgres_server.own(copy)
            os.chmod(copy, 0o600)
        self.postgres.psql("alter system set ssl = on; alter system set ssl_cert_file = 'server.pem'; "
                           "alter system set ssl_key_file = 'server.key'".replace("; ", ";\n"))
        hba = os.path.join(self.postgres.data, "pg_hba.conf")
        with open(hba, encoding="utf-8") as file:
            before = file.read()
        self.run_directly("create role app login password 'secret'; grant all on entries to app; "
                          "grant all on sequence entries_id_seq to app")
        with open(hba, "w", encoding="utf-8") as file:
            file.write("hostssl all app 127.0.0.1/32 scram-sha-256\nhost all app 127.0.0.1/32 reject\n" + before)
        self.postgres.psql("select pg_reload_conf()")
        url = self.postgres.url(self.database) + "?" + urllib.parse.urlencode(
            {"sslmode": "verify-full", "sslrootcert": certificates.file("ca")})
        sidecar = self.serve("--storage", url, "--listen", "127.0.0.1:0")

        def connect(password):
            return psycopg.connect(self.conninfo(sidecar, ONE, user="app"), password=password, autocommit=True)

        with connect("secret") as link:
            link.execute("insert into entries (who) values ('a')")
            self.assertTrue(link.execute("select ssl from pg_stat_ssl where pid = pg_backend_pid()").fetchone()[0])
        with self.assertRaisesRegex(psycopg.OperationalError, "password authentication failed"):
            connect("wrong")
        self.assertEqual(self.entries(), "a")

    def test_one_connection_too_many(self):
        sidecar = self.start_sidecar("--max-connections", "1", "--threads", "1")
        link = self.connect(sidecar)
        self.assertIn("too many clients", self.refusal(sidecar))
        link.close()
        wait_until(lambda: self.lets_in(sidecar))

    def test_statement_over_the_limit_ends_the_session(self):
        sidecar = self.start_sidecar("--statement-limit", "4096")
        link = self.connect(sidecar, ONE, autocommit=True)
        link.execute("insert into entries (who) values (%s)", ["x" * 100_000])
        with self.assertRaisesRegex(psycopg.OperationalError, "statement-limit"):
            link.execute("insert into entries (who) values ('" + "x" * 10_000 + "')")

    def test_signature_is_asked_for(self):
        key = base64.urlsafe_b64encode(b"k" * 32).rstrip(b"=").decode()
        sidecar = self.start_sidecar("--claim-key", self.write_private("keys", f"k1 {key}\n"), "--require-signature")
        self.assertIn("not signed", self.refusal(sidecar, ONE))
        lease = sidecar.lease("accounts/1").json
        options = ('-c fenceguard.session_claims=[{"resource":"accounts/1","token":"%s","holder":"%s","signature":"%s"}]'
                   % (lease["token"], lease["holder"], lease["signature"]))
        with psycopg.connect(self.conninfo(sidecar), options=options, autocommit=True) as link:
            link.execute("insert into entries (who) values ('a')")
        other = sidecar.lease("accounts/2").json["signature"]
        for wrong in (other, lease["signature"][:-2] + ("AA" if lease["signature"][-2:] != "AA" else "BB"), "x", ""):
            with self.assertRaisesRegex(psycopg.OperationalError, "not signed"):
                psycopg.connect(self.conninfo(sidecar), options=options.replace(lease["signature"], wrong))
        self.assertEqual(self.entries(), "a")

    def test_sigterm_lets_a_transaction_end(self):
        sidecar = self.start_sidecar("--drain-timeout", "10m")
        idle, busy = self.connect(sidecar, ONE), self.connect(sidecar, ONE)
        busy.execute("insert into entries (who) values ('a')")
        sidecar.process.send_signal(signal.SIGTERM)
        notices = []
        idle.add_notice_handler(lambda notice: notices.append(notice.sqlstate))
        # It asks nothing meanwhile: what is not read yet is lost where the other side hangs up on a request.
        select.select([idle.fileno()], [], [], LIMIT_S)
        idle.pgconn.consume_input()
        idle.pgconn.is_busy()
        self.assertEqual(notices, ["57P01"])
        with self.assertRaises(psycopg.OperationalError):
            idle.execute("select 1")
        busy.execute("insert into entries (who) values ('b')")
        busy.commit()
        self.assertEqual(self.entries(), "a b")
        self.assertEqual(sidecar.wait(), 0)

    def test_absurd_token_raises_nothing(self):
        sidecar = self.start_sidecar()
        self.assertIn("above the highest seen", self.refusal(sidecar, ("accounts/1", 2**62, "h")))
        self.assertEqual(self.run_directly("select count(*) from fenceguard.fences"), "0")

    def test_client_that_goes_away_leaves_nothing_open(self):
        sidecar = self.start_sidecar()
        link = self.connect(sidecar, ONE)
        link.execute("insert into entries (who) values ('x')")
        pid = link.info.backend_pid
        link.close()
        wait_until(lambda: not self.postgres.is_connected(pid))
        self.assertEqual(self.entries(), "")

    def test_refusals_and_admissions_are_counted(self):
        sidecar = self.start_sidecar()
        self.psql(sidecar, "insert into entries (who) values ('a')", ONE)
        self.assertIn("stale", self.refusal(sidecar, ("accounts/1", 33, "h")))
        metrics = sidecar.call("GET", "/metrics").body.decode()
        self.assertRegex(metrics, r'verdict="stale"\} 1\n')
        self.assertRegex(metrics, r'verdict="admitted"\} 2\n')
        self.assertIn("stale", sidecar.log())


if __name__ == "__main__":
    unittest.main()
