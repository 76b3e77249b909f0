"""'fenceguard fence' and 'fenceguard doctor' against a storage and a running guard."""

import json
import unittest

import support
import upstream_server

STORAGE = ["--storage", "sqlite:data.db"]


class OverAStorage(support.BinaryTest):
    WAY = STORAGE

    def setUp(self):
        super().setUp()
        self.expect(0, "fence", "init", *STORAGE)

    def advance(self, status, resource, token, holder="h"):
        return self.expect_json(status, "fence", "advance", *self.WAY, "--resource", resource, "--token",
                                str(token),
                                "--holder", holder)

    def test_the_rule(self):
        self.assertEqual(self.advance(0, "a", 5), {"resource": "a", "verdict": "admitted", "highest": "5"})
        self.assertEqual(self.advance(0, "a", 5)["verdict"], "admitted")
        self.assertEqual(self.advance(1, "a", 4), {"resource": "a", "verdict": "stale", "highest": "5"})
        self.assertEqual(self.advance(1, "a", 5, "other")["verdict"], "conflict")
        self.assertEqual(self.advance(0, "a", 6, "other")["highest"], "6")

    def test_show_tells_the_token_and_never_the_holder(self):
        self.advance(0, "a", 5, "secret-holder")
        done = self.expect(0, "fence", "show", *self.WAY, "--resource", "a")
        self.assertIn("token 5\n", done.stdout)
        self.assertIn("closed false\n", done.stdout)
        self.assertNotIn("secret-holder", done.stdout)
        self.assertIn("not found", self.expect(1, "fence", "show", *self.WAY, "--resource", "b").stderr)

    def test_list_goes_through_pages(self):
        names = ["a", "b/1", "b/2", "b/ä b", "c"]
        for name in names:
            self.advance(0, name, 5)
        page = self.expect_json(0, "fence", "list", *self.WAY, "--limit", "2")
        self.assertEqual([fence["resource"] for fence in page["fences"]], ["a", "b/1"])
        self.assertTrue(page["has_more"])
        page = self.expect_json(0, "fence", "list", *self.WAY, "--after", "b/2")
        self.assertEqual([fence["resource"] for fence in page["fences"]], ["b/ä b", "c"])
        page = self.expect_json(0, "fence", "list", *self.WAY, "--prefix", "b/", "--limit", "3")
        self.assertEqual([fence["resource"] for fence in page["fences"]], ["b/1", "b/2", "b/ä b"])
        self.assertFalse(page["has_more"])
        done = self.expect(0, "fence", "list", *self.WAY, "--limit", "1")
        self.assertEqual(done.stdout, "a 5\n")
        self.assertIn("--after 'a'", done.stderr)

    def test_revoke_cuts_off_the_holder_and_ends_its_lease(self):
        lease = self.expect_json(0, "lease", "acquire", *self.WAY, "--resource", "a", "--ttl", "24m")
        answer = self.expect_json(0, "fence", "revoke", *self.WAY, "--resource", "a")
        self.assertEqual((answer["token"], answer["closed"]), (lease["token"], True))
        self.assertEqual(self.advance(1, "a", lease["token"], lease["holder"])["verdict"], "stale")
        after = self.expect_json(0, "lease", "acquire", *self.WAY, "--resource", "a", "--wait", "0s")
        self.assertGreater(int(after["token"]), int(lease["token"]))

    def test_revoke_of_nothing_is_1(self):
        self.assertIn("not found", self.expect(1, "fence", "revoke", *self.WAY, "--resource", "never").stderr)

    def test_compact_folds_idle_fences_into_the_floor(self):
        tokens = []
        for name in ["a", "b", "c"]:
            lease = self.expect_json(0, "lease", "acquire", *self.WAY, "--resource", name, "--ttl", "24m")
            tokens.append(int(lease["token"]))
            claim = ["--resource", name, "--token", lease["token"], "--holder", lease["holder"]]
            if name != "c":
                self.expect(0, "lease", "release", *self.WAY, *claim)
        answer = self.expect_json(0, "fence", "compact", *self.WAY)
        self.assertEqual(answer["dropped"], 2)
        self.assertLess(int(answer["floor"]), tokens[2])
        self.assertEqual(self.advance(1, "a", tokens[0])["verdict"], "stale")
        self.expect(0, "fence", "show", *self.WAY, "--resource", "c")

    def test_unknown_resources_and_tokens_at_the_edge(self):
        self.assertEqual(self.advance(0, "edge", 2**63 - 1)["highest"], "9223372036854775807")
        self.expect(2, "fence", "advance", *self.WAY, "--resource", "edge", "--token", str(2**63))


class OverAServer(OverAStorage):
    def setUp(self):
        super().setUp()
        self.server = self.serve(*STORAGE, "--max-jump", "0")
        self.WAY = ["--server", self.server.url]

    def test_an_implausible_token_is_1(self):
        server = self.serve("--storage", "sqlite:bounded.db", "--max-jump", "100")
        done = self.expect(1, "fence", "advance", "--server", server.url, "--resource", "a", "--token",
                           "5000")
        self.assertIn("server says", done.stderr)

    def test_a_storage_beside_a_running_guard_can_be_looked_at_only(self):
        self.advance(0, "a", 5)
        self.assertEqual(self.expect_json(0, "fence", "show", *STORAGE, "--resource", "a")["token"], "5")
        self.assertEqual(len(self.expect_json(0, "fence", "list", *STORAGE)["fences"]), 1)
        for command in [["advance", "--resource", "a", "--token", "6"], ["revoke", "--resource", "a"],
                        ["compact"],
                        ["init"], ["rebase", "--resource", "a", "--to", "1"]]:
            done = self.expect(3, "fence", *command, *STORAGE)
            self.assertIn("--server", done.stderr)


class ByHand(support.BinaryTest):
    def test_init_needs_a_number(self):
        answer = self.expect_json(0, "fence", "init", *STORAGE, "--floor", "7")
        self.assertEqual(answer["floor"], "7")
        self.assertEqual(self.expect_json(0, "fence", "init", *STORAGE, "--floor", "3")["floor"], "7")
        self.assertEqual(self.expect_json(0, "fence", "init", *STORAGE, "--floor", "9")["floor"], "9")
        self.assertEqual(self.expect_json(0, "fence", "init", *STORAGE)["floor"], "9")

    def test_init_draws_from_the_source(self):
        self.make_file("leases.db")
        for _ in range(3):
            self.expect(0, "lease", "acquire", "--source", "sqlite:leases.db", "--resource", f"r{_}")
        answer = self.expect_json(0, "fence", "init", *STORAGE, "--source", "sqlite:leases.db")
        self.assertGreaterEqual(int(answer["floor"]), 3)
        lease = self.expect_json(0, "lease", "acquire", "--source", "sqlite:leases.db", "--resource", "x")
        self.assertGreater(int(lease["token"]), int(answer["floor"]))

    def test_init_of_a_file_that_was_there_draws_from_its_own_source(self):
        self.assertEqual(self.expect_json(0, "fence", "init", *STORAGE)["floor"], "0")
        self.expect(0, "lease", "raise", "--source", STORAGE[1], "--resource", "a", "--token", "40")  # as after a restore
        self.assertEqual(self.expect_json(0, "fence", "init", *STORAGE)["floor"], "41")
        self.expect(1, "fence", "advance", *STORAGE, "--resource", "a", "--token", "40")
        self.expect(0, "fence", "advance", *STORAGE, "--resource", "a", "--token", "42")

    def test_rebase_sets_a_fence_and_says_what_lowering_costs(self):
        self.expect(0, "fence", "init", *STORAGE)
        advance = ["fence", "advance", *STORAGE, "--resource", "a", "--token"]
        self.expect(0, *advance, str(2**62))
        done = self.expect(0, "fence", "rebase", *STORAGE, "--resource", "a", "--to", "10", "--by", "ann")
        self.assertIn("G1", done.stderr)
        self.assertIn("by ann\n", done.stdout)
        self.expect(1, *advance, "9")
        self.expect(0, *advance, "11")
        done = self.expect(0, "fence", "rebase", *STORAGE, "--resource", "a", "--to", "20")
        self.assertEqual(done.stderr, "")
        self.assertRegex(done.stdout, r"(?m)^by [^@\s]+@\S+$")

    def test_missing_state_is_3_and_names_the_command(self):
        for command in [["show", "--resource", "a"], ["list"], ["advance", "--resource", "a", "--token",
                                                                "1"]]:
            done = self.expect(3, "fence", *command, *STORAGE)
            self.assertIn("fence init", done.stderr)


    def test_revoke_ends_the_lease_at_a_separate_source(self):
        self.make_file("leases.db")
        parts = [*STORAGE, "--source", "sqlite:leases.db"]
        self.expect(0, "fence", "init", *parts)
        lease = self.expect_json(0, "lease", "acquire", *parts, "--resource", "a", "--ttl", "24m")
        self.assertTrue(self.expect_json(0, "fence", "revoke", *parts, "--resource", "a")["closed"])
        self.expect(1, "lease", "show", "--source", "sqlite:leases.db", "--resource", "a")
        after = self.expect_json(0, "lease", "acquire", *parts, "--resource", "a", "--ttl", "24m")
        self.assertGreater(int(after["token"]), int(lease["token"]))
        with open(self.path("leases.db"), "r+b") as file:
            file.write(b"x" * 4096)
        self.expect(3, "fence", "revoke", *parts, "--resource", "a")
        self.assertFalse(self.expect_json(0, "fence", "show", *STORAGE, "--resource", "a")["closed"])
        self.assertTrue(self.expect_json(0, "fence", "revoke", *STORAGE, "--resource", "a")["closed"])


class Doctor(support.BinaryTest):
    def test_a_sound_file_is_0(self):
        self.expect(0, "fence", "init", *STORAGE)
        done = self.expect(0, "doctor", *STORAGE)
        for line in done.stdout.splitlines():
            self.assertRegex(line, r"^(ok|warning) [^:]+: .+")
        self.expect(0, "lease", "acquire", "--source", "sqlite:leases.db", "--resource", "a", "--init")
        done = self.expect(0, "doctor", "--source", "sqlite:leases.db", *STORAGE, "--json")
        findings = json.loads(done.stdout)["findings"]
        self.assertTrue(all(set(finding) == {"level", "check", "message"} for finding in findings))

    def test_it_may_look_beside_a_running_guard(self):
        self.serve(*STORAGE)
        self.expect(0, "doctor", *STORAGE)

    def test_a_damaged_file_is_a_danger_and_1(self):
        self.expect(0, "fence", "init", *STORAGE)
        for token in range(1, 4):
            self.expect(0, "fence", "advance", *STORAGE, "--resource", "a" * 400, "--token", str(token))
        with open(self.path("data.db"), "r+b") as file:
            size = file.seek(0, 2)
            for offset in range(4096, size, 512):
                file.seek(offset)
                file.write(b"\xff" * 64)
        done = self.run_binary("doctor", *STORAGE)
        self.assertIn(done.returncode, (1, 3), done.stdout + done.stderr)
        if done.returncode == 1:
            self.assertIn("danger ", done.stdout)

    def test_what_cannot_be_reached_is_3(self):
        self.expect(3, "doctor", "--storage", "sqlite:no/such/file.db")


class TheWrongSide(support.BinaryTest):
    """A client that was given the address of a data side, or of anything else, is told so."""

    def expect_said(self, address, said):
        for call in [["fence", "show", "--resource", "a"], ["lease", "show", "--resource", "a"], ["fence", "list"],
                     ["fence", "advance", "--resource", "a", "--token", "5"],
                     ["lease", "acquire", "--resource", "a"]]:
            with self.subTest(address=address, call=call):
                done = self.expect(2, *call, "--server", f"http://{address}")
                self.assertIn(said, done.stderr)
                self.assertIn("--control", done.stderr)

    def test_the_data_side_is_called_that(self):
        self.expect_said(self.serve().data, "is the data side of a guard")
        with upstream_server.Server() as upstream:
            guard = self.serve("--storage", upstream.url(), "--init", "--settled", "--state", "sqlite:state.db")
            self.expect_said(guard.data, "is the data side of a guard")
            self.expect_said(upstream.url().removeprefix("http://"), "is not the control side of a guard")

    def test_the_control_side_says_what_it_does_not_have(self):
        server = self.serve()
        self.assertIn("not found", self.expect(1, "fence", "show", "--resource", "a", "--server", server.url).stderr)


if __name__ == "__main__":
    unittest.main()
