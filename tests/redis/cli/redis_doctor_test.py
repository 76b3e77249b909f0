"""doctor with redis:// URLs: each finding with a real server that is set so."""

import unittest

import redis_server
from redis_case import INIT, SECRET, RedisTest, setUpModule  # noqa: F401

SAFE = {"appendonly": "yes", "appendfsync": "always"}


class Doctor(RedisTest):
    def findings(self, status, way, url):
        found = self.expect_json(status, "doctor", f"--{way}", url)["findings"]
        return {each["check"]: (each["level"], each["message"]) for each in found}

    def assert_finding(self, found, check, level, *words):
        self.assertIn(check, found)
        self.assertEqual(found[check][0], level, found[check])
        for word in words:
            self.assertIn(word, found[check][1])

    def test_a_good_server(self):
        server = self.own_server(SAFE)
        self.fence(0, "init", url=server.url())
        found = self.findings(0, "storage", server.url())
        self.assertEqual({level for level, _ in found.values()}, {"ok"}, found)
        self.assertEqual(list(found), ["server", "role", "persistence", "replication", "eviction", "scripts",
                                       "reach", "functions", "namespace"])
        self.assert_finding(found, "reach", "ok", "this machine alone")
        found = self.findings(0, "source", server.url())
        self.assertEqual({level for level, _ in found.values()}, {"ok"}, found)
        self.assertIn("counter", found)
        lines = self.expect(0, "doctor", "--storage", server.url(), "--source", server.url()).stdout.splitlines()
        self.assertEqual(len(lines), len(set(lines)))
        self.assertIn(f"ok server: Redis {server.info('server')['redis_version']}", lines[0])

    def test_no_persistence_is_a_danger_for_a_guard(self):
        server = self.own_server()
        self.fence(0, "init", url=server.url())
        found = self.findings(1, "storage", server.url())
        self.assert_finding(found, "persistence", "danger", "after a restart all is gone", "appendonly yes")
        self.assert_finding(self.findings(0, "source", server.url()), "persistence", "warning", "leaps")

    def test_snapshots_only(self):
        server = self.own_server({"save": ("3600", "1")})
        self.assert_finding(self.findings(1, "storage", server.url()), "persistence", "danger", "save 3600 1")

    def test_everysec_and_no_fsync_say_what_may_be_lost(self):
        for value, words in (("everysec", "two seconds"), ("no", "the kernel")):
            server = self.own_server({"appendonly": "yes", "appendfsync": value})
            self.fence(0, "init", url=server.url())
            found = self.findings(0, "storage", server.url())
            self.assert_finding(found, "persistence", "warning", value, words, "appendfsync always")

    def test_replicas_that_no_write_waits_for(self):
        server = self.own_server(SAFE)
        replica = self.own_server(replica_of=server)
        server.wait_for_replicas()
        found = self.findings(0, "source", server.url())
        self.assert_finding(found, "replication", "warning", "1 attached", "min-replicas-to-write")
        server.cli("CONFIG", "SET", "min-replicas-to-write", "1")
        self.assert_finding(self.findings(0, "source", server.url()), "replication", "ok",
                            "min-replicas-to-write 1")
        found = self.findings(1, "source", replica.url())
        self.assert_finding(found, "role", "danger", "replica", "master")

    def test_replicas_that_take_writes(self):
        server = self.own_server({**SAFE, "replica-read-only": "no"})
        found = self.findings(1, "source", server.url())
        self.assert_finding(found, "replication", "danger", "replica-read-only yes")

    def test_eviction(self):
        server = self.own_server(SAFE)
        self.fence(0, "init", url=server.url())
        for policy in ("allkeys-lru", "allkeys-lfu", "allkeys-random"):
            server.cli("CONFIG", "SET", "maxmemory-policy", policy)
            for way in ("source", "storage"):
                self.assert_finding(self.findings(1, way, server.url()), "eviction", "danger", policy, "noeviction")
        for policy in ("volatile-lru", "volatile-ttl"):
            server.cli("CONFIG", "SET", "maxmemory-policy", policy)
            self.assert_finding(self.findings(1, "source", server.url()), "eviction", "danger", policy, "locks")
            self.assert_finding(self.findings(0, "storage", server.url()), "eviction", "ok", policy)

    def test_a_namespace_without_its_record_names_the_command(self):
        server = self.own_server(SAFE)
        self.assert_finding(self.findings(1, "storage", server.url()), "namespace", "danger", INIT)
        self.fence(0, "init", url=server.url())
        self.assert_finding(self.findings(0, "storage", server.url()), "namespace", "ok", "floor")
        server.cli("FLUSHALL")
        self.assert_finding(self.findings(1, "storage", server.url()), "namespace", "danger", INIT)

    def test_who_can_reach_it_without_a_password(self):
        server = self.own_server(SAFE)
        self.fence(0, "init", url=server.url())
        reach = lambda url: self.findings(0, "storage", url)
        server.cli("CONFIG", "SET", "protected-mode", "no")
        self.assert_finding(reach(server.url()), "reach", "ok", "bind 127.0.0.1", "this machine alone")
        server.cli("CONFIG", "SET", "bind", "* -::*")
        self.assert_finding(reach(server.url()), "reach", "warning", "other machines", "requirepass")
        server.cli("CONFIG", "SET", "protected-mode", "yes")
        self.assert_finding(reach(server.url()), "reach", "ok", "protected-mode")
        # With a password in the URL it is tried whether one is needed.
        server.cli("CONFIG", "SET", "protected-mode", "no")
        server.cli("ACL", "SETUSER", "svc", "on", f">{SECRET}", "~*", "&*", "+@all")
        url = server.url(user="svc", password=SECRET)
        self.assert_finding(reach(url), "reach", "warning", "other machines")
        server.cli("ACL", "SETUSER", "svc", "-config")
        self.assert_finding(reach(url), "reach", "warning", "not known", "CONFIG GET is refused")
        server.cli("ACL", "SETUSER", "default", "off")
        self.assert_finding(reach(url), "reach", "ok", "a password is needed")

    def test_foreign_keys_under_our_names(self):
        server = self.own_server(SAFE)
        server.cli("SET", "fenceguard:namespace", "x")
        server.cli("SET", "fenceguard:counter", "x")
        self.assert_finding(self.findings(1, "storage", server.url()), "namespace", "danger", "WRONGTYPE")
        self.assert_finding(self.findings(1, "source", server.url()), "counter", "danger", "WRONGTYPE")
        server.cli("DEL", "fenceguard:counter")
        server.cli("HSET", "fenceguard:counter", "value", "x")
        self.assert_finding(self.findings(1, "source", server.url()), "counter", "danger", "no number")

    def test_what_an_acl_hides_is_a_warning(self):
        server = self.own_server(SAFE)
        self.fence(0, "init", url=server.url())
        server.cli("ACL", "SETUSER", "svc", "on", f">{SECRET}", "~*", "&*", "+@all", "-config")
        url = server.url(user="svc", password=SECRET)
        found = self.findings(0, "storage", url)
        self.assert_finding(found, "settings", "warning", "NOPERM", "appendfsync", "min-replicas-to-write",
                            "+config|get")
        self.assert_finding(found, "persistence", "warning", "could not be seen")
        server.cli("ACL", "SETUSER", "svc", "-info", "-eval")
        found = self.findings(1, "storage", url)
        self.assert_finding(found, "scripts", "danger", "NOPERM")
        self.assert_finding(found, "eviction", "warning", "could not be seen")
        self.assert_finding(found, "persistence", "warning", "INFO is refused")
        server.cli("ACL", "SETUSER", "svc", "-hmget", "+eval")
        self.assert_finding(self.findings(0, "storage", url), "namespace", "warning", "NOPERM")

    def test_a_cluster_says_what_is_lost_and_looks_at_every_master(self):
        with redis_server.Cluster() as cluster:
            cluster.nodes[2].cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            found = self.findings(1, "storage", cluster.nodes[0].url())
            self.assert_finding(found, "cluster", "warning", "without a floor", "FLUSHALL")
            names = [f"127.0.0.1:{node.port}" for node in cluster.nodes]
            for name in names:
                self.assert_finding(found, f"{name} server", "ok", "Redis ")
            self.assert_finding(found, f"{names[2]} eviction", "danger", "allkeys-lru")
            self.assert_finding(found, f"{names[1]} eviction", "ok")
            self.assert_finding(self.findings(1, "source", cluster.url()), "cluster", "warning", "compacted")

    def quorum_url(self, servers, rest=""):
        return "redis-quorum://" + ",".join(f"127.0.0.1:{server.port}" for server in servers) + rest

    def test_each_server_of_a_quorum_by_its_name(self):
        servers = [self.own_server(SAFE) for _ in range(3)]
        names = [f"127.0.0.1:{server.port}" for server in servers]
        url = self.quorum_url(servers, "/0?node_timeout=2s")
        found = self.findings(1, "source", url)
        self.assert_finding(found, "quorum", "ok", "3 servers, 1 may fail")
        self.assert_finding(found, f"{names[0]} marker", "danger", INIT)
        self.lease(0, "raise", "--resource", "a", "--token", "1", url=url)
        found = self.findings(0, "source", url)
        self.assertEqual({level for level, _ in found.values()}, {"ok"}, found)
        servers[1].cli("CONFIG", "SET", "appendfsync", "everysec")
        self.assert_finding(self.findings(1, "source", url), f"{names[1]} persistence", "danger", "always")
        found = self.findings(0, "source", url + "&unsafe_persistence=1")
        self.assert_finding(found, f"{names[1]} persistence", "warning", "everysec")
        servers[1].kill()
        found = self.findings(1, "source", url)
        self.assert_finding(found, f"{names[1]} server", "danger", "cannot be reached")
        self.assert_finding(found, f"{names[2]} persistence", "ok")
        self.assert_finding(self.findings(1, "source", self.quorum_url(servers[:2])), "quorum", "warning", "three")


if __name__ == "__main__":
    unittest.main()
