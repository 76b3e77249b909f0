"""What the SQL asks of a server and of its users: rights, the binary log, and what is installed by the client."""

import subprocess
import unittest

import pymysql

from sessions import ServerTest

from mariadb_server import SQL, Server, statements


class Users(ServerTest):
    def setUp(self):
        super().setUp()
        self.sql("create or replace user writer@localhost")
        self.sql(f"grant execute on {self.dbname}.* to writer@localhost")
        self.sql(f"grant select, update on {self.dbname}.account to writer@localhost")
        self.writer = self.server.session(self.dbname, "writer")
        self.addCleanup(self.writer.close)

    def test_a_user_that_may_only_execute_writes_under_claims_and_touches_no_fence(self):
        self.assertEqual(self.verdict(self.writer, "call advance('accounts/1', 5, 'h')"), "admitted")
        self.writer.run("start transaction")
        self.assertEqual(self.verdict(self.writer, "call admit('accounts/1', 5, 'h', 1)"), "admitted")
        self.writer.run("update account set balance = 5 where id = 1")
        self.writer.run("call confirm('accounts/1', 5, 'h')")
        self.writer.run("commit")
        self.assertEqual(self.balance(), 5)
        for sql in ("select holder from fences", "update fences set token = 9", "delete from namespace",
                    "select * from fence", "delete from commit_marks"):
            self.assert_fails(self.writer, sql, 1142)

    def test_the_view_names_no_holder(self):
        self.sql(f"grant select on {self.dbname}.fence to writer@localhost")
        self.put("accounts/1", 5, "secret")
        self.assertEqual(self.writer.run("select resource, token, sequence, closed from fence"), (("accounts/1", 5, None, 0),))
        self.assert_fails(self.writer, "select holder from fence", 1054)


class BinaryLog(unittest.TestCase):
    def test_a_log_that_is_not_synced_is_no_place_for_an_advance(self):
        with Server({"log-bin": "log", "binlog-format": "MIXED"}) as server:
            dbname = server.create_database()
            with server.session(dbname) as client:
                with self.assertRaisesRegex(pymysql.Error, "sync_binlog"):
                    client.run("call advance('a', 1, 'h')")
                server.run("set global sync_binlog = 1")
                self.assertEqual(client.run("call advance('a', 1, 'h')"), (("admitted", 1),))

    def test_with_statement_based_replication_no_fence_is_raised(self):
        with Server({"log-bin": "log", "binlog-format": "STATEMENT", "sync-binlog": 1}) as server:
            dbname = server.create_database()
            with server.session(dbname) as client:
                with self.assertRaisesRegex(pymysql.Error, "BINLOG_FORMAT = STATEMENT"):
                    client.run("call advance('a', 1, 'h')")
            self.assertEqual(server.run("select count(*) from fences", dbname), ((0,),))


class Installation(unittest.TestCase):
    def test_the_client_installs_what_is_printed_and_again_and_as_another_default_engine(self):
        with Server({"default-storage-engine": "MyISAM", "sql-mode": "ANSI"}) as server:
            text = "DELIMITER //\n" + "".join(file.read_text() for file in sorted(SQL.glob("0*.sql"))) + "DELIMITER ;\n"
            for _ in range(2):
                done = subprocess.run(["mariadb", "--no-defaults", f"--socket={server.socket}", "--user=root"], input=text,
                                      capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(server.run("select distinct engine from information_schema.tables where "
                                        "table_schema = 'fenceguard' and table_type = 'BASE TABLE'"), (("InnoDB",),))
            self.assertEqual(server.run("call fenceguard.advance('a', 1, 'h')"), (("admitted", 1),))

    def test_no_statement_is_mariadbs_alone(self):
        """As far as a search can tell: MySQL cannot be installed here."""
        for statement in statements():
            self.assertNotRegex(statement.upper(), r"OR REPLACE (?!VIEW)|RETURNING|NEXT VALUE|NOT ATOMIC|IN_TRANSACTION|"
                                r" WAIT [0-9]|\bEXECUTE IMMEDIATE\b")


if __name__ == "__main__":
    unittest.main()
