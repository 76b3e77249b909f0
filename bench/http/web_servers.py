"""Web servers as child processes of a benchmark, and what they cost; and how such a benchmark is called."""

import argparse
import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def read_settings(description, quick):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--folder", default=".", help="where files are made; a real disk, not a tmpfs")
    parser.add_argument("--binary", default=f"{HERE}/../../build/release/fenceguard")
    return parser.parse_args()


def work_folder(stack, settings):
    """A new folder, removed with all that is in it when the stack ends."""
    folder = tempfile.mkdtemp(prefix="fenceguard-bench-", dir=os.path.abspath(settings.folder))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


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


def guard(stack, folder, binary, *flags):
    """(port of the data side, process) of a guard on free ports, with its log in the folder."""
    log = stack.enter_context(open(f"{folder}/serve.log", "w"))
    process = stack.enter_context(running(
        [binary, "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", *flags], stdout=subprocess.PIPE,
        stderr=log, text=True))
    return int(re.search(r"data=127\.0\.0\.1:(\d+)", process.stdout.readline())[1]), process


def processor_seconds(pid):
    """Processor time of a process and, for nginx, of its worker."""
    total = 0
    children = open(f"/proc/{pid}/task/{pid}/children").read().split()
    for one in [str(pid)] + children:
        fields = open(f"/proc/{one}/stat").read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")
