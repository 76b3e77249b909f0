#!/usr/bin/python3
"""Guarded transactions in MariaDB against plain ones, by mariadb-slap over a Unix socket: 8 connections, each with a row and a
fence of its own among 10,000. The server has one processor, mariadb-slap the other; short rounds of the two sides of each
line alternate. The data are in memory where that is roomy, so that a commit's flush costs next to nothing."""

import argparse
import os
import re
import subprocess
import sys

import figures

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "mariadb"))
import mariadb_server  # noqa: E402

ROWS = 10_000
CLIENTS = 8
ROW = f"(1 + connection_id() % {ROWS})"
CLAIM = f"concat('accounts/', {ROW}), '1', 'h'"
UPDATE = f"update account set balance = balance + 1 where id = {ROW}"
SCRIPTS = {
    "plain": ["start transaction", UPDATE, "commit"],
    "library": [f"call start_admitted({CLAIM}, null, null, null)", UPDATE, "call commit_admitted()"],
    "admit": ["start transaction", f"call admit({CLAIM}, null)", UPDATE, "commit"],
    "admit, confirm": ["start transaction", f"call admit({CLAIM}, null)", UPDATE, f"call confirm({CLAIM})", "commit"],
    "protected": ["start transaction", f"call admit({CLAIM}, null)", UPDATE.replace("account", "protected_account"), "commit"],
    "by hand": ["start transaction", f"select token from fences where resource = cast(concat('accounts/', {ROW}) as binary) "
                                     "for update", UPDATE, "commit"],
}
# The line's name, ours, the other, the target.
LINES = [
    ("what Guard::write() sends (start_admitted, UPDATE, commit_admitted), over BEGIN, UPDATE, COMMIT", "library", "plain",
     "none"),
    ("the same over BEGIN, SELECT FOR UPDATE of the fence's row, UPDATE, COMMIT", "library", "by hand", "none"),
    ("BEGIN, admit, UPDATE, COMMIT over BEGIN, UPDATE, COMMIT", "admit", "plain", "none"),
    ("BEGIN, admit, UPDATE, confirm, COMMIT over the same", "admit, confirm", "plain", "none"),
    ("BEGIN, admit, UPDATE of a protected table, COMMIT over the same of a plain one", "protected", "plain", "none"),
]


class Bench:
    def __init__(self, server, seconds, rounds):
        self.server, self.seconds, self.rounds = server, seconds, rounds
        self.database = server.create_database()
        with server.session(self.database) as session:
            for table in ("account", "protected_account"):
                session.run(f"create table {table} (id bigint primary key, balance bigint not null) engine = innodb")
                session.run(f"insert into {table} select seq, 0 from seq_1_to_{ROWS}")
            session.run("insert into fences (resource, token, holder, updated_at) select cast(concat('accounts/', seq) as "
                        f"binary), 1, 'h', utc_timestamp(6) from seq_1_to_{ROWS}")
            for [statements] in session.run(f"call protect('{self.database}', 'protected_account', "
                                            "'concat(''accounts/'', ROW.id)')"):
                for statement in filter(None, statements.split("\n")):
                    session.run(statement)
        self.counts = {script: self.calibrated(script) for script in SCRIPTS}

    def written(self):
        [[written]] = self.server.run("select (select sum(balance) from account) + (select sum(balance) from protected_account)",
                                      self.database)
        return written

    def load(self, script, count=None):
        """(transactions a second, how many)"""
        count = count or self.counts[script]
        statements = SCRIPTS[script]
        words = [mariadb_server.program("mariadb-slap"), "--no-defaults", f"--socket={self.server.socket}", "--user=root",
                 f"--create-schema={self.database}", "--no-drop", f"--concurrency={CLIENTS}", "--delimiter=;",
                 f"--number-of-queries={count * len(statements)}", f"--query={';'.join(statements)}"]
        before = self.written()
        done = subprocess.run(figures.pinned(words, "load"), capture_output=True, text=True, check=True)
        if self.written() - before != count:
            raise RuntimeError(f"{script}: {self.written() - before} of {count} were written: {done.stdout}{done.stderr}")
        return count / float(re.search(r"Average number of seconds to run all queries: ([\d.]+)", done.stdout)[1]), count

    def calibrated(self, script):
        """So many transactions take about the seconds of a batch."""
        rate, _ = self.load(script, CLIENTS * 100)
        return max(CLIENTS, int(rate * self.seconds) // CLIENTS * CLIENTS)

    def compare(self, what, ours, other, target):
        sides = [figures.Batches(self.server.pid) for _ in range(2)]
        for _ in range(self.rounds):
            for side, script in zip(sides, (ours, other)):
                side.run(lambda: self.load(script))
        figures.tell_rates(what, *sides, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short rounds")
    parser.add_argument("--folder", help="ignored: the server's folder is a temporary one")
    options = parser.parse_args()
    seconds, rounds = (1, 5) if options.quick else (2, 9)
    with mariadb_server.Server({"innodb-buffer-pool-size": "256M", "innodb-log-file-size": "256M"}) as server:
        figures.pin_servers(server.pid)
        bench = Bench(server, seconds, rounds)
        for line in LINES:
            bench.compare(*line)


if __name__ == "__main__":
    main()
