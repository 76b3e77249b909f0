"""Help, versions, wrong usage, and what is never printed."""

import unittest

import support

COMMANDS = ["demo", "serve", "exec", "lease acquire", "lease renew", "lease release", "lease show", "lease list", "status",
            "lease token", "lease raise", "lease lower", "fence show", "fence list", "fence advance", "fence revoke", "fence compact",
            "fence init", "fence rebase", "sql postgres", "sql sqlite", "doctor"]
SECRET = "tr0ub4dor"


class Usage(support.BinaryTest):
    def test_version_is_a_name_and_a_number(self):
        self.assertRegex(self.expect(0, "--version").stdout, r"^fenceguard \d+\.\d+\.\d+\nbuilt with .*Boost 1\.\d+.*\n$")

    def test_help_lists_every_command(self):
        text = self.expect(0, "--help").stdout
        for command in COMMANDS:
            self.assertIn(f"  {command} ", text)

    def test_every_command_has_help_with_options_and_defaults(self):
        for command in COMMANDS:
            text = self.expect(0, *command.split(), "--help").stdout
            self.assertIn(f"Usage: fenceguard {command}", text)
            self.assertTrue(all(len(line) <= 110 for line in text.splitlines()), text)
        text = self.expect(0, "serve", "--help").stdout
        for default in ["127.0.0.1:7420", "127.0.0.1:7421", "sqlite:fenceguard.db", "1099511627776",
                        "100000", "30s"]:
            self.assertIn(f"[default: {default}]", " ".join(text.split()))
        self.assertIn("--kill-after TIME", self.expect(0, "exec", "--help").stdout)

    def test_a_group_of_commands_has_help(self):
        for group in ["lease", "fence"]:
            self.assertIn(f"{group} show", self.expect(0, group, "--help").stdout)

    def test_wrong_usage_is_2_and_names_what_is_wrong(self):
        cases = [
            ([], "a command is missing"),
            (["bogus"], "unknown command 'bogus'"),
            (["lease"], "needs one of its commands"),
            (["lease", "bogus"], "needs one of its commands, and 'bogus' is none of them"),
            (["serve", "--bogus"], "--bogus"),
            (["serve", "--listen"], "--listen"),
            (["serve", "--listen", "a:0", "--listen", "b:0"], "--listen"),
            (["serve", "--init=yes"], "--init"),
            (["serve", "--drain-timeout", "10"], "--drain-timeout"),
            (["serve", "--drain-timeout", "-1s"], "--drain-timeout"),
            (["serve", "--cache", "many"], "--cache"),
            (["serve", "--threads", "257"], "--threads"),
            (["serve", "--log-level", "loud"], "--log-level"),
            (["serve", "--state", "sqlite:x.db"], "--state"),
            (["serve", "--listen", "nonsense"], "address"),
            (["serve", "--", "true"], "'--'"),
            (["lease", "show", "--source", "sqlite:l.db"], "--resource is missing"),
            (["lease", "show", "--resource", "a"], "--server"),
            (["lease", "show", "--resource", "a//b", "--source", "sqlite:l.db"], "--resource"),
            (["lease", "renew", "--resource", "a", "--source", "sqlite:l.db", "--token", "01"], "--token"),
            (["lease", "renew", "--resource", "a", "--source", "sqlite:l.db", "--token", "0"], "--token"),
            (["lease", "acquire", "--resource", "a", "--source", "sqlite:l.db", "--ttl", "1ms"], "10ms"),
            (["lease", "acquire", "--resource", "a", "--source", "sqlite:l.db", "--holder", "x y"],
             "--holder"),
            (["lease", "show", "--resource", "a", "--source", "sqlite:l.db", "--server",
              "http://127.0.0.1:1"], "--server"),
            (["fence", "show", "--resource", "a"], "--storage or --server"),
            (["fence", "list", "--storage", "sqlite:l.db", "--limit", "0"], "--limit"),
            (["fence", "init", "--storage", "sqlite:s.db", "--source", "sqlite:l.db", "--floor", "3"],
             "--floor"),
            (["doctor"], "--source"),
        ]
        for arguments, expected in cases:
            with self.subTest(arguments=arguments):
                done = self.expect(2, *arguments)
                self.assertIn(expected, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_a_misspelt_variable_is_refused_as_a_misspelt_line_is(self):
        for arguments in [["serve"], ["lease", "show", "--source", "sqlite:l.db", "--resource", "a"], ["demo"]]:
            for name in ["FENCEGUARD_REQUIRE_SIGNATURES", "FENCEGUARD_LISTN", "FENCEGUARD_STORGE"]:
                with self.subTest(arguments=arguments, name=name):
                    done = self.expect(2, *arguments, env={name: SECRET})
                    self.assertIn(f"{name} ", done.stderr)
                    self.assertNotIn(SECRET, done.stderr)
        # Settings of other commands, what is empty, what Kubernetes sets for a service of that name, and a script's own.
        fine = {"FENCEGUARD_TTL": "10s", "FENCEGUARD_BIN": "x", "FENCEGUARD_": "x", "FENCEGUARD_HOME": "/opt", "FENCEGUARD_REQUIRE_SIGNATURES": "", "FENCEGUARD_PORT": "tcp://10.0.0.1:80",
                "FENCEGUARD_PORT_7420_TCP_ADDR": "10.0.0.1", "FENCEGUARD_SERVICE_HOST": "10.0.0.1",
                "FENCEGUARD_CONTROL_SERVICE_PORT_HTTP": "7421", "FENCEGUARD_CONTROL_PORT": "tcp://10.0.0.1:7421"}
        self.make_file("l.db")
        self.expect(1, "lease", "show", "--source", "sqlite:l.db", "--resource", "a", env=fine)

    def test_an_unknown_scheme_lists_the_known_ones(self):
        for arguments in [["serve", "--storage", "oracle:x"], ["serve", "--source", "oracle:x"],
                          ["lease", "show", "--source", "oracle:x", "--resource", "a"],
                          ["lease", "acquire", "--storage", "oracle:x", "--source", "sqlite:l.db",
                           "--resource", "a"],
                          ["fence", "show", "--storage", "oracle:x", "--resource", "a"],
                          ["doctor", "--storage", "oracle:x"]]:
            done = self.expect(2, *arguments)
            self.assertIn("oracle:", done.stderr)
            self.assertIn("sqlite:", done.stderr)

    def test_an_unknown_parameter_of_a_url_is_named(self):
        done = self.expect(2, "fence", "init", "--storage", "sqlite:s.db?bogus=1")
        self.assertIn("bogus", done.stderr)

    def test_a_password_is_never_printed(self):
        # Shows that no way of getting an option wrong echoes a URL; by every place where one can be put.
        url = f"postgres://user:{SECRET}@host/db"
        ini = self.write("bad.ini", f"{url}\n")
        unknown = self.write("unknown.ini", f"bogus = {url}\n")
        good = self.write("good.ini", f"storage = {url}\nsource = {url}\n")
        cases = [["serve", url], ["serve", f"--bogus={url}"], ["serve", "--bogus", url], [url],
                 ["lease", url],
                 ["serve", f"--init={url}"], ["serve", "--storage", url, "--storage", url],
                 ["serve", f"-x{url}"], ["serve", "--storage", f"sqlite:x.db?password={SECRET}"],
                 ["serve", "--config", ini], ["serve", "--config", unknown], ["serve", "--config", good],
                 ["lease", "show", "--resource", "a", "--source", url],
                 ["lease", "show", "--resource", "a", "--server", f"http://u:{SECRET}@127.0.0.1:1"],
                 ["lease", "show", "--resource", "a", "--token", url, "--source", "sqlite:l.db"],
                 ["fence", "show", "--resource", "a", "--storage", url],
                 ["doctor", "--source", url], ["doctor", "--storage", url]]
        for name in ["storage", "source", "state", "cache", "drain-timeout", "listen", "control", "probe",
                     "log-level"]:
            cases.append(["serve", f"--{name}", url])
        for arguments in cases:
            with self.subTest(arguments=arguments):
                done = self.run_binary(*arguments)
                self.assertIn(done.returncode, (2, 3))
                self.assertNotIn(SECRET, done.stdout + done.stderr)
        for name in ["FENCEGUARD_STORAGE", "FENCEGUARD_SOURCE", "FENCEGUARD_STATE"]:
            done = self.run_binary("serve", env={name: url})
            self.assertIn(done.returncode, (2, 3))
            self.assertNotIn(SECRET, done.stdout + done.stderr)
        done = self.run_binary("exec", "--source", url, "--resource", "a", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertNotIn(SECRET, done.stdout + done.stderr)

    def test_a_bearer_token_is_not_taken_from_the_command_line(self):
        done = self.expect(2, "lease", "show", "--server", "http://127.0.0.1:1", "--server-token", SECRET,
                           "--resource", "a")
        self.assertIn("FENCEGUARD_SERVER_TOKEN", done.stderr)
        self.assertNotIn(SECRET, done.stderr)

    def test_the_sql_to_install_is_printed(self):
        self.assertIn("CREATE TABLE", self.expect(0, "sql", "sqlite").stdout)
        self.assertEqual(self.expect(2, "sql", "oracle").stdout, "")

    def test_output_to_a_closed_pipe_is_not_reported_as_done(self):
        with open("/dev/full", "w") as full:
            process = self.start("lease", "acquire", "--source", "sqlite:l.db", "--resource", "a", "--init",
                                 stdout=full)
            self.assertEqual(process.wait(support.LIMIT_S), 4)


if __name__ == "__main__":
    unittest.main()
