"""The SQL itself, in pgTAP: every *.sql in this folder is one test, in a database of its own.

Each runs twice: where a superuser installed the schema, and where a plain role did that has no more than CREATE on its
database. The second one has no event trigger; test.has_event_trigger() tells a file which of the two it is in. What
protects tables that have no children runs once more with tables that are judged at the end of each statement. The files
find the helpers of support.psql, the table test.judge_cases, and the roles of roles.psql.
"""

import glob
import os
import subprocess
import unittest

import parts
from postgres_server import FAST, Server, environment, literal, program

FOLDER = os.path.dirname(os.path.abspath(__file__))
CASES = os.path.join(FOLDER, "..", "..", "..", "judge_cases.tsv")
INSTALLERS = {"superuser": "postgres", "per_statement": "postgres"}
if not FAST:  # an extension in C is a superuser's
    INSTALLERS["plain"] = "plain_installer"
PER_STATEMENT = """
create or replace function fenceguard.protect(
  relation regclass, resource_expression text, per_statement boolean default false, mode text default 'enforce') returns void
language plpgsql as $$
begin
  perform fenceguard.protect_by(relation, resource_expression, pg_catalog.current_setting('search_path'), true);
end $$"""


def read(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()


def insert_judge_cases():
    """The shared table of cases as SQL: '-' is absent."""
    rows = []
    with open(CASES, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.rstrip("\n")
            if line and not line.startswith("#"):
                values = [literal(None if value == "-" else value) for value in line.split("\t")]
                rows.append(f"({number}, {', '.join(values)})")
    return f"insert into test.judge_cases select (r).* from (select row({rows[0][1:-1]})::test.judge_cases as r) x;\n" \
        + "".join(f"insert into test.judge_cases values {row};\n" for row in rows[1:])


class PgTap(unittest.TestCase):
    longMessage = True

    @classmethod
    def setUpClass(cls):
        cls.server = Server({"fsync": "off"})  # nothing is crashed here
        cls.addClassCleanup(cls.server.remove)
        cls.server.psql(read("roles.psql"))
        for name, installer in INSTALLERS.items():
            cls.server.create_database(f"template_{name}", owner=installer)
            cls.server.psql("create extension pgtap schema public; grant create on schema public to public",
                            f"template_{name}")
            cls.server.install(f"template_{name}", installer)
            if name == "per_statement":
                cls.server.psql(PER_STATEMENT, f"template_{name}")
            cls.server.psql(read("support.psql") + insert_judge_cases(), f"template_{name}", installer)

    def run_file(self, path, kind):
        name = os.path.basename(path)[:-len(".sql")]
        database = f"{name}_{kind}"
        self.server.psql(f"create database {database} template template_{kind} owner {INSTALLERS[kind]}")
        done = subprocess.run(["pg_prove", "--verbose", "--psql-bin", program("psql"), "-h", self.server.folder, "-p",
                               str(self.server.port), "-U", INSTALLERS[kind], "-d", database, path], cwd=FOLDER,
                              capture_output=True, text=True, env=environment(), timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


def add_tests():
    for path in sorted(glob.glob(os.path.join(FOLDER, "*.sql"))):
        for kind in INSTALLERS:
            text = read(path)
            if kind == "per_statement" and ("fenceguard.protect(" not in text or "inherit" in text or "partition" in text):
                continue  # which are judged row by row only

            def test(self, path=path, kind=kind):
                self.run_file(path, kind)
            test.has_one_form = kind == "plain"
            setattr(PgTap, f"test_{os.path.basename(path)[:-4]}_{kind}", test)


add_tests()

if __name__ == "__main__":
    parts.main(form=1 if FAST else 0)
