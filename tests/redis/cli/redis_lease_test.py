"""lease and exec with redis:// as the source."""

import itertools
import json
import socket
import unittest

import support
from fault_proxy import Listener
from redis_case import SECRET, RedisTest, claim_of, setUpModule  # noqa: F401
from product_case import MadeUpNumbers
from support import wait_until


class Numbers(MadeUpNumbers, RedisTest):
    def setUp(self):
        super().setUp()
        self.fence(0, "init")

    def by_hand(self):
        with self.server.link() as link:
            return [json.loads(note)["by"] for note in link.call("LRANGE", self.prefix + "rebased", "0", "-1")]


class Leases(RedisTest):
    def test_the_life_of_a_lease(self):
        lease = self.lease_json(0, "acquire", "--resource", "accounts/42")
        self.assertIsInstance(lease["token"], str)
        shown = self.lease_json(0, "show", "--resource", "accounts/42")
        self.assertEqual(shown["token"], lease["token"])
        self.assertNotIn("holder", shown)
        done = self.lease(1, "acquire", "--resource", "accounts/42", "--wait", "0s")
        self.assertIn("held", done.stderr)
        self.lease(0, "renew", *claim_of(lease), "--ttl", "20s")
        self.assertGreater(self.lease_json(0, "show", "--resource", "accounts/42")["remaining_ms"], 10_000)
        self.lease(1, "renew", *claim_of(dict(lease, holder="another")))
        self.lease(1, "release", *claim_of(dict(lease, holder="another")))
        self.lease(1, "release", *claim_of(dict(lease, token="1")))
        self.lease(0, "release", *claim_of(lease))
        self.lease(1, "release", *claim_of(lease))
        self.lease(1, "renew", *claim_of(lease))
        self.lease(1, "show", "--resource", "accounts/42")
        second = self.lease_json(0, "acquire", "--resource", "accounts/42")
        self.assertGreater(int(second["token"]), int(lease["token"]))

    def test_a_holder_that_enters_twice_leaves_twice(self):
        first = self.lease_json(0, "acquire", "--resource", "a", "--holder", "h")
        again = self.lease_json(0, "acquire", "--resource", "a", "--holder", "h")
        self.assertEqual(first["token"], again["token"])
        self.lease(0, "release", *claim_of(first))
        self.assertEqual(self.lease_json(0, "show", "--resource", "a")["token"], first["token"])
        self.lease(1, "acquire", "--resource", "a", "--wait", "0s")
        self.lease(0, "release", *claim_of(first))
        self.lease(1, "show", "--resource", "a")
        self.lease(1, "release", *claim_of(first))

    def test_a_waiter_takes_the_lock_when_it_is_given_back(self):
        first = self.lease_json(0, "acquire", "--resource", "a", "--ttl", "10m")
        waiter = self.start("lease", "acquire", "--source", self.url, "--resource", "a", "--wait", "30s", "--json")
        wait_until(lambda: " sub=1" in self.server.cli("CLIENT", "LIST"), what="a waiter that listens")
        self.lease(0, "release", *claim_of(first))
        self.assertEqual(waiter.wait(support.LIMIT_S), 0)
        self.assertGreater(int(json.loads(waiter.stdout.read())["token"]), int(first["token"]))

    def test_a_lock_of_a_process_that_is_gone_expires(self):
        first = self.lease_json(0, "acquire", "--resource", "a", "--ttl", "5s")
        second = self.lease_json(0, "acquire", "--resource", "a", "--wait", "30s")
        self.assertGreater(int(second["token"]), int(first["token"]))

    def test_raise_lifts_and_never_lowers(self):
        mark = 2**53 + 2
        self.lease(0, "acquire", "--resource", "other")
        self.lease(1, "raise", "--resource", "a", "--token", str(mark))
        self.lease(0, "raise", "--resource", "a", "--token", str(mark), "--far")
        self.lease(0, "raise", "--resource", "a", "--token", "5")
        self.assertEqual(self.lease_json(0, "acquire", "--resource", "a")["token"], str(mark + 1))

    def test_without_a_storage_it_says_that_nothing_was_advanced(self):
        self.assertIn("no guard was advanced", self.lease(0, "acquire", "--resource", "a").stderr)

    def test_plain_lock_of_another_library_is_held_and_kept(self):
        url = self.url_of(rest="&lock_key=locks-%25s")
        self.server.cli("SET", "locks-a", "somebody", "NX", "PX", "600000")
        self.addCleanup(self.server.cli, "DEL", "locks-a")
        self.lease(1, "acquire", "--resource", "a", "--wait", "0s", url=url)
        self.lease(1, "show", "--resource", "a", url=url)
        self.lease(1, "release", "--resource", "a", "--token", "1", "--holder", "somebody", url=url)
        self.assertEqual(self.server.cli("GET", "locks-a"), "somebody")

    def test_other_librarys_lock_of_another_shape_is_not_removed(self):
        """Redisson's: a hash, of the thread that holds it and how often."""
        url = self.url_of(rest="&lock_key=redisson-%25s")
        self.server.cli("HSET", "redisson-a", "8743c9c0-0795-4907-87fd-6c719a6b4586:1", 1)
        self.addCleanup(self.server.cli, "DEL", "redisson-a")
        for words in (("acquire", "--wait", "0s"), ("release", "--token", "1", "--holder", "h")):
            told = self.lease(3, words[0], "--resource", "a", *words[1:], url=url).stderr
            self.assertRegex(told, "'redisson-a' of .*lock_key= .*Redisson.*do not remove it")
            self.assertNotIn("rename or remove", told)


class Exec(RedisTest):
    def test_the_command_finds_its_claim_and_no_url(self):
        done = self.expect(7, "exec", "--resource", "a", "--", "sh", "-c",
                           "echo $FENCING_RESOURCE $FENCING_TOKEN $FENCING_HOLDER; env; exit 7",
                           env={"FENCEGUARD_SOURCE": self.url})
        resource, token, holder = done.stdout.splitlines()[0].split()
        self.assertEqual(resource, "a")
        self.assertGreater(int(token), 0)
        self.assertTrue(holder)
        self.assertNotIn("redis://", done.stdout)
        self.lease(1, "show", "--resource", "a")

    def test_held_by_another_holder_is_1_or_the_status_asked_for(self):
        self.lease(0, "acquire", "--resource", "a")
        way = ["exec", "--source", self.url, "--resource", "a", "--wait", "0s"]
        self.expect(1, *way, "--", "true")
        self.expect(9, *way, "--conflict-exit-code", "9", "--", "true")

    def test_a_lease_that_is_lost_ends_the_command_with_124(self):
        process = self.start("exec", "--source", self.url, "--resource", "a", "--", "sh", "-c",
                             "echo started; exec sleep 60")
        self.assertEqual(process.stdout.readline(), "started\n")
        self.server.cli("DEL", f"{self.prefix}lock:{{a}}")
        self.assertEqual(process.wait(support.LIMIT_S), 124)

    def test_a_server_that_stops_answering_ends_the_command_with_124(self):
        server = self.own_server()
        process = self.start("exec", "--source", server.url("?timeout=2s"), "--resource", "a",
                             "--", "sh", "-c", "echo started; exec sleep 60")
        self.assertEqual(process.stdout.readline(), "started\n")
        server.pause()
        self.assertEqual(process.wait(support.LIMIT_S), 124)
        server.resume()


class BadInput(RedisTest):
    def commands(self, url):
        claim = ["--resource", "a", "--token", "1", "--holder", "h"]
        yield ["lease", "acquire", "--source", url, "--resource", "a", "--wait", "0s"]
        yield ["lease", "show", "--source", url, "--resource", "a"]
        yield ["lease", "renew", "--source", url, *claim]
        yield ["lease", "release", "--source", url, *claim]
        yield ["lease", "raise", "--source", url, "--resource", "a", "--token", "1"]
        yield ["doctor", "--source", url]
        yield ["doctor", "--storage", url]

    def test_wrong_urls_are_2_with_a_sentence(self):
        host = f"127.0.0.1:{self.server.port}"
        wrong = {f"redis://:{SECRET}@{host}/0?nosuch=1": "nosuch", f"redis://:{SECRET}@{host}/zero": "database",
                 f"redis://:{SECRET}@{host}/0?timeout=5ms": "timeout", f"redis://:{SECRET}@127.0.0.1:x/": "port",
                 f"redis://:{SECRET}@{host}/0?prefix=a*": "prefix", f"rediss://:{SECRET}@{host}/0": "stunnel"}
        for (url, word), index in itertools.product(wrong.items(), range(7)):
            arguments = list(self.commands(url))[index]
            with self.subTest(arguments=arguments):
                self.assertIn(word, self.expect(2, *arguments).stderr)

    def test_an_unknown_scheme_lists_the_known_ones(self):
        done = self.expect(2, "lease", "show", "--source", "redos://host/", "--resource", "a")
        self.assertIn("redis:", done.stderr)

    def test_wrong_passwords_and_no_server_are_3(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        urls = {self.url_of(password=SECRET + "x"): "WRONGPASS",
                f"redis://127.0.0.1:{self.server.port}/0": "NOAUTH",
                f"redis://nobody:{SECRET}@127.0.0.1:{self.server.port}/0": "WRONGPASS",
                f"redis://:{SECRET}@127.0.0.1:{port}/0": "cannot be reached",
                f"redis:{self.path('socket')}": "cannot be reached"}
        for (url, words), index in itertools.product(urls.items(), range(7)):
            arguments = list(self.commands(url))[index]
            with self.subTest(arguments=arguments):
                stderr = self.expect(3, *arguments).stderr
                self.assertIn(words, stderr)
                self.assertEqual(stderr.count("\n"), 1)
        self.expect(125, "exec", "--source", self.url_of(password="wrong"), "--resource", "a", "--", "true")

    def test_acl_users_databases_and_sockets(self):
        path = self.path("socket")
        server = self.own_server({"unixsocket": path})
        server.cli("ACL", "SETUSER", "svc", "on", f">{SECRET}", "~*", "&*", "+@all")
        urls = [server.url("/3", user="svc", password=SECRET), f"redis:{path}?db=3"]
        first, second = (self.lease_json(0, "acquire", "--resource", f"r{n}", url=url) for n, url in enumerate(urls))
        self.assertEqual(int(second["token"]), int(first["token"]) + 1)
        self.assertIn("db3", server.info("keyspace"))

    def test_a_replica_is_3_and_says_so(self):
        replica = self.own_server(replica_of=self.server)
        self.server.wait_for_replicas()
        url = self.url_of(replica, password=SECRET if replica.password else "")
        done = self.lease(3, "acquire", "--resource", "a", "--wait", "0s", url=url)
        self.assertIn("master", done.stderr)


class Faults(RedisTest):
    def test_a_stopped_server_gives_no_answer_that_could_be_used(self):
        server = self.own_server()
        url = server.url("?timeout=300ms&connect_timeout=300ms")
        lease = self.lease_json(0, "acquire", "--resource", "a", "--ttl", "10m", url=server.url())
        server.pause()
        # Not even greeted, so nothing was asked: a fault, and nothing was done.
        for command in ("acquire", "renew", "release", "show"):
            arguments = claim_of(lease) if command in ("renew", "release") else ["--resource", "a"]
            self.lease(3, command, *arguments, url=url)
        server.resume()
        shown = self.lease_json(0, "show", "--resource", "a", url=server.url())
        self.assertEqual(shown["token"], lease["token"])

    def test_an_answer_that_does_not_come_is_4(self):
        with Listener(greet) as server:
            url = f"redis://127.0.0.1:{server.port}?timeout=3s"
            claim = ["--resource", "a", "--token", "1", "--holder", "h"]
            calls = [self.start("lease", command, "--source", url, *arguments) for command, arguments in (
                ("acquire", ["--resource", "a", "--wait", "0s"]), ("renew", claim), ("release", claim))]
            self.assertEqual([call.wait(support.LIMIT_S) for call in calls], [4, 4, 4])

    def test_tokens_rise_over_a_server_that_comes_back_empty(self):
        server = self.own_server()
        first = self.lease_json(0, "acquire", "--resource", "a", "--ttl", "10m", url=server.url())
        server.kill()
        server.start()
        second = self.lease_json(0, "acquire", "--resource", "a", url=server.url())
        self.assertGreater(int(second["token"]), int(first["token"]))


def greet(link):
    """What looks like a Redis to a client that greets it, and never answers a script."""
    if b"HELLO" in link.recv(65536):
        link.sendall(b"*6\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n"
                     b"$4\r\nrole\r\n$6\r\nmaster\r\n-NOPERM no CLIENT INFO\r\n-NOPERM no INFO\r\n")


if __name__ == "__main__":
    unittest.main()
