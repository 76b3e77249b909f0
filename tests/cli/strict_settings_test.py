"""What 'fenceguard serve' is told about secrets, files and limits is whole, or it does not start."""

import os
import signal
import socket
import threading
import time
import unittest
from unittest import mock

import support
import upstream_server
from support import wait_until

KEY = "k1 " + "A" * 43 + "\n"
WAY = ["serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"]


class WhatIsGiven(support.BinaryTest):
    def refuse(self, *arguments, env=None):
        done = self.expect(2, *WAY, *arguments, env=env)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        return done.stderr

    def test_an_empty_flag_switches_no_security_off(self):
        for name in ("control-token-file", "claim-key", "tls-certificate", "tls-key", "tls-client-ca", "upstream-ca",
                     "upstream-certificate", "upstream-key", "config", "listen", "control", "probe"):
            with self.subTest(name=name):
                self.assertIn(f"--{name}", self.refuse(f"--{name}", ""))
        self.assertIn("--server-token-file", self.expect(
            2, "fence", "list", "--server", "http://127.0.0.1:1", "--server-token-file", "").stderr)

    def test_an_empty_variable_is_not_given(self):
        names = ("CONTROL_TOKEN_FILE", "CLAIM_KEY", "TLS_CERTIFICATE", "CONFIG", "PROBE")
        server = self.serve(env={f"FENCEGUARD_{name}": "" for name in names})
        self.assertEqual(server.stop(), 0)

    def test_an_empty_line_of_the_configuration_is_not_given(self):
        example = self.expect(0, "serve", "--example-config").stdout
        lines = [line[1:] for line in example.splitlines() if line.startswith("#") and not line.startswith("# ")]
        self.assertIn("claim-key =", lines)
        path = self.write("every.ini", "".join(f"{line}\n" for line in lines if line.partition(" ")[0] not in
                                               ("listen", "control", "storage", "state")))
        self.assertEqual(self.serve("--config", path).stop(), 0)

    def test_flag_overrides_excluded_environment_and_file_settings(self):
        server = self.serve()
        acquire = ("lease", "acquire", "--resource", "a", "--init")
        ours = {"FENCEGUARD_STORAGE": "sqlite:ours.db", "FENCEGUARD_SOURCE": "sqlite:ours.db",
                "FENCEGUARD_CLAIM_KEY": self.path("no-such-key")}
        self.expect(0, *acquire, "--server", server.url, env=ours)
        self.expect(0, "fence", "list", "--server", server.url, env=ours)
        file = self.write("ours.ini", "storage = sqlite:ours.db\n")
        self.expect(1, *acquire, "--wait", "0s", "--server", server.url, "--config", file)
        theirs = {"FENCEGUARD_SERVER": server.url}
        self.expect(0, *acquire, "--storage", "sqlite:own.db", env=theirs)
        for arguments, env in (((), {**ours, **theirs}), (("--server", server.url, "--source", "sqlite:own.db"), {})):
            self.assertIn("give it alone", self.expect(2, *acquire, *arguments, env=env).stderr)

    def test_a_folder_is_no_configuration(self):
        self.assertIn("is a folder", self.refuse("--config", self.folder))

    def test_half_of_a_pair_of_files_is_refused(self):
        proxy = ["--storage", "https://127.0.0.1:1"]
        for one in ("upstream-certificate", "upstream-key"):
            self.assertIn("come together", self.refuse(*proxy, f"--{one}", "file.pem"))
        for one in (["--upstream-ca", "ca.pem"], ["--upstream-certificate", "c.pem", "--upstream-key", "k.pem"]):
            self.assertIn("https:", self.refuse("--storage", "http://127.0.0.1:1", *one))

    def test_an_unrepresentable_time_is_refused(self):
        for name in ("idle-timeout", "header-timeout", "body-timeout"):
            for time in ("0s", "99ms"):
                self.assertIn(f"--{name}: at least 100ms", self.refuse(f"--{name}", time))
        self.assertEqual(self.serve("--idle-timeout", "100ms").stop(), 0)


class SecretFiles(support.BinaryTest):
    def hang_up(self, server, event):
        count = server.log().count(event)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.log().count(event) > count, what=event)

    def test_a_pipe_in_the_place_of_a_key_file_stops_nothing(self):
        path = self.write_private("keys", KEY)
        server = self.serve("--claim-key", path)
        os.remove(path)
        os.mkfifo(path, 0o600)
        self.hang_up(server, "event=keys_kept")
        self.assertIn("is not a file", server.log())
        self.assertEqual(server.call("GET", "/healthz").status, 200)
        self.assertEqual(server.stop(limit_s=10), 0)

    def test_a_pipe_is_read_at_the_start(self):
        read, write = os.pipe()
        os.write(write, KEY.encode())
        os.close(write)
        self.addCleanup(os.close, read)
        server = self.serve("--claim-key", f"/proc/{os.getpid()}/fd/{read}")
        self.assertIn("signature", server.lease("a").json)

    def test_a_pipe_is_waited_for_until_it_is_written_to(self):
        path = self.path("pipe")
        os.mkfifo(path, 0o600)

        def write_late():
            time.sleep(0.3)
            with open(path, "w", encoding="utf-8") as pipe:
                pipe.write(KEY)

        writer = threading.Thread(target=write_late)
        writer.start()
        self.addCleanup(writer.join)
        self.assertIn("signature", self.serve("--claim-key", path).lease("a").json)

    def test_what_is_no_file_is_told_as_it_is(self):
        for path, said in ((self.folder, "is a folder"), ("/dev/null", "is not a file")):
            for name in ("claim-key", "control-token-file"):
                self.assertIn(said, self.expect(2, *WAY, f"--{name}", path).stderr)

    def test_service_managers_credential_may_be_group_readable(self):
        os.mkdir(self.path("credentials"))
        path = self.write("credentials/keys", KEY)
        given = {"CREDENTIALS_DIRECTORY": self.path("credentials")}
        for mode, is_taken in ((0o440, True), (0o400, True), (0o444, False), (0o460, False)):
            os.chmod(path, mode)
            if is_taken:
                self.assertEqual(self.serve("--claim-key", path, env=given).stop(), 0)
            else:
                self.assertIn("everybody", self.expect(2, *WAY, "--claim-key", path, env=given).stderr)
        os.chmod(path, 0o440)
        self.expect(2, *WAY, "--claim-key", path)
        outside = self.write("keys", KEY)
        os.chmod(outside, 0o440)
        for way_round in (outside, self.path("credentials/../keys")):
            self.assertIn("chmod 600", self.expect(2, *WAY, "--claim-key", way_round, env=given).stderr)

    def test_only_what_was_read_again_is_logged(self):
        server = self.serve("--claim-key", self.write_private("keys", KEY))
        self.hang_up(server, "event=keys_reloaded")
        self.assertNotIn("tokens_reloaded", server.log())
        server = self.serve("--storage", "sqlite:other.db", "--control-token-file",
                            self.write_private("tokens", "admin first-0123456789\n"))
        self.hang_up(server, "event=tokens_reloaded")
        self.assertNotIn("keys_reloaded", server.log())


class Descriptors(support.BinaryTest):
    """Where the system gives few descriptors, silent clients of the data side leave the control side some."""

    def expect_control_beside_a_crowd(self, *arguments):
        limited = self.write("limited", f'#!/bin/sh\nulimit -n 128\nexec "{support.BINARY}" "$@"\n')
        os.chmod(limited, 0o700)
        with mock.patch.object(support, "BINARY", limited):
            server = self.serve(*arguments)
        host, _, port = server.data.rpartition(":")
        for _ in range(120):
            link = socket.create_connection((host, int(port)))
            self.addCleanup(link.close)
        for _ in range(5):
            self.assertEqual(server.call("GET", "/healthz").status, 200)
            self.assertEqual(server.lease("a", holder="h").status // 100, 2)
        self.assertEqual(server.stop(), 0)

    def test_in_front_of_its_own_file(self):
        self.expect_control_beside_a_crowd()

    def test_in_front_of_an_upstream(self):
        with upstream_server.Server() as upstream:
            self.expect_control_beside_a_crowd("--storage", upstream.url(), "--init", "--settled")


if __name__ == "__main__":
    unittest.main()
