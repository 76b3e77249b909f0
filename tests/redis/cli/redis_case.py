"""What the tests of commands on redis:// share: a server per file, a namespace per test."""

import itertools
import unittest

import redis_server
from product_case import SECRET, ProductTest, claim_of  # noqa: F401

INIT = "fenceguard fence init"
_NAMES = itertools.count(1)


def setUpModule():
    global SERVER
    SERVER = redis_server.Server(password=SECRET)
    unittest.addModuleCleanup(SERVER.remove)


class RedisTest(ProductTest):
    def setUp(self):
        super().setUp()
        self.server = SERVER
        self.prefix = f"test{next(_NAMES)}:"
        self.url = self.url_of()

    def url_of(self, server=None, rest="", password=None):
        """rest: further parameters, as '&fair=1'."""
        return (server or self.server).url(f"/0?prefix={self.prefix}{rest}", password=password)

    def own_server(self, options=None, **more):
        """A server of this test alone."""
        server = redis_server.Server(options, **more)
        self.addCleanup(server.remove)
        return server
