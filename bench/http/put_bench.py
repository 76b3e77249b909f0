#!/usr/bin/python3
"""PUT of 100 bytes with a valid token over 64 keep-alive connections against `fenceguard serve`, each durable before
its answer, and the same requests against one nginx worker that only answers 204. Rounds alternate; the line printed
holds the medians."""

import contextlib
import re
import statistics
import subprocess
import sys

from web_servers import HERE, free_port, guard, processor_seconds, read_settings, running, wait_for_port, work_folder

CONNECTIONS = 64
NGINX_CONFIG = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port}; location / {{ return 204; }} }}
}}
"""


def load(port, seconds, pid):
    """(requests per second, processor microseconds of the server per request)"""
    before = processor_seconds(pid)
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", f"{HERE}/put.lua", f"http://127.0.0.1:{port}"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        raise RuntimeError(f"not every PUT was answered with 2xx:\n{text}")
    done = int(re.search(r"(\d+) requests in", text)[1])
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])
    return rate, (processor_seconds(pid) - before) * 1e6 / done


def main():
    settings = read_settings(__doc__, "shorter rounds, for a look")
    rounds, seconds = (3, 2) if settings.quick else (7, 5)

    with contextlib.ExitStack() as stack:
        folder = work_folder(stack, settings)
        our_port, ours = guard(stack, folder, settings.binary, "--storage", f"sqlite:{folder}/bench.db")

        port = free_port()
        with open(f"{folder}/nginx.conf", "w") as config:
            config.write(NGINX_CONFIG.format(folder=folder, port=port))
        nginx = ["nginx", "-e", f"{folder}/nginx-error.log", "-p", folder, "-c", f"{folder}/nginx.conf"]
        other = stack.enter_context(running(nginx, stderr=subprocess.DEVNULL))
        wait_for_port(port, other)

        load(our_port, 2, ours.pid)  # every resource has its fence and its object
        load(port, 1, other.pid)
        our_rounds, other_rounds = [], []
        for _ in range(rounds):
            our_rounds.append(load(our_port, seconds, ours.pid))
            other_rounds.append(load(port, seconds, other.pid))

    our_rate, our_cpu = (statistics.median(column) for column in zip(*our_rounds))
    other_rate, other_cpu = (statistics.median(column) for column in zip(*other_rounds))
    print(f"durable PUT over {CONNECTIONS} connections: {our_rate / other_rate:.2f} "
          f"(ours {our_rate:.0f}/s with {our_cpu:.1f} us of processor time each, "
          f"other {other_rate:.0f}/s with {other_cpu:.1f} us), target >= 0.3")


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"put_bench: {error}")
