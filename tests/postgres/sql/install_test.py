"""Installing sql/postgres/ as a user does: by a superuser and by a plain role, again over a live installation, over a
newer one, into the wrong database."""

import subprocess
import unittest

from postgres_server import Server, SqlError, environment, program

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

    def test_a_role_with_create_on_the_database_installs_it_and_others_use_it(self):
        name = self.database("other")
        self.server.psql(f"grant create on database {name} to installer")
        self.server.install(name, "installer")
        self.assertEqual(self.server.psql("select fenceguard.admit('a', 1)", name, "application"), "admitted")
        self.assert_fails("42501", self.server.psql, "select * from fenceguard.fences", name, "application")
        self.assertEqual(self.server.psql("select count(*) from pg_event_trigger", name), "0")

    def test_without_create_on_the_database_it_is_not_installed(self):
        self.assert_fails("42501", self.server.install, self.database("other"), "installer")

    def test_a_second_installation_keeps_fences_floor_leases_and_what_an_administrator_narrowed(self):
        for installer in ("postgres", "installer"):
            name = self.database()
            self.server.install(name, installer)
            self.server.psql(REINSTALLED, name, installer)
            self.server.psql("revoke usage on schema fenceguard from public; grant usage on schema fenceguard to other;"
                             "grant select on fenceguard.fence to other; create table t (id text);"
                             "select fenceguard.protect('t', 'id')", name, installer)
            state = ("select resource, token, holder, sequence, closed, updated_at from fenceguard.fences;"
                     "select floor from fenceguard.floor; select * from fenceguard.leases;"
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

    def test_a_second_installation_restores_what_protects_the_fences(self):
        name = self.database()
        self.server.install(name)
        self.server.psql("alter table fenceguard.fences disable trigger all; drop trigger below_floor on fenceguard.floor;"
                         "grant all on fenceguard.fences to public; grant execute on function fenceguard.init to public",
                         name)
        self.server.install(name)
        self.assertEqual(self.server.psql("select count(*) from pg_trigger where tgenabled = 'A' and tgrelid in "
                                          "('fenceguard.fences'::regclass, 'fenceguard.floor'::regclass)", name), "5")
        for sql in ("update fenceguard.fences set token = 1", "select fenceguard.init(9)"):
            self.assert_fails("42501", self.server.psql, sql, name, "application")

    def test_somebody_else_does_not_replace_it(self):
        name = self.database("other")
        self.server.psql(f"grant create on database {name} to installer")
        self.server.install(name, "installer")
        self.assert_fails("42501", self.server.install, name, "other")

    def test_it_does_not_fall_into_a_trap_that_somebody_laid_in_its_schema(self):
        """A schema of that name that somebody else made before is not used by a plain installer."""
        name = self.database("other")
        self.server.psql(f"grant create on database {name} to installer")
        self.server.psql("create schema fenceguard; grant all on schema fenceguard to public", name, "other")
        with self.assertRaises(SqlError):
            self.server.install(name, "installer")

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


if __name__ == "__main__":
    unittest.main()
