"""An unmodified psql through the sidecar: with a claim it writes, without one it reads, with a stale one it is not let in."""

import unittest

from postgres_server import SqlError
from sidecar_case import SidecarTest

ONE = ("accounts/1", 34, "holder-1")


class PsqlTest(SidecarTest):
    def test_claim_in_options_writes(self):
        sidecar = self.start_sidecar()
        self.psql(sidecar, "insert into entries (who) values ('a');\nbegin;\ninsert into entries (who) values ('b');\n"
                           "commit;\ntruncate entries;\ninsert into entries (who) values ('c')", ONE)
        self.assertEqual(self.entries(), "c")
        self.assertEqual(self.run_directly("select token || ' ' || holder from fenceguard.fences"), "34 holder-1")

    def test_several_claims_are_admitted_together(self):
        sidecar = self.start_sidecar()
        self.psql(sidecar, "insert into entries (who) values ('a')", ONE, ("accounts/ä'\\2", 7, "h"))
        self.assertEqual(self.entries(), "a")
        self.assertEqual(self.run_directly("select count(*) from fenceguard.fences"), "2")

    def test_nothing_of_the_admission_is_seen(self):
        sidecar = self.start_sidecar()
        self.assertEqual(self.psql(sidecar, "select 1; select 2 \\; select 3", ONE), "1\n2\n3")
        self.assertEqual(self.psql(sidecar, "select current_setting('fenceguard.session_claims', true) is null", ONE), "t")

    def test_positions_in_errors_are_of_the_text_of_the_client(self):
        sidecar = self.start_sidecar()
        _, errors = self.psql(sidecar, "select 1 frm x y", ONE, stops=False)
        self.assertIn("LINE 1: select 1 frm x y", errors)
        direct = self.postgres.session(self.database)
        with self.assertRaises(SqlError) as raised:
            direct.run("select 1 frm x y")
        direct.close()
        self.assertIn(errors.split("LOCATION")[0].strip(), raised.exception.stderr)

    def test_stale_claim_is_refused_as_it_connects(self):
        sidecar = self.start_sidecar()
        self.psql(sidecar, "insert into entries (who) values ('a')", ONE)
        with self.assertRaises(SqlError) as raised:
            self.psql(sidecar, "select 1", ("accounts/1", 33, "holder-0"))
        self.assertIn("FATAL:  the claim to 'accounts/1' is stale", raised.exception.stderr)

    def test_overtaken_session_writes_nothing_more(self):
        sidecar = self.start_sidecar()
        out, errors = self.psql(sidecar, "insert into entries (who) values ('before');\n"
                                "\\! true\n"
                                "insert into entries (who) select 'x' from fenceguard.advance('accounts/1', 35, 'new');\n"
                                "begin;\ninsert into entries (who) values ('after');\ncommit;\n"
                                "insert into entries (who) values ('after');\n", ONE, stops=False)
        self.assertEqual(out, "")
        self.assertIn("ERROR:  ZF001: the claim to 'accounts/1' is stale", errors)
        self.assertNotIn("after", self.entries() or "")

    def test_without_a_claim_it_only_reads(self):
        sidecar = self.start_sidecar()
        self.assertEqual(self.psql(sidecar, "select 1"), "1")
        for text in ("insert into entries (who) values ('x')", "begin read write;\ninsert into entries (who) values ('x')",
                     "set transaction read write \\; insert into entries (who) values ('x')",
                     "do $$ begin commit; set transaction read write; insert into entries (who) values ('x'); end $$"):
            with self.subTest(text), self.assertRaises(SqlError):
                self.psql(sidecar, text)
        with self.assertRaises(SqlError) as raised:
            self.psql(sidecar, "insert into entries (who) values ('x')")
        self.assertEqual(raised.exception.sqlstate, "25006")
        self.assertIn("fenceguard.session_claims", raised.exception.hint)
        self.assertEqual(self.entries(), "")

    def test_unfenced_allow_touches_nothing(self):
        sidecar = self.start_sidecar("--unfenced", "allow")
        self.psql(sidecar, "insert into entries (who) values ('a')")
        self.psql(sidecar, "vacuum entries")
        self.assertEqual(self.entries(), "a")

    def test_large_object_is_imported_in_its_own_or_another_block(self):
        """By function calls of the protocol, of which psql begins the block where there is none."""
        sidecar = self.start_sidecar()
        file = self.write("object", "x" * 30_000)
        script = "\\lo_import '{0}'\nbegin;\n\\lo_import '{0}'\ncommit;\nselect count(*) from pg_largeobject_metadata;".format(file)
        self.assertEqual(self.psql(sidecar, script, ONE).split("\n")[-1], "2")

    def test_statements_with_control_are_refused_and_abort(self):
        sidecar = self.start_sidecar()
        out, errors = self.psql(sidecar, "begin;\ninsert into entries (who) values ('x');\n"
                                "commit \\; insert into entries (who) values ('y');\ncommit;\n", ONE, stops=False)
        self.assertEqual(out, "")
        self.assertIn("0A000", errors)
        self.assertEqual(self.entries(), "")

    def test_setting_that_would_let_writes_in_ends_the_session(self):
        sidecar = self.start_sidecar()
        _, errors = self.psql(sidecar, "select set_config('default_transaction_read_only', 'off', false);\n"
                              "insert into entries (who) values ('x');\n", ONE, stops=False)
        self.assertIn("default_transaction_read_only is no longer on", errors)
        self.assertEqual(self.entries(), "")


if __name__ == "__main__":
    unittest.main()
