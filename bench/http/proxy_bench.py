#!/usr/bin/python3
"""A guarded reverse proxy against plain ones: `fenceguard serve --storage http://…`, nginx and HAProxy, one thread each,
in front of the same nginx that only reads and answers; 64 keep-alive connections of wrk, every request with a valid
token. The proxies have one processor, wrk and the storage the other. Short rounds alternate; each line holds medians, against the faster of the other two."""

import contextlib
import subprocess
import sys

from web_servers import figures, free_port, guard, load, read_settings, running, wait_for_port, work_folder

CONNECTIONS = 64
NGINX_CONFIG = """
daemon off;
worker_processes 1;
pid {folder}/{name}.pid;
error_log {folder}/{name}-error.log;
events {{ worker_connections 8192; }}
worker_rlimit_nofile 16384;
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
# The body of a PUT is read before the answer: for 'mirror', which throws it away. An answer that comes before is of no known
# request to a guard.
ANSWERS = """server {{ listen 127.0.0.1:{port}; default_type text/plain;
  location / {{
    if ($request_method = GET) {{ return 200 "{body}"; }}
    mirror /read;
    error_page 405 =204 /done;
    root {folder};
  }}
  location = /read {{ internal; return 204; }}
  location = /done {{ internal; return 204; }} }}"""
PASSES_ON = """upstream storage {{ server 127.0.0.1:{upstream}; keepalive 1024; keepalive_requests 1000000000; }}
  server {{ listen 127.0.0.1:{port}{tls};
    location / {{ proxy_pass http://storage; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}"""
HAPROXY_CONFIG = """
global
  nbthread 1
  maxconn 4000
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


TLS = " ssl; ssl_certificate {folder}/tls.pem; ssl_certificate_key {folder}/tls.key"


def nginx(stack, folder, name, http, of="servers"):
    with open(f"{folder}/{name}.conf", "w") as config:
        config.write(NGINX_CONFIG.format(folder=folder, name=name, http=http))
    command = ["nginx", "-e", f"{folder}/{name}-error.log", "-p", folder, "-c", f"{folder}/{name}.conf"]
    return stack.enter_context(running(command, of, stderr=subprocess.DEVNULL))


def start_all(stack, folder, binary):
    """{name: (port, process)} of the three proxies."""
    upstream, nginx_port, haproxy_port = free_port(), free_port(), free_port()
    storage = nginx(stack, folder, "storage", ANSWERS.format(port=upstream, body="x" * 100, folder=folder), "load")
    wait_for_port(upstream, storage)
    plain = nginx(stack, folder, "plain", PASSES_ON.format(port=nginx_port, upstream=upstream, tls=""))
    with open(f"{folder}/haproxy.cfg", "w") as config:
        config.write(HAPROXY_CONFIG.format(port=haproxy_port, upstream=upstream))
    haproxy = stack.enter_context(running(["haproxy", "-db", "-f", f"{folder}/haproxy.cfg"],
                                          stderr=subprocess.DEVNULL))
    ours = guard(stack, folder, binary, "--threads", "1", "--storage", f"http://127.0.0.1:{upstream}", "--state",
                 f"sqlite:{folder}/state.db", "--init", "--settled")
    wait_for_port(nginx_port, plain)
    wait_for_port(haproxy_port, haproxy)
    return {"fenceguard": ours, "nginx": (nginx_port, plain), "HAProxy": (haproxy_port, haproxy)}, upstream


def start_under_tls(stack, folder, binary, upstream):
    """Likewise, of ours and of nginx's, whose clients speak TLS."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                    "2", "-subj", "/CN=localhost", "-keyout", f"{folder}/tls.key", "-out", f"{folder}/tls.pem"],
                   check=True, capture_output=True)
    port = free_port()
    plain = nginx(stack, folder, "plain-tls",
                  PASSES_ON.format(port=port, upstream=upstream, tls=TLS.format(folder=folder)))
    ours = guard(stack, folder, binary, "--threads", "1", "--storage", f"http://127.0.0.1:{upstream}", "--state",
                 f"sqlite:{folder}/state-tls.db", "--init", "--settled", "--tls-certificate", f"{folder}/tls.pem",
                 "--tls-key", f"{folder}/tls.key")
    wait_for_port(port, plain)
    return {"fenceguard": ours, "nginx": (port, plain)}


def put_or_get(port, seconds, method, body_bytes, connections=CONNECTIONS, scheme="http"):
    return load(port, seconds, "proxy.lua", connections, {"METHOD": method, "BYTES": str(body_bytes)}, scheme)


def compare(proxies, rounds, seconds, method, body_bytes, targets, connections=CONNECTIONS, scheme="http"):
    """targets: of processor time, rate and p99, as shares of the faster of the others."""
    sides = {name: figures.Batches(process.pid) for name, (_, process) in proxies.items()}
    for _ in range(rounds):
        for name, (port, _) in proxies.items():
            sides[name].run(lambda: put_or_get(port, seconds, method, body_bytes, connections, scheme))
    ours = sides.pop("fenceguard")
    best = max(sides, key=lambda name: sides[name].rate())
    other = sides[best]
    what = f"guarded {method}" + (f" of {body_bytes} bytes" if method == "PUT" else "") + \
        f", {connections} connections{' under TLS' if scheme == 'https' else ''}, beside {best}"
    figures.tell_rates(what, ours, other, targets[1])
    our_us, other_us = ours.cost()[1], other.cost()[1]
    figures.tell(f"processor time of the proxy, {what}", our_us / other_us, f"{our_us:.1f} us", f"{other_us:.1f} us",
                 targets[0], [a[1] / b[1] for a, b in zip(ours.costs, other.costs)])
    our_p99, other_p99 = ours.other()[0], other.other()[0]
    figures.tell(f"p99, {what}", our_p99 / other_p99, f"{our_p99:.1f} ms", f"{other_p99:.1f} ms", targets[2],
                 [a[0] / b[0] for a, b in zip(ours.others, other.others)])


def main():
    settings = read_settings(__doc__, "shorter rounds, for a look")
    rounds, seconds = (5, 1) if settings.quick else (15, 2)
    with contextlib.ExitStack() as stack:
        folder = work_folder(stack, settings)
        proxies, upstream = start_all(stack, folder, settings.binary)
        put_or_get(proxies["fenceguard"][0], 2, "PUT", 100)  # every resource has its fence
        compare(proxies, rounds, seconds, "PUT", 100, ("<= 1.0", ">= 0.95", "<= 1.1"))
        compare(proxies, rounds, seconds, "GET", 0, ("<= 1.0", ">= 0.95", "<= 1.1"))
        compare(proxies, rounds, seconds, "PUT", 65536, ("<= 1.0", ">= 1.0", "<= 1.1"))
        compare(proxies, rounds, seconds, "PUT", 100, ("<= 1.0", ">= 1.2", "<= 1.1"), 1_000)
        proxies = start_under_tls(stack, folder, settings.binary, upstream)
        put_or_get(proxies["fenceguard"][0], 2, "PUT", 100, scheme="https")
        compare(proxies, rounds, seconds, "PUT", 100, ("<= 1.0", ">= 0.95", "<= 1.1"), scheme="https")


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"proxy_bench: {error}")
