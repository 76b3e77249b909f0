"""The C++ of the pages (page_code.py), each block run twice: before and behind a newer token."""

import os
import subprocess
import unittest

import etcd_server
import postgres_server
import redis_server
import support
import zookeeper_server

PROGRAM = os.environ["FENCEGUARD_PAGE_CODE"]


class PageCode(support.BinaryTest):
    def start(self, module):
        server = module.Server()
        self.addCleanup(server.remove)
        return server

    def check(self, name, url):
        """A block writes under its lease; once the fence is far ahead of the source it writes no more."""
        self.assertEqual(self.run_block(name, url), "admitted")
        self.expect(0, "fence", "advance", "--storage", url, "--resource", "accounts/42", "--token", str(2 ** 62), "--holder", "b")
        self.assertIn(self.run_block(name, url), ("stale", "refused"))

    def run_block(self, name, url):
        done = subprocess.run([PROGRAM, name, url], capture_output=True, text=True, timeout=support.LIMIT_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.strip()

    def test_postgres(self):
        server = self.start(postgres_server)
        for name in ("readme", "transaction"):
            with self.subTest(name):
                database = server.create_database(install=True)
                server.psql("create table account (id int primary key, balance int)", database)
                self.check(name, server.url(database))

    def test_a_versioned_table(self):
        server = self.start(postgres_server)
        database = server.create_database(install=True)
        server.psql("create table account (id int primary key, balance int, version bigint not null default 0, token bigint, "
                    "holder text); insert into account values (42, 100)", database)
        self.assertEqual(self.run_block("versioned", server.url(database)), "admitted")
        self.assertEqual(server.psql("select balance, version > 0, token from account", database), "70|t|1")

    def test_redis_zookeeper_and_etcd(self):
        for name, module, rest in (("redis", redis_server, "/0"), ("zookeeper", zookeeper_server, "/app"),
                                   ("etcd", etcd_server, "/app")):
            with self.subTest(name):
                url = self.start(module).url(rest)
                self.expect(0, "fence", "init", "--storage", url)
                self.check(name, url)


if __name__ == "__main__":
    unittest.main()
