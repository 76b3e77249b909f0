"""What the tests of commands on a product's URL share: a server per file, a namespace per test.

A product's case derives from ProductTest and says url. It carries a password everywhere, and no output of any command
may hold it.
"""

import support

SECRET = "tr0ub4dor"


def claim_of(lease):
    return ["--resource", lease["resource"], "--token", lease["token"], "--holder", lease["holder"]]


class ProductTest(support.BinaryTest):
    url = None  # the source and the storage of the test

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

    def lease(self, status, command, *arguments, url=None):
        return self.expect(status, "lease", command, "--source", url or self.url, *arguments)

    def lease_json(self, status, command, *arguments, url=None):
        return self.expect_json(status, "lease", command, "--source", url or self.url, *arguments)

    def fence(self, status, command, *arguments, url=None):
        return self.expect(status, "fence", command, "--storage", url or self.url, *arguments)

    def fence_json(self, status, command, *arguments, url=None):
        return self.expect_json(status, "fence", command, "--storage", url or self.url, *arguments)
