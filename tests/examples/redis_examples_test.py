"""The Redis example as a user runs it, against a server of its own."""

import os
import subprocess
import unittest

import redis_server

BINARY = os.environ["FENCEGUARD_BINARY"]
LIBRARY = os.environ["FENCEGUARD_LIBRARY_REDIS"]


class RedisExample(unittest.TestCase):
    def setUp(self):
        self.server = redis_server.Server()
        self.addCleanup(self.server.remove)
        self.url = self.server.url()

    def run_example(self):
        done = subprocess.run([LIBRARY, self.url], text=True, capture_output=True, check=False, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def test_the_stale_holder_is_refused_in_its_own_script(self):
        subprocess.run([BINARY, "fence", "init", "--storage", self.url], check=True, capture_output=True)
        for _ in range(2):
            status, printed, error = self.run_example()
            self.assertEqual((status, error), (0, ""))
            self.assertEqual(printed, "A stores 150\nA adds 50: admitted\nB stores 180\nB adds 30: admitted\n"
                                      "A adds 50: stale\n")
            self.assertEqual(self.server.cli("GET", "{accounts/42}:balance"), "180")

    def test_uninitialised_namespace_names_the_command(self):
        status, printed, error = self.run_example()
        self.assertEqual((status, printed), (3, ""))
        self.assertIn("fenceguard fence init", error)
        self.assertIsNone(self.server.cli("GET", "{accounts/42}:balance"))


if __name__ == "__main__":
    unittest.main()
