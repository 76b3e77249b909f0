"""What the tests of the sidecar in front of PostgreSQL share: a server, a sidecar in front of one of its databases, and
psql through it."""

import json
import subprocess
import urllib.parse

import psycopg
import postgres_server
import support
from waiting import LIMIT_S


def claims_text(*claims):
    """The setting, as it stands in options: (resource, token, holder) each."""
    text = json.dumps([{"resource": resource, "token": str(token), "holder": holder}
                       for resource, token, holder in claims], separators=(",", ":"))
    return postgres_server.session_claims_option(text)


class SidecarTest(support.BinaryTest):
    """self.database of self.postgres has the schema fenceguard, and a table 'entries (id serial, who text)' that nothing
    protects: what stands in it was let through by the sidecar."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.postgres = postgres_server.Server()
        cls.addClassCleanup(cls.postgres.remove)

    def setUp(self):
        super().setUp()
        self.database = self.postgres.create_database(install=True)
        self.run_directly("create table entries (id serial primary key, who text)")

    def start_sidecar(self, *arguments):
        return self.serve("--storage", self.postgres.url(self.database), "--listen", "127.0.0.1:0", *arguments)

    def run_directly(self, sql):
        """In one session for all, which forgets everything between them: a psql for each costs more than what it asks."""
        return self.postgres.script(sql, self.database)

    def entries(self):
        return self.run_directly("select string_agg(who, ' ' order by id) from entries")

    def conninfo(self, sidecar, *claims, user="postgres"):
        host, _, port = sidecar.data.rpartition(":")
        words = {"host": host, "port": port, "user": user}
        if claims:
            words["options"] = claims_text(*claims)
        return f"postgres:///{self.database}?" + urllib.parse.urlencode(words, quote_via=urllib.parse.quote)

    def lets_in(self, sidecar):
        try:
            psycopg.connect(self.conninfo(sidecar)).close()
            return True
        except psycopg.OperationalError:
            return False

    def psql(self, sidecar, sql, *claims, arguments=(), stops=True, env=None):
        """What psql prints of a script; stops: raises SqlError at the first failure, else answers (stdout, stderr)."""
        done = subprocess.run([postgres_server.program("psql"), "-XqtA", "-v", f"ON_ERROR_STOP={int(stops)}",
                               "-v", "VERBOSITY=verbose", *arguments, self.conninfo(sidecar, *claims)], input=sql,
                              capture_output=True, text=True, env=postgres_server.environment(env), timeout=LIMIT_S,
                              check=False)
        if not stops:
            return done.stdout.rstrip("\n"), done.stderr
        if done.returncode != 0:
            raise postgres_server.SqlError(done.stderr)
        return done.stdout.rstrip("\n")
