#!/usr/bin/python3
"""Memory of `fenceguard serve --storage http://…` in front of an nginx that only answers: while ever new resources are
written to, each of them once, and with 10,000 idle connections, in the clear and over TLS, each of which has made a
request. Memory is the resident set of the guard; what the kernel holds for a socket is not in it."""

import contextlib
import os
import re
import resource
import socket
import ssl
import subprocess
import sys
import tempfile

from proxy_bench import ANSWERS, nginx
from web_servers import HERE, figures, free_port, guard, read_settings, wait_for_port, work_folder

CACHE = 100_000
CONNECTIONS = 256
IDLE = 10_000
REQUEST = b"GET /objects/1 HTTP/1.1\r\nHost: localhost\r\n\r\n"


def resident_kib(process):
    with open(f"/proc/{process.pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])


class Bench:
    def __init__(self, stack, folder, binary):
        self._stack = stack
        self.folder = folder
        self._binary = binary
        self._upstream = free_port()
        storage = nginx(stack, folder, "storage", ANSWERS.format(port=self._upstream, body="x" * 100, folder=folder), "load")
        wait_for_port(self._upstream, storage)

    def guard(self, stack, *more):
        """(port, process) of a new one with a new state."""
        state = tempfile.mkdtemp(dir=self.folder)
        return guard(stack, state, self._binary, "--cache", str(CACHE), "--idle-timeout", "10m", "--storage",
                     f"http://127.0.0.1:{self._upstream}", "--state", f"sqlite:{state}/state.db", "--init", "--settled",
                     *more)

    def certificate(self):
        """The flags of a guard that has a certificate of its own making."""
        files = ["-keyout", f"{self.folder}/key.pem", "-out", f"{self.folder}/certificate.pem"]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "2", "-subj", "/CN=localhost", *files], check=True, capture_output=True)
        return ["--tls-certificate", f"{self.folder}/certificate.pem", "--tls-key", f"{self.folder}/key.pem"]


def touch(port, first, count):
    """Writes to count resources, each once."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", "-d60m", "-s", f"{HERE}/touch.lua", f"http://127.0.0.1:{port}"]
    environment = {**os.environ, "FIRST": str(first), "COUNT": str(count)}
    subprocess.run(figures.pinned(command, "load"), check=True, stdout=subprocess.DEVNULL, env=environment)


def resources(bench, count):
    with contextlib.ExitStack() as stack:
        port, process = bench.guard(stack)
        touch(port, 0, count // 2)
        half_way = resident_kib(process)
        touch(port, count // 2, count - count // 2)
        end = resident_kib(process)
    figures.tell(f"resident memory of the proxy, {count} resources written to once, cache of {CACHE}", end / half_way,
                 f"{end / 1024:.1f} MiB at the end", f"{half_way / 1024:.1f} MiB half-way", "<= 1.05")


def connect(port, tls):
    """A connection that has been answered and stays."""
    link = socket.create_connection(("127.0.0.1", port))
    if tls:
        link = tls.wrap_socket(link, server_hostname="localhost")
    link.sendall(REQUEST)
    answer = b""
    while not answer.endswith(b"x" * 100):
        piece = link.recv(4096)
        if not piece:
            raise RuntimeError("a connection was closed")
        answer += piece
    return link


def idle(bench, name, flags):
    tls = ssl.create_default_context(cafile=flags[1]) if flags else None
    with contextlib.ExitStack() as stack:
        port, process = bench.guard(stack, *flags)
        for _ in range(100):
            connect(port, tls).close()
        none = resident_kib(process)
        for _ in range(IDLE):
            stack.callback(connect(port, tls).close)
        all_of_them = resident_kib(process)
    figures.tell(f"KiB of an idle connection {name}", (all_of_them - none) / IDLE,
                 f"{all_of_them / 1024:.1f} MiB with {IDLE} of them", f"{none / 1024:.1f} MiB with none", "< 20")


def main():
    settings = read_settings(__doc__, "fewer resources, for a look")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as stack:
        bench = Bench(stack, work_folder(stack, settings), settings.binary)
        idle(bench, "in the clear", [])
        idle(bench, "over TLS", bench.certificate())
        resources(bench, 4 * CACHE if settings.quick else 10 * CACHE)


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"proxy_memory: {error}")
