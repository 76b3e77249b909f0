"""Protected tables: no client writes a row without a good claim to its resource, whatever the statement is."""

import subprocess
import unittest

import pymysql

from sessions import LOCK_WAIT_TIMEOUT, ServerTest

MISSING = "missing"
ADMIT = "call admit('accounts/{}', {}, '{}', null)"


class Protected(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with cls.server.session(cls.dbname) as session:
            session.run("create table guarded (id bigint auto_increment primary key, balance bigint) engine = innodb")
            cls.protect("guarded", "CONCAT('accounts/', ROW.id)")

    @classmethod
    def statements(cls, call):
        """As the client prints them."""
        done = subprocess.run(["mariadb", "--no-defaults", f"--socket={cls.server.socket}", "--user=root", "-Nr", "-e", call,
                               cls.dbname], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @classmethod
    def protect(cls, table, expression):
        quoted = expression.replace("'", "''")
        text = cls.statements(f"call protect('{cls.dbname}', '{table}', '{quoted}')")
        for statement in filter(None, text.split("\n")):
            cls.server.run(statement.rstrip(";"), cls.dbname)

    def setUp(self):
        super().setUp()
        writer = self.session()
        for number in range(1, 5):
            self.put(f"accounts/{number}", 34, "a")
        # As an administrator fills it.
        text = self.statements(f"call unprotect('{self.dbname}', 'guarded')")
        for statement in filter(None, text.split("\n")):
            self.sql(statement.rstrip(";"))
        self.sql("delete from guarded")
        self.sql("insert into guarded values (1, 100), (2, 100), (3, 100)")
        self.protect("guarded", "CONCAT('accounts/', ROW.id)")
        writer.close()

    def outcome(self, session, sql):
        try:
            session.run(sql)
            return "done"
        except pymysql.Error as error:
            return self.refusal(error)

    def test_without_a_claim_no_statement_writes_a_row(self):
        client = self.session()
        for sql in ("update guarded set balance = 1 where id = 1", "delete from guarded where id = 1",
                    "insert into guarded values (4, 1)", "replace into guarded values (1, 1)",
                    "insert into guarded values (1, 1) on duplicate key update balance = 1",
                    "update guarded set balance = 1",
                    "insert into guarded select id + 3, balance from guarded"):
            self.assertEqual(self.outcome(client, sql), MISSING, sql)
        self.assertEqual(self.sql("select id, balance from guarded"), ((1, 100), (2, 100), (3, 100)))
        self.assertEqual(self.outcome(client, "update guarded set balance = 1 where id = 99"), "done")

    def test_under_a_claim_its_rows_are_written_and_no_others(self):
        client = self.session()
        client.run("start transaction")
        client.run(ADMIT.format(1, 34, "a"))
        self.assertEqual(self.outcome(client, "update guarded set balance = 70 where id = 1"), "done")
        self.assertEqual(self.outcome(client, "update guarded set balance = 70 where id = 2"), MISSING)
        self.assertEqual(self.outcome(client, "update guarded set id = 4 where id = 1"), MISSING)
        client.run(ADMIT.format(4, 34, "a"))
        self.assertEqual(self.outcome(client, "update guarded set id = 4 where id = 1"), "done")
        client.run("commit")
        self.assertEqual(self.sql("select id, balance from guarded"), ((2, 100), (3, 100), (4, 70)))

    def test_claim_is_judged_at_every_row_whatever_a_session_sets(self):
        client = self.session()
        client.run("start transaction")
        client.run(ADMIT.format(1, 34, "a"))
        client.run("commit")
        self.session().run("call advance('accounts/1', 35, 'b')")
        self.assertEqual(self.outcome(client, "update guarded set balance = 1 where id = 1"), "stale")
        claims = client.run("select @fenceguard_claims")[0][0]
        for wrong in ("'x'", "null", "'[]'", "''", "7", f"'{claims.replace('34 a', '35 a')}'", f"'{claims.replace('34 a', '99 b')}'",
                      f"'{claims.replace('34 a', '35')}'", f"'{claims.replace('34 a', '-1 b')}'"):
            client.run(f"set @fenceguard_claims = {wrong}")
            self.assertIn(self.outcome(client, "update guarded set balance = 1 where id = 1"),
                          (MISSING, "stale", "conflict", "advance"), wrong)
        self.assertEqual(self.sql("select balance from guarded where id = 1"), ((100,),))

    def test_a_write_alone_holds_the_fence_until_it_is_committed(self):
        client = self.session()
        client.run("start transaction")
        client.run(ADMIT.format(1, 34, "a"))
        client.run("commit")
        client.run("start transaction")
        self.assertEqual(self.outcome(client, "update guarded set balance = 5 where id = 1"), "done")
        next_holder = self.session()
        next_holder.begin_run("call try_advance('accounts/1', 35, 'b', 60, null)")
        self.server.wait_until_waiting(next_holder)
        client.run("commit")
        self.assertEqual(next_holder.wait()[0][0], "admitted")

    def test_lock_tables_of_a_protected_table_leaves_leases_alone(self):
        """It locks what the triggers name: the fences, which wait (docs/mariadb), and not the counter."""
        client = self.session()
        client.run("set autocommit = 0")
        client.run("lock tables guarded write")
        other = self.session()
        for call in ("acquire('r', 60000, 'h')", "draw()", "end_lease('r')"):
            other.run(f"call {call}")
        self.assert_fails(other, "call try_advance('accounts/1', 35, 'b', 1, null)", LOCK_WAIT_TIMEOUT)
        client.run("unlock tables")
        self.assertEqual(other.run("call try_advance('accounts/1', 35, 'b', 1, null)")[0][0], "admitted")

    def test_snapshot_older_than_the_advance_writes_nothing(self):
        client = self.session("repeatable read")
        client.run("start transaction")
        client.run(ADMIT.format(1, 34, "a"))
        claims = client.run("select @fenceguard_claims")[0][0]
        client.run("commit")
        client.run("start transaction with consistent snapshot")
        self.session().run("call advance('accounts/1', 35, 'b')")
        client.run(f"set @fenceguard_claims = '{claims.replace('34 a', '35 b')}'")
        self.assertEqual(self.outcome(client, "update guarded set balance = 1 where id = 1"), "advance")

    def test_a_refused_row_leaves_no_lock_of_the_fence(self):
        """A missing record would be a gap at REPEATABLE READ, in which no other resource gets its first fence."""
        client = self.session("repeatable read")
        for claim, row, answer in (("33 a", 1, "stale"), ("34 b", 1, "conflict"), ("35 a", 1, "advance"), ("34 a", 99, "advance")):
            client.run("start transaction")
            client.run(f"set @fenceguard_claims = json_object(sha2('accounts/{row}', 256), '{claim}')")
            self.assertEqual(self.outcome(client, f"insert into guarded values ({row}, 1)"), answer)
            other = self.session()
            other.run("start transaction")
            other.run("select * from fences for update nowait")
            other.run("rollback")
            for resource in ("accounts/98", "accounts/991", "z"):
                other.run(f"call try_advance('{resource}', 34, 'a', 1, null)")
            client.run("rollback")
            self.sql("delete from fences where resource in ('accounts/98', 'accounts/991', 'z')")

    def test_a_row_whose_number_the_server_is_to_give_is_refused(self):
        """Which resource it is of is known only when it is there, and then it may stay (see below)."""
        client = self.session()
        client.run("call advance('accounts/0', 34, 'a')")
        client.run("alter table guarded auto_increment = 4")
        client.run("start transaction")
        for number in (0, 4):
            client.run(ADMIT.format(number, 34, "a"))
        for sql in ("insert into guarded (balance) values (1)", "insert into guarded values (null, 1)", "insert into guarded values (0, 1)"):
            self.assertIn("a resource is missing", self.assert_fails(client, sql, 1644))
        self.assertEqual(self.outcome(client, "insert into guarded values (4, 1)"), "done")
        client.run("rollback")

    def test_refused_row_is_undone_even_if_the_error_is_handled(self):
        """There the server undoes no statement: what a trigger refuses after the row is written is there all the same."""
        rows = self.sql("select id, balance from guarded")
        self.sql("create table if not exists other (id bigint) engine = innodb")
        client = self.session()
        for sql in ("update guarded set balance = 1 where id = 1", "delete from guarded where id = 1",
                    "update guarded set id = 4 where id = 1", "insert into guarded values (4, 1)",
                    "insert into guarded (balance) values (1)", "replace into guarded values (1, 1)",
                    "insert into guarded values (1, 1) on duplicate key update balance = 1",
                    "insert ignore into guarded values (4, 1)", "update ignore guarded set balance = 1"):
            body = f"begin declare continue handler for sqlexception begin end; {sql};"
            for statement in ("drop function if exists handled", f"create function handled() returns int {body} return 1; end",
                              "drop trigger if exists handled", f"create trigger handled after insert on other for each row {body} end"):
                self.sql(statement)
            self.assertEqual(client.run("select handled()"), ((1,),))
            client.run("insert into other values (1)")
            self.assertEqual(self.sql("select id, balance from guarded"), rows, sql)
        self.sql("drop table other")

    def test_row_moved_by_a_later_trigger_is_judged_where_it_landed(self):
        for event, sql in (("insert", "insert into guarded values (4, 1)"), ("update", "update guarded set balance = 1 where id = 1")):
            self.sql(f"create trigger moving before {event} on guarded for each row set new.id = 5")
            client = self.session()
            client.run("start transaction")
            for number in (1, 4):
                client.run(ADMIT.format(number, 34, "a"))
            self.assertEqual(self.outcome(client, sql), MISSING)
            client.run("rollback")
            self.sql("drop trigger moving")

    def test_a_closed_fence_and_one_below_the_floor_refuse(self):
        client = self.session()
        for number, call in ((1, "revoke_fence('accounts/1', null, null)"), (2, "init(50)")):
            client.run("start transaction")
            client.run(ADMIT.format(number, 34, "a"))
            client.run("commit")
            client.run(f"call {call}")
            self.assertEqual(self.outcome(client, f"update guarded set balance = 1 where id = {number}"), "stale")

    def test_no_row_is_open_while_it_is_protected_again(self):
        """Writers without a claim queue behind each step of it, and get the table before the next one."""
        call = f"call protect('{self.dbname}', 'guarded', 'CONCAT(''accounts/'', ROW.id)')"
        rows = self.sql("select id, balance from guarded")
        steps = [text for text in self.statements(call).split("\n") if "TRIGGER" in text]
        for step in steps:
            reader, administrator = self.session(), self.session()
            reader.run("start transaction")
            reader.run("select * from guarded")
            administrator.run("set lock_wait_timeout = 60")
            administrator.begin_run(step.rstrip(";"))
            self.server.wait_until_waiting_for_metadata(administrator)
            writers = [self.session() for _ in range(3)]
            for writer, sql in zip(writers, ("update guarded set balance = 1", "delete from guarded", "insert into guarded values (4, 1)")):
                writer.begin_run(sql)
                self.server.wait_until_waiting_for_metadata(writer)
            reader.run("commit")
            administrator.wait()
            for writer in writers:
                with self.assertRaises(pymysql.Error, msg=step) as refused:
                    writer.wait()
                self.assertEqual(self.refusal(refused.exception), MISSING)
        self.assertEqual(self.sql("select id, balance from guarded"), rows)

    def test_protecting_waits_for_a_transaction_within_a_limit(self):
        call = f"call protect('{self.dbname}', 'guarded', 'CONCAT(''accounts/'', ROW.id)')"
        reader, administrator = self.session(), self.session()
        reader.run("start transaction")
        reader.run("select * from guarded")
        wait, step, *_ = self.statements(call).split("\n")
        self.assertEqual(wait, "SET SESSION lock_wait_timeout = 5;")
        administrator.run(wait.replace("5", "1"))
        self.assert_fails(administrator, step, LOCK_WAIT_TIMEOUT)
        self.assertEqual(self.outcome(self.session(), "update guarded set balance = 1 where id = 1"), MISSING)

    def test_a_table_with_history_is_protected(self):
        self.sql("create or replace table historic (id bigint primary key, balance bigint) engine = innodb with system versioning")
        self.addCleanup(self.sql, "drop table historic")
        self.sql("insert into historic values (1, 100)")
        self.protect("historic", "CONCAT('accounts/', ROW.id)")
        client = self.session()
        for sql in ("update historic set balance = 1", "delete from historic", "insert into historic values (2, 1)",
                    "replace into historic values (1, 1)"):
            self.assertEqual(self.outcome(client, sql), MISSING, sql)
        client.run("start transaction")
        client.run(ADMIT.format(1, 34, "a"))
        client.run("update historic set balance = 70")
        client.run("commit")
        self.assertEqual(self.sql("select balance from historic"), ((70,),))

    def test_what_cannot_be_protected_fails_in_the_pipe_as_well(self):
        client = ["mariadb", "--no-defaults", f"--socket={self.server.socket}", "--user=root", "-Nr"]
        for table, sentence in (("none", "no such table"), ("fence", "VIEW")):
            first = subprocess.run([*client, "-e", f"call protect('{self.dbname}', '{table}', 'ROW.id')", self.dbname],
                                   capture_output=True, text=True, check=False)
            self.assertNotEqual(first.returncode, 0)
            second = subprocess.run(client, input=first.stdout, capture_output=True, text=True, check=False)
            self.assertNotEqual(second.returncode, 0, first.stdout)
            for done in (first, second):
                self.assertIn(sentence, done.stderr)

    def test_a_table_that_cannot_be_protected_is_refused_by_name(self):
        client = self.session()
        client.run("create table if not exists plain (id int) engine = MyISAM")
        for arguments, what in ((f"'{self.dbname}', 'plain', 'ROW.id'", "MyISAM"), (f"'{self.dbname}', 'none', 'ROW.id'", "no such"),
                                (f"'{self.dbname}', 'guarded', '1'", "a column"), (f"'{self.dbname}', 'guarded', null", "a column")):
            self.assertIn(what, self.assert_fails(client, f"call protect({arguments})", 1644))

    def test_session_dependent_expression_is_refused(self):
        client = self.session()
        client.run("create table dated (id int, `at` timestamp, `At now` timestamp, at_id int, of_row datetime) engine = innodb")
        self.addCleanup(self.sql, "drop table dated")
        for expression, is_refused in (("concat(ROW.id, ''/'', ROW.at)", True), ("concat(ROW.`At`)", True), ("ROW.`at now`", True),
                                       ("ROW.AT", True), ("ROW.at_id", False), ("concat(ROW.id, '' at'')", False),
                                       ("ROW.of_row", False)):
            call = f"call protect('{self.dbname}', 'dated', '{expression}')"
            if is_refused:
                self.assertIn("TIMESTAMP", self.assert_fails(client, call, 1644), expression)
            else:
                self.assertEqual(len(client.run(call)), 6, expression)

    def test_without_protection_it_is_an_ordinary_table_again(self):
        for statement in filter(None, self.statements(f"call unprotect('{self.dbname}', 'guarded')").split("\n")):
            self.sql(statement.rstrip(";"))
        self.assertEqual(self.outcome(self.session(), "update guarded set balance = 1 where id = 1"), "done")

    def test_what_row_triggers_do_not_see(self):
        """As docs/mariadb says: TRUNCATE needs DROP, and a cascade is InnoDB's own. 'doctor' names them."""
        self.sql("drop table if exists part")
        self.sql("create table if not exists whole (id bigint primary key) engine = innodb")
        self.sql("create table part (id bigint primary key, whole bigint, foreign key (whole) references whole (id) "
                 "on delete cascade) engine = innodb")
        self.sql("insert into whole values (1)")
        self.sql("insert into part values (1, 1)")
        self.protect("part", "CONCAT('accounts/', ROW.id)")
        self.assertEqual(self.outcome(self.session(), "delete from part"), MISSING)
        self.assertEqual(self.outcome(self.session(), "delete from whole"), "done")
        self.assertEqual(self.sql("select count(*) from part"), ((0,),))
        self.sql("drop table part")
        self.sql("drop table whole")


if __name__ == "__main__":
    unittest.main()
