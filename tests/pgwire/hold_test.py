"""'serve --hold': clients that know nothing of claims write under what the sidecar holds, or not at all, whatever becomes of
the lease meanwhile.

The leases come from the database itself, or, where the source is to fail alone, from a Redis beside it. An advance waits a
moment only for older transactions before it cuts them.

Clients of this process are older than every tenure. Where a test is about something else the sidecar takes any program;
ProgramTest is about which are let in.
"""

import base64
import os
import re
import signal
import ssl

import parts
import redis_server
from certificates import Certificates
from demo_case import status_of
from programs.held_program import AccountTests, Program
from raw_client import SYNC, RawClient, has_ended, query, run, states
from sidecar_case import SidecarTest
from waiting import wait_until

RESOURCE = "jobs/nightly"
INSERT = "insert into entries (who) values ('{}')"
# Lost when the test says so, and not where the machine stands still for a while.
SOON = ("--hold-ttl", "6s")
# Only a release ends it within a test.
LATE = ("--hold-ttl", "10m")


class HoldCase(SidecarTest):
    TAKES = ("--hold-reconnect", "allow")

    def setUp(self):
        super().setUp()
        self.run_directly(f"alter database {self.database} set fenceguard.drain = '200ms'")

    def hold(self, *arguments, resources=(RESOURCE,)):
        return self.start_sidecar(*(word for name in resources for word in ("--hold", name)), *self.TAKES, *arguments)

    def is_held(self, sidecar):
        return sidecar.call("GET", "/readyz").status == 200

    def await_held(self, sidecar):
        wait_until(lambda: self.is_held(sidecar), what="a sidecar that holds")

    def await_lost(self, sidecar):
        wait_until(lambda: not self.is_held(sidecar), what="a sidecar that no longer holds")

    def connect(self, sidecar, *parameters, tls=None):
        """A session that sends and sees every message; self.start is how it began."""
        client = RawClient(sidecar.data)
        self.addCleanup(client.close)
        if tls:
            client.encrypt(tls)
        self.start = client.start(("user", "postgres"), ("database", self.database), *parameters)
        return client

    def begin(self, sidecar):
        """A session in the middle of a transaction."""
        client = self.connect(sidecar)
        self.assertEqual(states(client.ask(query("begin"))), [])
        self.assertEqual(states(client.ask(query(INSERT.format("stale")))), [])
        return client

    def refusal(self, sidecar, *claims):
        """psql's words."""
        printed, words = self.psql(sidecar, "select 1", *claims, stops=False)
        self.assertEqual(printed, "")
        return words

    def assert_ends(self, client, *expected):
        """The connection ends, and these are the SQLSTATEs of what is told before."""
        messages = client.until(None)
        self.assertEqual((states(messages), has_ended(messages)), (list(expected), True), messages)

    def token(self, resource=RESOURCE):
        return int(self.run_directly(f"select token from fenceguard.fences where resource = '{resource}'"))

    def pause(self, sidecar):
        sidecar.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: status_of(sidecar.process.pid, "State").startswith("T"), what="a sidecar that has stopped")
        self.addCleanup(os.kill, sidecar.process.pid, signal.SIGCONT)

    def resume(self, sidecar):
        sidecar.process.send_signal(signal.SIGCONT)


class LeaderTest(HoldCase):
    def test_unmodified_program_writes_as_the_leader_or_not_at_all(self):
        first = self.hold(*LATE)
        self.await_held(first)
        second = self.hold(*LATE)
        self.psql(first, "insert into entries (who) values ('a')")
        self.assertIn(f"does not hold '{RESOURCE}'", self.refusal(second))
        self.connect(second)
        self.assertEqual((states(self.start), has_ended(self.start)), (["57P03"], True))
        probe = second.call("GET", "/readyz")
        self.assertEqual(probe.status, 503)
        self.assertIn(f"does not hold '{RESOURCE}'", probe.body.decode())
        self.assertEqual(second.call("GET", "/healthz").status, 200)
        token = self.token()
        self.assertIn("fenceguard_held 1\n", first.call("GET", "/metrics").body.decode())
        self.assertIn(f"fenceguard_held_token {token}\n", first.call("GET", "/metrics").body.decode())
        self.assertIn("fenceguard_held 0\n", second.call("GET", "/metrics").body.decode())
        self.assertIn("fenceguard_held_token 0\n", second.call("GET", "/metrics").body.decode())
        self.assertEqual(self.entries(), "a")

    def test_sigterm_releases_the_lease_after_the_sessions_ended(self):
        first = self.hold(*LATE, "--drain-timeout", "10m")
        self.await_held(first)
        second = self.hold(*LATE)
        token = self.token()
        idle, busy = self.connect(first), self.connect(first)
        busy.ask(query("begin"))
        busy.ask(query(INSERT.format("a")))
        first.process.send_signal(signal.SIGTERM)
        self.assert_ends(idle, "57P01")
        # Nothing is given up under a transaction that is open.
        shown = self.expect_json(0, "lease", "show", "--source", self.postgres.url(self.database), "--resource", RESOURCE)
        self.assertEqual(shown["token"], str(token))
        busy.ask(query(INSERT.format("b")))
        self.assertEqual(states(busy.ask(query("commit"))), [])
        self.assert_ends(busy, "57P01")
        self.await_held(second)
        self.assertEqual(first.wait(), 0)
        self.psql(second, "insert into entries (who) values ('c')")
        self.assertEqual(self.entries(), "a b c")
        self.assertGreater(self.token(), token)

    def test_own_claim_is_refused_with_a_sentence(self):
        sidecar = self.hold(*LATE)
        self.await_held(sidecar)
        words = self.refusal(sidecar, (RESOURCE, 2**40, "intruder"))
        self.assertIn("brings none of its own", words)
        for claims, expected in (("[]", ["22023"]), ("", [])):
            self.connect(sidecar, ("fenceguard.session_claims", claims))
            self.assertEqual(states(self.start), expected)
        self.assertLess(self.token(), 2**40)

    def test_paused_holder_wakes_up_and_lands_nothing(self):
        first = self.hold(*SOON)
        self.await_held(first)
        second = self.hold(*LATE)
        inside, idle = self.begin(first), self.connect(first)
        token = self.token()
        self.pause(first)
        # Sent before anybody could know, and read when it is too late.
        inside.send(query("commit"))
        idle.send(query(INSERT.format("stale")))
        self.await_held(second)
        self.psql(second, "insert into entries (who) values ('b')")
        self.assertGreater(self.token(), token)
        self.resume(first)
        self.assert_ends(inside, "57P01")
        said = idle.until(None)
        self.assertIn(states(said), (["57P01"], ["ZF001", "57P01"]))
        self.assertTrue(has_ended(said))
        self.await_lost(first)
        self.assertIn("does not hold", self.refusal(first))
        self.psql(second, "insert into entries (who) values ('b')")
        self.assertEqual(self.entries(), "b b")

    def test_each_time_of_holding_has_its_own_token(self):
        sidecar = self.hold(*SOON)
        self.await_held(sidecar)
        client = self.connect(sidecar)
        client.ask(query(INSERT.format("a")))
        token = self.token()
        self.expect(0, "fence", "revoke", "--server", sidecar.url, "--resource", RESOURCE)
        self.assert_ends(client, "57P01")
        wait_until(lambda: self.token() > token)
        self.await_held(sidecar)
        self.psql(sidecar, "insert into entries (who) values ('b')")
        self.assertEqual(self.entries(), "a b")

    def test_fence_that_refuses_the_holder_makes_it_take_a_new_token(self):
        sidecar = self.hold(*LATE)
        self.await_held(sidecar)
        client = self.connect(sidecar)
        client.ask(query(INSERT.format("a")))
        self.run_directly(f"select fenceguard.advance('{RESOURCE}', 1000, 'by-hand')")
        self.assertEqual(states(client.ask(query(INSERT.format("stale")))), ["ZF001"])
        wait_until(lambda: self.token() > 1000)
        self.await_held(sidecar)
        self.assert_ends(client, "57P01")
        self.psql(sidecar, "insert into entries (who) values ('b')")
        self.assertEqual(self.entries(), "a b")


    def test_fence_put_back_below_the_holder_is_advanced_again(self):
        """As a restore from a backup leaves it. A client is told once to try again, and its connection goes on."""
        sidecar = self.hold(*LATE)
        self.await_held(sidecar)
        client = self.connect(sidecar)
        token = self.token()
        client.ask(query("listen news"))
        for number, request in enumerate((query(INSERT.format("a")), run(INSERT.format("a")) + SYNC)):
            with self.subTest(number=number):
                self.run_directly("delete from fenceguard.fences")
                self.assertEqual(states(client.ask(query("begin"))), [])
                self.assertEqual(states(client.ask(request)), ["40001"])
                self.assertEqual(states(client.ask(query("rollback"))), [])
                self.assertEqual(states(client.ask(request)), [])
                self.assertEqual(self.token(), token)
        self.assertEqual(self.entries(), "a a")


    def test_clients_with_tls_write_as_leader_and_hear_of_its_loss(self):
        certificates = Certificates(self.folder)
        certificates.sign("server")
        context = ssl.create_default_context(cafile=certificates.file("ca"))
        sidecar = self.hold(*LATE, "--tls-certificate", certificates.file("server"), "--tls-key", certificates.key("server"))
        self.await_held(sidecar)
        client = self.connect(sidecar, tls=context)
        self.assertEqual(states(client.ask(query(INSERT.format("a")))), [])
        self.run_directly(f"select fenceguard.advance('{RESOURCE}', 1000, 'by-hand')")
        self.assertEqual(states(client.ask(query(INSERT.format("stale")))), ["ZF001"])
        self.assert_ends(client, "57P01")
        wait_until(lambda: self.token() > 1000)
        self.await_held(sidecar)
        self.assertEqual(states(self.connect(sidecar, tls=context).ask(query(INSERT.format("b")))), [])
        self.assertEqual(self.entries(), "a b")


class LossTest(HoldCase):
    """The source fails alone: no newer token comes, and what ends the sessions is the sidecar."""

    def setUp(self):
        super().setUp()
        self.source = redis_server.Server()
        self.addCleanup(self.source.remove)
        self.sidecar = self.hold("--source", self.source.url("/0?timeout=1s"), *SOON)
        self.await_held(self.sidecar)

    def lose(self):
        self.source.pause()
        self.await_lost(self.sidecar)

    def test_open_transaction_ends_and_the_next_holding_is_another(self):
        inside, idle = self.begin(self.sidecar), self.connect(self.sidecar)
        token = self.token()
        self.lose()
        self.assert_ends(inside, "57P01")
        self.assert_ends(idle, "57P01")
        self.assertIn("does not hold", self.refusal(self.sidecar))
        self.assertEqual(self.entries(), "")
        self.source.resume()
        self.await_held(self.sidecar)
        self.assertGreater(self.token(), token)
        self.psql(self.sidecar, "insert into entries (who) values ('a')")
        self.assertEqual(self.entries(), "a")

    def test_source_that_comes_back_empty_is_lifted_above_the_fence(self):
        token = self.token()
        self.source.kill()
        self.await_lost(self.sidecar)
        wait_until(lambda: 'event="lease not taken"' in self.sidecar.log())
        self.source.start()
        self.await_held(self.sidecar)
        self.assertGreater(self.token(), token)
        self.psql(self.sidecar, "insert into entries (who) values ('a')")
        self.assertEqual(self.entries(), "a")

    def make_gate(self, ending="return null"):
        """A COMMIT of a row waits at the server until the gate, a session that is answered, opens it."""
        self.run_directly(
            "create function late() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(7); "
            f"{ending}; end $$; create constraint trigger late after insert on entries deferrable initially deferred "
            "for each row execute function late()")
        gate = self.postgres.session(self.database)
        self.addCleanup(gate.close)
        gate.run("select pg_advisory_lock(7)")
        return gate

    def await_commit(self):
        wait_until(lambda: self.run_directly("select count(*) from pg_locks where locktype = 'advisory' and objid = 7 "
                                             "and not granted") == "1")

    def test_commit_under_way_is_answered_before_the_session_ends(self):
        for number, commit in enumerate((query("commit"), run("commit") + SYNC, run("commit"))):
            with self.subTest(number=number):
                self.run_directly("drop function if exists late cascade; truncate entries")
                gate = self.make_gate()
                client = self.begin(self.sidecar)
                client.send(commit)
                self.await_commit()
                self.lose()
                # It is not taken any more.
                client.send(query(INSERT.format("later")))
                gate.run("select pg_advisory_unlock(7)")
                messages = client.until(None)
                self.assertIn((b"C", b"COMMIT\0"), messages)
                self.assertEqual((states(messages), has_ended(messages)), (["57P01"], True))
                self.assertEqual(self.entries(), "stale")
                self.source.resume()
                self.await_held(self.sidecar)

    def test_commit_that_fails_is_told_so(self):
        gate = self.make_gate("raise exception 'not this one'")
        client = self.begin(self.sidecar)
        client.send(query("commit"))
        self.await_commit()
        self.lose()
        gate.run("select pg_advisory_unlock(7)")
        self.assert_ends(client, "P0001", "57P01")
        self.assertEqual(self.entries(), "")

    def test_autocommit_is_answered_before_the_session_ends(self):
        gate = self.make_gate()
        client = self.connect(self.sidecar)
        client.send(query(INSERT.format("a")))
        self.await_commit()
        self.lose()
        gate.run("select pg_advisory_unlock(7)")
        messages = client.until(None)
        self.assertIn((b"C", b"INSERT 0 1\0"), messages)
        self.assertEqual(states(messages), ["57P01"])
        self.assertEqual(self.entries(), "a")

    def test_commit_whose_answer_is_lost_is_a_lost_connection(self):
        self.make_gate()
        client = self.begin(self.sidecar)
        client.send(query("commit"))
        self.await_commit()
        self.lose()
        self.sidecar.process.kill()
        self.assert_ends(client)


class ResourcesTest(HoldCase):
    NAMES = ("jobs/b", "jobs/a")

    def test_all_are_held_or_it_is_not_ready(self):
        url = self.postgres.url(self.database)
        held = self.expect_json(0, "lease", "acquire", "--source", url, "--resource", "jobs/b", "--ttl", "10m")
        sidecar = self.hold(*SOON, resources=self.NAMES)
        wait_until(lambda: self.run_directly("select count(*) from fenceguard.fences where resource = 'jobs/a'") == "1")
        self.assertFalse(self.is_held(sidecar))
        self.assertIn("'jobs/a', 'jobs/b'", self.refusal(sidecar))
        self.expect(0, "lease", "release", "--source", url, "--resource", "jobs/b", "--token", held["token"], "--holder",
                    held["holder"])
        self.await_held(sidecar)
        self.psql(sidecar, "insert into entries (who) values ('a')")
        # One is lost: all are given back, and taken anew.
        client = self.connect(sidecar)
        before = [self.token(name) for name in self.NAMES]
        self.expect(0, "fence", "revoke", "--server", sidecar.url, "--resource", "jobs/a")
        self.assert_ends(client, "57P01")
        wait_until(lambda: all(self.token(name) > old for name, old in zip(self.NAMES, before)))
        self.await_held(sidecar)
        self.psql(sidecar, "insert into entries (who) values ('b')")
        self.assertEqual(self.entries(), "a b")

    def test_two_holders_in_other_orders_do_not_deadlock(self):
        url = self.postgres.url(self.database)
        held = self.expect_json(0, "lease", "acquire", "--source", url, "--resource", "jobs/b", "--ttl", "10m")
        first, second = self.hold(*LATE, resources=self.NAMES), self.hold(*LATE, resources=self.NAMES[::-1])
        # Each has what it can have, and waits for the rest.
        wait_until(lambda: "jobs/a" in self.run_directly("select string_agg(resource, ' ') from fenceguard.lease"))
        self.expect(0, "lease", "release", "--source", url, "--resource", "jobs/b", "--token", held["token"], "--holder",
                    held["holder"])
        wait_until(lambda: self.is_held(first) or self.is_held(second))
        leader, other = (first, second) if self.is_held(first) else (second, first)
        self.assertEqual(leader.stop(), 0)
        self.await_held(other)


class ProgramTest(AccountTests, HoldCase):
    """A program that read under an earlier tenure writes nothing before it says that it begins anew, though its pool has
    connected again unnoticed; one that was started since need not say anything."""

    TAKES = ()
    WRITTEN = "None"

    def setUp(self):
        super().setUp()
        self.run_directly("create table accounts (balance int); insert into accounts values (100)")

    def balance(self):
        return int(self.run_directly("select balance from accounts"))

    def program(self, sidecar):
        return Program(self, "postgres", f"postgresql+psycopg2://postgres@{sidecar.data}/{self.database}")

    def test_unnoticed_reconnect_does_not_write_what_is_outdated(self):
        first = self.hold(*SOON)
        self.await_held(first)
        second = self.hold(*LATE)
        account = self.program(first)
        self.assertEqual(account.ask("read"), "100")
        self.pause(first)
        self.await_held(second)
        self.add_30(second)
        self.assertEqual(second.stop(), 0)
        self.resume(first)
        wait_until(lambda: "event=held " in first.log().partition("held no longer")[2], what="a sidecar that holds again")
        lost = r"FATAL:\s+the lease was lost at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ; start again from the read \(process "
        for words in (("write", 150), ("read",), ("forked", "write", 150), ("begin", self.token() - 1), ("write", 150)):
            said = account.ask(*words)
            self.assertEqual(said, "None") if words[0] == "begin" else self.assertRegex(said, lost)
        self.assertEqual(self.balance(), 130)
        self.assertIn("fenceguard_hold_refusals_total 4\n", first.call("GET", "/metrics").body.decode())
        token = re.search(r"fenceguard\.begin=(\d+)", said)[1]
        self.assertEqual(int(token), self.token())
        self.assertEqual(account.ask("begin", token), "None")
        self.assertEqual(account.ask("write", int(account.ask("read")) + 50), "None")
        self.add_30(first)
        # What it said is of that tenure: its pool, which repeats it, is refused in the next one.
        self.expect(0, "fence", "revoke", "--server", first.url, "--resource", RESOURCE)
        self.assertIn("is stale", account.ask("write", 0))
        wait_until(lambda: self.token() > int(token))
        self.await_held(first)
        self.assertRegex(account.ask("write", 0), lost)
        self.assertEqual(self.balance(), 210)

    def test_sidecar_that_was_started_anew_lets_no_older_program_in(self):
        serve = self.serve_here("--storage", self.postgres.url(self.database), "--hold", RESOURCE, *LATE)
        again = self.start_anew(serve, lambda: self.hold(*LATE), "the lease was taken at .*; start again from the read ")
        self.connect(again, ("fenceguard.begin", str(self.token() + 1)))
        self.assertEqual((states(self.start), has_ended(self.start)), (["ZF009"], True))
        client = self.connect(again, ("fenceguard.begin", str(self.token())))
        self.assertEqual(states(client.ask(query(INSERT.format("a")))), [])

    def test_script_of_new_programs_says_its_first_lease(self):
        sidecar = self.hold(*LATE)
        self.await_held(sidecar)
        began = self.token()

        def step(sql, token=began):
            return self.psql(sidecar, sql, stops=False, env={"PGOPTIONS": f"-c fenceguard.begin={token}"})

        self.assertEqual(step("select balance from accounts"), ("100", ""))
        self.expect(0, "fence", "revoke", "--server", sidecar.url, "--resource", RESOURCE)
        self.assertIn("is stale", step("update accounts set balance = 0")[1])
        wait_until(lambda: self.token() > began, what="the next lease")
        self.await_held(sidecar)
        self.psql(sidecar, "update accounts set balance = balance + 30")
        for token, words in ((began, f"the lease of token {began} is over"), ("x", "is the token of a lease")):
            self.assertIn(words, step("update accounts set balance = 150", token)[1])
        self.assertEqual(self.balance(), 130)
        self.assertEqual(step("select balance from accounts", self.token()), ("130", ""))


class OptionsTest(HoldCase):
    def test_held_claim_needs_no_signature(self):
        key = base64.urlsafe_b64encode(b"k" * 32).rstrip(b"=").decode()
        sidecar = self.hold(*LATE, "--claim-key", self.write_private("keys", f"k1 {key}\n"), "--require-signature")
        self.psql(sidecar, "insert into entries (who) values ('a')")
        self.assertEqual(self.entries(), "a")

    def test_what_does_not_go_together_gets_a_sentence(self):
        postgres = ("--storage", self.postgres.url(self.database), "--hold", "a")
        listening = ("--listen", "127.0.0.1:0")
        for arguments, sentence in (
                (postgres, "give --listen"),
                ((*postgres, "--listen", "none"), "give --listen"),
                ((*postgres, *listening, "--unfenced", "allow"), "--unfenced has nothing to say"),
                ((*postgres, *listening, "--hold-ttl", "1ms"), "time to live"),
                ((*postgres, *listening, "--hold", "a//b"), "--hold"),
                (("--hold-ttl", "1s"), "--hold-ttl is for"),
                (("--hold-reconnect", "allow"), "--hold-reconnect is for"),
                (("--storage", "sqlite:data.db", "--hold", "a"), "--hold is for a postgres: or redis: storage"),
                (("--storage", "http://127.0.0.1:1", "--hold", "a"), "--hold is for a postgres: or redis: storage")):
            with self.subTest(arguments=arguments):
                self.assertIn(sentence, self.expect(2, "serve", "--control", "127.0.0.1:0", *arguments).stderr)


if __name__ == "__main__":
    parts.main()
