"""The extension in C as an administrator meets it: installed, over plain SQL, dumped and restored, left again; and what it
keeps in mind, which no SQL may write."""

import os
import subprocess
import unittest

from postgres_server import Server, SqlError, environment, program, run_as_server

FENCES = "select fenceguard.advance('accounts/1', 34, 'a'), fenceguard.advance('accounts/2', 35, 'b')"
TABLE = "create table account (id bigint primary key, balance bigint); insert into account values (1, 100), (2, 100)"
PROTECT = "select fenceguard.protect('account', $$ 'accounts/' || id $$)"
ADMITTED = "update account set balance = {value} where id = 1 and fenceguard.admitted('accounts/1', 34, 'a')"
UNCLAIMED = "update account set balance = 0 where id = 1"
FUNCTIONS = """
  select string_agg(format('%s %s %s %s %s %s', p.oid::regprocedure, l.lanname, md5(p.prosrc), p.prosecdef, p.proconfig,
                           p.provolatile), E'\\n' order by p.oid::regprocedure::text)
  from pg_proc p join pg_language l on l.oid = p.prolang
  where p.pronamespace = 'fenceguard'::regnamespace and p.proname <> 'leaves_notes'"""
STATE = """
  select resource, token, holder, sequence, closed, advanced_by, updated_at from fenceguard.fences order by 1;
  select floor from fenceguard.floor; select * from fenceguard.leases; select last_value, is_called from fenceguard.token;
  select relation, resource_expression, is_always, check_function, per_statement from fenceguard.protected order by 1"""
FAILURES = int(os.environ.get("FENCEGUARD_FAILURES", "1000"))  # of each kind, in one session
CREATE = "set client_min_messages = warning; create extension fenceguard"
LEAVE = "select fenceguard.leave_extension();"


class Extension(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server({"fsync": "off"})
        cls.addClassCleanup(cls.server.remove)
        cls.server.psql("create role application login; create role installer login")

    def setUp(self):
        self.name = self.server.create_database()

    def sql(self, sql, user="postgres"):
        return self.server.psql(sql, self.name, user)

    def assert_fails(self, sqlstate, sql, user="postgres"):
        with self.assertRaises(SqlError) as caught:
            self.sql(sql, user)
        self.assertEqual(caught.exception.sqlstate, sqlstate, caught.exception.stderr)
        return caught.exception

    def session(self, user="postgres"):
        session = self.server.session(self.name, user)
        self.addCleanup(session.close)
        return session

    def install_plain(self, before=""):
        self.server.install(self.name, plain=True, before=before)

    def judges_in_c(self):
        return self.sql("select l.lanname = 'c' from pg_proc p join pg_language l on l.oid = p.prolang "
                        "where p.oid = 'fenceguard.check_row(text)'::regprocedure") == "t"

    def assert_judged(self):
        """Of a table that is protected: what is admitted is written, and nothing else."""
        self.sql(ADMITTED.format(value=7))
        self.assertEqual(self.sql("select balance from account where id = 1"), "7")
        self.assert_fails("ZF003", UNCLAIMED)
        self.assert_fails("ZF001", ADMITTED.format(value=8).replace("34", "33"))
        self.assert_fails("ZF003", "begin; savepoint s; select fenceguard.admit('accounts/1', 34, 'a'); rollback to s; "
                          + UNCLAIMED)
        self.assert_fails("ZF003", f"begin; select fenceguard.admit('accounts/2', 35, 'b'); {UNCLAIMED}")
        self.assert_fails("ZF003", "truncate account")
        self.sql("begin; select fenceguard.admit('accounts/1', 34, 'a'), fenceguard.admit('accounts/2', 35, 'b');"
                 "update account set balance = balance - 1; commit")

    def test_new_schema_is_dropped_with_everything_it_made(self):
        self.sql(f"{CREATE}; {FENCES}; {TABLE}; {PROTECT}")
        self.assertTrue(self.judges_in_c())
        self.assert_judged()
        self.assertEqual(self.sql("select tgfoid::regproc from pg_trigger where tgname = 'fenceguard_rows'"),
                         "fenceguard.check_rows")
        self.assertEqual(self.assert_fails("2BP01", "drop extension fenceguard").severity, "ERROR")
        self.assert_fails("ZF003", UNCLAIMED)
        self.sql("select fenceguard.uninstall()")
        self.assertEqual(self.sql("select count(*) from pg_namespace where nspname = 'fenceguard'"), "0")
        self.assertEqual(self.sql("select count(*) from pg_extension where extname = 'fenceguard'"), "0")
        self.sql(f"{UNCLAIMED}; {CREATE}")

    def test_installing_over_plain_sql_keeps_all_state(self):
        self.install_plain()
        self.sql(f"{FENCES}; select fenceguard.init(3), (fenceguard.acquire('l', '1 hour', 'x')).token; {TABLE}; {PROTECT};"
                 "revoke execute on function fenceguard.admitted from public")
        before = self.sql(STATE)
        self.sql(CREATE)
        self.assertEqual(self.sql(STATE), before)
        self.assertTrue(self.judges_in_c())
        self.assert_judged()
        self.sql("grant all on account to application")
        self.assert_fails("42501", ADMITTED.format(value=8), "application")
        self.sql(PROTECT)  # again, for its own trigger
        self.assert_judged()
        # It is the same as one that was installed at once.
        functions = self.sql(FUNCTIONS)
        self.name = self.server.create_database()
        self.sql(CREATE)
        self.assertEqual(self.sql(FUNCTIONS), functions)

    def test_return_to_plain_sql_is_one_step_without_a_gap(self):
        self.install_plain()
        plain = self.sql(FUNCTIONS)
        self.sql(f"{CREATE}; {FENCES}; {TABLE}; {PROTECT}; create table bulk (r text); "
                 "select fenceguard.protect('bulk', 'r', per_statement => true); create table day (at date);"
                 "select fenceguard.protect('day', 'at::text'); create table child () inherits (account)")
        before = self.sql(STATE).replace("child|", "account|")
        with self.session() as writer:
            writer.run(f"begin; {ADMITTED.format(value=5)}")
            self.sql("alter database " + self.name + " set lock_timeout = '200 ms'")
            with self.assertRaises(SqlError):  # a protected table is written, so its triggers are not replaced
                self.install_plain(LEAVE)
            self.assertTrue(self.judges_in_c())
            writer.run("commit")
        self.install_plain(LEAVE)
        self.assertEqual(self.sql(STATE).replace("child|", "account|"), before)
        self.assertEqual(self.sql(FUNCTIONS), plain)
        self.assertFalse(self.judges_in_c())
        self.assert_judged()
        self.assert_fails("ZF003", "insert into bulk values ('accounts/1')")
        self.assert_fails("ZF003", "insert into day values ('2026-11-24')")
        self.assert_fails("ZF003", "insert into child values (1)")
        self.sql(CREATE)
        self.assert_judged()

    def test_left_and_not_yet_replaced_it_still_judges(self):
        self.sql(f"{CREATE}; {FENCES}; {TABLE}; {PROTECT}; {LEAVE}")
        self.assertEqual(self.sql("select count(*) from pg_extension where extname = 'fenceguard'"), "0")
        self.assert_judged()
        self.sql(CREATE)
        self.assert_judged()

    def test_plain_sql_is_not_installed_over_it(self):
        self.sql(CREATE)
        before = self.sql(FUNCTIONS)
        with self.assertRaises(SqlError) as caught:
            self.install_plain()
        self.assertIn("ALTER EXTENSION fenceguard UPDATE", caught.exception.hint)
        self.assertEqual(self.sql(FUNCTIONS), before)

    def test_schema_of_an_ordinary_role_is_not_taken_over(self):
        """What that role put there would run with a superuser's rights."""
        self.sql(f"grant create on database {self.name} to installer")
        self.server.install(self.name, "installer")
        before = self.sql(FUNCTIONS)
        self.assertIn("installer", self.assert_fails("42501", CREATE).message)
        self.assertEqual(self.sql(FUNCTIONS), before)
        self.assert_fails("42501", CREATE, "installer")

    def test_a_dump_restores_fences_leases_counters_and_protection(self):
        self.sql(f"{CREATE}; {FENCES}; select fenceguard.advance('gone', 4, 'g'), fenceguard.compact(5), fenceguard.raise(100);"
                 f"select fenceguard.acquire('l', '1 hour', 'x'); {TABLE}; {PROTECT}")
        state = STATE.replace("advanced_by, ", "")
        before = self.sql(state)
        dump = subprocess.run([program("pg_dump"), "-d", self.server.conninfo(self.name)], capture_output=True, text=True,
                              env=environment(), check=True).stdout
        self.assertNotIn("CREATE FUNCTION fenceguard.", dump)
        self.name = self.server.create_database()
        self.sql(dump)
        self.assertEqual(self.sql(state), before)
        self.assert_judged()
        self.assert_fails("ZF001", "select fenceguard.admit('gone', 4, 'g')")
        self.assertEqual(self.sql("select fenceguard.draw()"), "102")

    def test_dump_of_children_restores_with_errors_and_protected(self):
        """Its event trigger is there before the triggers that the dump makes, and makes them first."""
        self.sql(f"""{CREATE}; create table base (id bigint); create table "my parts" (id bigint) partition by range (id);
            select fenceguard.protect('base', $$ 'base/' || id $$), fenceguard.protect('"my parts"', $$ 'parts/' || id $$);
            create table a_child () inherits (base); create table base_2 () inherits (base);
            create table a_part partition of "my parts" for values from (0) to (10);
            create table z_part partition of "my parts" for values from (10) to (20)""")
        triggers = "select tgrelid::regclass, tgname, tgenabled from pg_trigger where tgname like 'fenceguard%' order by 1, 2"
        before = set(self.sql(triggers).split("\n"))
        archive = f"{self.server.folder}/children"
        run_as_server(program("pg_dump"), "-Fc", "-d", self.server.conninfo(self.name), "-f", archive)
        self.name = self.server.create_database()
        with self.assertRaisesRegex(AssertionError, "trigger .* already exists"):
            run_as_server(program("pg_restore"), "-d", self.server.conninfo(self.name), archive)
        self.assertEqual(set(self.sql(triggers).split("\n")), before)
        for table in ("a_child", "a_part"):
            self.assert_fails("ZF003", f"insert into {table} values (2)")
            self.assert_fails("ZF003", f"truncate {table}")

    def test_floor_raised_behind_a_claim_counts_at_the_next_row(self):
        """As in plain SQL. Only what wrote nothing since its claim could go on without another look."""
        self.sql(f"{CREATE}; {FENCES}; {TABLE}; {PROTECT}")
        for number, between in enumerate(("", "select count(*) from account", "lock table account in row exclusive mode",
                                          "update account set balance = 5 where id = 1")):
            token = 100 * (number + 1)
            self.sql(f"select fenceguard.advance('accounts/1', {token}, 'a')")
            with self.subTest(between), self.session() as writer:
                writer.run(f"begin; select fenceguard.admit('accounts/1', {token}, 'a'); {between}")
                self.sql(f"select fenceguard.init({token} + 1)")
                with self.assertRaises(SqlError) as caught:
                    writer.run("update account set balance = 4 where id = 1")
                self.assertEqual(caught.exception.sqlstate, "ZF001")

    def test_transaction_admitted_before_the_install_is_refused(self):
        self.install_plain()
        self.sql(f"{FENCES}; {TABLE}; {PROTECT}")
        writer = self.session()
        write = "begin; select fenceguard.admit('accounts/1', 34, 'a'); {}update account set balance = 5 where id = 1; commit"
        writer.run("begin; select fenceguard.admit('accounts/1', 34, 'a')")
        self.sql(CREATE)
        with self.assertRaises(SqlError) as caught:
            writer.run("update account set balance = 4 where id = 1")
        self.assertEqual(caught.exception.sqlstate, "ZF003")
        writer.run("rollback")
        writer.run(write.format(""))
        self.assertEqual(self.sql("select balance from account where id = 1"), "5")

    def test_claims_live_as_long_as_their_transaction_and_savepoint(self):
        self.sql(f"{CREATE}; {FENCES}; {TABLE}; {PROTECT}")
        admit, write = "select fenceguard.admit('accounts/1', 34, 'a')", "update account set balance = balance + 1 where id = 1"
        for sql in (f"begin; {admit}; savepoint a; {write}; rollback to a; {write}; commit",
                    f"begin; savepoint a; {admit}; release a; {write}; commit",
                    f"begin; savepoint a; savepoint b; {admit}; release b; savepoint c; rollback to c; {write}; commit",
                    f"begin; savepoint a; {admit}; rollback to a; {admit}; {write}; commit",
                    f"do $$ begin begin perform 1 / 0; exception when others then null; end; perform fenceguard.admit("
                    f"'accounts/1', 34, 'a'); begin {write}; perform 1 / 0; exception when others then null; end; {write}; end $$",
                    f"begin; {admit}; {write}; prepare transaction 'p'; commit prepared 'p'"):
            with self.subTest(sql):
                self.sql(sql)
        self.assertEqual(self.sql("select balance from account where id = 1"), "106")
        for sql in (f"{admit}; {write}", f"begin; {admit}; commit; {write}", f"begin; {admit}; rollback; {write}",
                    f"begin; savepoint a; savepoint b; {admit}; release b; rollback to a; {write}",
                    f"begin; savepoint a; {admit}; savepoint b; release b; rollback to a; savepoint c; {write}",
                    f"begin; {admit}; prepare transaction 'q'; rollback prepared 'q'; {write}",
                    f"do $$ begin begin perform fenceguard.admit('accounts/1', 34, 'a'); perform 1 / 0; exception when others "
                    f"then null; end; {write}; end $$",
                    f"do $$ begin perform fenceguard.admit('accounts/1', 34, 'a'); commit; {write}; end $$"):
            with self.subTest(sql):
                self.assert_fails("ZF003", sql)
        self.assertEqual(self.sql("select balance from account where id = 1"), "106")

    def test_claim_does_not_outlive_its_fence_in_its_transaction(self):
        self.sql(f"{CREATE}; {TABLE}; {PROTECT}")
        write = "update account set balance = balance + 1 where id = 1"
        for change, state in (("select fenceguard.revoke('accounts/1')", "ZF001"),
                              ("select fenceguard.advance('accounts/1', 41, 'x'); select fenceguard.revoke('accounts/1')", "ZF001"),
                              ("select fenceguard.rebase('accounts/1', 50)", "ZF001"),
                              ("delete from fenceguard.fences", "ZF003")):
            with self.subTest(change):
                self.sql("delete from fenceguard.fences; select fenceguard.advance('accounts/1', 40, 'a')")
                admit = "begin; select fenceguard.admit('accounts/1', 40, 'a'); "
                self.assert_fails(state, f"{admit} {change}; {write}")
                self.assert_fails(state, f"{admit} {write}; {change}; {write}")
                self.sql(f"{admit} savepoint s; {change}; rollback to s; {write}; commit")
        # The newer claim counts, and the older one does again once that is taken back.
        self.sql("delete from fenceguard.fences; select fenceguard.advance('accounts/1', 40, 'a')")
        self.sql(f"begin; select fenceguard.admit('accounts/1', 40, 'a'); savepoint s; select fenceguard.admit('accounts/1', 41, "
                 f"'b'); {write}; rollback to s; {write}; commit")
        self.assertEqual(self.sql("select token from fenceguard.fences"), "40")

    def test_rows_are_judged_by_what_the_table_is_protected_with_now(self):
        self.sql(f"{CREATE}; {FENCES}; {TABLE}; {PROTECT}; grant all on account to application")
        writer = self.session()
        claim = "begin; select fenceguard.admit('accounts/1', 34, 'a'); "
        write = claim + "update account set balance = 1 where id = 1; commit"
        writer.run(write)
        self.sql("select fenceguard.protect('account', $$ 'other/' || id $$)")
        with self.assertRaises(SqlError):
            writer.run(write)
        writer.run("rollback")
        self.sql(PROTECT)
        writer.run(write)
        self.sql("alter table account rename id to number")
        with self.assertRaises(SqlError) as caught:
            writer.run(write.replace("id =", "number ="))
        self.assertEqual(caught.exception.sqlstate, "42703")
        writer.run("rollback")
        self.sql("alter table account rename number to id; alter table account alter id type integer")
        with self.assertRaises(SqlError) as caught:
            writer.run(write)
        self.assertEqual(caught.exception.sqlstate, "42804")
        writer.run("rollback")
        self.sql(PROTECT + "; alter table account add column more text, drop column balance, add column balance bigint")
        writer.run(write)
        self.sql("alter table account add column \"odd name\" text default 'x'; create schema \"odd schema\";"
                 "alter table account set schema \"odd schema\"")
        self.sql("select fenceguard.protect('\"odd schema\".account', $$ 'accounts/' || id || left(\"odd name\", 0) $$)")
        writer.run("set search_path = 'odd schema'")
        writer.run(write)
        with self.assertRaises(SqlError) as caught:
            writer.run("update account set balance = 2 where id = 2")
        self.assertEqual(caught.exception.sqlstate, "ZF003")

    def test_an_expression_may_be_anything_that_gives_a_text(self):
        self.sql(f"{CREATE}; create function public.place(integer, date) returns text language plpgsql immutable as $$ begin "
                 "return format('%s/%s', $1, $2); end $$; create table booked (room integer, at date, price numeric); "
                 "select fenceguard.protect('booked', 'place(room, at)'), fenceguard.advance('7/2026-11-24', 5, 'h')")
        write = "begin; set local datestyle = 'German'; select fenceguard.admit('7/2026-11-24', 5, 'h'); {}; commit"
        for sql in ("insert into booked select 7, '2026-11-24', n from generate_series(1, 100) n",
                    "update booked set price = price + 1", "delete from booked where price > 50",
                    "insert into booked select n.* from booked b, lateral (values (7, b.at, 1), (b.room, b.at, 2)) n"):
            self.sql(write.format(sql))
        self.assert_fails("ZF003", write.format("update booked set room = 8"))
        self.assert_fails("ZF003", write.format("update booked set at = at + 1 where price = 9"))
        self.assert_fails("22004", "alter table booked rename column price to p; alter function public.place(integer, date) strict; "
                          "insert into booked values (null, '2026-11-24', 1)")
        self.assertEqual(self.sql("select distinct room, at from booked"), "7|2026-11-24")

    def test_its_triggers_are_attached_by_protect_only(self):
        self.sql(f"{CREATE}; {TABLE}; {PROTECT}; create table own (id bigint); grant all on own to application;"
                 "alter table own owner to application")
        for arguments in ("", "'id'", "'id', 'x'", "'id', 'public.fenceguard_check_0123456789abcdef'", "'id', 'a b.c.', 'd'",
                          "'id', '.fenceguard_check_'"):
            with self.subTest(arguments):
                self.sql("create trigger fenceguard_rows after insert on own for each row execute function "
                         f"fenceguard.check_rows({arguments})", "application")
                with self.assertRaises(SqlError):
                    self.sql("insert into own values (1)", "application")
                self.assertEqual(self.sql("select relation from fenceguard.protected", "application"), "account")
                self.sql("drop trigger fenceguard_rows on own", "application")
        self.sql("create trigger t before insert on own for each row execute function fenceguard.check_rows('a', 'b')",
                 "application")
        self.assert_fails("09000", "insert into own values (1)", "application")
        self.assert_fails("09000", "select fenceguard.check_rows()")

    def test_cached_fence_ends_when_another_backend_changes_it(self):
        self.sql(f"{CREATE}; {TABLE}; {FENCES}")
        reader, other = self.session(), self.session()
        claim = "select fenceguard.admitted('accounts/1', {}, '{}')"

        def assert_refused(token, holder, state):
            for call in ("admitted", "confirm", "admit"):
                with self.assertRaises(SqlError) as caught:
                    reader.run(claim.replace("admitted", call).format(token, holder))
                self.assertEqual(caught.exception.sqlstate, state)

        for _ in range(3):
            reader.run(claim.format(34, "a"))
        other.run("select fenceguard.advance('accounts/1', 35, 'b')")
        assert_refused(34, "a", "ZF001")
        reader.run(claim.format(35, "b"))
        reader.run(claim.format(35, "b"))
        assert_refused(35, "a", "ZF002")
        other.run("begin; select fenceguard.advance('accounts/1', 36, 'c'); rollback")
        reader.run(claim.format(35, "b"))
        other.run("begin; select fenceguard.advance('accounts/1', 36, 'c'); prepare transaction 'p'")
        other.run("commit prepared 'p'")
        assert_refused(35, "b", "ZF001")
        reader.run(claim.format(36, "c"))
        other.run("select fenceguard.revoke('accounts/1')")
        assert_refused(36, "c", "ZF001")
        other.run("select fenceguard.advance('accounts/1', 37, 'd')")
        reader.run(claim.format(37, "d"))
        other.run("select fenceguard.init(40)")
        assert_refused(37, "d", "ZF001")
        other.run("select fenceguard.advance('accounts/1', 41, 'e')")
        reader.run(claim.format(41, "e"))
        other.run("select fenceguard.compact(50)")
        assert_refused(41, "e", "ZF001")
        other.run("select fenceguard.advance('accounts/1', 51, 'f')")
        reader.run(claim.format(51, "f"))
        other.run("select fenceguard.rebase('accounts/1', 51)")
        assert_refused(51, "f", "ZF001")
        other.run("select fenceguard.advance('accounts/1', 52, 'g')")
        reader.run(claim.format(52, "g"))
        other.run("truncate fenceguard.fences")
        with self.assertRaises(SqlError):
            reader.run(claim.format(52, "g"))
        other.run("select fenceguard.advance('accounts/1', 53, 'h')")
        # An own change that is rolled back, in a savepoint and whole, is none either.
        reader.run(f"begin; {claim.format(53, 'h')}; savepoint s; select fenceguard.revoke('accounts/1'); rollback to s;"
                   f"{claim.format(53, 'h')}; savepoint s; select fenceguard.admit('accounts/1', 54, 'i'); rollback to s;"
                   f"{claim.format(53, 'h')}; rollback")
        reader.run(f"begin; select fenceguard.admit('accounts/1', 54, 'i'), fenceguard.admit('accounts/1', 54, 'i'); rollback")
        with self.assertRaises(SqlError) as caught:
            reader.run(claim.format(54, "i"))
        self.assertEqual(caught.exception.sqlstate, "40001")
        reader.run("begin; select fenceguard.revoke('accounts/1'); rollback")
        reader.run(claim.format(53, "h"))
        # So is the first claim of all to a resource.
        for end in ("rollback", "rollback to s; commit"):
            reader.run("begin; savepoint s; select fenceguard.admit('first', 70, 'a'), fenceguard.confirm('first', 70, 'a'),"
                       f"fenceguard.admit('first', 70, 'a'); {end}")
            with self.assertRaises(SqlError) as caught:
                reader.run("select fenceguard.confirm('first', 70, 'a')")
            self.assertEqual(caught.exception.sqlstate, "40001")
        reader.run("select fenceguard.admit('first', 70, 'a')")
        self.assertEqual(self.sql("select token from fenceguard.fences where resource = 'first'"), "70")
        # Advanced in plain SQL while the extension was left.
        self.install_plain(LEAVE)
        other.run("select fenceguard.advance('accounts/1', 60, 'z')")
        self.sql(CREATE)
        assert_refused(53, "h", "ZF001")
        reader.run(claim.format(60, "z"))

    def outcome(self, session, sql):
        """What it says, or its sqlstate."""
        try:
            return session.run(sql)
        except SqlError as error:
            return error.sqlstate

    def test_claim_that_lost_its_lock_to_a_cursor_is_judged_again(self):
        """The locks of an outer cursor that fails in a savepoint are released with it."""
        self.sql(f"{CREATE}; {FENCES}; {TABLE}; {PROTECT}; grant all on account to application")
        locks = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
        lose = ("declare c cursor for select fenceguard.admitted('accounts/1', {0}, 'a'), 1 / (2 - g) from generate_series(1, 3) g;"
                "fetch c; savepoint s; {1}")
        advance = "set fenceguard.drain = '100 ms'; select fenceguard.advance('accounts/1', {}, 'a', '100 ms', false)"
        writer, other = self.session("application"), self.session()
        token = 34
        for begin in ("begin", "begin isolation level repeatable read"):
            for earlier in ("select 1", "update account set balance = balance where id = 1"):
                for write in ("update account set balance = 7 where id = 1",
                              "select fenceguard.require_noted('accounts/1', {}, 'a')"):
                    with self.subTest(begin=begin, earlier=earlier, write=write):
                        self.sql(f"alter table account disable trigger user; update account set balance = 100;"
                                 "alter table account enable trigger user")
                        writer.run(f"{begin}; {lose.format(token, earlier)}")
                        self.assertEqual(self.outcome(writer, "fetch c"), "22012")
                        writer.run("rollback to s")
                        self.assertEqual(writer.run(locks), "0")
                        # Written before the advance, it is waited for.
                        writer.run(write.format(token))
                        self.assertEqual(writer.run(locks), "1")
                        self.assertEqual(self.outcome(other, advance.format(token + 1)), "55P03")
                        writer.run("rollback")
                        # Advanced before the write, it is refused.
                        writer.run(f"{begin}; {lose.format(token, earlier)}")
                        self.outcome(writer, "fetch c")
                        writer.run("rollback to s")
                        if "repeatable" in begin:  # what it locked in the fence's row it keeps
                            self.assertEqual(self.outcome(other, advance.format(token + 1)), "55P03")
                            writer.run(write.format(token) + "; commit")
                        else:
                            other.run(advance.format(token + 1))
                            self.assertIn(self.outcome(writer, write.format(token)), ("ZF001", "ZF003"))
                            writer.run("rollback")
                            token += 1

    def test_expression_that_writes_to_its_own_table(self):
        self.sql(f"{CREATE}; create table t (id bigint); create function audit() returns text volatile language plpgsql as "
                 "$f$ begin if current_setting('x.depth', true) = '1' then perform set_config('x.depth', '2', false); "
                 "insert into public.t values (7); end if; return ''; end $f$; create function plain(text) returns text immutable "
                 "language plpgsql as $f$ begin perform public.audit(); return $1; end $f$; create function seen(id bigint) "
                 "returns text stable language plpgsql as $f$ begin if id = 1 then return public.audit(); end if; return ''; end "
                 "$f$; create function joined(text, text) returns text immutable language plpgsql as $f$ begin return $1 || "
                 "$2; end $f$; select fenceguard.advance('t/1', 1, 'h'), fenceguard.advance('t/7', 1, 'h')")
        for expression in ("plain('t/') || id", "joined('t/' || id, seen(id))"):
            self.sql(f"delete from t; select fenceguard.protect('t', $$ {expression} $$)")
            for claims, outcome in ((("t/1", "t/7"), ""), (("t/7",), "ZF003"), (("t/1",), "ZF003")):
                with self.subTest(expression=expression, claims=claims):
                    writer = self.session()
                    claim = ", ".join(f"fenceguard.admit('{resource}', 1, 'h')" for resource in claims)
                    # What is said to be immutable is called once, when the expression is read.
                    for _ in range(1 if expression.startswith("plain") else 2):
                        writer.run(f"begin; select {claim}; set local x.depth = '1'")
                        self.assertEqual(self.outcome(writer, "insert into t values (1)"), outcome)
                        writer.run("rollback")

    def test_expression_is_not_resumed_after_a_failed_evaluation(self):
        """A function in SQL that was cut off keeps the row that it was called for."""
        self.sql(f"{CREATE}; create table t (id bigint); create function name(id bigint) returns text stable language sql as "
                 "$f$ select 't/' || $1 || left(pg_sleep(case when current_setting('x.slow', true) = '1' then 9 else 0 end)"
                 "::text, 0) from generate_series(1, 2) $f$; select fenceguard.protect('t', 'name(id)');"
                 "select fenceguard.advance('t/1', 1, 'h'), fenceguard.advance('t/2', 1, 'h')")
        writer = self.session()
        writer.run("begin; select fenceguard.admit('t/2', 1, 'h'); insert into t values (2)")
        for _ in range(3):
            writer.run("savepoint s; set local x.slow = '1'; set local statement_timeout = '100 ms'")
            self.assertEqual(self.outcome(writer, "insert into t values (2)"), "57014")
            writer.run("rollback to s")
            self.assertEqual(self.outcome(writer, "insert into t values (1)"), "ZF003")
            writer.run("rollback to s; insert into t values (2)")
        writer.run("commit")
        self.assertEqual(self.sql("select string_agg(id::text, '') from t"), "2222")

    def test_what_tells_of_changes_may_be_replaced(self):
        self.sql(f"{CREATE}; {FENCES}")
        writer = self.session()
        writer.run("select fenceguard.admit('accounts/1', 34, 'a')")
        self.sql("begin; alter table fenceguard.rebases rename to old; create table fenceguard.rebases (like fenceguard.old "
                 "including all); commit")
        writer.run("select fenceguard.admit('accounts/1', 34, 'a'), fenceguard.admit('accounts/1', 34, 'a')")
        self.sql("select fenceguard.advance('accounts/1', 35, 'n')")
        self.assertEqual(self.outcome(writer, "select fenceguard.admit('accounts/1', 34, 'a')"), "ZF001")

    def test_another_roles_function_of_the_same_name_stops_no_write(self):
        self.sql(f"{CREATE}; {FENCES}; {TABLE}; {PROTECT}; grant create on schema public to application")
        name = self.sql("select proname from pg_proc where proname ~ '^fenceguard_resource_'")
        for parameters in ("x point", "", "variadic id bigint[]"):
            self.sql(f"create function {name}({parameters}) returns text language sql as $$ select 'accounts/2' $$", "application")
            self.assert_judged()

    def test_default_privileges_grant_nothing_withheld_from_public(self):
        for plain in (False, True):
            with self.subTest(plain=plain):
                self.name = self.server.create_database()
                for what in ("execute on functions", "all on tables", "all on sequences", "create, usage on schemas"):
                    self.sql(f"alter default privileges grant {what} to application")
                self.server.install(self.name, plain=plain)
                self.sql(f"{TABLE}; {FENCES}; {PROTECT}")
                for sql in ("update fenceguard.fences set token = 1", "select * from fenceguard.fences",
                            "select nextval('fenceguard.token')", "create table fenceguard.own ()",
                            "select fenceguard.keep_claim('accounts/1', 34, 'a')" if not plain else
                            "select fenceguard.note_admitted('accounts/1')",
                            "select fenceguard.init(100)"):
                    self.assert_fails("42501", sql, "application")
                self.sql(ADMITTED.format(value=7), "application")
                # What an operator granted stays.
                self.sql("grant execute on function fenceguard.init to application; grant select on fenceguard.fences to application")
                if plain:
                    self.install_plain()
                else:
                    self.sql(f"{LEAVE} {CREATE}")
                self.sql("select fenceguard.init(0), count(*) from fenceguard.fences", "application")

    def test_crowd_never_writes_under_an_overtaken_claim(self):
        """Each row that is written carries the token; none may be lower than the one before it."""
        self.sql(f"{CREATE}; create table log (n bigserial, token bigint); create table last (token bigint); insert into last "
                 "values (0); create function note() returns trigger language plpgsql as $$ begin insert into log (token) "
                 "values (new.token); if new.token < old.token then raise 'a stale write'; end if; return new; end $$; "
                 "create trigger note before update on last for each row execute function note();"
                 "select fenceguard.advance('r', 1, 'h')")
        script = os.path.join(self.server.folder, "crowd.sql")
        with open(script, "w", encoding="utf-8") as file:
            file.write("select token, token + 1 as next from fenceguard.fences where resource = 'r' \\gset\n"
                       "\\set chance random(1, 20)\n"
                       "\\if :chance = 1\nselect verdict from fenceguard.try_advance('r', :next, 'h');\n"
                       "\\else\n"
                       "update last set token = :token from (select verdict from fenceguard.try_admit('r', :token, 'h')) g "
                       "where g.verdict = 'admitted';\n"
                       "update last set token = :token where (select fenceguard.took_effect('r', :token, 'h', 1)) is false "
                       "and (select r.verdict = 'admitted' from fenceguard.rule('r', :token, 'h') r);\n\\endif\n")
        done = subprocess.run([program("pgbench"), "-n", "-c", "8", "-j", "2", "-t", "1000", "-f", script,
                               self.server.conninfo(self.name)], capture_output=True, text=True, env=environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertGreater(int(self.sql("select max(token) from last")), 20)

    def test_many_claims_of_one_transaction(self):
        self.sql(f"{CREATE}; create table many (r text, n integer); select fenceguard.protect('many', 'r');"
                 "select fenceguard.advance('many/' || i, 5, 'h') from generate_series(1, 3000) i")
        self.sql("begin; select fenceguard.admit('many/' || i, 5, 'h') from generate_series(1, 3000) i; savepoint s;"
                 "insert into many select 'many/' || i, i from generate_series(1, 3000) i; rollback to s;"
                 "insert into many select 'many/' || i, i from generate_series(1, 3000) i; commit")
        self.assertEqual(self.sql("select count(*) from many"), "3000")
        self.assert_fails("ZF003", "begin; select fenceguard.admit('many/' || i, 5, 'h') from generate_series(1, 2999) i;"
                          "update many set n = 0")

    def test_beside_a_transaction_that_is_older_than_the_advance(self):
        """What every snapshot of the backend sees does not tell then whether the advance is seen."""
        self.sql(f"{CREATE}; {TABLE}; {PROTECT}; create table noise (n integer)")
        old = self.session()
        old.run("begin; insert into noise values (1)")
        self.sql(FENCES)
        for number in range(3):
            self.sql(ADMITTED.format(value=number))
            self.sql(f"begin; select fenceguard.admit('accounts/1', 34, 'a'); update account set balance = balance where id = 1; "
                     f"{ADMITTED.format(value=number)}; commit")
            self.sql("select fenceguard.confirm('accounts/1', 34, 'a'); update account set balance = 5 where id = 1"
                     .replace("; update", "\\; update"))
        reader = self.session()
        reader.run("begin; declare c cursor for select balance from account")
        self.sql("select fenceguard.advance('accounts/1', 36, 'c')")
        for call in ("admitted", "confirm", "admit"):
            with self.assertRaises(SqlError) as caught:
                reader.run(f"savepoint s; select fenceguard.{call}('accounts/1', 36, 'c')")
            self.assertEqual(caught.exception.sqlstate, "40001")
            reader.run("rollback to s")
        old.run("commit")

    def test_what_fails_leaves_no_memory_behind(self):
        """In one session, each error again and again: of an expression, of its function, of each kind of refusal. Also where
        an expression writes its own table, so that it is evaluated within itself."""
        self.sql(f"{CREATE}; {TABLE}; {PROTECT}; {FENCES}; create table failing (id bigint primary key); create table within (id bigint);"
                 "create table lost (id bigint); "
                 "create function fails(bigint) returns text language plpgsql immutable as $$ begin raise 'no'; end $$;"
                 "create function writes(id bigint) returns text language plpgsql as $$ begin "
                 "  if id > 0 then insert into public.within values (id - 1); end if; return 'accounts/1'; end $$;"
                 "select fenceguard.protect('failing', 'fails(id)'), fenceguard.protect('within', 'writes(id)'), "
                 "fenceguard.protect('lost', $$ 'accounts/' || id $$);"
                 "alter table lost rename id to other")
        claims = '[{"resource": "accounts/1", "token": "%s", "holder": "a"}]'
        errors = {
            "P0001": "insert into failing values (1)", "ZF003": UNCLAIMED, "ZF003 ": "insert into account values (i, 1)",
            "42703": "insert into lost values (1)",
            "ZF001": "perform fenceguard.admit('accounts/1', 33, 'a')", "ZF002": "perform fenceguard.admit('accounts/1', 34, 'b')",
            "ZF001 ": "perform fenceguard.confirm('accounts/1', 33, 'a')", "22023": "perform fenceguard.admit('a//b', 33, 'a')",
            "ZF001  ": "update account set balance = 0 where id = 1 and fenceguard.admitted('accounts/1', 33, 'a')",
            "ZF003  ": "insert into within values (2)",
            "22023 ": "set local fenceguard.session_claims = 'none'; " + UNCLAIMED,
            "ZF001    ": f"set local fenceguard.session_claims = '{claims % 33}'; " + UNCLAIMED,
            "40001": f"set local fenceguard.session_claims = '{claims % 35}'; " + UNCLAIMED,
            "00000": f"perform fenceguard.admit('accounts/1', 34, 'a'); insert into within values (2); raise sqlstate '00001'"}
        for state, sql in errors.items():
            with self.subTest(sql):
                session = self.session()
                if state != "00000":
                    self.assertEqual(self.failure(session, sql), state.strip())
                loop = ("do $do$ begin for i in 1 .. %d loop begin " + sql + "; exception when others then null; end; "
                        "if mod(i, 50) = 0 then commit; end if; end loop; end $do$;")
                size = "select sum(total_bytes) from pg_backend_memory_contexts;"
                before = int(session.run(loop % 100 + size))
                session.begin_run(loop % FAILURES + size)
                after = int(session.wait(30 + FAILURES // 100))
                self.assertLess(after - before, FAILURES * 100, (before, after))
                session.close()

    def failure(self, session, sql):
        with self.assertRaises(SqlError) as caught:
            session.run(f"do $do$ declare i bigint := 7; begin {sql}; end $do$")
        return caught.exception.sqlstate


if __name__ == "__main__":
    unittest.main()
