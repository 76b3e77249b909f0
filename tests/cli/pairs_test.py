"""Every token source with every storage, fresh, as they come: the guard grants a first lease and has advanced it.

The numbers of some sources start high (a Redis counter at the clock, a ZooKeeper transaction at its epoch), and
--max-jump keeps its default. It is for claims of clients, not for what the guard's own source grants.
"""

import itertools
import unittest

import etcd_server
import postgres_server
import redis_server
import support
import zookeeper_server

SAFE = {"appendonly": "yes", "appendfsync": "always"}
QUORUM = 3
SOURCES = ("sqlite", "postgres", "postgres row", "postgres advisory", "redis", "redis-quorum", "zookeeper", "etcd")
STORAGES = ("sqlite", "http", "postgres", "redis", "zookeeper", "etcd")
_NAMES = itertools.count(1)


def setUpModule():
    global POSTGRES, REDIS, ZOOKEEPER, ETCD
    POSTGRES = postgres_server.Server()
    unittest.addModuleCleanup(POSTGRES.remove)
    REDIS = []
    for _ in range(QUORUM):
        REDIS.append(redis_server.Server(SAFE))
        unittest.addModuleCleanup(REDIS[-1].remove)
    ZOOKEEPER = zookeeper_server.Server()
    unittest.addModuleCleanup(ZOOKEEPER.remove)
    ETCD = etcd_server.Server()
    unittest.addModuleCleanup(ETCD.remove)


class Pairs(support.BinaryTest):
    def new_url(self, kind):
        """A namespace that nobody has used."""
        name = f"pair{next(_NAMES)}"
        product, _, lock = kind.partition(" ")
        if product == "sqlite":
            return f"sqlite:{name}.db"
        if product == "http":
            return "http://127.0.0.1:9"
        if product == "postgres":
            database = POSTGRES.create_database(install=True)
            return POSTGRES.url(database) + (f"?lock={lock}" if lock else "")
        if product == "redis":
            return REDIS[0].url(f"/0?prefix={name}:")
        if product == "redis-quorum":
            nodes = ",".join(f"127.0.0.1:{server.port}" for server in REDIS)
            return f"redis-quorum://{nodes}/0?prefix={name}:&node_timeout=5s"
        if product == "zookeeper":
            return ZOOKEEPER.url(f"/{name}")
        return ETCD.url(f"/{name}")

    def new_guard_words(self, storage):
        """The words that name a fresh storage, which somebody has said to be new."""
        words = ["--storage", self.new_url(storage)]
        if storage == "http":
            words += ["--state", f"sqlite:state{next(_NAMES)}.db"]
        self.expect(0, "fence", "init", *words, "--floor", "0")
        return words

    def new_source(self, kind):
        url = self.new_url(kind)
        if kind == "redis-quorum":
            self.expect(0, "lease", "raise", "--source", url, "--resource", "any", "--token", "1")
        if kind == "sqlite":
            self.make_file(url.removeprefix("sqlite:"))
        return url

    def serve(self, *arguments):
        is_served = not any(f"{scheme}:" in arguments[1] for scheme in ("postgres", "redis", "zookeeper", "etcd"))
        words = ["--control", "127.0.0.1:0", *(["--listen", "127.0.0.1:0"] if is_served else []), "--settled",
                 *arguments]
        server = support.Server(self.folder, words, listen=False)
        self.addCleanup(server.kill)
        return server

    def test_the_first_lease_of_each_pair(self):
        for storage, source in itertools.product(STORAGES, SOURCES):
            with self.subTest(storage=storage, source=source):
                server = self.serve(*self.new_guard_words(storage), "--source", self.new_source(source))
                tokens = []
                for _ in range(2):
                    lease = server.lease("accounts/42", ttl_ms=60_000, wait_ms=20_000)
                    self.assertEqual(lease.status, 201, lease)
                    tokens.append(int(lease.json["token"]))
                    fence = server.call("GET", "/v1/fences/accounts/42")
                    self.assertEqual((fence.status, fence.json["token"]), (200, lease.json["token"]))
                    claim = {"Fencing-Token": lease.json["token"], "Fencing-Holder": lease.json["holder"]}
                    self.assertEqual(server.call("DELETE", "/v1/leases/accounts/42", claim).status, 204)
                self.assertLess(tokens[0], tokens[1])
                server.stop()

    def test_a_revoke_of_a_lease_that_never_came_through_the_guard(self):
        """Its token is the source's own word, too."""
        source = self.new_source("redis")
        server = self.serve(*self.new_guard_words("redis"), "--source", source)
        self.expect(0, "lease", "acquire", "--source", source, "--resource", "a", "--ttl", "10m")
        revoked = server.call("POST", "/v1/fences/a/revoke")
        self.assertEqual((revoked.status, revoked.json["closed"], revoked.json["lease_ended"]), (200, True, True))

    def test_client_with_the_first_token_is_told_the_command(self):
        source = self.new_source("redis")
        for storage in STORAGES:
            with self.subTest(storage=storage):
                words = self.new_guard_words(storage)
                server = self.serve(*words, "--source", source)
                lease = self.expect_json(0, "lease", "acquire", "--source", source, "--resource",
                                         f"r{next(_NAMES)}", "--ttl", "10m")
                claim = {"Fencing-Token": lease["token"], "Fencing-Holder": lease["holder"]}
                target = f"/v1/fences/{lease['resource']}/advance"
                refused = server.call("POST", target, claim)
                self.assertEqual((refused.status, refused.json["verdict"]), (422, "implausible"), refused)
                self.assertIn("fenceguard fence init --storage URL --source URL", refused.json["detail"])
                server.stop()
                # What the sentence says helps.
                self.expect(0, "fence", "init", *words, "--source", source)
                server = self.serve(*words, "--source", source)
                later = self.expect_json(0, "lease", "acquire", "--source", source, "--resource",
                                         f"r{next(_NAMES)}", "--ttl", "10m")
                claim = {"Fencing-Token": later["token"], "Fencing-Holder": later["holder"]}
                target = f"/v1/fences/{later['resource']}/advance"
                self.assertEqual(server.call("POST", target, claim).status, 200)
                server.stop()


if __name__ == "__main__":
    unittest.main()
