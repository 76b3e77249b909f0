#!/usr/bin/python3
"""The sidecar in front of PostgreSQL beside PgBouncer (session mode), one thread each, the same server, by pgbench over
TCP: SELECT and UPDATE of one row of 10,000, simple and prepared, 8 clients. Short rounds alternate; each line holds
medians. And what one client waits for more than without a proxy, and the memory of an idle session.

PostgreSQL has one processor; the proxies and pgbench the other. With FENCEGUARD_POSTGRES_FAST, as for postgres_bench.py,
the lines under a claim are measured once more in a database with the extension in C: their names end in 'in C'."""

import contextlib
import glob
import os
import re
import socket
import statistics
import struct
import subprocess
import sys
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.join(HERE, "..", "..", "tests")
sys.path[:0] = [os.path.join(HERE, "..", "http"), os.path.join(TESTS, "kit"), os.path.join(TESTS, "postgres", "fault")]
import pgbouncer_test  # noqa: E402
import postgres_server  # noqa: E402
from web_servers import figures, guard, read_settings, work_folder  # noqa: E402

SESSION_MODE = pgbouncer_test.CONFIGURATION.replace("pool_mode = transaction", "pool_mode = session") \
    .replace("default_pool_size = 1", "default_pool_size = 100")
TABLES = """
create table account(id integer primary key, balance bigint not null) with (fillfactor = 50);
insert into account select g, 100 from generate_series(1, 10000) g;
select fenceguard.advance('accounts', 1, 'h');
vacuum (analyze) account;
"""
# In a database of its own: from the first protected table on each admission leaves a note.
PROTECTED = TABLES + """
alter table account add resource text not null default 'accounts';
select fenceguard.protect('account', 'resource');
"""
ID = "\\set id random(1, 10000)\n"
SCRIPTS = {
    "SELECT": ID + "select balance from account where id = :id;\n",
    "UPDATE": ID + "update account set balance = balance + 1 where id = :id;\n",
    "admitted UPDATE": ID + "update account set balance = balance + 1 where id = :id and fenceguard.admitted('accounts', 1, 'h');\n",
}
CLAIM = postgres_server.session_claims_option('[{"resource":"accounts","token":"1","holder":"h"}]')
IDLE = 1_000


class Side:
    """What pgbench speaks to. process: the proxy's, or PostgreSQL's own where there is none."""

    def __init__(self, port, database, pid, claim=False):
        self.port, self.pid = port, pid
        words = {"host": "127.0.0.1", "port": port, "user": "postgres"}
        if claim:
            words["options"] = CLAIM
        self.address = f"postgres:///{database}?" + urllib.parse.urlencode(words, quote_via=urllib.parse.quote)


class Bench:
    def __init__(self, stack, settings):
        self.seconds, self.rounds = (1, 3) if settings.quick else (2, 9)
        self.folder = work_folder(stack, settings)
        self.program = postgres_server.program("pgbench")
        self.server = stack.enter_context(postgres_server.Server({"max_connections": 1100}))
        figures.pin_servers(self.server.pid)
        bouncer = pgbouncer_test.PgBouncer(self.server, SESSION_MODE)
        stack.callback(bouncer.remove)
        os.sched_setaffinity(bouncer.process.pid, figures.processors("load"))
        self.sides = {}
        for form in (["", ", in C"] if postgres_server.FAST else [""]):
            database, protected = self.server.create_database(), self.server.create_database()
            for one, tables in ((database, TABLES), (protected, PROTECTED)):
                self.server.install(one, plain=not form)
                self.server.psql(tables, one)
            port, process = guard(stack, self.folder, settings.binary, "--threads", "1", "--unfenced", "allow",
                                  "--storage", self.server.url(database))
            os.sched_setaffinity(process.pid, figures.processors("load"))
            for task in os.listdir(f"/proc/{process.pid}/task"):
                os.sched_setaffinity(int(task), figures.processors("load"))
            self.sides["PgBouncer" + form] = Side(bouncer.port, database, bouncer.process.pid)
            self.sides["protected" + form] = Side(bouncer.port, protected, bouncer.process.pid)
            self.sides["PostgreSQL" + form] = Side(self.server.port, database, self.server.pid)
            self.sides["allow" + form] = Side(port, database, process.pid)
            self.sides["claim" + form] = Side(port, database, process.pid, claim=True)

    def command(self, side, script, mode, *more):
        path = os.path.join(self.folder, script.replace(" ", "-") + ".sql")
        with open(path, "w", encoding="ascii") as file:
            file.write(SCRIPTS[script])
        return figures.pinned([self.program, "-n", "-M", mode, "-j", "1", "-f", path, *more, side.address], "load")

    def load(self, side, script, mode):
        """(transactions a second, how many)"""
        output = subprocess.run(self.command(side, script, mode, "-c", "8", "-T", str(self.seconds)), check=True,
                                capture_output=True, text=True).stdout
        if "number of failed transactions: 0" not in output:
            raise RuntimeError(output)
        return (float(re.search(r"tps = ([\d.]+)", output)[1]), int(re.search(r"actually processed: (\d+)", output)[1]))

    def compare(self, title, script, ours, other, target, other_script=None):
        for mode in ("simple", "prepared"):
            pairs = [(self.sides[ours], script), (self.sides[other], other_script or script)]
            batches = [figures.Batches(side.pid) for side, _ in pairs]
            for side, text in pairs:
                self.load(side, text, mode)
            for _ in range(self.rounds):
                for batch, (side, text) in zip(batches, pairs):
                    batch.run(lambda side=side, text=text: self.load(side, text, mode))
            figures.tell_rates(f"{title}, {mode}", *batches, target)

    def median_us(self, side, script):
        """Of one client's transactions, prepared."""
        prefix = os.path.join(self.folder, "latency")
        subprocess.run(self.command(side, script, "prepared", "-c", "1", "-T", str(self.seconds), "-l", "--log-prefix", prefix),
                       check=True, capture_output=True)
        waits = []
        for path in glob.glob(prefix + ".*"):
            with open(path, encoding="ascii") as lines:
                waits += [int(line.split()[2]) for line in lines]
            os.remove(path)
        return statistics.median(waits)

    def added(self):
        names = ["PostgreSQL", "PgBouncer", "allow"]
        waits = {name: [] for name in names}
        for _ in range(self.rounds):
            for name in names:
                waits[name].append(self.median_us(self.sides[name], "SELECT"))
        direct, other, ours = (statistics.median(waits[name]) for name in names)
        figures.tell("us that a SELECT of one client takes longer than without a proxy, at the median, beside PgBouncer",
                     f"{ours - direct:.0f}", f"{ours - direct:.0f} us", f"{other - direct:.0f} us", "< 60")

    def idle_memory(self):
        """Of sessions that were let in and are silent; PostgreSQL has a process for each."""
        side = self.sides["allow"]
        database = side.address.partition("///")[2].partition("?")[0]
        words = f"user\0postgres\0database\0{database}\0\0".encode()
        startup = struct.pack("!ii", 8 + len(words), 196608) + words

        def open_one():
            link = socket.create_connection(("127.0.0.1", side.port))
            link.sendall(startup)
            got = b""
            while not got.endswith(b"Z\0\0\0\5I"):
                more = link.recv(4096)
                if not more:
                    raise RuntimeError(f"a session was not let in: {got!r}")
                got += more
            return link

        def resident_kib():
            with open(f"/proc/{side.pid}/status", encoding="ascii") as status:
                return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])

        count = min(IDLE, int(self.server.psql("show max_connections")) - 20)
        warm = [open_one() for _ in range(count // 10)]
        before = resident_kib()
        links = [open_one() for _ in range(count - len(warm))]
        each = (resident_kib() - before) / len(links)
        for link in warm + links:
            link.close()
        figures.tell(f"memory of an idle session, {len(links):,} of them", f"{each:.1f} KiB", f"{each:.1f} KiB", "none",
                     "<= 16 KiB")


def main():
    settings = read_settings(__doc__, "shorter rounds, for a look")
    with contextlib.ExitStack() as stack:
        bench = Bench(stack, settings)
        bench.compare("SELECT, --unfenced allow, over PgBouncer", "SELECT", "allow", "PgBouncer", ">= 1.0")
        bench.compare("UPDATE, --unfenced allow, over PgBouncer", "UPDATE", "allow", "PgBouncer", ">= 1.0")
        for form in (["", ", in C"] if postgres_server.FAST else [""]):
            claim, bouncer = "claim" + form, "PgBouncer" + form
            bench.compare("UPDATE under a claim over PgBouncer's without a fence" + form, "UPDATE", claim, bouncer, ">= 0.6")
            bench.compare("UPDATE under a claim over a protected table's through PgBouncer" + form, "UPDATE", claim,
                          "protected" + form, "> 1.0", "admitted UPDATE")
            bench.compare("SELECT under a claim over PgBouncer's" + form, "SELECT", claim, bouncer, "none")
        bench.compare("UPDATE, --unfenced allow, over PostgreSQL itself", "UPDATE", "allow", "PostgreSQL", "none")
        bench.added()
        bench.idle_memory()


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"postgres_sidecar_bench: {error}")
