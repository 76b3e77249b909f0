"""What the tests of the SQL share: a server of their class's own, and a database that is as new for each test.

The database has account (id, balance) with accounts 1 to 9. The resource of an account is accounts/ID.
"""

import json
import os
import sys
import unittest

import pymysql

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from mariadb_server import Server  # noqa: E402

IMPOSSIBLE_IN_A_TRANSACTION = 1568
LOCK_WAIT_TIMEOUT = 1205
CONNECTION_KILLED = 1927
READ_ONLY_TRANSACTION = 1792


class ServerTest(unittest.TestCase):
    settings = {}

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.settings)
        cls.addClassCleanup(cls.server.remove)
        cls.dbname = cls.server.create_database()
        cls.server.run("create table account (id bigint primary key, balance bigint not null) engine = innodb", cls.dbname)

    def setUp(self):
        """Also between the parts of a test."""
        for session in list(self.server._sessions):
            session.close()
        for sql in ("delete from fences", "delete from account", "update namespace set floor_token = 0",
                    "insert into account select seq, 100 from seq_1_to_9"):
            self.sql(sql)

    def session(self, isolation=None):
        session = self.server.session(self.dbname)
        self.addCleanup(session.close)
        if isolation:
            session.run(f"set session transaction isolation level {isolation}")
        return session

    def sql(self, sql, arguments=None):
        return self.server.run(sql, self.dbname, arguments)

    def put(self, resource, token, holder="", sequence=None, closed=False):
        """A fence as it is on record."""
        self.sql("insert into fences (resource, token, holder, sequence, closed, below_floor, updated_at) select "
                 "cast(%s as binary), %s, cast(%s as binary), %s, %s, %s < floor_token, utc_timestamp(6) from namespace",
                 (resource, token, holder, sequence, closed, token))

    def fence(self, resource):
        rows = self.sql("select token, holder, sequence, closed from fences where resource = cast(%s as binary)", (resource,))
        return (rows[0][0], rows[0][1].decode(), *rows[0][2:]) if rows else None

    def balance(self, account=1):
        return self.sql(f"select balance from account where id = {account}")[0][0]

    def verdict(self, session, sql):
        """What a call answers, or the verdict of its refusal."""
        try:
            return session.run(sql)[0][0]
        except pymysql.Error as error:
            return self.refusal(error)

    @staticmethod
    def refusal(error):
        number, message = error.args
        return json.loads(message)["verdict"] if number == 1644 and message.startswith("{") else number

    def assert_fails(self, session, sql, number=None):
        with self.assertRaises(pymysql.Error) as caught:
            session.run(sql)
        if number is not None:
            self.assertEqual(caught.exception.args[0], number, caught.exception)
        return caught.exception.args[1]
