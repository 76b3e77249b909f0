"""Web servers as child processes of a benchmark, and what they cost."""

import contextlib
import os
import socket
import subprocess
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port, process):
    limit = time.monotonic() + 10
    while time.monotonic() < limit:
        if process.poll() is not None:
            raise RuntimeError("a server ended at once")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.01)
    raise RuntimeError("a server does not answer")


@contextlib.contextmanager
def running(command, **options):
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def processor_seconds(pid):
    """Processor time of a process and, for nginx, of its worker."""
    total = 0
    children = open(f"/proc/{pid}/task/{pid}/children").read().split()
    for one in [str(pid)] + children:
        fields = open(f"/proc/{one}/stat").read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")
