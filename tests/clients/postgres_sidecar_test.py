"""The sidecar in front of PostgreSQL, by the drivers that people have: each program writes a table that nothing protects,
over a connection that it keeps, knows nothing of fences, and is refused once its claim has gone stale.
"""

import json
import os
import pathlib
import subprocess
import unittest
from urllib.parse import quote, urlencode

import postgres_server
import support

NODE = pathlib.Path(os.environ["FENCEGUARD_NODE_FOLDER"])
PQXX = os.environ["FENCEGUARD_PQXX_CLIENT"]
WRITE = "insert into entries (who) values ('program')"
# With its pool, and a parameter.
NODE_PROGRAM = """
const pg = require('pg');
const pool = new pg.Pool({...JSON.parse(process.argv[2]), max: 1});
const write = () => pool.query('insert into entries (who) values ($1)', ['program']).then(() => 'done', (e) => e.code);
(async () => {
  console.log(await write());
  await new Promise((resolve) => process.stdin.once('data', resolve));
  console.log(await write());
  process.exit(0);
})();
"""
# Once in autocommit and once in a block, by a statement that is prepared at the server from its first use on.
JAVA_PROGRAM = """
import java.sql.*;
public class Program {
  static String write(PreparedStatement statement) throws Exception {
    try {
      statement.setString(1, "program");
      statement.executeUpdate();
      if (!statement.getConnection().getAutoCommit()) statement.getConnection().commit();
      return "done";
    } catch (SQLException error) {
      return error.getSQLState();
    }
  }
  public static void main(String[] words) throws Exception {
    try (var connection = DriverManager.getConnection(words[0]);
         var statement = connection.prepareStatement("insert into entries (who) values (?)")) {
      System.out.println(write(statement));
      System.in.read();
      connection.setAutoCommit(false);
      System.out.println(write(statement));
    }
  }
}
"""


class SidecarDrivers(support.BinaryTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        support.install_packages(pathlib.Path(__file__).resolve().parent / "node", NODE)
        cls.server = postgres_server.Server()
        cls.addClassCleanup(cls.server.remove)

    def setUp(self):
        super().setUp()
        self.name = self.server.create_database(install=True)
        self.sql("create table entries (id serial primary key, who text not null)")
        sidecar = self.serve("--storage", self.server.url(self.name), "--listen", "127.0.0.1:0")
        self.port = int(sidecar.data.rpartition(":")[2])
        # With a backslash and spaces in it.
        claims = json.dumps([{"resource": "accounts/42", "token": "7", "holder": "nightly\\job"}])
        self.options = postgres_server.session_claims_option(claims)

    def sql(self, text):
        return self.server.psql(text, self.name)

    def check(self, *words, env=None):
        program = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env=support.environment(env))
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline().strip(), "done")
        self.sql("select fenceguard.advance('accounts/42', 8, 'another'); insert into entries (who) values ('another')")
        rest, _ = program.communicate("\n", timeout=support.LIMIT_S)
        self.assertEqual(rest.strip(), "ZF001")
        self.assertEqual(self.sql("select string_agg(who, ' ' order by id) from entries"), "program another")

    def test_node_postgres_with_its_pool(self):
        self.write("program.cjs", NODE_PROGRAM)
        options = {"host": "127.0.0.1", "port": self.port, "user": "postgres", "database": self.name, "options": self.options}
        self.check("node", f"{self.folder}/program.cjs", json.dumps(options), env={"NODE_PATH": str(NODE / "node_modules")})

    def test_jdbc_with_a_statement_that_is_prepared_at_the_server(self):
        self.write("Program.java", JAVA_PROGRAM)
        self.check("java", "-XX:TieredStopAtLevel=1", "-cp", "/usr/share/java/postgresql.jar", f"{self.folder}/Program.java",
                   f"jdbc:postgresql://127.0.0.1:{self.port}/{self.name}?user=postgres&prepareThreshold=1&options="
                   + quote(self.options))

    def test_libpqxx(self):
        words = {"host": "127.0.0.1", "port": self.port, "user": "postgres", "options": self.options}
        self.check(PQXX, f"postgres:///{self.name}?" + urlencode(words, quote_via=quote), WRITE)


if __name__ == "__main__":
    unittest.main()
