"""The library's example with MariaDB, run as a user runs it."""

import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from mariadb_server import Server  # noqa: E402

LIBRARY = os.environ["FENCEGUARD_LIBRARY_MARIADB"]


class Example(unittest.TestCase):
    def run_example(self, url):
        return subprocess.run([LIBRARY, url], capture_output=True, text=True, check=False)

    def test_the_stale_holder_is_refused_in_its_own_transaction(self):
        with Server() as server:
            dbname = server.create_database()
            url = server.url(dbname, rest=f"?schema={dbname}")
            for _ in range(2):
                done = self.run_example(url)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertEqual(done.stdout, "A adds 50: admitted\nB adds 30: admitted\nA adds 50: stale\n")
                self.assertEqual(server.run("select balance from account", dbname), ((180,),))
            done = self.run_example(server.url(dbname))
            self.assertEqual(done.returncode, 3)
            self.assertIn("fenceguard sql mariadb", done.stderr)


if __name__ == "__main__":
    unittest.main()
