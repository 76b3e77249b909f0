"""Clients that are stopped inside a transaction, strangers that take our locks, and a revoke that names its token: who
waits for how long, and who is cut."""

import time
import unittest

from sessions import ADMIT, BALANCES, WRITES, ServerTest


class Limits(ServerTest):
    """Nobody waits for ever: each lock that is taken has a limit, after which whoever keeps it is cut, or it is refused.
    The drain of 0.2 s is where the test's own client is to be cut; 60 s, which is the database's, where it is not."""

    def leased(self, resource="accounts/1", holder="h"):
        return self.sql(f"select token from fenceguard.acquire('{resource}', '1 hour', '{holder}')")

    def test_revoke_ends_a_client_stopped_in_a_renewal(self):
        token = self.leased()
        self.sql(f"select fenceguard.advance('accounts/1', {token}, 'h')")
        stopped, revoking, writer = self.session(), self.session(), self.session()
        stopped.run(f"begin; select fenceguard.renew('accounts/1', {token}, 'h')")
        self.begin_waiting(revoking, "select fenceguard.revoke('accounts/1', drain => '8 s')")
        writer.run(f"begin; {WRITES['protected'].format(token=token, holder='h', value=7)}; commit", limit_s=30)
        self.assertEqual(revoking.wait(), "t")
        self.assert_fails("57P01", stopped.run, "commit")
        self.assertEqual(self.sql("select count(*) from fenceguard.lease"), "0")

    def test_wait_only_revoke_gives_up_and_changes_nothing(self):
        token = self.leased()
        stopped = self.session()
        stopped.run(f"begin; select fenceguard.renew('accounts/1', {token}, 'h')")
        self.assert_fails("55P03", self.sql, "select fenceguard.revoke('accounts/1', drain => '0.2 s', cut => false)")
        stopped.run("commit")
        self.assertEqual(self.sql("select count(*) from fenceguard.lease"), "1")

    def test_asking_for_a_held_lock_does_not_delay_its_renewal(self):
        token = self.leased()
        asking, holder = self.session(), self.session()
        self.assertEqual(asking.run("begin; select verdict from fenceguard.acquire('accounts/1', '1 hour', 'other')"), "held")
        self.assertEqual(holder.run(f"set lock_timeout = '10 s'; select fenceguard.renew('accounts/1', {token}, 'h')"), "t")
        self.assertEqual(asking.run("select 1; commit"), "1")

    def test_an_uncommitted_grant_is_cut_by_the_next_acquire(self):
        for before in ("select 1", "select fenceguard.acquire('accounts/1', '10 ms', 'first'); select pg_sleep(0.02)"):
            with self.subTest(before):
                self.setUp()
                self.sql(before)
                stopped = self.session()
                stopped.run("begin; select fenceguard.acquire('accounts/1', '1 hour', 'h')")
                self.assertEqual(self.sql("set fenceguard.drain = '0.2 s'; "
                                          "select verdict from fenceguard.acquire('accounts/1', '1 hour', 'other')"), "granted")
                self.assert_fails("57P01", stopped.run, "commit")

    def test_nor_does_it_keep_the_counter_for_ever(self):
        for sql in ("select fenceguard.raise(1000)", "select fenceguard.draw()"):
            stopped = self.session()
            stopped.run("begin; select fenceguard.acquire('accounts/1', '1 hour', 'h')")
            self.sql(sql)
            self.assert_fails("57P01", stopped.run, "commit")

    def test_wait_for_a_new_lease_row_is_bounded(self):
        stopped = self.session()
        stopped.run("begin; select fenceguard.prepare_row('accounts/1')")
        self.sql("select fenceguard.prepare_row('accounts/1')")
        self.assert_fails("57P01", stopped.run, "commit")

    def test_a_revoke_cuts_an_uncommitted_advance(self):
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        stopped = self.session()
        stopped.run("begin; select fenceguard.advance('accounts/1', 35, 'b')")
        self.assertEqual(self.sql("select fenceguard.revoke('accounts/1', drain => '0.2 s')"), "t")
        self.assert_fails("57P01", stopped.run, "commit")
        self.assertEqual(self.sql("select token || holder || closed from fenceguard.fence"), "34atrue")

    def test_wait_for_an_uncommitted_advance_is_bounded(self):
        """It is newer, so it is not cut. They are told that the lock is not available."""
        for way, write in WRITES.items():
            with self.subTest(way):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                stopped, writer = self.session(), self.session()
                stopped.run("begin; select fenceguard.advance('accounts/1', 35, 'b')")
                error = self.assert_fails("55P03", writer.run, "begin; set local fenceguard.drain = '0.2 s'; "
                                          + write.format(token=34, holder="a", value=666))
                self.assertIn(f"backend {stopped.pid}", error.detail)
                stopped.run("commit")

    def test_writers_cut_older_claims_and_foreign_locks(self):
        for kept in ("select pg_advisory_lock(fenceguard.lock_key('accounts/1'))",
                     "begin; select fenceguard.try_advance('accounts/1', 33, 'z')"):
            for way, write in WRITES.items():
                with self.subTest(f"{way}: {kept}"):
                    self.setUp()
                    stranger, writer = self.session(), self.session()
                    if "33" in kept:
                        # Its turn comes when it is stale already.
                        newer = self.session()
                        newer.run("begin; select fenceguard.advance('accounts/1', 34, 'a')")
                        self.begin_waiting(stranger, kept)
                        newer.run("commit")
                        stranger.wait()
                    else:
                        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                        stranger.run(kept)
                    writer.run("begin; set local fenceguard.drain = '0.2 s'; "
                               + write.format(token=34, holder="a", value=7) + "; commit")
                    self.assertIn("7", self.sql(BALANCES).split())
                    self.assert_fails("57P01", stranger.run, "select 1")

    def test_lock_that_resembles_a_token_delays_no_advance(self):
        """Any application may take it; and whoever may claim can choose the token."""
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        stranger, old, newest = self.session(), self.session(), self.session()
        for token in (35, 36):
            for part in range(3):
                tag = self.sql(f"select fenceguard.tag(fenceguard.lock_key('accounts/1'), {part}, {token})")
                stranger.run(f"select pg_advisory_lock(({tag} >> 32)::integer, (({tag}::bigint << 32) >> 32)::integer)")
        newest.run("begin; select fenceguard.try_admit('accounts/1', 36, 'c'); commit")
        self.assertEqual(self.sql("select fenceguard.advance('accounts/1', 35, 'b', '0.2 s', false)"), "admitted")
        old.run("begin; " + ADMIT.format(token=35, holder="b"))
        self.assertEqual(self.sql("select fenceguard.advance('accounts/1', 36, 'c', '0.2 s')"), "admitted")
        self.assert_fails("57P01", old.run, "commit")
        self.assertEqual(stranger.run("select 1"), "1")

    def test_session_with_a_lease_keepers_lock_is_awaited_then_cut(self):
        stranger, asking = self.session(), self.session()
        stranger.run("select pg_advisory_lock(fenceguard.lease_tag_key('accounts/1'))")
        acquire = "select verdict from fenceguard.acquire('accounts/1', '1 hour', 'h')"
        self.assert_fails("55P03", self.sql, f"set fenceguard.drain = '0.2 s'; set fenceguard.cut = off; {acquire}")
        self.begin_waiting(asking, acquire)
        stranger.run("select pg_advisory_unlock_all()")
        self.assertEqual(asking.wait(), "granted")
        self.setUp()
        stranger = self.session()
        stranger.run("select pg_advisory_lock(fenceguard.lease_tag_key('accounts/1'))")
        self.assertEqual(self.sql(f"set fenceguard.drain = '0.2 s'; {acquire}"), "granted")
        self.assert_fails("57P01", stranger.run, "select 1")

    def test_nor_by_the_locks_of_the_floor_and_of_the_counter(self):
        stranger = self.session()
        stranger.run("select pg_advisory_lock(fenceguard.floor_lock_key()), pg_advisory_lock(fenceguard.counter_lock_key())")
        self.assertEqual(self.sql("select verdict from fenceguard.acquire('accounts/1', '1 hour', 'h')"), "granted")
        self.assertEqual(self.sql("select fenceguard.advance('accounts/1', 1, 'h')"), "admitted")
        self.assert_fails("57P01", stranger.run, "select 1")

    def test_wait_for_a_fence_row_below_a_rising_floor_is_bounded(self):
        """Who moves the floor keeps the rows below it locked until he commits. A claim with a sequence, or above READ
        COMMITTED, locks its fence's row."""
        claims = ["begin; " + write.replace("'{holder}'", "'{holder}', {value}").format(token=34, holder="a", value=7)
                  for write in (WRITES["admit"], WRITES["try_admit"])]
        claims += [f"begin isolation level {level}; {WRITES['admit'].format(token=34, holder='a', value=7)}"
                   for level in ("repeatable read", "serializable")]
        calls = ("select fenceguard.init(40)", "select fenceguard.compact(40)")
        for housekeeping, claim, cut in zip(calls * 2, claims, ("off", "on", "on", "off")):
            with self.subTest(f"{housekeeping}: {claim}"):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                stopped, writer = self.session(), self.session()
                stopped.run(f"begin; {housekeeping}")
                writer.run(f"set fenceguard.drain = '0.2 s'; set fenceguard.cut = {cut}")
                if cut == "off":
                    self.assert_fails("55P03", writer.run, claim, 20)
                    writer.run("rollback; reset fenceguard.cut")
                writer.run(claim + "; commit")
                self.assertEqual(self.sql(BALANCES), "7 100")
                self.assert_fails("57P01", stopped.run, "commit")
                self.assertEqual(self.sql("select floor || ' ' || token from fenceguard.floor, fenceguard.fences"),
                                 "0 34")

    def test_short_lock_timeout_does_not_cut_a_holder_sooner(self):
        """These locks are everybody's, and anybody may claim."""
        self.server.psql("create role impatient login")
        self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
        for call in ("select fenceguard.advance('accounts/2', 50, 'h')", "select fenceguard.acquire('accounts/2')",
                     "select fenceguard.admit('accounts/1', 34, 'a', 7)",
                     "begin isolation level repeatable read; select fenceguard.admit('accounts/1', 34, 'a')"):
            with self.subTest(call):
                keeper, impatient = self.session(), self.session("impatient")
                keeper.run("begin; select fenceguard.init(40), pg_advisory_xact_lock(fenceguard.counter_lock_key())")
                self.assert_fails("55P03", impatient.run, "set fenceguard.drain = '0'; set lock_timeout = '10 ms'; " + call)
                impatient.run("rollback; reset lock_timeout")
                impatient.begin_run(call)
                time.sleep(0.5)
                self.assertFalse(impatient.is_over())
                keeper.run("rollback")
                impatient.wait()

    def test_housekeeping_cuts_no_session_and_names_the_blocker(self):
        stopped = self.session()
        stopped.run("begin; select fenceguard.advance('accounts/1', 35, 'b')")
        error = self.assert_fails("55P03", self.sql, "select fenceguard.compact(30)")
        self.assertIn(f"backend {stopped.pid}", error.detail)
        self.assertEqual(stopped.run("select 1; commit"), "1")

    def test_renewal_ends_its_holders_other_stopped_connection(self):
        token = self.leased()
        stopped = self.session()
        stopped.run(f"begin; select fenceguard.renew('accounts/1', {token}, 'h')")
        self.assertEqual(self.sql(f"set fenceguard.drain = '0.2 s'; select fenceguard.renew('accounts/1', {token}, 'h')"), "t")
        self.assert_fails("57P01", stopped.run, "commit")
        stopped = self.session()
        stopped.run(f"begin; select fenceguard.renew('accounts/1', {token}, 'h')")
        self.assertEqual(self.sql(f"set fenceguard.drain = '0.2 s'; select fenceguard.renew('accounts/1', {token}, 'x')"), "f")
        stopped.run("commit")


ABSURD = 9223372036854775806
FAR = 1 << 44


class Numbers(ServerTest):
    """A client that may call what everybody may, and nothing else, uses up no numbers for others."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.psql("create role client login", cls.installed)

    def setUp(self):
        super().setUp()
        self.sql("select setval('fenceguard.token', 1000); update fenceguard.limits set jump_max = 17592186044416")

    def advance(self, resource, token, user="client", rest=""):
        return self.sql(f"select verdict from fenceguard.try_advance('{resource}', {token}, 'h'{rest})", user)

    def test_no_way_of_a_claim_raises_a_fence_without_bound(self):
        ways = ("advance('r', {}, 'h')", "admit('r', {}, 'h')", "try_advance('r', {}, 'h', jump_max => 0)",
                "rule('r', {}, 'h', jump_max => 9223372036854775807)", "require_admitted('r', {}, 'h')",
                """rule_all('[{{"resource": "r", "token": "{}", "holder": "h"}}]', jump_max => 0)""",
                """admit_all('[{{"resource": "r", "token": "{}", "holder": "h"}}]')""")
        for way in ways:
            for token in (ABSURD, 1000 + FAR + 1):
                with self.subTest(way, token=token):
                    error = self.assert_fails("ZF004", self.sql, "select * from fenceguard." + way.format(token), "client")
                    self.assertIn("fenceguard fence init", error.stderr)
        self.assertEqual(self.sql("select count(*) from fenceguard.fences"), "0")
        self.assertEqual(self.sql("select token from fenceguard.acquire('r')", "client"), "1001")

    def test_what_was_seen_is_the_floor_the_counter_and_every_fence(self):
        self.assertEqual(self.advance("r", 1000 + FAR), "admitted")
        self.assertEqual(self.advance("s", 1000 + 2 * FAR), "admitted")
        self.assert_fails("ZF004", self.advance, "t", 1001 + 3 * FAR)
        self.sql(f"select fenceguard.init({10 * FAR})")
        self.assertEqual(self.advance("t", 11 * FAR), "admitted")
        self.sql(f"select setval('fenceguard.token', {100 * FAR})")
        self.assertEqual(self.advance("u", 100 * FAR), "admitted")

    def test_the_owner_sets_the_bound_and_has_none(self):
        self.sql("update fenceguard.limits set jump_max = 5")
        self.assert_fails("ZF004", self.advance, "r", 1006)
        self.assert_fails("ZF004", self.advance, "r", 1006, "client", ", jump_max => 100")
        self.assert_fails("ZF004", self.advance, "r", 1003, "client", ", jump_max => 2")
        self.assertEqual(self.advance("r", 1005), "admitted")
        self.assertEqual(self.advance("r", 2000, "postgres"), "admitted")
        self.sql("update fenceguard.limits set jump_max = 0")
        self.assertEqual(self.advance("r", ABSURD), "admitted")

    def test_the_counter_is_not_raised_without_bound(self):
        error = self.assert_fails("ZF004", self.sql, f"select fenceguard.raise({ABSURD})")
        self.assertIn("fenceguard fence rebase", error.stderr)
        self.sql(f"select fenceguard.raise({1000 + FAR})")
        self.assertEqual(self.sql("select token from fenceguard.acquire('r')"), str(1001 + FAR))

    def test_the_counter_is_lowered_by_hand(self):
        self.assertEqual(self.sql("select token from fenceguard.acquire('stays', '1 hour', 'h')"), "1001")
        self.sql(f"select fenceguard.raise_far({ABSURD}, 'me')")
        self.assertEqual(self.sql("select token from fenceguard.acquire('goes', '1 hour', 'h')"), str(ABSURD + 1))
        self.assert_fails("2200H", self.sql, "select fenceguard.acquire('r')")
        for words in ("lower_counter(1001)", "raise_far(2000)", "lift_counter(2000, 5000)"):
            self.assert_fails("42501", self.sql, f"select fenceguard.{words}", "client")
        self.assertEqual(self.sql("select fenceguard.lower_counter(1001, 'me')"), str(ABSURD + 1))
        self.assertEqual(self.sql("select resource from fenceguard.lease"), "stays")
        self.assertEqual(self.sql("select token from fenceguard.acquire('goes', '1 hour', 'h')"), "1002")
        self.assertEqual(self.sql("select token_from, token_to, done_by from fenceguard.rebases where resource = '' "
                                  "order by done_at").splitlines(),
                         [f"1001|{ABSURD}|me", f"{ABSURD + 1}|1001|me"])
        for mark, state in (("1002", "22023"), ("5000", "22023"), ("0", "22023"), ("null", "ZF003")):
            self.assert_fails(state, self.sql, f"select fenceguard.lower_counter({mark})")

    def test_bounded_advances_of_several_resources_do_not_wait(self):
        first, second = self.session("client"), self.session("client")
        first.run("begin; select fenceguard.advance('a', 1500, 'h')")
        second.run("begin; select fenceguard.advance('b', 1501, 'h'); commit", limit_s=30)
        first.run("commit")


class Named(ServerTest):
    """A revoke that names a token touches that token only."""

    def test_overtaken_revoke_closes_nothing_and_cuts_no_writer(self):
        self.sql("select fenceguard.advance('accounts/1', 5, 'old')")
        self.sql("select fenceguard.advance('accounts/1', 9, 'new')")
        writer = self.session()
        writer.run("begin; " + WRITES["protected"].format(token=9, holder="new", value=7))
        self.assertEqual(self.sql("select fenceguard.revoke('accounts/1', 5, 'old', drain => '0.1 s')"), "f")
        writer.run("commit")
        self.assertEqual(self.sql(BALANCES), "100 7")
        self.assertEqual(self.sql("select token || holder || closed from fenceguard.fence"), "9newfalse")

    def test_revoke_overtaken_while_waiting_closes_nothing(self):
        self.sql("select fenceguard.advance('accounts/1', 5, 'old')")
        newer, revoking = self.session(), self.session()
        newer.run("begin; select fenceguard.advance('accounts/1', 9, 'new')")
        self.begin_waiting(revoking, "select fenceguard.revoke('accounts/1', 5, 'old')")
        newer.run("commit")
        self.assertEqual(revoking.wait(), "f")
        self.assertEqual(self.sql("select token || holder || closed from fenceguard.fence"), "9newfalse")
        self.assertEqual(newer.run("select fenceguard.admit('accounts/1', 9, 'new')"), "admitted")

    def test_its_own_writer_is_cut_and_its_own_lease_ended(self):
        token = self.sql("select token from fenceguard.acquire('accounts/1', '1 hour', 'h')")
        self.sql(f"select fenceguard.advance('accounts/1', {token}, 'h')")
        writer = self.session()
        writer.run("begin; " + WRITES["protected"].format(token=token, holder="h", value=666))
        self.assertEqual(self.sql(f"select fenceguard.revoke('accounts/1', {token}, 'h', drain => '0.1 s')"), "t")
        self.assert_fails("57P01", writer.run, "commit")
        self.assertEqual(self.sql("select count(*) from fenceguard.lease"), "0")
        self.assert_fails("ZF001", self.sql, ADMIT.format(token=token, holder="h"))

    def test_lease_left_behind_by_its_fence_ends_and_the_fence_stays(self):
        token = int(self.sql("select token from fenceguard.acquire('accounts/1', '1 hour', 'h')"))
        self.sql(f"select fenceguard.advance('accounts/1', {token + 5}, 'other')")
        self.assertEqual(self.sql(f"select fenceguard.revoke('accounts/1', {token}, 'h')"), "t")
        self.assertEqual(self.sql("select count(*) from fenceguard.lease"), "0")
        self.assertEqual(self.sql("select closed from fenceguard.fence"), "f")


if __name__ == "__main__":
    unittest.main()
