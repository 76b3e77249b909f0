#!/usr/bin/python3
"""Claims through a real PgBouncer in transaction mode, where clients take turns on one connection to the server."""

import os
import re
import sys
import unittest

POSTGRES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [POSTGRES, os.path.join(POSTGRES, "..", "kit")]
from pgbouncer import CONFIGURATION, PgBouncer  # noqa: E402
from postgres_server import FAST, ConnectionLost, Server, SqlError  # noqa: E402


class PgBouncerTest(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.remove)
        self.database = self.server.create_database(install=True)
        self.server.psql("create table account(id integer primary key, balance bigint);"
                         "insert into account values (42, 100);"
                         "select fenceguard.protect('account', $$ 'accounts/' || id $$)", self.database)
        self.bouncer = PgBouncer(self.server)
        self.addCleanup(self.bouncer.remove)
        self.a, self.b = self.bouncer.session(self.database), self.bouncer.session(self.database)
        self.assertEqual(self.a.run("select pg_backend_pid()"), self.b.run("select pg_backend_pid()"),
                         "the two do not share a connection, so this would show nothing")

    def refusal(self, session, sql):
        with self.assertRaises(SqlError) as refusal:
            session.run(sql)
        session.run("rollback")
        return refusal.exception.sqlstate

    def test_claim_ends_with_its_transaction_behind_the_pooler(self):
        self.assertEqual(self.refusal(self.b, "update account set balance = 1"), "ZF003")
        self.a.run("begin; select fenceguard.admit('accounts/42', 34, 'a'); update account set balance = 70; commit")
        self.assertEqual(self.refusal(self.b, "update account set balance = 2"), "ZF003")
        self.a.run("update account set balance = 71 where id = 42 and fenceguard.admitted('accounts/42', 34, 'a')")
        self.assertEqual(self.refusal(self.b, "update account set balance = 3"), "ZF003")
        self.assertEqual(self.refusal(self.b, "begin; update account set balance = 3"), "ZF003")
        self.assertEqual(self.server.psql("select balance from account", self.database), "71")

    def test_rolled_back_or_refused_claim_leaves_nothing(self):
        self.a.run("begin; select fenceguard.admit('accounts/42', 34, 'a'); rollback")
        self.assertEqual(self.refusal(self.b, "update account set balance = 2"), "ZF003")
        self.a.run("begin; select fenceguard.admit('accounts/42', 35, 'a'); commit")
        self.assertEqual(self.refusal(self.a, "begin; select fenceguard.admit('accounts/42', 34, 'a')"), "ZF001")
        self.assertEqual(self.refusal(self.b, "update account set balance = 2"), "ZF003")
        self.assertEqual(self.server.psql("select balance from account", self.database), "100")

    def test_session_settings_of_a_client_are_no_claim_of_the_next(self):
        """The note of an admission, and what an older version took for one, kept in the connection that both share."""
        name = self.a.run("begin; select fenceguard.admit('accounts/42', 34, 'a') \\g /dev/null\n"
                          "select name from (select 'fenceguard.claims_' || i as name from generate_series(0, 63) i) n "
                          "where current_setting(name, true) <> ''")
        if FAST:  # which leaves none
            self.assertEqual(name, "")
            name = "fenceguard.claims_0"
        self.a.run(f"select set_config('{name}', coalesce(current_setting('{name}', true), 'accounts/42'), false) \\g /dev/null\n"
                   "commit; select set_config('fenceguard.claims', E'\\naccounts/42\\t34\\ta\\n', false)")
        self.assertIn("accounts/42", self.b.run(f"select current_setting('{name}')"))
        self.assertEqual(self.refusal(self.b, "update account set balance = 2"), "ZF003")
        self.assertEqual(self.refusal(self.b, "select fenceguard.require_noted('accounts/42', 34, 'a')"), "ZF003")
        self.b.run("begin; select fenceguard.admit('accounts/42', 34, 'a'); update account set balance = 70; commit")

    def test_claims_of_connections_are_refused_or_dropped(self):
        self.server.psql("select fenceguard.advance('accounts/42', 34, 'a')", self.database)
        write = "update account set balance = 1 returning balance"
        given = {"PGOPTIONS": '-c fenceguard.session_claims=[{"resource":"accounts/42","token":"34","holder":"a"}]'}
        self.assertEqual(self.server.psql(write, self.database, env=given), "1")
        with self.assertRaises(ConnectionLost) as refused:
            Server.psql(self.bouncer, write, self.database, env=given)
        self.assertRegex(refused.exception.stderr, "unsupported startup parameter.*options")
        dropping = PgBouncer(self.server, CONFIGURATION.replace("extra_float_digits", "extra_float_digits, options"))
        self.addCleanup(dropping.remove)
        with self.assertRaises(SqlError) as refusal:
            Server.psql(dropping, write, self.database, env=given)
        self.assertEqual(refusal.exception.sqlstate, "ZF003")

    def test_leases_and_advances_work_through_it(self):
        granted = self.a.run("select verdict, token from fenceguard.acquire('accounts/42', '1 min', 'a')")
        self.assertRegex(granted, r"^granted\|\d+$")
        token = re.search(r"\d+", granted)[0]
        self.assertEqual(self.b.run("select verdict from fenceguard.acquire('accounts/42', '1 min', 'b')"), "held")
        self.assertEqual(self.b.run(f"select fenceguard.advance('accounts/42', {token}, 'a')"), "admitted")
        self.assertEqual(self.a.run(f"select fenceguard.renew('accounts/42', {token}, 'a')"), "t")
        self.assertEqual(self.b.run(f"select fenceguard.release('accounts/42', {token}, 'a')"), "t")


if __name__ == "__main__":
    unittest.main()
