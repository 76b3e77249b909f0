#!/usr/bin/python3
"""A standby is promoted after asynchronous replication, and the primary's last commits are lost with it: grants and
fences among them, together with the data that they protected."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "kit"))
from postgres_server import Server, SqlError, wait_until  # noqa: E402


class StandbyTest(unittest.TestCase):
    def setUp(self):
        self.primary = Server()
        self.addCleanup(self.primary.remove)
        self.database = self.primary.create_database(install=True)
        self.primary.psql("create table account(id integer primary key, balance bigint);"
                          "insert into account values (42, 100);"
                          "select fenceguard.protect('account', $$ 'accounts/' || id $$)", self.database)
        self.standby = self.primary.standby()
        self.addCleanup(self.standby.remove)
        self.wait_for_replay()

    def wait_for_replay(self):
        here = self.primary.psql("select pg_current_wal_lsn()")
        wait_until(lambda: self.standby.psql(f"select pg_last_wal_replay_lsn() >= '{here}'") == "t",
                   what="replay of everything")

    def cut_off(self):
        """From now on nothing reaches the standby."""
        self.standby.psql("alter system set primary_conninfo = ''; select pg_reload_conf()")
        wait_until(lambda: self.primary.psql("select count(*) from pg_stat_replication") == "0",
                   what="an end of the replication")

    def grant(self, server, holder):
        verdict, token = server.psql("select verdict, token from fenceguard.acquire('accounts/42', '1 min', "
                                     f"'{holder}')", self.database).split("|")
        self.assertEqual(verdict, "granted")
        return int(token)

    def write(self, server, token, holder, balance):
        server.psql(f"begin; select fenceguard.admit('accounts/42', {token}, '{holder}');"
                    f"update account set balance = {balance} where id = 42; commit", self.database)

    def test_number_issued_twice_is_a_conflict_for_the_second_holder(self):
        self.cut_off()
        old = self.grant(self.primary, "old")
        self.write(self.primary, old, "old", 1)
        self.primary.stop("immediate")
        self.standby.promote()
        # The sequence's values are logged ahead, so the promoted one jumps; the operator who sets it back does harm.
        self.standby.psql(f"select setval('fenceguard.token', {old}, false)", self.database)
        new = self.grant(self.standby, "new")
        self.assertEqual(new, old)
        self.assertEqual(self.standby.psql("select balance from account", self.database), "100")
        self.standby.psql(f"select fenceguard.advance('accounts/42', {new}, 'new')", self.database)
        with self.assertRaises(SqlError) as refusal:
            self.write(self.standby, old, "old", 2)
        self.assertEqual(refusal.exception.sqlstate, "ZF002")
        self.write(self.standby, new, "new", 3)
        self.assertEqual(self.standby.psql("select balance from account", self.database), "3")

    def test_promoted_standby_repeats_no_replicated_number(self):
        before = self.grant(self.primary, "old")
        self.write(self.primary, before, "old", 1)
        self.wait_for_replay()
        self.primary.stop("immediate")
        self.standby.promote()
        self.standby.psql("select fenceguard.end_lease('accounts/42')", self.database)
        after = self.grant(self.standby, "new")
        self.assertGreater(after, before)
        self.standby.psql(f"select fenceguard.advance('accounts/42', {after}, 'new')", self.database)
        with self.assertRaises(SqlError) as refusal:
            self.write(self.standby, before, "old", 2)
        self.assertEqual(refusal.exception.sqlstate, "ZF001")

    def test_a_standby_admits_no_claim_not_even_a_readers(self):
        token = self.grant(self.primary, "h")
        self.primary.psql(f"select fenceguard.advance('accounts/42', {token}, 'h')", self.database)
        self.wait_for_replay()
        for call in ("admit", "advance", "admitted"):
            with self.assertRaises(SqlError) as refusal:
                self.standby.psql(f"select fenceguard.{call}('accounts/42', {token}, 'h')", self.database)
            self.assertEqual(refusal.exception.sqlstate, "25006", refusal.exception.stderr)
        with self.assertRaises(SqlError) as refusal:
            self.standby.psql(f"select * from fenceguard.try_admit('accounts/42', {token}, 'h')", self.database)
        self.assertEqual(refusal.exception.sqlstate, "25006")


if __name__ == "__main__":
    unittest.main()
