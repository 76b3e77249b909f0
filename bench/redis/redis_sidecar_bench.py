#!/usr/bin/python3
"""The sidecar in front of Redis beside twemproxy (nutcracker) and beside Redis itself, one thread each, the same server:
SET of 100 bytes under a claim that each connection says once, and GET, one at a time and in flights of 16, 50
connections. Short rounds alternate; each line holds medians. And what an idle connection takes of the sidecar's memory.

The proxies have one processor, Redis and the load the other."""

import contextlib
import os
import re
import resource
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "http"))
from web_servers import figures, free_port, guard, read_settings, running, wait_for_port, work_folder  # noqa: E402

CONNECTIONS = 50
IDLE = 5_000
VALUE = "x" * 100
TWEMPROXY = """sidecar:
  listen: 127.0.0.1:{port}
  hash: fnv1a_64
  distribution: ketama
  redis: true
  servers:
   - 127.0.0.1:{redis}:1
"""
PING = b"*1\r\n$4\r\nPING\r\n"


def start(stack, folder, binary):
    """({name: (port, process)}, process of Redis)."""
    redis, twemproxy = free_port(), free_port()
    server = stack.enter_context(running(
        ["redis-server", "--port", str(redis), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder],
        "load", stdout=subprocess.DEVNULL))
    wait_for_port(redis, server)
    with open(f"{folder}/twemproxy.yml", "w", encoding="ascii") as config:
        config.write(TWEMPROXY.format(port=twemproxy, redis=redis))
    other = stack.enter_context(running(["nutcracker", "-c", f"{folder}/twemproxy.yml", "-s", str(free_port())],
                                        stderr=subprocess.DEVNULL))
    wait_for_port(twemproxy, other)
    url = f"redis://127.0.0.1:{redis}"
    subprocess.run([binary, "fence", "init", "--storage", url, "--floor", "0"], check=True, stdout=subprocess.DEVNULL)
    ours = guard(stack, folder, binary, "--threads", "1", "--storage", url)
    return {"fenceguard": ours, "twemproxy": (twemproxy, other), "Redis": (redis, server)}, server


def load(program, port, flight, seconds, first, command):
    """(commands a second, how many, median and p99 of a flight in ms). Raises RuntimeError where one was refused."""
    words = [program, str(port), str(CONNECTIONS), str(flight), str(seconds), first, command]
    text = subprocess.run(figures.pinned(words, "load"), check=True, capture_output=True, text=True).stdout
    rate, count, p50, p99, errors = text.split()
    if errors != "0":
        raise RuntimeError(f"{errors} commands were answered with an error")
    return float(rate), int(count), float(p50), float(p99)


def compare(settings, program, servers, redis, what, flight, targets):
    """targets: of the rate beside twemproxy's and Redis's own, by name; empty: none."""
    rounds, seconds = (3, 1) if settings.quick else (11, 2)
    command = f"SET {{bench}}:k {VALUE}" if what == "SET" else "GET {bench}:k"
    sides = {name: figures.Batches(process.pid) for name, (_, process) in servers.items()}
    spent = {name: [] for name in servers}  # of Redis
    for _ in range(rounds):
        for name, (port, _) in servers.items():
            first = "FENCE bench 7 holder" if name == "fenceguard" and what == "SET" else ""
            before = figures.processor_seconds(redis.pid)
            sides[name].run(lambda: load(program, port, flight, seconds, first, command))
            done = sides[name].rates[-1] * seconds
            spent[name].append((figures.processor_seconds(redis.pid) - before) * 1e6 / done)
    ours = sides.pop("fenceguard")
    how = "one at a time" if flight == 1 else f"in flights of {flight}"
    claim = "under a claim" if what == "SET" else "unjudged"
    for name, other in sides.items():
        title = f"{what} {claim} {how}, beside {name}"
        figures.tell_rates(title, ours, other, targets.get(name, "none"))
        our_p99, other_p99 = ours.other()[1], other.other()[1]
        figures.tell(f"p99 of {title}", our_p99 / other_p99, f"{our_p99:.2f} ms", f"{other_p99:.2f} ms", "none")
    other = sides["twemproxy"]
    figures.tell(f"processor time of the proxy, {what} {how}", ours.cost()[1] / other.cost()[1],
                 f"{ours.cost()[1]:.2f} us", f"{other.cost()[1]:.2f} us", "none")
    our_us, other_us = (figures.statistics.median(spent[name]) for name in ("fenceguard", "twemproxy"))
    if other_us > 0:
        figures.tell(f"processor time of Redis, {what} {how}, beside twemproxy", our_us / other_us, f"{our_us:.2f} us",
                     f"{other_us:.2f} us", "none")


def resident_kib(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])


def idle_memory(port, process):
    """Connections that have said something and are silent."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))

    def open_one():
        link = socket.create_connection(("127.0.0.1", port))
        link.sendall(PING)
        if link.recv(64) != b"+PONG\r\n":
            raise RuntimeError("a connection was not served")
        return link

    warm = [open_one() for _ in range(100)]
    before = resident_kib(process)
    links = [open_one() for _ in range(IDLE)]
    each = (resident_kib(process) - before) / IDLE
    for link in warm + links:
        link.close()
    figures.tell(f"memory of an idle connection, {IDLE:,} of them", f"{each:.1f} KiB", f"{each:.1f} KiB", "none", "<= 8 KiB")


def main():
    settings = read_settings(__doc__, "shorter rounds, for a look")
    program = os.path.join(os.path.dirname(os.path.abspath(settings.binary)), "bench", "resp_load")
    with contextlib.ExitStack() as stack:
        folder = work_folder(stack, settings)
        servers, redis = start(stack, folder, settings.binary)
        compare(settings, program, servers, redis, "SET", 1, {"twemproxy": ">= 0.9"})
        compare(settings, program, servers, redis, "SET", 16, {"twemproxy": ">= 0.5"})
        compare(settings, program, servers, redis, "GET", 1, {"twemproxy": ">= 1.0"})
        compare(settings, program, servers, redis, "GET", 16, {"twemproxy": ">= 0.9"})
        idle_memory(*servers["fenceguard"])


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"redis_sidecar_bench: {error}")
