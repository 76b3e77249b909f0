"""The SQL, wrong usage, and the fence commands with postgres:// as the storage."""

import itertools
import threading
import unittest

import postgres_server
from postgres_case import INSTALL, SECRET, PostgresTest, setUpModule  # noqa: F401


class Installing(PostgresTest):
    def test_the_sql_is_printed_and_can_be_installed_again(self):
        for scheme in ("postgres", "sqlite"):
            self.assertIn("create table", self.expect(0, "sql", scheme).stdout.lower())
        database = self.server.create_database()
        text = self.expect(0, "sql", "postgres").stdout
        for _ in range(2):
            self.server.psql(text, database)
        self.assertIn("schema: version", self.expect(0, "doctor", "--storage", self.url_of(database)).stdout)
        self.server.psql("create table t (id text); select fenceguard.protect('t', 'id')", database)
        text = self.expect(0, "sql", "postgres", "--uninstall").stdout
        self.server.psql(text + "insert into t values ('a')", database)
        self.assertEqual(self.server.psql("select count(*) from pg_namespace where nspname = 'fenceguard'", database), "0")
        self.expect(2, "sql")
        self.expect(2, "sql", "oracle")

    def test_a_database_without_the_schema_is_3_and_says_what_to_do(self):
        url = self.url_of(self.server.create_database())
        for arguments in commands(url):
            with self.subTest(arguments=arguments):
                self.assertIn(INSTALL, self.expect(3, *arguments).stderr)
        done = self.expect(125, "exec", "--source", url, "--resource", "a", "--", "true")
        self.assertIn(INSTALL, done.stderr)
        self.assertIn(f"danger schema: none: run '{INSTALL}",
                      self.expect(1, "doctor", "--storage", url, "--source", url).stdout)

    def test_doctor_reports_a_schema_of_an_older_program(self):
        database = self.server.create_database(install=True)
        self.server.psql("drop function fenceguard.row_trigger_call(text, text)", database)
        told = self.expect(0, "doctor", "--storage", self.url_of(database)).stdout
        self.assertRegex(told, "warning schema: version [0-9]+ of [0-9]+, plain SQL, installed by an older fenceguard: run")
        self.server.install(database)
        self.assertIn("ok schema", self.expect(0, "doctor", "--storage", self.url_of(database)).stdout)

    def test_a_newer_schema_is_refused(self):
        self.sql("create or replace function fenceguard.version() returns integer language sql immutable as "
                 "$$ select 99 $$")
        self.assertIn("99", self.fence(3, "show", "--resource", "a").stderr)
        self.assertIn("newer", self.expect(1, "doctor", "--storage", self.url).stdout)


class Standby(PostgresTest):
    """A server that waits for a standby which is not there."""

    def await_standby(self, name):
        self.sql(f"alter system set synchronous_standby_names = '{name}'")
        self.sql("select pg_reload_conf()")
        postgres_server.wait_until(lambda: self.sql("show synchronous_standby_names") == name, what="the setting")
        self.sql("checkpoint")  # until its checkpointer has read it as well, no commit waits

    def test_a_commit_whose_wait_was_cancelled_is_4(self):
        self.addCleanup(self.await_standby, "")
        self.await_standby("nobody")
        is_over = threading.Event()

        def cancel():
            while not is_over.wait(0.05):
                self.server.psql("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'")

        canceller = threading.Thread(target=cancel)
        canceller.start()
        try:
            for done in (self.fence(4, "advance", "--resource", "a", "--token", "5"),
                         self.fence(4, "revoke", "--resource", "a"),
                         self.expect(4, "lease", "acquire", "--source", self.url, "--resource", "b")):
                self.assertIn("may or may not have taken effect", done.stderr)
        finally:
            is_over.set()
            canceller.join()


def commands(url):
    """One call of every command that opens a storage or a source and ends by itself."""
    storage = ["--storage", url]
    claim = ["--resource", "a", "--token", "1", "--holder", "h"]
    return [
        ["fence", "show", *storage, "--resource", "a"],
        ["fence", "list", *storage],
        ["fence", "advance", *storage, *claim],
        ["fence", "revoke", *storage, "--resource", "a"],
        ["fence", "compact", *storage],
        ["fence", "init", *storage],
        ["fence", "init", *storage, "--floor", "3"],
        ["fence", "rebase", *storage, "--resource", "a", "--to", "3"],
        ["lease", "acquire", "--source", url, *storage, "--resource", "a"],
        ["lease", "acquire", "--source", url, "--resource", "a"],
        ["lease", "renew", "--source", url, *claim],
        ["lease", "release", "--source", url, *claim],
        ["lease", "show", "--source", url, "--resource", "a"],
        ["lease", "raise", "--source", url, "--resource", "a", "--token", "1"],
        ["demo", "--storage", url],
    ]


class WrongUsage(PostgresTest):
    def test_a_server_that_is_not_there_is_3(self):
        for url in [f"postgres://u:{SECRET}@127.0.0.1:1/db", self.url_of("no_such_database"),
                    f"postgresql://u:{SECRET}@no-such-host.invalid/db"]:
            for arguments in [*commands(url)[:3], *commands(url)[-7:], ["doctor", "--storage", url],
                              ["doctor", "--source", url], ["serve", "--storage", url]]:
                with self.subTest(arguments=arguments):
                    stderr = self.expect(3, *arguments).stderr
                    self.assertIn("cannot be reached", stderr)
                    self.assertEqual(len(stderr.splitlines()), 1, stderr)
            self.expect(125, "exec", "--source", url, "--resource", "a", "--", "true")

    def test_nonsense_in_a_url_is_2(self):
        for tail in ["?bogus=1", f"?password={SECRET}"]:
            for arguments in commands(self.url + tail)[:14]:
                with self.subTest(arguments=arguments):
                    self.expect(2, *arguments)
        for arguments in commands(self.url + "?lock=bogus")[8:14]:
            self.assertIn("lock", self.expect(2, *arguments).stderr)
        self.expect(2, "serve", "--storage", self.url + "?bogus=1")
        self.expect(2, "doctor", "--storage", self.url + "?bogus=1")

    def test_nonsense_in_an_argument_is_2(self):
        self.fence(2, "show", "--resource", "a//b")
        self.fence(2, "advance", "--resource", "a", "--token", "0")
        self.fence(2, "advance", "--resource", "a", "--token", "9223372036854775808")
        self.fence(2, "list", "--limit", "0")
        self.fence(2, "rebase", "--resource", "a")
        self.fence(2, "init", "--floor", "-1")


class Fences(PostgresTest):
    def test_advance_and_show(self):
        self.assertIn("not found", self.fence(1, "show", "--resource", "a").stderr)
        claim = ["--resource", "a", "--token", "5", "--holder", "h"]
        self.assertEqual(self.fence_json(0, "advance", *claim)["verdict"], "admitted")
        self.assertEqual(self.fence_json(0, "advance", *claim)["verdict"], "admitted")
        answer = self.fence_json(1, "advance", "--resource", "a", "--token", "4", "--holder", "h")
        self.assertEqual(answer, {"resource": "a", "verdict": "stale", "highest": "5"})
        answer = self.fence_json(1, "advance", "--resource", "a", "--token", "5", "--holder", "other")
        self.assertEqual(answer["verdict"], "conflict")
        self.sql("select fenceguard.rule('a', 5, 'h', 7)")
        self.assertEqual(self.fence_json(0, "show", "--resource", "a"),
                         {"resource": "a", "token": "5", "sequence": "7", "closed": False})

    def test_the_largest_token(self):
        largest = "9223372036854775807"
        self.fence(0, "advance", "--resource", "a", "--token", largest)
        self.assertEqual(self.fence_json(0, "show", "--resource", "a")["token"], largest)

    def test_list_is_bytewise_and_a_prefix_has_no_wildcards(self):
        names = ["B", "a", "a%", "a%/x", "a/1", "aX", "a_", "a_b", "\u00e4", "a\U0010ffff", "a\\", "b'"]
        for name in names:
            self.fence(0, "advance", "--resource", name, "--token", "1")
        expected = sorted(names, key=lambda name: name.encode())

        def listed(*arguments):
            return [each["resource"] for each in self.fence_json(0, "list", *arguments)["fences"]]
        self.assertEqual(listed(), expected)
        for prefix in ["a", "a%", "a_", "a\\", "\u00e4", "b'", "zz", "a\U0010ffff"]:
            self.assertEqual(listed("--prefix", prefix),
                             [name for name in expected if name.startswith(prefix)])
        seen, after = [], ""
        for _ in itertools.repeat(None, len(names)):
            page = self.fence_json(0, "list", "--limit", "5", "--after", after)
            seen += [each["resource"] for each in page["fences"]]
            if not page["has_more"]:
                break
            after = seen[-1]
        self.assertEqual(seen, expected)
        self.assertEqual(listed("--prefix", "a_", "--after", "a_"), ["a_b"])

    def test_revoke_closes_until_a_higher_token(self):
        self.assertIn("not found", self.fence(1, "revoke", "--resource", "a").stderr)
        self.fence(0, "advance", "--resource", "a", "--token", "5")
        self.assertEqual(self.fence_json(0, "revoke", "--resource", "a"),
                         {"resource": "a", "token": "5", "closed": True})
        self.assertEqual(self.fence_json(1, "advance", "--resource", "a", "--token", "5")["verdict"], "stale")
        self.fence(0, "advance", "--resource", "a", "--token", "6")

    def test_revoke_cuts_off_a_lease_that_has_not_advanced(self):
        lease = self.lease_json(0, "acquire", "--resource", "a")
        self.assertEqual(self.fence_json(0, "revoke", "--resource", "a")["token"], lease["token"])
        self.expect(1, "lease", "show", "--source", self.url, "--resource", "a")
        self.fence(1, "advance", "--resource", "a", "--token", lease["token"], "--holder", lease["holder"])

    def test_compact_keeps_what_is_live(self):
        idle = self.lease_json(0, "acquire", "--resource", "idle", "--storage", self.url, "--ttl", "24m")
        self.lease_json(0, "release", "--resource", "idle", "--token", idle["token"],
                        "--holder", idle["holder"])
        live = self.lease_json(0, "acquire", "--resource", "live", "--storage", self.url, "--ttl", "24m")
        self.assertEqual(self.fence_json(0, "compact"), {"dropped": 1, "floor": idle["token"]})
        self.assertEqual(self.fence_json(0, "show", "--resource", "live")["token"], live["token"])
        self.assertIn(f"floor is {idle['token']}", self.fence(1, "show", "--resource", "idle").stderr)
        self.fence(1, "advance", "--resource", "idle", "--token", idle["token"], "--holder", idle["holder"])

    def test_init_raises_the_floor_and_never_lowers_it(self):
        self.assertEqual(self.fence_json(0, "init"), {"floor": "1"})
        self.assertEqual(self.fence_json(0, "init", "--floor", "7"), {"floor": "7"})
        self.assertEqual(self.fence_json(0, "init", "--floor", "3"), {"floor": "7"})
        self.expect(0, "lease", "raise", "--source", self.url, "--resource", "a", "--token", "40")
        self.assertEqual(self.fence_json(0, "init", "--source", self.url), {"floor": "41"})
        self.assertEqual(self.fence_json(0, "init"), {"floor": "42"})  # as after a restore
        self.fence(1, "advance", "--resource", "a", "--token", "41")

    def test_a_floor_that_is_gone_is_no_licence(self):
        self.sql("delete from fenceguard.floor")
        self.assertIn("no floor", self.fence(3, "advance", "--resource", "a", "--token", "5").stderr)
        self.assertIn("danger fences", self.expect(1, "doctor", "--storage", self.url).stdout)
        self.assertEqual(self.fence_json(0, "init", "--floor", "4"), {"floor": "4"})
        self.fence(0, "advance", "--resource", "a", "--token", "5")

    def test_rebase_leaves_a_record_of_who_did_it(self):
        self.fence(0, "advance", "--resource", "a", "--token", "9")
        done = self.fence(0, "rebase", "--resource", "a", "--to", "3", "--by", "o'neill")
        self.assertIn("G1", done.stderr)
        self.assertEqual(self.sql("select resource, token_from, token_to, done_by from fenceguard.rebases"),
                         "a|9|3|o'neill")
        self.fence(1, "advance", "--resource", "a", "--token", "3")
        self.fence(0, "advance", "--resource", "a", "--token", "4")

    def test_an_advance_beside_an_open_write_waits_then_cuts_it(self):
        self.sql(f"alter database {self.database} set fenceguard.drain = '300ms'")
        holder = self.server.session(self.database)
        holder.run("begin; select fenceguard.admit('a', 1, 'h')")
        self.fence(0, "advance", "--resource", "a", "--token", "2")
        with self.assertRaises(postgres_server.ConnectionLost):
            holder.run("commit")

    def test_an_advance_that_may_not_cut_is_3_and_moves_nothing(self):
        self.sql(f"alter database {self.database} set fenceguard.drain = '100ms';"
                 f"alter database {self.database} set fenceguard.cut = off")
        with self.server.session(self.database) as holder:
            holder.run("begin; select fenceguard.admit('a', 1, 'h')")
            done = self.fence(3, "advance", "--resource", "a", "--token", "2")
            self.assertIn("open transaction", done.stderr)
            holder.run("commit")
        self.assertEqual(self.fence_json(0, "show", "--resource", "a")["token"], "1")


if __name__ == "__main__":
    unittest.main()
