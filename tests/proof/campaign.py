#!/usr/bin/python3
"""The campaign: real servers, eight clients at ten resources, a fault meanwhile, and every history judged by history-check.

    campaign.py [--cycles N] [--seconds S] [--progress FILE] [--seed N] [--only STORAGE/SCENARIO]... [--histories FOLDER] [--json FILE]
    campaign.py --page PAGE [--json FILE] [--simulated FILE]     writes what these files say into docs/guarantees.md

Each scenario is run N times with each storage that it is for. --only 'redis/*' --only '*/link': those alone.
--progress: what was done is kept there, and the same command goes on from it. --histories: where histories are kept that have a
violation (a temporary folder if left out); all others are removed once they were judged. --json: the table, too ('-': on
standard output, in place of the text). --simulated: where history-runs keeps its progress.

Exit status: 0 done, 1 a violation, or a scenario that failed or in which nothing happened, 2 wrong usage, 3 the time was over
first. Needs FENCEGUARD_BINARY, FENCEGUARD_CAMPAIGN_CLIENT, FENCEGUARD_HISTORY_CHECK and tests/kit on PYTHONPATH.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "campaign"))

import page  # noqa: E402
import runs  # noqa: E402


def main():
    parser = argparse.ArgumentParser(usage="see the head of the file")
    parser.add_argument("--cycles", type=int, default=1)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--progress")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--histories")
    parser.add_argument("--json")
    parser.add_argument("--page")
    parser.add_argument("--simulated")
    arguments = parser.parse_args()
    if arguments.page:
        page.write(arguments.page, arguments.json, arguments.simulated)
        return 0
    plan = runs.Plan(arguments.cycles, arguments.seconds, arguments.seed, arguments.only, arguments.histories)
    report = runs.Report(arguments.progress, plan.seed)
    is_whole = runs.run(plan, report)
    if arguments.json == "-":
        print(report.json())
    else:
        print(report.text())
    if arguments.json not in (None, "-"):
        with open(arguments.json, "w", encoding="utf-8") as file:
            file.write(report.json() + "\n")
    for failure in report.failures:
        print(failure, file=sys.stderr)
    if not report.is_well():
        return 1
    return 0 if is_whole else 3


if __name__ == "__main__":
    sys.exit(main())
