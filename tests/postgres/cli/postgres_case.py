"""What the tests of commands on postgres:// share: a server per file, a database per test."""

import unittest

import postgres_server
from product_case import SECRET, ProductTest

INSTALL = "fenceguard sql postgres"


def setUpModule():
    global SERVER
    SERVER = postgres_server.Server()
    unittest.addModuleCleanup(SERVER.remove)


def claim_fields(token, holder="h"):
    return {"Fencing-Token": token, "Fencing-Holder": holder}


class PostgresTest(ProductTest):
    def setUp(self):
        super().setUp()
        self.server = SERVER
        self.database = self.server.create_database(install=True)
        self.url = self.url_of(self.database)

    def url_of(self, database, server=None, user="postgres"):
        return f"postgres://{user}:{SECRET}@127.0.0.1:{(server or self.server).port}/{database}"

    def sql(self, text):
        return self.server.psql(text, self.database)
