"""What the tests of commands on a product's URL share: a server per file, a namespace per test.

A product's case derives from ProductTest and says url. It carries a password everywhere, and no output of any command
may hold it.
"""

import json

import support
from waiting import wait_until

SECRET = "tr0ub4dor"


def claim_of(lease):
    return ["--resource", lease["resource"], "--token", lease["token"], "--holder", lease["holder"]]


def claim_fields(lease):
    return {"Fencing-Token": lease["token"], "Fencing-Holder": lease["holder"]}


class ProductTest(support.BinaryTest):
    url = None  # the source and the storage of the test
    lives_by_connection = False  # 'lease acquire' stays for as long as the lease is held

    def run_binary(self, *arguments, env=None, limit_s=support.LIMIT_S):
        done = super().run_binary(*arguments, env=env, limit_s=limit_s)
        self.assertNotIn(SECRET, done.stdout + done.stderr)
        return done

    def serve(self, *arguments, env=None):
        server = support.Server(self.folder, ["--control", "127.0.0.1:0", *arguments],
                                {"FENCEGUARD_STORAGE": self.url, **(env or {})}, listen=False)
        self.addCleanup(lambda: self.assertNotIn(SECRET, server.log()))
        self.addCleanup(server.kill)
        return server

    def lease(self, status, command, *arguments, url=None):
        return self.expect(status, "lease", command, "--source", url or self.url, *arguments)

    def lease_json(self, status, command, *arguments, url=None):
        return self.expect_json(status, "lease", command, "--source", url or self.url, *arguments)

    def fence(self, status, command, *arguments, url=None):
        return self.expect(status, "fence", command, "--storage", url or self.url, *arguments)

    def fence_json(self, status, command, *arguments, url=None):
        return self.expect_json(status, "fence", command, "--storage", url or self.url, *arguments)


class ControlSide:
    """What a guard of a product whose data is elsewhere serves, for a ProductTest with a scheme."""

    def initialised_guard(self):
        return self.serve("--init")

    def test_the_control_side(self):
        guard = self.initialised_guard()
        self.assertRegex(guard.line, r"^listening data=\S+ control=127\.0\.0\.1:\d+\n$")
        self.assertEqual(guard.call("GET", "/readyz").status, 200)
        lease = guard.lease("accounts/42")
        self.assertEqual(lease.status, 201, lease)
        fence = guard.call("GET", "/v1/fences/accounts/42")
        self.assertEqual((fence.status, fence.json["token"]), (200, lease.json["token"]))
        self.assertEqual(guard.lease("accounts/42").status, 409)
        self.assertEqual(guard.lease("accounts/42", holder=lease.json["holder"]).status, 200)
        headers = claim_fields(lease.json)
        self.assertEqual(guard.call("PUT", "/v1/leases/accounts/42", headers).status, 200)
        self.assertEqual(guard.call("DELETE", "/v1/leases/accounts/42", headers).status, 204)
        self.assertIn(f'storage="{self.scheme}"'.encode(), guard.call("GET", "/metrics").body)
        self.assertEqual(guard.stop(), 0)

    def test_revoke_list_and_compact(self):
        guard = self.initialised_guard()
        lease = guard.lease("a").json
        answer = guard.call("POST", "/v1/fences/a/revoke")
        self.assertEqual((answer.status, answer.json["closed"]), (200, True))
        self.assertEqual(guard.call("POST", "/v1/fences/a/advance", claim_fields(lease)).status, 412)
        self.assertEqual(guard.call("GET", "/v1/leases/a").status, 404)
        page = guard.call("GET", "/v1/fences?prefix=a").json
        self.assertEqual([each["resource"] for each in page["fences"]], ["a"])
        self.assertEqual(guard.call("POST", "/v1/fences/compact").json["dropped"], 1)

    def test_leases_are_listed_without_their_holders(self):
        guard = self.initialised_guard()
        held = {name: guard.lease(name).json for name in ("b", "a/2", "a/1")}
        self.assertTrue(guard.call("GET", "/v1/status").json["lists_leases"])
        page = guard.call("GET", "/v1/leases?prefix=a/&limit=1")
        self.assertEqual((page.json["has_more"], page.json["next"]), (True, "a/1"))
        [lease] = page.json["leases"]
        self.assertEqual((lease["resource"], lease["token"]), ("a/1", held["a/1"]["token"]))
        for member in ("ttl_ms", "expires_in_ms"):
            self.assertEqual(member in lease, not self.lives_by_connection)
        rest = guard.call("GET", "/v1/leases?prefix=a/&after=a/1").json
        self.assertEqual(([each["resource"] for each in rest["leases"]], rest["has_more"]), (["a/2"], False))
        for lease in held.values():
            self.assertNotIn(lease["holder"].encode(), page.body)
        told = "connection" if self.lives_by_connection else r"\d+ms"
        by_guard = self.expect(0, "lease", "list", "--server", guard.url).stdout
        for text in (by_guard, self.lease(0, "list").stdout):
            self.assertRegex(text, rf"^a/1 \d+ {told}\na/2 \d+ {told}\nb \d+ {told}\n$")

    def test_without_its_record_it_serves_and_is_not_ready(self):
        guard = self.serve()
        self.assertEqual(guard.call("GET", "/readyz").status, 503)
        self.assertEqual(guard.lease("a").status, 503)
        self.fence(0, "init")
        wait_until(lambda: guard.call("GET", "/readyz").status == 200, what="a guard that is ready")
        self.assertEqual(guard.lease("a").status, 201)


class MadeUpNumbers:
    """A number that was made up ends no leases for good. For a ProductTest whose url is source and storage, and whose source
    can be set back by hand."""

    ABSURD = 9223372036854775806

    def taken(self, resource):
        """The token of a new lease."""
        return int(self.lease_json(0, "acquire", "--storage", self.url, "--resource", resource)["token"])

    def not_taken(self, resource, sentence):
        told = self.run_binary("lease", "acquire", "--source", self.url, "--storage", self.url, "--resource", resource)
        self.assertIn(told.returncode, (1, 3), told)
        self.assertIn(sentence, told.stderr)

    def test_a_fence_that_is_far_above_its_source_does_not_lift_it(self):
        first = self.taken("a")
        self.fence(0, "advance", "--resource", "r", "--token", str(self.ABSURD))
        self.not_taken("r", "fenceguard fence rebase")
        self.assertLess(self.taken("b"), first + 10, "the counter moved")
        self.fence(0, "rebase", "--resource", "r", "--to", str(first))
        self.assertGreater(self.taken("r"), first)

    def test_a_source_is_raised_far_and_lowered_by_hand(self):
        first = self.taken("a")
        far = ("--resource", "r", "--token", str(self.ABSURD))
        self.assertIn("--far", self.lease(1, "raise", *far).stderr)
        self.lease(0, "raise", *far, "--far", "--by", "ann")
        self.assertEqual(self.taken("b"), self.ABSURD + 1)
        self.not_taken("c", "lease")
        told = self.lease(0, "lower", "--to", str(first + 20), "--by", "ann", "--json")
        self.assertIn("no stale write (G1) is no longer guaranteed", told.stderr)
        self.assertEqual(json.loads(told.stdout), {"from": str(self.ABSURD + 1), "to": str(first + 20), "by": "ann"})
        self.assertEqual(self.taken("c"), first + 21)
        self.lease(2, "lower", "--to", str(first + 500))
        self.assertEqual(self.by_hand(), ["ann", "ann"])
