"""The depth by which paths name resources stays what it was, or is changed on purpose."""

import unittest

import support
import upstream_server
from waiting import wait_until


def claim(token, holder="h"):
    return {"Fencing-Token": str(token), "Fencing-Holder": holder}


class OverItsOwnFile(support.BinaryTest):
    """A stale token under another name: a writer with 90 is served at depth 0, one with 50 comes at depth 1."""

    def setUp(self):
        super().setUp()
        self.parts = ["--storage", "sqlite:data.db"]
        self.rebased = self.parts

    def serve_at(self, *arguments):
        server = self.serve(*self.parts, *arguments)
        # A lane is closed for the settle time after a state was set by hand.
        wait_until(lambda: server.call("GET", "/readyz").status == 200, what="an open guard")
        return server

    def put(self, server, path, token):
        return server.request("PUT", path, claim(token), "x").headers["fencing-verdict"]

    def test_another_depth_is_refused_with_a_sentence_that_says_both(self):
        server = self.serve_at()
        self.assertEqual(self.put(server, "/accounts/42", 90), "admitted")
        self.assertEqual(server.stop(), 0)
        done = self.expect(2, "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", *self.parts,
                           "--resource-depth", "1")
        for words in ("--resource-depth 1", "--resource-depth 0", "fence rebase", "--to-depth 1"):
            self.assertIn(words, done.stderr)
        server = self.serve_at("--resource-depth", "0")
        self.assertEqual(self.put(server, "/accounts/42", 50), "stale")

    def test_the_deliberate_way_lets_no_token_in_that_was_seen(self):
        server = self.serve_at()
        self.assertEqual(self.put(server, "/accounts/42", 90), "admitted")
        self.assertEqual(server.stop(), 0)
        answer = self.expect_json(0, "fence", "rebase", *self.rebased, "--to-depth", "1")
        self.assertEqual(answer, {"resource_depth": 1, "floor": "90"})
        server = self.serve_at("--resource-depth", "1")
        for token, verdict in ((50, "stale"), (89, "stale"), (90, "stale"), (91, "admitted"), (90, "stale")):
            self.assertEqual(self.put(server, "/accounts/42", token), verdict, token)
        self.assertEqual(self.put(server, "/other/42", 90), "stale")
        self.assertEqual(server.stop(), 0)
        self.expect(2, "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", *self.parts)

    def test_highest_holder_is_admitted_under_no_other_name(self):
        server = self.serve_at()
        self.assertEqual(self.put(server, "/a/b/c", 38), "admitted")
        self.assertEqual(self.put(server, "/a/b", 40), "admitted")
        self.assertEqual(server.stop(), 0)
        self.expect_json(0, "fence", "rebase", *self.rebased, "--to-depth", "2")
        server = self.serve_at("--resource-depth", "2")
        for path, token in (("/a/b/c", 40), ("/a/b/z", 40), ("/a/b/c", 38)):
            self.assertEqual(self.put(server, path, token), "stale", path)
        self.assertEqual(self.put(server, "/a/b/c", 41), "admitted")

    def test_the_depth_is_not_changed_under_a_running_guard(self):
        self.serve_at()
        self.assertIn("another fenceguard", self.expect(3, "fence", "rebase", *self.rebased, "--to-depth", "1").stderr)

    def test_both_kinds_of_rebase_are_told_apart(self):
        for wrong in ([], ["--resource", "a"], ["--to", "3"], ["--resource", "a", "--to", "3", "--to-depth", "1"],
                      ["--resource", "a", "--to-depth", "1"]):
            self.assertIn("--to-depth", self.expect(2, "fence", "rebase", *self.rebased, *wrong).stderr)

    def test_the_control_side_names_resources_as_the_data_side_does(self):
        # A lock on 'a/b/c' would protect nothing at depth 2, and nor would one on 'a'.
        server = self.serve_at("--resource-depth", "2")
        self.assertEqual(server.lease("a/b").status, 201)
        for name in ("a", "a/b/c"):
            for answer in (server.lease(name), server.call("POST", f"/v1/fences/{name}/advance", claim(5)),
                           server.call("POST", f"/v1/leases/{name}/raise", body={"token": "5"})):
                self.assertEqual(answer.status, 400, name)
                self.assertIn("first 2 segments", answer.json["detail"])
        self.assertEqual(server.call("POST", "/v1/fences/a/b/advance", claim(5)).status, 200)
        self.assertEqual(server.call("GET", "/v1/fences").json["fences"],
                         [{"resource": "a/b", "token": "5", "sequence": None, "closed": False}])


class OverAState(OverItsOwnFile):
    """The same through the proxy, whose state keeps the depth."""

    def setUp(self):
        super().setUp()
        upstream = upstream_server.Server()
        self.addCleanup(upstream.remove)
        self.rebased = ["--storage", upstream.url(), "--state", "sqlite:state.db"]
        self.parts = [*self.rebased, "--settle", "300ms", "--init", "--settled"]


if __name__ == "__main__":
    unittest.main()
