"""One server is what clients see of a Redis Cluster behind the sidecar: it finds the slots, follows where they are moved
to, and names no node."""

import contextlib
import itertools
import re
import threading
import time
import unittest

import redis_server
import support
from redis_server import Link, RedisError
from resp_case import Client, Failure, wait_until

A, B = "a", "b"  # of different nodes


def slot_of(node, key):
    return node.cli("CLUSTER", "KEYSLOT", key)


class RespCluster(support.BinaryTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = redis_server.Cluster()
        cls.addClassCleanup(cls.cluster.remove)

    def setUp(self):
        super().setUp()
        self.guard = support.Server(self.folder, ["--storage", self.cluster.url("?prefix=" + self._testMethodName[-40:] + ":"),
                                                  "--threads", "1"])
        self.addCleanup(self.guard.kill)

    def link(self):
        link = Link(int(self.guard.data.rsplit(":", 1)[1]))
        self.addCleanup(link.close)
        return link

    def refused(self, link, *words):
        with self.assertRaises(RedisError) as caught:
            link.call(*words)
        return str(caught.exception)

    def owner(self, slot):
        for node in self.cluster.nodes:
            me = node.cli("CLUSTER", "MYID")
            for first, last, where, *_ in node.cli("CLUSTER", "SLOTS"):
                if first <= slot <= last and where[2] == me:
                    return node
        raise AssertionError(f"nobody has the slot {slot}")

    def begin_move(self, slot, target=None):
        """To this node, or to the next: (from, to)."""
        source = self.owner(slot)
        target = target or self.cluster.nodes[(self.cluster.nodes.index(source) + 1) % len(self.cluster.nodes)]
        target.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", source.cli("CLUSTER", "MYID"))
        source.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", target.cli("CLUSTER", "MYID"))
        return source, target

    def move_keys(self, slot, source, target):
        while keys := source.cli("CLUSTER", "GETKEYSINSLOT", slot, 100):
            for key in keys:
                source.cli("MIGRATE", "127.0.0.1", target.port, key, 0, 20_000)

    def end_move(self, slot, source, target):
        name = target.cli("CLUSTER", "MYID")
        for node in [target, source] + [node for node in self.cluster.nodes if node not in (source, target)]:
            node.cli("CLUSTER", "SETSLOT", slot, "NODE", name)
        # An owner that took its epoch before it heard of the last one would be a second owner.
        wait_until(lambda: len(self.epochs()) == 1, what="an epoch on which all nodes agree")

    def epochs(self):
        return {re.search(r"cluster_current_epoch:\d+", node.cli("CLUSTER", "INFO"))[0] for node in self.cluster.nodes}

    def move(self, slot, target=None):
        source, target = self.begin_move(slot, target)
        self.move_keys(slot, source, target)
        self.end_move(slot, source, target)

    def client(self):
        client = Client(self.guard.data)
        self.addCleanup(client.close)
        return client

    def claimed(self, *resources):
        client = self.client()
        for resource in resources:
            self.assertEqual(client.call("FENCE", resource, 5, "h"), "OK")
        return client

    def names_of(self, node, count):
        """Resources whose slots a node has; each of another slot, and none of slot 0."""
        found = {}
        for number in itertools.count():
            slot = slot_of(node, f"n{number}")
            if slot > 0 and slot not in found and self.owner(slot) is node:
                found[slot] = f"n{number}"
            if len(found) == count:
                return list(found.values())

    def two_nodes(self):
        """That of slot 0, and another one, to which the sidecar is not connected from the beginning."""
        first = self.owner(0)
        return first, next(node for node in self.cluster.nodes[1:] if node is not first)

    @contextlib.contextmanager
    def stopped(self, node):
        """A node that answers later than the others."""
        node.pause()
        try:
            yield
        finally:
            node.resume()

    def test_keys_of_all_nodes_are_written_under_their_claims(self):
        link = self.link()
        for number in range(20):
            self.assertEqual(link.call("FENCE", f"r{number}", 5, "h"), "OK")
            self.assertEqual(link.call("SET", f"{{r{number}}}:k", number), "OK")
            self.assertEqual(link.call("GET", f"{{r{number}}}:k"), str(number))
        self.assertGreater(len({slot_of(self.cluster.nodes[0], f"r{n}") % 3 for n in range(20)}), 1)
        other = self.link()
        self.assertEqual(other.call("FENCE", "r3", 6, "h6"), "OK")
        self.assertRegex(self.refused(link, "SET", "{r3}:k", "late"), "^STALE token=5 highest=6 ")
        self.assertEqual(link.call("GET", "{r3}:k"), "3")

    def test_replies_of_several_nodes_keep_the_order_of_requests(self):
        link = self.link()
        for name in "abcdefgh":
            link.call("FENCE", name, 5, "h")
        words = [("SET", name, name + str(n)) for n in range(20) for name in "abcdefgh"]
        words += [("GET", name) for name in "abcdefgh"]
        text = b"".join(b"*%d\r\n" % len(w) + b"".join(b"$%d\r\n%s\r\n" % (len(x), x.encode()) for x in w) for w in words)
        link._socket.sendall(text)
        replies = [link._read() for _ in words]
        self.assertEqual(replies, ["OK"] * 160 + [name + "19" for name in "abcdefgh"])

    def test_one_command_has_keys_of_one_slot(self):
        link = self.link()
        for name in (A, B):
            link.call("FENCE", name, 5, "h")
        self.assertRegex(self.refused(link, "MSET", A, 1, B, 2), "^CROSSSLOT ")
        self.assertRegex(self.refused(link, "MGET", A, B), "^CROSSSLOT ")
        link.call("MULTI")
        link.call("SET", A, 1)
        self.assertRegex(self.refused(link, "SET", B, 1), "^CROSSSLOT ")
        self.assertRegex(self.refused(link, "EXEC"), "^EXECABORT ")
        link.call("WATCH", A)
        self.assertRegex(self.refused(link, "WATCH", B), "^CROSSSLOT ")
        link.call("MULTI")
        link.call("SET", B, 1)
        self.assertRegex(self.refused(link, "EXEC"), "^CROSSSLOT ")

    def test_no_node_is_named_and_none_answers_for_all(self):
        link = self.link()
        for words in (("CLUSTER", "SLOTS"), ("CLUSTER", "NODES"), ("READONLY",), ("ASKING",)):
            self.assertRegex(self.refused(link, *words), "^ERR fenceguard: ")
        for words in (("SCAN", 0), ("KEYS", "*"), ("DBSIZE",), ("RANDOMKEY",)):
            self.assertRegex(self.refused(link, *words), "names no key")
        self.assertRegex(self.refused(link, "SELECT", 1), "^ERR SELECT is not allowed in cluster mode")

    def test_a_slot_that_was_moved_is_followed(self):
        link, resource = self.link(), "moved"
        link.call("FENCE", resource, 5, "h")
        link.call("RPUSH", resource, "5 0")
        slot = slot_of(self.cluster.nodes[0], resource)
        source, target = self.begin_move(slot)
        self.move_keys(slot, source, target)
        self.end_move(slot, source, target)
        self.assertEqual(link.call("RPUSH", resource, "5 1"), 2)
        self.assertEqual(link.call("LRANGE", resource, 0, -1), ["5 0", "5 1"])
        link.call("MULTI")
        link.call("RPUSH", resource, "5 2")
        self.assertEqual(link.call("EXEC"), [3])
        other = self.link()
        other.call("FENCE", resource, 6, "h6")
        self.assertRegex(self.refused(link, "RPUSH", resource, "late"), "^STALE ")

    def test_a_transaction_finds_a_slot_that_was_moved_before_it(self):
        link, resource = self.link(), "moved for a transaction"
        link.call("FENCE", resource, 5, "h")
        slot = slot_of(self.cluster.nodes[0], resource)
        source, target = self.begin_move(slot)
        self.move_keys(slot, source, target)
        self.end_move(slot, source, target)
        link.call("MULTI")
        link.call("RPUSH", resource, "1")
        link.call("RPUSH", resource, "2")
        self.assertEqual(link.call("EXEC"), [1, 2])

    def test_where_a_slot_is_moved_to_goes_nothing_of_another_slot(self):
        """A request finds its key neither here nor there yet, and the one behind it is done before it could be sent again:
        what comes next goes where it belongs, and not where the first was to be asked for."""
        node, target = self.two_nodes()
        moving, one, other = self.names_of(node, 3)
        client = self.claimed(moving, one, other)
        self.assertEqual(client.calls(("SET", f"{{{moving}}}there", 1), ("SET", one, 0), ("SET", other, 5)), ["OK"] * 3)
        slot = slot_of(node, moving)
        self.begin_move(slot, target)
        try:
            missing, there = client.calls(("GET", f"{{{moving}}}missing"), ("GET", f"{{{moving}}}there"))
            self.assertEqual(there, "1")
            self.assertIsInstance(missing, Failure)
            self.assertTrue(missing.startswith("UNAVAILABLE "), missing)
            with self.stopped(target):
                self.assertEqual(client.calls(("SET", one, 100), ("INCR", other)), ["OK", 6])
        finally:
            for each in (node, target):
                each.cli("CLUSTER", "SETSLOT", slot, "STABLE")

    def test_keyless_command_does_not_overtake_one_of_a_moved_slot(self):
        node, target = self.two_nodes()
        (moving,), (there,) = self.names_of(node, 1), self.names_of(target, 1)
        client, other, third = self.claimed(moving), self.client(), self.client()
        self.assertEqual(client.call("SET", moving, 100), "OK")
        self.assertEqual([each.call("GET", moving) for each in (other, third)], ["100", "100"])
        self.move(slot_of(node, moving), target)
        with self.stopped(node):
            client.send(("INCR", moving))
            # By this the sidecar connects to the other node, and learns where the slots are now.
            for _ in range(2):
                self.assertIsNone(other.call("GET", f"{{{there}}}nothing"))
            client.send(("PUBLISH", "nobody", "x"), ("PING",))
            # It shares the first one's connection: what was sent there before is answered when this is.
            self.assertIsNone(third.call("GET", f"{{{there}}}nothing"))
        self.assertEqual([client.read() for _ in range(3)], [101, 0, "PONG"])
        self.assertEqual(self.client().call("GET", moving), "101")

    def test_servers_keep_their_order_when_a_slot_is_moved(self):
        """The first of them in the list of slots becomes the second."""
        node, target = self.two_nodes()
        (one,), (another,) = self.names_of(node, 1), self.names_of(target, 1)
        client, other, third = self.claimed(one, another), self.client(), self.client()
        self.assertEqual(client.calls(("SET", another, 5000), ("SET", one, 100)), ["OK", "OK"])
        self.assertEqual([each.call("GET", one) for each in (other, third)], ["100", "100"])
        self.move(0, target)
        with self.stopped(node):
            client.send(("INCR", one))
            for _ in range(2):
                self.assertIsNone(other.call("GET", f"{{{another}}}nothing"))
            client.send(("INCR", another))
            self.assertIsNone(third.call("GET", f"{{{another}}}nothing"))
        self.assertEqual([client.read(), client.read()], [101, 5001])

    def test_replies_match_while_slots_move_to_slower_nodes(self):
        """Pipelines over several nodes, one of which stops again and again; what each command answers names its key."""
        names = [name for node in self.cluster.nodes for name in self.names_of(node, 2)]
        stop, mistakes, answers = threading.Event(), [], [0, 0]

        def write(holder):
            client = Client(self.guard.data)
            mine = [f"{{{name}}}{holder}" for name in names]
            for count in itertools.count():
                if stop.is_set() or mistakes:
                    return client.close()
                keys = [mine[(count * 7 + i * 5) % len(mine)] for i in range(8)]
                words = [word for key in keys for word in (("SET", key, f"{key} {count}", "GET"), ("PUBLISH", "nobody", key))]
                for word, answer in zip(words, client.calls(*words)):
                    answers[isinstance(answer, Failure)] += 1
                    is_right = (answer.startswith(("UNAVAILABLE ", "TRYAGAIN ", "UNKNOWN ")) if isinstance(answer, Failure)
                                else answer == 0 if word[0] == "PUBLISH"
                                else answer is None or str(answer).startswith(word[1] + " "))
                    if not is_right:
                        mistakes.append((word, answer))

        def change_speed():
            for node in itertools.cycle(self.cluster.nodes):
                if stop.is_set():
                    return
                with self.stopped(node):
                    time.sleep(0.03)
                time.sleep(0.02)

        self.guard.kill()
        self.guard = support.Server(self.folder, ["--storage", self.cluster.url(), "--unfenced", "allow", "--threads", "1"])
        self.addCleanup(self.guard.kill)
        threads = [threading.Thread(target=write, args=(holder,)) for holder in "abc"]
        threads.append(threading.Thread(target=change_speed))
        for thread in threads:
            thread.start()
        try:
            for name in names * 2:
                enough = answers[False] + 16
                self.move(slot_of(self.cluster.nodes[0], name))
                wait_until(lambda: answers[False] >= enough or mistakes, what="answers while slots move")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(mistakes[:5], [])
        self.assertGreater(answers[False], 100)
        print(f"{answers[False]} answers, {answers[True]} failures", flush=True)

    def test_slot_migration_loses_nothing_and_admits_no_stale_write(self):
        """A writer and those that take over from it go on while the slot of their list goes round the nodes."""
        resource, tokens, told = "moving", iter(range(1, 10_000)), {}
        stop, lock, mistakes = threading.Event(), threading.Lock(), []

        def write():
            link = self.link()
            while not stop.is_set():
                with lock:
                    token = next(tokens)
                try:
                    link.call("FENCE", resource, token, f"h{token}")
                except RedisError:
                    continue
                for number in range(5):
                    try:
                        link.call("RPUSH", resource, f"{token} {number}")
                        told[token, number] = True
                    except RedisError as error:
                        told[token, number] = None if str(error).startswith("UNKNOWN") else False
                        if not str(error).startswith(("STALE", "UNAVAILABLE", "TRYAGAIN", "UNKNOWN")):
                            mistakes.append(str(error))

        threads = [threading.Thread(target=write) for _ in range(3)]
        for thread in threads:
            thread.start()
        slot = slot_of(self.cluster.nodes[0], resource)
        try:
            for _ in range(6):
                wait_until(lambda: any(list(told.values())) or mistakes, what="a write")
                source, target = self.begin_move(slot)
                self.move_keys(slot, source, target)
                self.end_move(slot, source, target)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        written = [tuple(map(int, line.split())) for line in self.owner(slot).cli("LRANGE", resource, 0, -1)]
        self.assertEqual(mistakes, [])
        self.assertEqual([token for token, _ in written], sorted(token for token, _ in written))
        self.assertEqual(len(written), len(set(written)))
        for write, outcome in told.items():
            if outcome is not None:
                self.assertEqual(write in set(written), outcome, write)
        self.assertTrue(any(told.values()))


if __name__ == "__main__":
    unittest.main()
