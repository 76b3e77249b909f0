"""Installing sql/postgres/ as a user does: by a superuser and by a plain role, again over a live installation, over a
newer one, into the wrong database."""

import gzip
import os
import re
import subprocess
import unittest

from postgres_server import SQL, Server, SqlError, environment, program, run_as_server

REINSTALLED = "select fenceguard.advance('a', 7, 'h'), fenceguard.init(3), (fenceguard.acquire('l', '1 hour', 'x')).token"


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server({"fsync": "off"})
        cls.addClassCleanup(cls.server.remove)
        cls.server.psql("create role installer login; create role application login; create role other login")

    def database(self, owner="installer"):
        """One where the owner has CREATE, and the installer no more than that."""
        return self.server.create_database(owner=owner)

    def assert_fails(self, sqlstate, function, *arguments, **named):
        with self.assertRaises(SqlError) as caught:
            function(*arguments, **named)
        self.assertEqual(caught.exception.sqlstate, sqlstate, caught.exception.stderr)
        return caught.exception

    def test_role_with_create_installs_and_other_roles_use_it(self):
        name = self.database("other")
        self.server.psql(f"grant create on database {name} to installer")
        self.server.install(name, "installer")
        self.assertEqual(self.server.psql("select fenceguard.admit('a', 1)", name, "application"), "admitted")
        self.assert_fails("42501", self.server.psql, "select * from fenceguard.fences", name, "application")
        self.assertEqual(self.server.psql("select count(*) from pg_event_trigger", name), "0")

    def test_without_create_on_the_database_it_is_not_installed(self):
        self.assert_fails("42501", self.server.install, self.database("other"), "installer")

    def test_second_installation_keeps_state_and_grants(self):
        for installer in ("postgres", "installer"):
            name = self.database()
            self.server.install(name, installer)
            self.server.psql(REINSTALLED, name, installer)
            self.server.psql("update fenceguard.limits set jump_max = 7", name, installer)
            self.server.psql("revoke usage on schema fenceguard from public; grant usage on schema fenceguard to other;"
                             "grant select on fenceguard.fence to other; create table t (id text);"
                             "select fenceguard.protect('t', 'id')", name, installer)
            state = ("select resource, token, holder, sequence, closed, updated_at from fenceguard.fences;"
                     "select floor from fenceguard.floor; select jump_max from fenceguard.limits; select * from fenceguard.leases;"
                     "select last_value, is_called from fenceguard.token;"
                     "select nspacl from pg_namespace where nspname = 'fenceguard';"
                     "select relname, relacl from pg_class where relnamespace = 'fenceguard'::regnamespace order by 1;"
                     "select oid::regprocedure::text, proacl from pg_proc where pronamespace = 'fenceguard'::regnamespace order by 1;"
                     "select relation, resource_expression, is_always, check_function from fenceguard.protected;"
                     "select tgrelid::regclass, tgname, tgenabled from pg_trigger where not tgisinternal order by 1, 2")
            before = self.server.psql(state, name)
            self.server.install(name, installer)
            self.server.install(name, installer)
            self.assertEqual(self.server.psql(state, name), before, installer)
            self.assert_fails("42501", self.server.psql, "select fenceguard.admit('a', 7, 'h')", name, "application")
            self.assertEqual(self.server.psql("select fenceguard.admit('a', 7, 'h')", name, "other"), "admitted")
            self.assert_fails("ZF003", self.server.psql, "insert into t values ('a')", name, installer)
            self.assert_fails("ZF001", self.server.psql, "select fenceguard.admit('a', 6, 'h')", name, installer)

    def test_upgrade_keeps_grants_of_functions_with_new_parameters(self):
        signature = "fenceguard.try_admit(text, bigint, text, bigint)"
        for installer in ("postgres", "installer"):
            for narrowing, allowed in (("", {"application", "other"}),
                                       (f"revoke execute on function {signature} from public", set()),
                                       (f"revoke execute on function {signature} from public; "
                                        f"grant execute on function {signature} to other with grant option", {"other"})):
                with self.subTest(narrowing, installer=installer):
                    name = self.database()
                    self.server.install(name, installer)
                    self.server.psql("drop function fenceguard.try_admit; create function fenceguard.try_admit(resource text, "
                                     "token bigint, holder text default '', sequence bigint default null) returns table "
                                     "(verdict text, highest bigint) language sql as 'select null::text, 0::bigint';"
                                     + narrowing, name, installer)
                    self.server.install(name, installer)
                    for role in ("application", "other"):
                        call = "select verdict from fenceguard.try_admit('a', 7, 'h')"
                        if role in allowed:
                            self.assertEqual(self.server.psql(call, name, role), "advance")
                        else:
                            self.assert_fails("42501", self.server.psql, call, name, role)
                    self.assertEqual(self.server.psql("select is_grantable from pg_proc p, aclexplode(p.proacl) a where p.proname "
                                                      "= 'try_admit' and a.grantee = 'other'::regrole", name),
                                     "t" if allowed == {"other"} else "")

    def test_objects_a_superuser_adds_belong_to_the_schemas_owner(self):
        """Else functions that run with their owner's rights may not touch it, or have more rights than his."""
        name = self.database()
        self.server.install(name, "installer")
        self.server.psql("drop function fenceguard.try_admit; drop table fenceguard.commit_looks cascade; "
                         "drop sequence fenceguard.refused_stale; drop view fenceguard.refusals", name, "installer")
        self.server.install(name)
        self.assertEqual(self.server.psql("select proname from pg_proc where pronamespace = 'fenceguard'::regnamespace and "
                                          "proowner <> 'installer'::regrole union all select relname from pg_class where "
                                          "relnamespace = 'fenceguard'::regnamespace and relowner <> 'installer'::regrole",
                                          name), "")
        self.assertEqual(self.server.psql("select fenceguard.advance('a', 7, 'h')", name, "application"), "admitted")
        self.assert_fails("ZF001", self.server.psql, "select fenceguard.admit('a', 6, 'h')", name, "application")
        self.assertEqual(self.server.psql("select refusals from fenceguard.refusals where verdict = 'stale'", name,
                                          "installer"), "1")
        self.server.install(name, "installer")

    def test_superuser_makes_no_event_trigger_of_anothers_functions(self):
        """They would be called in whatever changes a table, a superuser's commands included."""
        name = self.database()
        self.server.install(name, "installer")
        # As it was made there once.
        self.server.psql("create event trigger fenceguard_children on ddl_command_end execute function "
                         "fenceguard.protect_children(); alter event trigger fenceguard_children enable always", name)
        self.server.psql("create table parent (id text); select fenceguard.protect('parent', 'id')", name, "installer")
        self.server.install(name)
        self.assertEqual(self.server.psql("select count(*) from pg_event_trigger", name), "0")
        # What it saw to is refused now.
        self.server.psql("create table child () inherits (parent)", name, "installer")
        self.assert_fails("55000", self.server.psql, "insert into parent values ('a')", name, "installer")

    def test_a_second_installation_restores_what_protects_the_fences(self):
        name = self.database()
        self.server.install(name)
        self.server.psql("alter table fenceguard.fences disable trigger all; drop trigger below_floor on fenceguard.floor;"
                         "grant all on fenceguard.fences to public; grant execute on function fenceguard.init to public",
                         name)
        self.server.install(name)
        self.assertEqual(self.server.psql("select count(*) from pg_trigger where tgenabled = 'A' and tgrelid in "
                                          "('fenceguard.fences'::regclass, 'fenceguard.floor'::regclass)", name), "6")
        for sql in ("update fenceguard.fences set token = 1", "select fenceguard.init(9)"):
            self.assert_fails("42501", self.server.psql, sql, name, "application")

    def test_second_installation_and_writers_do_not_block_each_other(self):
        name = self.database()
        self.server.install(name)
        self.server.psql("create table t (id text); select fenceguard.protect('t', 'id')", name)
        with self.server.session(name) as idle, self.server.session(name) as writer:
            idle.run("begin; select fenceguard.advance('a', 7, 'h'); insert into t values ('a');"
                     "select fenceguard.acquire('l', '1 hour', 'x'), fenceguard.draw();"
                     "select * from fenceguard.fence, fenceguard.lease, fenceguard.protected, fenceguard.floor")
            locks = self.server.ruler().run("select count(*) from pg_locks where relation is not null and granted "
                                            f"and pid = {idle.pid}")
            self.assertGreater(int(locks), 8)
            self.server.install(name)
            writer.run("begin; select fenceguard.admit('b', 7, 'h'); insert into t values ('b'); commit")
            idle.run("commit")
        self.assertEqual(self.server.psql("select count(*) from t", name), "2")

    def test_upgrade_under_writers_fails_no_write_and_loses_none(self):
        """The older one left a note of each claim, and its protect_by() had a parameter less."""
        name = self.server.create_database()
        with gzip.open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "older", "before_notes_switch.sql.gz"), "rt",
                       encoding="utf-8") as file:
            self.server.psql(file.read(), name)
        self.server.psql("create table plain (id integer primary key, balance bigint not null); insert into plain "
                         "values (1, 0); create table guarded as table plain; select fenceguard.advance('a', 34, 'h'); "
                         "select fenceguard.protect('guarded', $$ 'a' || left(id::text, 0) $$)", name)
        script = os.path.join(self.server.folder, "load.sql")
        with open(script, "w", encoding="utf-8") as file:
            file.write("update plain set balance = balance + 1 where id = 1 and fenceguard.admitted('a', 34, 'h');\n"
                       "update guarded set balance = balance + 1 where id = 1 and fenceguard.admitted('a', 34, 'h');\n"
                       "begin;\nselect fenceguard.admit('a', 34, 'h');\nupdate guarded set balance = balance + 1;\ncommit;\n")
        load = subprocess.Popen([program("pgbench"), "-n", "-M", "prepared", "-c", "4", "-T", "12", "-f", script,
                                 self.server.conninfo(name)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=environment())
        installations = 0
        while load.poll() is None:
            self.server.install(name)
            installations += 1
        output = load.communicate()[0]
        self.assertEqual(load.returncode, 0, output)
        self.assertGreater(installations, 1)
        written = int(re.search(r"actually processed: ([0-9]+)", output)[1])
        self.assertEqual(self.server.psql("select p.balance, g.balance from plain p, guarded g", name),
                         f"{written}|{2 * written}")
        self.assertEqual(self.server.psql("select fenceguard.leaves_notes()", name), "t")
        self.server.psql("select fenceguard.advance('a', 35, 'n')", name)
        for table in ("plain", "guarded"):
            self.assert_fails("ZF001", self.server.psql,
                              f"update {table} set balance = 0 where fenceguard.admitted('a', 34, 'h')", name)
        # What it protected is judged as before, and may be protected the newer way.
        self.assert_fails("ZF003", self.server.psql, "update guarded set balance = 0", name)
        self.server.psql("select fenceguard.protect('guarded', $$ 'a' || left(id::text, 0) $$, per_statement => true)", name)
        self.assert_fails("ZF003", self.server.psql, "update guarded set balance = 0", name)

    def test_blocked_installation_gives_up_and_changes_nothing(self):
        name = self.database()
        self.server.install(name)
        self.server.psql("alter table fenceguard.fences disable trigger durable_insert", name)
        state = "select oid, tgname, tgenabled from pg_trigger where not tgisinternal order by 1"
        before = self.server.psql(state, name)
        with self.server.session(name) as idle:
            idle.run("begin; select fenceguard.advance('a', 7, 'h')")
            self.assert_fails("55P03", self.server.install, name)
            self.assertEqual(self.server.psql(state, name), before)
            idle.run("commit")
        self.server.install(name)
        self.assertEqual(self.server.psql("select count(*) from pg_trigger where tgrelid in (select oid from pg_class where "
                                          "relnamespace = 'fenceguard'::regnamespace) and not tgisinternal "
                                          "and tgenabled <> 'A'", name), "0")

    def test_another_role_cannot_replace_it(self):
        name = self.database("other")
        self.server.psql(f"grant create on database {name} to installer")
        self.server.install(name, "installer")
        self.assert_fails("42501", self.server.install, name, "other")

    def test_it_ignores_objects_planted_in_its_schema(self):
        """A schema of that name that somebody else made before is not used by a plain installer."""
        name = self.database("other")
        self.server.psql(f"grant create on database {name} to installer")
        self.server.psql("create schema fenceguard; grant all on schema fenceguard to public", name, "other")
        with self.assertRaises(SqlError):
            self.server.install(name, "installer")

    def test_nor_into_one_in_a_schema_of_the_installers_path(self):
        """Anybody may create there up to PostgreSQL 14. What fits a call better than PostgreSQL's own would be called."""
        name = self.database()
        self.server.psql("create table public.trapped (role text); grant insert on public.trapped to public; "
                         "grant create on schema public to other", name)
        for parameters in ("text, regprocedure", "text, text, text", "text, regclass"):
            self.server.psql(f"create function public.format({parameters}) returns text language plpgsql as $$ begin insert "
                             "into public.trapped values (current_user); return 'select 1'; end $$", name, "other")
        self.server.install(name)
        self.server.psql("create function fenceguard.try_admit(text, bigint, text, bigint) returns text language sql as "
                         "'select null::text'", name)
        self.server.install(name)
        self.assertEqual(self.server.psql("select * from public.trapped", name), "")
        self.assertEqual(self.server.psql("select verdict from fenceguard.try_admit('a', 1); show search_path", name),
                         'advance\n"$user", public')

    def test_a_newer_version_is_not_overwritten(self):
        name = self.database()
        self.server.install(name)
        self.server.psql("update fenceguard.schema_version set version = version + 1; "
                         "create or replace function fenceguard.highest(resource text) returns bigint language sql as "
                         "'select 77::bigint'", name)
        error = self.assert_fails("P0001", self.server.install, name)
        self.assertIn("install the newer one", error.message)
        self.assertEqual(self.server.psql("select fenceguard.highest('x')", name), "77")

    def test_another_encoding_is_refused(self):
        self.server.psql("create database latin encoding 'LATIN1' locale 'C' template template0")
        self.assertIn("UTF8", self.assert_fails("P0001", self.server.install, "latin").message)

    def test_it_is_installed_whatever_the_installers_settings_are(self):
        name = self.database()
        self.server.psql(f"alter database {name} set search_path = ''; alter database {name} set datestyle = 'German';"
                         f"alter database {name} set default_transaction_isolation = 'serializable';"
                         f"alter database {name} set quote_all_identifiers = on;"
                         f"alter database {name} set check_function_bodies = off")
        self.server.install(name)
        self.assertEqual(self.server.psql("begin isolation level read committed; select fenceguard.admit('a', 1)", name),
                         "admitted")

    def test_a_dump_restores_fences_and_protection(self):
        name = self.database()
        self.server.install(name)
        self.server.psql(REINSTALLED + "; create table t (id text); insert into t values ('a');"
                         "select fenceguard.protect('t', 'id')", name)
        dump = subprocess.run([program("pg_dump"), "-d", self.server.conninfo(name)], capture_output=True, text=True,
                              env=environment(), check=True).stdout
        restored = self.server.create_database()
        self.server.psql(dump, restored)
        self.assert_fails("ZF001", self.server.psql, "select fenceguard.admit('a', 6, 'h')", restored)
        self.assert_fails("ZF003", self.server.psql, "delete from t", restored)
        self.assert_fails("ZF003", self.server.psql, "truncate t", restored)
        self.assertEqual(self.server.psql("select fenceguard.admit('a', 7, 'h'); select floor from fenceguard.floor",
                                          restored), "admitted\n3")
        self.assertEqual(self.server.psql("select count(*) from pg_trigger where tgname like 'fenceguard%' "
                                          "and tgenabled <> 'A'", restored), "0")
        self.server.install(restored)
        self.assert_fails("ZF003", self.server.psql, "delete from t", restored)

    def test_install_sql_prints_one_line_with_the_version(self):
        name = self.database()
        done = subprocess.run([program("psql"), "-X", "-d", self.server.conninfo(name), "-f", os.path.join(SQL, "install.sql")],
                              capture_output=True, text=True, env=environment(), check=True)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"^(psql:\S+ )?NOTICE:  fenceguard: schema version \d+ is installed\n$")

    def test_uninstall_without_the_right_changes_nothing(self):
        name = self.database()
        self.server.install(name, "installer")
        self.server.psql("grant create, usage on schema public to other", name)
        self.server.psql("create table t (id text); select fenceguard.protect('t', 'id')", name, "other")
        self.server.psql("create table mine (id text); select fenceguard.protect('mine', 'id')", name)
        error = self.assert_fails("42501", self.server.psql, "select fenceguard.uninstall()", name, "installer")
        self.assertIn("mine", error.message)
        for table in ("t", "mine"):
            self.assert_fails("ZF003", self.server.psql, f"insert into {table} values ('a')", name)
        self.server.psql("select fenceguard.uninstall(); insert into t values ('a'); insert into mine values ('a')", name)

    def test_refusals_are_lines_in_the_servers_log(self):
        name = self.database()
        self.server.install(name)
        self.server.psql("create table t (id text); select fenceguard.protect('t', 'id')", name)
        self.server.psql("select fenceguard.advance('logged', 8, 'h')", name)
        self.server.psql("select fenceguard.rule('logged', 7, 'h')", name)
        self.assert_fails("ZF003", self.server.psql, "insert into t values ('logged too')", name)
        for words in ("fenceguard refused a claim as stale: resource 'logged', token 7, highest 8, role postgres",
                      "fenceguard refused a claim as missing: resource 'logged too', token -, highest 0, role postgres"):
            self.assertEqual(self.server.log().count(words), 1, words)

    def test_data_restored_into_an_installed_schema_keep_their_floor(self):
        name = self.database()
        self.server.install(name)
        self.server.psql("select fenceguard.advance('a', 7, 'h'), fenceguard.advance('b', 9, 'h');"
                         "select fenceguard.compact(9); select fenceguard.raise(100)", name)
        archive = f"{self.server.folder}/data_only"
        self.server.psql("update fenceguard.limits set jump_max = 7", name)
        run_as_server(program("pg_dump"), "-Fc", "-a", "-d", self.server.conninfo(name), "-f", archive)
        for present, floor in ((0, 7), (50, 50)):
            restored = self.database()
            self.server.install(restored)
            self.server.psql(f"select fenceguard.init({present})", restored)
            run_as_server(program("pg_restore"), "-a", "-e", "-1", "-d", self.server.conninfo(restored), archive)
            self.assertEqual(self.server.psql("select jump_max from fenceguard.limits", restored), "7")
            self.assertEqual(self.server.psql("select floor from fenceguard.floor; select fenceguard.draw()", restored),
                             f"{floor}\n101")
            self.assert_fails("ZF001", self.server.psql, "select fenceguard.admit('a', 7, 'h')", restored)
            self.assert_fails("ZF001", self.server.psql, "select fenceguard.admit('never', 7)", restored)
            self.assertEqual(self.server.psql(f"select fenceguard.admit('b', {9 if floor < 9 else 51}, 'h')", restored),
                             "admitted")

    def test_a_publication_of_all_tables_has_nothing_refused(self):
        """PostgreSQL refuses to delete published rows of a table without a key, unless its replica identity is full."""
        name = self.database()
        self.server.install(name)
        self.server.psql("create table account (id bigint primary key, balance bigint); insert into account values (1, 1);"
                         "alter table fenceguard.commit_looks replica identity default;"
                         "alter table fenceguard.observations replica identity default", name)
        self.server.install(name)  # over an older one
        self.server.psql("""create publication everything for all tables;
            select fenceguard.advance('a', 5, 'h'), fenceguard.compact(6), fenceguard.init(7);
            select fenceguard.raise(10), fenceguard.draw(), fenceguard.rebase('a', 20), fenceguard.revoke('a');
            create table granted (token bigint primary key);
            insert into granted select token from fenceguard.acquire('l', '1 min', 'h');
            select fenceguard.renew('l', token, 'h'), fenceguard.release('l', token, 'h') from granted;
            select fenceguard.protect('account', $$ 'accounts/' || id $$, mode => 'observe')""", name)
        for _ in range(2):
            self.server.psql("update account set balance = balance + 1", name)
        self.assertEqual(self.server.psql("select statements from fenceguard.observed", name), "2")
        self.server.psql("select fenceguard.protect('account', $$ 'accounts/' || id $$); begin;"
                         "select fenceguard.admit('accounts/1', 8, 'h'); update account set balance = 9; commit;"
                         "select fenceguard.unprotect('account')", name)


if __name__ == "__main__":
    unittest.main()
