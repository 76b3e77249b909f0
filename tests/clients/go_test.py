"""The Go client as a package: its format, its README, and claims in transactions of database/sql."""

import pathlib
import subprocess
import unittest

import postgres_server
import support
from certificates import Certificates
from readme import CLIENTS, led_to, snippets

HERE = pathlib.Path(__file__).resolve().parent
CLIENT = CLIENTS / "go"
DRIVER = "/usr/share/gocode/src/github.com/lib/pq"  # of Debian's golang-github-lib-pq-dev
MODULE = f"""module fenceguard.test
go 1.19
require (
	github.com/fenceguard/fenceguard/clients/go v0.0.0
	github.com/lib/pq v0.0.0
)
replace github.com/fenceguard/fenceguard/clients/go => {CLIENT}
replace github.com/lib/pq => {DRIVER}
"""
SNIPPET_HEAD = """package sqltest

import (
	"context"
	"database/sql"

	fenceguard "github.com/fenceguard/fenceguard/clients/go"
	"github.com/fenceguard/fenceguard/clients/go/fencesql"
)

"""
POOL = """func guard(ctx context.Context, db *sql.DB, claim fenceguard.Claim) error {
	_, err := fencesql.Admit(ctx, db, claim)
	return err
}
"""


class GoClient(support.BinaryTest):
    def run_go(self, *arguments, folder=None, env=None):
        done = subprocess.run(arguments, cwd=folder or self.folder, env=support.environment(env), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_it_is_formatted_and_vetted(self):
        self.assertEqual(self.run_go("gofmt", "-l", CLIENT, HERE / "go"), "")
        self.run_go("go", "vet", "-race", "./...", folder=CLIENT)

    def test_the_readme_s_first_program_runs(self):
        server = self.serve("--storage", "sqlite:guard.db")
        self.write("go.mod", MODULE)
        self.write("main.go", led_to(server, snippets("go", "go")[0]))
        for balance in (b"30", b"60"):
            self.assertEqual(self.run_go("go", "run", "-race", "."), "done\n")
            self.assertEqual(server.request("GET", "/accounts/42").body, balance)

    def test_contexts_goroutines_and_tls(self):
        certificates = Certificates(self.folder)
        certificates.sign("guard")
        plain = self.serve("--storage", "sqlite:guard.db")
        secure = self.serve("--storage", "sqlite:secure.db", "--tls-certificate", certificates.file("guard"),
                            "--tls-key", certificates.key("guard"))
        self.write("go.mod", MODULE)
        self.write("client_test.go", (HERE / "go" / "client_test.go").read_text())
        self.run_go("go", "test", "-race", "-count=1", ".", env={
            "GUARD_DATA": f"http://{plain.data}", "GUARD_CONTROL": f"http://{plain.control}",
            "GUARD_TLS_DATA": f"https://{secure.data}", "GUARD_TLS_CONTROL": f"http://{secure.control}",
            "GUARD_AUTHORITY": certificates.file("ca")})

    def test_claims_in_transactions_with_the_readme_s_function(self):
        server = postgres_server.Server()
        self.addCleanup(server.remove)
        database = server.create_database(install=True)
        self.write("go.mod", MODULE)
        self.write("deposit.go", SNIPPET_HEAD + snippets("go", "go")[1])
        self.write("fencesql_test.go", (HERE / "go" / "fencesql_test.go").read_text())
        guard = self.serve("--control", "127.0.0.1:0", "--storage", server.url(database), listen=False)
        self.run_go("go", "test", "-race", "-count=1", ".", env={
            "FENCEGUARD_POSTGRES_URL": server.url(database), "GUARD_CONTROL": f"http://{guard.control}"})

    def test_a_pool_is_refused_by_its_type(self):
        self.write("go.mod", MODULE)
        self.write("pool.go", SNIPPET_HEAD + POOL)
        with self.assertRaisesRegex(AssertionError, r"\*sql.DB does not implement fencesql.Transaction"):
            self.run_go("go", "vet", ".")


if __name__ == "__main__":
    unittest.main()
