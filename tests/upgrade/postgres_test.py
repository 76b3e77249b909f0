"""A PostgreSQL dump that 0.1.0 left behind, restored, refused as it is, and upgraded to this version."""

import gzip
import pathlib
import unittest

import postgres_server
from product_case import SECRET, ProductTest

LEFT_BY_0_1_0 = pathlib.Path(__file__).with_name("postgres-0.1.0.sql.gz")


class OlderSchema(ProductTest):
    def setUp(self):
        super().setUp()
        self.server = postgres_server.Server()
        self.addCleanup(self.server.remove)
        self.database = self.server.create_database()
        self.url = f"postgres://postgres:{SECRET}@127.0.0.1:{self.server.port}/{self.database}"
        self.server.psql(gzip.decompress(LEFT_BY_0_1_0.read_bytes()).decode(), self.database)

    def sql(self, text):
        return self.server.psql(text, self.database)

    def assert_refused(self, sqlstate, text):
        with self.assertRaises(postgres_server.SqlError) as refusal:
            self.sql(text)
        self.assertEqual(refusal.exception.sqlstate, sqlstate, refusal.exception)

    def test_is_refused_with_a_sentence_and_left_alone(self):
        before = self.sql("select * from fenceguard.fences order by resource")
        for done in (self.fence(3, "show", "--resource", "accounts/42"),
                     self.lease(3, "acquire", "--resource", "accounts/42")):
            self.assertIn("version 1", done.stderr)
            self.assertIn("fenceguard sql postgres", done.stderr)
        ready = self.serve().call("GET", "/readyz")
        self.assertEqual((ready.status, b"version 1" in ready.body), (503, True), ready)
        self.assertEqual(self.sql("select fenceguard.version()"), "1")
        self.assertEqual(self.sql("select * from fenceguard.fences order by resource"), before)

    def test_upgrade_keeps_fences_leases_and_protected_tables(self):
        fences = self.sql("select * from fenceguard.fence order by resource")
        self.sql(self.expect(0, "sql", "postgres").stdout)
        self.assertEqual(self.sql("select * from fenceguard.fence order by resource"), fences)
        fence = self.fence_json(0, "show", "--resource", "accounts/42")
        self.assertEqual((fence["token"], fence["sequence"]), ("2", "7"))
        self.assertTrue(self.fence_json(0, "show", "--resource", "accounts/7")["closed"])

        write = "update accounts set balance = 71 where id = 42"
        self.assert_refused("ZF003", write)
        self.assert_refused("ZF001", f"begin; select fenceguard.admit('accounts/42', 1, 'a'); {write}; commit")
        self.assert_refused("ZF001", "begin; select fenceguard.admit('accounts/7', 3, 'c'); delete from accounts; commit")
        again = "select fenceguard.admit('accounts/42', 2, 'b', 7)"
        self.assertEqual(self.sql(again), "duplicate")
        self.sql(f"begin; select fenceguard.admit('accounts/42', 2, 'b', 8); {write}; commit")
        self.assertEqual(self.sql("select balance from accounts where id = 42"), "71")
        # The source had granted 1 to 3.
        self.assertEqual(self.lease_json(0, "acquire", "--resource", "new", "--ttl", "10s")["token"], "4")
        self.assertIn("ok schema", self.expect(0, "doctor", "--storage", self.url).stdout)


if __name__ == "__main__":
    unittest.main()
