"""A claim in the connection string, by the drivers that people have: each program writes a protected table, knows nothing of
fences, and is refused when its claim has gone stale.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from urllib.parse import quote

import psycopg
import psycopg2

import postgres_server
import support

STALE = "ZF001"
WRITE = "update account set balance = balance + 1 where id = 42"
NODE = pathlib.Path(os.environ["FENCEGUARD_NODE_FOLDER"])
NODE_PROGRAM = """
const pg = require('pg');
const client = new pg.Client(%s);
client.connect().then(() => client.query('%s')).then(
  () => { console.log('done'); return client.end(); }, (error) => { console.log(error.code); return client.end(); });
"""
JAVA_PROGRAM = """
import java.sql.*;
public class Program {
  public static void main(String[] words) throws Exception {
    try (var connection = DriverManager.getConnection(words[0]); var statement = connection.prepareStatement(words[1])) {
      statement.executeUpdate();
      System.out.println("done");
    } catch (SQLException error) {
      System.out.println(error.getSQLState());
    }
  }
}
"""


def options(token):
    """With a backslash and spaces in it."""
    claims = json.dumps([{"resource": "accounts/42", "token": str(token), "holder": "nightly\\job"}])
    return postgres_server.session_claims_option(claims)


class Drivers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        support.install_packages(pathlib.Path(__file__).resolve().parent / "node", NODE)
        cls.server = postgres_server.Server()
        cls.addClassCleanup(cls.server.remove)
        cls.name = cls.server.create_database(install=True)
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="fenceguard-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.sql("create table account (id bigint primary key, balance bigint not null); insert into account values (42, 0);"
                "select fenceguard.protect('account', $$ 'accounts/' || id $$)")

    @classmethod
    def sql(cls, text):
        return cls.server.psql(text, cls.name)

    def check(self, write):
        """write(options) answers 'done' or an SQLSTATE."""
        highest = int(self.sql("select coalesce(max(token), 0) from fenceguard.fences"))
        before = int(self.sql("select balance from account"))
        self.sql(f"select fenceguard.advance('accounts/42', {highest + 1}, 'nightly\\job')")
        self.assertEqual(write(options(highest + 1)), "done")
        self.sql(f"select fenceguard.advance('accounts/42', {highest + 2}, 'another')")
        self.assertEqual(write(options(highest + 1)), STALE)
        self.assertEqual(int(self.sql("select balance from account")), before + 1)

    def program(self, *words, **more):
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=support.LIMIT_S, **more).stdout.strip()

    def by_psycopg(self, library, text):
        with library.connect(host="127.0.0.1", port=self.server.port, user="postgres", dbname=self.name, options=text) as connection:
            try:
                connection.cursor().execute(WRITE)
                connection.commit()
                return "done"
            except library.Error as error:
                connection.rollback()
                return getattr(error, "sqlstate", None) or error.pgcode

    def test_psycopg_of_both_versions(self):
        for library in (psycopg2, psycopg):
            with self.subTest(library.__name__):
                self.check(lambda text, library=library: self.by_psycopg(library, text))

    def test_jdbc(self):
        (self.folder / "Program.java").write_text(JAVA_PROGRAM)
        url = f"jdbc:postgresql://127.0.0.1:{self.server.port}/{self.name}?user=postgres&options="
        self.check(lambda text: self.program("java", "-XX:TieredStopAtLevel=1", "-cp", "/usr/share/java/postgresql.jar",
                                             str(self.folder / "Program.java"), url + quote(text), WRITE))

    def test_node_postgres(self):
        def write(text):
            options_ = {"host": "127.0.0.1", "port": self.server.port, "user": "postgres", "database": self.name, "options": text}
            (self.folder / "program.cjs").write_text(NODE_PROGRAM % (json.dumps(options_), WRITE))
            return self.program("node", str(self.folder / "program.cjs"), env={**os.environ, "NODE_PATH": str(NODE / "node_modules")})
        self.check(write)


if __name__ == "__main__":
    unittest.main()
