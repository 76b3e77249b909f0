"""Writes costs.tsv anew from what ctest said, or wrote to Testing/Temporary/LastTest.log.

    costs.py [--build build/release] [LOG...]     the log of the build's last run, if none is named

What ran in none of the logs keeps its cost, and what is no entry of the build any more goes.
"""

import argparse
import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
COSTS = pathlib.Path(__file__).resolve().parent / "costs.tsv"
HEAD = "# Seconds of each entry in a run of all of them, written by costs.py.\n"
SAID = re.compile(r"Test +#\d+: (\S+) [ .]*(?:Passed|\*\*\*\w.*?) +([\d.]+) sec")
WRITTEN = re.compile(r"^\d+/\d+ Test: (\S+)\n.*?^Test time = +([\d.]+) sec$", re.MULTILINE | re.DOTALL)


def entries(build):
    done = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, stdout=subprocess.PIPE, check=True)
    return {test["name"] for test in json.loads(done.stdout)["tests"]}


def read():
    rows = (line.split("\t") for line in COSTS.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {name: int(seconds) for name, seconds in rows}


def said(text):
    """Seconds by entry, of a log of either kind."""
    return {name: max(1, round(float(seconds))) for name, seconds in SAID.findall(text) + WRITTEN.findall(text)}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default=ROOT / "build" / "release", type=pathlib.Path)
    parser.add_argument("logs", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    costs, there = read(), entries(options.build)
    for log in options.logs or [options.build / "Testing" / "Temporary" / "LastTest.log"]:
        costs.update(said(log.read_text(encoding="utf-8", errors="replace")))
    lines = [f"{name}\t{seconds}\n" for name, seconds in sorted(costs.items()) if name in there]
    COSTS.write_text(HEAD + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
