"""Web servers as child processes of a benchmark, and the load on them; and how such a benchmark is called."""

import argparse
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import figures  # noqa: E402



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
def running(command, of="servers", **options):
    process = subprocess.Popen(figures.pinned(command, of), **options)
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


def milliseconds(text):
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()
    return float(number) * {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000}[unit]


def load(port, seconds, script, connections, variables=None, scheme="http"):
    """(requests a second, how many, p99 in ms) of wrk. Raises RuntimeError if any was not answered with 2xx."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", f"{HERE}/{script}",
               f"{scheme}://127.0.0.1:{port}"]
    text = subprocess.run(figures.pinned(command, "load"), check=True, capture_output=True, text=True,
                          env={**os.environ, **(variables or {})}).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        raise RuntimeError(f"not every request was answered with 2xx:\n{text}")
    return (float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1]), int(re.search(r"(\d+) requests in", text)[1]),
            milliseconds(re.search(r"^ +99% +(\S+)", text, re.MULTILINE)[1]))
