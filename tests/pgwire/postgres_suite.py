"""PostgreSQL's own regression suite, of the source package of this system's PostgreSQL, directly and through the sidecar.

tests/pgwire/postgres_suite.py [--source FOLDER] [--schedule FILE] [--keep FOLDER]

Two servers: pg_regress connects to one of them itself, and to the other through a sidecar with --unfenced allow, so that the
suite's clients, which have no claim, are relayed untouched. Compared is what each test printed. Prints the tests that failed
on each side, and the difference of those that printed something else; ends with 0 if there are none. What fails on both is
the suite's affair: the package may be a little older than the server. README.md has what is known to differ from run to run.

The source package comes from this system's Debian archive, once, into FOLDER, by default postgresql-source in the folder of
temporary files; its regress.c is compiled by cc with the headers of postgresql-server-dev. FENCEGUARD_BINARY and PYTHONPATH as
tests/kit/README.md says.
"""

import argparse
import difflib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import postgres_server
import support

SUITE_MAX_S = 3600
SETTINGS = {"max_prepared_transactions": 2, "max_connections": 100, "fsync": "off"}


def fetch(folder, version):
    """The source in folder/postgresql; once."""
    if not (folder / "postgresql").exists():
        support.unpack_source(f"postgresql-{version}", folder)
        (folder / "unpacked").rename(folder / "postgresql")
    return folder / "postgresql" / "src/test/regress"


def pg_config(what):
    return subprocess.run([postgres_server.program("pg_config"), f"--{what}"], check=True, capture_output=True, text=True).stdout.strip()


class Suite(support.BinaryTest):
    options = None

    def test_prints_the_same_directly_and_through_the_sidecar(self):
        version = postgres_server.program("postgres").split("/")[-3]
        self.inputs = fetch(self.options.source, version)
        self.prepare()
        direct = postgres_server.Server(SETTINGS)
        self.addCleanup(direct.remove)
        behind = postgres_server.Server(SETTINGS)
        self.addCleanup(behind.remove)
        sidecar = self.serve("--storage", behind.url(), "--listen", "127.0.0.1:0", "--unfenced", "allow")
        runs = {"direct": self.begin("direct", direct.port), "sidecar": self.begin("sidecar", int(sidecar.data.rpartition(":")[2]))}
        failed = {name: self.finish(name, run) for name, run in runs.items()}
        for name, tests in failed.items():
            print(f"{name}: {len(list(self.results(name).glob('*.out')))} tests, {len(tests)} not as expected: {' '.join(sorted(tests))}")
        self.assertEqual(self.differences(), [])

    def prepare(self):
        """A folder that the server's user reads and writes, with the suite and its libraries."""
        self.tree = pathlib.Path(postgres_server.temporary_folder("fenceguard-regress-"))
        self.addCleanup(shutil.rmtree, self.tree, ignore_errors=True)
        shutil.copytree(self.inputs, self.tree / "regress")
        (self.tree / "lib").mkdir()
        subprocess.run(["cc", "-fPIC", "-shared", "-O1", "-w", f"-I{pg_config('includedir-server')}", f"-I{pg_config('includedir')}",
                        self.inputs / "regress.c", "-o", self.tree / "lib/regress.so"], check=True)
        for name in ("refint.so", "autoinc.so"):
            (self.tree / "lib" / name).symlink_to(pathlib.Path(pg_config("pkglibdir")) / name)
        for name in ("direct", "sidecar"):
            (self.tree / name).mkdir()
        if os.getuid() == 0:
            subprocess.run(["chown", "-R", "postgres:postgres", self.tree], check=True)

    def begin(self, name, port):
        driver = pathlib.Path(pg_config("pkglibdir")) / "pgxs/src/test/regress/pg_regress"
        schedule = self.options.schedule or self.tree / "regress/parallel_schedule"
        return subprocess.Popen([driver, f"--bindir={pg_config('bindir')}", f"--dlpath={self.tree}/lib", f"--inputdir={self.tree}/regress",
                                 f"--outputdir={self.tree}/{name}", "--host=127.0.0.1", f"--port={port}", "--user=postgres",
                                 "--max-concurrent-tests=20", f"--schedule={schedule}"], cwd=self.tree / name, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=postgres_server.environment(),
                                **postgres_server.server_user())

    def finish(self, name, run):
        """The tests that are not as the suite expects."""
        said, _ = run.communicate(timeout=SUITE_MAX_S)
        self.assertTrue(list(self.results(name).glob("*.out")), said)
        if self.options.keep:
            shutil.copytree(self.tree / name, self.options.keep / name, dirs_exist_ok=True)
            (self.options.keep / name / "said").write_text(said)
        return {line.split("...")[0].split()[-1] for line in said.splitlines() if "... FAILED" in line}

    def results(self, name):
        return self.tree / name / "results"

    def differences(self):
        found = []
        for file in sorted(self.results("direct").glob("*.out")):
            sides = [(self.results(name) / file.name).read_text(errors="replace").replace(f"{self.tree}/{name}", "FOLDER").splitlines()
                     for name in ("direct", "sidecar")]
            lines = list(difflib.unified_diff(*sides, "direct", "sidecar", lineterm="", n=1))
            if lines:
                found.append(file.stem)
                print(f"\n{file.stem}:", *lines[:60], sep="\n")
        return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "postgresql-source")
    parser.add_argument("--schedule", type=pathlib.Path, help="default: the suite's parallel_schedule")
    parser.add_argument("--keep", type=pathlib.Path, help="what both printed goes there")
    Suite.options = parser.parse_args()
    loader = unittest.defaultTestLoader.loadTestsFromTestCase(Suite)
    sys.exit(not unittest.TextTestRunner().run(loader).wasSuccessful())


if __name__ == "__main__":
    main()
