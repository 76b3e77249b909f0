"""What the SQL asks of a server and of its users: rights, the binary log, and what is installed by the client."""

import re
import subprocess
import threading
import unittest

import pymysql

from sessions import IMPOSSIBLE_IN_A_TRANSACTION, READ_ONLY_TRANSACTION, ServerTest

from mariadb_server import SQL, Server, statements
from waiting import run_all


class Users(ServerTest):
    def setUp(self):
        super().setUp()
        self.sql("create or replace user writer@localhost")
        self.sql(f"grant execute on {self.dbname}.* to writer@localhost")
        self.sql(f"grant select, update on {self.dbname}.account to writer@localhost")
        self.writer = self.server.session(self.dbname, "writer")
        self.addCleanup(self.writer.close)

    def test_user_with_execute_only_writes_and_touches_no_fence(self):
        self.assertEqual(self.verdict(self.writer, "call advance('accounts/1', 5, 'h')"), "admitted")
        self.writer.run("start transaction")
        self.assertEqual(self.verdict(self.writer, "call admit('accounts/1', 5, 'h', 1)"), "admitted")
        self.writer.run("update account set balance = 5 where id = 1")
        self.writer.run("call confirm('accounts/1', 5, 'h')")
        self.writer.run("commit")
        self.assertEqual(self.balance(), 5)
        for sql in ("select holder from fences", "update fences set token = 9", "delete from namespace",
                    "select * from fence", "delete from commit_marks"):
            self.assert_fails(self.writer, sql, 1142)

    def test_what_is_an_administrators_is_no_writers(self):
        self.put("accounts/1", 5, "a")
        self.sql("call acquire('r', 60000, 'a')")
        before = [self.sql(f"select * from {table}") for table in ("fences", "leases", "counter", "namespace")]
        for call in ("end_lease('r')", "raise_counter(9223372036854775807)", "draw()", "revoke_fence('accounts/1', null, null)",
                     "rebase('accounts/1', 1, 'ann')", "init(5)", "compact(5)", "raise_counter_far(5000, 'ann')",
                     "lower_counter(1, 'ann')", "try_advance_far('accounts/1', 9223372036854775806, 'a', 5)"):
            self.assertEqual(self.verdict(self.writer, f"call {call}"), 1142, call)
            self.assertEqual(self.writer.run("select @@in_transaction"), ((0,),), call)
        self.assertEqual([self.sql(f"select * from {table}") for table in ("fences", "leases", "counter", "namespace")], before)

    def test_internal_procedures_cannot_be_called_by_users(self):
        """It would lock or write without being judged: what is left after each is a fence and a lease that are free."""
        self.put("accounts/1", 34, "a")
        self.sql("call acquire('r', 60000, 'a')")
        lease = self.sql("select * from leases")
        self.writer.run("set @fenceguard_claims = null")
        for call in ("rule_in('accounts/1', 33, 'a', null, @verdict, @highest)", "rule_in('accounts/1', 34, 'a', 5, @verdict, @highest)",
                     "admit_in('accounts/1', 34, 'a', 5, @verdict, @highest)", "free_session_lock('r')",
                     "write_fence('accounts/1', 5)", "raise_fence('accounts/1', 35, 'b', 0, @verdict, @highest, @changed, @over)",
                     "share_floor(@floor)", "mark_commit()", "read_counter(@last)", "draw_above(1, @number)",
                     "move_counter('900', false)", "require_row('accounts/1')",
                     "advance_alone('accounts/1', 35, 'b', 5, -1, @verdict, @highest, @changed, @over)",
                     "read_seen('accounts/1', 35, null, 0, @seen, @bound)",
                     "set_end('r', 1, '', '86400000', true)"):
            is_alone = call.startswith(("advance_alone", "set_end", "move_counter"))
            self.writer.run("rollback" if is_alone else "start transaction")
            with self.assertRaises(pymysql.Error) as caught:
                self.writer.run(f"call {call}")
            self.assertIn(self.refusal(caught.exception), (1142, 1143, "missing"), call)
            with self.server.session(self.dbname) as other:
                other.run("start transaction")
                for table in ("fences", "namespace", "counter", "leases"):
                    other.run(f"select * from {table} for update nowait")
                other.run("rollback")  # the server does it too late for the next call's
            self.writer.run("rollback")
        self.assertEqual(self.fence("accounts/1"), (34, "a", None, 0))
        self.assertEqual(self.sql("select * from leases"), lease)
        self.assertIsNone(self.writer.run("select @fenceguard_claims")[0][0])

    ABSURD = 9223372036854775806
    FAR = 1 << 44

    def begin_at(self, last):
        """The namespace as new, with a counter that stands there."""
        for sql in ("delete from leases", "delete from rebases", f"update counter set last = {last}",
                    "replace into limits values (1, 17592186044416)", "update namespace set floor_token = 0"):
            self.sql(sql)

    def advance(self, resource, token, call="try_advance", rest=", 5, null"):
        return self.verdict(self.writer, f"call {call}('{resource}', {token}, 'h'{rest})")

    def test_no_way_of_a_claim_raises_a_fence_without_bound(self):
        self.begin_at(1000)
        for token in (self.ABSURD, 1001 + self.FAR):
            self.assertEqual(self.advance("r", token, "advance", ""), "implausible")
            for bound in ("null", "0", "-1", "9223372036854775807"):
                self.assertEqual(self.advance("r", token, rest=f", 5, {bound}"), "implausible")
                self.assertEqual(self.advance("r", token, "start_admitted", f", null, 5, {bound}"), "implausible")
                self.writer.run("rollback")
        self.assertEqual(self.sql("select * from fences"), ())
        self.assertEqual(self.writer.run("call acquire('r', 60000, 'h')")[0][:2], ("granted", 1001))

    def test_what_was_seen_is_the_floor_the_counter_and_every_fence(self):
        self.begin_at(1000)
        self.assertEqual(self.advance("r", 1000 + self.FAR), "admitted")
        self.assertEqual(self.advance("s", 1000 + 2 * self.FAR), "admitted")
        self.assertEqual(self.advance("t", 1001 + 3 * self.FAR), "implausible")
        self.sql(f"call init({10 * self.FAR})")
        self.assertEqual(self.advance("t", 11 * self.FAR), "admitted")
        self.sql(f"update counter set last = {100 * self.FAR}")
        self.assertEqual(self.advance("u", 100 * self.FAR), "admitted")

    def test_the_owner_sets_the_bound(self):
        self.begin_at(0)
        self.sql("update limits set jump_max = 5")
        for token, bound in ((6, "null"), (6, "100"), (3, "2")):
            self.assertEqual(self.advance("r", token, rest=f", 5, {bound}"), "implausible")
        self.assertEqual(self.advance("r", 5), "admitted")
        self.assertEqual(self.sql("call try_advance_far('r', 5000, 'h', 5)")[0][0], "admitted")
        self.sql("delete from limits")
        self.assertEqual(self.advance("r", 5001 + self.FAR), "implausible")
        self.sql("insert into limits values (1, 0)")
        self.assertEqual(self.advance("r", self.ABSURD), "admitted")

    def test_counter_is_raised_within_a_bound_and_lowered_by_hand(self):
        self.begin_at(0)
        with self.server.session(self.dbname) as owner:
            self.assertEqual(self.verdict(owner, f"call raise_counter({1 + self.FAR})"), 1644)
            self.assertEqual(self.sql(f"call raise_counter({self.FAR})"), ((self.FAR,),))
            self.assertEqual(owner.run("call acquire('stays', 60000, 'h')")[0][1], self.FAR + 1)
            owner.run(f"call raise_counter_far({self.ABSURD}, 'me')")
            self.assertEqual(owner.run("call acquire('goes', 60000, 'h')")[0][1], self.ABSURD + 1)
            self.assertEqual(self.verdict(owner, "call acquire('r', 60000, 'h')"), 1644)
            for mark in ("0", "null", str(self.ABSURD + 1)):
                self.assertEqual(self.verdict(owner, f"call lower_counter({mark}, 'me')"), 1644)
            self.assertEqual(owner.run(f"call lower_counter({self.FAR + 1}, 'me')"), ((self.ABSURD + 1,),))
            self.assertEqual(owner.run("call acquire('goes', 60000, 'h')")[0][1], self.FAR + 2)
            self.assertEqual(owner.run("call acquire('stays', 60000, 'h')")[0][1], self.FAR + 1)
            self.assertEqual(owner.run("select token_from, token_to, done_by from rebases where resource = '' order by id"),
                             ((self.FAR + 1, self.ABSURD, "me"), (self.ABSURD + 1, self.FAR + 1, "me")))

    def test_bounded_advances_of_several_resources_do_not_wait(self):
        self.put("a", 5, "h")
        self.begin_at(0)
        holder = self.session("read committed")
        holder.run("start transaction")
        holder.run("select * from fences where resource = 'a' for update")
        holder.run("select * from counter for update")
        holder.run("select * from limits for update")
        self.assertEqual(self.advance("b", 6, rest=", 0, null"), "admitted")

    def shadow(self, table, row):
        self.writer.run(f"create temporary table {self.dbname}.{table} like {self.dbname}.real_{table}")
        self.writer.run(f"insert into {self.dbname}.{table} values {row}")

    def test_a_temporary_table_of_the_same_name_is_not_judged_by(self):
        tables = {"fences": "('accounts/1', 33, 'a', null, 0, 0, now())", "namespace": "(1, 1, 0)",
                  "counter": "(1, 0)", "leases": "('r', 1, 'b', '1970-01-01', null)", "commit_marks": "('x')",
                  "rebases": "(1, 'x', 1, 1, 'x', now())", "admissions": "(0)", "lock_secret": "(1, 'x', now())",
                  "limits": "(1, 0)"}
        self.sql(f"grant create temporary tables on {self.dbname}.* to writer@localhost")
        for table in tables:
            self.sql(f"create table real_{table} like {table}")
            self.sql(f"alter table real_{table} remove partitioning")
            self.sql(f"grant select on {self.dbname}.real_{table} to writer@localhost")
        self.addCleanup(self.sql, "drop table " + ", ".join(f"real_{table}" for table in tables))
        self.writer = self.server.session(self.dbname, "writer")
        self.sql("call advance('accounts/1', 34, 'a')")
        self.sql("call init(20)")
        self.sql("call raise_counter(50)")
        self.assertEqual(self.sql("call acquire('r', 60000, 'a')")[0][:2], ("granted", 51))
        for call in ("try_admit('accounts/1', 33, 'a', null)", "admit('accounts/1', 33, 'a', null)", "confirm('accounts/1', 33, 'a')",
                     "try_advance('accounts/1', 33, 'a', null, null)", "start_admitted('accounts/1', 33, 'a', null, null, null)",
                     "try_advance('accounts/2', 20, 'a', null, null)", "lowest_live()", "acquire('r', 1000, 'c')",
                     "acquire_named('r', 1000, 'c')", "renew('r', 1, 'b', 1000)", "draw()", "confirm_named('r', 1, 'b')",
                     "revoke_fence('accounts/1', null, null)", "init(5)", "compact(5)", "require_row('accounts/1')"):
            for table, row in tables.items():
                if call.startswith("require_row") and table not in ("fences", "namespace", "admissions"):
                    continue
                if table == "limits" and not call.startswith("try_advance"):
                    continue
                self.shadow(table, row)
                self.assertIn("hides", self.assert_fails(self.writer, f"call {call}", 1644), f"{call}, {table}")
                if not re.search("admit|confirm|require", call):
                    self.writer.run("set transaction isolation level read committed")  # 1568 in a transaction
                self.writer.run("rollback")
                self.writer.run(f"drop temporary table {table}")
        self.assertEqual(self.fence("accounts/1")[:2], (34, "a"))
        self.assertEqual(self.sql("select last from counter"), ((51,),))

    def test_within_the_trigger_of_a_protected_table_neither(self):
        self.sql("create table guarded (id bigint) engine = innodb")
        self.addCleanup(self.sql, "drop table guarded")
        self.sql("call advance('accounts/1', 34, 'a')")
        self.sql(f"create trigger fenceguard before insert on guarded for each row call {self.dbname}.require_row('accounts/1')")
        self.sql(f"grant insert on {self.dbname}.guarded to writer@localhost")
        self.sql(f"grant create temporary tables on {self.dbname}.* to writer@localhost")
        client = self.server.session(self.dbname, "writer")
        client.run("set @fenceguard_claims = json_object(sha2('accounts/1', 256), '33 a')")
        client.run("create temporary table fences (resource varbinary(512), token bigint, holder varbinary(128), closed int, "
                   "below_floor int)")
        client.run("insert into fences values ('accounts/1', 33, 'a', 0, 0)")
        self.assertIn("hides", self.assert_fails(client, "insert into guarded values (1)", 1644))

    def test_user_with_execute_only_keeps_no_lock_of_its_own(self):
        """At SERIALIZABLE a plain read locks, also the gap in which a resource would get its first fence or lease."""
        self.put("accounts/1", 34, "a")
        self.sql("call acquire('r', 60000, 'a')")
        for call in ("would_raise('accounts/1', 40, 'x')", "would_raise('accounts/2', 40, 'x')", "confirm_named('r', 1, 'a')",
                     "confirm_named('s', 1, 'a')", "lowest_live()"):
            self.writer.run("set session transaction isolation level serializable")
            self.writer.run("start transaction")
            self.assertEqual(self.verdict(self.writer, f"call {call}"), IMPOSSIBLE_IN_A_TRANSACTION)
            with self.server.session(self.dbname) as other:
                other.run("set innodb_lock_wait_timeout = 1")
                other.run("start transaction")
                for table in ("fences", "namespace", "counter", "leases"):
                    other.run(f"select * from {table} for update nowait")
                other.run("insert into fences select 'accounts/2', 1, '', null, 0, 0, now()")
                other.run("insert into leases (resource, expires_at) values ('s', now())")
                other.run("rollback")
            self.writer.run("rollback")
            self.writer.run("set autocommit = 0")
            for _ in range(2):
                self.writer.run(f"call {call}")
            self.writer.run("set autocommit = 1")

    def test_locks_at_serializable_can_be_found_by_their_number(self):
        self.put("accounts/1", 34, "a")
        self.writer.run("set session transaction isolation level serializable")
        for claim, verdict in (("99 x", "advance"), ("34 x", "conflict")):
            self.writer.run(f"set @fenceguard_claims = json_object(sha2('accounts/1', 256), '{claim}')")
            self.writer.run("start transaction")
            self.assertEqual(self.verdict(self.writer, "call require_row('accounts/1')"), verdict)
            self.assertEqual(self.sql("select trx_id > 0 from information_schema.innodb_trx where trx_mysql_thread_id = "
                                      f"{self.writer.id}"), ((1,),))
            self.writer.run("rollback")
            self.writer.run("start transaction read only")
            self.assertEqual(self.verdict(self.writer, "call require_row('accounts/1')"), READ_ONLY_TRANSACTION)
            self.assertEqual(self.verdict(self.writer, "call admit('accounts/1', 34, 'a', null)"), READ_ONLY_TRANSACTION)
            self.writer.run("rollback")

    def test_who_knows_a_resource_cannot_take_the_lock_of_its_lease(self):
        known = [f"sha2('{self.dbname}/named', 256)", "sha2('fenceguard/named', 256)", "sha2('named', 256)"]
        for name in known:
            self.assertEqual(self.writer.run(f"select get_lock({name}, 0)"), ((1,),))
        for name in ("lock_name('named')", "session_lock_name('named')"):
            self.assert_fails(self.writer, f"select {name}", 1142)
        self.assert_fails(self.writer, "select * from lock_secret", 1142)
        keeper = self.session()
        self.assertEqual(keeper.run("call acquire_named('named', 60000, 'n')")[0][0], "granted")
        self.assertEqual(self.writer.run("call acquire_named('named', 60000, 'm')")[0][0], "held")
        self.assertEqual(keeper.run("call release_named('named')"), ((1,),))
        self.sql("delete from lock_secret")
        self.assertIn("secret", self.assert_fails(keeper, "call acquire_named('named', 60000, 'n')", 1644))
        self.server.install(self.dbname)

    def test_safe_updates_of_a_session_are_no_hindrance(self):
        for rows in (0, 5, 2000):  # few: the server reads them all; many: an index
            self.sql("delete from fences")
            self.sql(f"insert into fences (resource, token, holder, updated_at) select concat('many/', seq), seq, '', now() from "
                     f"(select seq from seq_1_to_2000 limit {rows}) s")
            self.sql("analyze table fences")
            client = self.session()
            client.run("set sql_safe_updates = 1")
            for call in ("acquire('r', 60000, 'h')", "draw()", "raise_counter(9)", "acquire_named('n', 60000, 'h')", "end_lease('r')",
                         "advance('a', 3000, 'h')", "start_admitted('a', 3000, 'h', 1, null, null)", "commit_admitted()",
                         "finish('a', 3000, 'h')", "revoke_fence('a', null, null)", "rebase('a', 3000, 'ann')",
                         "init(1999)", "compact(1)", "compact(2001)", "compact(4000)"):
                client.run(f"call {call}")
            self.assertEqual(self.sql("select count(*) from fences"), ((0,),))
            self.sql("update namespace set floor_token = 0")

    def test_the_view_names_no_holder(self):
        self.sql(f"grant select on {self.dbname}.fence to writer@localhost")
        self.put("accounts/1", 5, "secret")
        self.assertEqual(self.writer.run("select resource, token, sequence, closed from fence"), (("accounts/1", 5, None, 0),))
        self.assert_fails(self.writer, "select holder from fence", 1054)


class BinaryLog(unittest.TestCase):
    def test_a_log_that_is_not_synced_is_no_place_for_an_advance(self):
        with Server({"log-bin": "log", "binlog-format": "MIXED"}) as server:
            dbname = server.create_database()
            with server.session(dbname) as client:
                with self.assertRaisesRegex(pymysql.Error, "sync_binlog"):
                    client.run("call advance('a', 1, 'h')")
                server.run("set global sync_binlog = 1")
                self.assertEqual(client.run("call advance('a', 1, 'h')"), (("admitted", 1),))

    def test_with_statement_based_replication_no_fence_is_raised(self):
        with Server({"log-bin": "log", "binlog-format": "STATEMENT", "sync-binlog": 1}) as server:
            dbname = server.create_database()
            with server.session(dbname) as client:
                with self.assertRaisesRegex(pymysql.Error, "BINLOG_FORMAT = STATEMENT"):
                    client.run("call advance('a', 1, 'h')")
            self.assertEqual(server.run("select count(*) from fences", dbname), ((0,),))


    def test_snapshot_in_a_function_or_trigger_is_judged_or_refused(self):
        """With a log that is not of rows the server makes a plain read in there a locking one, which shows the advance."""
        with Server({"log-bin": "log", "sync-binlog": 1, "log-bin-trust-function-creators": 1}) as server:
            dbname = server.create_database()
            server.run("create table guarded (id bigint primary key, balance bigint) engine = innodb", dbname)
            server.run("insert into guarded values (1, 100)", dbname)
            server.run("create table account like guarded", dbname)
            server.run("insert into account select * from guarded", dbname)
            for row in server.run(f"call protect('{dbname}', 'guarded', 'CONCAT(''accounts/'', ROW.id)')", dbname):
                for statement in row[0].split(";\n"):
                    server.run(statement.rstrip(";"), dbname)
            server.run("create function confirmed(token bigint) returns int modifies sql data begin "
                       "call confirm('accounts/1', token, 'h'); return 1; end", dbname)
            token = 0
            for log, is_old, is_refused in (("MIXED", True, True), ("ROW", True, True), ("MIXED", False, True), ("ROW", False, False)):
                for sql in ("update guarded set balance = 1", "update account set balance = confirmed({})"):
                    token += 1
                    with server.session(dbname) as client:
                        client.run(f"set session binlog_format = '{log}'")
                        if is_old:
                            client.run("start transaction with consistent snapshot")
                        server.run(f"call advance('accounts/1', {token}, 'h')", dbname)
                        if not is_old:
                            client.run("start transaction")
                            client.run(f"call admit('accounts/1', {token}, 'h', null)")
                        client.run(f"set @fenceguard_claims = json_object(sha2('accounts/1', 256), '{token} h')")
                        if is_refused:
                            with self.assertRaises(pymysql.Error, msg=f"{log} {is_old} {sql}"):
                                client.run(sql.format(token))
                        else:
                            client.run(sql.format(token))
                            client.run("rollback")


class Installation(unittest.TestCase):
    def test_printed_sql_installs_repeatedly_with_any_default_engine(self):
        with Server({"default-storage-engine": "MyISAM", "sql-mode": "ANSI"}) as server:
            text = "DELIMITER //\n" + "".join(file.read_text() for file in sorted(SQL.glob("0*.sql"))) + "DELIMITER ;\n"
            for _ in range(2):
                done = subprocess.run(["mariadb", "--no-defaults", f"--socket={server.socket}", "--user=root"], input=text,
                                      capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(server.run("select distinct engine from information_schema.tables where "
                                        "table_schema = 'fenceguard' and table_type = 'BASE TABLE'"), (("InnoDB",),))
            self.assertEqual(server.run("call fenceguard.advance('a', 1, 'h')"), (("admitted", 1),))

    def test_what_was_lost_is_not_made_anew(self):
        with Server() as server:
            for loss, sentence, refused, mended in (
                    ("delete from namespace", "no floor", "advance('a', 3, 'h')", "init(5)"),
                    ("drop table namespace", "no floor", "advance('a', 3, 'h')", "init(5)"),
                    ("drop table fences", "no floor", "advance('a', 3, 'h')", "init(5)"),
                    ("delete from counter", "counter is missing", "draw()", "raise_counter(5)"),
                    ("drop table counter", "counter is missing", "draw()", "raise_counter(5)")):
                dbname = server.create_database()
                for statement in ("call init(4)", "call raise_counter(4)", loss):
                    server.run(statement, dbname)
                for action in (lambda: server.install(dbname), lambda: server.run(f"call {refused}", dbname)):
                    with self.assertRaisesRegex(pymysql.Error, sentence, msg=loss):
                        action()
                server.run(f"call {mended}", dbname)
                server.install(dbname)
                self.assertIn(server.run("select floor_token, last from namespace, counter", dbname), (((5, 4),), ((4, 5),)))
                self.assertEqual(server.run("select count(*) from fences", dbname), ((0,),))

    def test_upgrade_adds_the_partition_to_the_admissions_table(self):
        with Server() as server:
            dbname = server.create_database()
            server.run("alter table admissions remove partitioning", dbname)
            server.install(dbname)
            with server.session(dbname) as client:
                client.run("call advance('a', 1, 'h')")
                client.run("start transaction")
                self.assertEqual(client.run("call admit('a', 1, 'h', null)"), (("admitted", 1),))
                self.assertGreater(client.run("select trx_id from information_schema.innodb_trx where trx_mysql_thread_id = "
                                              "connection_id()")[0][0], 0)  # by which the next holder finds it

    def test_upgrade_blocked_by_an_idle_transaction_changes_nothing(self):
        with Server({"innodb-lock-wait-timeout": 60}) as server:
            dbname = server.create_database()
            state = ("select routine_name, created, last_altered from information_schema.routines where routine_schema = "
                     f"'{dbname}' union select table_name, create_time, null from information_schema.tables where "
                     f"table_schema = '{dbname}' order by 1")
            before = server.run(state)
            server.run("call advance('a', 1, 'h')", dbname)
            limit = "lock_wait_timeout = 5, innodb_lock_wait_timeout = 5"
            steps = [step.replace(limit, limit.replace("5", "1")) for step in statements()]
            self.assertNotEqual(steps, statements())
            for level in ("repeatable read", "serializable"):
                with server.session(dbname) as idle, server.session(dbname) as writer, server.session(dbname) as administrator:
                    idle.run(f"set session transaction isolation level {level}")
                    idle.run("start transaction")
                    self.assertEqual(idle.run("call admit('a', 1, 'h', null)"), (("admitted", 1),))
                    with self.assertRaises(pymysql.Error) as refused:
                        for step in steps:
                            administrator.run(step)
                    self.assertEqual(refused.exception.args[0], 1205)
                    writer.run("start transaction")
                    self.assertEqual(writer.run("call admit('a', 1, 'h', null)"), (("admitted", 1),))
                    self.assertEqual(server.run(state), before)
            server.install(dbname)

    def test_upgrade_fails_no_call_of_concurrent_writers(self):
        with Server() as server:
            dbname = server.create_database()
            server.run("create table guarded (id int primary key, n bigint not null)", dbname)
            server.run("insert into guarded values (1, 0)", dbname)
            server.run("call advance('a', 1, 'h')", dbname)
            for (statement,) in server.run(f"call protect('{dbname}', 'guarded', 'IF(ROW.id = 1, ''a'', '''')')", dbname):
                server.run(statement.rstrip(";"), dbname)
            is_over = threading.Event()
            written = []

            def write(number):
                with server.session(dbname) as client:
                    turns = 0
                    while not is_over.is_set():
                        client.run("start transaction")
                        client.run("call admit('a', 1, 'h', null)")
                        client.run("update guarded set n = n + 1")
                        client.run("call confirm('a', 1, 'h')")
                        client.run("commit")
                        for call in ("try_advance('a', 1, 'h', null, null)", "would_raise('a', 1, 'h')",
                                     f"acquire('{number}', 60000, 'h')"):
                            client.run(f"call {call}")
                        turns += 1
                    written.append(turns)

            def upgrade():
                try:
                    for _ in range(3):
                        server.install(dbname)
                finally:
                    is_over.set()

            run_all([lambda n=number: write(n) for number in range(3)] + [upgrade])
            self.assertEqual(server.run("select n from guarded", dbname), ((sum(written),),))
            self.assertGreater(sum(written), 3)

    def test_no_statement_is_mariadbs_alone(self):
        """As far as a search can tell: MySQL cannot be installed here."""
        for statement in (re.sub(r"/\*M!.*?\*/", "", text, flags=re.DOTALL) for text in statements()):
            self.assertNotRegex(statement.upper(), r"OR REPLACE (?!VIEW)|RETURNING|NEXT VALUE|NOT ATOMIC|IN_TRANSACTION|"
                                r" WAIT [0-9]|\bEXECUTE IMMEDIATE\b")

    def test_nothing_is_dropped(self):
        for statement in statements():
            self.assertNotRegex(re.sub(r"--.*|/\*!80000.*?\*/", "", statement).upper().lstrip(), r"\ADROP|\ACREATE (PROCEDURE|FUNCTION)")


if __name__ == "__main__":
    unittest.main()
