#!/usr/bin/python3
"""A guarded reverse proxy against plain ones: `fenceguard serve --storage http://…`, nginx and HAProxy, one thread each,
in front of the same nginx that only answers; 64 keep-alive connections of wrk, every request with a valid token. Rounds
alternate; each line printed holds medians, against the faster of the other two."""

import contextlib
import os
import re
import statistics
import subprocess
import sys

from web_servers import HERE, free_port, guard, processor_seconds, read_settings, running, wait_for_port, work_folder

CONNECTIONS = 64
NGINX_CONFIG = """
daemon off;
worker_processes 1;
pid {folder}/{name}.pid;
error_log {folder}/{name}-error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_max_body_size 0;
  client_body_buffer_size 128k;
  client_body_temp_path {folder}/{name}-body;
  proxy_temp_path {folder}/{name}-proxy;
  fastcgi_temp_path {folder}/{name}-fastcgi;
  uwsgi_temp_path {folder}/{name}-uwsgi;
  scgi_temp_path {folder}/{name}-scgi;
  {http}
}}
"""
ANSWERS = """server {{ listen 127.0.0.1:{port}; default_type text/plain;
  location / {{ if ($request_method = PUT) {{ return 204; }} return 200 "{body}"; }} }}"""
PASSES_ON = """upstream storage {{ server 127.0.0.1:{upstream}; keepalive 128; keepalive_requests 1000000000; }}
  server {{ listen 127.0.0.1:{port};
    location / {{ proxy_pass http://storage; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}"""
HAPROXY_CONFIG = """
global
  nbthread 1
  maxconn 2000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option http-keep-alive
  http-reuse always
frontend clients
  bind 127.0.0.1:{port}
  default_backend storage
backend storage
  server one 127.0.0.1:{upstream}
"""


def nginx(stack, folder, name, http):
    with open(f"{folder}/{name}.conf", "w") as config:
        config.write(NGINX_CONFIG.format(folder=folder, name=name, http=http))
    command = ["nginx", "-e", f"{folder}/{name}-error.log", "-p", folder, "-c", f"{folder}/{name}.conf"]
    return stack.enter_context(running(command, stderr=subprocess.DEVNULL))


def start_all(stack, folder, binary):
    """{name: (port, process)} of the three proxies."""
    upstream, nginx_port, haproxy_port = free_port(), free_port(), free_port()
    storage = nginx(stack, folder, "storage", ANSWERS.format(port=upstream, body="x" * 100))
    wait_for_port(upstream, storage)
    plain = nginx(stack, folder, "plain", PASSES_ON.format(port=nginx_port, upstream=upstream))
    with open(f"{folder}/haproxy.cfg", "w") as config:
        config.write(HAPROXY_CONFIG.format(port=haproxy_port, upstream=upstream))
    haproxy = stack.enter_context(running(["haproxy", "-db", "-f", f"{folder}/haproxy.cfg"],
                                          stderr=subprocess.DEVNULL))
    ours = guard(stack, folder, binary, "--threads", "1", "--storage", f"http://127.0.0.1:{upstream}", "--state",
                 f"sqlite:{folder}/state.db", "--init")
    wait_for_port(nginx_port, plain)
    wait_for_port(haproxy_port, haproxy)
    return {"fenceguard": ours, "nginx": (nginx_port, plain), "HAProxy": (haproxy_port, haproxy)}


def milliseconds(text):
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()
    return float(number) * {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000}[unit]


def load(port, process, seconds, method, body_bytes):
    """(requests per second, p99 in ms, processor microseconds of the proxy per request)"""
    before = processor_seconds(process.pid)
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", f"{HERE}/proxy.lua",
               f"http://127.0.0.1:{port}"]
    environment = {**os.environ, "METHOD": method, "BYTES": str(body_bytes)}
    text = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        raise RuntimeError(f"not every request was answered with 2xx:\n{text}")
    done = int(re.search(r"(\d+) requests in", text)[1])
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])
    p99 = milliseconds(re.search(r"^ +99% +(\S+)", text, re.MULTILINE)[1])
    return rate, p99, (processor_seconds(process.pid) - before) * 1e6 / done


def compare(proxies, rounds, seconds, method, body_bytes, target):
    measured = {name: [] for name in proxies}
    for _ in range(rounds):
        for name, (port, process) in proxies.items():
            measured[name].append(load(port, process, seconds, method, body_bytes))
    medians = {name: [statistics.median(column) for column in zip(*lines)] for name, lines in measured.items()}
    ours = medians.pop("fenceguard")
    best = max(medians, key=lambda name: medians[name][0])
    other = medians[best]
    what = f"guarded {method}" + (f" of {body_bytes} bytes" if method == "PUT" else "")
    rest = "; ".join(f"{name} {rate:.0f}/s, p99 {p99:.1f} ms, {cpu:.1f} us"
                     for name, (rate, p99, cpu) in medians.items())
    print(f"{what} over {CONNECTIONS} connections: {ours[0] / other[0]:.2f} "
          f"(ours {ours[0]:.0f}/s, p99 {ours[1]:.1f} ms, {ours[2]:.1f} us of processor time each, other {rest}), "
          f"target >= {target}", flush=True)
    print(f"p99 of {what}: {ours[1] / other[1]:.2f} (ours {ours[1]:.1f} ms, other {other[1]:.1f} ms {best}), "
          f"target <= 1.2", flush=True)


def main():
    settings = read_settings(__doc__, "shorter rounds, for a look")
    rounds, seconds = (3, 2) if settings.quick else (7, 5)
    with contextlib.ExitStack() as stack:
        proxies = start_all(stack, work_folder(stack, settings), settings.binary)
        load(*proxies["fenceguard"], 2, "PUT", 100)  # every resource has its fence
        compare(proxies, rounds, seconds, "PUT", 100, 1.0)
        compare(proxies, rounds, seconds, "GET", 0, 1.0)
        compare(proxies, rounds, seconds, "PUT", 65536, 0.9)


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"proxy_bench: {error}")
