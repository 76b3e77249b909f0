"""The runner of the planted bugs: it must be able to fail."""

import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import parts
import planted_bugs

BUGS = planted_bugs.BUGS
RUNNER = pathlib.Path(planted_bugs.__file__)
HARMLESS = """What is changed changes nothing.
found by: {finder}
--- a/{file}
+++ b/{file}
@@ -1,1 +1,1 @@
-{line}
+{line}{comment}
"""


def harmless(file, comment, finder):
    with open(planted_bugs.ROOT / file, encoding="utf-8") as source:
        return HARMLESS.format(file=file, line=source.readline().rstrip("\n"), comment=comment, finder=finder)


class PlantedBugs(unittest.TestCase):
    def run_on(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "planted.patch"
            path.write_text(text, encoding="utf-8")
            # Each of these bugs is tried whole, whichever shard of this file asks.
            environment = {key: value for key, value in os.environ.items() if key not in planted_bugs.OUR_WORDS}
            done = subprocess.run([sys.executable, "-B", RUNNER, "--build", os.environ["FENCEGUARD_BUILD"], path], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                                  env={**environment, "FENCEGUARD_HISTORIES": "50"})
        return done.returncode, done.stdout

    def test_what_changes_nothing_is_not_found(self):
        for file, comment, finder in (("guard/judge.cpp", " // here", planted_bugs.SIMULATION),
                                      ("adapters/redis/lua/fences/fence.lua", " here", "redis_fence_store_test"),
                                      ("sql/postgres/002_rule.sql", " here", "postgres_sql_pgtap_test -k rule")):
            with self.subTest(file):
                status, output = self.run_on(harmless(file, comment, finder))
                self.assertEqual(status, 1, output)
                self.assertIn("planted: NOT FOUND", output)
                self.assertIn("1 bugs, 1 not found", output)

    def test_what_does_not_apply_or_build_fails(self):
        text = (BUGS / "rule" / "holder_ignored.patch").read_text(encoding="utf-8")
        cases = {"it does not apply": text.replace("-  if (fence.holder", "-  if (fence.older"),
                 "error: ": (BUGS / "rule" / "equal_to_the_floor_is_admitted.patch").read_text(
                     encoding="utf-8").replace(">= highest", ">>>= highest"),
                 "there is no test": text.replace("\nolder: ", "\nfound by: no_such_test\nolder: ", 1),
                 "there is no such test": text.replace("\nolder: ", "\nfound by: guard_test NoSuch.*\nolder: ", 1),
                 "it changes no file": "Nothing.\n"}
        for sentence, case in cases.items():
            with self.subTest(sentence):
                status, output = self.run_on(case)
                self.assertEqual(status, 1, output)
                self.assertIn(sentence, output)

    def test_a_bug_is_found_and_told_with_what_found_it(self):
        status, output = self.run_on((BUGS / "rule" / "holder_ignored.patch").read_text(encoding="utf-8"))
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"planted: proof_simulation_test: [\w-]+, \d+ s")

    def test_change_runs_what_it_touches_and_three_commits_run_all(self):
        build = planted_bugs.Build(os.environ["FENCEGUARD_BUILD"])
        bugs = [planted_bugs.Bug(path) for path in sorted(BUGS.rglob("*.patch"))]
        self.assertGreaterEqual(len(bugs), 24)
        for folder, name in (("sql/postgres", "sql/floor_ignored"), ("tests/postgres/sql/pgtap", "sql/floor_ignored"),
                             ("guard", "rule/holder_ignored"), ("tests/proof/bugs/lua", "lua/floor_ignored"),
                             (os.path.dirname(planted_bugs.Bug(BUGS / "lane/one_lane_for_all.patch").files[0]),
                              "lane/one_lane_for_all")):
            tried = []
            for turn in range(3):
                touched, others = planted_bugs.for_change(bugs, build, {folder}, turn)
                self.assertIn(BUGS / f"{name}.patch", [bug.path for bug in touched], folder)
                self.assertLess(len(touched), len(bugs) / 2, folder)
                tried += [bug.path for bug in others]
            self.assertEqual(sorted(tried + [bug.path for bug in touched]), [bug.path for bug in bugs], folder)

    def test_each_filter_of_a_finder_names_a_test(self):
        """A bug is tried once in a while: what was renamed is to be seen at once."""
        told = subprocess.run(["ctest", "--show-only=json-v1"], cwd=os.environ["FENCEGUARD_BUILD"], check=True,
                              stdout=subprocess.PIPE).stdout
        commands = {entry["name"]: entry.get("command", []) for entry in json.loads(told)["tests"]}
        lost = [f"{path.name}: {name} {part}" for path in sorted(BUGS.rglob("*.patch")) for name, *filters in
                map(str.split, planted_bugs.Bug(path).finders) for part in self.lost(commands[name], filters)]
        self.assertEqual(lost, [])

    @staticmethod
    def lost(command, filters):
        """Those that no test fits."""
        files = [pathlib.Path(word) for word in command if word.endswith("_test.py")]
        if files:
            names = re.findall(r"(?:class|def) (\w+)", files[0].read_text(encoding="utf-8"))
            names += [path.stem for path in files[0].parent.glob("*.sql")]
            return [part for part in filters if part != "-k" and not any(part in name for name in names)]
        told = subprocess.run([next(word for word in command if "/tests/" in word and os.access(word, os.X_OK)
                                    and not word.endswith(".py")), "--gtest_list_tests"], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        suite, names = "", []
        for line in (line.partition("#")[0].rstrip() for line in told.splitlines()):
            if line.startswith("  "):
                names.append(suite + line.strip())
            else:
                suite = line
        return [part for part in ":".join(filters).split(":") if part and not fnmatch.filter(names, part)]

    def test_what_finds_a_bug_is_named_by_the_folder_of_its_sources(self):
        build = planted_bugs.Build(os.environ["FENCEGUARD_BUILD"])
        bug = planted_bugs.Bug(BUGS / "lane/cut_behind_an_unknown_raise.patch")
        self.assertIn("tests/lane", planted_bugs.folders_of(bug, build))


if __name__ == "__main__":
    parts.main()
