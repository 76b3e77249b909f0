"""The binary with mariadb:// and mysql:// URLs, as a user runs it: sql, fence, lease, serve, exec, demo, doctor."""

import json
import os
import signal
import subprocess
import sys
import unittest

import pymysql
import support
from product_case import SECRET, ControlSide, MadeUpNumbers, ProductTest, claim_fields, claim_of
from support import wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from mariadb_server import Server  # noqa: E402


def setUpModule():
    global SERVER
    SERVER = Server({"idle-transaction-timeout": 600})
    unittest.addModuleCleanup(SERVER.remove)


class MariadbTest(ProductTest):
    scheme = "mariadb"

    def setUp(self):
        super().setUp()
        self.dbname = SERVER.create_database()
        user = f"app_{self.dbname}"
        SERVER.run(f"create or replace user {user}@127.0.0.1 identified by '{SECRET}'")
        SERVER.run(f"grant all on {self.dbname}.* to {user}@127.0.0.1")
        SERVER.run(f"grant process on *.* to {user}@127.0.0.1")
        self.url = self.url_of()

    def url_of(self, scheme="mariadb", dbname=None, **parameters):
        dbname = dbname or self.dbname
        rest = "".join(f"&{name}={value}" for name, value in parameters.items())
        return f"{scheme}://app_{self.dbname}:{SECRET}@127.0.0.1:{SERVER.port}/{self.dbname}?schema={dbname}{rest}"

    def sql(self, text):
        return SERVER.run(text, self.dbname)


class Numbers(MadeUpNumbers, MariadbTest):
    def by_hand(self):
        return [name for name, in self.sql("select done_by from rebases where resource = '' order by id")]

    def test_a_client_that_may_only_execute_ends_no_leases(self):
        SERVER.run(f"create or replace user client@127.0.0.1 identified by '{SECRET}'")
        SERVER.run(f"grant execute on {self.dbname}.* to client@127.0.0.1")
        first = self.taken("a")
        client = pymysql.connect(host="127.0.0.1", port=SERVER.port, user="client", password=SECRET, database=self.dbname)
        self.addCleanup(client.close)
        for call in (f"advance('r', {self.ABSURD}, 'evil')", f"try_advance('r', {self.ABSURD}, 'evil', 5, 0)"):
            try:
                client.cursor().execute("call " + call)
            except pymysql.Error as error:
                self.assertIn("implausible", str(error))
        self.assertEqual(self.taken("r"), first + 1)
        guard = self.url.replace(f"app_{self.dbname}", "client")
        self.lease(0, "acquire", "--resource", "s", "--storage", guard)
        # Another source's numbers pass with the owner's rights, and then are seen.
        source = ("lease", "acquire", "--source", "sqlite:far.db", "--storage")
        self.expect(0, *source, self.url, "--init", "--resource", "far")
        self.expect(0, "lease", "raise", "--source", "sqlite:far.db", "--resource", "any", "--token", str(5 << 44), "--far")
        told = self.run_binary(*source, guard, "--resource", "v")
        self.assertEqual(told.returncode, 1, told)
        self.assertIn("fenceguard fence init", told.stderr)
        self.expect(0, *source, self.url, "--resource", "w")
        self.expect(0, *source, guard, "--resource", "v")
        # Where the owner sets no bound the counter has one all the same.
        self.sql("update limits set jump_max = 0")
        client.cursor().execute(f"call advance('t', {self.ABSURD}, 'evil')")
        self.not_taken("t", "fenceguard fence rebase")
        self.assertLess(self.taken("u"), first + 10)


class Guard(ControlSide, MariadbTest):
    def initialised_guard(self):
        return self.serve()  # installing is what initialises it

    def test_without_its_record_it_serves_and_is_not_ready(self):
        self.sql("delete from namespace")
        super().test_without_its_record_it_serves_and_is_not_ready()

    def test_without_its_sql_it_says_what_to_do(self):
        SERVER.create_database(f"empty_{self.dbname}", install=False)
        SERVER.run(f"grant all on empty_{self.dbname}.* to app_{self.dbname}@127.0.0.1")
        url = self.url_of(dbname=f"empty_{self.dbname}")
        self.assertIn("fenceguard sql mariadb | mariadb", self.fence(3, "show", "--resource", "a", url=url).stderr)
        self.assertIn("fenceguard sql mariadb | mariadb", self.lease(3, "acquire", "--resource", "a", url=url).stderr)


class ServerGone(MariadbTest):
    def test_a_guard_outlives_its_server_and_the_numbers_go_on(self):
        """Killed, and started again; what was granted before is held still."""
        with Server() as server:
            dbname = server.create_database()
            self.url = f"mariadb://root@127.0.0.1:{server.port}/{dbname}?schema={dbname}&connect_timeout=10s"
            guard = self.serve()
            first = guard.lease("a", ttl_ms=600_000).json
            for name in ("c", "d"):
                server.kill()
                wait_until(lambda: guard.call("GET", "/readyz").status == 503, what="a guard that is not ready")
                self.assertEqual(guard.lease("b").status, 503)
                self.assertEqual(guard.call("POST", "/v1/fences/a/advance", claim_fields(first)).status, 503)
                server.start()
                wait_until(lambda: guard.call("GET", "/readyz").status == 200, what="a guard that is ready")
                self.assertEqual(guard.lease("a").status, 409)
                self.assertEqual(guard.call("POST", "/v1/fences/a/advance", claim_fields(first)).status, 200)
                self.assertGreater(int(guard.lease(name).json["token"]), int(first["token"]))
            self.assertEqual(guard.stop(), 0)


class Commands(MariadbTest):
    def test_a_lease_is_taken_renewed_and_released(self):
        lease = self.lease_json(0, "acquire", "--resource", "a/1", "--ttl", "60s", "--json", "--storage", self.url)
        self.assertEqual((lease["resource"], lease["token"]), ("a/1", "1"))
        self.lease(1, "acquire", "--resource", "a/1", "--wait", "0s")
        self.lease(0, "renew", *claim_of(lease))
        self.lease(0, "release", *claim_of(lease))
        self.lease(1, "renew", *claim_of(lease))
        self.assertEqual(self.fence_json(0, "show", "--resource", "a/1", "--json")["token"], "1")

    def test_mysql_is_the_same_scheme(self):
        lease = self.lease_json(0, "acquire", "--resource", "a", "--json", url=self.url_of("mysql"))
        self.assertEqual(lease["token"], "1")

    def test_exec_hands_the_claim_to_its_command(self):
        done = self.expect(0, "exec", "--source", self.url, "--storage", self.url, "--resource", "jobs/1", "--", "sh", "-c",
                           "echo $FENCING_RESOURCE $FENCING_TOKEN")
        self.assertEqual(done.stdout, "jobs/1 1\n")

    def test_next_holder_and_revoke_cut_a_stalled_transaction(self):
        SERVER.run(f"grant connection admin on *.* to app_{self.dbname}@127.0.0.1")
        self.sql("call raise_counter(40)")
        self.sql("call advance('jobs/1', 34, 'h')")
        for end in (("exec", "--source", self.url, "--storage", self.url, "--resource", "jobs/1", "--", "true"),
                    ("fence", "revoke", "--storage", self.url, "--resource", "jobs/1")):
            [claim] = self.sql("select token, holder from fences where resource = 'jobs/1'")
            with SERVER.session(self.dbname) as session:
                session.run("start transaction")
                session.run("call admit('jobs/1', %s, %s, null)", claim)
                self.expect(0, *end)
                with self.assertRaises(pymysql.Error):
                    session.run("commit")

    def test_sql_installs_and_uninstalls_by_the_client(self):
        def client(text):
            done = subprocess.run(["mariadb", "--no-defaults", f"--socket={SERVER.socket}", "--user=root"], input=text,
                                  capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

        databases = "select count(*) from information_schema.schemata where schema_name = 'fenceguard'"
        for _ in range(2):
            client(self.expect(0, "sql", "mariadb").stdout)
        self.assertEqual(SERVER.run(databases), ((1,),))
        client(self.expect(0, "sql", "mariadb", "--uninstall").stdout)
        self.assertEqual(SERVER.run(databases), ((0,),))

    def test_a_url_that_is_none_is_told_without_its_password(self):
        for rest, what in (("&nonsense=1", "nonsense"), ("&timeout=1ms", "timeout"), ("&tls=0&cacert=x", "tls"),
                           ("&socket=/x", "socket")):
            self.assertIn(what, self.lease(2, "show", "--resource", "a", url=self.url + rest).stderr)
        self.assertIn("port", self.lease(2, "show", "--resource", "a", url=f"mariadb://u:{SECRET}@h:0/").stderr)

    def test_absent_server_or_wrong_password_is_unavailable(self):
        for url in (f"mariadb://u:{SECRET}@127.0.0.1:1/", f"mariadb://u:{SECRET}@127.0.0.1:{SERVER.port}/",
                    f"mariadb://u:{SECRET}@/?socket=/nowhere"):
            self.lease(3, "acquire", "--resource", "a", url=url)
            self.fence(3, "show", "--resource", "a", url=url)

    def test_tls_that_the_server_does_not_have_is_not_left_out(self):
        self.lease(3, "acquire", "--resource", "a", url=self.url + "&tls=1")

    def test_a_unix_socket(self):
        url = f"mariadb://root@/{self.dbname}?socket={SERVER.socket}&schema={self.dbname}"
        self.assertEqual(self.lease_json(0, "acquire", "--resource", "a", "--json", url=url)["token"], "1")


class Demo(MariadbTest):
    def tables(self):
        return self.sql("select count(*) from information_schema.tables where table_schema = database() "
                        "and table_name like '%accounts'")[0][0]

    def demo(self, *arguments):
        done = self.run_binary("demo", "gc-pause", "--storage", self.url, *arguments, env={"TMPDIR": self.folder}, limit_s=60)
        self.assertEqual(self.tables(), 0)
        return done

    def test_shows_both_outcomes_and_leaves_nothing_behind(self):
        done = self.demo("--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        report = json.loads(done.stdout)
        self.assertTrue(report["as_it_must_be"])
        self.assertEqual((report["round"]["final"], report["through"]["final"]), (150, 180))
        [refused] = [event for event in report["through"]["events"] if event["event"] == "refused"]
        self.assertEqual(refused["client"], "A")

    def test_an_interrupt_drops_its_table(self):
        status = support.interrupted(
            lambda: self.start("demo", "gc-pause", "--storage", self.url, env={"TMPDIR": self.folder}), signal.SIGINT,
            lambda: self.tables() != 0, limit_s=60)
        self.assertEqual((status, self.tables()), (128 + signal.SIGINT, 0))


class Doctor(MariadbTest):
    def doctor(self, status=0, url=None):
        done = self.run_binary("doctor", "--source", url or self.url, "--storage", url or self.url, "--json")
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        found = json.loads(done.stdout)
        return {finding["check"]: (finding["level"], finding["message"]) for finding in found["findings"]}

    def test_a_server_that_is_fit_is_well(self):
        levels = {name: level for name, (level, _) in self.doctor().items()}
        self.assertEqual({name for name, level in levels.items() if level != "ok"}, {"rights"}, levels)

    def test_each_setting_that_forgets_is_a_danger(self):
        for name, bad, good, check in (("innodb_flush_log_at_trx_commit", 2, 1, "commits"), ("read_only", 1, 0, "replication")):
            SERVER.run(f"set global {name} = {bad}")
            try:
                level, message = self.doctor(1)[check]
            finally:
                SERVER.run(f"set global {name} = {good}")
            self.assertEqual(level, "danger")
            self.assertIn(name, message)

    def test_a_binary_log_is_looked_at(self):
        for expected, synced, log, what in (("danger", 0, "ROW", "sync_binlog"), ("danger", 1, "STATEMENT", "STATEMENT"),
                                            ("warning", 1, "MIXED", "protected tables"), ("ok", 1, "ROW", "ROW")):
            with Server({"log-bin": "log", "sync-binlog": synced, "binlog-format": log}) as server:
                server.create_database("fenceguard")
                level, message = self.doctor(int(expected == "danger"), f"mariadb://root@127.0.0.1:{server.port}/")["binary log"]
                self.assertEqual(level, expected)
                self.assertIn(what, message)

    def test_errors_that_take_the_admission_with_them_are_told(self):
        for setting in ("innodb-rollback-on-timeout", "innodb-snapshot-isolation"):
            with Server({setting: 1}) as server:
                server.create_database("fenceguard")
                level, message = self.doctor(url=f"mariadb://root@127.0.0.1:{server.port}/")["errors"]
                self.assertEqual(level, "warning")
                self.assertIn(setting.replace("-", "_"), message)

    def test_tables_without_transactions_are_named(self):
        self.sql("create table old_orders (id int) engine = MyISAM")
        level, message = self.doctor(1)["tables"]
        self.assertEqual(level, "danger")
        self.assertIn(f"{self.dbname}.old_orders (MyISAM)", message)

    def test_whether_this_user_may_cut_holders_is_told(self):
        user = f"app_{self.dbname}@127.0.0.1"
        self.assertIn("the same user", self.doctor()["cut"][1])
        SERVER.run(f"grant connection admin on *.* to {user}")
        self.assertEqual(self.doctor()["cut"], ("ok", "this user may cut holders that stand still"))
        SERVER.run(f"revoke process on *.* from {user}")
        level, message = self.doctor()["cut"]
        self.assertEqual(level, "warning")
        self.assertIn("PROCESS", message)

    def test_what_keeps_the_next_holder_out_is_told(self):
        with SERVER.session(self.dbname) as session:
            session.run("xa start 'x'")
            session.run("update counter set last = last + 1")
            session.run("xa end 'x'")
            session.run("xa prepare 'x'")
        # Nobody else can end it while its session is there.
        wait_until(lambda: not SERVER.run(f"select 1 from information_schema.processlist where id = {session.id}"),
                   what="the session's end")
        try:
            self.assertEqual(self.doctor(1)["transactions"][0], "danger")
        finally:
            SERVER.run("xa rollback 'x'")

    def test_a_counter_that_has_fallen_back_is_told(self):
        self.sql("call advance('a', 50, 'h')")
        self.assertEqual(self.doctor()["counter"][0], "warning")
        self.sql("delete from counter")
        self.assertEqual(self.doctor(1)["counter"][0], "danger")

    def protect(self, table):
        for row in self.sql(f"call protect('{self.dbname}', '{table}', 'CONCAT(''r/'', ROW.id)')"):
            for statement in filter(None, row[0].split("\n")):
                self.sql(statement)

    def test_writes_unseen_by_the_triggers_are_reported(self):
        self.sql("create table whole (id bigint primary key) engine = innodb")
        self.sql("create table part (id bigint primary key, whole bigint, constraint of_whole foreign key (whole) "
                 "references whole (id) on delete cascade) engine = innodb")
        self.protect("whole")
        self.assertEqual(self.doctor()["protected tables"][0], "warning")
        self.protect("part")
        level, message = self.doctor(1)["protected tables"]
        self.assertEqual(level, "danger")
        self.assertIn(f"{self.dbname}.part (of_whole)", message)
        self.sql("alter table part drop foreign key of_whole")
        self.assertEqual(self.doctor()["protected tables"][0], "warning")
        name = self.sql("select trigger_name from information_schema.triggers where event_object_table = 'part' and "
                        "trigger_schema = database() limit 1")[0][0]
        self.sql(f"drop trigger {name}")
        self.assertIn("a trigger is missing", self.doctor(1)["protected tables"][1])

    def test_no_floor_and_no_fences(self):
        self.sql("delete from namespace")
        self.assertIn("fence init", self.doctor(1)["schema"][1])
        self.sql("drop table namespace")
        self.assertIn("fenceguard sql mariadb", self.doctor(1)["schema"][1])


if __name__ == "__main__":
    unittest.main()
