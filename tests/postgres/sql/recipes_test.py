"""The recipes of docs/postgres/recipes.md, run as they stand, and in each setting what a stale writer tries: what is
refused, and what the page says is not."""

import os
import re
import subprocess
import sys
import unittest

import support
from postgres_server import FAST, Server, SqlError, environment, literal
from support import wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
import pgbouncer_test  # noqa: E402

PAGE = "docs/postgres/recipes.md"
PROTECT = "select fenceguard.protect('accounts', $$ 'accounts/' || id $$)"
ACCOUNTS = ("create table accounts (id bigint primary key, balance bigint not null); insert into accounts values (42, 100);"
            + PROTECT)
WRITE = "begin; select fenceguard.admit('accounts/42', {}, '{}'); update accounts set balance = {} where id = 42; commit"
TRIGGERS = "select distinct tgenabled from pg_trigger where tgrelid = 'accounts'::regclass and tgname like 'fenceguard%'"


class Recipe(support.PageTest):
    """A server per class, and a database mydb per test, which has the schema."""

    settings = {}

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.settings)
        cls.addClassCleanup(cls.server.remove)

    def setUp(self):
        super().setUp()
        self.server.create_database("mydb", install=True)
        self.addCleanup(self.sql, "drop database mydb with (force)", "postgres")
        self.environment = {"PGHOST": self.server.folder, "PGPORT": str(self.server.port), "PGUSER": "postgres"}

    def run_section(self, section, servers=None):
        self.run_page(PAGE, self.environment, servers, section, ("sh", "sql", "python"))

    def sql(self, text, dbname="mydb", server=None):
        return (server or self.server).psql(text, dbname)

    def assert_fails(self, sqlstate, text, *arguments):
        with self.assertRaises(SqlError) as caught:
            self.sql(text, *arguments)
        self.assertEqual(caught.exception.sqlstate, sqlstate, caught.exception.stderr)

    def session(self):
        session = self.server.session("mydb")
        self.addCleanup(session.close)
        return session

    def shell(self, *words, status=0):
        """A program of PostgreSQL's, where the page's commands run; answers all it says."""
        done = subprocess.run(words, cwd=self.folder, env=environment(self.environment), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout


class OneServer(Recipe):
    def test_serial_keys(self):
        self.run_section("Serial keys and INSERT")
        self.assert_fails("ZF003", "insert into accounts (balance) values (1)")
        self.sql("select fenceguard.advance('accounts/1', 9, 'next')")
        self.assert_fails("ZF001", "begin; select fenceguard.admit('accounts/1', 8, 'late');"
                                   "insert into accounts values (1, 1)")
        # As the page says: a key that is new has no fence.
        self.sql("begin; select fenceguard.admit('accounts/7', 1, 'any'); insert into accounts values (7, 1); commit")

    def test_many_tables_under_one_resource(self):
        self.run_section("Many tables under one resource")
        for write in ("update orders set total = 1", "delete from orders", "update order_lines set pieces = 1",
                      "insert into order_lines values (1, 7, 9)"):
            self.assert_fails("ZF003", write)
            self.assert_fails("ZF001", f"begin; select fenceguard.admit('customers/7', 41, 'a'); {write}")
            self.assert_fails("ZF003", f"begin; select fenceguard.admit('customers/8', 50, 'c'); {write}")
        self.assert_fails("23503", "begin; select fenceguard.admit('customers/8', 50, 'c');"
                                   "insert into order_lines values (1, 8, 9)")
        move = "update orders set customer = 8 where id = 1; commit"
        self.assert_fails("ZF003", f"begin; select fenceguard.admit('customers/7', 42, 'b'); {move}")
        both = '[{"resource": "customers/7", "token": "42", "holder": "b"}, {"resource": "customers/8", "token": "50"}]'
        self.sql(f"begin; select fenceguard.admit_all('{both}'); {move}")
        self.assertEqual(self.sql("select customer from order_lines"), "8")

    def test_one_resource_for_a_whole_table(self):
        self.sql("create table prices (id bigint)")
        self.assert_fails("22023", "select fenceguard.protect('prices', $$ 'prices' $$)")
        self.sql("select fenceguard.protect('prices', $$ 'prices' || left(id::text, 0) $$)")
        self.sql("begin; select fenceguard.admit('prices', 2, 'b'); insert into prices values (1), (2); commit")
        self.assert_fails("ZF001", "begin; select fenceguard.admit('prices', 1, 'a'); delete from prices")

    def test_bulk_imports(self):
        self.run_section("Bulk imports")
        self.assertEqual(self.sql("select count(*) from prices"), "1000")
        self.assert_fails("ZF003", "set session_replication_role = replica; delete from prices")
        self.assert_fails("ZF003", "begin; select fenceguard.admit('prices/2024-05-01', 42, 'import'); truncate prices")
        late = self.session()
        late.run("begin; select fenceguard.admit('prices/2024-05-01', 42, 'import') \\g /dev/null\n"
                 "insert into prices select i, '2024-05-01', 1 from generate_series(2001, 9000) i")
        self.sql("select fenceguard.advance('prices/2024-05-01', 43, 'next', drain => '0.1 s')")
        wait_until(lambda: not self.server.is_connected(late.pid))
        self.assertEqual(self.sql("select count(*) from prices"), "1000")

    def test_migrations(self):
        self.sql("select fenceguard.draw(), fenceguard.advance('accounts/42', 1, 'before')")
        self.run_section("Migrations")
        self.assert_fails("ZF001", "begin; select fenceguard.admit('accounts/42', 1, 'before')")
        self.assertEqual(self.sql("select number, owner from accounts"), "42|unknown")
        self.sql("select fenceguard.advance('accounts/42', 50, 'a')")
        open_claim = self.session()
        open_claim.run("begin; select fenceguard.admit('accounts/42', 50, 'a')")
        self.sql("select fenceguard.raise(60), fenceguard.init(60)")
        with self.assertRaises(SqlError) as caught:
            open_claim.run("update accounts set balance = 1")
        self.assertEqual(caught.exception.sqlstate, "ZF001")
        open_claim.run("rollback")
        write = "update accounts set balance = 1"
        self.assert_fails("ZF003", write)
        self.sql("alter table accounts rename column number to id")
        self.assert_fails("42703", f"begin; select fenceguard.admit('accounts/42', 70, 'a'); {write}")
        self.sql(f"{PROTECT}; alter table accounts alter column id type integer")
        with self.assertRaises(SqlError) as caught:
            self.sql(write)
        self.assertIn(caught.exception.sqlstate, ("ZF003", "42804"))  # plain SQL goes on, the extension wants protect()
        self.sql(f"{PROTECT}; begin; select fenceguard.admit('accounts/42', 70, 'a'); {write}; commit")

    def test_programs_that_cannot_be_changed(self):
        self.run_section("Programs that cannot be changed")
        self.assertEqual(self.sql("select total from reports"), "2")
        write = "update reports set total = 9"
        given = "set fenceguard.session_claims = '[{}]'; " + write
        claim = '{{"resource": "jobs/nightly", "token": "{}", "holder": "{}"}}'
        self.assert_fails("ZF001", given.format(claim.format(999, "next")))
        self.assert_fails("ZF002", given.format(claim.format(1000, "other")))
        self.assert_fails("40001", given.format(claim.format(1001, "next")))
        self.assert_fails("22023", given.format("x"))
        self.sql(f"begin; set local fenceguard.session_claims = '[{claim.format(1000, 'next')}]'; {write}; commit")
        self.assert_fails("ZF003", f"begin; set local fenceguard.session_claims = '[{claim.format(1000, 'next')}]'; commit; "
                                   + write)

    def test_a_table_that_is_swapped_in_by_its_name(self):
        self.sql(ACCOUNTS)
        swap = ("begin; create table fresh (like accounts including all); insert into fresh select * from accounts; {}"
                "drop table accounts; alter table fresh rename to accounts; commit")
        self.sql(swap.format("select fenceguard.protect('fresh', $$ 'accounts/' || id $$);"))
        self.assert_fails("ZF003", "update accounts set balance = 1")
        self.sql(swap.format(""))
        self.sql("update accounts set balance = 1")  # as the page says

    def run_program(self, section, more):
        """The program of a section, and behind it more of it."""
        [(_, text, _)] = support.blocks((support.ROOT / PAGE).read_text(encoding="utf-8"), section, ("python",))
        self.write("more.py", text + more)
        return self.shell("/usr/bin/python3", "more.py").split()

    def test_sqlalchemy(self):
        self.sql(ACCOUNTS)
        self.run_section("SQLAlchemy")
        self.assertEqual(self.run_program("SQLAlchemy", """
with fenced("accounts/42", 42, "b") as session, Session(engine) as other:
    kept = other.get(Account, 42)
    other.expunge(kept)
    session.get(Account, 42).balance = 500
    session.commit()
    kept.balance += 1
    session.merge(kept)
    session.commit()
    print(session.get(Account, 42).balance)     # as the page says: 160 + 1 over 500
for options in ({}, {"isolation_level": "AUTOCOMMIT"}):
    with Session(engine.execution_options(**options)) as session:
        session.get(Account, 42).balance = 0
        try:
            session.commit()
        except sa.exc.DBAPIError as error:
            print(error.orig.diag.sqlstate)
"""), ["160", "ZF001", "161", "ZF003", "ZF003"])

    def test_django(self):
        self.sql(ACCOUNTS + "; create table notes (balance bigint)")
        self.run_section("Django")
        self.assertEqual(self.run_program("Django", """
kept = Account.objects.get(id=42)
with fenced("accounts/42", 42, "b"):
    Account.objects.update(balance=500)
with fenced("accounts/42", 42, "b"):
    kept.save()
    print(Account.objects.get(id=42).balance)   # as the page says: an old reading over 500
def claim():
    connection.cursor().execute("select fenceguard.admit('accounts/42', 42, 'b')")
try:
    with transaction.atomic():
        try:
            with transaction.atomic():
                claim()
                raise ZeroDivisionError
        except ZeroDivisionError:
            Account.objects.update(balance=1)
except utils.Error as error:
    print(error.__cause__.diag.sqlstate)
claim()
connection.cursor().execute("insert into notes values (1)")
try:
    Account.objects.update(balance=1)
except utils.Error as error:
    print(error.__cause__.diag.sqlstate)
try:
    with transaction.atomic(), fenced("accounts/42", 42, "b"):
        pass
except RuntimeError:
    print("nested")
"""), ["160", "ZF001", "160", "ZF003", "ZF003", "nested"])

    def test_dump_and_restore(self):
        self.sql(ACCOUNTS + ";" + WRITE.format(7, "a", 70))
        self.addCleanup(self.sql, "drop database broken", "postgres")
        self.run_section("pg_dump and restore")
        self.assertEqual(self.sql(f"select balance from accounts; {TRIGGERS}"), "70\nA")
        self.assert_fails("ZF003", "update accounts set balance = 1")
        self.assert_fails("ZF001", WRITE.format(7, "a", 1))
        after = self.sql("select token from fenceguard.acquire('accounts/42', '1 min', 'b')", "broken")
        self.assert_fails("ZF001", WRITE.format(after, "b", 1))
        token = self.sql("select token from fenceguard.acquire('accounts/42', '1 min', 'c')")
        self.sql(WRITE.format(token, "c", 90))

    def restore(self, *options, status=0):
        """A database of what the archive holds; answers what pg_restore says."""
        self.sql("drop database if exists other; create database other", "postgres")
        self.addCleanup(self.sql, "drop database if exists other", "postgres")
        return self.shell("pg_restore", "-d", "other", *options, "archive", status=status)

    def test_unraised_counter_admits_what_was_granted_after_the_dump(self):
        self.sql(ACCOUNTS)
        self.shell("pg_dump", "-Fc", "-f", "archive", "mydb")
        after = self.sql("select fenceguard.draw(), fenceguard.draw(); "
                         "select token from fenceguard.acquire('accounts/42', '1 min', 'a')").split()[-1]
        self.restore("-e")
        self.sql("select fenceguard.init(fenceguard.draw())", "other")
        self.sql(WRITE.format(after, "a", 1), "other")  # as the page says

    def test_a_dump_of_a_table_or_of_data_alone(self):
        self.sql(ACCOUNTS)
        self.shell("pg_dump", "-Fc", "-f", "archive", "-t", "accounts", "mydb")
        self.restore("-e", status=1)
        self.assertIn("fenceguard_check", self.restore(status=1))
        self.sql("update accounts set balance = 1", "other")  # as the page says
        data = ["pg_restore", "-a", "-t", "accounts"]
        empty = "begin; select fenceguard.admit('accounts/42', 7, 'a'); delete from accounts; commit"
        self.sql(empty)
        self.assertIn("without a claim", self.shell(*data, "-d", "mydb", "archive", status=1))
        load = ("{{ echo \"begin; select fenceguard.admit('accounts/42', {}, 'a');\"; "
                "pg_restore -a -t accounts -f - archive; echo 'commit;'; }} | psql -q -v ON_ERROR_STOP=1 mydb")
        self.assertIn("stale", self.shell("bash", "-c", load.format(6), status=3))
        self.shell("bash", "-c", load.format(7))
        self.assertEqual(self.sql(f"select balance from accounts; {TRIGGERS}"), "100\nA")
        self.sql(empty)
        self.shell(*data, "--disable-triggers", "-d", "mydb", "archive")
        self.assertEqual(self.sql(f"select balance from accounts; {TRIGGERS}"), "100\nO")
        self.assert_fails("ZF003", "update accounts set balance = 1")
        self.sql(PROTECT)
        self.assertEqual(self.sql(TRIGGERS), "A")

    @unittest.skipIf(FAST, "its own test tells of the errors of that restore")
    def test_partitions_are_restored_without_an_error(self):
        self.sql("""create table parts (id bigint) partition by range (id); create table base (id bigint);
            select fenceguard.protect('parts', $$ 'parts/' || id $$), fenceguard.protect('base', $$ 'base/' || id $$);
            create table a_part partition of parts for values from (0) to (10);
            create table parts_2 partition of parts for values from (10) to (20);
            create table a_child () inherits (base); create table base_2 () inherits (base)""")
        self.shell("pg_dump", "-Fc", "-f", "archive", "mydb")
        self.restore("-e")
        for table in ("parts", "a_part", "parts_2", "base", "a_child", "base_2"):
            self.assert_fails("ZF003", f"insert into {table} values ({12 if table == 'parts_2' else 2})", "other")
            self.assert_fails("ZF003", f"truncate {table}", "other")

    def test_pgbouncer(self):
        self.sql(ACCOUNTS + "; create role app login; grant select, update on accounts to app")
        self.addCleanup(self.sql, "drop owned by app; drop role app")
        [(_, text, _)] = support.blocks((support.ROOT / PAGE).read_text(encoding="utf-8"), "PgBouncer", ("ini",))
        text = text.replace("port=5432", f"port={self.server.port}").replace("listen_port = 6432", "listen_port = {port}")
        text = re.sub(r"pool_size=\d+", "pool_size=1", text)
        bouncer = pgbouncer_test.PgBouncer(self.server, text + "unix_socket_dir =\nadmin_users = postgres\n")
        self.addCleanup(bouncer.remove)
        self.run_section("PgBouncer", {"6432": str(bouncer.port)})
        stalled, advance, other = (bouncer.session(name) for name in ("mydb", "mydb", "mydb_advance"))
        advance.run("select 1")
        stalled.run("begin; select fenceguard.admit('accounts/42', 34, 'b'); update accounts set balance = 1 where id = 42")
        advance.begin_run("select fenceguard.advance('accounts/42', 35, 'c', drain => '0.1 s')")
        pools = ("psql", "-XAt", bouncer.conninfo("pgbouncer", "postgres"), "-c", "show pools")
        wait_until(lambda: re.search(r"^mydb\|\w+\|1\|1\|", self.shell(*pools), re.MULTILINE))
        self.assertEqual(other.run("select fenceguard.advance('accounts/42', 35, 'c', drain => '0.1 s')"), "admitted")
        self.assertEqual(advance.wait(), "admitted")
        self.assertEqual(self.sql("select balance from accounts"), "70")


class LogicalReplication(Recipe):
    settings = {"wal_level": "logical"}

    def setUp(self):
        super().setUp()
        self.sql(ACCOUNTS)

    def start_subscriber(self):
        subscriber = Server()
        self.addCleanup(self.sql, "select pg_drop_replication_slot(slot_name) from pg_replication_slots")
        self.addCleanup(subscriber.remove)
        subscriber.create_database("mydb", install=True)
        return subscriber

    def test_a_move_to_another_server(self):
        new = self.start_subscriber()
        self.run_section("Logical replication", {"5432": str(self.server.port), "5433": str(new.port)})
        self.assertEqual(self.sql(f"select balance from accounts; {TRIGGERS}", "mydb", new), "70\nA")
        self.assert_fails("ZF003", "update accounts set balance = 1", "mydb", new)
        for server in (self.server, new):
            self.assert_fails("ZF001", WRITE.format(33, "a", 1), "mydb", server)
            self.assert_fails("ZF001", WRITE.format(100, "a", 1), "mydb", server)
        token = self.sql("select token from fenceguard.acquire('accounts/42', '1 min', 'b')", "mydb", new)
        self.sql(WRITE.format(token, "b", 90), "mydb", new)

    def test_a_subscriber_whose_table_is_protected_applies_nothing(self):
        new = self.start_subscriber()
        subscribe = f"create subscription app connection {literal(self.server.url('mydb'))} publication app"
        self.sql("create publication app for table accounts")
        self.sql(f"create table accounts (id bigint primary key, balance bigint); {PROTECT}", "mydb", new)
        self.sql(subscribe, "mydb", new)
        wait_until(lambda: "a write to 'accounts/42' without a claim" in new.log())
        self.sql(f"drop subscription app; {subscribe} with (copy_data = false)", "mydb", new)
        self.sql("begin; select fenceguard.admit('accounts/43', 7, 'a'); insert into accounts values (43, 1); commit")
        wait_until(lambda: "a write to 'accounts/43' without a claim" in new.log())
        self.assertEqual(self.sql("select count(*) from accounts; drop subscription app", "mydb", new), "0")

    def test_a_subscriber_with_partitions_lets_the_worker_in(self):
        new = self.start_subscriber()
        self.sql("create publication app for table accounts")
        subscribe = f"create subscription app connection {literal(self.server.url('mydb'))} publication app"
        switch = "alter table accounts enable trigger user; alter table accounts_1 enable trigger user"
        self.sql("create table accounts (id bigint primary key, balance bigint) partition by range (id);"
                 "create table accounts_1 partition of accounts for values from (0) to (100);"
                 f"{PROTECT}; {switch}", "mydb", new)
        self.assertEqual(self.sql(TRIGGERS.replace("accounts", "accounts_1"), "mydb", new), "A")
        self.sql(f"alter event trigger fenceguard_children disable; {switch};"
                 f"alter event trigger fenceguard_children enable always; {subscribe}", "mydb", new)
        wait_until(lambda: self.sql("select balance from accounts", "mydb", new) == "100")
        for table in ("accounts", "accounts_1"):
            self.assert_fails("ZF003", f"update {table} set balance = 1", "mydb", new)
        self.sql("drop subscription app", "mydb", new)

    def test_a_subscriber_that_judges_statements_lets_the_worker_in(self):
        new = self.start_subscriber()
        self.sql("create publication app for table accounts")
        self.sql("create table accounts (id bigint primary key, balance bigint);"
                 "select fenceguard.protect('accounts', $$ 'accounts/' || id $$, per_statement => true);"
                 "alter table accounts enable trigger user", "mydb", new)
        self.sql(f"create subscription app connection {literal(self.server.url('mydb'))} publication app", "mydb", new)
        wait_until(lambda: self.sql("select balance from accounts", "mydb", new) == "100")
        self.sql(WRITE.format(7, "a", 70))
        wait_until(lambda: self.sql("select balance from accounts", "mydb", new) == "70")
        self.assert_fails("ZF003", "update accounts set balance = 1", "mydb", new)
        self.sql("drop subscription app", "mydb", new)


if __name__ == "__main__":
    unittest.main()
