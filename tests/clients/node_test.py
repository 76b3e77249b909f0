"""The Node client as a package: its types, its README, claims in transactions of pg, and how it lives with the event
loop. What the tests need of npm is installed once, in FENCEGUARD_NODE_FOLDER, as node/package-lock.json says."""

import os
import pathlib
import shutil
import subprocess
import unittest

import asleep
import postgres_server
import support
from certificates import Certificates
from readme import CLIENTS, led_to, snippets

HERE = pathlib.Path(__file__).resolve().parent / "node"
PACKAGES = pathlib.Path(os.environ["FENCEGUARD_NODE_FOLDER"])
RUN_MAX_S = 300  # below the time to live of the leases

LEAVES_A_LEASE = """
const lease = await client.acquire('a', {ttl: 600_000});
await lease.write('1');
console.log('over');
"""
BLOCKS_PAST_THE_TERM = """
const lease = await client.acquire('a', {ttl: 300});
Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 600);
console.log(lease.isLost, lease.reason, lease.signal.aborted);
"""
BLOCKS_WHILE_THE_SERVER_RESTARTS = """
import fs from 'node:fs';
const lease = await client.acquire('a', {ttl: 600_000});
await lease.write('1');
console.log('blocked');
fs.readSync(0, Buffer.alloc(1));
console.log(await lease.write('2'));
"""
SLEEPS_PAST_THE_TERM = """
import fs from 'node:fs';
const lease = await client.acquire('a', {ttl: 600_000});
const before = lease.isLost;
fs.writeFileSync('uptime', '4600.00 0.00\\n');
console.log(before, lease.isLost, lease.reason, lease.signal.aborted);
"""
ABORTS = """
import net from 'node:net';
const aborting = new AbortController();
const silent = net.createServer((link) => link.once('data', () => aborting.abort())).listen(0, '127.0.0.1');
await new Promise((resolve) => silent.once('listening', resolve));
const waiting = new Client({control: `http://127.0.0.1:${silent.address().port}`});
const {signal} = aborting;
console.log(await waiting.acquire('a', {wait: 600_000, signal}).catch((error) => error.code));
silent.close();
const lease = await client.acquire('a');
console.log(await lease.write('1', {signal}).catch((error) => error.code), await lease.read());
"""

OVER_TLS = """
import fs from 'node:fs';
const [data, control, authority] = process.argv.slice(2);
const lease = await new Client({data, control}).acquire('a', {ttl: 600_000});
console.log(await lease.write('1').catch((error) => error.code));
const secure = new Client({data, control, tls: {ca: fs.readFileSync(authority)}}).adopt(lease);
console.log(await secure.write('1'), await secure.write('2'));
"""


def install():
    support.install_packages(HERE, PACKAGES)
    ours = PACKAGES / "node_modules" / "fenceguard"
    if not ours.is_symlink():
        ours.symlink_to(CLIENTS / "node")


class NodeClient(support.BinaryTest):
    @classmethod
    def setUpClass(cls):
        install()

    def setUp(self):
        super().setUp()
        os.symlink(PACKAGES / "node_modules", self.path("node_modules"))

    def start_guard(self):
        self.server = self.serve("--storage", "sqlite:guard.db")

    def run_node(self, *arguments, env=None, inside=()):
        done = subprocess.run([*inside, "node", *arguments], cwd=self.folder, env=support.environment(env), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              timeout=RUN_MAX_S)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def program(self, text):
        """A file with a client of the guard in front of the text."""
        place = f"{{data: 'http://{self.server.data}', control: 'http://{self.server.control}'}}"
        head = f"import {{Client}} from 'fenceguard';\nconst client = new Client({place});\n"
        return self.write("program.mjs", head + text)

    def test_the_readme_s_first_program_runs(self):
        self.start_guard()
        self.write("first.mjs", led_to(self.server, snippets("node", "js")[0]))
        for balance in (b"30", b"60"):
            self.assertEqual(self.run_node("first.mjs"), "done\n")
            self.assertEqual(self.server.request("GET", "/accounts/42").body, balance)

    def test_types_and_the_readme_s_await_using(self):
        self.start_guard()
        self.write("using.mts", led_to(self.server, snippets("node", "ts")[0]))
        for name in ("types.ts", "tsconfig.json"):
            shutil.copy(HERE / name, self.folder)
        self.write("package.json", '{"type": "module"}')
        self.assertEqual(self.run_node("node_modules/typescript/bin/tsc", "-p", "."), "")
        self.assertEqual(self.run_node("compiled/using.mjs"), "done\n")
        self.assertEqual(self.server.request("GET", "/accounts/42").body, b"30")

    def test_claims_in_transactions_with_the_readme_s_function(self):
        server = postgres_server.Server()
        self.addCleanup(server.remove)
        database = server.create_database(install=True)
        self.write("deposit.mjs", snippets("node", "js")[1])
        self.write("pg.test.mjs", (HERE / "pg.test.js").read_text())
        guard = self.serve("--control", "127.0.0.1:0", "--storage", server.url(database), listen=False)
        told = self.run_node("--test", "pg.test.mjs", env={
            "FENCEGUARD_POSTGRES_URL": server.url(database), "GUARD_CONTROL": f"http://{guard.control}"})
        self.assertIn("pass 12", told)

    def test_what_node_s_http_makes_of_a_call(self):
        self.write("http.test.mjs", (HERE / "http.test.js").read_text())
        self.assertIn("pass 5", self.run_node("--test", "http.test.mjs"))

    def test_a_lease_does_not_keep_the_process_alive(self):
        self.start_guard()
        self.assertEqual(self.run_node(self.program(LEAVES_A_LEASE)), "over\n")

    def test_lease_is_lost_if_the_loop_was_blocked_past_its_term(self):
        self.start_guard()
        self.assertEqual(self.run_node(self.program(BLOCKS_PAST_THE_TERM)), "true expired true\n")

    def test_a_lease_is_lost_where_the_machine_slept_past_its_term(self):
        """The time that the machine was up, as the system tells it, is an hour later from one line to the next."""
        self.start_guard()
        self.write("uptime", "1000.00 0.00\n")
        inside = asleep.inside(self, self.path("uptime"))
        self.assertEqual(self.run_node(self.program(SLEEPS_PAST_THE_TERM), inside=inside), "false true expired true\n")

    def test_signal_makes_sent_writes_unknown_and_withholds_others(self):
        self.start_guard()
        self.assertEqual(self.run_node(self.program(ABORTS)), "unknown\nunavailable null\n")

    def test_the_data_side_over_tls(self):
        certificates = Certificates(self.folder)
        certificates.sign("guard")
        self.server = self.serve("--storage", "sqlite:guard.db", "--tls-certificate", certificates.file("guard"),
                                 "--tls-key", certificates.key("guard"))
        told = self.run_node(self.program(OVER_TLS), "https://" + self.server.data.replace("127.0.0.1", "localhost"),
                             f"http://{self.server.control}", certificates.file("ca"))
        self.assertEqual(told, "unavailable\nadmitted admitted\n")

    def test_connection_that_ended_in_a_blocked_loop_is_not_used(self):
        """The server restarts while the client cannot see it; the write that comes in the same turn is admitted."""
        self.start_guard()
        client = subprocess.Popen(["node", self.program(BLOCKS_WHILE_THE_SERVER_RESTARTS)], cwd=self.folder, text=True,
                                  env=support.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(support.end_process, client)
        self.assertEqual(client.stdout.readline(), "blocked\n")
        self.server.stop()
        self.serve("--listen", self.server.data, "--control", self.server.control, "--storage", "sqlite:guard.db",
                   listen=False)
        self.assertEqual(client.communicate("\n", timeout=RUN_MAX_S)[0], "admitted\n")


if __name__ == "__main__":
    unittest.main()
