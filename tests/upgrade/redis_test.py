"""An RDB that 0.1.0 left behind, opened by this version; and a newer namespace, which is refused untouched."""

import gzip
import pathlib
import unittest

import redis_server
from product_case import ProductTest

GRANTED = 1795588352633281  # what 0.1.0's counter stood at before its three grants
LEFT_BY_0_1_0 = pathlib.Path(__file__).with_name("redis-0.1.0.rdb.gz")


class OlderNamespace(ProductTest):
    def setUp(self):
        super().setUp()
        self.server = redis_server.Server()
        self.addCleanup(self.server.remove)
        self.server.stop()
        pathlib.Path(self.server.folder, "dump.rdb").write_bytes(gzip.decompress(LEFT_BY_0_1_0.read_bytes()))
        self.server.start()
        self.url = self.server.url("/0")

    def state(self):
        hashes = ("namespace", "counter", "{accounts/42}", "{accounts/7}")
        return sorted(self.server.cli("KEYS", "*")), [self.server.cli("HGETALL", "fenceguard:" + name) for name in hashes]

    def test_fences_and_the_counter_are_as_they_were(self):
        fence = self.fence_json(0, "show", "--resource", "accounts/42")
        self.assertEqual((fence["token"], fence["closed"]), (str(GRANTED + 2), False))
        self.assertTrue(self.fence_json(0, "show", "--resource", "accounts/7")["closed"])
        stale = self.fence(1, "advance", "--resource", "accounts/42", "--token", str(GRANTED + 1), "--holder", "a")
        self.assertIn("stale", stale.stdout + stale.stderr)
        grant = self.lease_json(0, "acquire", "--resource", "new", "--ttl", "10s")
        self.assertGreater(int(grant["token"]), GRANTED + 3)
        self.assertEqual(self.server.cli("GET", "{accounts/42}:balance"), "70")

    def test_newer_namespace_is_refused_and_left_unchanged(self):
        self.server.cli("HSET", "fenceguard:namespace", "floor", "2/0", "highest", "2/3")
        before = self.state()
        for command in (["show", "--resource", "accounts/42"], ["init", "--floor", "9"],
                        ["advance", "--resource", "accounts/42", "--token", "9", "--holder", "z"]):
            with self.subTest(command=command):
                self.assertIn("use a newer fenceguard", self.fence(3, *command).stderr)
        self.assertEqual(self.state(), before)


if __name__ == "__main__":
    unittest.main()
