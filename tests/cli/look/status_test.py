"""/v1/status, /v1/leases and /v1/lanes: roles, hosts, bad input, and never a holder's name; 'status' and 'lease list'."""

import contextlib
import json
import os
import pty
import signal
import sqlite3
import unittest
import urllib.parse

import support
import upstream_server
from waiting import wait_until

HOLDER = "holder-that-nobody-is-told"
TOKENS = "lease aaaaaaaaaaaaaaaaaaaa\nadmin bbbbbbbbbbbbbbbbbbbb\n"
LEASE = {"Authorization": "Bearer aaaaaaaaaaaaaaaaaaaa"}
ADMIN = {"Authorization": "Bearer bbbbbbbbbbbbbbbbbbbb"}
PATHS = ("/v1/status", "/v1/leases", "/v1/lanes", "/v1/events")
# Markup, quotes, marks of direction, a character without width, and 512 bytes of it.
HOSTILE = ['<img src=x onerror="alert(1)">', "a'b\"c&amp;`d`", "\u202etxt.exe\u202c", "zero\u200bwidth", "ä" * 256]


def claim(token, holder=HOLDER):
    return {"Fencing-Token": token, "Fencing-Holder": holder}


class StatusTest(support.BinaryTest):
    def open_guard(self, *arguments):
        return self.serve("--storage", "sqlite:guard.db", "--init", *arguments)

    def make_stale(self, server, resource="accounts/42"):
        """A write that is refused: the second of two holders has the lock. Answers the two tokens."""
        path = urllib.parse.quote(resource)
        old = server.lease(resource, holder=HOLDER).json["token"]
        server.call("DELETE", f"/v1/leases/{path}", claim(old))
        new = server.lease(resource, holder=HOLDER + "-2").json["token"]
        self.assertEqual(server.request("PUT", f"/{path}", claim(old), "1").status, 412)
        return old, new


class Routes(StatusTest):
    def test_status_tells_what_the_guard_does(self):
        server = self.open_guard()
        old, new = self.make_stale(server)
        server.request("PUT", "/accounts/42", body="1")
        status = server.call("GET", "/v1/status").json
        self.assertEqual((status["storage"], status["source"], status["state"], status["role"], status["lists_leases"]),
                         ("sqlite:guard.db", "sqlite:guard.db", "ready", "admin", True))
        self.assertEqual((status["resources"], status["highest"]), (1, new))
        counts = status["verdicts"]["counts"]
        self.assertEqual((counts["admitted"], counts["stale"], counts["missing"]), (2, 1, 1))
        self.assertLessEqual(status["verdicts"]["window_ms"], status["uptime_ms"] + 1000)
        missing, stale = status["refusals"]
        self.assertEqual((missing["verdict"], missing["resource"]), ("missing", "accounts/42"))
        self.assertEqual((stale["verdict"], stale["operation"], stale["token"], stale["highest"], stale["client"]),
                         ("stale", "write", old, new, "127.0.0.1"))
        self.assertEqual(status["lanes"], {"waiting": 0, "in_flight": 0, "quarantined": 0, "cuts_owed": 0, "in_quarantine": []})

    def test_no_holder_is_named(self):
        server = self.open_guard()
        self.make_stale(server)
        server.call("POST", "/v1/fences/accounts/42/revoke")
        for path in PATHS[:3]:
            self.assertNotIn(HOLDER.encode(), server.call("GET", path).body)
        self.assertNotIn(HOLDER, self.expect(0, "status", "--server", server.url).stdout)
        self.assertNotIn(HOLDER, self.expect(0, "lease", "list", "--server", server.url).stdout)

    def test_leases_are_listed_a_page_at_a_time(self):
        server = self.open_guard()
        for name in ("b/1", "a/2", "a/1", "c"):
            server.lease(name, ttl_ms=600_000)
        server.lease("a/short", ttl_ms=200)
        wait_until(lambda: server.call("GET", "/v1/leases/a/short").status == 404)
        page = server.call("GET", "/v1/leases?limit=2").json
        self.assertEqual([lease["resource"] for lease in page["leases"]], ["a/1", "a/2"])
        self.assertEqual((page["has_more"], page["next"]), (True, "a/2"))
        self.assertGreater(page["leases"][0]["expires_in_ms"], 0)
        page = server.call("GET", "/v1/leases?after=a%2F2").json
        self.assertEqual([lease["resource"] for lease in page["leases"]], ["b/1", "c"])
        self.assertEqual((page["has_more"], page["next"]), (False, None))
        page = server.call("GET", "/v1/leases?prefix=a/").json
        self.assertEqual([lease["resource"] for lease in page["leases"]], ["a/1", "a/2"])

    def test_expired_leases_in_between_make_no_page_short(self):
        self.make_file("leases.db")
        with contextlib.closing(sqlite3.connect(self.path("leases.db"))) as leases, leases:
            leases.executemany("INSERT INTO fenceguard_lease VALUES (?, 1, 'h', 1, 'a boot before')",
                               [(f"old/{number:04}",) for number in range(2_500)])
        server = self.open_guard("--source", "sqlite:leases.db")
        server.lease("young", ttl_ms=600_000)
        page = server.call("GET", "/v1/leases?limit=1").json
        self.assertEqual([lease["resource"] for lease in page["leases"]], ["young"])
        self.assertFalse(page["has_more"])

    def test_roles(self):
        server = self.open_guard("--control-token-file", self.write_private("tokens", TOKENS))
        for path in PATHS:
            self.assertEqual(server.call("GET", path).status, 401)
            self.assertEqual(server.call("GET", path, {"Authorization": "Bearer cccccccccccccccccccc"}).status, 401)
            self.assertEqual(server.call("HEAD", path, LEASE).status, 200)
        self.assertEqual(server.call("GET", "/v1/status", LEASE).json["role"], "lease")
        self.assertEqual(server.call("GET", "/v1/status", ADMIN).json["role"], "admin")

    def test_foreign_hosts_and_origins_are_refused(self):
        server = self.open_guard()
        for path in (*PATHS, "/ui"):
            for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"},
                            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}, {"Sec-Fetch-Site": "same-site"}):
                with self.subTest(path=path, headers=headers):
                    self.assertEqual(server.call("GET", path, headers).status, 403)
        # A link from elsewhere may be followed, and an address typed.
        for headers in ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}, {"Sec-Fetch-Site": "none"},
                        {"Sec-Fetch-Site": "same-origin"}):
            self.assertEqual(server.call("GET", "/ui", headers).status, 200)

    def test_bad_input(self):
        server = self.open_guard()
        for target in ("/v1/status?x=1", "/v1/events?limit=1", "/ui?x=1", "/v1/leases?limit=0", "/v1/leases?x=1",
                       "/v1/lanes?limit=1001", "/v1/lanes?prefix=%00", "/v1/leases?after=a//b"):
            self.assertEqual(server.call("GET", target).status, 400, target)
        for path in ("/v1/status", "/v1/lanes", "/v1/events", "/ui"):
            self.assertEqual(server.call("POST", path).headers["allow"], "GET, HEAD", path)
        self.assertEqual(server.call("PUT", "/v1/leases").headers["allow"], "POST, GET, HEAD")

    def test_the_probe_side_shows_none_of_it(self):
        server = self.open_guard("--probe", "127.0.0.1:0")
        probe = server.line.split("probe=")[1].strip()
        for path in (*PATHS, "/ui"):
            self.assertEqual(support.request(probe, "GET", path).status, 404, path)

    def test_an_uninitialised_guard_says_so(self):
        server = self.serve("--storage", "sqlite:guard.db", "--source", "sqlite:leases.db")
        status = server.call("GET", "/v1/status").json
        self.assertEqual(status["state"], "uninitialised")
        self.assertIn("fence init", status["detail"])
        self.assertIn("uninitialised", self.expect(0, "status", "--server", server.url).stdout)


class Lanes(StatusTest):
    def setUp(self):
        super().setUp()
        self.upstream = upstream_server.Server()
        self.addCleanup(self.upstream.remove)

    def guard(self, *arguments):
        return self.serve("--storage", self.upstream.url(), "--state", "sqlite:state.db",
                          *support.new_lane(self.folder), *arguments)

    def test_a_quarantine_is_told_with_the_time_left(self):
        server = self.guard("--settle", "600s")
        lease = server.lease("accounts/42", holder="h").json
        headers = {**claim(lease["token"], "h"), "Upstream-Do": "apply-reset"}
        self.assertEqual(server.request("PUT", "/accounts/42", headers, "1").status, 502)
        lanes = server.call("GET", "/v1/lanes").json["lanes"]
        self.assertEqual([lane["resource"] for lane in lanes], ["accounts/42"])
        self.assertTrue(0 < lanes[0]["quarantined_ms"] <= 600_001)
        status = server.call("GET", "/v1/status").json
        self.assertEqual((status["storage"], status["source"]), (self.upstream.url(), "sqlite:state.db"))
        self.assertEqual(status["lanes"]["quarantined"], 1)
        self.assertEqual(status["lanes"]["in_quarantine"][0]["resource"], "accounts/42")
        self.assertEqual(status["refusals"][0]["verdict"], "unknown")
        self.assertIn("1 in quarantine", self.expect(0, "status", "--server", server.url).stdout)
        self.assertEqual(server.call("GET", "/v1/lanes?prefix=b").json, {"lanes": [], "has_more": False, "next": None})

    def test_a_stop_that_left_something_open_quarantines_everything(self):
        server = self.guard("--settle", "600s")
        lease = server.lease("a", holder="h").json
        self.assertEqual(server.request("PUT", "/a", {**claim(lease["token"], "h"), "Upstream-Do": "apply-reset"},
                                        "1").status, 502)
        server.kill()
        server = self.guard("--settle", "600s")
        status = server.call("GET", "/v1/status").json
        self.assertEqual(status["state"], "quarantined")
        self.assertGreater(status["quarantined_ms"], 0)
        self.assertIn("every resource is quarantined", self.expect(0, "status", "--server", server.url).stdout)


class Command(StatusTest):
    def test_one_screen(self):
        server = self.open_guard()
        old, new = self.make_stale(server)
        text = self.expect(0, "status", "--server", server.url).stdout
        self.assertIn(f"at {server.url}: ready, up ", text)
        self.assertIn("storage   sqlite:guard.db\n", text)
        self.assertIn("admitted 2  stale 1", text)
        self.assertRegex(text, rf"\d\d:\d\d:\d\d  stale +write +accounts/42  token {old}, highest {new}  from 127.0.0.1\n")
        self.assertRegex(text, rf"  accounts/42  token {new}  \d+ s left\n")

    def test_json_is_the_status_and_the_leases(self):
        server = self.open_guard()
        self.make_stale(server)
        told = self.expect_json(0, "status", "--server", server.url)
        self.assertEqual(told["state"], "ready")
        self.assertEqual([lease["resource"] for lease in told["leases"]], ["accounts/42"])
        self.assertIs(told["leases_has_more"], False)

    def test_bearer_tokens(self):
        server = self.open_guard("--control-token-file", self.write_private("tokens", TOKENS))
        self.assertIn("bearer token", self.expect(3, "status", "--server", server.url).stderr)
        self.expect(0, "status", "--server", server.url, env={"FENCEGUARD_SERVER_TOKEN": "aaaaaaaaaaaaaaaaaaaa"})

    def test_exit_statuses(self):
        server = self.open_guard()
        self.assertIn("the data side of a guard", self.expect(2, "status", "--server", f"http://{server.data}").stderr)
        self.expect(2, "status", "--nonsense")
        self.expect(2, "status", "--server", "ftp://x")
        server.kill()
        self.expect(3, "status", "--server", server.url)

    def test_watch_goes_on_when_the_guard_goes_away_and_comes_back(self):
        guard = self.serve_here("--storage", "sqlite:guard.db", "--init")
        server = guard()
        watch = self.start("status", "--server", server.url, "--watch", "--json")
        first = json.loads(watch.stdout.readline())
        server.stop()
        self.until(watch, lambda told: "no answer" in told.get("detail", ""))
        guard()
        again = self.until(watch, lambda told: told.get("state") == "ready")
        self.assertNotEqual(again["started_at"], first["started_at"])
        watch.send_signal(signal.SIGINT)
        self.assertEqual(watch.wait(), -signal.SIGINT)

    def until(self, process, is_it):
        while not is_it(told := json.loads(process.stdout.readline())):
            pass
        return told

    def test_on_a_terminal_the_screen_is_drawn_anew(self):
        server = self.open_guard()
        ours, theirs = pty.openpty()
        watch = self.start("status", "--server", server.url, "--watch", stdout=theirs)
        os.close(theirs)
        seen = b""
        while seen.count(b"\x1b[H\x1b[J") < 2:
            seen += os.read(ours, 4096)
        watch.kill()
        os.close(ours)

    def test_hostile_names_do_nothing_to_a_terminal(self):
        server = self.open_guard()
        for name in HOSTILE:
            self.make_stale(server, name)
        for command in (("status",), ("lease", "list"), ("fence", "list")):
            text = self.expect(0, *command, "--server", server.url).stdout
            self.assertNotRegex(text, "[\u200b\u202e\u202c]")
            self.assertIn("\\u{202E}txt.exe\\u{202C}", text)
        listed = self.expect_json(0, "lease", "list", "--server", server.url)
        self.assertEqual(sorted(lease["resource"] for lease in listed["leases"]), sorted(HOSTILE))


class LeaseList(StatusTest):
    def test_of_a_source_and_of_a_guard(self):
        self.make_file("leases.db")
        for name in ("b", "a"):
            self.expect(0, "lease", "acquire", "--source", "sqlite:leases.db", "--resource", name, "--ttl", "10m")
        text = self.expect(0, "lease", "list", "--source", "sqlite:leases.db").stdout
        self.assertRegex(text, r"^a \d+ \d+ms\nb \d+ \d+ms\n$")
        server = self.serve("--storage", "sqlite:guard.db", "--init", "--source", "sqlite:leases.db")
        told = self.expect_json(0, "lease", "list", "--server", server.url, "--limit", "1")
        self.assertEqual([lease["resource"] for lease in told["leases"]], ["a"])
        self.assertTrue(told["has_more"])
        done = self.expect(0, "lease", "list", "--server", server.url, "--prefix", "b")
        self.assertRegex(done.stdout, r"^b \d+ \d+ms\n$")
        self.expect(2, "lease", "list", "--server", server.url, "--limit", "0")
        self.expect(2, "lease", "list")


if __name__ == "__main__":
    unittest.main()
