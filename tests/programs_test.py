"""Each test of a program that several ctest entries share is run by one of them: none is lost, none runs twice.

An entry may run in several forms, such as with the extension in C: then by one entry at most in each form. And no name of
ours is two things in a program, as two classes of one name would be, of which the linker takes one without a word: then some
function of theirs has two sizes.
"""

import collections
import json
import os
import pathlib
import subprocess
import unittest

BUILD = pathlib.Path(os.environ["FENCEGUARD_BUILD"])
FILTER = "--gtest_filter="


def said(*command):
    return subprocess.run(command, cwd=BUILD, stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout


def tests_of(*command):
    """The names of the tests that a program selects."""
    names, suite = [], None
    for line in said(*command, "--gtest_list_tests").split("\n"):
        line = line.partition("#")[0].rstrip()  # behind which a parameter is said
        if line.startswith("  "):
            names.append(suite + line.strip())
        elif line.endswith("."):
            suite = line
    return names


def entries_of_programs():
    """By program that some entry filters: (entry, form, filter) of each entry that runs it. A shard stands for all."""
    entries = collections.defaultdict(list)
    for test in json.loads(said("ctest", "--show-only=json-v1"))["tests"]:
        properties = {entry["name"]: entry["value"] for entry in test["properties"]}
        form = [word for word in properties.get("ENVIRONMENT", []) if word.startswith("FENCEGUARD_")]
        programs = [word for word in test.get("command", []) if word.startswith(f"{BUILD}/tests/")]
        if programs and "GTEST_SHARD_INDEX" not in "".join(properties.get("ENVIRONMENT", [])).replace("INDEX=0", ""):
            last = test["command"][-1]
            entries[programs[0]].append((test["name"], tuple(form), last if last.startswith(FILTER) else FILTER + "*"))
    return {program: those for program, those in entries.items() if any(entry[2] != FILTER + "*" for entry in those)}


def faults(tests, selected):
    """What is wrong, as lines, of a program's tests, and of those that (entry, form) selects."""
    lines = [f"{test}: run by no entry" for test in tests if not any(test in those for those in selected.values())]
    lines += [f"{entry}: selects nothing" for (entry, _), those in selected.items() if not those]
    for test in tests:
        for form, count in collections.Counter(form for (_, form), those in selected.items() if test in those).items():
            if count > 1:
                names = sorted(entry for (entry, its), those in selected.items() if its == form and test in those)
                lines.append(f"{test}: run by {' and '.join(names)}")
    return lines


def sizes(program):
    """By each name of ours that several objects may define, the sizes that it has in them."""
    names = collections.defaultdict(set)
    inputs = said("ninja", "-t", "query", os.path.relpath(program, BUILD)).split()
    for line in said("nm", "--portability", "--defined-only", *(word for word in inputs if word.endswith(".o"))).split("\n"):
        name, kind, *numbers = (line.split() + ["", ""])[:4]
        if kind in ("W", "V", "u") and "fenceguard" in name:
            names[name].add(numbers[-1])
    return names


class Programs(unittest.TestCase):
    def test_each_test_is_run_by_one_entry(self):
        programs = entries_of_programs()
        self.assertTrue(programs)
        for program, entries in programs.items():
            with self.subTest(program=os.path.basename(program)):
                selected = {(entry, form): set(tests_of(program, words)) for entry, form, words in entries}
                tests = tests_of(program)
                self.assertEqual(len(tests), len(set(tests)))
                self.assertEqual(faults(tests, selected), [])

    def test_no_name_is_two_things(self):
        for program in entries_of_programs():
            with self.subTest(program=os.path.basename(program)):
                names = sizes(program)
                self.assertTrue(names)
                self.assertEqual([name for name, its in names.items() if len(its) > 1], [])

    def test_finds_what_is_lost_and_what_runs_twice(self):
        once, again = ("a", ()), ("again_a", ("FORM=2",))
        self.assertEqual(faults(["S.x", "S.y"], {once: {"S.x"}, ("b", ()): {"S.y"}, again: {"S.x"}}), [])
        self.assertEqual(faults(["S.x", "S.y"], {once: {"S.x"}, again: {"S.x"}}), ["S.y: run by no entry"])
        self.assertEqual(faults(["S.x"], {once: {"S.x"}, ("b", ()): {"S.x"}}), ["S.x: run by a and b"])
        self.assertEqual(faults(["S.x"], {once: {"S.x"}, ("b", ()): set()}), ["b: selects nothing"])


if __name__ == "__main__":
    unittest.main()
