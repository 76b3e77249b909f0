"""A guard in front of an HTTP storage whose state lies on a disk that is full to the last byte.

Shows: what needs a durable record is unavailable, and nothing of it reaches the storage; what needs none goes on; with
room again everything works without a restart; and a guard that is killed or stopped meanwhile has lost nothing. How:
the state is on a small file system in memory, in a mount namespace of the test's own.
"""

import errno
import os
import subprocess
import unittest

import http_load
import namespaces
from http_load import PATIENT_MS, WIDE_SETTLE_MS
from waiting import wait_until

SIZE = "2m"
FULL = "the disk is full: make room"


class HttpDisk(http_load.GuardedTest):
    def setUp(self):
        super().setUp()
        self.history = self.guarded(upstream_timeout_ms=PATIENT_MS, settle_ms=WIDE_SETTLE_MS)
        disk = self.history.folder
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", disk], check=True)
        self.ballast = os.path.join(disk, "ballast")

    def fill(self):
        with open(self.ballast, "ab", buffering=0) as file:
            for piece in (b"x" * 65_536, b"x"):
                try:
                    while True:
                        file.write(piece)
                except OSError as error:
                    self.assertEqual(error.errno, errno.ENOSPC)

    def make_room(self):
        os.unlink(self.ballast)

    def write(self, server, token, sequence=None, method="PUT"):
        claim = {"Fencing-Token": str(token), "Fencing-Holder": f"h{token}"}
        if sequence:
            claim["Fencing-Sequence"] = str(sequence)
        body = f"{token} {sequence}" if method == "PUT" else None
        return server.request(method, "/r/0", claim, body)

    def start_in_vain(self, *more):
        """A start that is refused in one plain sentence."""
        refused = self.run_binary("serve", "--storage", self.history.upstream.url(), "--state",
                                  f"sqlite:{self.history.folder}/state.db", "--listen", "127.0.0.1:0", "--control",
                                  "127.0.0.1:0", *more)
        self.assertEqual((refused.returncode, refused.stdout), (3, ""))
        self.assertIn(FULL, refused.stderr)
        self.assertEqual(len(refused.stderr.splitlines()), 1, refused.stderr)

    def applied(self):
        return [line["body"] for line in self.history.upstream.applied()]

    def test_advance_on_a_full_disk_is_unavailable_and_sends_nothing(self):
        server = self.serve(self.history)
        self.assertEqual(self.write(server, 34).status, 201)
        self.fill()
        for _ in range(5):
            for method in ("PUT", "GET", "DELETE"):
                answer = self.write(server, 35, method=method)
                self.assertEqual((answer.status, answer.headers["fencing-verdict"]), (503, "unavailable"))
                self.assertIn("retry-after", answer.headers)
                self.assertIn(FULL, answer.json["detail"])
        self.assertEqual(server.lease("r/1").status, 503)
        self.assertEqual(server.call("GET", "/v1/fences/r/0").json["token"], "34")
        self.assertEqual(len(self.history.upstream.seen()), 1)
        # What needs no record goes on.
        self.assertEqual(self.write(server, 34).status, 204)
        self.assertEqual(self.write(server, 33).status, 412)
        self.assertEqual(self.write(server, 34, method="GET").status, 200)
        self.assertEqual(server.request("GET", "/r/0").status, 200)
        self.make_room()
        self.assertEqual(self.write(server, 35).status, 204)
        self.assertEqual(self.write(server, 34).status, 412)
        self.assertEqual(server.lease("r/1").status, 201)
        self.assertEqual(self.applied(), ["34 None", "34 None", "35 None"])

    def test_unrecorded_sequence_is_unknown_and_closes_the_resource(self):
        server = self.serve(self.history)
        self.assertEqual(self.write(server, 34, 1).status, 201)
        self.fill()
        answer = self.write(server, 34, 2)
        self.assertEqual((answer.status, answer.headers["fencing-verdict"]), (500, "unknown"))
        self.assertEqual(self.write(server, 34, 2).status, 503)
        self.assertEqual(self.write(server, 34, 3).status, 503)
        self.make_room()
        answer = wait_until(lambda: (found := self.write(server, 34, 2)).status != 503 and found, what="an open lane")
        self.assertEqual((answer.status, answer.headers["fencing-verdict"]), (200, "duplicate"))
        self.assertEqual(self.write(server, 34, 3).status, 204)
        self.assertEqual(self.applied(), ["34 1", "34 2", "34 3"])

    def test_sequence_lost_in_a_kill_is_admitted_after_settling(self):
        server = self.serve(self.history)
        self.assertEqual(self.write(server, 34, 1).status, 201)
        self.fill()
        self.assertEqual(self.write(server, 34, 2).status, 500)
        server.kill()
        self.make_room()
        server = self.serve(self.history)
        self.assertEqual(self.write(server, 34, 2).status, 503)
        wait_until(lambda: self.write(server, 34, 2).status == 204, what="an open lane")
        self.assertEqual(self.write(server, 34, 2).status, 200)
        self.assertEqual(self.write(server, 34, 1).status, 412)
        self.assertEqual(self.applied(), ["34 1", "34 2", "34 2"])  # told as unknown, and asked for again

    def test_killed_on_a_full_disk_it_loses_nothing_durable(self):
        server = self.serve(self.history)
        for token in (34, 35):
            self.assertEqual(self.write(server, token).status, 201 if token == 34 else 204)
        self.fill()
        self.assertEqual(self.write(server, 36).status, 503)
        server.kill()
        self.fill()
        server = self.serve(self.history)  # its log is there already
        self.fill()
        # Before its first write it sets a mark in its state.
        self.assertIn(FULL, self.write(server, 35).json["detail"])
        self.make_room()
        self.assertEqual(self.write(server, 34).status, 412)
        wait_until(lambda: self.write(server, 35).status == 204, what="an open lane")
        self.fill()
        self.assertEqual(server.stop(), 0)
        self.fill()  # again: it has given back the room of its log, and could not take its mark away
        self.start_in_vain()
        self.make_room()
        server = self.serve(self.history)
        self.assertEqual(server.call("GET", "/v1/fences/r/0").json["token"], "35")
        self.assertEqual(self.write(server, 34).status, 412)
        self.assertEqual(self.write(server, 35).status, 503)
        wait_until(lambda: self.write(server, 36).status == 204, what="an open lane")
        self.assertEqual(self.applied(), ["34 None", "35 None", "35 None", "36 None"])

    def test_a_state_for_which_there_is_no_room_is_not_begun(self):
        self.fill()
        self.start_in_vain("--init")
        self.assertEqual(os.listdir(self.history.folder), ["ballast"])
        self.make_room()
        self.assertEqual(self.write(self.serve(self.history), 34).status, 201)


if __name__ == "__main__":
    namespaces.enter("mount", ["mount", "-t", "tmpfs", "none", "/mnt"])
    unittest.main()
