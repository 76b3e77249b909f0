"""'fenceguard lease' against a source, a storage and a running guard."""

import contextlib
import os
import re
import time
import unittest

import support
from fault_proxy import FaultProxy, Listener
from server_process import Nowhere
from waiting import wait_until

SOURCE = ["--source", "sqlite:leases.db"]


def claim(answer):
    return ["--resource", answer["resource"], "--token", answer["token"], "--holder", answer["holder"]]


class OverASource(support.BinaryTest):
    WAY = SOURCE
    FAR = ["--far"]

    def setUp(self):
        super().setUp()
        self.make_file("leases.db")

    def test_a_lease_goes_through_its_life(self):
        first = self.expect_json(0, "lease", "acquire", *self.WAY, "--resource", "accounts/42")
        self.assertIsInstance(first["token"], str)
        self.assertEqual((first["resource"], first["ttl_ms"]), ("accounts/42", 10_000))
        shown = self.expect_json(0, "lease", "show", *self.WAY, "--resource", "accounts/42")
        self.assertEqual(shown["token"], first["token"])
        self.assertNotIn("holder", shown)
        self.expect(0, "lease", "renew", *self.WAY, *claim(first), "--ttl", "20m")
        shown = self.expect_json(0, "lease", "show", *self.WAY, "--resource", "accounts/42")
        self.assertGreater(shown["remaining_ms"], 10_000)
        self.expect(0, "lease", "release", *self.WAY, *claim(first))
        second = self.expect_json(0, "lease", "acquire", *self.WAY, "--resource", "accounts/42")
        self.assertGreater(int(second["token"]), int(first["token"]))

    def test_a_lease_that_is_held_is_1(self):
        self.expect(0, "lease", "acquire", *self.WAY, "--resource", "a", "--ttl", "24m")
        done = self.expect(1, "lease", "acquire", *self.WAY, "--resource", "a", "--wait", "100ms", "--json")
        self.assertIn('"held"', done.stdout)
        self.assertIn("held", done.stderr)

    def test_lease_lasts_equally_long_in_every_time_namespace(self):
        root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        tomorrow = ["unshare", *root, "--time", "--monotonic", "86400", "--boottime", "86400", "--fork"]
        tried = support.subprocess.run([*tomorrow, "true"], capture_output=True, text=True, check=False)
        if tried.returncode == 1:
            self.skipTest(f"this machine does not allow a time namespace: {tried.stderr.strip()}")

        def there(status, *arguments):
            done = support.subprocess.run([*tomorrow, support.BINARY, *arguments, "--json"], cwd=self.folder,
                                          env=support.environment(), capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, status, done.stderr)
            return support.json.loads(done.stdout)
        for resource, granting, other in (("here", self.expect_json, there), ("there", there, self.expect_json)):
            lease = granting(0, "lease", "acquire", *self.WAY, "--resource", resource, "--ttl", "24m")
            held = other(1, "lease", "acquire", *self.WAY, "--resource", resource, "--wait", "0s")
            self.assertEqual(held["verdict"], "held")
            shown = other(0, "lease", "show", *self.WAY, "--resource", resource)
            self.assertEqual(shown["token"], lease["token"])
            self.assertLessEqual(shown["remaining_ms"], lease["ttl_ms"])
            self.assertIn(resource, [one["resource"] for one in other(0, "lease", "list", *self.WAY)["leases"]])

    def test_waiting_takes_the_lock_when_it_is_free(self):
        first = self.expect_json(0, "lease", "acquire", *self.WAY, "--resource", "a", "--ttl", "24m")
        waiter = self.start("lease", "acquire", *self.WAY, "--resource", "a", "--wait", "30s", "--json")
        self.assertIsNone(waiter.poll())
        self.expect(0, "lease", "release", *self.WAY, *claim(first))
        self.assertEqual(waiter.wait(support.LIMIT_S), 0)

    def test_the_same_holder_gets_the_same_token(self):
        mine = ["--resource", "a", "--holder", "me", "--ttl", "24m"]
        first = self.expect_json(0, "lease", "acquire", *self.WAY, *mine)
        again = self.expect_json(0, "lease", "acquire", *self.WAY, *mine)
        self.assertEqual(first["token"], again["token"])
        self.expect(1, "lease", "acquire", *self.WAY, "--resource", "a", "--holder", "you", "--wait", "0s")

    def test_a_lost_lease_is_1(self):
        lease = self.expect_json(0, "lease", "acquire", *self.WAY, "--resource", "a", "--ttl", "24m")
        other = dict(lease, holder="somebody-else")
        self.assertIn("lost", self.expect(1, "lease", "renew", *self.WAY, *claim(other)).stderr)
        self.assertIn("not held", self.expect(1, "lease", "release", *self.WAY, *claim(other)).stderr)
        self.expect(0, "lease", "release", *self.WAY, *claim(lease))
        self.expect(1, "lease", "renew", *self.WAY, *claim(lease))
        self.expect(1, "lease", "release", *self.WAY, *claim(lease))
        self.assertIn("not found", self.expect(1, "lease", "show", *self.WAY, "--resource", "a").stderr)

    def test_raise_lifts_every_later_token(self):
        self.expect(0, "lease", "raise", *self.WAY, "--resource", "a", "--token", "1000")
        lease = self.expect_json(0, "lease", "acquire", *self.WAY, "--resource", "a")
        self.assertGreater(int(lease["token"]), 1000)

    def test_tokens_beyond_2_to_53_are_exact(self):
        mark = 2**53 + 2
        self.expect(0, "lease", "raise", *self.WAY, "--resource", "a", "--token", str(mark), *self.FAR)
        lease = self.expect_json(0, "lease", "acquire", *self.WAY, "--resource", "a")
        self.assertEqual(lease["token"], str(mark + 1))

    def test_people_get_lines(self):
        lines = self.expect(0, "lease", "acquire", *self.WAY, "--resource", "a").stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["resource", "token", "holder", "ttl"])
        self.assertEqual(lines[3], "ttl 10000ms")


class OverAServer(OverASource):
    def setUp(self):
        super().setUp()
        self.server = self.serve("--max-jump", "0")
        self.WAY = ["--server", self.server.url]
        self.FAR = []

    def test_tokens_beyond_2_to_53_are_exact(self):
        # The server raises its source only to the neighbourhood of what its guard has seen.
        mark = 2**53 + 2
        self.expect(1, "lease", "raise", *self.WAY, "--resource", "a", "--token", str(mark))
        self.expect(0, "fence", "advance", *self.WAY, "--resource", "other", "--token", str(mark))
        super().test_tokens_beyond_2_to_53_are_exact()

    def test_a_queue_is_looked_after_by_the_clock_that_leases_end_by(self):
        # No machine is suspended here; but the kernel shows by which clock it is to wake the server.
        self.expect(0, "lease", "acquire", *self.WAY, "--resource", "a", "--ttl", "24m")
        self.start("lease", "acquire", *self.WAY, "--resource", "a", "--wait", "60s")

        def boot_timers():
            for entry in os.scandir(f"/proc/{self.server.process.pid}/fdinfo"):
                with contextlib.suppress(OSError), open(entry.path, encoding="ascii") as file:
                    shown = dict(line.split(":", 1) for line in file if ":" in line)
                    if shown.get("clockid", "").strip() == str(time.CLOCK_BOOTTIME) and "(0, 0)" not in shown["it_value"]:
                        yield entry.name
        wait_until(lambda: list(boot_timers()), what="a timer by the clock since boot")

    def test_the_guard_was_advanced_before_the_token_is_printed(self):
        lease = self.expect_json(0, "lease", "acquire", *self.WAY, "--resource", "a")
        self.assertEqual(self.server.call("GET", "/v1/fences/a").json["token"], lease["token"])


class WhatIsLeft(support.BinaryTest):
    """expires_in_ms of the control side: never more than the source allows, and less as time goes by."""

    def test_every_answer_about_a_lease_says_how_long_it_lives(self):
        server = self.serve()
        granted = server.lease("a", ttl_ms=60_000, holder="h").json
        self.assertTrue(0 < granted["expires_in_ms"] <= 60_000, granted)
        wait_until(lambda: server.call("GET", "/v1/leases/a").json["expires_in_ms"] < granted["expires_in_ms"])
        shown = server.call("GET", "/v1/leases/a").json
        self.assertTrue(0 < shown["expires_in_ms"] < 60_000, shown)
        fields = {"Fencing-Token": granted["token"], "Fencing-Holder": "h", "Content-Type": "application/json"}
        renewed = server.call("PUT", "/v1/leases/a", fields, {"ttl_ms": 600_000}).json
        self.assertTrue(60_000 < renewed["expires_in_ms"] <= 600_000, renewed)
        again = server.lease("a", ttl_ms=60_000, holder="h")
        self.assertEqual((again.status, again.json["token"]), (200, granted["token"]))
        # Each is counted from before the source was asked, so a later one may say more than an earlier one.
        self.assertTrue(60_000 < again.json["expires_in_ms"] <= 600_000, again.json)


class WhatIsCreated(support.BinaryTest):
    """A lease file that everybody makes for himself, in the folder where he stands, would be a lock for nobody."""

    ELSEWHERE = ["sh", "-c", 'mkdir -p elsewhere && cd elsewhere && exec "$@"', "sh"]

    def elsewhere(self, status, *arguments):
        """Runs fenceguard from another working directory."""
        done = support.subprocess.run([*self.ELSEWHERE, support.BINARY, *arguments], cwd=self.folder,
                                      env=support.environment(), stdin=support.subprocess.DEVNULL,
                                      capture_output=True, text=True, timeout=support.LIMIT_S)
        self.assertEqual(done.returncode, status, f"{arguments}: {done.stdout!r} {done.stderr!r}")
        return done

    def expect_sentence(self, done, file):
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for words in (self.path(f"elsewhere/{file}"), "does not exist", "--init", "fenceguard serve"):
            self.assertIn(words, done.stderr)
        self.assertEqual(os.listdir(self.path("elsewhere")), [])

    def test_a_second_working_directory_is_no_second_lock(self):
        self.make_file("leases.db")
        self.expect(0, "lease", "acquire", *SOURCE, "--resource", "a", "--ttl", "24m")
        self.expect_sentence(self.elsewhere(3, "lease", "acquire", *SOURCE, "--resource", "a"), "leases.db")
        self.expect_sentence(self.elsewhere(125, "exec", *SOURCE, "--resource", "a", "--", "touch", "ran"),
                             "leases.db")
        way = ["--source", f"sqlite:{self.path('leases.db')}", "--resource", "a", "--wait", "0s"]
        self.assertIn("held", self.elsewhere(1, "lease", "acquire", *way).stderr)

    def test_no_other_command_creates_a_file_either(self):
        for arguments in [["lease", "show", "--resource", "a"], ["lease", "raise", "--resource", "a", "--token", "1"],
                          ["lease", "renew", "--resource", "a", "--token", "1", "--holder", "h"],
                          ["lease", "release", "--resource", "a", "--token", "1", "--holder", "h"], ["doctor"]]:
            self.expect_sentence(self.elsewhere(3, *arguments, *SOURCE), "leases.db")
        for arguments in [["fence", "show", "--resource", "a"], ["fence", "list"], ["fence", "compact"],
                          ["fence", "advance", "--resource", "a", "--token", "1"],
                          ["fence", "revoke", "--resource", "a"], ["doctor"],
                          ["fence", "rebase", "--resource", "a", "--to", "1"],
                          ["lease", "acquire", "--resource", "a"]]:
            self.expect_sentence(self.elsewhere(3, *arguments, "--storage", "sqlite:data.db"), "data.db")
        self.expect_sentence(self.elsewhere(3, "fence", "init", "--storage", "sqlite:data.db", *SOURCE), "leases.db")
        self.expect_sentence(self.elsewhere(3, "fence", "advance", "--storage", "http://127.0.0.1:9", "--state",
                                            "sqlite:state.db", "--resource", "a", "--token", "1"), "state.db")

    def test_init_creates(self):
        for command in (["exec"], ["lease", "acquire"]):
            file = f"sqlite:{command[0]}.db"
            arguments = [*command, "--source", file, "--resource", "a", "--init"]
            self.expect(0, *arguments, *(["--", "true"] if command == ["exec"] else []))
            self.expect(1, "lease", "renew", "--source", file, "--resource", "a", "--token", "9", "--holder", "h")
        self.expect(0, "lease", "acquire", "--storage", "sqlite:data.db", "--resource", "a", "--init")
        together = ["--storage", "sqlite:both.db", "--source", "sqlite:both.db"]
        self.expect(0, "fence", "init", *together)
        self.expect(0, "lease", "acquire", *together, "--resource", "a")


class WhatWasAdvanced(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.make_file("leases.db")

    def test_without_storage_and_server_it_says_that_nothing_was(self):
        done = self.expect(0, "lease", "acquire", *SOURCE, "--resource", "a")
        self.assertIn("no guard was advanced", done.stderr)

    def test_with_a_storage_its_guard_was(self):
        self.make_file("data.db")
        done = self.expect(0, "lease", "acquire", "--storage", "sqlite:data.db", "--resource", "a")
        self.assertEqual(done.stderr, "")
        shown = self.expect_json(0, "fence", "show", "--storage", "sqlite:data.db", "--resource", "a")
        self.assertIn(f"token {shown['token']}\n", done.stdout)

    def test_storage_without_state_is_unavailable_and_lock_released(self):
        parts = ["--storage", "sqlite:data.db", *SOURCE]
        done = self.expect(3, "lease", "acquire", *parts, "--resource", "a", "--init")
        self.assertIn("fence init", done.stderr)
        self.expect(1, "lease", "show", *SOURCE, "--resource", "a")

    def test_repeated_acquire_is_unknown_if_the_guard_is_unavailable(self):
        # The answer of the first ask may have been lost: the holder is not told that nothing happened.
        mine = [*SOURCE, "--resource", "a", "--holder", "me", "--ttl", "24m"]
        self.expect(0, "lease", "acquire", *mine)
        done = self.expect(4, "lease", "acquire", *mine, "--storage", "sqlite:data.db", "--init")
        self.assertIn("may stand", done.stderr)
        self.expect(0, "lease", "show", *SOURCE, "--resource", "a")

    def test_a_source_that_fell_behind_is_lifted(self):
        parts = ["--storage", "sqlite:data.db", *SOURCE]
        self.expect(0, "fence", "init", "--storage", "sqlite:data.db", "--floor", "5000")
        lease = self.expect_json(0, "lease", "acquire", *parts, "--resource", "a")
        self.assertGreater(int(lease["token"]), 5000)

    def test_a_holder_that_asks_again_and_is_stale_lifts_nothing(self):
        # A lease is taken, a higher token is seen at the guard, the same holder asks again: the refusal is
        # the truth.
        parts = ["--storage", "sqlite:data.db", *SOURCE]
        self.expect(0, "fence", "init", "--storage", "sqlite:data.db", "--floor", "0")
        self.expect(0, "lease", "acquire", *parts, "--resource", "a", "--holder", "me")
        self.expect(0, "fence", "advance", "--storage", "sqlite:data.db", "--resource", "a", "--token", "700")
        done = self.expect(1, "lease", "acquire", *parts, "--resource", "a", "--holder", "me", "--json")
        self.assertIn('"stale"', done.stdout)

    def test_beside_a_running_guard_the_server_is_named(self):
        self.serve("--storage", "sqlite:data.db")
        done = self.expect(3, "lease", "acquire", "--storage", "sqlite:data.db", "--resource", "a")
        self.assertIn("--server", done.stderr)

    def test_many_at_once_take_turns(self):
        parts = ["--storage", "sqlite:data.db"]
        self.expect(0, "fence", "init", *parts)

        def take(n):
            return self.start("lease", "acquire", *parts, "--resource", f"r{n}", "--json")
        processes = [take(n) for n in range(6)]
        give_up_at = time.monotonic() + support.LIMIT_S
        for n, process in enumerate(processes):
            _, told = process.communicate(timeout=support.LIMIT_S)
            # Its turn did not come within its patience: it says so, and asks again.
            while process.returncode == 3 and "another fenceguard" in told and time.monotonic() < give_up_at:
                process = take(n)
                _, told = process.communicate(timeout=support.LIMIT_S)
            self.assertEqual(process.returncode, 0, told)


class Faults(support.BinaryTest):
    def test_no_server_is_3(self):
        nowhere = Nowhere()
        self.addCleanup(nowhere.close)
        self.expect(3, "lease", "acquire", "--server", f"http://127.0.0.1:{nowhere.port}", "--resource", "a")
        self.expect(3, "lease", "show", "--server", f"http://127.0.0.1:{nowhere.port}", "--resource", "a")
        self.expect(3, "fence", "list", "--server", f"http://127.0.0.1:{nowhere.port}")

    def test_a_truncated_answer_is_4(self):
        # A server that hangs up after half an answer; shown for what grants, renews, releases and advances.
        def hang_up(link):
            with link:
                link.recv(65536)
                link.sendall(b"HTTP/1.1 201 Created\r\nContent-Le")
        listener = Listener(hang_up)
        self.addCleanup(listener.close)
        way = ["--server", listener.url, "--resource", "a"]
        self.expect(4, "lease", "acquire", *way, "--wait", "0s")
        for command in [["lease", "renew"], ["lease", "release"], ["fence", "advance"]]:
            self.expect(4, *command, *way, "--token", "1", "--holder", "h")

    def test_a_lost_answer_is_asked_for_again_by_the_same_holder(self):
        # A proxy loses the first answer after the server has granted; the second try must get the very same
        # grant.
        server = self.serve()
        seen = {}

        def lose_first(connection, to_server, piece):
            if not to_server:
                return None if connection == 0 else piece
            seen[connection] = seen.get(connection, b"") + piece
            return re.sub(rb"Host: \S+", b"Host: " + server.control.encode(), piece)
        proxy = FaultProxy(int(server.control.rpartition(":")[2]), lose_first)
        self.addCleanup(proxy.close)
        lease = self.expect_json(0, "lease", "acquire", "--server", proxy.url, "--resource", "a", "--wait", "20s")
        self.assertEqual(sorted(seen), [0, 1])
        self.assertEqual(seen[0].split(b"\r\n\r\n")[1], seen[1].split(b"\r\n\r\n")[1])
        self.assertEqual(lease["token"], server.call("GET", "/v1/fences/a").json["token"])

    def test_bearer_tokens(self):
        self.write_private("tokens", "lease for-leases-0123456\nadmin for-admins-0123456\n")
        server = self.serve("--control-token-file", "tokens")
        way = ["--server", server.url]
        self.assertIn("server says", self.expect(3, "lease", "acquire", *way, "--resource", "a").stderr)
        done = self.expect(3, "lease", "acquire", *way, "--resource", "a",
                           env={"FENCEGUARD_SERVER_TOKEN": "wrong"})
        self.assertNotIn("wrong", done.stderr)
        self.expect(0, "lease", "acquire", *way, "--resource", "a",
                    env={"FENCEGUARD_SERVER_TOKEN": "for-leases-0123456"})
        self.write("mine", "for-leases-0123456\n")
        self.expect(0, "lease", "acquire", *way, "--resource", "b", "--server-token-file", "mine")
        self.expect(3, "fence", "revoke", *way, "--resource", "b", "--server-token-file", "mine")
        self.expect(0, "fence", "revoke", *way, "--resource", "b",
                    env={"FENCEGUARD_SERVER_TOKEN": "for-admins-0123456"})
        self.expect(2, "lease", "show", *way, "--resource", "a", "--server-token-file", "missing")

    def test_a_lease_file_that_is_no_database_is_3(self):
        self.write("leases.db", "x" * 8192)
        done = self.expect(3, "lease", "acquire", *SOURCE, "--resource", "a")
        self.assertIn("leases.db", done.stderr)
        self.assertEqual(os.path.getsize(self.path("leases.db")), 8192)


if __name__ == "__main__":
    unittest.main()
