"""The commands of pages, run as they stand: see support.PageTest."""

import unittest

import etcd_server
import postgres_server
import redis_server
import support
import upstream_server
import zookeeper_server


class Pages(support.PageTest):
    def start(self, module, **options):
        server = module.Server(**options)
        self.addCleanup(server.remove)
        return server

    def test_the_api_by_hand(self):
        self.run_page("api.md")

    def start_postgres(self):
        """A server with a database mydb, and what leads psql there."""
        server = self.start(postgres_server)
        server.create_database("mydb")
        return server, {"PGHOST": server.folder, "PGPORT": str(server.port), "PGUSER": "postgres"}

    def test_a_token_of_another_lock(self):
        self.run_page("instead-of.md", self.start_postgres()[1])

    def test_functions_of_redis(self):
        self.run_page("redis.md", servers={"6379": str(self.start(redis_server).port)})

    def test_the_doors(self):
        postgres, environment = self.start_postgres()
        servers = {"5432": postgres, "6379": self.start(redis_server), "2181": self.start(zookeeper_server),
                   "2379": self.start(etcd_server), "8080": self.start(upstream_server)}
        self.run_page("index.md", environment, {port: str(server.port) for port, server in servers.items()})


if __name__ == "__main__":
    unittest.main()
