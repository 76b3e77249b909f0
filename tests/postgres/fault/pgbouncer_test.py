#!/usr/bin/python3
"""Claims through a real PgBouncer in transaction mode, where clients take turns on one connection to the server."""

import os
import re
import socket
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "kit"))
import postgres_server  # noqa: E402
from postgres_server import FAST, ConnectionLost, Server, Session, SqlError  # noqa: E402
from server_process import ServerProcess  # noqa: E402

CONFIGURATION = """
[databases]
* = host={server.folder} port={server.port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 1
ignore_startup_parameters = extra_float_digits
"""


class PgBouncer(ServerProcess):
    """In front of a server; by CONFIGURATION with one connection to it per database. Sessions of it are sessions of the
    server's kind."""

    def __init__(self, server, configuration=CONFIGURATION):
        self.server = server
        self.configuration = configuration
        self._sessions = []
        super().__init__("bouncer")
        postgres_server.own(self.folder)
        self.start_on_free_ports()

    def choose_ports(self):
        super().choose_ports()
        with open(f"{self.folder}/pgbouncer.ini", "w", encoding="utf-8") as file:
            file.write(self.configuration.format(server=self.server, port=self.port))

    def words(self):
        return ["/usr/sbin/pgbouncer", "-q", f"{self.folder}/pgbouncer.ini"]

    def process_options(self):
        return postgres_server.server_user()

    def is_ready(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def conninfo(self, dbname, user):
        return f"postgres://{user}@127.0.0.1:{self.port}/{dbname}"

    def session(self, dbname):
        return Session(self, dbname, "postgres")

    def remove(self):
        for session in list(self._sessions):
            session.close()
        super().remove()


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

    def test_a_claim_ends_with_its_transaction_and_does_not_leak_to_the_next_client(self):
        self.assertEqual(self.refusal(self.b, "update account set balance = 1"), "ZF003")
        self.a.run("begin; select fenceguard.admit('accounts/42', 34, 'a'); update account set balance = 70; commit")
        self.assertEqual(self.refusal(self.b, "update account set balance = 2"), "ZF003")
        self.a.run("update account set balance = 71 where id = 42 and fenceguard.admitted('accounts/42', 34, 'a')")
        self.assertEqual(self.refusal(self.b, "update account set balance = 3"), "ZF003")
        self.assertEqual(self.refusal(self.b, "begin; update account set balance = 3"), "ZF003")
        self.assertEqual(self.server.psql("select balance from account", self.database), "71")

    def test_a_claim_that_was_rolled_back_or_refused_leaves_nothing_behind(self):
        self.a.run("begin; select fenceguard.admit('accounts/42', 34, 'a'); rollback")
        self.assertEqual(self.refusal(self.b, "update account set balance = 2"), "ZF003")
        self.a.run("begin; select fenceguard.admit('accounts/42', 35, 'a'); commit")
        self.assertEqual(self.refusal(self.a, "begin; select fenceguard.admit('accounts/42', 34, 'a')"), "ZF001")
        self.assertEqual(self.refusal(self.b, "update account set balance = 2"), "ZF003")
        self.assertEqual(self.server.psql("select balance from account", self.database), "100")

    def test_what_a_client_sets_for_its_session_stands_for_no_claim_of_the_next_one(self):
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

    def test_claims_that_a_connection_hands_over_are_refused_or_dropped_so_that_nothing_is_written(self):
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
