"""The commands of pages, run as they stand, with real servers: the steps of a page in one shell, and what each prints
compared with what the page says, in which … stands for anything. A step is a block of ```sh, of ```sql for psql, of ```redis
for redis-cli, each perhaps with a block of ```text behind it, or a ```console, which has both. Hosts, ports and other names
of a page are exchanged for those of the test."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import unittest

import etcd_server
import postgres_server
import redis_server
import support
import upstream_server
import zookeeper_server
from server_process import free_ports

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = re.compile(r"^(?:\$|(mydb)=\*?>) ")
MARK = "--end of a block--"
# A page's serve stays in the foreground; here it has answered, and the next one takes its place.
SERVE = """serving=
fenceguard() {
  [ "$1" = serve ] || { command fenceguard "$@"; return; }
  [ -z "$serving" ] || { kill "$serving"; wait "$serving" || true; }
  command fenceguard "$@" >serve.out 2>serve.log & serving=$!
  until grep -q ^listening serve.out; do kill -0 "$serving" || { cat serve.log >&2; return 1; }; sleep 0.05; done
  cat serve.out
}
"""
NIGHTLY = "printf '#!/bin/sh\\ntest \"$FENCING_TOKEN\" -gt 0\\n' | tee nightly.sh >report; chmod +x nightly.sh report\n"


def psql(text):
    return f"psql -qX -P footer=off -v SHOW_CONTEXT=never mydb 2>&1 <<'END'\n{text}END\n"


def step(language, text):
    """(commands, what they print or None) of a block, or nothing where it is no step."""
    if language == "sh":
        return text, None
    if language == "sql":
        return psql("\\set ON_ERROR_STOP on\n" + text), None
    if language == "redis":
        words = " ".join(shlex.quote(word) for word in text.split())
        return f"redis-cli -e -p $REDIS_PORT {words}\n", "OK\n"
    if language != "console":
        return None
    lines = text.splitlines(keepends=True)
    commands = "".join(PROMPT.sub("", line) for line in lines if PROMPT.match(line))
    printed = "".join(line for line in lines if not PROMPT.match(line) and line.strip())
    return psql(commands) if PROMPT.match(lines[0])[1] else commands, printed


def steps(page):
    """Of the text of a page."""
    found = BLOCK.findall(page)
    for (language, text), following in zip(found, [*found[1:], None]):
        one = step(language, text)
        if one:
            yield one[0], following[1] if following and following[0] == "text" else one[1]


def pattern(text):
    return ".*".join(map(re.escape, text.split("…"))) + "$"


def without_blank_ends(text):
    return "".join(line.rstrip() + "\n" for line in text.splitlines() if line.strip())


class Pages(support.BinaryTest):
    def run_page(self, page, environment=None, servers=None, names=None, before=""):
        """servers: the ports of those that run, by the ports that the page names. names: what stands for what in it."""
        text = (ROOT / page).read_text(encoding="utf-8")
        for old, new in (names or {}).items():
            self.assertIn(old, text)
            text = text.replace(old, new)
        ports = {**dict(zip(("7420", "7421"), map(str, free_ports(2)))), **(servers or {})}
        for old, new in ports.items():
            text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        found = list(steps(text))
        self.assertTrue(found)
        script = "".join(f"{commands}echo '{MARK}'\n" for commands, _ in found)
        variables = support.environment({"PATH": f"{os.path.dirname(support.BINARY)}:{os.environ['PATH']}",
                                         "FENCEGUARD_LISTEN": f"127.0.0.1:{ports['7420']}",
                                         "FENCEGUARD_CONTROL": f"127.0.0.1:{ports['7421']}", **(environment or {})})
        self.write("page.sh", before + script + "kill $(jobs -p) 2>/dev/null || true\n")
        with open(self.path("out"), "w") as out, open(self.path("errors"), "w") as errors:
            shell = subprocess.Popen(["bash", "-eu", "-o", "pipefail", "page.sh"], cwd=self.folder, env=variables,
                                     stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True)
        self.addCleanup(self.end_group, shell.pid)
        try:
            shell.wait(2 * support.LIMIT_S)
        except subprocess.TimeoutExpired:
            self.end_group(shell.pid)
            shell.wait()
        out, errors = (pathlib.Path(self.path(name)).read_text(encoding="utf-8") for name in ("out", "errors"))
        printed = out.split(MARK + "\n")
        self.assertEqual((shell.returncode, len(printed)), (0, len(found) + 1), out + errors)
        for (commands, expected), said in zip(found, printed):
            if expected:
                self.assertRegex(without_blank_ends(said), re.compile(pattern(without_blank_ends(expected)), re.DOTALL),
                                 f"after:\n{commands}")

    @staticmethod
    def end_group(pid):
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def start(self, module, **options):
        server = module.Server(**options)
        self.addCleanup(server.remove)
        return server

    def start_postgres(self):
        """A server with a database mydb, and what leads psql there."""
        server = self.start(postgres_server)
        server.create_database("mydb")
        return server, {"PGHOST": server.folder, "PGPORT": str(server.port), "PGUSER": "postgres"}

    def start_with_accounts(self):
        server, environment = self.start_postgres()
        server.psql("create table accounts (id int primary key, balance int); insert into accounts values (42, 100)", "mydb")
        return server, environment

    def test_the_readme(self):
        postgres, environment = self.start_with_accounts()
        storage = self.start(upstream_server)
        before = (f"{SERVE}{NIGHTLY}mkdir scripts; printf '#!/bin/sh\nexec fenceguard \"$@\"\n' >scripts/run.sh; "
                  f"chmod +x scripts/run.sh; ln -s {ROOT}/examples examples; fenceguard serve --init >started\n"
                  'export DATA="http://$FENCEGUARD_LISTEN" CONTROL="http://$FENCEGUARD_CONTROL"\n')
        self.run_page("README.md", environment, {"8080": str(storage.port)}, {"e1,e2,e3": self.start_etcd()}, before)

    def start_etcd(self):
        return f"127.0.0.1:{self.start(etcd_server).port}"

    def start_redis(self):
        """The port of one whose counters survive it."""
        return str(self.start(redis_server, options={"appendonly": "yes", "appendfsync": "always"}).port)

    def test_the_api_by_hand(self):
        self.run_page("docs/api.md")

    def test_a_token_of_another_lock(self):
        self.run_page("docs/instead-of.md", self.start_postgres()[1])

    def test_signed_claims(self):
        key = "00112233445566778899aabbccddeeff" * 2
        self.run_page("docs/signed-claims.md", {"FENCEGUARD_INIT": "1"}, names={"KEY_IN_HEX": key}, before=SERVE)

    def test_the_control_side(self):
        self.run_page("docs/control-side.md", names={"0.0.0.0:7422": f"0.0.0.0:{free_ports(1)[0]}"}, before=SERVE)

    def test_http(self):
        storage, shown = self.start(upstream_server), self.start(upstream_server)
        self.run_page("docs/http.md", servers={"8080": str(storage.port)}, before=SERVE,
                      names={"/var/lib/fenceguard": self.path("state"), "HOST:PORT": f"127.0.0.1:{shown.port}"})

    def test_postgres(self):
        self.run_page("docs/postgres.md", self.start_with_accounts()[1])

    def test_postgres_in_operation(self):
        server, environment = self.start_postgres()
        server.psql("create role app login", "mydb")
        self.run_page("docs/postgres/operations.md", environment, before=SERVE + NIGHTLY,
                      names={"DATABASE": "mydb", "@db/app": f"@127.0.0.1:{server.port}/mydb"})

    def test_postgres_by_version(self):
        server, environment = self.start_postgres()
        server.psql("create table account (id int primary key, balance int)", "mydb")
        self.run_page("docs/postgres/library.md", environment)

    def test_redis(self):
        port = self.start_redis()
        self.run_page("docs/redis.md", {"REDIS_PORT": port}, {"6379": port}, {"redis://cache/0": f"redis://127.0.0.1:{port}/0"},
                      SERVE + NIGHTLY)

    def test_redis_as_a_source(self):
        port = self.start_redis()
        nodes = ",".join(f"127.0.0.1:{self.start_redis()}" for _ in range(5))
        self.run_page("docs/redis-source.md", {"REDIS_PORT": port}, names={"h1,h2,h3,h4,h5": nodes})
        self.expect(0, "exec", "--source", f"redis://app:PASSWORD@127.0.0.1:{port}/0?fair=1", "--resource", "r", "--", "true")

    def run_consensus_page(self, page, names, behind):
        """A page with a lock, guarded data, and a restore, which a PostgreSQL with fences has not been part of."""
        postgres = self.start(postgres_server)
        postgres.create_database("app", install=True)
        postgres.psql(f"select fenceguard.advance('a', {behind}, 'h')", "app")
        self.run_page(page, names={**names, "guard@db": f"postgres@127.0.0.1:{postgres.port}", "--token N": f"--token {behind}"},
                      before=NIGHTLY)

    def test_etcd(self):
        self.run_consensus_page("docs/etcd.md", {"e1,e2,e3": self.start_etcd()}, 1000)

    def test_zookeeper(self):
        server = self.start(zookeeper_server)
        self.run_consensus_page("docs/zookeeper.md", {"zk1,zk2,zk3": f"127.0.0.1:{server.port}"}, 1000)

    def test_the_doors(self):
        postgres, environment = self.start_postgres()
        servers = {"5432": postgres, "6379": self.start(redis_server), "2181": self.start(zookeeper_server),
                   "2379": self.start(etcd_server), "8080": self.start(upstream_server)}
        self.run_page("docs/index.md", environment, {port: str(server.port) for port, server in servers.items()})


if __name__ == "__main__":
    unittest.main()
