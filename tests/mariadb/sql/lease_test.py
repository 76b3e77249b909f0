"""The token source in SQL: numbers that rise, whose lease it is, and what a server that died remembers."""

import itertools
import threading
import unittest

from sessions import ServerTest

from mariadb_server import statements
from waiting import wait_until

ACQUIRE = "call acquire('r', {}, '{}')"


class Leases(ServerTest):
    def setUp(self):
        super().setUp()
        self.sql("delete from leases")
        self.sql("update counter set last = 0")
        self.client = self.session()

    def acquire(self, holder, ttl_ms=60_000):
        return self.client.run(ACQUIRE.format(ttl_ms, holder))[0]

    def test_lock_is_held_until_released_and_the_token_rises(self):
        self.assertEqual(self.acquire("a"), ("granted", 1, 1, None))
        self.assertEqual(self.acquire("a"), ("granted", 1, 0, None))
        verdict, token, _, retry_after_ms = self.acquire("b")
        self.assertEqual((verdict, token), ("held", None))
        self.assertTrue(0 < retry_after_ms <= 60_000)
        for token, holder in ((1, "b"), (2, "a")):
            self.assertEqual(self.client.run(f"call release_lease('r', {token}, '{holder}')")[0][0], 0)
            self.assertEqual(self.client.run(f"call renew('r', {token}, '{holder}', 60000)")[0][0], 0)
        self.assertEqual(self.client.run("call renew('r', 1, 'a', 60000)")[0][0], 1)
        self.assertEqual(self.client.run("call release_lease('r', 1, 'a')")[0][0], 1)
        self.assertEqual(self.client.run("call renew('r', 1, 'a', 60000)")[0][0], 0)
        self.assertEqual(self.acquire("b"), ("granted", 2, 1, None))

    def test_the_counter_is_lifted_and_never_lowered(self):
        self.assertEqual(self.client.run("call raise_counter(50)"), ((50,),))
        self.assertEqual(self.client.run("call raise_counter(5)"), ((50,),))
        self.assertEqual(self.acquire("a")[1], 51)
        self.assertEqual(self.client.run("call draw()"), ((52,),))
        self.assertEqual(self.client.run("call lowest_live()"), ((51,),))
        self.client.run("call end_lease('r')")
        self.assertEqual(self.client.run("call lowest_live()"), ((53,),))

    def test_a_counter_that_is_missing_or_used_up_grants_nothing(self):
        self.sql("update counter set last = 9223372036854775807")
        self.assertIn("highest token", self.assert_fails(self.client, ACQUIRE.format(1000, "a"), 1644))
        self.sql("delete from counter")
        self.assertIn("missing", self.assert_fails(self.client, ACQUIRE.format(1000, "a"), 1644))
        self.client.run("call raise_counter(7)")
        self.assertEqual(self.acquire("a")[1], 8)

    def test_token_rises_even_if_the_counter_fell_back(self):
        self.assertEqual(self.acquire("a", 10)[1], 1)
        self.sql("update leases set token = 40, expires_at = '1970-01-01'")
        self.assertEqual(self.acquire("b")[1], 41)

    def test_a_session_that_sets_its_own_time_or_zone_gets_the_same(self):
        keeper = self.session()
        self.assertEqual(keeper.run("call acquire_named('n', 60000, 'n')")[0][:2], ("granted", 1))
        self.assertEqual(self.acquire("a")[:2], ("granted", 2))
        for setting in ("timestamp = unix_timestamp('2037-01-01')", "timestamp = unix_timestamp() + 61", "timestamp = 1",
                        "timestamp = unix_timestamp() - 59", "time_zone = '+13:00'"):
            client = self.session()
            client.run(f"set {setting}")
            verdict, _, _, retry_after_ms = client.run(ACQUIRE.format(60_000, "b"))[0]
            self.assertEqual(verdict, "held", setting)
            self.assertTrue(0 < retry_after_ms <= 60_000, setting)
            self.assertEqual(client.run(ACQUIRE.format(60_000, "a"))[0][:2], ("granted", 2))
            before = self.sql("select utc_timestamp(6)")[0][0]
            self.assertEqual(client.run("call renew('r', 2, 'a', 60000)"), ((1, None),))
            self.assertTrue(self.sql("select expires_at between %s + interval 60 second and utc_timestamp(6) + interval 60 second "
                                     "from leases where resource = 'r'", (before,))[0][0], setting)
            self.assertEqual(client.run("call acquire_named('n', 60000, 'b')")[0][0], "held")
            self.assertEqual(client.run("call lowest_live()"), ((1,),))
            self.assertEqual(client.run("select @@time_zone"), (("+13:00" if "zone" in setting else "SYSTEM",),))

    def test_what_is_no_time_to_live_is_refused(self):
        for ttl in (9, 0, -1, "'x'", 86_400_001, 1.5, "null"):
            self.assertIn("time to live", self.assert_fails(self.client, ACQUIRE.format(ttl, "a"), 1644))
            self.assertIn("time to live", self.assert_fails(self.client, f"call renew('r', 1, 'a', {ttl})", 1644))

    def test_concurrent_requests_get_distinct_tokens_one_lock_each(self):
        granted = []

        def ask(number):
            with self.server.session(self.dbname) as session:
                for turn in range(20):
                    name = f"lock/{turn % 5}"
                    verdict, token, *_ = session.run(f"call acquire('{name}', 60000, 'h{number}')")[0]
                    if verdict == "granted":
                        granted.append((token, name))
                        session.run(f"call release_lease('{name}', {token}, 'h{number}')")

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(set(granted)), len(granted))
        self.assertEqual(len({token for token, _ in granted}), len(granted))
        self.assertEqual(self.sql("select last from counter"), ((len(granted),),))

    def test_who_draws_while_another_does_waits_and_draws_above_it(self):
        first, second = self.session(), self.session()
        first.run("start transaction")
        first.run("update counter set last = last + 1")
        second.begin_run(ACQUIRE.format(60_000, "b"))
        self.server.wait_until_waiting(second)
        first.run("commit")
        self.assertEqual(second.wait()[0][:2], ("granted", 2))

    def test_session_lease_ends_with_it_and_excludes_the_other_kind(self):
        self.acquire("a", 10)
        keeper = self.session()
        wait_until(lambda: keeper.run("call acquire_named('r', 60000, 'n')")[0][0] == "granted", what="the end of 10 ms")
        self.assertEqual(self.sql("select token, keeper = %s from lease", (keeper.id,)), ((2, 1),))
        self.assertEqual(keeper.run("call acquire_named('r', 60000, 'other')")[0][0], "held")
        self.assertEqual(keeper.run("call confirm_named('r', 2, 'n')"), ((1,),))
        self.assertEqual(self.session().run("call acquire_named('r', 60000, 'm')")[0][0], "held")
        self.assertEqual(self.acquire("b")[0], "held")
        for call in ("renew('r', 2, 'n', 1000)", "release_lease('r', 2, 'n')"):
            self.assertEqual(self.client.run(f"call {call}")[0][0], 0)
        self.assertEqual(self.client.run("call lowest_live()"), ((2,),))
        self.assertEqual(self.client.run("call end_lease('r')"), ((1, keeper.id),))
        self.client.run(f"kill {keeper.id}")
        wait_until(lambda: self.acquire("b")[0] == "granted", what="the end of the session")
        self.assertEqual(self.sql("select token, keeper from lease"), ((3, None),))
        self.assertEqual(self.session().run("call acquire_named('r', 60000, 'm')")[0][0], "held")
        self.client.run("call release_lease('r', 3, 'b')")
        another = self.session()
        self.assertEqual(another.run("call acquire_named('r', 60000, 'm')")[0][:2], ("granted", 4))
        self.assertEqual(another.run("call release_named('r')"), ((1,),))
        self.assertEqual(another.run("call release_named('r')"), ((0,),))
        self.assertEqual(self.sql("select * from lease"), ())

    def test_a_lease_of_a_session_from_before_the_secret_is_held_on(self):
        """Its lock has a name that anybody knows: it counts for the session that has the lease, and for a call under way."""
        older, under_way, stranger = self.session(), self.session(), self.session()
        for session, name in ((older, "r"), (under_way, "q"), (stranger, "p")):
            self.assertEqual(session.run(f"select get_lock(sha2('{self.dbname}/{name}', 256), 0)"), ((1,),))
        self.sql(f"insert into leases values ('r', 1, 'n', '9999-12-31', {older.id})")
        self.sql("update counter set last = 1")
        self.sql("drop table lock_secret")
        self.sql("create or replace procedure acquire_named(resource longtext, ttl_ms longtext, holder longtext) select 'held'")
        for statement in itertools.takewhile(lambda s: " FUNCTION judge(" not in s, statements()):
            self.client.run(statement)  # the first try, which a transaction that stands still brings to its end
        self.sql("update lock_secret set made_at = utc_timestamp(6) - interval 10 minute where made_at > '2000-01-01'")
        self.server.install(self.dbname)
        self.addCleanup(self.sql, "update lock_secret set made_at = '1970-01-01'")
        other = self.session()
        self.assertEqual(older.run("call confirm_named('r', 1, 'n')"), ((1,),))
        for name in ("r", "q"):
            self.assertEqual(other.run(f"call acquire_named('{name}', 60000, 'm')")[0][0], "held", name)
        self.assertEqual(self.client.run("call acquire('r', 60000, 'm')")[0][0], "held")
        self.assertEqual(self.client.run("select is_used_lock(lock_name('r'))"), ((older.id,),))  # whom an older binary ends
        self.assertEqual(under_way.run("select release_lock(lock_name('q'))"), ((1,),))
        self.assertEqual(other.run("call acquire_named('q', 60000, 'm')")[0][:2], ("granted", 2))
        self.assertEqual(other.run("call release_named('q')"), ((1,),))
        self.assertEqual(self.client.run("call lowest_live()"), ((1,),))
        self.sql("update lock_secret set made_at = made_at - interval 61 second")
        self.server.install(self.dbname)  # begins no other minute: nothing that is older was there
        self.assertEqual(other.run("call acquire_named('r', 60000, 'm')")[0][0], "held")
        self.assertEqual(older.run("call release_named('r')"), ((1,),))
        for number, name in enumerate(("r", "p"), 3):
            self.assertEqual(other.run(f"call acquire_named('{name}', 60000, 'm')")[0][:2], ("granted", number))
            self.assertEqual(self.client.run(f"select is_used_lock(lock_name('{name}'))"), ((other.id,),))
            self.assertEqual(other.run(f"call confirm_named('{name}', {number}, 'm')"), ((1,),))
            self.assertEqual(stranger.run(f"call acquire_named('{name}', 60000, 'x')")[0][0], "held")
            self.assertEqual(other.run(f"call release_named('{name}')"), ((1,),))
        # What a call that was overtaken left in its session, which lives on in a pool.
        self.assertEqual(stranger.run("call acquire_named('p', 60000, 'x')")[0][:2], ("granted", 5))
        self.assertEqual(stranger.run("call confirm_named('p', 5, 'x')"), ((1,),))

    def test_lowest_token_is_reported_beside_a_stalled_transaction(self):
        self.acquire("a")
        still = self.session()
        still.run("start transaction")
        for table in ("counter", "leases"):
            still.run(f"select * from {table} for update")
        self.assertEqual(self.client.run("call lowest_live()"), ((1,),))

    def test_a_server_that_was_killed_repeats_no_number(self):
        last = 0
        for _ in range(3):
            for _ in range(5):
                _, token, *_ = self.acquire("a")
                self.client.run(f"call release_lease('r', {token}, 'a')")
                self.assertGreater(token, last)
                last = token
            self.server.kill()
            self.server.start()
            self.client = self.session()


if __name__ == "__main__":
    unittest.main()
