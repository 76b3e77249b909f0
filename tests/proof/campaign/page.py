"""The tables of what was shown, as a page of the documentation has them, in the place of those that are there: of the campaign
by its JSON, and of simulated histories by the file in which history-runs keeps its progress."""

import datetime
import json
import os
import re

HEAD = "| storage | source | scenarios | cycles | operations | refused | unknown | violations | updates lost without a guard |"
TABLE = "(<!-- {} -->\n).*?(<!-- end -->\n)"

# How the campaign shows each guarantee, and what of a storage's rows counts for it.
GUARANTEES = {
    "G1": ("late clients, operations", lambda sums: f"{sums['pauses']:,}, {sums['operations']:,}"),
    "G2": ("operations", lambda sums: f"{sums['operations']:,}"),
    "G3": ("updates", lambda sums: f"{sums['writes']:,}"),
    "G4": ("acknowledged, unknown, faults", lambda sums: f"{sums['writes']:,}, {sums['unknown']:,}, {sums['faults']:,}"),
    "G5": ("clock jumps", lambda sums: f"{sums['clocks']:,}" if sums["clocks"] else "")}
CLOCKS = ("clock jumps", "monotonic clocks")

# What else shows them, of each storage: the suite that every guard passes, and what fails beneath it.
TESTS = {
    "sqlite": ("sqlite_conformance_test", "sqlite_fault_test", "sqlite_process_test"),
    "http": ("lane_table_test", "lane_simulation_test", "lane_fault_test", "proof_simulation_test"),
    "postgres": ("postgres_guard_conformance_test", "postgres_guard_fault_test"),
    "postgres pair": ("postgres_source_fault_test",),
    "postgres sidecar": ("pgwire_attacks_test", "pgwire_faults_test"),
    "redis": ("redis_guard_conformance_test", "redis_guard_fault_test"),
    "redis sidecar": ("resp_claim_leaks_test", "resp_fault_test"),
    "etcd": ("etcd_guard_conformance_test", "etcd_guard_fault_test"),
    "etcd cluster": ("etcd_guard_quorum_test",),
    "zookeeper": ("zookeeper_guard_conformance_test", "zookeeper_guard_fault_test"),
    "zookeeper ensemble": ("zookeeper_guard_ensemble_test",)}

# As history-runs.cpp keeps them.
SIMULATED = ("histories", "operations", "admitted", "stale", "unknown outcomes", "late writes", "take-overs", "client crashes",
             "guard crashes", "states lost", "source faults", "clock jumps", "duplicates", "conflicts", "implausible",
             "runs done", "raises")


def grouped(rows, *names):
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def total(rows, name):
    return sum(row[name] for row in rows)


def table_of(report):
    """One row for each storage and source, and when and with which seeds."""
    lines = [HEAD, "| --- " * HEAD.count(" | ") + "| --- |"]
    for (storage, source), rows in grouped(report["rows"], "storage", "source").items():
        control = next((row for row in rows if "lost_unguarded" in row), None)
        lost = f"{control['lost_unguarded']} of {control['writes']}" if control else ""
        lines.append(f"| {storage} | {source} | {', '.join(row['scenario'] for row in rows)} | {total(rows, 'cycles')} | "
                     f"{total(rows, 'operations'):,} | {total(rows, 'refused'):,} | {total(rows, 'unknown'):,} | "
                     f"{total(rows, 'violations')} | {lost} |")
    return "\n".join([*lines, "", *dates_of(report)]) + "\n"


def dates_of(report):
    return [f"{report['date']}, seeds {', '.join(map(str, report['seeds']))}."]


def guarantees_of(report):
    """One row for each storage, a column for each guarantee."""
    heads = [f"{name}: {what}" for name, (what, _) in GUARANTEES.items()]
    lines = [f"| storage | {' | '.join(heads)} | besides, by |", "| --- " * (len(heads) + 2) + "|"]
    for (storage,), rows in grouped(report["rows"], "storage").items():
        sums = {name: total(rows, name) for name in ("operations", "writes", "unknown")}
        happened = [(what, count) for row in rows for what, count in row["injected"].items()]
        sums["pauses"] = sum(count for what, count in happened if what == "pauses")
        sums["clocks"] = sum(count for what, count in happened if what in CLOCKS)
        sums["faults"] = sum(count for _, count in happened) - sums["pauses"]
        cells = [cell(sums) for _, cell in GUARANTEES.values()]
        lines.append(f"| {storage} | {' | '.join(cells)} | {', '.join(f'`{name}`' for name in TESTS[storage])} |")
    told = [*dates_of(report), f"Violations: {total(report['rows'], 'violations')}."]
    if unreached := [name for name in TESTS if name not in {row["storage"] for row in report["rows"]}]:
        told.append(f"The time was over before {', '.join(unreached)}.")
    return "\n".join([*lines, "", *told]) + "\n"


def simulated_of(path):
    """What history-runs has done up to now."""
    with open(path, encoding="ascii") as file:
        first, *counts = map(int, file.read().split())
    date = datetime.date.fromtimestamp(os.path.getmtime(path)).isoformat()
    lines = [f"| {name} | {count:,} |" for name, count in zip(SIMULATED, counts, strict=True)]
    return ("\n".join(["| what | how often |", "| --- | --- |", *lines]) + f"\n\n{date}, seeds from {first:,} to {first + counts[0] - 1:,}, no violation.\n")


def put(text, name, table):
    changed, count = re.subn(TABLE.format(name), lambda found: found[1] + table + found[2], text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"the page has no place for the table {name}")
    return changed


def write(path, json_path, simulated_path=None):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if json_path:
        with open(json_path, encoding="utf-8") as file:
            report = json.load(file)
        text = put(put(text, "campaign", table_of(report)), "by guarantee", guarantees_of(report))
    if simulated_path:
        text = put(text, "simulated", simulated_of(simulated_path))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
