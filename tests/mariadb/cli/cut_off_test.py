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

    def client(self, user, sql="select 1;"):
        """A command with a session, in the words of a shell."""
        return (f"(echo '{sql}'; sleep 100) | MYSQL_PWD={SECRET} mariadb --no-defaults -nu {user} -h 127.0.0.1 "
                f"-P {self.server.port}")

    def stopped_holder(self, sql="select 1;", shown="jobs"):
        process = self.start(*self.words, "--ttl", "60s", "--", "sh", "-c", self.client("jobs", sql))
        wait_until(lambda: self.sessions(shown), what="its session")
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

    def within_procedure(self):
        """A holder whose session the list of sessions shows as the definer of a procedure."""
        self.server.run("create user definer@127.0.0.1")
        self.server.run(f"grant execute on {self.dbname}.* to definer@127.0.0.1")
        self.server.run(f"create definer=definer@127.0.0.1 procedure {self.dbname}.report() do sleep(100)")
        self.stopped_holder(f"call {self.dbname}.report();", shown="definer")

    def wait_words(self, method=None):
        return [*self.words[:-1], method or self.words[-1], "--fence-on-failure", "wait", "--fence-timeout", "500ms", "--"]

    def test_who_is_within_anothers_procedure_may_be_of_the_account(self):
        self.server.run("grant process, connection admin on *.* to guard@127.0.0.1")
        self.within_procedure()
        told = self.expect(125, *self.wait_words(), "touch", "ran")
        self.assertIn("fence method terminate-backends: failure", told.stderr)
        self.assertIn("performance_schema", told.stderr)
        self.assertFalse(os.path.exists(self.path("ran")))

    def test_the_server_may_tell_who_logged_in(self):
        self.server.stop()
        self.server.settings["performance-schema"] = "ON"
        self.server.start()
        self.server.run("grant process, connection admin on *.* to guard@127.0.0.1")
        self.server.run("grant select on performance_schema.threads to guard@127.0.0.1")
        self.within_procedure()
        told = self.expect(0, *self.words, "--", "true")
        self.assertIn("fence method terminate-backends: success: connections ended: 1", told.stderr)
        self.assertEqual(self.sessions("definer"), ())

    def test_an_account_of_another_case_stays(self):
        self.server.run("grant process, connection admin on *.* to guard@127.0.0.1")
        self.server.run(f"create user Jobs@127.0.0.1 identified by '{SECRET}'")
        self.stopped_holder()
        other = pymysql.connect(host="127.0.0.1", port=self.server.port, user="Jobs", password=SECRET)
        self.addCleanup(other.close)
        told = self.expect(0, *self.words, "--", "true")
        self.assertIn("fence method terminate-backends: success: connections ended: 1", told.stderr)
        other.ping(reconnect=False)

    def test_what_outlives_sessions_is_no_success(self):
        self.server.run("grant process, connection admin on *.* to guard@127.0.0.1")
        self.stopped_holder()
        jobs = pymysql.connect(host="127.0.0.1", port=self.server.port, user="jobs", password=SECRET).cursor()
        self.server.run(f"create table {self.dbname}.account (balance int)")
        self.server.run(f"grant insert on {self.dbname}.account to jobs@127.0.0.1")
        for words in ("xa start 'late'", f"insert into {self.dbname}.account values (150)", "xa end 'late'", "xa prepare 'late'"):
            jobs.execute(words)
        told = self.expect(125, *self.wait_words(), "touch", "ran")
        self.assertIn("prepared transactions (XA RECOVER)", told.stderr)
        self.server.run("xa rollback 'late'")
        self.server.run("set global event_scheduler = on")
        self.server.run(f"create definer=jobs@127.0.0.1 event {self.dbname}.again on schedule every 1 day do select 1")
        told = self.expect(125, *self.wait_words(), "touch", "ran")
        self.assertIn("`mysql`.`event`", told.stderr)
        self.server.run("grant select on mysql.event to guard@127.0.0.1")
        told = self.expect(125, *self.wait_words(), "touch", "ran")
        self.assertIn("has events of jobs", told.stderr)
        self.assertFalse(os.path.exists(self.path("ran")))

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
