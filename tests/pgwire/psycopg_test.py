"""The extended protocol, as psycopg speaks it: prepared statements, pipelines, COPY, cursors, NOTIFY, cancel."""

import unittest

import psycopg
from sidecar_case import SidecarTest

ONE = ("accounts/1", 34, "holder-1")


class PsycopgTest(SidecarTest):
    def connect(self, *claims, **options):
        link = psycopg.connect(self.conninfo(self.sidecar, *claims), **options)
        self.addCleanup(link.close)
        return link

    def setUp(self):
        super().setUp()
        self.sidecar = self.start_sidecar()

    def overtake(self):
        self.run_directly("select fenceguard.advance('accounts/1', 35, 'new')")

    def test_parameters_and_prepared_statements_write(self):
        link = self.connect(ONE, autocommit=True)
        for who in "abc":
            link.execute("insert into entries (who) values (%s)", [who], prepare=True)
        with link.transaction():
            link.execute("insert into entries (who) values (%s)", ["d"], prepare=True)
        self.assertEqual(self.entries(), "a b c d")
        self.overtake()
        with self.assertRaises(psycopg.Error) as raised:
            link.execute("insert into entries (who) values (%s)", ["x"], prepare=True)
        self.assertEqual(raised.exception.sqlstate, "ZF001")
        self.assertEqual(self.entries(), "a b c d")

    def test_pipeline_of_several_transactions(self):
        link = self.connect(ONE, autocommit=True)
        with link.pipeline():
            for who in "ab":
                link.execute("begin")
                link.execute("insert into entries (who) values (%s)", [who])
                link.execute("commit")
        self.assertEqual(self.entries(), "a b")

    def test_transaction_ended_inside_a_pipeline_leaves_nothing_open(self):
        link = self.connect(ONE, autocommit=True)
        with self.assertRaises(psycopg.Error), link.pipeline() as pipeline:
            link.execute("insert into entries (who) values (%s)", ["a"])
            link.execute("select set_config('default_transaction_read_only', 'off', false)")
            link.execute("select fenceguard.advance('accounts/1', 35, 'new')")
            link.execute("commit")
            link.execute("insert into entries (who) values (%s)", ["stale"])
            pipeline.sync()
        self.assertNotIn("stale", self.entries())

    def test_call_and_do_are_one_transaction(self):
        self.run_directly("create procedure twice() language plpgsql as $$ begin insert into entries (who) values "
                          "('p'); commit; set transaction read write; insert into entries (who) values ('q'); end $$")
        link = self.connect(ONE, autocommit=True)
        with self.assertRaises(psycopg.Error) as raised:
            link.execute("call twice()", prepare=True)
        self.assertEqual(raised.exception.sqlstate, "2D000")
        self.assertEqual(link.info.transaction_status, psycopg.pq.TransactionStatus.IDLE)
        self.assertEqual(self.entries(), "")
        link.execute("do $$ begin insert into entries (who) values ('d'); end $$", prepare=True)
        self.assertEqual(self.entries(), "d")
        with link.transaction():
            link.execute("do $$ begin insert into entries (who) values ('e'); end $$", prepare=True)
            link.execute("insert into entries (who) values (%s)", ["f"])
            self.assertEqual(self.entries(), "d")
        self.assertEqual(self.entries(), "d e f")

    def test_isolation_and_read_only_of_the_client(self):
        link = self.connect(ONE)
        link.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        link.execute("insert into entries (who) values (%s)", ["a"])
        self.assertEqual(link.execute("show transaction_isolation").fetchone(), ("serializable",))
        link.commit()
        link.read_only = True
        with self.assertRaises(psycopg.errors.ReadOnlySqlTransaction):
            link.execute("insert into entries (who) values (%s)", ["x"])
        link.rollback()
        self.assertEqual(self.entries(), "a")

    def test_copy_both_ways_and_a_copy_that_fails(self):
        link = self.connect(ONE, autocommit=True)
        with link.cursor().copy("copy entries (who) from stdin") as copy:
            for who in "ab":
                copy.write_row([who])
        with link.cursor().copy("copy (select who from entries order by id) to stdout") as copy:
            self.assertEqual(list(copy.rows()), [("a",), ("b",)])
        with self.assertRaises(psycopg.Error), link.cursor().copy("copy entries (id) from stdin") as copy:
            copy.write("no number\n")
        link.execute("insert into entries (who) values ('c')")
        self.assertEqual(self.entries(), "a b c")

    def test_named_cursor_and_row_limits(self):
        link = self.connect(ONE)
        with link.cursor(name="some") as cursor:
            cursor.execute("select * from generate_series(1, 1000)")
            self.assertEqual(len(cursor.fetchmany(10)) + len(cursor.fetchall()), 1000)
        link.commit()

    def test_discard_and_deallocate_all(self):
        link = self.connect(ONE, autocommit=True)
        for _ in range(2):
            link.execute("insert into entries (who) values (%s)", ["a"], prepare=True)
            link.execute("deallocate all")
            link._prepared.clear()
            link.execute("discard all")
        self.assertEqual(self.entries(), "a a")

    def test_listen_and_notify(self):
        link = self.connect(ONE, autocommit=True)
        link.execute("listen news")
        other = self.connect(ONE, autocommit=True)
        other.execute("notify news, 'hello'")
        self.assertEqual(next(link.notifies()).payload, "hello")

    def test_cancel_reaches_the_server(self):
        link = self.connect(ONE, autocommit=True)
        link.pgconn.send_query(b"select pg_sleep(600)")
        self.postgres.ruler()
        from waiting import wait_until
        wait_until(lambda: self.run_directly("select count(*) from pg_stat_activity where query like '%pg_sleep(600)' "
                                             "and state = 'active' and query not like '%activity%'") == "1")
        link.pgconn.get_cancel().cancel()
        state = None
        while result := link.pgconn.get_result():
            state = result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or state
        self.assertEqual(state, b"57014")

    def test_chained_transaction_is_admitted_anew(self):
        link = self.connect(ONE, autocommit=True)
        link.execute("begin")
        link.execute("insert into entries (who) values ('a')")
        link.execute("commit and chain")
        self.overtake()
        with self.assertRaises(psycopg.Error) as raised:
            link.execute("insert into entries (who) values (%s)", ["stale"])
        self.assertEqual(raised.exception.sqlstate, "ZF001")
        link.execute("rollback")
        self.assertEqual(self.entries(), "a")

    def test_transaction_statement_is_prepared_not_by_execute(self):
        link = self.connect(ONE, autocommit=True)
        for name, text in ((b"b", b"begin"), (b"c", b"commit and chain"), (b"r", b"rollback")):
            link.pgconn.prepare(name, text)
        for executed, state in ((b"c", None), (b"c", b"3B001")):
            link.pgconn.exec_prepared(b"b", [])
            link.execute("insert into entries (who) values ('a')")
            if state:
                result = link.pgconn.exec_(b"execute " + executed)
                self.assertEqual(result.error_field(psycopg.pq.DiagnosticField.SQLSTATE), state)
            else:
                link.pgconn.exec_prepared(executed, [])
            link.pgconn.exec_prepared(b"r", [])
            self.assertEqual(link.info.transaction_status, psycopg.pq.TransactionStatus.IDLE)
        self.assertEqual(self.entries(), "a")

    def test_deallocate_in_a_block_before_the_first_write(self):
        link = self.connect(ONE)
        link.execute("deallocate all")
        link.execute("insert into entries (who) values ('a')")
        link.commit()
        self.assertEqual(self.entries(), "a")

    def test_statement_that_commits_by_itself_is_none_of_a_flight(self):
        for first in ("vacuum entries", "analyze", "reindex database postgres", "create index concurrently on entries (who)"):
            link = self.connect(ONE, autocommit=True)
            with self.subTest(first), self.assertRaises(psycopg.Error), link.pipeline() as pipeline:
                link.execute("select set_config('default_transaction_read_only', 'off', false)")
                link.execute(first)
                link.execute("select fenceguard.advance('accounts/1', 35, 'new')")
                link.execute("insert into entries (who) values ('stale')")
                pipeline.sync()
                link.execute("insert into entries (who) values ('later')")
                pipeline.sync()
            link.close()
            self.assertNotIn("later", self.entries())
            self.run_directly("truncate entries; truncate fenceguard.fences")

    def test_savepoints(self):
        link = self.connect(ONE)
        with link.transaction():
            with self.assertRaises(psycopg.errors.DivisionByZero), link.transaction():
                link.execute("insert into entries (who) values ('x')")
                link.execute("select 1 / 0")
            with link.transaction():
                link.execute("insert into entries (who) values (%s)", ["a"])
        self.assertEqual(self.entries(), "a")

    def test_two_phase_is_refused(self):
        link = self.connect(ONE, autocommit=True)
        link.execute("begin")
        link.execute("insert into entries (who) values ('a')")
        with self.assertRaises(psycopg.Error) as raised:
            link.execute("prepare transaction 'x'")
        self.assertEqual(raised.exception.sqlstate, "0A000")
        self.assertEqual(link.info.transaction_status, psycopg.pq.TransactionStatus.INERROR)
        link.execute("rollback")


if __name__ == "__main__":
    unittest.main()
