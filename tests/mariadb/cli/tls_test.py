"""TLS to a MariaDB server: who signed its certificate, its name, our own certificate, and no way back to plain text."""

import os
import sys
import unittest

from certificates import Certificates
from product_case import ProductTest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from mariadb_server import Server  # noqa: E402


class Tls(ProductTest):
    def start_server(self, names="DNS:localhost,IP:127.0.0.1", **settings):
        """Of users, tls must come by TLS, and x509 with a certificate that 'ca' signed."""
        os.chmod(self.folder, 0o755)
        self.certificates = Certificates(self.folder)
        for name, whose in (("server", names), ("client", "DNS:client")):
            self.certificates.sign(name, names=whose)
            os.chmod(self.certificates.key(name), 0o644)
        server = Server({f"ssl-{option}": file for option, file in (
            ("ca", self.certificates.file("ca")), ("cert", self.certificates.file("server")),
            ("key", self.certificates.key("server")))} | settings)
        self.addCleanup(server.remove)
        self.dbname = server.create_database()
        for user, demand in (("tls", "ssl"), ("x509", "x509")):
            server.run(f"create user {user}@127.0.0.1 require {demand}")
            server.run(f"grant all on {self.dbname}.* to {user}@127.0.0.1")
        return server

    def acquire(self, status, server, rest, user="tls"):
        url = f"mariadb://{user}@127.0.0.1:{server.port}/?schema={self.dbname}{rest}"
        return self.expect(status, "lease", "acquire", "--source", url, "--resource", "a", "--holder", "h").stderr

    def test_a_server_is_trusted_by_its_authority_and_its_name(self):
        server = self.start_server()
        ca = f"&cacert={self.certificates.file('ca')}"
        self.acquire(0, server, ca)
        self.acquire(0, server, f"&tls=1{ca}")
        self.acquire(3, server, "")
        for rest in (f"&cacert={self.certificates.file('stranger')}", "&tls=1", "&cacert=/no/such/file"):
            self.assertIn("cannot be reached", self.acquire(3, server, rest), rest)

    def test_another_name_is_refused(self):
        server = self.start_server(names="DNS:elsewhere,IP:127.0.0.2")
        self.assertIn("cannot be reached", self.acquire(3, server, f"&cacert={self.certificates.file('ca')}"))

    def test_our_own_certificate(self):
        server = self.start_server()
        ca = f"&cacert={self.certificates.file('ca')}"
        own = f"&cert={self.certificates.file('client')}&key={self.certificates.key('client')}"
        self.acquire(0, server, ca + own, user="x509")
        self.acquire(3, server, ca, user="x509")

    def test_there_is_no_way_back_to_plain_text(self):
        server = self.start_server(**{"skip-ssl": None})
        server.run("create user plain@127.0.0.1")
        server.run(f"grant all on {self.dbname}.* to plain@127.0.0.1")
        self.acquire(0, server, "", user="plain")
        for rest in ("&tls=1", f"&cacert={self.certificates.file('ca')}"):
            self.assertIn("cannot be reached", self.acquire(3, server, rest, user="plain"))


if __name__ == "__main__":
    unittest.main()
