"""The Java client beyond the scenarios: JDBC against a real PostgreSQL, ShedLock's provider, threads, and its README."""

import os
import pathlib
import re
import subprocess
import unittest
import xml.etree.ElementTree

import asleep
import postgres_server
import support

CLIENT = pathlib.Path(__file__).resolve().parents[2] / "clients" / "java"
CLASSES = os.environ["FENCEGUARD_JAVA_CLASSES"]
DRIVER = "/usr/share/java/postgresql.jar"
CLASS_PATH = f"{CLASSES}:{DRIVER}"
OF_THIS_MACHINE = "new Client()"
WRAPPED = """
import static java.nio.charset.StandardCharsets.UTF_8;
import io.github.fenceguard.*;
import io.github.fenceguard.jdbc.Fence;
import java.net.URI;
import java.sql.*;
import java.time.Duration;

public class Snippets {
  public static void main(String[] urls) throws Exception {
    %s
    try (Connection connection = DriverManager.getConnection(urls[2])) {
      Lease lease = client.adopt("accounts/42", 1, "a");
      %s
    }
  }
}
"""


class JavaClientTest(support.BinaryTest):
    @classmethod
    def setUpClass(cls):
        cls.database = postgres_server.Server()
        cls.addClassCleanup(cls.database.remove)

    def java(self, *words, inside=()):
        return subprocess.run([*inside, "java", "-XX:TieredStopAtLevel=1", "-cp", *words], capture_output=True, text=True,
                              check=False, timeout=support.LIMIT_S, cwd=self.folder, env=support.environment())

    def expect_passed(self, *words, **options):
        done = self.java(CLASS_PATH, "JavaClientTest", *words, **options)
        self.assertEqual((done.returncode, done.stdout), (0, "passed\n"), done.stderr)

    def sides(self):
        server = self.serve("--storage", "sqlite:objects.db")
        return f"http://{server.data}", f"http://{server.control}"

    def make_account(self):
        name = self.database.create_database(install=True)
        self.database.psql("create table account (id bigint primary key, balance bigint not null); "
                           "insert into account values (42, 100)", name)
        return name, f"jdbc:postgresql://127.0.0.1:{self.database.port}/{name}?user=postgres"

    def balance(self, name):
        return self.database.psql("select balance from account where id = 42", name)

    def test_the_callers_transaction_holds_the_check(self):
        name, url = self.make_account()
        self.expect_passed("jdbc", url)
        self.assertEqual(self.balance(name), "130")

    def test_commit_whose_standby_wait_was_cancelled_is_unknown(self):
        name, url = self.make_account()
        with self.database.cancelled_standby_waits():
            self.expect_passed("standby", url)
        self.assertEqual(self.balance(name), "130")

    def test_ended_session_is_stale_before_commit_and_unknown_after(self):
        name, url = self.make_account()
        guard = self.serve("--control", "127.0.0.1:0", "--storage", self.database.url(name), listen=False)
        self.expect_passed("ended", url, f"http://{guard.control}")
        self.assertEqual(self.balance(name), "130")

    def test_nothing_depends_on_the_locale(self):
        self.expect_passed("locales", *self.sides())
        for path in CLIENT.rglob("*.java"):
            found = re.search(r"String\.format\((?!Locale\.ROOT)|\.formatted\(|\.to(Lower|Upper)Case\(\)",
                              re.sub(r"//.*", "", path.read_text(encoding="utf-8")))
            self.assertIsNone(found, f"{path} formats by the default locale: {found}")

    def test_tasks_of_shedlock_have_a_token(self):
        self.expect_passed("shedlock", *self.sides())

    def test_a_lease_is_lost_where_the_machine_slept_past_its_term(self):
        """The time that the machine was up, as the system tells it, is an hour later from one line to the next."""
        uptime = self.write("uptime", "1000.00 0.00\n")
        self.expect_passed("sleep", *self.sides(), uptime, inside=asleep.inside(self, uptime))

    def test_one_client_serves_many_threads(self):
        self.expect_passed("threads", *self.sides())

    def test_the_readme_says_what_runs(self):
        blocks = re.findall(r"```java\n(.*?)```", (CLIENT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
        self.assertEqual(len(blocks), 3)
        guarded, run, own_transaction = blocks
        self.assertIn(OF_THIS_MACHINE, guarded)
        here = guarded.replace(OF_THIS_MACHINE, "new Client(URI.create(urls[0]), URI.create(urls[1]), null)")
        path = self.write("Snippets.java", WRAPPED % (here + run, own_transaction))
        data, control = self.sides()
        name, url = self.make_account()
        done = self.java(CLASS_PATH, path, data, control, url)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(support.request(data.removeprefix("http://"), "GET", "/accounts/42").body, b"60")
        self.assertEqual(self.balance(name), "70")

    def test_its_project_file_has_the_programs_version(self):
        project = xml.etree.ElementTree.parse(CLIENT / "pom.xml").getroot()
        version = project.findtext("{http://maven.apache.org/POM/4.0.0}version")
        self.assertIn(version, self.run_binary("--version").stdout)


if __name__ == "__main__":
    unittest.main()
