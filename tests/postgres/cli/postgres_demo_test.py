"""demo and doctor with postgres://."""

import json
import os
import signal
import unittest

import postgres_server
import support
from demo_case import status_of
from postgres_case import PostgresTest, setUpModule  # noqa: F401
from support import wait_until


class Demo(PostgresTest):
    def demo(self, *arguments):
        done = self.run_binary("demo", "--storage", self.url, *arguments, env={"TMPDIR": self.folder},
                               limit_s=60)
        self.assertEqual(self.places(), "")
        return done

    def places(self):
        return self.sql("select string_agg(nspname, ' ') from pg_namespace "
                        "where nspname like 'fenceguard\\_demo%'")

    def test_shows_both_outcomes_and_leaves_nothing_behind(self):
        done = self.demo()
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("round the guard:   150, should be 180: B's +30 is LOST", done.stdout)
        self.assertIn("through the guard: 180: both updates survive", done.stdout)
        self.assertIn("REFUSED as stale: token", " ".join(done.stdout.split()))
        self.assertEqual(os.listdir(self.folder), [])

    def test_json_and_timeline(self):
        report = json.loads(self.demo("--json", "--timeline", "page.html").stdout)
        self.assertTrue(report["as_it_must_be"])
        self.assertEqual((report["round"]["final"], report["through"]["final"]), (150, 180))
        refused = [event for event in report["through"]["events"] if event["event"] == "refused"]
        self.assertEqual([event.get("status") for event in refused], [None])
        with open(self.path("page.html"), encoding="utf-8") as page:
            self.assertIn("REFUSED as stale: token", page.read())

    def test_an_interrupt_drops_its_table(self):
        status = support.interrupted(
            lambda: self.start("demo", "--storage", self.url, env={"TMPDIR": self.folder}), signal.SIGINT,
            lambda: self.places() != "", limit_s=60)
        self.assertEqual(status, 128 + signal.SIGINT)
        self.assertEqual(self.places(), "")

    def test_psql_through_the_sidecar(self):
        done = self.demo("--via", "sidecar", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        report = json.loads(done.stdout)
        self.assertEqual((report["round"]["final"], report["through"]["final"]), (150, 180))
        [refused] = [event for event in report["through"]["events"] if event["event"] == "refused"]
        self.assertEqual((refused["client"], int(refused["highest"]) - int(refused["token"])), ("A", 1))
        self.assertIn("Both are psql,", " ".join(self.demo("--via", "sidecar").stdout.split()))

    def test_it_is_psql_that_is_stopped(self):
        def has_stopped_psql():
            return any(status_of(pid, "Name") == "psql" and status_of(pid, "State").startswith("T")
                       for pid in support.processes_with(f"TMPDIR={self.folder}"))
        status = support.interrupted(
            lambda: self.start("demo", "gc-pause", "--via", "sidecar", "--storage", self.url, env={"TMPDIR": self.folder}),
            signal.SIGTERM, has_stopped_psql, limit_s=60)
        self.assertEqual(status, 128 + signal.SIGTERM)
        self.assertEqual(self.places(), "")

    def test_another_source(self):
        self.assertEqual(self.demo("--source", "sqlite:leases.db").returncode, 0)


class Doctor(PostgresTest):
    def findings(self, status, *arguments, url=None):
        arguments = arguments or ("--storage", url or self.url)
        found = self.expect_json(status, "doctor", *arguments)["findings"]
        return {(each["level"], each["check"]): each["message"] for each in found}

    def assert_danger(self, check, words, url=None):
        found = self.findings(1, url=url)
        self.assertIn(("danger", check), found)
        self.assertIn(words, found["danger", check])

    def test_a_good_server(self):
        found = self.findings(0, "--storage", self.url, "--source", self.url)
        self.assertEqual({level for level, _ in found}, {"ok", "warning"})
        self.assertEqual([check for level, check in found if level == "warning"], ["role"])
        lines = self.expect(0, "doctor", "--storage", self.url, "--source", self.url).stdout.splitlines()
        self.assertEqual(len(lines), len(set(lines)))

    def test_settings_that_lose_what_was_written(self):
        with postgres_server.Server({"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off",
                                     "max_locks_per_transaction": "10"}) as server:
            url = self.url_of(server.create_database(install=True), server)
            found = self.findings(1, url=url)
            for key in [("danger", "fsync"), ("danger", "full_page_writes"),
                        ("warning", "synchronous_commit"), ("warning", "max_locks_per_transaction")]:
                self.assertIn(key, found)

    def test_a_standby_and_its_primary(self):
        with postgres_server.Server() as primary:
            database = primary.create_database(install=True)
            with primary.standby() as standby:
                wait_until(lambda: primary.psql("select count(*) from pg_stat_replication "
                                                "where state = 'streaming'") == "1")
                found = self.findings(0, url=self.url_of(database, primary))
                self.assertIn("conflict", found["warning", "standbys"])
                wait_until(lambda: standby.psql("select count(*) from pg_database where "
                                                f"datname = '{database}'") == "1")
                self.assert_danger("primary", "standby", url=self.url_of(database, standby))

    def test_another_encoding(self):
        name = f"{self.database}_ascii"
        self.server.psql(f"create database {name} encoding 'SQL_ASCII' template template0 locale 'C'")
        self.assert_danger("encoding", "SQL_ASCII", url=self.url_of(name))

    def test_a_prepared_transaction_with_a_claim(self):
        self.sql("begin; select fenceguard.admit('a', 1, 'h'); commit")
        self.sql("begin; select fenceguard.admit('a', 1, 'h'); prepare transaction 'forgotten one'")
        try:
            self.assert_danger("prepared transactions", "forgotten one")
        finally:
            self.sql("rollback prepared 'forgotten one'")
        self.findings(0)

    def test_a_role_that_may_write_fences(self):
        self.sql("create role writer_of_fences; grant update on fenceguard.fences to writer_of_fences")
        self.assert_danger("rights", "writer_of_fences")
        self.sql("drop owned by writer_of_fences; drop role writer_of_fences")

    def test_roles_without_superuser(self):
        self.server.psql("create role plain_owner login; create role plain_application login")
        database = self.server.create_database(owner="plain_owner")
        self.server.install(database, user="plain_owner")
        found = self.findings(0, url=self.url_of(database, user="plain_owner"))
        for check in ["rights", "cutting", "event trigger"]:
            self.assertIn(("warning", check), found)
        self.assertIn(("ok", "role"), found)
        self.server.psql("grant pg_signal_backend to plain_owner")
        self.assertIn(("ok", "cutting"), self.findings(0, url=self.url_of(database, user="plain_owner")))
        found = self.findings(0, url=self.url_of(database, user="plain_application"))
        self.assertIn("cannot be looked at", found["warning", "fences"])

    def protect(self):
        self.sql("create table accounts (id int, day int not null) partition by range (day);"
                 "create table accounts_1 partition of accounts for values from (0) to (10);"
                 "create table plain (id int);"
                 "select fenceguard.protect('accounts', $$ 'accounts/' || id $$);"
                 "select fenceguard.protect('plain', $$ 'plain/' || id $$)")

    def test_protected_tables_that_are_well(self):
        self.protect()
        found = self.findings(0)
        self.assertIn("2, every row", found["ok", "protected tables"])
        self.assertIn(("ok", "children"), found)

    def test_a_table_that_is_only_observed(self):
        self.protect()
        self.sql("select fenceguard.protect('plain', $$ 'plain/' || id $$, mode => 'observe')")
        found = self.findings(0)
        self.assertIn("plain: in the mode observe", found["warning", "protected tables"])
        self.assertIn(("ok", "children"), found)

    def test_table_protected_before_session_claims_says_what_to_do(self):
        self.protect()
        self.sql("drop trigger fenceguard_session on plain")
        self.assertIn("plain: a claim that a session was given", self.findings(0)["warning", "protected tables"])

    def test_a_disabled_trigger(self):
        self.protect()
        self.sql("alter table plain disable trigger fenceguard_rows")
        self.assert_danger("protected tables", "plain")
        self.sql("alter table plain enable trigger fenceguard_rows")
        self.assert_danger("protected tables", "ENABLE ALWAYS")

    def test_an_unprotected_child(self):
        self.sql("drop event trigger fenceguard_children")  # which would put it right at once
        self.protect()
        self.sql("alter table accounts_1 disable trigger fenceguard_rows")
        self.assert_danger("children", "accounts_1")

    def test_a_child_that_was_added_without_the_event_trigger(self):
        self.sql("drop event trigger fenceguard_children")
        self.protect()
        self.assertIn(("warning", "event trigger"), self.findings(0))
        self.sql("create table child () inherits (plain)")
        self.assert_danger("children", "child")

    def test_a_child_that_can_be_truncated(self):
        self.protect()
        self.sql("drop trigger fenceguard_truncate on accounts_1")
        self.assertIn("accounts_1", self.findings(0)["warning", "children"])

    def test_a_counter_behind_the_fences(self):
        self.fence(0, "advance", "--resource", "a", "--token", "500")
        self.assertIn("500", self.findings(0)["warning", "counter"])


if __name__ == "__main__":
    unittest.main()
