"""'exec --fence-method terminate-backends': sessions of the old holder end before the next command runs.

Shows: sessions in a transaction under the old claim, and idle ones that were started under it, are gone; those of others
stay; and a holder that ended is cut off by nobody.
"""

import os
import signal
import subprocess
import sys
import unittest

import postgres_case
import support
from postgres_case import PostgresTest, setUpModule  # noqa: F401
from waiting import wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "cli", "cutting"))
from method import Method  # noqa: E402

SLEEP = "select pg_sleep(100)"


class TerminateBackends(PostgresTest):
    def setUp(self):
        super().setUp()
        self.words = ["exec", "--source", self.url, "--storage", self.url, "--resource", "r", "--fence-method",
                      "terminate-backends"]

    def psql_words(self, user="postgres"):
        return f"psql -qX 'host=127.0.0.1 port={self.server.port} dbname={self.database} user={user}'"

    def sessions(self):
        """{application_name} of the others in this database."""
        return {name for name in self.sql("select application_name from pg_stat_activity where "
                                          "datname = current_database() and pid <> pg_backend_pid()").splitlines()}

    def holder(self, words):
        """An exec whose command has a session, and is paused with it."""
        process = self.start(*self.words, "--ttl", "6s", "--", "sh", "-c", words,
                             env={"PGPASSWORD": postgres_case.SECRET})
        wait_until(lambda: any(name.startswith("fenceguard:") for name in self.sessions()), what="its session")
        return process

    def start_psql(self, name):
        words = ["psql", "-qX", f"host=127.0.0.1 port={self.server.port} dbname={self.database} user=postgres "
                 f"application_name={name}", "-c", SLEEP]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env={**os.environ, "PGPASSWORD": postgres_case.SECRET})
        self.addCleanup(support.end_process, process)
        wait_until(lambda: name in self.sessions(), what="another session")
        return process

    def stopped(self, words):
        process = self.holder(words)
        process.send_signal(signal.SIGSTOP)
        self.sql("select fenceguard.end_lease('r')")

        def end():
            process.send_signal(signal.SIGCONT)
            process.wait()
        self.addCleanup(end)

    def test_sessions_of_an_old_holder_end_and_others_stay(self):
        self.stopped(f"{self.psql_words()} -c '{SLEEP}'")
        ours = self.start_psql("fenceguard")
        (name,) = [name for name in self.sessions() if name.startswith("fenceguard:")]
        told = self.expect(0, *self.words, "--", "true")
        self.assertIn("fence method terminate-backends: success: connections ended: 1", told.stderr)
        self.assertNotIn(name, self.sessions())
        self.assertIsNone(ours.poll())

    def test_unmarked_session_may_be_an_old_holders(self):
        self.stopped(f"{self.psql_words()} -c '{SLEEP}'")
        other = self.start_psql("other")
        told = self.expect(125, *self.words, "--fence-on-failure", "wait", "--", "touch", "ran")
        self.assertIn("fence method terminate-backends: failure", told.stderr)
        self.assertIn("1 ended, but 1 other sessions of this database do not say", told.stderr)
        self.assertIn("terminate-backends:user=ROLE", told.stderr)
        self.assertFalse(os.path.exists(self.path("ran")))
        self.assertIsNone(other.poll())

    def test_sessions_of_a_role_end_whatever_they_have_become(self):
        self.sql("create role boss login superuser password '%s'; create role other login" % postgres_case.SECRET)
        self.sql("create function definer() returns void language sql security definer as $$ %s $$; "
                 "alter function definer() owner to other" % SLEEP)
        self.addCleanup(self.sql, "drop function definer(); drop role boss, other")
        words = [*self.words[:-1], "terminate-backends:user=boss"]
        became = ("set role other", "set session authorization other", "set application_name = ''", "select definer()")
        sessions = " & ".join(f"{self.psql_words('boss')} -c \"{sql}\" -c '{SLEEP}'" for sql in became)
        self.stopped(f"{sessions} & {self.psql_words('boss').replace(self.database, 'postgres')} -c '{SLEEP}' & wait")
        count = ("select count(*) from pg_stat_activity where usename = 'boss' and wait_event = 'PgSleep'")
        wait_until(lambda: self.sql(count) == "5", what="all sessions asleep")
        other = self.start_psql("other")
        told = self.expect(0, *words, "--", "true")
        self.assertIn("fence method terminate-backends: success: connections ended: 5", told.stderr)
        self.assertEqual(self.sql(count), "0")
        self.assertIsNone(other.poll())

    def test_a_prepared_transaction_outlives_its_session(self):
        self.sql("create role jobs login password '%s'; create role team; grant team to jobs" % postgres_case.SECRET)
        self.sql("create table account (balance int); grant insert on account to team")
        self.stopped(f"(echo \"set role team; begin; insert into account values (150); prepare transaction 'late';\"; "
                     f"sleep 100) | {self.psql_words('jobs')}")
        wait_until(lambda: self.sql("select gid from pg_prepared_xacts") == "late", what="it is prepared")
        self.addCleanup(self.sql, "rollback prepared 'late'")
        for word in ("terminate-backends:user=jobs", "terminate-backends"):
            told = self.expect(125, *self.words[:-1], word, "--fence-on-failure", "wait", "--fence-timeout", "500ms", "--",
                               "touch", "ran")
            self.assertIn("1 prepared transactions", told.stderr)
        self.assertFalse(os.path.exists(self.path("ran")))

    def test_what_names_no_other_role_is_refused(self):
        for which, sentence in ((":other", "only user=ROLE"), (":user=", "only user=ROLE"), (":user=postgres", "user of the URL")):
            told = self.expect(125, *self.words[:-1], f"terminate-backends{which}", "--", "true")
            self.assertIn(sentence, told.stderr)
        self.expect(1, *self.words, "--", "false")  # notes no end
        told = self.expect(0, *self.words[:-1], "terminate-backends:user=nobody", "--", "true")
        self.assertIn("failure: there is no role nobody", told.stderr)

    def test_sessions_of_one_whose_fence_was_revoked_end(self):
        self.stopped(f"sleep 100 | {self.psql_words()}")  # idle, so that the revoke does not wait for it
        self.expect(0, "fence", "revoke", "--storage", self.url, "--resource", "r")
        told = self.expect(0, *self.words, "--", "true")
        self.assertIn("fence method terminate-backends: success: connections ended: 1", told.stderr)

    def test_role_with_claims_only_is_told_whom_to_cut_off(self):
        method = Method(self.path("one"))
        self.sql("create role worker login password '%s'" % postgres_case.SECRET)
        storage = self.url_of(self.database, user="worker")
        words = ["exec", "--source", self.url, "--storage", storage, "--resource", "r", "--fence-method", method.word]
        self.assertEqual(self.expect(0, *words, "--", "true").stderr, "")
        self.assertEqual(self.expect(0, *words, "--", "true").stderr, "")
        self.assertEqual(method.runs(), [], "they had ended")
        token = int(self.expect(0, *words[:-2], "--", "sh", "-c", "echo $FENCING_TOKEN").stdout)
        self.expect(0, *words, "--", "true")
        self.assertEqual(method.runs("ended"), [("r", token, token + 1)], "its exec noted no end")

    def test_one_that_ended_is_not_cut_off(self):
        for _ in range(2):
            told = self.expect(0, *self.words, "--", "true")
            self.assertEqual(told.stderr, "")

    def test_where_sessions_may_not_be_ended_it_has_failed(self):
        process = self.holder(f"{self.psql_words()} -c '{SLEEP}'")
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.sql("create role weak login password '%s'; grant usage on schema fenceguard to weak; "
                 "grant execute on all functions in schema fenceguard to weak; "
                 "grant select on all tables in schema fenceguard to weak" % postgres_case.SECRET)
        weak = self.url_of(self.database, user="weak")
        told = self.expect(125, "exec", "--source", self.url, "--storage", weak, "--resource", "r", "--fence-method",
                           "terminate-backends", "--fence-on-failure", "wait", "--", "touch", "ran")
        self.assertIn("fence method terminate-backends: failure", told.stderr)
        self.assertFalse(os.path.exists(self.path("ran")))


if __name__ == "__main__":
    unittest.main()
