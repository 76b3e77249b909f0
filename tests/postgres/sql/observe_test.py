#!/usr/bin/python3
"""Tables that are observed: what would be refused is warned of and counted, and every write goes through as it would
without."""

import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "kit"))
from postgres_server import Server, SqlError, environment, program  # noqa: E402

SET_UP = """
create table account (id bigint primary key, balance bigint not null default 100);
insert into account select i from generate_series(1, 9) i;
grant select, insert, update, delete, truncate on account to app;
select fenceguard.protect('account', $$ 'accounts/' || id $$, mode => 'observe');
"""
SEEN = "select relation, verdict, application_name, statements, last_resource from fenceguard.observed order by 1, 2, 3"


class Observe(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server({"fsync": "off", "max_prepared_transactions": "2"})
        cls.addClassCleanup(cls.server.remove)
        cls.server.psql("create role app login; create role maker login")

    def setUp(self):
        self.dbname = self.server.create_database(install=True)
        self.sql("grant create on schema public to maker")
        self.sql(SET_UP)

    def sql(self, text, user="postgres"):
        return self.server.psql(text, self.dbname, user)

    def session(self, user="app"):
        session = self.server.session(self.dbname, user)
        self.addCleanup(session.close)
        return session

    def warnings(self, text, user="app", application="shop"):
        """Runs it in one session, and answers the SQLSTATEs of what it was warned of."""
        done = subprocess.run([program("psql"), "-XqtA", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose",
                               self.server.conninfo(self.dbname, user)], input=text, capture_output=True, text=True,
                              env=environment({"PGAPPNAME": application}), timeout=60, check=True)
        return re.findall(r"^.*WARNING:  (\w{5}):", done.stderr, re.MULTILINE)

    def test_statement_without_a_claim_is_warned_counted_and_done(self):
        self.assertEqual(self.warnings("update account set balance = 1; delete from account where id = 9"),
                         ["ZF003", "ZF003"])
        self.assertEqual(self.sql("select count(*), sum(balance) from account"), "8|8")
        self.assertEqual(self.sql(SEEN).split("|")[:4], ["account", "missing", "shop", "2"])

    def test_admitted_claim_is_silent_in_every_isolation_level(self):
        self.sql("select fenceguard.advance('accounts/1', 5, 'h')")
        for level in ("read committed", "repeatable read", "serializable"):
            text = f"begin isolation level {level}; select fenceguard.admit('accounts/1', 5, 'h'); " \
                "update account set balance = 2 where id = 1; commit"
            self.assertEqual(self.warnings(text), [], level)
            self.assertEqual(self.warnings(f"begin isolation level {level}; update account set balance = 3; commit"),
                             ["ZF003"], level)

    def test_observed_write_is_no_admission(self):
        self.warnings("update account set balance = 1")
        self.assertEqual(self.sql("select count(*) from fenceguard.fences"), "0")
        with self.assertRaises(SqlError) as caught:
            self.sql("begin; update account set balance = 1; select fenceguard.require_noted('accounts/1', 1, 'h')")
        self.assertEqual(caught.exception.sqlstate, "ZF003")

    def test_failing_or_null_expression_lets_the_row_through(self):
        self.sql("create function asserts(bigint) returns text language plpgsql immutable as $$ begin assert false; end $$")
        for expression, state in (("'a/' || 1 / (id - id)", "01000"), ("nullif(id, id)::text", "22004"),
                                  ("asserts(id)", "01000"),
                                  ("'//' || id", "22023")):
            self.sql(f"select fenceguard.protect('account', $$ {expression} $$, mode => 'observe')")
            self.assertEqual(self.warnings("update account set balance = balance + 1"), [state], expression)
        self.assertEqual(self.sql("select min(balance) from account"), "104")

    def test_truncate_is_counted_and_done(self):
        self.assertEqual(self.warnings("truncate account"), ["ZF003"])
        self.assertEqual(self.sql("select count(*) from account"), "0")
        self.assertIn("TRUNCATE", self.sql(SEEN))

    def test_observed_writers_do_not_wait_for_each_other(self):
        """A keeps its count open, B counts beside it; then everything of ours is locked by hand."""
        first, second, locker = self.session(), self.session(), self.session("postgres")
        second.run("set statement_timeout = '20 s'")
        for level in ("read committed", "repeatable read", "serializable"):
            first.run(f"begin isolation level {level}; update account set balance = 1 where id = 1")
            second.run(f"begin isolation level {level}; update account set balance = 1 where id = 2; commit")
            first.run("commit")
        self.assertEqual(self.sql("select sum(statements) from fenceguard.observed"), "6")
        locker.run("begin; lock table fenceguard.observations, fenceguard.fences, fenceguard.floor")
        second.run("update account set balance = 7 where id = 2")
        locker.run("rollback")
        self.assertEqual(self.sql("select balance from account where id = 2"), "7")

    def test_prepared_transaction_holds_up_no_count(self):
        self.sql("begin; update account set balance = 1 where id = 1; prepare transaction 'p'")
        self.session().run("set statement_timeout = '20 s'; update account set balance = 1 where id = 2")
        self.sql("rollback prepared 'p'")

    def test_counts_of_one_writer_stay_in_one_row(self):
        self.warnings("update account set balance = 1;" * 50)
        self.assertEqual(self.sql("select count(*), sum(statements) from fenceguard.observations"), "1|50")

    def test_mode_is_switched_by_one_statement_of_the_owner(self):
        self.sql("select fenceguard.protect('account', $$ 'accounts/' || id $$, mode => 'enforce')")
        with self.assertRaises(SqlError) as caught:
            self.sql("update account set balance = 1", "app")
        self.assertEqual(caught.exception.sqlstate, "ZF003")
        for mode, state in (("observe", "42501"), ("enforce", "42501")):
            with self.assertRaises(SqlError) as caught:
                self.sql(f"select fenceguard.protect('account', $$ 'a/' || id $$, mode => '{mode}')", "app")
            self.assertEqual(caught.exception.sqlstate, state)
        self.sql("select fenceguard.protect('account', $$ 'accounts/' || id $$, mode => 'observe')")
        self.assertEqual(self.sql("select mode, is_always from fenceguard.protected"), "observe|t")
        self.sql("update account set balance = 1", "app")

    def test_between_observe_and_enforce_no_write_is_unjudged(self):
        """The switch waits for a writer that is open, and a writer that comes meanwhile is judged by the new mode."""
        first, owner, second = self.session(), self.session("postgres"), self.session()
        first.run("begin; update account set balance = 1 where id = 1")
        owner.begin_run("select fenceguard.protect('account', $$ 'accounts/' || id $$, mode => 'enforce')")
        self.server.wait_until_waiting(owner)
        second.begin_run("update account set balance = 1 where id = 2")
        self.server.wait_until_waiting(second)
        first.run("commit")
        owner.wait()
        with self.assertRaises(SqlError) as caught:
            second.wait()
        self.assertEqual(caught.exception.sqlstate, "ZF003")

    def test_callers_of_the_older_forms_are_not_ambiguous(self):
        for arguments in ("", ", false", ", 'true'", ", per_statement => true", ", per_statement => true, mode => 'enforce'",
                          ", false, 'observe'", ", mode => 'observe'"):
            self.sql(f"select fenceguard.protect('account', $$ 'accounts/' || id $$ {arguments})")
        for arguments in (", mode => 'off'", ", mode => null", ", true, 'observe'"):
            with self.assertRaises(SqlError) as caught:
                self.sql(f"select fenceguard.protect('account', $$ 'accounts/' || id $$ {arguments})")
            self.assertEqual(caught.exception.sqlstate, "22023")

    def test_partitions_renames_and_dumps_keep_the_mode(self):
        self.sql("""create table part (id bigint) partition by range (id);
            create table part_1 partition of part for values from (0) to (10);
            select fenceguard.protect('part', $$ 'parts/' || id $$, mode => 'observe');
            create table part_2 partition of part for values from (10) to (20);
            alter table part rename to parts;
            grant insert on parts, part_1, part_2 to app""")
        self.assertEqual(self.warnings("insert into parts values (1), (11); insert into part_2 values (12)"),
                         ["ZF003", "ZF003"])
        self.assertIn("parts|missing|shop|2|", self.sql(SEEN))
        dump = subprocess.run([program("pg_dump"), self.server.conninfo(self.dbname)], capture_output=True, text=True,
                              env=environment(), timeout=120, check=True).stdout
        before, self.dbname = self.dbname, self.server.create_database()
        # With the extension its event trigger is there first and has made the triggers of partitions that the dump makes.
        self.server.psql(dump, self.dbname, variables={"ON_ERROR_STOP": "0"})
        self.assertEqual(self.sql("select relation, mode from fenceguard.protected where relation::text in "
                                  "('account', 'parts') order by 1"), "account|observe\nparts|observe", before)
        self.sql("update account set balance = 1", "app")
        self.assertIn("parts|missing|shop|2|", self.sql(SEEN))

    def test_older_tables_and_second_installation_keep_their_mode(self):
        self.sql("create table other (id bigint); select fenceguard.protect('other', $$ 'o/' || id $$)")
        self.sql("delete from fenceguard.observations")
        if not self.sql("select 1 from pg_extension where extname = 'fenceguard'"):
            self.server.install(self.dbname)
        self.assertEqual(self.sql("select relation, mode from fenceguard.protected order by 1"),
                         "account|observe\nother|enforce")

    def test_names_and_settings_of_a_client_make_no_write_fail(self):
        """A path of its own with functions of PostgreSQL's names, a forged setting, a long application name."""
        self.sql("""create schema hostile authorization maker; grant usage on schema hostile to app;
            create function hostile.strpos(text, text) returns int language plpgsql as $$ begin raise 'x'; end $$;
            create function hostile.fail(text, text) returns boolean language plpgsql as $$ begin raise 'x'; end $$;
            create operator hostile.= (leftarg = text, rightarg = text, function = hostile.fail)""")
        for setting in ("search_path = hostile, public, pg_catalog", "fenceguard.observed = 'rubbish'",
                        f"application_name = '{'n' * 300}'", "fenceguard.claims_0 = 'rubbish'"):
            self.sql(f"set {setting}; update account set balance = balance + 1", "app")
        self.assertEqual(self.sql("select min(balance) from account"), "104")

    def test_counts_are_not_for_everybody_and_have_a_bound(self):
        for statement in ("select * from fenceguard.observed", "delete from fenceguard.observations",
                          "insert into fenceguard.observations default values",
                          "select fenceguard.count_observation('a', 'b', 'c')"):
            with self.assertRaises(SqlError) as caught:
                self.sql(statement, "app")
            self.assertEqual(caught.exception.sqlstate, "42501", statement)
        self.sql("select fenceguard.observe_row('0000000000000000', 'a', null, false)", "app")
        self.sql("select fenceguard.forget_observations('account')", "app")
        self.sql("insert into fenceguard.observations select 'x', 'missing', repeat(i::text, 20), 1, now(), now(), null "
                 "from generate_series(1, 120000) i")
        size = self.sql("select pg_relation_size('fenceguard.observations')")
        self.warnings("set application_name = 'new'; update account set balance = 1")
        self.assertEqual(self.sql("select pg_relation_size('fenceguard.observations')"), size)

    def test_plain_owner_observes_and_goes_on_without_us(self):
        self.sql("create table mine (id bigint); select fenceguard.protect('mine', $$ 'm/' || id $$, mode => 'observe'); "
                 "insert into mine values (1)", "maker")
        self.sql("select fenceguard.unprotect('mine')", "maker")
        self.assertEqual(self.sql("select count(*) from pg_proc where proname ~ '^fenceguard_'"), "2")
        self.sql("select fenceguard.uninstall(); insert into mine values (2)")


if __name__ == "__main__":
    unittest.main()
