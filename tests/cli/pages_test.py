"""The commands and the SQL of pages, run as they stand with real servers: see support.PageTest."""

import json
import subprocess
import unittest

import etcd_server
import postgres_server
import redis_server
import support
import upstream_server
import zookeeper_server
from server_process import PAGE_PORTS, free_ports

# A page's serve stays in the foreground; here it has answered, and the next one takes its place.
SERVE = """serving=
fenceguard() {
  [ "$1" = serve ] || { command fenceguard "$@"; return; }
  [ -z "$serving" ] || { kill "$serving"; wait "$serving" || true; }
  : >serve.out  # not only by what is in the background, which may come later
  command fenceguard "$@" >serve.out 2>serve.log & serving=$!
  until grep -q ^listening serve.out; do kill -0 "$serving" || { cat serve.log >&2; return 1; }; sleep 0.05; done
  cat serve.out
}
"""
NIGHTLY = "printf '#!/bin/sh\\ntest \"$FENCING_TOKEN\" -gt 0\\n' | tee nightly.sh >report; chmod +x nightly.sh report\n"


class Pages(support.PageTest):
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
                  f"chmod +x scripts/run.sh; ln -s {support.ROOT}/examples examples; fenceguard serve --init >started\n"
                  'export DATA="http://$FENCEGUARD_LISTEN" CONTROL="http://$FENCEGUARD_CONTROL"\n')
        self.run_page("README.md", environment, {"8080": str(storage.port)}, names={"e1,e2,e3": self.start_etcd()},
                      before=before)
        # A program that nobody changed wrote it, through the sidecar.
        self.assertEqual(postgres.psql("select balance from accounts where id = 42", "mydb"), "80")

    def start_etcd(self):
        return f"127.0.0.1:{self.start(etcd_server).port}"

    def start_redis(self):
        """The port of one whose counters survive it."""
        return str(self.start(redis_server, options={"appendonly": "yes", "appendfsync": "always"}).port)

    def test_the_api_by_hand(self):
        self.run_page("docs/api.md")

    def test_a_token_of_another_lock(self):
        self.run_page("docs/package/instead-of.md", self.start_postgres()[1])

    def test_signed_claims(self):
        key = "00112233445566778899aabbccddeeff" * 2
        self.run_page("docs/deploy/signed-claims.md", {"FENCEGUARD_INIT": "1"}, names={"KEY_IN_HEX": key}, before=SERVE)

    def test_bearer_tokens(self):
        page = (support.ROOT / "docs/control-side.md").read_text(encoding="utf-8")
        [(_, tokens, _), *_] = support.blocks(page, "Bearer tokens", ("",))
        server = self.serve("--init", "--control-token-file", self.write_private("tokens", tokens))
        for token, status in (("3f9c1b7e0a5d42c8a6b1", 403), ("8d2e64f1c07b4b9c95aa", 200), ("3f9c1b7e0a5d42c8a6b2", 401)):
            answer = server.call("POST", "/v1/fences/compact", {"Authorization": f"Bearer {token}"}, {})
            self.assertEqual(answer.status, status, answer)

    def test_the_control_side(self):
        self.run_page("docs/control-side.md", names={"0.0.0.0:7422": f"0.0.0.0:{free_ports(1, PAGE_PORTS)[0]}"},
                      before=SERVE + "fenceguard serve --init\n")

    def test_http(self):
        storage, shown = self.start(upstream_server), self.start(upstream_server)
        self.run_page("docs/http.md", servers={"8080": str(storage.port)}, before=SERVE,
                      names={"/var/lib/fenceguard": self.path("state"), "HOST:PORT": f"127.0.0.1:{shown.port}"})

    def test_postgres(self):
        self.run_page("docs/postgres.md", self.start_with_accounts()[1])

    def test_postgres_sidecar(self):
        server = self.start(postgres_server)
        server.create_database("mydb", install=True)
        self.run_page("docs/postgres-sidecar.md", before=SERVE, environment_of_page={
            "PGHOST": server.folder, "PGPORT": str(server.port), "PGUSER": "postgres"})

    def test_postgres_in_operation(self):
        server, environment = self.start_postgres()
        server.psql("create role app login", "mydb")
        self.run_page("docs/postgres/operations.md", environment, before="unset FENCEGUARD_LISTEN\n" + SERVE + NIGHTLY,
                      names={"DATABASE": "mydb", "@db/app": f"@127.0.0.1:{server.port}/mydb"})

    def test_postgres_by_version(self):
        server, environment = self.start_postgres()
        server.psql("create table account (id int primary key, balance int)", "mydb")
        self.run_page("docs/postgres/library.md", environment)

    def test_redis(self):
        port = self.start_redis()
        self.run_page("docs/redis.md", {"REDIS_PORT": port}, {"6379": port}, before=SERVE + NIGHTLY,
                      names={"redis://cache/0": f"redis://127.0.0.1:{port}/0"})

    def test_the_sidecar_of_redis(self):
        port = self.start_redis()
        self.run_page("docs/redis-sidecar.md", {"REDIS_PORT": port}, {"6379": port}, before=SERVE)
        url = f"redis://127.0.0.1:{port}/0"
        leased = self.expect(0, "lease", "acquire", "--source", url, "--resource", "accounts/44", "--holder", "c", "--json")
        said = (f"FENCE accounts/44 {json.loads(leased.stdout)['token']} c\nSET {{accounts/44}}:a 1\nMULTI\n"
                "SET {accounts/44}:a 2\nEXEC\nGET {accounts/44}:a\nDEL {accounts/44}:a\n")
        # As the user of the page, who may do all of this but the last.
        guard = self.serve("--storage", f"redis://app:PASSWORD@127.0.0.1:{port}/0")
        done = subprocess.run(["redis-cli", "-u", f"redis://{guard.data}"], input=said, text=True, capture_output=True,
                              check=True, timeout=support.LIMIT_S)
        self.assertEqual(done.stdout.splitlines()[:6], ["OK", "OK", "OK", "QUEUED", "OK", "2"])
        self.assertTrue(done.stdout.splitlines()[6].startswith("NOPERM "), done.stdout)
        self.assertNotIn("NOPERM", guard.log())

    def test_redis_as_a_source(self):
        port = self.start_redis()
        nodes = ",".join(f"127.0.0.1:{self.start_redis()}" for _ in range(5))
        self.run_page("docs/redis/source.md", {"REDIS_PORT": port}, names={"h1,h2,h3,h4,h5": nodes})
        self.expect(0, "exec", "--source", f"redis://app:PASSWORD@127.0.0.1:{port}/0?fair=1", "--resource", "r", "--", "true")

    def run_consensus_page(self, page, names, behind):
        """A page with a lock, guarded data, and a restore, which a PostgreSQL with fences has not been part of."""
        postgres = self.start(postgres_server)
        postgres.create_database("app", install=True)
        postgres.psql(f"select fenceguard.advance('a', {behind}, 'h')", "app")
        database = f"postgres@127.0.0.1:{postgres.port}"
        self.run_page(page, names={**names, "guard@db": database, "--token N": f"--token {behind}"}, before=NIGHTLY)

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
