"""TLS on either side of a guard in front of an HTTP storage, as its flags say.

Shows: who does not show the certificate that is asked for gets nothing through; a storage that is not the one named is
unavailable, and nothing is sent to it; files that cannot be used are named at the start. How: clients of Python's, the
tests' own upstream, and nginx's WebDAV under TLS.
"""

import http.client
import os
import pty
import select
import shutil
import signal
import socket
import ssl
import tempfile
import unittest

import certificates
import support
import upstream_server
from nginx import Nginx
from waiting import wait_until


class WebDav(Nginx):
    """WebDAV under TLS, as 'server' or under the name that is given; asks for a client's certificate if it is to."""

    def __init__(self, shown, name, asks):
        super().__init__()
        self.files = os.path.join(self.folder, "files")
        os.mkdir(self.files)
        ask = f"ssl_verify_client on; ssl_client_certificate {shown.file('ca')};" if asks else ""
        self._secrets = f"ssl_certificate {shown.file(name)}; ssl_certificate_key {shown.key(name)}; {ask}"
        self.start_on_free_ports()

    def block(self):
        return (f"access_log access.log; {self._secrets}\nserver {{ listen 127.0.0.1:{self.port} ssl; root {self.files};\n"
                "location / { dav_methods PUT DELETE; create_full_put_path on; } }")

    def has(self, path):
        return os.path.exists(self.files + path)

    def requests(self):
        with open(os.path.join(self.folder, "access.log"), encoding="ascii") as log:
            return len(log.readlines())


class HttpTls(support.BinaryTest):
    @classmethod
    def setUpClass(cls):
        cls.shown_folder = tempfile.mkdtemp(prefix="fenceguard-certificates-")
        cls.addClassCleanup(shutil.rmtree, cls.shown_folder)
        cls.shown = certificates.Certificates(cls.shown_folder)
        cls.shown.sign("server")
        cls.shown.sign("client")
        cls.shown.sign("intruder", signer="stranger")
        cls.shown.sign("elsewhere", names="DNS:elsewhere,IP:127.0.0.2")

    def guard(self, storage, *more):
        """With a state of its own."""
        state = f"sqlite:state-{len(os.listdir(self.folder))}.db"
        return self.serve("--storage", storage, "--state", state, "--init", "--settled", "--settle", "300ms",
                          "--upstream-timeout", "5s", "--log-level", "off", *more)

    def nginx(self, name="server", asks=False):
        server = WebDav(self.shown, name, asks)
        self.addCleanup(server.remove)
        return server

    def upstream(self):
        server = upstream_server.Server()
        self.addCleanup(server.remove)
        return server

    def data_side(self, *more):
        return ["--tls-certificate", self.shown.file("server"), "--tls-key", self.shown.key("server"), *more]

    def put(self, server, shows=None, path="/r"):
        """A write over TLS; its status. Raises OSError where the guard does not want to hear it."""
        context = ssl.create_default_context(cafile=self.shown.file("ca"))
        if shows:
            context.load_cert_chain(self.shown.file(shows), self.shown.key(shows))
        port = int(server.data.rpartition(":")[2])
        link = http.client.HTTPSConnection("localhost", port, context=context, timeout=30)
        try:
            link.request("PUT", path, "x", {"Fencing-Token": "34", "Fencing-Holder": "h"})
            answer = link.getresponse()
            answer.read()
            return answer.status
        finally:
            link.close()

    def ask(self, server):
        return server.request("PUT", "/r", {"Fencing-Token": "34", "Fencing-Holder": "h"}, "x")

    def expect_unavailable(self, nginx, *more, host="127.0.0.1"):
        """Nothing was sent, so nothing is unknown, and no lane is closed."""
        server = self.guard(f"https://{host}:{nginx.port}", *more)
        for _ in range(2):
            answer = self.ask(server)
            self.assertEqual((answer.status, answer.headers["fencing-verdict"]), (503, "unavailable"))
        self.assertIn("\nfenceguard_settle_closures_total 0\n", server.call("GET", "/metrics").body.decode())
        self.assertFalse(nginx.has("/r"))
        self.assertEqual(nginx.requests(), 0)
        self.assertEqual(server.stop(), 0)

    def expect_no_start(self, sentence, *arguments, storage="https://127.0.0.1:9"):
        refused = self.expect(2, "serve", "--storage", storage, "--state", "sqlite:state.db", "--init", "--listen",
                              "127.0.0.1:0", "--control", "127.0.0.1:0", *arguments)
        self.assertIn(sentence, refused.stderr)
        self.assertEqual(refused.stdout, "")

    def test_only_the_data_side_speaks_tls(self):
        upstream = self.upstream()
        server = self.guard(upstream.url(), *self.data_side())
        self.assertEqual(self.put(server), 201)
        self.assertIn(b"X-Forwarded-Proto: https\r\n", upstream.seen()[0]["head"])
        self.assertNotIn(b"HTTP/1.1", support.raw(server.data, b"PUT /r HTTP/1.1\r\nHost: x\r\n\r\n"))
        self.assertEqual(server.call("GET", "/readyz").status, 200)
        self.assertEqual(len(upstream.seen()), 1)

    def test_client_without_the_required_certificate_is_refused(self):
        upstream = self.upstream()
        server = self.guard(upstream.url(), *self.data_side("--tls-client-ca", self.shown.file("ca")))
        for shows in (None, "intruder"):
            with self.assertRaises((OSError, http.client.HTTPException)):
                self.put(server, shows)
        self.assertEqual(upstream.seen(), [])
        self.assertEqual(server.call("GET", "/v1/fences/r").status, 404)
        self.assertEqual(self.put(server, "client"), 201)

    def test_storage_signed_by_a_known_authority_is_written_to(self):
        nginx = self.nginx()
        for host in ("127.0.0.1", "localhost"):
            server = self.guard(f"https://{host}:{nginx.port}", *self.data_side(), "--upstream-ca",
                                self.shown.file("ca"))
            self.assertEqual(self.put(server, path=f"/{host}"), 201)
            self.assertTrue(nginx.has(f"/{host}"))
            self.assertEqual(server.stop(), 0)

    def test_storage_signed_by_a_stranger_is_unavailable(self):
        nginx = self.nginx()
        self.expect_unavailable(nginx, "--upstream-ca", self.shown.file("stranger"))
        self.expect_unavailable(nginx)  # the system's list does not know ours

    def test_storage_under_another_name_is_unavailable(self):
        nginx = self.nginx("elsewhere")
        for host in ("127.0.0.1", "localhost"):
            self.expect_unavailable(nginx, "--upstream-ca", self.shown.file("ca"), host=host)

    def test_a_storage_that_does_not_speak_tls_is_unavailable(self):
        upstream = self.upstream()
        server = self.guard(upstream.url().replace("http:", "https:"))
        self.assertEqual(self.ask(server).status, 503)
        self.assertEqual(upstream.seen(), [])

    def test_a_storage_that_asks_for_a_certificate_is_shown_ours(self):
        nginx = self.nginx(asks=True)
        url, trusted = f"https://127.0.0.1:{nginx.port}", ["--upstream-ca", self.shown.file("ca")]
        for shows in (None, "intruder"):
            shown = ["--upstream-certificate", self.shown.file(shows), "--upstream-key", self.shown.key(shows)]
            server = self.guard(url, *trusted, *(shown if shows else []))
            self.assertEqual(self.ask(server).status, 400)  # its own refusal
            self.assertFalse(nginx.has("/r"))
            self.assertEqual(server.stop(), 0)
        server = self.guard(url, *trusted, "--upstream-certificate", self.shown.file("client"), "--upstream-key",
                            self.shown.key("client"))
        self.assertEqual(self.ask(server).status, 201)

    def own(self, name):
        """NAME's certificate and key, where ours are looked for."""
        for kind, path in (("pem", self.shown.file(name)), ("key", self.shown.key(name))):
            shutil.copy(path, self.path(f"own.{kind}"))
        return self.path("own.pem"), self.path("own.key")

    def presented(self, server):
        context = ssl.create_default_context(cafile=self.shown.file("ca"))
        context.check_hostname = False
        host, _, port = server.data.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as link, context.wrap_socket(link) as secured:
            return ssl.DER_cert_to_PEM_cert(secured.getpeercert(binary_form=True))

    def certificate(self, name):
        with open(self.shown.file(name), encoding="ascii") as file:
            return file.read()

    def hang_up(self, server, line):
        told = server.log().count(line)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.log().count(line) > told, what=line)

    def test_sighup_reloads_the_certificate_and_keeps_connections(self):
        certificate, key = self.own("server")
        server = self.serve("--tls-certificate", certificate, "--tls-key", key)
        context = ssl.create_default_context(cafile=self.shown.file("ca"))
        link = http.client.HTTPSConnection("localhost", int(server.data.rpartition(":")[2]), context=context, timeout=30)
        self.addCleanup(link.close)

        def ask():
            link.request("GET", "/r")
            answer = link.getresponse()
            answer.read()
            return answer.status
        self.assertEqual((ask(), self.presented(server)), (404, self.certificate("server")))
        used = link.sock
        self.own("elsewhere")
        self.hang_up(server, "event=certificates_reloaded")
        self.assertEqual(self.presented(server), self.certificate("elsewhere"))
        shutil.copy(self.shown.key("server"), key)
        self.hang_up(server, "event=certificates_kept")
        self.assertIn(key, server.log())
        self.assertEqual((ask(), self.presented(server)), (404, self.certificate("elsewhere")))
        self.assertIs(link.sock, used)
        self.assertEqual(server.stop(), 0)

    def test_sighup_reads_what_we_show_the_storage_again(self):
        nginx = self.nginx(asks=True)
        certificate, key = self.own("intruder")
        server = self.serve("--storage", f"https://127.0.0.1:{nginx.port}", "--state", "sqlite:state.db", "--init",
                            "--settled", "--upstream-ca", self.shown.file("ca"), "--upstream-certificate", certificate, "--upstream-key",
                            key)
        self.assertEqual(self.ask(server).status, 400)
        self.own("client")
        self.hang_up(server, "event=upstream_certificates_reloaded")
        self.assertNotIn("event=certificates_", server.log())
        self.assertEqual(self.ask(server).status, 201)
        self.assertEqual(server.stop(), 0)

    def test_files_that_cannot_be_used_are_named_at_the_start(self):
        absent, noise = self.path("absent"), self.write("noise", "no certificate\n")
        good, key = self.shown.file("server"), self.shown.key("server")
        self.shown.lock("server", "locked")
        sides = [("--tls-certificate", "--tls-key", "--tls-client-ca"),
                 ("--upstream-certificate", "--upstream-key", "--upstream-ca")]
        for certificate_flag, key_flag, ca_flag in sides:
            for what, certificate, key_file in (
                    (absent, absent, key), (absent, good, absent), (noise, noise, key), (noise, good, noise),
                    (self.folder, self.folder, key), (self.shown.key("client"), good, self.shown.key("client")),
                    (self.shown.key("locked"), good, self.shown.key("locked"))):
                self.expect_no_start(f"'{what}' cannot be used: ", certificate_flag, certificate, key_flag, key_file)
            for ca in (absent, noise):
                self.expect_no_start(f"the file of certificates '{ca}' cannot be used: ", ca_flag, ca, certificate_flag,
                                     good, key_flag, key)
            self.expect_no_start(f"{certificate_flag} and {key_flag} come together", certificate_flag, good)
            self.expect_no_start(f"{certificate_flag} and {key_flag} come together", key_flag, key)

    def test_a_key_under_a_passphrase_is_refused_without_a_prompt(self):
        self.shown.lock("server", "locked")
        words = ["serve", "--tls-certificate", self.shown.file("server"), "--tls-key", self.shown.key("locked"),
                 "--storage", f"sqlite:{self.path('data.db')}", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"]
        process, terminal = pty.fork()
        if process == 0:
            os.execve(support.BINARY, [support.BINARY, *words], support.environment())
        self.addCleanup(os.close, terminal)
        shown = b""
        try:
            while select.select([terminal], [], [], 30)[0]:
                shown += os.read(terminal, 4096)
        except OSError:
            pass  # it has ended
        os.kill(process, signal.SIGKILL)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), 2, shown)
        self.assertIn(b"cannot be used: ", shown)

    def test_flags_that_would_do_nothing_are_refused(self):
        self.expect_no_start("--tls-client-ca is for a data side over TLS", "--tls-client-ca", self.shown.file("ca"))
        self.expect_no_start("--upstream-ca is for an https: storage", "--upstream-ca", self.shown.file("ca"),
                             storage="http://127.0.0.1:9")
        self.expect_no_start("--upstream-certificate is for an https: storage", "--upstream-certificate",
                             self.shown.file("client"), "--upstream-key", self.shown.key("client"),
                             storage="http://127.0.0.1:9")


if __name__ == "__main__":
    unittest.main()
