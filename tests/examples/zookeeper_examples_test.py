"""The ZooKeeper example as a user runs it, against a server of its own."""

import os
import subprocess
import unittest

import zookeeper_server

BINARY = os.environ["FENCEGUARD_BINARY"]
LIBRARY = os.environ["FENCEGUARD_LIBRARY_ZOOKEEPER"]


class ZooKeeperExample(unittest.TestCase):
    def setUp(self):
        self.server = zookeeper_server.Server()
        self.addCleanup(self.server.remove)
        self.url = self.server.url("/app")

    def run_example(self):
        done = subprocess.run([LIBRARY, self.url], text=True, capture_output=True, check=False, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def test_the_stale_holder_is_refused_by_the_multi_that_writes(self):
        subprocess.run([BINARY, "fence", "init", "--storage", self.url], check=True, capture_output=True)
        for _ in range(2):
            status, printed, error = self.run_example()
            self.assertEqual((status, error), (0, ""))
            self.assertEqual(printed, "A stores 150\nA adds 50: admitted\nB stores 180\nB adds 30: admitted\n"
                                      "A adds 50: stale\n")

    def test_uninitialised_namespace_names_the_command(self):
        status, printed, error = self.run_example()
        self.assertEqual((status, printed), (3, ""))
        self.assertIn("fenceguard fence init", error)


if __name__ == "__main__":
    unittest.main()
