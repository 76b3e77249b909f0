"""What tests with several sessions share: a server and its database, and the ways to write under a claim.

The database has account (id, balance), which is not protected, and the same as guarded, which is, both with accounts 1
to 9. The resource of an account is accounts/ID.
"""

import unittest

from postgres_server import Server, SqlError

SET_UP = """
create table account (id bigint primary key, balance bigint not null);
insert into account select i, 100 from generate_series(1, 9) i;
create table guarded (id bigint primary key, balance bigint not null);
insert into guarded select i, 100 from generate_series(1, 9) i;
select fenceguard.protect('guarded', $$ 'accounts/' || id $$);
"""
# The ways of one write to account 1 under a claim, each in one transaction that is already open.
ADMIT = "select fenceguard.admit('accounts/1', {token}, '{holder}')"
WRITES = {
    "admit": ADMIT + "; update account set balance = {value} where id = 1",
    "admit with a sequence": "select fenceguard.admit('accounts/1', {token}, '{holder}', {value}); "
                             "update account set balance = {value} where id = 1",
    "admitted": "update account set balance = {value} where id = 1 "
                "and fenceguard.admitted('accounts/1', {token}, '{holder}')",
    "confirm": "select fenceguard.confirm('accounts/1', {token}, '{holder}'); "
               "update account set balance = {value} where id = 1",
    "try_admit": "with g as materialized (select * from fenceguard.try_admit('accounts/1', {token}, '{holder}')) "
                 "update account set balance = {value} from g where g.verdict = 'admitted' and id = 1",
    "admit_all": "select fenceguard.admit_all('[{{\"resource\": \"accounts/1\", \"token\": {token}, "
                 "\"holder\": \"{holder}\"}}]'); update account set balance = {value} where id = 1",
    "protected": ADMIT + "; update guarded set balance = {value} where id = 1",
}
BALANCES = "select a.balance || ' ' || g.balance from account a join guarded g using (id) where id = 1"


class ServerTest(unittest.TestCase):
    """Tests that share a server and a database of their class's own, which is as new for each of them."""

    settings = {}

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.settings)
        cls.addClassCleanup(cls.server.remove)
        cls.installed = cls.server.create_database(install=True)
        cls.server.psql(SET_UP, cls.installed)
        # Who waits without a drain of its own goes on waiting, however slow the test's next step is.
        cls.server.psql(f"alter database {cls.installed} set fenceguard.drain = '60 s'")

    def setUp(self):
        """Also between the parts of a test: ends what others have open, and puts everything back."""
        self.dbname = self.installed
        for prepared in self.sql("select gid from pg_prepared_xacts").split():
            self.sql(f"rollback prepared '{prepared}'")
        self.sql(f"select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '{self.installed}' "
                 "and pid <> pg_backend_pid()")
        self.sql("""
            delete from fenceguard.fences;
            delete from fenceguard.leases;
            delete from fenceguard.floor;
            insert into fenceguard.floor (floor) values (0);
            alter table guarded disable trigger all;
            update account set balance = 100;
            update guarded set balance = 100;
            alter table guarded enable always trigger fenceguard_rows;
            alter table guarded enable always trigger fenceguard_truncate;
            alter table guarded enable always trigger fenceguard_session;
            drop table if exists granted, drawn""")

    @classmethod
    def leave_notes(cls, do_leave):
        """Switches what the first protect() switches on."""
        cls.server.psql(f"create or replace function fenceguard.leaves_notes() returns boolean language sql stable as "
                        f"'select {do_leave}'", cls.installed)

    def session(self, user="postgres"):
        session = self.server.session(self.dbname, user)
        self.addCleanup(session.close)
        return session

    def sql(self, text, user="postgres"):
        if user == "postgres" and self.dbname == self.installed:
            return self.server.script(text, self.dbname)
        return self.server.psql(text, self.dbname, user)

    def assert_fails(self, sqlstates, function, *arguments):
        with self.assertRaises(SqlError) as caught:
            function(*arguments)
        states = (sqlstates,) if isinstance(sqlstates, str) else sqlstates
        self.assertIn(caught.exception.sqlstate, states, caught.exception.stderr)
        return caught.exception

    def begin_waiting(self, session, sql):
        session.begin_run(sql)
        self.server.wait_until_waiting(session)
