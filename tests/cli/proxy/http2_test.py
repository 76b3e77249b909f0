"""HTTP/2 in front of a guard, by the nginx configuration that docs/http.md shows.

Shows: a client of HTTP/2 gets the guard's verdicts, and its writes go through the lane. How: the very lines of the page,
with this test's ports and certificate, and curl.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import certificates
import support
import upstream_server
from nginx import Nginx

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "http.md"


class PageNginx(Nginx):
    """As the page says, in front of the guard at port."""

    def __init__(self, shown, guard):
        super().__init__()
        self._shown, self._guard = shown, guard
        self.start_on_free_ports()

    def block(self):
        lines = re.search(r"```nginx\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
        for documented, here in (("listen 443 ssl", f"listen 127.0.0.1:{self.port} ssl"),
                                 ("127.0.0.1:7070", self._guard),
                                 ("/etc/ssl/guard.pem", self._shown.file("server")),
                                 ("/etc/ssl/guard.key", self._shown.key("server"))):
            assert documented in lines, documented
            lines = lines.replace(documented, here)
        return f"access_log off;\n{lines}"


class Http2(support.BinaryTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.mkdtemp(prefix="fenceguard-certificates-")
        self.addCleanup(shutil.rmtree, folder)
        self.shown = certificates.Certificates(folder)
        self.shown.sign("server")
        self.upstream = upstream_server.Server()
        self.addCleanup(self.upstream.remove)
        guard = self.serve("--storage", self.upstream.url(), "--state", "sqlite:state.db", "--init", "--settled",
                           "--settle", "300ms", "--log-level", "off")
        self.nginx = PageNginx(self.shown, guard.data)
        self.addCleanup(self.nginx.remove)

    def put(self, token, body):
        """(protocol, status, verdict) of a PUT by curl."""
        answer = subprocess.run(
            ["curl", "--http2", "--silent", "--show-error", "--max-time", "30", "--cacert", self.shown.file("ca"),
             "--noproxy", "*", "--request", "PUT", "--data-binary", body, "--header", f"Fencing-Token: {token}",
             "--header", "Fencing-Holder: h", "--output", os.devnull, "--write-out",
             "%{http_version} %{http_code} %header{fencing-verdict}", f"https://localhost:{self.nginx.port}/r"],
            check=True, capture_output=True, text=True, cwd=self.nginx.folder)
        return tuple(answer.stdout.split())

    def test_a_client_of_http_2_gets_the_verdicts_of_the_guard(self):
        self.assertEqual(self.put(34, "first"), ("2", "201", "admitted"))
        self.assertEqual(self.put(35, "second"), ("2", "204", "admitted"))
        self.assertEqual(self.put(34, "late"), ("2", "412", "stale"))
        self.assertEqual([line["body"] for line in self.upstream.applied()], ["first", "second"])
        self.assertEqual(self.upstream.anomalies(), [])

    def test_a_write_whose_end_is_not_seen_is_not_repeated(self):
        self.assertEqual(self.put(34, "first"), ("2", "201", "admitted"))
        self.upstream.set_default("apply-reset")
        self.assertEqual(self.put(34, "second"), ("2", "502", "unknown"))
        self.assertEqual([line["body"] for line in self.upstream.applied()], ["first", "second"])


if __name__ == "__main__":
    unittest.main()
