#!/usr/bin/python3
"""PUT of 100 bytes with a valid token over 64 keep-alive connections against `fenceguard serve`, each durable before
its answer, and the same requests against one nginx worker that only answers 204. Short rounds alternate; the
line holds the medians."""

import contextlib
import subprocess
import sys

from web_servers import figures, free_port, guard, load, read_settings, running, wait_for_port, work_folder

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


def main():
    settings = read_settings(__doc__, "shorter rounds, for a look")
    rounds, seconds = (5, 1) if settings.quick else (15, 2)

    with contextlib.ExitStack() as stack:
        folder = work_folder(stack, settings)
        our_port, ours = guard(stack, folder, settings.binary, "--storage", f"sqlite:{folder}/bench.db")

        port = free_port()
        with open(f"{folder}/nginx.conf", "w") as config:
            config.write(NGINX_CONFIG.format(folder=folder, port=port))
        nginx = ["nginx", "-e", f"{folder}/nginx-error.log", "-p", folder, "-c", f"{folder}/nginx.conf"]
        other = stack.enter_context(running(nginx, stderr=subprocess.DEVNULL))
        wait_for_port(port, other)

        def put(to_port, for_seconds=seconds):
            return load(to_port, for_seconds, "put.lua", CONNECTIONS)

        put(our_port, 2)  # every resource has its fence and its object
        put(port, 1)
        our_batches, other_batches = figures.Batches(ours.pid), figures.Batches(other.pid)
        for _ in range(rounds):
            our_batches.run(lambda: put(our_port))
            other_batches.run(lambda: put(port))
    figures.tell_rates(f"durable PUT over {CONNECTIONS} connections", our_batches, other_batches, ">= 0.5")


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"put_bench: {error}")
