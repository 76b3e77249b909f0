"""lease, exec, fence, serve, demo gc-pause and doctor with zookeeper:// as source and storage; and kazoo beside it."""

import signal
import unittest
import uuid

import consensus_case
import kazoo.client
import server_process
import support
import zookeeper_server
from consensus_case import SECRET, Case, claim_of
from support import wait_until

USER = "service"


class Nowhere(server_process.Nowhere):
    def url(self, rest, user="", password=""):
        return f"zookeeper://{user}:{password}@127.0.0.1:{self.port}{rest}"


def setUpModule():
    ZooKeeperCase.server = zookeeper_server.Server()
    unittest.addModuleCleanup(ZooKeeperCase.server.remove)
    ZooKeeperCase.peer = kazoo.client.KazooClient(f"127.0.0.1:{ZooKeeperCase.server.port}",
                                                  auth_data=[("digest", f"{USER}:{SECRET}")])
    ZooKeeperCase.peer.start()
    unittest.addModuleCleanup(ZooKeeperCase.peer.stop)


class ZooKeeperCase(Case):
    scheme = "zookeeper"
    lives_by_connection = True
    quick = "?timeout=1s&session_timeout=1s"
    peer = None

    def url_of(self, rest="", server=None):
        return (server or self.server).url(f"/{self.name}{rest}", USER, SECRET)

    def own_server(self, is_there=True):
        if not is_there:
            nowhere = Nowhere()
            self.addCleanup(nowhere.close)
            return nowhere
        server = zookeeper_server.Server()
        self.addCleanup(server.remove)
        return server

    def below(self, path):
        try:
            children = self.peer.get_children(path)
        except kazoo.exceptions.NoNodeError:
            return []
        paths = [f"{path.rstrip('/')}/{child}" for child in children if child != "zookeeper"]
        return paths + [name for child in paths for name in self.below(child)]

    def kazoo_lock(self, path, timeout):
        """Acquired. The server may take an empty node away at any time, and each of kazoo's objects makes it once."""
        while True:
            lock = self.peer.Lock(path, "kazoo")
            try:
                self.assertTrue(lock.acquire(timeout=timeout))
                return lock
            except kazoo.exceptions.NoNodeError:
                continue

    def names_with(self, part):
        return [name for name in self.below("/" if part == "demo" else f"/{self.name}") if part in name]


class Leases(consensus_case.Leases, ZooKeeperCase):
    def test_it_stays_until_signalled_and_a_killed_process_releases(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            lease = self.hold("a")
            self.assertIsNone(lease["process"].poll())
            lease["process"].send_signal(number)
            self.assertEqual(lease["process"].wait(support.LIMIT_S), 0)
        lease = self.hold("a", "--ttl", "6s")
        lease["process"].kill()
        self.assertGreater(int(self.hold("a", "--wait", "20s")["token"]), int(lease["token"]))

    def test_renew_and_release_from_elsewhere_say_what_holds(self):
        lease = self.hold("a")
        self.assertIn("as long as the process", self.lease(0, "renew", *claim_of(lease)).stderr)
        self.assertIn("still held", self.lease(1, "release", *claim_of(lease)).stderr)
        self.let_go(lease)

    def test_kazoo_and_ours_exclude_each_other(self):
        path = f"/{self.name}/locks/accounts/42"
        lease = self.hold("accounts/42")
        with self.assertRaises(kazoo.exceptions.LockTimeout):
            self.kazoo_lock(path, timeout=0.5)
        self.let_go(lease)
        lock = self.kazoo_lock(path, timeout=20)
        self.lease(1, "acquire", "--resource", "accounts/42", "--wait", "0s")
        lock.release()
        self.let_go(self.hold("accounts/42", "--wait", "20s"))

    def test_lease_token_reads_others_nodes_and_refuses_the_rest(self):
        offset = 100_000
        self.let_go(self.hold("a"))
        present = int(self.peer.exists(f"/{self.name}/stamp").mzxid)
        self.lease(0, "raise", "--resource", "any", "--token", str(present + offset))
        path = f"/{self.name}/locks/accounts/42"
        lock = self.kazoo_lock(path, timeout=20)
        node = f"{lock.path}/{lock.node}"
        # As the page says it for kazoo.
        told = str(self.peer.exists(node).czxid + int(self.peer.get(f"/{self.name}/offset")[0]))
        self.assertGreater(int(told), present + offset)
        self.assertEqual(self.lease(0, "token", "--key", node).stdout, told + "\n")
        self.assertEqual(self.lease(0, "token", "--resource", "accounts/42").stdout, told + "\n")
        refused = self.lease(1, "token", "--key", node, "--token", str(self.peer.exists(node).czxid))
        self.assertIn(f"is not the token of this holder, which is {told}", refused.stderr)
        # One of Curator waits behind it.
        name = f"{path}/_c_{uuid.uuid4()}-lock-"
        curators = self.peer.create(name, b"", ephemeral=True, sequence=True)
        self.assertIn("not held", self.lease(1, "token", "--key", curators).stderr)
        lock.release()
        self.assertIn("not held", self.lease(1, "token", "--key", node).stderr)
        self.assertGreater(int(self.lease(0, "token", "--key", curators).stdout), int(told))
        self.peer.delete(curators)
        for wrong in (path, "relative__lock__0000000001", "/"):
            self.assertIn("no node of a lock", self.lease(2, "token", "--key", wrong).stderr)

    def test_the_nodes_are_for_their_user_alone(self):
        self.let_go(self.hold("a"))
        stranger = kazoo.client.KazooClient(f"127.0.0.1:{self.server.port}")
        stranger.start()
        self.addCleanup(stranger.stop)
        with self.assertRaises(kazoo.exceptions.NoAuthError):
            stranger.get(f"/{self.name}/offset")
        done = self.lease(3, "show", "--resource", "a", url=self.server.url(f"/{self.name}", USER, "wrong"))
        self.assertNotIn("wrong", done.stderr)


class Exec(consensus_case.Exec, ZooKeeperCase):
    pass


class Fences(consensus_case.Fences, ZooKeeperCase):
    pass


class WithoutItsRecord(consensus_case.WithoutItsRecord, ZooKeeperCase):
    pass


class Serving(consensus_case.Serving, ZooKeeperCase):
    def test_leases_are_given_back_when_it_stops(self):
        guard = self.serve("--init")
        self.assertEqual(guard.lease("a", ttl_ms=600_000).status, 201)
        self.assertEqual(guard.stop(), 0)
        wait_until(lambda: not self.names_with("a/"), what="an end of its session")


class Demo(consensus_case.Demo, ZooKeeperCase):
    pass


class Doctor(consensus_case.Doctor, ZooKeeperCase):
    pass


if __name__ == "__main__":
    unittest.main()
