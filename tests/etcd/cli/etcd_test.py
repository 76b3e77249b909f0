"""lease, exec, fence, serve, demo gc-pause and doctor with etcd:// as source and storage; and `etcdctl lock` beside it."""

import unittest

import consensus_case
import etcd_server
import server_process
import support
from consensus_case import SECRET, Case, claim_of
from support import wait_until


class Nowhere(server_process.Nowhere):
    def url(self, rest):
        return f"etcd://root:{SECRET}@127.0.0.1:{self.port}{rest}"


def setUpModule():
    EtcdCase.server = etcd_server.Server(password=SECRET)
    unittest.addModuleCleanup(EtcdCase.server.remove)


class EtcdCase(Case):
    scheme = "etcd"
    quick = "?timeout=500ms&connect_timeout=500ms"

    def url_of(self, rest="", server=None):
        return (server or self.server).url(f"/{self.name}{rest}")

    def own_server(self, is_there=True):
        if not is_there:
            nowhere = Nowhere()
            self.addCleanup(nowhere.close)
            return nowhere
        server = etcd_server.Server()
        self.addCleanup(server.remove)
        return server

    def names_with(self, part):
        names = self.server.ctl("get", "--prefix", "--keys-only", self.name + "/" if part != "demo" else "").split()
        return [name for name in names if part in name]


class Leases(consensus_case.Leases, EtcdCase):
    def test_a_lease_outlives_its_process_and_is_renewed_by_another(self):
        lease = self.hold("a", "--ttl", "20s")
        self.lease(0, "renew", *claim_of(lease), "--ttl", "20s")
        again = self.hold("a", "--holder", lease["holder"])
        self.assertEqual(again["token"], lease["token"])
        self.let_go(lease)

    def test_etcdctl_lock_and_ours_exclude_each_other(self):
        lock = f"{self.name}/lock/accounts%2F42"
        lease = self.hold("accounts/42", "--ttl", "10m")
        theirs = self.server.start_ctl("lock", lock)
        self.addCleanup(support.end_process, theirs)
        wait_until(lambda: len(self.names_with("%2F42/")) == 2, what="etcdctl in the line")
        self.let_go(lease)
        self.assertTrue(theirs.stdout.readline().startswith(lock + "/"))
        self.lease(1, "acquire", "--resource", "accounts/42", "--wait", "0s")
        theirs.terminate()
        theirs.wait(support.LIMIT_S)
        self.let_go(self.hold("accounts/42", "--wait", "20s"))


    def test_lease_token_reads_etcdctls_key_and_refuses_others(self):
        self.lease(0, "raise", "--resource", "any", "--token", "100000")  # an offset
        lock = f"{self.name}/lock/accounts%2F42"
        ours = self.hold("accounts/42", "--ttl", "10m")
        says = f'echo "$ETCD_LOCK_KEY $ETCD_LOCK_REV"; while [ ! -e {self.path("done")} ]; do sleep 0.02; done'
        theirs = self.server.start_ctl("lock", lock, "--", "sh", "-c", says)
        self.addCleanup(support.end_process, theirs)
        wait_until(lambda: len(self.names_with("%2F42/")) == 2, what="etcdctl in the line")
        self.server.ctl("put", "unrelated", "1")  # the revision goes on while it waits
        self.let_go(ours)
        key, seen_at = theirs.stdout.readline().split()
        token = self.lease(0, "token", "--key", key).stdout.strip()
        self.assertEqual(self.lease(0, "token", "--resource", "accounts/42").stdout.strip(), token)
        self.assertEqual(self.lease_json(0, "token", "--key", key, "--token", token), {"token": token})
        self.assertGreater(int(token), int(ours["token"]))
        refused = self.lease(1, "token", "--key", key, "--token", seen_at)
        for words in (f"{seen_at} is not the token of this holder, which is {token}", "ETCD_LOCK_REV"):
            self.assertIn(words, refused.stderr)
        waits = self.server.start_ctl("lock", lock)
        self.addCleanup(support.end_process, waits)
        wait_until(lambda: len(self.names_with("%2F42/")) == 2, what="another in the line")
        (other,) = set(self.names_with("%2F42/")) - {key}
        self.assertIn("not held", self.lease(1, "token", "--key", other).stderr)
        self.fence(0, "init", "--floor", "1")
        self.advance(0, token, resource="accounts/42", holder="etcdctl")
        self.write("done", "")
        self.assertEqual(waits.stdout.readline().strip(), other)
        self.assertIn("not held", self.lease(1, "token", "--key", key).stderr)
        later = self.lease(0, "token", "--key", other).stdout.strip()
        self.advance(0, later, resource="accounts/42", holder="next")
        for wrong in ("no-slash", "/", "a/"):
            self.assertIn("NAME/LEASE", self.lease(2, "token", "--key", wrong).stderr)


class Exec(consensus_case.Exec, EtcdCase):
    pass


class Fences(consensus_case.Fences, EtcdCase):
    pass


class WithoutItsRecord(consensus_case.WithoutItsRecord, EtcdCase):
    pass


class Serving(consensus_case.Serving, EtcdCase):
    pass


class Demo(consensus_case.Demo, EtcdCase):
    pass


class Doctor(consensus_case.Doctor, EtcdCase):
    pass


if __name__ == "__main__":
    unittest.main()
