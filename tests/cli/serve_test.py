"""'fenceguard serve' as it is started, configured, told and ended."""

import os
import re
import resource
import signal
import socket
import threading
import time
import unittest

import support
from support import wait_until


class Starting(support.BinaryTest):
    def test_prints_one_line_when_it_is_ready(self):
        server = self.serve()
        self.assertRegex(server.line, r"^listening data=127\.0\.0\.1:\d+ control=127\.0\.0\.1:\d+\n$")
        self.assertEqual(server.call("GET", "/healthz").status, 200)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.stdout.read(), b"")
        self.assertEqual(server.wait(), 0)

    def test_embedded_storage_initialises_itself_at_its_default(self):
        server = self.serve()
        lease = server.lease("accounts/42")
        self.assertEqual(lease.status, 201)
        headers = {"Fencing-Token": lease.json["token"], "Fencing-Holder": lease.json["holder"]}
        self.assertEqual(server.request("PUT", "/accounts/42", headers, b"100").headers["fencing-verdict"],
                         "admitted")
        self.assertEqual(server.request("GET", "/accounts/42").body, b"100")
        self.assertTrue(os.path.exists(self.path("fenceguard.db")))

    def test_serves_unix_sockets(self):
        server = self.serve("--listen", "unix:data.sock", "--control", "unix:control.sock", listen=False)
        self.assertEqual(server.line, "listening data=unix:data.sock control=unix:control.sock\n")
        answer = support.request(f"unix:{self.path('control.sock')}", "GET", "/healthz")
        self.assertEqual(answer.status, 200)
        self.expect(0, "lease", "acquire", "--server", "unix:control.sock", "--resource", "a")
        self.assertEqual(server.stop(), 0)
        self.assertFalse(os.path.exists(self.path("data.sock")))

    def test_the_control_side_is_there_alone_where_that_is_asked_for(self):
        for more in ([], ["--storage", "http://127.0.0.1:1", "--init", "--settled"]):
            server = self.serve("--listen", "none", "--resource-depth", "2", *more)
            self.assertRegex(server.line, r"^listening data=none control=127\.0\.0\.1:\d+\n$")
            self.assertIn("event=listening data=none ", server.log())
            self.assertNotIn("level=warning", server.log())
            self.assertEqual(server.call("GET", "/readyz").status, 200)
            lease = server.lease("accounts/42").json
            self.assertEqual(server.call("GET", "/v1/fences/accounts/42").json["token"], lease["token"])
            self.assertEqual(server.lease("accounts/42/x").status, 400, "a resource is named as paths are")
            self.assertEqual(server.call("POST", "/v1/fences/accounts/42/revoke").status, 200)
            self.assertEqual(server.stop(), 0)
        self.expect(2, "serve", "--listen", "none", "--control", "none")

    def test_a_probe_listens_alone(self):
        server = self.serve("--probe", "unix:probe.sock")
        answer = support.request(f"unix:{self.path('probe.sock')}", "GET", "/readyz")
        self.assertEqual(answer.status, 200)
        self.assertNotIn(support.request(f"unix:{self.path('probe.sock')}", "GET", "/v1/fences").status,
                         (200, 403))
        self.assertEqual(server.stop(), 0)

    def test_a_port_in_use_is_a_sentence_and_3(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            done = self.expect(3, "serve", "--listen", f"127.0.0.1:{port}", "--control", "127.0.0.1:0")
            self.assertIn(str(port), done.stderr)
            self.assertIn("already", done.stderr)
            done = self.expect(3, "serve", "--listen", "127.0.0.1:0", "--control", f"127.0.0.1:{port}")
            self.assertIn("already", done.stderr)

    def test_a_path_that_cannot_be_written_is_a_sentence_and_3(self):
        done = self.expect(3, "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--storage",
                           "sqlite:no/such/folder/data.db")
        self.assertIn("no/such/folder/data.db", done.stderr)
        done = self.expect(3, "serve", "--listen", "unix:no/such/folder/s.sock", "--control", "127.0.0.1:0")
        self.assertIn("no/such/folder/s.sock", done.stderr)

    def test_a_second_server_on_the_same_file_refuses(self):
        self.serve()
        done = self.expect(3, "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0")
        self.assertIn("fenceguard.db", done.stderr)

    def test_a_link_to_the_file_is_the_same_file(self):
        self.serve()
        os.symlink("fenceguard.db", self.path("link.db"))
        done = self.expect(3, "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--storage",
                           "sqlite:link.db")
        self.assertIn("another fenceguard", done.stderr)

    def test_the_control_side_needs_tokens_to_bind_beyond_loopback(self):
        done = self.run_binary("serve", "--listen", "127.0.0.1:0", "--control", "0.0.0.0:0")
        self.assertIn(done.returncode, (2, 3))
        self.assertIn("control-token-file", done.stderr)

    def test_raises_its_limit_of_descriptors(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        server = self.serve()
        self.assertEqual(resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE), (hard, hard))


class SeparateSource(support.BinaryTest):
    def test_missing_state_is_unavailable_until_init(self):
        # A source went on while the guard's state is missing: nothing granted before may be admitted after
        # init.
        # A lease is taken from the source, the server starts without state, is refused, is initialised, is
        # asked.
        old = self.expect_json(0, "lease", "acquire", "--source", "sqlite:leases.db", "--resource", "a",
                               "--ttl", "24m", "--init")
        claim = {"Fencing-Token": old["token"], "Fencing-Holder": old["holder"]}
        parts = ["--storage", "sqlite:data.db", "--source", "sqlite:leases.db"]
        server = self.serve(*parts)
        answer = server.request("PUT", "/a", claim, b"old")
        self.assertEqual(answer.status, 503)
        self.assertIn("fence init", answer.json["detail"])
        self.assertEqual(server.call("GET", "/readyz").status, 503)
        self.assertEqual(server.stop(), 0)
        floor = self.expect_json(0, "fence", "init", *parts)["floor"]
        self.assertGreater(int(floor), int(old["token"]) - 1)
        server = self.serve(*parts)
        self.assertEqual(server.request("PUT", "/a", claim, b"old").headers["fencing-verdict"], "stale")
        fresh = server.lease("b").json
        claim = {"Fencing-Token": fresh["token"], "Fencing-Holder": fresh["holder"]}
        self.assertEqual(server.request("PUT", "/b", claim, b"new").headers["fencing-verdict"], "admitted")

    def test_init_draws_a_floor_and_repeated_only_raises_it(self):
        parts = ["--storage", "sqlite:data.db", "--source", "sqlite:leases.db", "--init"]
        floors = []
        for _ in range(2):
            server = self.serve(*parts)
            self.assertEqual(server.call("GET", "/readyz").status, 200)
            self.assertEqual(server.stop(), 0)
            answer = self.expect_json(0, "fence", "init", "--storage", "sqlite:data.db", "--floor", "0")
            floors.append(int(answer["floor"]))
        self.assertGreater(floors[0], 0)
        self.assertGreater(floors[1], floors[0])

    def test_naming_the_storage_as_its_own_source_is_its_own_source(self):
        server = self.serve("--storage", "sqlite:data.db", "--source", "sqlite:data.db")
        self.assertEqual(server.lease("a").status, 201)


class Settings(support.BinaryTest):
    def bound(self, *arguments, env=None):
        """The name of the socket that serve binds its data side to."""
        server = self.serve("--control", "127.0.0.1:0", *arguments, env=env, listen=False)
        self.assertEqual(server.stop(), 0)
        return server.data

    def test_a_flag_overrides_a_variable_overrides_the_file(self):
        ini = self.write("serve.ini", "# a comment\nlisten = unix:file.sock\ndrain-timeout = 2s\n")
        variable = {"FENCEGUARD_LISTEN": "unix:variable.sock"}
        self.assertEqual(self.bound("--config", ini), "unix:file.sock")
        self.assertEqual(self.bound("--config", ini, env=variable), "unix:variable.sock")
        self.assertEqual(self.bound("--config", ini, "--listen", "unix:flag.sock", env=variable),
                         "unix:flag.sock")
        self.assertEqual(self.bound(env={"FENCEGUARD_CONFIG": ini}), "unix:file.sock")

    def test_variables_of_other_commands_and_empty_ones_are_ignored(self):
        env = {"FENCEGUARD_LISTEN": "", "FENCEGUARD_RESOURCE": "//", "FENCEGUARD_BINARY": "x"}
        self.assertEqual(self.bound("--listen", "unix:flag.sock", env=env), "unix:flag.sock")

    def test_the_file_is_wrong_where_it_is_wrong(self):
        for text, expected in [("bogus = 1\n", "bogus"), ("listen\n", "name = value"), ("cache = many\n",
                                                                                        "--cache"),
                               ("[part]\nlisten = x\n", "part.listen"), ("config = other.ini\n", "config"),
                               ("listen = unix:a\nlisten = unix:b\n", "listen"), ("init = perhaps\n",
                                                                                  "--init")]:
            with self.subTest(text=text):
                done = self.expect(2, "serve", "--config", self.write("bad.ini", text))
                self.assertIn(expected, done.stderr)
        self.assertIn("missing.ini", self.expect(2, "serve", "--config", "missing.ini").stderr)
        self.assertIn("--cache", self.expect(2, "serve", env={"FENCEGUARD_CACHE": "many"}).stderr)

    def test_one_file_may_serve_several_commands(self):
        ini = self.write("all.ini",
                         "listen = unix:file.sock\nresource = a\nttl = 5s\nstorage = sqlite:data.db\n")
        self.assertEqual(self.bound("--config", ini), "unix:file.sock")
        answer = self.expect_json(0, "lease", "acquire", "--config", ini)
        self.assertEqual((answer["resource"], answer["ttl_ms"]), ("a", 5000))

    def test_example_configuration_is_complete_and_accepted(self):
        text = self.expect(0, "serve", "--example-config").stdout
        self.assertIn("\n#listen = 127.0.0.1:7420\n", text)
        self.assertIn("\n#drain-timeout = 10s\n", text)
        settings = re.findall(r"(?m)^#([^ ].*)$", text)
        given = [line for line in settings if not line.endswith("=")]
        taken = [line for line in given if not line.startswith(("listen", "control"))]
        self.assertGreater(len(taken), 8)
        ini = self.write("example.ini", "\n".join(taken) + "\nlisten = unix:example.sock\n")
        self.assertEqual(self.bound("--config", ini), "unix:example.sock")

    def test_a_list_is_given_by_repeating_a_flag_or_in_one_variable(self):
        ini = self.write("hosts.ini", "control-host = one.test\ncontrol-host = two.test\n")
        for arguments, env in [(["--control-host", "one.test", "--control-host", "two.test"], None),
                               ([], {"FENCEGUARD_CONTROL_HOST": "one.test, two.test"}),
                               (["--config", ini], None)]:
            server = self.serve(*arguments, env=env)
            for host in ["one.test", "two.test"]:
                self.assertEqual(server.call("GET", "/v1/fences", {"Host": host}).status, 200)
            self.assertNotEqual(server.call("GET", "/v1/fences", {"Host": "evil.test"}).status, 200)
            self.assertEqual(server.stop(), 0)

    def test_data_side_on_loopback_accepts_only_its_own_names(self):
        server = self.serve()
        lease = server.lease("a").json
        claim = {"Fencing-Token": str(int(lease["token"]) + 5), "Fencing-Holder": "page"}
        foreign = server.request("PUT", "/a", {"Host": "evil.test:7420", **claim}, b"x")
        self.assertEqual((foreign.status, foreign.json["type"]), (403, "urn:fenceguard:problem:foreign-host"))
        self.assertIn("--data-host", foreign.json["detail"])
        self.assertEqual(server.call("GET", "/v1/fences/a").json["token"], lease["token"])
        self.assertEqual(server.request("PUT", "/a", {"Host": "localhost:9000", **claim}, b"x").status, 201)

    def test_further_names_of_the_data_side_are_given(self):
        named = self.serve("--data-host", "one.test", "--data-host", "two.test")
        for host, status in [("one.test", 404), ("two.test:443", 404), ("127.0.0.1", 404), ("evil.test", 403)]:
            self.assertEqual(named.request("GET", "/a", {"Host": host}).status, status, host)
        self.assertEqual(named.stop(), 0)
        everywhere = self.serve("--listen", "0.0.0.0:0")
        self.assertEqual(everywhere.request("GET", "/a", {"Host": "any.test"}).status, 404)
        self.assertEqual(everywhere.stop(), 0)
        bound = self.serve("--listen", "0.0.0.0:0", env={"FENCEGUARD_DATA_HOST": "one.test"})
        for host, status in [("one.test", 404), ("any.test", 403)]:
            self.assertEqual(bound.request("GET", "/a", {"Host": host}).status, status, host)

    def test_probe_address_accepts_every_name(self):
        server = self.serve("--probe", "127.0.0.1:0")
        self.assertRegex(server.line, r"^listening data=\S+ control=\S+ probe=127\.0\.0\.1:\d+\n$")
        probe = server.line.rpartition("probe=")[2].strip()
        for path in ["/metrics", "/healthz", "/readyz"]:
            self.assertEqual(support.request(probe, "GET", path, {"Host": "10.1.2.3:7422"}).status, 200)
            refused = server.call("GET", path, {"Host": "10.1.2.3:7421"})
            self.assertEqual(refused.status, 403)
            self.assertIn("--probe", refused.json["detail"])
        self.assertEqual(server.stop(), 0)
        self.assertRegex(self.serve().line, r"^listening data=\S+ control=\S+\n$")

    def test_limits_and_depth_are_handed_on(self):
        server = self.serve("--body-limit", "10", "--resource-depth", "1", "--max-jump", "5")
        lease = server.lease("a").json
        claim = {"Fencing-Token": lease["token"], "Fencing-Holder": lease["holder"]}
        self.assertEqual(server.request("PUT", "/a/x", claim, b"1234567890").headers["fencing-verdict"],
                         "admitted")
        self.assertEqual(server.request("PUT", "/a/x", claim, b"12345678901").status, 413)
        self.assertEqual(server.request("PUT", "/a/x", {"Fencing-Token": "100"}, b"1").status, 422)

    def test_log_levels(self):
        quiet = self.serve("--log-level", "off")
        self.assertEqual(quiet.stop(), 0)
        self.assertEqual(quiet.log(), "")
        usual = self.serve()
        self.assertEqual(usual.stop(), 0)
        self.assertRegex(usual.log(), r"(?m)^time=\d{4}-\d\d-\d\dT[\d:.]+Z level=info event=listening data=")


    def test_refusals_are_logged_once_a_second_with_the_client(self):
        server = self.serve()
        lease = server.lease("a").json
        claim = {"Fencing-Token": lease["token"], "Fencing-Holder": lease["holder"]}
        self.assertEqual(server.request("PUT", "/a", claim, b"x").status, 201)
        begun = time.monotonic()
        for _ in range(50):
            self.assertEqual(server.request("PUT", "/a", dict(claim, **{"Fencing-Holder": "b"}), b"x").status, 409)
        claim["Fencing-Token"] = str(int(lease["token"]) + 1)
        for target in ("/b", "/a"):
            self.assertEqual(server.request("PUT", target, claim, b"x").status // 100, 2)
        for _ in range(50):
            self.assertEqual(server.request("GET", "/b", dict(claim, **{"Fencing-Token": lease["token"]})).status, 412)
        seconds = time.monotonic() - begun
        refusals = [line for line in server.log().splitlines() if "verdict=" in line]
        for resource in ("a", "b"):
            about = [line for line in refusals if f'resource="{resource}"' in line]
            self.assertGreaterEqual(len(about), 1)
            self.assertLessEqual(len(about), seconds + 2)
        for line in refusals:
            self.assertIn(" client=127.0.0.1 ", line)
            self.assertNotIn("verdict=admitted", line)
        self.assertEqual(server.stop(), 0)

    def test_a_refusal_of_a_client_on_a_unix_socket_says_so(self):
        server = self.serve("--listen", f"unix:{self.path('data')}", "--control", f"unix:{self.path('control')}",
                            listen=False)
        self.assertEqual(server.call("POST", "/v1/fences/a/advance", {"Fencing-Token": "5"}).status, 200)
        self.assertEqual(server.request("GET", "/a", {"Fencing-Token": "4"}).status, 412)
        self.assertIn("operation=read verdict=stale", server.log())
        self.assertIn(" client=unix ", server.log())


class Signals(support.BinaryTest):
    def test_sigterm_and_sigint_end_it_cleanly(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.serve()
            self.assertEqual(server.stop(number), 0)
            self.assertIn("event=stopped clean=true", server.log())

    def half_sent_write(self, server):
        lease = server.lease("a").json
        return server.half_sent("PUT", "/a", {"Fencing-Token": lease["token"], "Fencing-Holder": lease["holder"]}, "hello")

    def test_sigterm_lets_a_request_that_was_begun_end(self):
        server = self.serve("--drain-timeout", "20s")
        with self.half_sent_write(server) as write:
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "event=stopping" in server.log(), what="the stop")
            self.assertEqual(write.finish().headers["fencing-verdict"], "admitted")
        self.assertEqual(server.wait(), 0)

    def test_the_drain_is_bounded(self):
        server = self.serve("--drain-timeout", "200ms", "--body-timeout", "10m")
        with self.half_sent_write(server):
            self.assertEqual(server.stop(limit_s=10), 0)
        self.assertIn("event=stopped clean=false", server.log())

    def test_a_second_signal_ends_it_at_once(self):
        server = self.serve("--drain-timeout", "10m", "--body-timeout", "10m")
        with self.half_sent_write(server):
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "event=stopping" in server.log(), what="the stop")
            self.assertEqual(server.stop(signal.SIGINT, limit_s=10), 128 + signal.SIGINT)

    def test_sighup_reads_the_token_file_again(self):
        tokens = self.write_private("tokens", "admin first-0123456789\n")
        server = self.serve("--control-token-file", tokens)
        status = lambda token: server.call("GET", "/v1/fences", {"Authorization": f"Bearer {token}"}).status
        self.assertEqual((status("first-0123456789"), status("second-0123456789")), (200, 401))
        self.write_private("tokens", "admin second-0123456789\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "event=tokens_reloaded" in server.log(), what="the reload")
        self.assertEqual((status("first-0123456789"), status("second-0123456789")), (401, 200))
        self.write_private("tokens", "nonsense\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "event=tokens_kept" in server.log(), what="the refused reload")
        self.assertEqual(status("second-0123456789"), 200)
        self.assertNotIn("second", server.log())
        self.assertEqual(server.stop(), 0)

    def test_token_withdrawn_during_a_body_allows_nothing(self):
        tokens = self.write_private("tokens", "admin first-0123456789\n")
        server = self.serve("--control-token-file", tokens)
        first, second = ({"Authorization": f"Bearer {name}-0123456789"} for name in ("first", "second"))
        with server.half_sent("POST", "/v1/leases", {**first, "Content-Type": "application/json"},
                              '{"resource":"accounts/42","ttl_ms":60000}', side=server.control) as request:
            self.write_private("tokens", "admin second-0123456789\n")
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "event=tokens_reloaded" in server.log(), what="the reload")
            self.assertEqual(request.finish().status, 401)
        taken = server.call("POST", "/v1/leases", second, {"resource": "accounts/42", "ttl_ms": 60_000})
        self.assertEqual(taken.status, 201, "a lease was given")

    def test_a_client_that_goes_away_does_not_end_it(self):
        server = self.serve()
        host, _, port = server.data.rpartition(":")

        def ask_and_leave():
            for _ in range(50):
                with socket.create_connection((host, int(port))) as link:
                    link.sendall(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5)
        threads = [threading.Thread(target=ask_and_leave) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(server.call("GET", "/healthz").status, 200)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
