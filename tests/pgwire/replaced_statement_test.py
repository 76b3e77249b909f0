"""What a pipeline of the extended protocol can do between two answers of the server: end a transaction that has failed and
begin another, and execute, by a name that stood for a COMMIT, what SQL has put in its place meanwhile."""

import unittest

import psycopg
import raw_client
from psycopg import pq
from sidecar_case import SidecarTest, claims_text


class Pipelines(SidecarTest):
    def setUp(self):
        super().setUp()
        self.sidecar = self.start_sidecar()
        self.run_directly("select fenceguard.advance('a', 1, 'old')")

    def connections(self):
        """One whose claim has gone stale, and one without a claim."""
        stale = psycopg.connect(self.conninfo(self.sidecar, ("a", 1, "old")), autocommit=True)
        self.addCleanup(stale.close)
        self.run_directly("select fenceguard.advance('a', 2, 'new')")
        unfenced = psycopg.connect(self.conninfo(self.sidecar), autocommit=True)
        self.addCleanup(unfenced.close)
        return {"stale": stale.pgconn, "unfenced": unfenced.pgconn}

    def pipeline(self, connection, *statements):
        """Each a text, or ('name',) of a statement that is prepared; one Sync behind all. Answers the states."""
        connection.enter_pipeline_mode()
        for statement in statements:
            if isinstance(statement, tuple):
                connection.send_query_prepared(statement[0].encode(), [])
            else:
                connection.send_query_params(statement.encode(), [])
        connection.pipeline_sync()
        states = []
        while True:
            result = connection.get_result()
            if result is None:
                continue
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                break
            states.append(result.error_field(pq.DiagnosticField.SQLSTATE) or result.status)
        connection.exit_pipeline_mode()
        return states

    def test_transaction_begun_behind_a_failed_one_is_admitted(self):
        for name, connection in self.connections().items():
            with self.subTest(name):
                connection.exec_(b"begin")
                connection.exec_(b"nonsense")
                states = self.pipeline(connection, "rollback", "begin read write", "insert into entries (who) values ('x')",
                                       "commit")
                self.assertTrue({b"ZF001", b"25001", b"25006"} & set(states), states)
                self.assertEqual(self.entries(), "")

    def test_a_name_that_stood_for_what_may_precede_an_admission(self):
        for name, connection in self.connections().items():
            for text in ("commit", "show work_mem", "set work_mem = '4MB'", "set transaction read write", "begin"):
                with self.subTest(name, text=text):
                    connection.exec_(b"rollback")
                    connection.exec_(b"deallocate all")
                    connection.prepare(b"c", text.encode())
                    connection.exec_(b"deallocate c")
                    connection.exec_(b"prepare c as insert into entries (who) values ('x')")
                    self.pipeline(connection, "begin read write", ("c",), "commit")
                    self.pipeline(connection, "rollback")
                    self.assertEqual(self.entries(), "")

    def test_a_statement_without_a_name_outlives_a_call_that_failed(self):
        """What the sidecar says itself behind it leaves the statement alone, which runs again."""
        self.run_directly("create procedure fails() language plpgsql as $$ begin raise 'x'; end $$")
        client = raw_client.RawClient(self.sidecar.data)
        self.addCleanup(client.close)
        client.start(("user", "postgres"), ("database", self.database), ("options", claims_text(("a", 1, "old"))))
        again = raw_client.bind() + raw_client.execute() + raw_client.SYNC
        for request in (raw_client.parse("call fails()") + again, again, again):
            answer = client.ask(request)
            self.assertEqual((raw_client.states(answer), answer[-1]), (["P0001"], (b"Z", b"I")))

    def test_the_same_where_the_claim_is_good(self):
        session = psycopg.connect(self.conninfo(self.sidecar, ("a", 1, "old")), autocommit=True)
        self.addCleanup(session.close)
        connection = session.pgconn
        connection.prepare(b"c", b"commit")
        connection.prepare(b"s", b"show work_mem")
        states = self.pipeline(connection, "begin", ("s",), "insert into entries (who) values ('y')", ("c",), ("s",))
        self.assertEqual([state for state in states if isinstance(state, bytes)], [])
        self.assertEqual(self.entries(), "y")


if __name__ == "__main__":
    unittest.main()
