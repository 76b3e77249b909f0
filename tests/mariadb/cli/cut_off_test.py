"""'exec --fence-method terminate-backends:user=NAME' on a mariadb: storage: the sessions of the holders' account end before the
next command runs, those of others stay, and a holder that ended is cut off by nobody."""

import os
import re
import signal
import sys
import unittest

import pymysql
from product_case import SECRET, ProductTest
from waiting import wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from mariadb_server import Server, statements  # noqa: E402


class TerminateBackends(ProductTest):
    def setUp(self):
        super().setUp()
        self.server = Server()
        self.addCleanup(self.server.remove)
        self.dbname = self.server.create_database()
        for user in ("guard", "jobs", "other"):
            self.server.run(f"create user {user}@127.0.0.1 identified by '{SECRET}'")
            self.server.run(f"grant select, execute on {self.dbname}.* to {user}@127.0.0.1")
        self.url = f"mariadb://guard:{SECRET}@127.0.0.1:{self.server.port}/?schema={self.dbname}"
        self.words = ["exec", "--source", self.url, "--storage", self.url, "--resource", "r", "--fence-method",
                      "terminate-backends:user=jobs"]

    def sessions(self, user):
        return self.server.run(f"select id from information_schema.processlist where user = '{user}'")

    def client(self, user):
        """A command with an idle session, in the words of a shell."""
        return (f"(echo 'select 1;'; sleep 100) | MYSQL_PWD={SECRET} mariadb --no-defaults -nu {user} -h 127.0.0.1 "
                f"-P {self.server.port}")

    def stopped_holder(self):
        process = self.start(*self.words, "--ttl", "60s", "--", "sh", "-c", self.client("jobs"))
        wait_until(lambda: self.sessions("jobs"), what="its session")
        process.send_signal(signal.SIGSTOP)
        self.server.run("call end_lease('r')", self.dbname)

        def go_on():
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait()
        self.addCleanup(go_on)

    def test_sessions_of_the_account_end_and_others_stay(self):
        self.server.run("grant process, connection admin on *.* to guard@127.0.0.1")
        other = pymysql.connect(host="127.0.0.1", port=self.server.port, user="other", password=SECRET)
        self.addCleanup(other.close)
        self.stopped_holder()
        told = self.expect(0, *self.words, "--", "true")
        self.assertIn("fence method terminate-backends: success: connections ended: 1", told.stderr)
        self.assertEqual(self.sessions("jobs"), ())
        other.ping(reconnect=False)

    def test_one_that_ended_is_not_cut_off(self):
        for _ in range(2):
            self.assertEqual(self.expect(0, *self.words, "--", "true").stderr, "")

    def test_one_of_whom_older_sql_does_not_tell_may_be_there(self):
        self.server.run("grant process, connection admin on *.* to guard@127.0.0.1")
        self.expect(0, *self.words, "--", "true")
        tells = "SELECT verdict, highest, changed, overtaken;"
        drop, create = (statement for statement in statements() if re.search(r"PROCEDURE (IF EXISTS )?try_advance\b", statement))
        self.assertIn(tells, create)
        for statement in (drop, create.replace(tells, "SELECT verdict, highest, changed;")):
            self.server.run(statement, self.dbname)
        for _ in range(2):
            told = self.expect(0, *self.words, "--", "true")
            self.assertIn("fence method terminate-backends: success: connections ended: 0", told.stderr)

    def test_where_sessions_may_not_be_seen_or_ended_it_has_failed(self):
        self.stopped_holder()
        for grant, what in ((None, "PROCESS"), ("process", "CONNECTION ADMIN")):
            if grant:
                self.server.run(f"grant {grant} on *.* to guard@127.0.0.1")
            told = self.expect(125, *self.words, "--fence-on-failure", "wait", "--", "touch", "ran")
            self.assertIn("fence method terminate-backends: failure", told.stderr)
            self.assertIn(what, told.stderr)
        self.assertFalse(os.path.exists(self.path("ran")))
        self.assertEqual(len(self.sessions("jobs")), 1)

    def test_without_an_account_or_with_the_urls_own_it_is_refused(self):
        for which, what in (("", "terminate-backends:user=NAME"), (":user=", "terminate-backends:user=NAME"),
                            (":user=guard", "the user of the URL")):
            told = self.expect(125, *self.words[:-1], f"terminate-backends{which}", "--", "true")
            self.assertIn(what, told.stderr)


if __name__ == "__main__":
    unittest.main()
