"""What the commands must do with a URL of a consensus service (zookeeper:, etcd:) as source and storage.

A product's test derives from Case, which says how its server is started and looked into, and from each of the classes
below. The URL carries a password everywhere, and no output of any command may hold it.
"""

import itertools
import json
import os
import signal
import subprocess

import support
from product_case import SECRET, ControlSide, ProductTest, claim_fields, claim_of
from support import wait_until

INIT = "fenceguard fence init"
_NAMES = itertools.count(1)


class Case(ProductTest):
    """A namespace of its own for each test, on the server of the file."""

    scheme = None
    server = None
    quick = ""                   # parameters with which a server that stops answering is soon given up
    patient = "?timeout=5s"      # likewise, but a server that answers is not, however busy the machine is

    def setUp(self):
        super().setUp()
        self.name = f"test{next(_NAMES)}"
        self.url = self.url_of()

    def url_of(self, rest="", server=None):
        """rest: parameters, as '?timeout=1s'."""
        raise NotImplementedError

    def own_server(self):
        """A server of this test alone."""
        raise NotImplementedError

    def names_with(self, part):
        """The names of everything at the server that hold part."""
        raise NotImplementedError

    def advance(self, status, token, holder="h", resource="a"):
        return self.fence_json(status, "advance", "--resource", resource, "--token", str(token), "--holder", holder)

    def hold(self, resource, *arguments, url=None):
        """A lease that is held by another process until let_go() of it."""
        words = ["lease", "acquire", "--source", url or self.url, "--resource", resource, "--json", *arguments]
        process = self.start(*words)
        line = process.stdout.readline()
        self.assertTrue(line, "no lease: " + ("" if process.poll() is None else process.stderr.read()))
        lease = json.loads(line)
        lease["process"] = process
        if not self.lives_by_connection:
            self.assertEqual(process.wait(support.LIMIT_S), 0)
        return lease

    def let_go(self, lease, url=None):
        if self.lives_by_connection:
            lease["process"].terminate()
            self.assertEqual(lease["process"].wait(support.LIMIT_S), 0)
        else:
            self.lease(0, "release", *claim_of(lease), url=url)


class Leases:
    def test_the_life_of_a_lease(self):
        lease = self.hold("accounts/42")
        self.assertIsInstance(lease["token"], str)
        shown = self.lease_json(0, "show", "--resource", "accounts/42")
        self.assertEqual(shown["token"], lease["token"])
        self.assertNotIn("holder", shown)
        self.assertIn("held", self.lease(1, "acquire", "--resource", "accounts/42", "--wait", "0s").stderr)
        self.lease(1, "release", *claim_of(dict(lease, holder="another")))
        self.lease(1, "release", *claim_of(dict(lease, token="1")))
        self.assertEqual(self.lease_json(0, "show", "--resource", "accounts/42")["token"], lease["token"])
        self.let_go(lease)
        self.lease(1, "release", *claim_of(lease))
        self.lease(1, "renew", *claim_of(lease))
        self.lease(1, "show", "--resource", "accounts/42")
        second = self.hold("accounts/42")
        self.assertGreater(int(second["token"]), int(lease["token"]))

    def test_a_waiter_takes_the_lock_when_it_is_given_back(self):
        first = self.hold("a", "--ttl", "10m")
        waiter = self.start("lease", "acquire", "--source", self.url, "--resource", "a", "--wait", "30s", "--json")
        wait_until(lambda: len(self.names_with("a/")) >= 2, what="a waiter in the line")
        self.let_go(first)
        self.assertGreater(int(json.loads(waiter.stdout.readline())["token"]), int(first["token"]))

    def test_a_waiter_that_is_interrupted_leaves_the_line(self):
        first = self.hold("a", "--ttl", "10m")
        waiter = self.start("lease", "acquire", "--source", self.url, "--resource", "a", "--wait", "60s")
        wait_until(lambda: len(self.names_with("a/")) >= 2, what="a waiter in the line")
        waiter.send_signal(signal.SIGTERM)
        self.assertNotEqual(waiter.wait(support.LIMIT_S), 0)
        wait_until(lambda: len(self.names_with("a/")) == 1, what="a line without it")
        self.let_go(first)

    def test_raise_lifts_and_never_lowers(self):
        mark = 2**53 + 2
        self.let_go(self.hold("a"))
        self.lease(0, "raise", "--resource", "a", "--token", str(mark), "--far")
        self.lease(0, "raise", "--resource", "a", "--token", "5")
        lease = self.hold("a")
        self.assertGreater(int(lease["token"]), mark)
        self.assertLess(int(lease["token"]), mark + 2**33)

    def test_without_a_storage_it_says_that_nothing_was_advanced(self):
        done = self.start("lease", "acquire", "--source", self.url, "--resource", "a")
        self.assertTrue(done.stdout.readline())
        self.assertIn("no guard was advanced", done.stderr.readline())

    def test_a_server_that_is_not_there_is_3_and_named(self):
        url = self.url_of(self.quick, server=self.own_server(is_there=False))
        for arguments in (["acquire", "--wait", "0s"], ["show"], ["raise", "--token", "5"]):
            with self.subTest(arguments=arguments):
                done = self.lease(3, arguments[0], "--resource", "a", *arguments[1:], url=url)
                self.assertIn("127.0.0.1", done.stderr)

    def test_nonsense_in_the_url_is_2_and_says_what_is_known(self):
        for rest, word in (("?tll=3", "timeout"), ("?timeout=soon", "duration")):
            with self.subTest(rest=rest):
                self.assertIn(word, self.lease(2, "show", "--resource", "a", url=self.url_of(rest)).stderr)


class Exec:
    def test_the_command_finds_its_claim_and_no_url(self):
        done = self.expect(7, "exec", "--resource", "a", "--", "sh", "-c",
                           "echo $FENCING_RESOURCE $FENCING_TOKEN $FENCING_HOLDER; env; exit 7",
                           env={"FENCEGUARD_SOURCE": self.url})
        resource, token, holder = done.stdout.splitlines()[0].split()
        self.assertEqual(resource, "a")
        self.assertGreater(int(token), 0)
        self.assertTrue(holder)
        self.assertNotIn(f"{self.scheme}://", done.stdout)
        self.lease(1, "show", "--resource", "a")

    def test_held_by_another_holder_is_1_or_the_status_asked_for(self):
        lease = self.hold("a")
        way = ["exec", "--source", self.url, "--resource", "a", "--wait", "0s"]
        self.expect(1, *way, "--", "true")
        self.expect(9, *way, "--conflict-exit-code", "9", "--", "true")
        self.let_go(lease)

    def test_it_advances_the_storage_and_a_revoke_ends_it_with_124(self):
        self.fence(0, "init")
        process = self.start("exec", "--source", self.url, "--storage", self.url, "--resource", "a",
                             "--", "sh", "-c", "echo $FENCING_TOKEN; exec sleep 60")
        token = process.stdout.readline().strip()
        self.assertEqual(self.fence_json(0, "show", "--resource", "a")["token"], token)
        self.fence(0, "revoke", "--resource", "a")
        self.assertEqual(process.wait(support.LIMIT_S), 124)

    def test_a_server_that_stops_answering_ends_the_command_with_124(self):
        server = self.own_server()
        process = self.start("exec", "--source", self.url_of(self.patient, server=server), "--resource", "a",
                             "--", "sh", "-c", "echo started; exec sleep 60")
        self.assertEqual(process.stdout.readline(), "started\n")
        server.pause()
        self.assertEqual(process.wait(support.LIMIT_S), 124)
        server.resume()

    def test_a_process_that_is_killed_frees_the_lock_in_time(self):
        process = self.start("exec", "--source", self.url, "--resource", "a", "--ttl", "6s",
                             "--kill-after", "1s", "--", "sh", "-c", "echo $FENCING_TOKEN; exec sleep 60")
        token = process.stdout.readline().strip()
        process.kill()
        done = self.expect(0, "exec", "--source", self.url, "--resource", "a", "--wait", "30s", "--", "sh", "-c",
                           "echo $FENCING_TOKEN", limit_s=60)
        self.assertGreater(int(done.stdout), int(token))


class Fences:
    def setUp(self):
        super().setUp()
        self.fence(0, "init", "--floor", "10")

    def test_advance_show_and_list(self):
        self.assertEqual(self.advance(1, 10)["verdict"], "stale")
        self.assertEqual(self.advance(0, 11)["verdict"], "admitted")
        self.assertEqual(self.advance(0, 11)["verdict"], "admitted")
        self.assertEqual(self.advance(1, 11, "other")["verdict"], "conflict")
        self.assertEqual(self.fence_json(0, "show", "--resource", "a")["token"], "11")
        for resource in ("b/c", "b", "b%2Fc"):
            self.advance(0, 12, resource=resource)
        listed = [entry["resource"] for entry in self.fence_json(0, "list")["fences"]]
        self.assertEqual(listed, ["a", "b", "b%2Fc", "b/c"])
        self.fence(1, "show", "--resource", "nobody")

    def test_tokens_beyond_2_to_53_are_exact(self):
        for token in (2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1):
            self.advance(0, token)
            self.assertEqual(self.fence_json(0, "show", "--resource", "a")["token"], str(token))
        self.assertEqual(self.advance(1, 2**53)["verdict"], "stale")

    def test_a_revoke_closes_the_fence_and_ends_the_lease(self):
        lease = self.hold("a", "--storage", self.url)
        self.fence(0, "revoke", "--resource", "a")
        self.assertEqual(self.advance(1, lease["token"], lease["holder"])["verdict"], "stale")
        self.lease(1, "renew", *claim_of(lease))
        again = self.hold("a", "--storage", self.url, "--wait", "20s")
        self.assertGreater(int(again["token"]), int(lease["token"]))

    def test_compact_folds_what_is_idle_and_keeps_what_is_held(self):
        first = self.hold("a", "--storage", self.url)
        self.let_go(first)
        held = self.hold("b", "--storage", self.url, "--ttl", "10m")
        self.fence(0, "compact")
        self.fence(1, "show", "--resource", "a")
        self.assertEqual(self.fence_json(0, "show", "--resource", "b")["token"], held["token"])
        self.assertEqual(self.advance(1, first["token"], first["holder"])["verdict"], "stale")
        self.assertEqual(self.advance(0, held["token"], held["holder"], "b")["verdict"], "admitted")

    def test_a_source_behind_its_fences_is_raised(self):
        self.advance(0, 2**39)
        lease = self.hold("a", "--storage", self.url)
        self.assertGreater(int(lease["token"]), 2**39)

    def test_init_only_raises_the_floor(self):
        self.fence(0, "init", "--floor", "30")
        self.fence(0, "init", "--floor", "20")
        self.assertEqual(self.advance(1, 30)["verdict"], "stale")
        self.assertEqual(self.advance(0, 31)["verdict"], "admitted")
        self.fence(0, "init")
        self.assertGreater(int(self.hold("a", "--storage", self.url)["token"]), 31)

    def test_rebase_sets_a_fence_by_hand(self):
        self.advance(0, 2**60)
        done = self.fence(0, "rebase", "--resource", "a", "--to", "500")
        self.assertIn("G1", done.stdout + done.stderr)
        self.assertEqual(self.fence_json(0, "show", "--resource", "a")["token"], "500")
        self.assertEqual(self.advance(1, 499)["verdict"], "stale")
        self.assertEqual(self.advance(0, 501)["verdict"], "admitted")


class WithoutItsRecord:
    def test_everything_is_3_and_names_the_command(self):
        claim = ["--resource", "a", "--token", "5", "--holder", "h"]
        for arguments in (["advance", *claim], ["revoke", "--resource", "a"], ["compact"]):
            with self.subTest(arguments=arguments):
                self.assertIn(INIT, self.fence(3, *arguments).stderr)
        self.assertIn(INIT, self.lease(3, "acquire", "--resource", "a", "--storage", self.url).stderr)
        self.lease(1, "show", "--resource", "a")  # it was given back
        self.expect(125, "exec", "--source", self.url, "--storage", self.url, "--resource", "a", "--", "true")


class Serving(ControlSide):
    def test_a_server_that_stops_answering_and_comes_back(self):
        server = self.own_server()
        url = self.url_of(self.patient, server=server)
        self.fence(0, "init", url=url)
        guard = self.serve("--max-jump", "0", env={"FENCEGUARD_STORAGE": url})
        fields = {"Fencing-Token": str(2**60), "Fencing-Holder": "h"}
        self.assertEqual(guard.call("POST", "/v1/fences/a/advance", fields).status, 200)
        server.pause()
        fields["Fencing-Token"] = str(2**60 + 1)
        self.assertIn(guard.call("POST", "/v1/fences/a/advance", fields, timeout=60).status, (503, 504, 500))
        wait_until(lambda: guard.call("GET", "/readyz").status == 503, what="a guard that is not ready")
        server.resume()
        wait_until(lambda: guard.call("GET", "/readyz").status == 200, what="a guard that is ready")
        wait_until(lambda: guard.call("POST", "/v1/fences/a/advance", fields).status == 200, what="an advance")
        fields["Fencing-Token"] = str(2**60 - 1)
        answer = wait_until(lambda: (found := guard.call("POST", "/v1/fences/a/advance", fields)).status
                            not in (500, 503) and found, what="a ruling")
        self.assertEqual(answer.status, 412)

    def test_a_password_is_in_no_log(self):
        guard = self.serve("--init", "--log-level", "debug")
        self.assertEqual(guard.lease("a").status, 201)
        with open(f"/proc/{guard.process.pid}/cmdline", "rb") as line:
            self.assertNotIn(SECRET.encode(), line.read())
        self.assertEqual(guard.stop(), 0)


class Demo:
    def setUp(self):
        super().setUp()
        self.fence(0, "init")
        self.temp = self.path("tmp")
        os.mkdir(self.temp)

    def data_names(self):
        """Of the demonstration's data. Its fences stay, as all fences do, and empty nodes of locks go later."""
        ours = ("/fence/", "/fences/", "/lock/", "/locks/")
        return [name for name in self.names_with("demo") if not any(part in name for part in ours)]

    def test_gc_pause_shows_both_outcomes_and_leaves_no_data(self):
        done = self.run_binary("demo", "gc-pause", "--json", limit_s=90,
                               env={"TMPDIR": self.temp, "FENCEGUARD_STORAGE": self.url})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        report = json.loads(done.stdout)
        self.assertTrue(report["as_it_must_be"])
        self.assertEqual((report["round"]["final"], report["through"]["final"]), (150, 180))
        self.assertEqual((self.data_names(), os.listdir(self.temp)), ([], []))

    def test_an_interrupt_removes_its_data(self):
        status = support.interrupted(
            lambda: self.start("demo", env={"TMPDIR": self.temp, "FENCEGUARD_STORAGE": self.url}), signal.SIGTERM,
            self.data_names, limit_s=60)
        self.assertEqual(status, 128 + signal.SIGTERM)
        self.assertEqual((self.data_names(), os.listdir(self.temp)), ([], []))


class Doctor:
    def findings(self, status, way, url=None):
        found = self.expect_json(status, "doctor", f"--{way}", url or self.url)["findings"]
        return {each["check"]: (each["level"], each["message"]) for each in found}

    def test_what_is_not_initialised_names_the_command(self):
        found = self.run_binary("doctor", "--storage", self.url)
        self.assertIn(INIT, found.stdout)

    def test_a_namespace_that_is_well_is_no_danger(self):
        self.fence(0, "init")
        self.let_go(self.hold("a", "--storage", self.url))
        for way in ("storage", "source"):
            found = self.findings(0, way)
            self.assertGreater(len(found), 2)
            self.assertNotIn("danger", {level for level, _ in found.values()})

    def test_source_behind_its_fences_is_a_danger_with_advice(self):
        self.fence(0, "init")
        self.advance(0, 2**60)
        done = self.expect(1, "doctor", "--storage", self.url)
        self.assertIn("lease raise", done.stdout)
        self.lease(0, "raise", "--resource", "a", "--token", str(2**60), "--far")
        self.expect(0, "doctor", "--storage", self.url)

    def test_a_server_that_is_not_there_is_told(self):
        done = self.run_binary("doctor", "--storage", self.url_of(self.quick, server=self.own_server(is_there=False)))
        self.assertIn(done.returncode, (1, 3))
        self.assertIn("127.0.0.1", done.stdout + done.stderr)


def run_and_read(words, **options):
    """What a program wrote, which must end with 0."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=support.LIMIT_S, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{words} ended with {done.returncode}: {done.stderr}")
    return done.stdout
