"""Old holders are cut off at the take-over of a lane.

Shows: the fence is raised first, then the methods run, once at a time, and the new holder goes on behind them; what is
owed outlives the guard, killed at any moment. How: a real guard in front of the tests' own upstream, and a method that
the test holds up.
"""

import concurrent.futures
import os
import random
import time
import unittest

import support
import upstream_server
from method import Method
from waiting import wait_until

ROUNDS = int(os.environ.get("FENCEGUARD_CUT_ROUNDS", "12"))


class LaneTest(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.upstream = upstream_server.Server()
        self.addCleanup(self.upstream.remove)
        self.method = Method(self.path("one"))
        self.pool = concurrent.futures.ThreadPoolExecutor(8)
        self.addCleanup(self.pool.shutdown)

    def guard(self, *more, methods=None, settle="300ms", timeout="20s", env=None):
        words = [f"--fence-method={method}" for method in methods or [self.method.word]]
        return self.serve("--storage", self.upstream.url(), "--state", "sqlite:state.db", *support.new_lane(self.folder),
                          "--forward-claim", "--settle", settle, "--fence-timeout", timeout, *words, *more, env=env)

    def put(self, server, token, holder=None, resource="r", deed="", method="PUT"):
        claim = {"Fencing-Token": str(token), "Fencing-Holder": holder or f"h{token}", "Upstream-Do": deed}
        return server.request(method, f"/{resource}", claim, b"x" if method == "PUT" else None)

    def counted(self, server, method, outcome):
        line = f'fenceguard_fence_methods_total{{method="{method}",outcome="{outcome}"}} '
        (found,) = [row for row in server.call("GET", "/metrics").body.decode().splitlines() if row.startswith(line)]
        return int(float(found.removeprefix(line)))


class TakeOver(LaneTest):
    def test_old_holder_is_refused_then_cut_off_before_the_new_one(self):
        server = self.guard()
        self.assertEqual(self.put(server, 34).status, 201)
        self.assertEqual(self.method.runs(), [], "there was nobody before the first one")
        self.method.hold()
        waiting = [self.pool.submit(self.put, server, 35, resource="r") for _ in range(3)]
        waiting.append(self.pool.submit(self.put, server, 35, method="GET"))
        self.method.await_run(1)
        self.assertEqual(self.put(server, 34).status, 412, "the fence is raised first")
        self.assertEqual(self.put(server, 5, resource="other").status, 201, "other resources go on")
        wait_until(lambda: "fenceguard_lane_waiting 4" in server.call("GET", "/metrics").body.decode(), what="all wait")
        self.method.release()
        self.assertEqual([told.result().status // 100 for told in waiting], [2, 2, 2, 2])
        self.assertEqual(self.method.runs(), [("r", 34, 35)], "once, however often it is asked")
        self.assertEqual(self.counted(server, "command", "success"), 1)
        self.assertIn('event=fence_method method=command outcome=success resource="r" old_token=34 new_token=35 '
                      'detail="says 0"', server.log())
        self.assertEqual(self.put(server, 35).status, 204)
        self.assertEqual(len(self.method.runs()), 1)

    def test_older_writes_drain_beside_it(self):
        server = self.guard("--upstream-timeout", "30s")
        old = self.pool.submit(self.put, server, 34, deed="await=1")
        self.upstream.wait_for("seen")
        new = self.pool.submit(self.put, server, 35)
        wait_until(lambda: self.method.runs("ended"), what="the end of the method")
        self.assertFalse(new.done(), "the older write is not over")
        self.put(server, 5, resource="other")  # which is what the older one waits for
        self.assertEqual((old.result().status, new.result().status), (201, 204))
        self.assertEqual([line["token"] for line in self.upstream.applied()], ["5", "34", "35"])

    def test_method_inherits_only_the_resource_and_the_tokens(self):
        server = self.serve("--storage", self.upstream.url(), "--state", "sqlite:state.db", "--init", "--settled",
                            "--fence-method", self.method.word, env={"FENCEGUARD_SERVER_TOKEN": "secret", "OTHER": "1"})
        self.put(server, 34)
        self.put(server, 35, holder="the-new-holder")
        variables = dict(line.split("=", 1) for line in self.method.read("environment").splitlines())
        for own_of_the_shell in ("PWD", "_", "SHLVL", "OLDPWD"):
            variables.pop(own_of_the_shell, None)
        self.assertEqual(set(variables), {"PATH", "FENCING_RESOURCE", "FENCING_OLD_TOKEN", "FENCING_NEW_TOKEN"})
        files = [line.partition(" -> ")[2] for line in self.method.read("descriptors").splitlines()[1:]]
        own_of_the_shell = [self.method.path, self.method.path.replace("/method", "/descriptors")]
        self.assertEqual([file for file in files if not file.startswith("pipe:") and file not in own_of_the_shell],
                         ["/dev/null"])

    def test_the_same_holder_with_a_higher_token_is_not_cut_off(self):
        server = self.guard()
        self.put(server, 34, holder="a")
        self.assertEqual(self.put(server, 35, holder="a").status, 204)
        self.assertEqual(self.method.runs(), [])

    def test_released_holder_is_not_cut_off_but_an_expired_one_is(self):
        server = self.guard()
        for is_released in (True, False):
            lease = server.lease("r", ttl_ms=10_000 if is_released else 1_000).json
            claim = {"Fencing-Token": lease["token"], "Fencing-Holder": lease["holder"]}
            self.assertIn(server.request("PUT", "/r", claim, b"x").status, (201, 204))
            if is_released:
                self.assertEqual(server.call("DELETE", "/v1/leases/r", claim).status, 204)
                self.assertEqual(server.request("PUT", "/r", claim, b"x").status, 412, "it is finished")
            last = int(lease["token"])
        lease = server.lease("r", wait_ms=10_000).json
        self.assertEqual(self.method.runs(), [("r", last, int(lease["token"]))])

    def test_a_late_release_does_not_close_the_next_ones_fence(self):
        server = self.guard()
        first = server.lease("r", ttl_ms=1_000).json
        second = server.lease("r", ttl_ms=20_000, wait_ms=10_000).json
        late = {"Fencing-Token": first["token"], "Fencing-Holder": first["holder"]}
        self.assertEqual(server.call("DELETE", "/v1/leases/r", late).status, 412)
        claim = {"Fencing-Token": second["token"], "Fencing-Holder": second["holder"]}
        self.assertEqual(server.request("PUT", "/r", claim, b"x").status, 201)

    def test_fence_with_a_pending_cut_off_is_not_compacted(self):
        server = self.guard()
        self.put(server, 34)
        refused = server.call("POST", "/v1/fences/compact")
        self.assertEqual(refused.status, 503)
        self.assertIn("--fence-method", refused.body.decode())
        self.put(server, 35)
        self.assertEqual(self.method.runs(), [("r", 34, 35)])

    def test_revoke_cuts_off_the_holder_once(self):
        server = self.guard()
        self.put(server, 34)
        self.assertEqual(server.call("POST", "/v1/fences/r/revoke").status, 200)
        self.assertEqual(self.method.runs("ended"), [("r", 34, 34)])
        self.assertEqual(self.put(server, 35).status, 204)
        self.assertEqual(len(self.method.runs()), 1)


class Failure(LaneTest):
    def test_with_wait_nothing_is_admitted_until_a_method_succeeds(self):
        server = self.guard("--fence-on-failure", "wait")
        self.put(server, 34)
        self.method.end_with(3)
        refused = self.put(server, 35)
        self.assertEqual(refused.status, 503)
        self.assertIn("no fence method has succeeded", refused.body.decode())
        self.assertIn("retry-after", refused.headers)
        self.assertIn("\nfenceguard_lane_cuts_owed 1\n", server.call("GET", "/metrics").body.decode())
        self.assertIn("\n  cuts owed: 1 ", self.expect(0, "status", "--server", server.url).stdout)
        self.assertIn('outcome=failure resource="r" old_token=34 new_token=35 detail="exit status 3: says 3"', server.log())
        self.assertEqual(self.put(server, 35).status, 503, "it waits before it tries again")
        self.assertEqual(self.put(server, 34).status, 412)
        self.method.end_with(0)
        wait_until(lambda: self.put(server, 36).status == 204, what="a method that succeeds")
        self.assertIn("\nfenceguard_lane_cuts_owed 0\n", server.call("GET", "/metrics").body.decode())
        self.assertNotIn("cuts owed", self.expect(0, "status", "--server", server.url).stdout)
        self.assertEqual(self.put(server, 35).status, 412)
        self.assertEqual({old for _, old, _ in self.method.runs()}, {34}, "35 was never let in")

    def test_where_it_is_to_go_on_it_is_let_in_and_not_tried_again(self):
        server = self.guard()
        self.put(server, 34)
        self.method.end_with(3)
        self.assertEqual(self.put(server, 35).status, 204)
        self.assertEqual(self.put(server, 35).status, 204)
        self.assertEqual(self.method.runs(), [("r", 34, 35)])
        self.assertEqual(self.counted(server, "command", "failure"), 1)

    def test_methods_are_tried_in_order_until_one_succeeds(self):
        second, third = Method(self.path("two")), Method(self.path("three"))
        self.method.end_with(1)
        server = self.guard("--fence-on-failure", "wait", methods=[self.method.word, second.word, third.word])
        self.put(server, 34)
        self.assertEqual(self.put(server, 35).status, 204)
        self.assertEqual([len(method.runs()) for method in (self.method, second, third)], [1, 1, 0])
        self.assertEqual([self.counted(server, "command", outcome) for outcome in ("failure", "success")], [1, 1])

    def test_a_stop_ends_the_method_and_what_is_owed_stays(self):
        server = self.guard()
        self.put(server, 34)
        self.method.hold()
        waiting = self.pool.submit(self.put, server, 35)
        self.method.await_run(1)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(waiting.result().status, 503)
        self.method.release()
        server = self.guard()
        wait_until(lambda: self.put(server, 35).status == 204, what="an open lane")
        self.assertEqual(self.method.runs(), [("r", 34, 35)] * 2)


class Killed(LaneTest):
    def test_holder_admitted_without_methods_is_cut_off_later(self):
        server = self.guard("--fence-on-failure", "wait")
        self.put(server, 34)
        self.method.end_with(1)
        self.assertEqual(self.put(server, 35).status, 503)
        server.kill()
        server = self.serve("--storage", self.upstream.url(), "--state", "sqlite:state.db", "--settle", "300ms")
        wait_until(lambda: self.put(server, 35).status in (201, 204), what="an open lane")
        server.kill()
        self.method.end_with(0)
        server = self.guard("--fence-on-failure", "wait")
        wait_until(lambda: self.put(server, 36).status in (201, 204), what="an open lane")
        self.assertEqual(self.method.runs()[-1], ("r", 35, 36))

    def test_guard_killed_during_a_method_repeats_it_after_restart(self):
        server = self.guard("--fence-on-failure", "wait")
        self.put(server, 34)
        self.method.hold()
        waiting = self.pool.submit(self.put, server, 35)
        self.method.await_run(1)
        server.kill()
        self.assertIsNotNone(waiting.exception())
        server = self.guard("--fence-on-failure", "wait")
        answer = self.pool.submit(wait_until, lambda: self.put(server, 35).status in (201, 204), what="an open lane")
        self.method.await_run(2)
        self.assertEqual(self.method.runs("ended"), [])
        self.assertEqual(self.put(server, 34).status, 412)
        self.assertFalse(answer.done())
        self.method.release()
        answer.result()
        self.assertEqual(self.method.runs("ended"), [("r", 34, 35)])

    def test_after_any_kill_holders_are_cut_off_before_successors(self):
        seed = random.randrange(2**32)
        chooser = random.Random(seed)
        server = self.guard("--fence-on-failure", "wait", settle="250ms")
        self.assertEqual(self.put(server, 100).status, 201)
        for token in range(101, 101 + ROUNDS):
            self.pool.submit(self.put, server, token)
            time.sleep(chooser.uniform(0.0, 0.06))
            server.kill()
            server = self.guard("--fence-on-failure", "wait", settle="250ms")
            wait_until(lambda: self.put(server, token).status in (201, 204), what="an open lane")
            done = [old for _, old, _ in self.method.runs("ended")]
            self.assertIn(token - 1, done, f"{token} went on, seed {seed}")


if __name__ == "__main__":
    unittest.main()
