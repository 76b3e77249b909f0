"""A network that goes down in the middle of a write and comes back: what a guard gave up is never delivered.

Shows: a write whose answer does not come is unknown, its connection is reset before the settle time counts, and nothing
of it arrives once the network is back, also where the guard was killed meanwhile. How: the guard and the storage are in
network namespaces of their own, joined by a link that is taken down. A client that merely closes its connection is
the control: its write arrives late.
"""

import json
import os
import socket
import subprocess
import sys
import time
import unittest

import namespaces
import support
from waiting import wait_until

KIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "kit")
GUARD_IP, STORAGE_IP, STORAGE_MAC = "10.99.0.1", "10.99.0.2", "02:00:00:00:00:02"
SETTLE_S = 5
LARGE = b"x" * 4_000_000  # more than the sockets' buffers hold


def run(*words):
    subprocess.run(words, check=True)


class Storage:
    """The tests' own upstream behind a link."""

    def __init__(self, folder):
        self.log_path = os.path.join(folder, "events")
        self.home = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{self.home.pid}/ns/net") != own, what="a network of its own")
        run("ip", "link", "add", "guard0", "type", "veth", "peer", "name", "store0", "address", STORAGE_MAC, "netns",
            str(self.home.pid))
        run("ip", "address", "add", f"{GUARD_IP}/24", "dev", "guard0")
        run("ip", "link", "set", "guard0", "up")
        # Else the first packets wait in the neighbour queue, up to three seconds, and outlive their socket's reset.
        run("ip", "neighbour", "replace", STORAGE_IP, "lladdr", STORAGE_MAC, "dev", "guard0", "nud", "permanent")
        self.inside("ip", "address", "add", f"{STORAGE_IP}/24", "dev", "store0")
        self.up()
        self.process = subprocess.Popen(
            ["nsenter", "--target", str(self.home.pid), "--net", sys.executable, "-B",
             os.path.join(KIT, "upstream.py"), "--host", STORAGE_IP, "--log", self.log_path],
            stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[1])

    def inside(self, *words):
        run("nsenter", "--target", str(self.home.pid), "--net", *words)

    def up(self):
        self.inside("ip", "link", "set", "store0", "up")

    def down(self):
        self.inside("ip", "link", "set", "store0", "down")

    def tokens(self):
        """Of the writes that took effect, in order."""
        with open(self.log_path, encoding="ascii") as log:
            events = [json.loads(line) for line in log if line.endswith("\n")]
        return [event["token"] for event in events if event["event"] == "applied"]

    def end(self):
        for process in (self.process, self.home):
            process.kill()
            process.wait()
        self.process.stdout.close()
        subprocess.run(["ip", "link", "delete", "guard0"], stderr=subprocess.DEVNULL, check=False)


class Partition(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.storage = Storage(self.folder)
        self.addCleanup(self.storage.end)

    def guard(self, timeout="2s"):
        """With one thread, so that its connection to the storage is used again."""
        return self.serve("--storage", f"http://{STORAGE_IP}:{self.storage.port}", "--state", "sqlite:state.db",
                          "--init", "--settled", "--forward-claim", "--settle", f"{SETTLE_S}s", "--upstream-timeout", timeout,
                          "--threads", "1")

    def write(self, server, token, body=b"x"):
        claim = {"Fencing-Token": str(token), "Fencing-Holder": f"h{token}"}
        return server.request("PUT", "/r", claim, body).status

    def test_what_is_only_closed_arrives_when_the_network_is_back(self):
        link = socket.create_connection((STORAGE_IP, self.storage.port))
        self.storage.down()
        link.sendall(b"PUT /r HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 34\r\nContent-Length: 1\r\n\r\nx")
        link.close()
        self.storage.up()
        wait_until(lambda: self.storage.tokens() == ["34"], what="the late write")

    def test_what_was_told_as_unknown_never_arrives(self):
        server = self.guard()
        self.assertEqual(self.write(server, 33), 201)  # a connection that is kept
        for body in (b"x", LARGE):
            token = 34 if body == b"x" else 36
            self.storage.down()
            self.assertEqual(self.write(server, token, body), 504)
            self.storage.up()
            self.assertEqual(self.write(server, token + 1), 503)
            wait_until(lambda: self.write(server, token + 1) == 204, what="an open lane")
        time.sleep(1)  # for what must not come
        self.assertEqual(self.storage.tokens(), ["33", "35", "37"])

    def test_kernel_gives_up_unacknowledged_data_before_the_guard(self):
        server = self.guard("25s")
        self.assertEqual(self.write(server, 33), 201)
        self.storage.down()
        # The guard's own time-out would be 504, and come when the settle time has passed several times.
        self.assertEqual(self.write(server, 34), 502)
        self.storage.up()
        wait_until(lambda: self.write(server, 35) == 204, what="an open lane")
        time.sleep(1)  # for what must not come
        self.assertEqual(self.storage.tokens(), ["33", "35"])

    def test_what_a_killed_guard_had_sent_never_arrives_either(self):
        server = self.guard("60s")
        self.assertEqual(self.write(server, 33), 201)
        self.storage.down()
        sender = socket.create_connection(server.data.split(":"))
        self.addCleanup(sender.close)
        sender.sendall(b"PUT /r HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 34\r\nFencing-Holder: h34\r\n"
                       b"Content-Length: 1\r\n\r\nx")
        wait_until(lambda: server.call("GET", "/v1/fences/r").json["token"] == "34", what="the raised fence")
        wait_until(lambda: "fenceguard_in_flight 1" in server.call("GET", "/metrics").body.decode(), what="a write")
        time.sleep(0.2)  # its bytes are with the kernel now
        server.kill()
        self.storage.up()
        server = self.guard()
        self.assertEqual(self.write(server, 35), 503)
        wait_until(lambda: self.write(server, 35) == 204, what="an open lane")
        time.sleep(1)  # for what must not come
        self.assertEqual(self.storage.tokens(), ["33", "35"])


if __name__ == "__main__":
    namespaces.enter("net", ["ip", "link", "add", "guard0", "type", "veth", "peer", "name", "store0"])
    run("ip", "link", "set", "lo", "up")
    unittest.main()
