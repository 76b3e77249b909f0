"""Queues that keep their jobs in PostgreSQL, and migrate their own tables, through the sidecar under a claim: they send each
migration as one message from BEGIN to COMMIT. What the test needs of npm is installed once, in FENCEGUARD_NODE_FOLDER, as
node/package-lock.json says."""

import os
import pathlib
import shutil
import subprocess
import unittest
import urllib.parse

import support
from sidecar_case import SidecarTest, claims_text
from waiting import LIMIT_S

HERE = pathlib.Path(__file__).resolve().parent
CLAIM = ("accounts/1", 34, "holder-1")


class QueuesTest(SidecarTest):
    @classmethod
    def setUpClass(cls):
        cls.packages = pathlib.Path(os.environ["FENCEGUARD_NODE_FOLDER"])
        support.install_packages(HERE / "node", cls.packages)
        super().setUpClass()

    def test_pg_boss_graphile_worker_and_scripts_of_migrations(self):
        os.symlink(self.packages / "node_modules", self.path("node_modules"))
        shutil.copy(HERE / "node" / "queues.mjs", self.folder)
        for ways in (("--unfenced", "read"), ("--hold", "jobs/leader", "--hold-reconnect", "allow")):
            sidecar = self.start_sidecar(*ways)
            options = "" if "--hold" in ways else "?" + urllib.parse.urlencode({"options": claims_text(CLAIM)}, quote_via=urllib.parse.quote)
            for library in ("pg-boss", "graphile-worker", "script"):
                with self.subTest(library, ways=ways):
                    done = subprocess.run(["node", "queues.mjs", library, f"postgres://postgres@{sidecar.data}/{self.database}{options}"],
                                          cwd=self.folder, env=support.environment(None), text=True, capture_output=True,
                                          timeout=4 * LIMIT_S, check=False)
                    self.assertEqual((done.returncode, done.stdout.splitlines()[-1:]), (0, ["done"]), done.stderr)
            sidecar.stop()
            self.run_directly("drop schema if exists pgboss, graphile_worker cascade; drop table made; drop function f")


if __name__ == "__main__":
    unittest.main()
