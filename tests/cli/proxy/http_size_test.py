"""Bodies far larger than the memory that they may take, through the whole guard."""

import os
import socket
import unittest
import zlib

import support
import upstream_objects
import upstream_server

MEBIBYTE = 1024 * 1024
BODY_MIB = int(os.environ.get("FENCEGUARD_BODY_MIB", "2048"))
MEMORY_MIB = 64
# A multiple of the pattern's period, so that each piece of a body is like the last.
PIECE_BYTES = upstream_objects.PERIOD * 4096


def pieces(size):
    """A body of that size, piece by piece."""
    piece = memoryview(upstream_objects.pattern(0, PIECE_BYTES - 1))
    for first in range(0, size, PIECE_BYTES):
        yield piece[:size - first]


class HttpSize(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.upstream = upstream_server.Server()
        self.addCleanup(self.upstream.remove)
        self.server = self.serve("--storage", self.upstream.url(), "--init", "--settled")
        self.size = BODY_MIB * MEBIBYTE
        host, _, port = self.server.data.rpartition(":")
        self.link = socket.create_connection((host, int(port)), timeout=support.LIMIT_S)
        self.addCleanup(self.link.close)
        self.answers = self.link.makefile("rb")
        self.addCleanup(self.answers.close)

    def tearDown(self):
        self.assertEqual(self.upstream.anomalies(), [])
        super().tearDown()

    def send_head(self, method, **fields):
        lines = [f"{method} /large HTTP/1.1", "Host: localhost", "Fencing-Token: 34", "Fencing-Holder: h34"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
        self.link.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())

    def receive_head(self):
        """The lines of the next answer's head."""
        lines = []
        while (line := self.answers.readline()) != b"\r\n":
            self.assertTrue(line, "the connection ended within a head")
            lines.append(line.decode().strip())
        return lines

    def expect_small(self):
        """The most memory that the guard ever had, where that could have been as much as the body."""
        if BODY_MIB <= MEMORY_MIB:
            return
        with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as status:
            peak_kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
        print(f"{peak_kib / 1024:.1f} MiB at most for {BODY_MIB} MiB", flush=True)
        self.assertLess(peak_kib, MEMORY_MIB * 1024)

    def test_an_upload_arrives_complete_and_is_never_buffered(self):
        self.send_head("PUT", Content_Length=self.size, Upstream_Do="count")
        crc = 0
        for piece in pieces(self.size):
            self.link.sendall(piece)
            crc = zlib.crc32(piece, crc)
        self.assertIn(" 201 ", self.receive_head()[0])
        applied, = self.upstream.applied()
        self.assertEqual((applied["length"], applied["crc"]), (self.size, crc))
        self.expect_small()

    def test_a_download_arrives_complete_and_is_never_buffered(self):
        self.send_head("GET", Upstream_Do=f"status=200 body={self.size}")
        head = self.receive_head()
        self.assertIn(" 200 ", head[0])
        self.assertIn(f"Content-Length: {self.size}", head)
        buffer = memoryview(bytearray(PIECE_BYTES))
        for expected in pieces(self.size):
            piece = buffer[:len(expected)]
            self.assertEqual(self.answers.readinto(piece), len(piece))
            self.assertTrue(piece == expected, "other bytes than the storage sent")
        # Nothing else comes: the next answer does.
        self.send_head("GET", Upstream_Do="status=404 body=0")
        self.assertIn(" 404 ", self.receive_head()[0])
        self.expect_small()


if __name__ == "__main__":
    unittest.main()
