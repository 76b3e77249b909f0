"""What the tests of commands on postgres:// share: a server per file, a database per test.

The URL carries a password everywhere, and no output of any command may hold it.
"""

import unittest

import postgres_server
import support

SECRET = "tr0ub4dor"
INSTALL = "fenceguard sql postgres"


def setUpModule():
    global SERVER
    SERVER = postgres_server.Server()
    unittest.addModuleCleanup(SERVER.remove)


def claim_fields(token, holder="h"):
    return {"Fencing-Token": token, "Fencing-Holder": holder}


class PostgresTest(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.server = SERVER
        self.database = self.server.create_database(install=True)
        self.url = self.url_of(self.database)

    def url_of(self, database, server=None, user="postgres"):
        return f"postgres://{user}:{SECRET}@127.0.0.1:{(server or self.server).port}/{database}"

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

    def sql(self, text):
        return self.server.psql(text, self.database)

    def fence(self, status, command, *arguments):
        return self.expect(status, "fence", command, "--storage", self.url, *arguments)

    def fence_json(self, status, command, *arguments):
        return self.expect_json(status, "fence", command, "--storage", self.url, *arguments)

    def lease_json(self, status, command, *arguments, url=None):
        return self.expect_json(status, "lease", command, "--source", url or self.url, *arguments)
