#!/usr/bin/python3
"""Guarded writes in PostgreSQL against what a service would do without the guard, by pgbench with prepared statements
over a Unix socket: 8 clients, 10,000 rows. The server has one processor, pgbench the other; short rounds of the two
sides of each line alternate.

With FENCEGUARD_POSTGRES_FAST (the programs of a tree in which the extension in C is installed, tests/kit/postgres_tree.py)
lines are measured once more in a second database of the same server, which has the extension: their names end in 'in C'."""

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse

import figures

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "kit"))
import postgres_server  # noqa: E402

ROWS = 10_000
TABLE = """
create table {name}(id integer primary key, balance bigint not null, version bigint not null default 1,
                    token bigint, holder text) with (fillfactor = 50);
insert into {name} select g, 100, 1, 1, 'h' from generate_series(1, {rows}) g;
vacuum (analyze) {name};
"""
BULK = """
create table {name}(id integer primary key, resource text not null, v bigint not null) with (fillfactor = 50);
insert into {name} select g, 'ledger', 0 from generate_series(1, 1000) g;
vacuum (analyze) {name};
"""
FENCES = """
insert into fenceguard.fences(resource, token, holder) select 'accounts/' || g, 1, 'h' from generate_series(1, {rows}) g
on conflict do nothing;
vacuum (analyze) fenceguard.fences;
"""
ID = "\\set id random(1, 10000)\n"
PLAIN = ID + "update account set balance = balance + 1 where id = :id;\n"
SCRIPTS = {
    "plain": PLAIN,
    "admitted": ID + "update account set balance = balance + 1 "
                     "where id = :id and fenceguard.admitted('accounts/' || :id, 1, 'h');\n",
    "try_admit": ID + "with g as materialized (select * from fenceguard.try_admit('accounts/' || :id, 1, 'h')) "
                      "update account set balance = balance + 1 from g where g.verdict = 'admitted' and id = :id;\n",
    "rows": ID + "update account set balance = balance + 1 from (select token, holder from fenceguard.fences "
                 "where resource = 'accounts/' || :id for share) g "
                 "where g.token = 1 and g.holder = 'h' and id = :id;\n",
    "optimistic": ID + "update account t set version = t.version + 1, token = 1, holder = 'h', balance = balance + 1 "
                       "where id = :id and t.version >= 1 and ((t.token = 1 and coalesce(t.holder, '') = 'h') or "
                       "(t.token is null or t.token < 1)) returning t.version::text;\n",
    "optimistic by hand": ID + "update account set balance = balance + 1, version = version + 1 "
                               "where id = :id and version >= 1;\n",
    "by hand": ID + "begin;\nselect token from fenceguard.fences where resource = 'accounts/' || :id for update;\n"
                    "update account set balance = balance + 1 where id = :id;\ncommit;\n",
    "admit": ID + "begin;\nselect fenceguard.admit('accounts/' || :id, 1, 'h');\n"
                  "update account set balance = balance + 1 where id = :id;\ncommit;\n",
    "admit, two messages": ID + "\\startpipeline\nbegin;\nselect fenceguard.admit('accounts/' || :id, 1, 'h');\n"
                                "\\endpipeline\n\\startpipeline\nupdate account set balance = balance + 1 "
                                "where id = :id;\ncommit;\n\\endpipeline\n",
    "confirm": ID + "\\startpipeline\nselect fenceguard.confirm('accounts/' || :id, 1, 'h');\n"
                    "update account set balance = balance + 1 where id = :id;\n\\endpipeline\n",
    "by hand, one pipeline": ID + "\\startpipeline\nbegin;\nselect token from fenceguard.fences "
                                  "where resource = 'accounts/' || :id for update;\n"
                                  "update account set balance = balance + 1 where id = :id;\ncommit;\n\\endpipeline\n",
    "protected": ID + "update protected_account set balance = balance + 1 "
                      "where id = :id and fenceguard.admitted('accounts/' || :id, 1, 'h');\n",
    "bulk": "update bulk set v = v + 1;\n",
    "bulk per row": "update bulk_per_row set v = v + 1 where (select fenceguard.admitted('ledger', 1, 'h'));\n",
    "bulk per statement": "update bulk_per_statement set v = v + 1 where (select fenceguard.admitted('ledger', 1, 'h'));\n",
    "one of bulk": "\\set id random(1, 1000)\nupdate bulk set v = v + 1 where id = :id;\n",
    "one under admitted()": "\\set id random(1, 1000)\nupdate bulk_per_row set v = v + 1 where id = :id "
                            "and fenceguard.admitted('ledger', 1, 'h');\n",
    "one under a session's claim": "\\set id random(1, 1000)\nupdate bulk_per_row set v = v + 1 where id = :id;\n",
    "one resource": ID + "update account set balance = balance + 1 "
                         "where id = :id and fenceguard.admitted('ledger', 1, 'h');\n",
}


SESSION_CLAIM = '-c fenceguard.session_claims=[{"resource":"ledger","token":"1","holder":"h"}]'


class Bench:
    """What is measured in one database. form: what the names of its lines end in."""

    def __init__(self, stack, server, seconds, rounds, plain):
        self.server, self.seconds, self.rounds = server, seconds, rounds
        self.form = "" if plain else ", in C"
        self.folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fenceguard-bench-"))
        self.database = server.create_database()
        server.install(self.database, plain=plain)
        self.program = postgres_server.program("pgbench")
        self.sql(TABLE.format(name="account", rows=ROWS) + TABLE.format(name="protected_account", rows=ROWS)
                 + FENCES.format(rows=ROWS)
                 + "insert into fenceguard.fences(resource, token, holder) values ('ledger', 1, 'h');")

    def sql(self, text):
        return self.server.psql(text, self.database, limit_s=600)

    def command(self, script, clients=8, seconds=None):
        path = os.path.join(self.folder, re.sub(r"\W", "-", script) + ".sql")
        with open(path, "w") as file:
            file.write(SCRIPTS[script])
        address = self.server.conninfo(self.database)
        if "session" in script:
            address += "&options=" + urllib.parse.quote(SESSION_CLAIM)
        return figures.pinned([self.program, "-n", "-M", "prepared", "-c", str(clients), "-j", "2", "-T",
                               str(seconds or self.seconds), "-f", path, address], "load")

    def load(self, script, clients=8):
        """(transactions a second, how many)"""
        output = subprocess.run(self.command(script, clients), capture_output=True, text=True, check=True).stdout
        if "number of failed transactions: 0" not in output and "failed" in output:
            raise RuntimeError(output)
        done = int(re.search(r"transactions actually processed: (\d+)", output)[1])
        if done == 0:  # a busy machine, which gave it no processor for so long
            return self.load(script, clients)
        return float(re.search(r"tps = ([\d.]+)", output)[1]), done

    def protect(self):
        self.sql("select fenceguard.protect('protected_account', $$ 'accounts/' || id $$)")
        for name in ("bulk", "bulk_per_row", "bulk_per_statement"):
            self.sql(BULK.format(name=name))
        self.sql("select fenceguard.protect('bulk_per_row', 'resource'), "
                 "fenceguard.protect('bulk_per_statement', 'resource', per_statement => true)")

    def rate(self, script):
        return self.load(script)[0]

    def compare(self, what, ours, other, target, clients=8):
        self.load(ours, clients)
        sides = [figures.Batches(self.server.pid) for _ in range(2)]
        for _ in range(self.rounds):
            for side, script in zip(sides, (ours, other)):
                side.run(lambda: self.load(script, clients))
        figures.tell_rates(what + self.form, *sides, IN_C.get(what, target) if self.form else target)

    def advance_against_a_stream(self):
        """How long advances take while 16 writers under the present token never leave the fence's lock free."""
        waits = []
        for token in range(2, 2 + max(self.rounds, 5)):
            SCRIPTS["stream"] = SCRIPTS["one resource"].replace("'ledger', 1", f"'ledger', {token - 1}")
            stream = subprocess.Popen(self.command("stream", 16, 30), stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
            time.sleep(1)
            with self.server.session(self.database) as session:
                session.run("select 1")
                began = time.monotonic()
                session.run(f"select fenceguard.advance('ledger', {token}, 'h')")
                waits.append((time.monotonic() - began) * 1000)
            stream.kill()
            stream.wait()
        figures.tell(f"ms of an advance against 16 writers under the present token{self.form}", statistics.median(waits),
                     f"{max(waits):.1f} ms the slowest of {len(waits)}", "none", "< 100")

    def bloat(self, writes):
        def size():
            return int(self.sql("select pg_total_relation_size('fenceguard.fences')"))
        before = size()
        subprocess.run([self.program, "-n", "-M", "prepared", "-c", "8", "-j", "2", "-t", str(writes // 8), "-f",
                        self.command("admitted")[-2], self.server.conninfo(self.database)],
                       capture_output=True, check=True)
        figures.tell(f"size of the fence table over {writes:,} equal-token writes{self.form}", size() / before,
                     f"{size():,} bytes", f"{before:,} before", "<= 1.0")

    def many_fences(self, count):
        small = [self.rate("admitted") for _ in range(self.rounds)]
        self.sql(FENCES.format(rows=count))
        SCRIPTS["admitted among many"] = SCRIPTS["admitted"].replace("'accounts/' || :id", "'accounts/' || :fence") \
            .replace(ID, ID + f"\\set fence random(1, {count})\n")
        large = [self.rate("admitted among many") for _ in range(self.rounds)]
        small += [self.rate("admitted") for _ in range(self.rounds)]
        figures.tell(f"one-statement write among {count:,} fences{self.form}",
                     statistics.median(large) / statistics.median(small), f"{statistics.median(large):,.0f}/s", f"{statistics.median(small):,.0f}/s with {ROWS:,} of them hot",
                     ">= 0.9")


# Over a plain UPDATE, or what a service would do by hand: the line's name, ours, the other, the target.
LINES = [
    ("guarded UPDATE in one statement, admitted(), over a plain UPDATE", "admitted", "plain", ">= 0.7"),
    ("the same by try_admit() in a WITH", "try_admit", "plain", "none"),
    ("not shipped: the same by FOR SHARE on the fence's row", "rows", "plain", "none"),
    ("optimistic UPDATE over a plain UPDATE", "optimistic", "plain", ">= 0.9"),
    ("optimistic UPDATE over a version column by hand", "optimistic", "optimistic by hand", "none"),
    ("pessimistic, one statement, over BEGIN, SELECT FOR UPDATE, UPDATE, COMMIT", "admitted", "by hand", ">= 1.5"),
    ("pessimistic, BEGIN, admit(), UPDATE, COMMIT in four messages, over the same", "admit", "by hand", "none"),
    ("pessimistic, the same in two messages", "admit, two messages", "by hand", ">= 1.5"),
    ("pessimistic, confirm() in a pipeline with the UPDATE, over the same", "confirm", "by hand", ">= 2.0"),
    ("the same over BEGIN, SELECT FOR UPDATE, UPDATE, COMMIT in a pipeline", "confirm", "by hand, one pipeline", "none"),
]
WITHOUT_FUNCTIONS = ("rows", "optimistic")  # of ours: the extension changes nothing
PROTECTED = [
    ("1,000 rows of one resource, protected per statement, over unprotected", "bulk per statement", "bulk", ">= 0.33", 1),
    ("the same protected row by row", "bulk per row", "bulk", "none", 1),
    ("admitted() over a plain UPDATE once a table is protected", "admitted", "plain", "none", 8),
    ("UPDATE of one row of a resource, protected row by row, under admitted(), over unprotected", "one under admitted()",
     "one of bulk", "none", 8),
    ("the same under a session's claim", "one under a session's claim", "one of bulk", "none", 8),
    ("UPDATE of a protected table over a plain one", "protected", "plain", ">= 0.5", 8),
]
WRITERS = "16 writers under one token of one resource over 16 without a guard"
# What the extension is to reach, where that is another target.
IN_C = {LINES[0][0]: ">= 0.92", PROTECTED[-1][0]: ">= 0.85", WRITERS: ">= 0.9"}


def measure(benches, quick):
    """Each line in all databases before the next one."""
    for line in LINES:
        for bench in benches:
            if not bench.form or line[1] not in WITHOUT_FUNCTIONS:
                bench.compare(*line)
    for bench in benches:
        bench.compare(WRITERS, "one resource", "plain", ">= 0.78", clients=16)
    for bench in benches:
        bench.protect()
    for line in PROTECTED:
        for bench in benches:
            bench.compare(*line)
    for bench in benches:
        bench.advance_against_a_stream()
    for bench in benches:
        bench.bloat(100_000 if quick else 1_000_000)
    for bench in benches:
        bench.many_fences(200_000 if quick else 1_000_000)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short rounds")
    parser.add_argument("--folder", help="ignored: the server's folder is a temporary one")
    options = parser.parse_args()
    seconds, rounds = (1, 5) if options.quick else (2, 9)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(postgres_server.Server())
        figures.pin_servers(server.pid)
        forms = [True, False] if postgres_server.FAST else [True]
        measure([Bench(stack, server, seconds, rounds, plain) for plain in forms], options.quick)


if __name__ == "__main__":
    main()
