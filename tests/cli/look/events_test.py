"""/v1/events: what is told, what is resumed and what is missing; clients that are slow, dead or too many; the end."""

import contextlib
import os
import signal
import time
import unittest

import api_description
import jsonschema
import support
import upstream_server
from event_reader import EventReader
from waiting import wait_until

HOLDER = "holder-that-nobody-is-told"
TOKENS = "lease aaaaaaaaaaaaaaaaaaaa\nadmin bbbbbbbbbbbbbbbbbbbb\n"
EVENT = {"$ref": "#/components/schemas/Event"}


def claim(token, holder=HOLDER):
    return {"Fencing-Token": token, "Fencing-Holder": holder}


class EventsTest(support.BinaryTest):
    def start(self, *arguments):
        return self.serve("--storage", "sqlite:guard.db", "--init", *arguments)

    def read(self, server, count, **options):
        with EventReader(server, **options) as reader:
            self.assertEqual(reader.head()[0], 200)
            found = reader.events(count)
        for kind, data in found:
            if kind != "gap":
                resolver = jsonschema.RefResolver("", api_description.DOCUMENT)
                jsonschema.Draft202012Validator(EVENT, resolver=resolver).validate(data)
                self.assertEqual(kind, data["kind"])
        return found, reader.last

    def refuse(self, server, count, resource="a"):
        link = support.connection(server.data)
        for _ in range(count):
            link.request("PUT", f"/{resource}", body="1")
            answer = link.getresponse()
            answer.read()
            self.assertEqual(answer.status, 428)
        link.close()


class Told(EventsTest):
    def test_the_head_says_what_it_is(self):
        server = self.start()
        with EventReader(server) as reader:
            status, fields = reader.head()
        self.assertEqual((status, fields["content-type"], fields["cache-control"]), (200, "text/event-stream", "no-store"))
        self.assertEqual(server.call("HEAD", "/v1/events").status, 200)

    def test_an_incident(self):
        """A takes the lock, B takes over, A's write is refused, B is revoked; and three writes that carry nothing good."""
        server = self.start("--max-jump", "1000")
        old = server.lease("accounts/42", holder=HOLDER).json["token"]
        server.call("DELETE", "/v1/leases/accounts/42", claim(old))
        new = server.lease("accounts/42", holder=HOLDER + "2").json["token"]
        self.assertEqual(server.request("PUT", "/accounts/42", claim(old), "1").status, 412)
        self.assertEqual(server.request("PUT", "/accounts/42", claim(new), "1").status, 409)
        self.assertEqual(server.request("PUT", "/accounts/42", claim(new, HOLDER + "2"), "1").status, 201)
        self.assertEqual(server.call("POST", "/v1/fences/accounts/42/revoke").status, 200)
        self.assertEqual(server.request("PUT", "/accounts/42", body="1").status, 428)
        self.assertEqual(server.request("PUT", "/accounts/42", claim("9000000000000000000"), "1").status, 422)
        found, _ = self.read(server, 7)
        self.assertEqual([(kind, data.get("verdict"), data.get("token")) for kind, data in found],
                         [("takeover", "admitted", old), ("takeover", "admitted", new), ("refusal", "stale", old),
                          ("refusal", "conflict", new), ("revoke", None, new), ("refusal", "missing", None),
                          ("refusal", "implausible", "9000000000000000000")])
        self.assertTrue(all(data["resource"] == "accounts/42" and data["client"] == "127.0.0.1" for _, data in found))
        self.assertNotIn(HOLDER, str(found))

    def test_writes_under_the_token_that_stands_are_no_events(self):
        server = self.start()
        token = server.lease("a", holder=HOLDER).json["token"]
        for number in range(3):
            server.request("PUT", "/a", {**claim(token), "Fencing-Sequence": str(number)}, "1")
            server.request("GET", "/a", claim(token))
        self.assertEqual(server.request("PUT", "/a", {**claim(str(int(token) + 1)), "Fencing-Sequence": "0"}, "1").status,
                         204)
        found, _ = self.read(server, 2)
        self.assertEqual([kind for kind, _ in found], ["takeover", "takeover"])

    def test_a_stream_goes_on(self):
        server = self.start()
        with EventReader(server) as reader:
            reader.head()
            for number in range(3):
                self.refuse(server, 1, f"r{number}")
                self.assertEqual(reader.events(1)[0][1]["resource"], f"r{number}")

    def test_quarantines_and_take_overs_in_front_of_a_storage(self):
        upstream = upstream_server.Server()
        self.addCleanup(upstream.remove)
        server = self.serve("--storage", upstream.url(), "--state", "sqlite:state.db", "--init", "--settled", "--settle",
                            "300ms")
        token = server.lease("a", holder="h").json["token"]
        self.assertEqual(server.request("PUT", "/a", {**claim(token, "h"), "Upstream-Do": "apply-reset"}, "1").status, 502)
        found, _ = self.read(server, 4)
        self.assertEqual(sorted(kind for kind, _ in found), ["quarantine", "quarantine_end", "refusal", "takeover"])
        self.assertEqual(found[-1][0], "quarantine_end")
        wait_until(lambda: server.request("PUT", "/a", claim(str(int(token) + 1), "x"), "1").status < 300)
        self.assertIn(("takeover", str(int(token) + 1)), [(kind, data.get("token")) for kind, data in self.read(server, 5)[0]])

    def test_an_unsigned_claim(self):
        keys = self.write_private("keys", "k1 " + "A" * 43 + "\n")
        server = self.start("--claim-key", keys, "--require-signature")
        self.assertEqual(server.request("PUT", "/a", claim("7"), "1").status, 401)
        found, _ = self.read(server, 1)
        self.assertEqual((found[0][1]["verdict"], found[0][1]["token"]), ("unsigned", "7"))


class Resumed(EventsTest):
    def test_behind_the_last_event_that_was_seen(self):
        server = self.start()
        self.refuse(server, 3)
        _, last = self.read(server, 2)
        self.refuse(server, 1, "b")
        found, _ = self.read(server, 2, last=last)
        self.assertEqual([data["resource"] for _, data in found], ["a", "b"])

    def test_what_is_forgotten_is_told_as_a_gap(self):
        server = self.start()
        self.refuse(server, 1)
        _, last = self.read(server, 1)
        self.refuse(server, 1_005)
        found, _ = self.read(server, 1_001, last=last)
        self.assertEqual(found[0], ("gap", {"missed": 5}))
        self.assertEqual(len(found), 1_001)

    def test_without_an_id_it_begins_with_the_last_thousand(self):
        server = self.start()
        self.refuse(server, 1_005)
        found, _ = self.read(server, 1_000)
        self.assertNotIn("gap", {kind for kind, _ in found})

    def test_another_run_of_the_guard_is_a_gap(self):
        server = self.start()
        self.refuse(server, 1)
        _, last = self.read(server, 1)
        server.stop()
        server = self.start()
        self.refuse(server, 1, "b")
        found, _ = self.read(server, 2, last=last)
        self.assertEqual((found[0][0], found[1][1]["resource"]), ("gap", "b"))
        for strange in ("x", "-", "1-1-1", "9" * 400):
            self.assertEqual(self.read(server, 2, last=strange)[0][0][0], "gap", strange)


class Clients(EventsTest):
    def test_one_that_does_not_read_holds_nothing_back(self):
        server = self.start()
        with EventReader(server, receive_buffer=2_048):
            before = self.rss(server)
            for _ in range(5):
                self.refuse(server, 2_000, "r" * 500)
            self.assertLess(self.rss(server) - before, 16 * 1024)
            found, _ = self.read(server, 3)
            self.assertEqual(len(found), 3)

    @staticmethod
    def rss(server):
        with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
            return int(next(line for line in status if line.startswith("VmRSS:")).split()[1])

    def test_one_that_does_not_read_is_cut(self):
        server = self.start()
        without = self.descriptors(server)
        with EventReader(server, receive_buffer=2_048):
            wait_until(lambda: self.descriptors(server) > without, what="the connection")

            def is_cut():
                # More and more, because the kernel takes some megabytes for a reader that takes nothing.
                self.refuse(server, 500, "r" * 500)
                time.sleep(0.3)  # the writer's connection goes as well
                return self.descriptors(server) == without

            wait_until(is_cut, limit_s=240, what="the cut")

    @staticmethod
    def descriptors(server):
        count = 0
        for name in os.listdir(f"/proc/{server.process.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                count += os.readlink(f"/proc/{server.process.pid}/fd/{name}").startswith("socket:")
        return count

    def test_a_client_that_goes_away_makes_room(self):
        server = self.start()
        readers = [EventReader(server) for _ in range(32)]
        for reader in readers:
            self.assertEqual(reader.head()[0], 200)
        refused = server.call("GET", "/v1/events")
        self.assertEqual((refused.status, refused.headers["retry-after"]), (503, "5"))
        for reader in readers:
            reader.__exit__()
        self.read_when_there_is_room(server)

    def read_when_there_is_room(self, server):
        def is_open():
            with EventReader(server) as reader:
                return reader.head()[0] == 200
        wait_until(is_open)

    def test_a_comment_tells_that_the_guard_is_there(self):
        server = self.start()
        with EventReader(server) as reader:
            reader.head()
            self.assertEqual(next(reader.blocks()), ("", ": here"))

    def test_a_withdrawn_token_ends_the_stream(self):
        tokens = self.write_private("tokens", TOKENS)
        server = self.start("--control-token-file", tokens)
        with EventReader(server, headers={"Authorization": "Bearer aaaaaaaaaaaaaaaaaaaa"}) as reader:
            self.assertEqual(reader.head()[0], 200)
            self.write_private("tokens", TOKENS.partition("\n")[2])
            server.process.send_signal(signal.SIGHUP)
            self.assertEqual(list(reader.blocks()), [])


class End(EventsTest):
    def test_a_stop_ends_the_streams(self):
        server = self.start("--drain-timeout", "60s")
        with EventReader(server) as reader:
            reader.head()
            begun = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - begun, 30)
            self.assertEqual(list(reader.blocks()), [])

    def test_a_stop_does_not_wait_for_a_client_that_does_not_read(self):
        server = self.start("--drain-timeout", "200ms")
        with EventReader(server, receive_buffer=2_048):
            self.refuse(server, 1_000, "r" * 500)
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
