"""What the unit relies on: exit statuses and sentences of a start that fails, and files that a manager hands over."""

import configparser
import os
import pathlib
import signal
import unittest

import support
from waiting import wait_until

UNIT = pathlib.Path(__file__).resolve().parents[3] / "packaging" / "fenceguard.service.in"


class Unit(support.BinaryTest):
    def setUp(self):
        super().setUp()
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str
        unit.read(UNIT)
        self.service = unit["Service"]

    def fails(self, status, *arguments):
        """The sentence: the last line of what it says."""
        done = self.expect(status, "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", *arguments)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("fenceguard: serve: "), 1)
        return done.stderr.splitlines()[-1]

    def test_invalid_configuration_ends_with_the_final_status(self):
        status = int(self.service["RestartPreventExitStatus"])
        for text, expected in (("listn = 127.0.0.1:7420\n", "unknown option 'listn'"),
                               ("cache = many\n", "--cache"),
                               ("storage = oracle://h/d\n", "oracle"),
                               ("control-token-file = /nowhere/tokens\n", "/nowhere/tokens cannot be read"),
                               ("tls-certificate = /nowhere/a.pem\n", "come together")):
            with self.subTest(text=text):
                self.assertIn(expected, self.fails(status, "--config", self.write("bad.ini", text)))
        self.assertIn("cannot read 'missing.ini'", self.fails(status, "--config", "missing.ini"))

    def test_second_instance_on_one_state_reports_it_and_may_retry(self):
        self.serve()
        sentence = self.fails(3, "--lock-wait", "0s")
        self.assertIn("fenceguard.db", sentence)
        self.assertIn("another", sentence)

    def test_a_port_that_is_taken_is_named(self):
        taken = self.serve()
        done = self.expect(3, "serve", "--storage", "sqlite:other.db", "--listen", "127.0.0.1:0", "--control", taken.control)
        self.assertIn(f"cannot listen on {taken.control}: another process listens there already", done.stderr)

    def test_credentials_are_read_from_where_the_manager_puts_them(self):
        os.mkdir(self.path("credentials"))
        tokens = self.path("credentials/secret_tokens")
        self.write("credentials/secret_tokens", "admin first-0123456789\n")
        os.chmod(tokens, 0o440)
        ini = self.write("fenceguard.ini", f"control-token-file = {tokens}\n")
        server = self.serve("--config", ini, env={"CREDENTIALS_DIRECTORY": self.path("credentials")})
        self.assertEqual(server.call("GET", "/v1/fences").status, 401)
        self.assertEqual(server.call("GET", "/v1/fences", {"Authorization": "Bearer first-0123456789"}).status, 200)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "event=tokens_reloaded" in server.log(), what="the reload")


if __name__ == "__main__":
    unittest.main()
