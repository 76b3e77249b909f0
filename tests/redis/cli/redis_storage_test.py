"""fence, lease, exec, serve and demo gc-pause with redis:// as the storage; and what FLUSHALL does to all of them."""

import json
import os
import signal
import unittest

import redis_server
import support
from product_case import ControlSide, claim_fields
from redis_case import INIT, SECRET, RedisTest, claim_of, setUpModule  # noqa: F401
from support import wait_until


class Fences(RedisTest):
    def setUp(self):
        super().setUp()
        self.fence(0, "init", "--floor", "10")

    def advance(self, status, token, holder="h", resource="a"):
        return self.fence_json(status, "advance", "--resource", resource, "--token", str(token), "--holder", holder)

    def test_advance_show_and_list(self):
        self.assertEqual(self.advance(1, 10)["verdict"], "stale")
        self.assertEqual(self.advance(0, 11)["verdict"], "admitted")
        self.assertEqual(self.advance(0, 11)["verdict"], "admitted")
        self.assertEqual(self.advance(1, 11, "other")["verdict"], "conflict")
        self.assertEqual(self.fence_json(0, "show", "--resource", "a")["token"], "11")
        self.advance(0, 12, resource="b")
        listed = self.fence(0, "list").stdout
        self.assertLess(listed.index("a"), listed.index("b"))
        self.fence(1, "show", "--resource", "nobody")

    def test_tokens_beyond_2_to_53_are_exact(self):
        for token in (2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1):
            self.advance(0, token)
            self.assertEqual(self.fence_json(0, "show", "--resource", "a")["token"], str(token))
        self.assertEqual(self.advance(1, 2**53)["verdict"], "stale")

    def test_a_revoke_closes_the_fence_and_ends_the_lease(self):
        lease = self.lease_json(0, "acquire", "--resource", "a", "--storage", self.url)
        self.fence(0, "revoke", "--resource", "a")
        self.assertEqual(self.advance(1, lease["token"], lease["holder"])["verdict"], "stale")
        self.lease(1, "renew", *claim_of(lease))
        again = self.lease_json(0, "acquire", "--resource", "a", "--storage", self.url, "--wait", "0s")
        self.assertGreater(int(again["token"]), int(lease["token"]))

    def test_compact_folds_what_is_idle(self):
        first = self.lease_json(0, "acquire", "--resource", "a", "--storage", self.url)
        self.lease(0, "release", *claim_of(first))
        held = self.lease_json(0, "acquire", "--resource", "b", "--storage", self.url, "--ttl", "10m")
        self.fence(0, "compact")
        self.fence(1, "show", "--resource", "a")
        self.assertEqual(self.fence_json(0, "show", "--resource", "b")["token"], held["token"])
        self.assertEqual(self.advance(1, first["token"], first["holder"])["verdict"], "stale")
        self.assertEqual(self.advance(0, held["token"], held["holder"], "b")["verdict"], "admitted")

    def test_init_only_raises_the_floor(self):
        self.fence(0, "init", "--floor", "30")
        self.fence(0, "init", "--floor", "20")
        self.assertEqual(self.advance(1, 30)["verdict"], "stale")
        self.assertEqual(self.advance(0, 31)["verdict"], "admitted")
        self.fence(0, "init")
        self.assertGreater(int(self.lease_json(0, "acquire", "--resource", "a", "--storage", self.url)["token"]), 31)

    def test_rebase_sets_a_fence_by_hand(self):
        self.advance(0, 2**60)
        done = self.fence(0, "rebase", "--resource", "a", "--to", "500")
        self.assertIn("G1", done.stdout + done.stderr)
        self.assertEqual(self.fence_json(0, "show", "--resource", "a")["token"], "500")
        self.assertEqual(self.advance(1, 499)["verdict"], "stale")
        self.assertEqual(self.advance(0, 501)["verdict"], "admitted")


class WithoutItsRecord(RedisTest):
    def test_everything_is_3_and_names_the_command(self):
        claim = ["--resource", "a", "--token", "5", "--holder", "h"]
        for arguments in (["advance", *claim], ["revoke", "--resource", "a"], ["compact"]):
            with self.subTest(arguments=arguments):
                self.assertIn(INIT, self.fence(3, *arguments).stderr)
        done = self.lease(3, "acquire", "--resource", "a", "--storage", self.url)
        self.assertIn(INIT, done.stderr)
        self.lease(1, "show", "--resource", "a")  # it was given back
        self.expect(125, "exec", "--source", self.url, "--storage", self.url, "--resource", "a", "--", "true")

    def test_flushall_is_noticed_and_nothing_old_is_admitted(self):
        server = self.own_server()
        url = server.url()
        self.fence(0, "init", url=url)
        old = self.lease_json(0, "acquire", "--resource", "a", "--storage", url, "--ttl", "10m", url=url)
        self.fence(0, "advance", *claim_of(old), url=url)
        server.cli("FLUSHALL")
        self.assertIn(INIT, self.fence(3, "advance", *claim_of(old), url=url).stderr)
        self.assertIn(INIT, self.lease(3, "acquire", "--resource", "a", "--storage", url, url=url).stderr)
        self.fence(0, "init", url=url)
        self.assertEqual(self.fence_json(1, "advance", *claim_of(old), url=url)["verdict"], "stale")
        new = self.lease_json(0, "acquire", "--resource", "a", "--storage", url, url=url)
        self.assertGreater(int(new["token"]), int(old["token"]))
        self.assertEqual(self.fence_json(1, "advance", *claim_of(old), url=url)["verdict"], "stale")


class Exec(RedisTest):
    def setUp(self):
        super().setUp()
        self.fence(0, "init")
        self.way = ["exec", "--source", self.url, "--storage", self.url, "--resource", "a"]

    def test_the_command_runs_under_an_advanced_claim(self):
        done = self.expect(0, *self.way, "--", "sh", "-c", "echo $FENCING_TOKEN")
        self.assertEqual(done.stderr, "")
        self.assertEqual(self.fence_json(0, "show", "--resource", "a")["token"], done.stdout.strip())

    def test_a_revoke_ends_the_command_with_124(self):
        process = self.start(*self.way, "--ttl", "5s", "--", "sh", "-c", "echo started; exec sleep 60")
        self.assertEqual(process.stdout.readline(), "started\n")
        self.fence(0, "revoke", "--resource", "a")
        self.assertEqual(process.wait(support.LIMIT_S), 124)


class Serving(ControlSide, RedisTest):
    scheme = "redis"

    def initialised_guard(self):
        self.fence(0, "init")
        return self.serve()

    def test_init_draws_the_floor(self):
        guard = self.serve("--init")
        self.assertEqual(guard.call("GET", "/readyz").status, 200)
        self.assertEqual(guard.lease("a").status, 201)

    def test_a_server_that_stops_and_comes_back(self):
        server = self.own_server()
        self.fence(0, "init", url=server.url())
        guard = self.serve(env={"FENCEGUARD_STORAGE": server.url("?timeout=1s&connect_timeout=1s")})

        def granted():
            answer = guard.lease("a", ttl_ms=600_000, holder="h")
            return answer.json if answer.status in (200, 201) else None

        lease = wait_until(granted, what="a lease")
        server.pause()
        answer = guard.call("POST", "/v1/fences/a/advance", claim_fields(lease))
        self.assertIn(answer.status, (503, 504, 500))
        wait_until(lambda: guard.call("GET", "/readyz").status == 503, what="a guard that is not ready")
        server.resume()
        wait_until(lambda: guard.call("GET", "/readyz").status == 200, what="a guard that is ready")
        wait_until(lambda: guard.call("POST", "/v1/fences/a/advance", claim_fields(lease)).status == 200,
                   what="an advance after the stop")
        server.kill()
        wait_until(lambda: guard.call("GET", "/readyz").status == 503, what="a guard that is not ready")
        self.assertEqual(guard.lease("b").status, 503)
        server.start()
        # It has forgotten everything, and that is no licence. A call of more than a second has no known outcome.
        wait_until(lambda: guard.call("POST", "/v1/fences/a/advance", claim_fields(lease)).status == 503)
        answer = wait_until(lambda: (found := guard.lease("b")).status not in (500, 504) and found, what="a refusal")
        self.assertEqual(answer.status, 503)
        self.fence(0, "init", url=server.url())
        wait_until(lambda: guard.lease("b").status == 201, what="a guard that works again")
        answer = wait_until(lambda: (found := guard.call("POST", "/v1/fences/a/advance", claim_fields(lease))).status
                            not in (500, 503, 504) and found, what="a ruling")
        self.assertEqual(answer.status, 412)

    def test_a_password_is_in_no_log(self):
        self.fence(0, "init")
        guard = self.serve("--log-level", "debug")
        self.assertEqual(guard.lease("a").status, 201)
        with open(f"/proc/{guard.process.pid}/cmdline", "rb") as line:
            self.assertNotIn(SECRET.encode(), line.read())
        self.assertEqual(guard.stop(), 0)


class Full(RedisTest):
    """A server that is out of memory: a holder is cut off and the lock goes on; only data is refused."""

    def setUp(self):
        super().setUp()
        self.server = self.own_server()
        self.url = self.url_of()
        self.fence(0, "init", "--floor", "0")

    def fill(self):
        self.server.cli("CONFIG", "SET", "maxmemory", 1)

    def test_fences_and_leases_go_on(self):
        old = self.lease_json(0, "acquire", "--resource", "a", "--storage", self.url, "--ttl", "10m")
        self.fill()
        self.lease(0, "renew", *claim_of(old))
        self.fence(0, "revoke", "--resource", "a")
        new = self.lease_json(0, "acquire", "--resource", "a", "--storage", self.url, "--wait", "0s")
        self.assertGreater(int(new["token"]), int(old["token"]))
        self.fence(1, "advance", *claim_of(old))
        self.lease(0, "release", *claim_of(new))
        self.lease(0, "raise", "--resource", "a", "--token", "1000")
        self.fence(0, "init", "--floor", "10")
        self.fence(0, "compact")

    def test_an_old_holder_is_cut_off_through_the_sidecar(self):
        """It can still delete, which needs no memory; and what is refused for want of memory is told in Redis's words."""
        guard = self.serve("--storage", self.url)
        link = redis_server.Link(int(guard.data.rpartition(":")[2]))
        self.addCleanup(link.close)
        link.call("FENCE", "r", 5, "h")
        link.call("SET", "r", "data")
        self.fill()
        for words in (("SET", "r", 1), ("FENCED", "r", 6, "i", "SET", "r", 1), ("BITFIELD", "r", "SET", "u8", 0, 1)):
            with self.assertRaisesRegex(redis_server.RedisError, "^OOM command not allowed when used memory > 'maxmemory'.?$"):
                link.call(*words)
        link.call("MULTI")
        link.call("SET", "r", 1)
        with self.assertRaisesRegex(redis_server.RedisError, "^EXECABORT .*: OOM command not allowed when used memory > 'maxmemory'.?$"):
            link.call("EXEC")
        other = redis_server.Link(int(guard.data.rpartition(":")[2]))
        self.addCleanup(other.close)
        self.assertEqual(other.call("FENCE", "r", 7, "i"), "OK")
        with self.assertRaisesRegex(redis_server.RedisError, "^STALE "):
            link.call("DEL", "r")
        self.assertEqual(other.call("DEL", "r"), 1)


class Names(RedisTest):
    """Of resources that no key can belong to."""

    def test_they_are_refused_everywhere(self):
        self.fence(0, "init", "--floor", "0")
        guard = self.serve("--storage", self.url)
        link = redis_server.Link(int(guard.data.rpartition(":")[2]))
        self.addCleanup(link.close)
        for name in ("{acc/1}:balance", "x{a}y"):
            for words in (("FENCE", name, 5, "h"), ("FENCED", name, 5, "h", "GET", name), ("FENCE.SHOW", name)):
                with self.assertRaisesRegex(redis_server.RedisError, "^ERR fenceguard: no key .* belongs to"):
                    link.call(*words)
            answer = guard.lease(name)
            self.assertEqual(answer.status, 400, answer)
            self.assertIn("hash tag", answer.json["detail"])
            for words in (("advance", "--token", "5"), ("revoke",), ("show",)):
                self.assertIn("hash tag", self.fence(2, words[0], "--resource", name, *words[1:]).stderr)
            self.assertIn("hash tag", self.lease(2, "acquire", "--resource", name, "--storage", self.url).stderr)
            done = self.expect(125, "exec", "--source", self.url, "--storage", self.url, "--resource", name, "--", "true")
            self.assertIn("hash tag", done.stderr)
            done = self.expect(2, "serve", "--storage", self.url, "--hold", name, "--control", "127.0.0.1:0", "--listen", "127.0.0.1:0")
            self.assertIn("hash tag", done.stderr)
        for name in ("a}b", "{}x", "{a", "a{b", "{}"):
            self.assertEqual(link.call("FENCE", name, 5, "h"), "OK", name)
            self.assertEqual(link.call("SET", name, 1), "OK", name)


class Eviction(RedisTest):
    """serve stands on no server that may evict fences."""

    def setUp(self):
        super().setUp()
        self.server = self.own_server({"maxmemory": "100mb"})
        self.url = self.url_of()
        self.fence(0, "init", "--floor", "0")

    def refused(self, *arguments):
        done = self.expect(3, "serve", "--storage", self.url, "--control", "127.0.0.1:0", "--listen", "127.0.0.1:0", *arguments)
        self.assertRegex(done.stderr, "maxmemory-policy allkeys-lru.*noeviction")

    def test_it_does_not_start(self):
        self.server.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        self.refused()
        # A managed server has no CONFIG; INFO tells it.
        self.server.cli("ACL", "SETUSER", "default", "-config")
        self.refused()
        guard = self.serve("--storage", self.url, "--unsafe-eviction")
        self.assertEqual(guard.call("GET", "/readyz").status, 200)

    def test_policies_that_spare_fences_are_fine(self):
        for policy in ("noeviction", "volatile-lru", "volatile-ttl"):
            self.server.cli("CONFIG", "SET", "maxmemory-policy", policy)
            self.assertEqual(self.serve("--storage", self.url).stop(), 0)

    def test_a_policy_that_is_set_later_is_seen(self):
        guard = self.serve("--storage", self.url)
        link = redis_server.Link(int(guard.data.rpartition(":")[2]))
        self.addCleanup(link.close)
        self.assertEqual(link.call("FENCE", "r", 5, "h"), "OK")
        self.assertEqual(link.call("SET", "r", 1), "OK")
        self.server.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        answer = wait_until(lambda: (found := guard.call("GET", "/readyz")).status == 503 and found, what="a guard that is not ready")
        self.assertIn(b"maxmemory-policy allkeys-lru", answer.body)
        for words in (("SET", "r", 2), ("FENCE", "s", 1, "h"), ("FENCED", "r", 5, "h", "SET", "r", 1), ("MSET", "r", 1, "{r}:x", 1)):
            with self.assertRaisesRegex(redis_server.RedisError, "^UNAVAILABLE .*maxmemory-policy"):
                link.call(*words)
        self.assertEqual(link.call("GET", "r"), "1")
        self.server.cli("CONFIG", "SET", "maxmemory-policy", "noeviction")
        wait_until(lambda: guard.call("GET", "/readyz").status == 200, what="a guard that is ready")
        self.assertEqual(link.call("SET", "r", 2), "OK")

    def refuses_until_init(self, guard, *init):
        """No guard starts meanwhile. Then what was admitted before is stale, whichever fences are gone, and whatever floor
        is asked for."""
        self.server.cli("CONFIG", "SET", "maxmemory-policy", "noeviction")
        answer = wait_until(lambda: b"for a while" in (found := guard.call("GET", "/readyz")).body and found,
                            what="a guard that asks for init")
        self.assertEqual(answer.status, 503)
        done = self.expect(3, "serve", "--storage", self.url, "--control", "127.0.0.1:0", "--listen", "127.0.0.1:0")
        self.assertRegex(done.stderr, "for a while.*fence init")
        stale = ("FENCED", "r", 4, "old", "SET", "r", "stale")
        with redis_server.Link(int(guard.data.rpartition(":")[2])) as link:
            with self.assertRaisesRegex(redis_server.RedisError, "^UNAVAILABLE .*fence init"):
                link.call(*stale)
            self.fence(0, "init", *init)
            wait_until(lambda: guard.call("GET", "/readyz").status == 200, what="a guard that is ready")
            with self.assertRaisesRegex(redis_server.RedisError, "^STALE "):
                link.call(*stale)
        self.assertEqual(guard.stop(), 0)
        self.assertEqual(self.serve("--storage", self.url).stop(), 0)

    def evicting(self):
        """A guard with a fence in front of a server whose policy was set anew, which it has seen."""
        guard = self.serve("--storage", self.url)
        with redis_server.Link(int(guard.data.rpartition(":")[2])) as link:
            self.assertEqual(link.call("FENCE", "r", 5, "h"), "OK")
        self.server.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
        wait_until(lambda: guard.call("GET", "/readyz").status == 503, what="a guard that is not ready")
        return guard

    def test_evicted_fences_are_restored_before_it_goes_on(self):
        guard = self.evicting()
        record = self.server.cli("HGETALL", f"{self.prefix}namespace")
        self.server.cli("EVAL", "for i = 1, 2000 do redis.call('SET', 'filler:' .. i, string.rep('x', 500)) end", 0)
        self.server.cli("CONFIG", "SET", "maxmemory", int(self.server.info("memory")["used_memory"]) - 100_000)
        wait_until(lambda: self.server.info("stats")["evicted_keys"] != "0", what="an eviction")
        self.server.cli("CONFIG", "SET", "maxmemory", 0)
        # Chance may have spared the fence, and taken the record.
        self.server.cli("DEL", f"{self.prefix}{{r}}")
        self.server.cli("ZREM", f"{self.prefix}resources", "r")
        self.server.cli("HSET", f"{self.prefix}namespace", *record)
        self.refuses_until_init(guard)

    def test_nor_does_it_where_evictions_are_no_longer_counted(self):
        guard = self.evicting()
        self.server.cli("CONFIG", "RESETSTAT")
        self.fence(0, "init", "--floor", "0")  # too early: it evicts still
        self.server.cli("DEL", f"{self.prefix}{{r}}")
        self.refuses_until_init(guard, "--floor", "0")

    def test_nor_where_the_server_was_a_replica_meanwhile(self):
        """What the master of those days evicted was deleted there as well, and not counted."""
        guard = self.evicting()
        other = redis_server.Server(replica_of=self.server)
        self.addCleanup(other.remove)
        for follower, master in ((other, self.server), (self.server, other)):
            master.cli("REPLICAOF", "NO", "ONE")
            follower.cli("REPLICAOF", "127.0.0.1", master.port)
            wait_until(lambda: follower.info("replication").get("master_link_status") == "up", what="a replica")
        self.server.cli("REPLICAOF", "NO", "ONE")
        self.server.cli("DEL", f"{self.prefix}{{r}}")
        self.refuses_until_init(guard)


class Demo(RedisTest):
    def setUp(self):
        super().setUp()
        self.fence(0, "init")
        self.temp = self.path("tmp")
        os.mkdir(self.temp)

    def keys(self):
        return [key for key in self.server.cli("KEYS", "*") if "demo" in key and not key.startswith("test")]

    def demo(self, *arguments):
        done = self.run_binary("demo", *arguments, env={"TMPDIR": self.temp, "FENCEGUARD_STORAGE": self.url},
                               limit_s=60)
        self.assertEqual(os.listdir(self.temp), [])
        return done

    def test_gc_pause_shows_both_outcomes_and_leaves_no_data(self):
        done = self.demo("gc-pause", "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        report = json.loads(done.stdout)
        self.assertTrue(report["as_it_must_be"])
        self.assertEqual((report["round"]["final"], report["through"]["final"]), (150, 180))
        self.assertEqual(self.keys(), [])

    def test_gc_pause_of_redis_cli_through_the_sidecar(self):
        done = self.demo("gc-pause", "--via", "sidecar", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        report = json.loads(done.stdout)
        self.assertEqual((report["round"]["final"], report["through"]["final"]), (150, 180))
        [refused] = [event for event in report["through"]["events"] if event["event"] == "refused"]
        self.assertEqual((refused["client"], int(refused["highest"]) - int(refused["token"])), ("A", 1))
        self.assertEqual(self.keys(), [])

    def test_an_interrupt_removes_its_data(self):
        process = self.start("demo", env={"TMPDIR": self.temp, "FENCEGUARD_STORAGE": self.url})
        wait_until(self.keys, what="data of the demonstration")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 128 + signal.SIGTERM)
        self.assertEqual((self.keys(), os.listdir(self.temp)), ([], []))


class OnACluster(RedisTest):
    def test_what_works_and_what_does_not(self):
        with redis_server.Cluster() as cluster:
            url = cluster.url()
            lease = self.lease_json(0, "acquire", "--resource", "accounts/42", "--storage", url, url=url)
            self.assertEqual(self.fence_json(0, "show", "--resource", "accounts/42", url=url)["token"], lease["token"])
            self.fence(0, "advance", *claim_of(lease), url=url)
            self.fence(1, "advance", *claim_of(dict(lease, token="1")), url=url)
            self.fence(1, "compact", url=url)


if __name__ == "__main__":
    unittest.main()
