"""What the tests of commands on redis:// share: a server per file, a namespace per test.

The URL carries a password everywhere, and no output of any command may hold it.
"""

import itertools
import unittest

import redis_server
import support

SECRET = "tr0ub4dor"
INIT = "fenceguard fence init"
_NAMES = itertools.count(1)


def setUpModule():
    global SERVER
    SERVER = redis_server.Server(password=SECRET)
    unittest.addModuleCleanup(SERVER.remove)


def claim_of(lease):
    return ["--resource", lease["resource"], "--token", lease["token"], "--holder", lease["holder"]]


class RedisTest(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.server = SERVER
        self.prefix = f"test{next(_NAMES)}:"
        self.url = self.url_of()

    def url_of(self, server=None, rest="", password=None):
        """rest: further parameters, as '&fair=1'."""
        return (server or self.server).url(f"/0?prefix={self.prefix}{rest}", password=password)

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

    def own_server(self, options=None, **more):
        """A server of this test alone."""
        server = redis_server.Server(options, **more)
        self.addCleanup(server.remove)
        return server

    def lease(self, status, command, *arguments, url=None):
        return self.expect(status, "lease", command, "--source", url or self.url, *arguments)

    def lease_json(self, status, command, *arguments, url=None):
        return self.expect_json(status, "lease", command, "--source", url or self.url, *arguments)

    def fence(self, status, command, *arguments, url=None):
        return self.expect(status, "fence", command, "--storage", url or self.url, *arguments)

    def fence_json(self, status, command, *arguments, url=None):
        return self.expect_json(status, "fence", command, "--storage", url or self.url, *arguments)
