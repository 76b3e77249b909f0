"""A SQLite file that 0.1.0 left behind, opened by this version; and a newer one, which is refused untouched."""

import gzip
import pathlib
import sqlite3
import unittest

import support

LEFT_BY_0_1_0 = pathlib.Path(__file__).with_name("sqlite-0.1.0.db.gz")
FILE = ["--storage", "sqlite:guard.db"]


def claim(token, holder, sequence=None):
    fields = {"Fencing-Token": str(token), "Fencing-Holder": holder}
    return fields if sequence is None else {**fields, "Fencing-Sequence": str(sequence)}


class OlderFile(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.file = pathlib.Path(self.path("guard.db"))
        self.file.write_bytes(gzip.decompress(LEFT_BY_0_1_0.read_bytes()))

    def version(self):
        with sqlite3.connect(self.file) as file:
            return file.execute("SELECT version FROM fenceguard_schema").fetchone()[0]

    def test_fences_objects_and_the_counter_are_as_they_were(self):
        self.assertEqual(self.version(), 3)
        server = self.serve(*FILE)
        fence = server.call("GET", "/v1/fences/accounts/42").json
        self.assertEqual((fence["token"], fence["sequence"], fence["closed"]), ("2", "7", False))
        self.assertTrue(server.call("GET", "/v1/fences/accounts/7").json["closed"])
        self.assertEqual(server.request("GET", "/accounts/42").body, b"70")
        stale = server.request("PUT", "/accounts/42", claim(1, "a"), "130")
        self.assertEqual((stale.status, stale.headers["fencing-verdict"]), (412, "stale"))
        again = server.request("PUT", "/accounts/42", claim(2, "b", 7), "70")
        self.assertEqual(again.headers["fencing-verdict"], "duplicate")
        self.assertEqual(server.request("PUT", "/accounts/42", claim(2, "b", 8), "71").status, 204)
        # The source had granted 1 to 3.
        self.assertEqual(server.lease("new").json["token"], "4")

    def test_a_newer_file_is_refused_with_a_sentence_and_left_alone(self):
        with sqlite3.connect(self.file) as file:
            file.execute("PRAGMA journal_mode = delete")
            file.execute("UPDATE fenceguard_schema SET version = 99")
        before = self.file.read_bytes()
        done = self.expect(3, "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", *FILE)
        self.assertIn("version 99", done.stderr)
        self.assertIn("use a newer fenceguard", done.stderr)
        self.assertEqual(self.version(), 99)
        with sqlite3.connect(self.file) as file:
            self.assertEqual(file.execute("SELECT token, holder, sequence FROM fenceguard_fence "
                                          "WHERE resource = 'accounts/42'").fetchall(), [(2, "b", 7)])
        self.assertEqual(self.file.read_bytes()[100:], before[100:])


if __name__ == "__main__":
    unittest.main()
