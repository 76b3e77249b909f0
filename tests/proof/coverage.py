#!/usr/bin/python3
"""What of the code the unit and conformance tests run: branches, but those that only an exception takes.

    coverage.py [--labels REGEX] [--no-run] [--json FILE]

Builds with gcc's --coverage in build/coverage, runs the tests of these labels (unit and conformance), and has gcovr (package
gcovr) count. Prints the branches of each folder of guard/ and adapters/, and fails unless each line and branch of REQUIRED runs
or stands with a reason in coverage_exceptions.tsv; and where one stands there that runs. --no-run: of the last run. --json:
the figures, too.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = "build/coverage"
COUNTED = ("guard", "adapters", "server", "demo")
REQUIRED = ("guard/judge.cpp", "guard/lease.cpp", "guard/source/lease_term.cpp", "server/leases/lease_queue.cpp", "server/lane/lane.cpp",
            "server/lane/lane_admission.cpp", "server/lane/lane_drain.cpp",
            "server/lane/lane_table.cpp", "server/lane/quarantine.cpp")
EXCEPTIONS = pathlib.Path(__file__).resolve().parent / "coverage_exceptions.tsv"
# What compiles parts of the product again, in another form; and what is no program of ours.
LEFT_OUT = ("proof_simulation_test", "proof_spin_test", "structure_test", "docs_test", "linearizability_test")


def run(*words):
    subprocess.run(words, check=True, cwd=ROOT)


def tests_of(labels):
    listed = subprocess.run(["ctest", "--test-dir", BUILD, "--show-only=json-v1", "-L", labels], check=True, cwd=ROOT,
                            capture_output=True, text=True)
    return [test["name"] for test in json.loads(listed.stdout)["tests"] if test["name"] not in LEFT_OUT]


def run_tests(labels):
    run("cmake", "--preset", "coverage")
    names = tests_of(labels)
    run("ninja", "-C", BUILD, *(name.replace("_fuzz_corpus", "_fuzz_replay") for name in names))
    for data in (ROOT / BUILD).rglob("*.gcda"):
        data.unlink()
    run("ctest", "--test-dir", BUILD, "--output-on-failure", "--parallel", str(2 * os.cpu_count()), "-R",
        "^(" + "|".join(names) + ")$")
    # Of the product's own objects alone: how tests were compiled is not how it was.
    run("gcovr", "-r", str(ROOT), "--object-directory", BUILD, *(f"{BUILD}/{folder}" for folder in COUNTED), "-j",
        str(os.cpu_count()), "--exclude-throw-branches", "--exclude-unreachable-branches",
        *(word for folder in COUNTED for word in ("--filter", folder + "/")), "--json", f"{BUILD}/coverage.json")


def load():
    with open(ROOT / BUILD / "coverage.json", encoding="utf-8") as file:
        return {one["file"]: one["lines"] for one in json.load(file)["files"]}


def branches(lines):
    counts = [branch["count"] > 0 for line in lines for branch in line["branches"]]
    return sum(counts), len(counts)


def by_folder(files):
    """{folder: (branches that ran, all)}, of guard/ and adapters/."""
    sums = collections.Counter()
    for file, lines in files.items():
        first, second, *_ = (*file.split("/")[:-1], "")
        ran, total = branches(lines)
        for folder in [first, f"{first}/{second}"] if second else [first]:
            sums[folder, "ran"] += ran
            sums[folder, "all"] += total
    return {folder: (sums[folder, "ran"], sums[folder, "all"]) for folder, what in sorted(sums)
            if what == "all" and folder.startswith(("guard", "adapters"))}


def uncovered(files):
    """{(file, code): line numbers} of what is required and did not run."""
    found = collections.defaultdict(list)
    for file in REQUIRED:
        code = (ROOT / file).read_text(encoding="utf-8").splitlines()
        for line in files[file]:
            is_missed = line["count"] == 0 and not line.get("gcovr/noncode")
            if is_missed or any(branch["count"] == 0 for branch in line["branches"]):
                found[file, code[line["line_number"] - 1].strip()].append(line["line_number"])
    return found


def judge(files):
    """Sentences of what is wrong."""
    rows = [line.split("\t") for line in EXCEPTIONS.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    listed = {(file, code) for file, code, _ in rows}
    found = uncovered(files)
    wrong = [f"{file}:{', '.join(map(str, numbers))}: not all of it runs: {code}" for (file, code), numbers in found.items()
             if (file, code) not in listed]
    return wrong + [f"{EXCEPTIONS.name}: {file}: runs by now, or is no more: {code}" for file, code in listed - found.keys()]


def main():
    parser = argparse.ArgumentParser(usage="see the head of the file")
    parser.add_argument("--labels", default="^(unit|conformance)$")
    parser.add_argument("--no-run", action="store_true")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if not arguments.no_run:
        run_tests(arguments.labels)
    files = load()
    figures = {**by_folder(files), **{file: branches(files[file]) for file in REQUIRED}}
    for name, (ran, total) in figures.items():
        print(f"{name:32} {ran:6,} of {total:6,} branches  {100 * ran / max(total, 1):5.1f} %")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(figures, indent=1), encoding="utf-8")
    wrong = judge(files)
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
