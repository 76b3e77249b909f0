"""'exec --fence-method kill-client': connections of the old holder end before the next command runs.

Shows: which connections are the old holder's is told by their user, their address, or their name where all of that user
have one; those of a newer token, of other resources and our own stay.
"""

import os
import unittest

from redis_case import INIT, SECRET, RedisTest, setUpModule  # noqa: F401
from redis_server import Link


class KillClient(RedisTest):
    def setUp(self):
        super().setUp()
        self.fence(0, "init")
        self.words = ["exec", "--source", self.url, "--storage", self.url, "--resource", "jobs/a b"]

    def first_holder(self):
        """Its token. That its exec ended is not noted in Redis."""
        return int(self.expect(0, *self.words, "--", "sh", "-c", "echo $FENCING_TOKEN").stdout)

    def link(self, name=None, user="default", password=SECRET):
        link = Link(self.server.port)
        self.addCleanup(link.close)
        link.call("AUTH", user, password)
        if name:
            link.call("CLIENT", "SETNAME", name)
        return link

    def lives(self, link):
        try:
            return link.call("PING") is not None
        except OSError:
            return False

    def cut(self, which, count):
        told = self.expect(0, *self.words, "--fence-method", f"kill-client:{which}", "--", "true")
        self.assertIn(f"fence method kill-client: success: connections ended: {count}", told.stderr)

    def fail_to_cut(self, which, sentence):
        told = self.expect(125, *self.words, "--fence-method", f"kill-client:{which}", "--fence-on-failure", "wait", "--",
                           "touch", "ran")
        self.assertIn("fence method kill-client: failure", told.stderr)
        self.assertIn(sentence, told.stderr)
        self.assertFalse(os.path.exists(self.path("ran")))

    def make_worker(self):
        self.link().call("ACL", "SETUSER", "worker", "on", ">pw", "+@all", "~*")

    def worker(self, name=None):
        return self.link(name, user="worker", password="pw")

    def test_connections_of_a_user_are_told_by_name(self):
        token = self.first_holder()
        self.make_worker()
        old = [self.worker(f"w:jobs/a%20b:{token}"), self.worker(f"w:jobs/a%20b:{token - 1 or 1}")]
        stay = [self.worker(f"w:jobs/a%20b:{token + 1}"), self.worker(f"w:jobs/b:{token}"), self.link()]
        self.cut("name=w:%r:%t&user=worker", 2)
        self.assertEqual([self.lives(link) for link in old + stay], [False] * 2 + [True] * 3)

    def test_a_connection_without_such_a_name_may_be_an_old_holders(self):
        token = self.first_holder()
        self.make_worker()
        renamed = self.worker(f"w:jobs/a%20b:{token}")
        for name in ("", f"w:jobs/a%20b:{token}x", "w:jobs/a%20b:", "w::3", f"W:jobs/a%20b:{token}"):
            renamed.call("CLIENT", "SETNAME", name)
            old = self.worker(f"w:jobs/a%20b:{token}")
            self.fail_to_cut("name=w:%r:%t&user=worker", "1 ended, but 1 other connections do not say whose they are")
            self.assertEqual([self.lives(old), self.lives(renamed)], [False, True])
        self.fail_to_cut("name=w:%r:%t", "other connections do not say")

    def test_connections_are_told_by_user(self):
        self.first_holder()
        self.make_worker()
        links = [self.worker(), self.link()]
        self.cut("user=worker", 1)
        self.assertEqual([self.lives(link) for link in links], [False, True])

    def test_connections_are_told_by_address(self):
        self.first_holder()
        links = [self.link(), self.link()]
        (address,) = {word.removeprefix("addr=") for line in links[0].call("CLIENT", "LIST").splitlines()
                      for word in line.split() if word.startswith("addr=") and f"id={links[0].call('CLIENT', 'ID')} " in line}
        self.cut(f"addr={address}", 1)
        self.assertEqual([self.lives(link) for link in links], [False, True])

    def test_what_says_no_connections_is_refused(self):
        for sentence, parameter in [("user=NAME or addr=IP", ""), ("name=PATTERN", ":"), ("name=PATTERN", ":id=7"),
                                    ("name=PATTERN", ":user="),
                                    ("name=PATTERN", ":name=w&user="), ("'default' is the user of the URL", ":name=w&user=default"),
                                    ("'default' is the user of the URL", ":user=default")]:
            told = self.expect(125, *self.words, "--fence-method", f"kill-client{parameter}", "--", "touch", "ran")
            self.assertIn(sentence, told.stderr)


if __name__ == "__main__":
    unittest.main()
