"""Runs of scenarios, and the table of them."""

import collections
import concurrent.futures
import datetime
import fnmatch
import json
import os
import random
import shutil
import tempfile
import threading
import time
import traceback

from cycle import Cycle, Nothing, history_of, longest_gap_s, lost_updates, number_of, parts_of, violations_in
from damage import undetected
from scenarios import CONTROL, LEFT_OUT, SCENARIOS, STORAGES

JOBS = 7  # storages at a time: most of the time clients are stopped
LOST_MIN = 0.05  # of the updates without a guard, or the workload proves nothing
CONTROL_OPTIONS = {"operations": 25, "pause": 25, "count": 4}


class Plan:
    def __init__(self, cycles=1, seconds=None, seed=None, only=(), histories=None):
        self.cycles = cycles
        self.until = None if seconds is None else time.monotonic() + seconds
        self.seed = random.SystemRandom().randrange(2**32) if seed is None else seed
        self.only = only
        self.histories = histories

    def is_over(self):
        return self.until is not None and time.monotonic() > self.until

    def scenarios_of(self, key):
        return [name for name in SCENARIOS[key]
                if not self.only or any(fnmatch.fnmatch(f"{key}/{name}", pattern) for pattern in self.only)]

    def keep(self, path, name):
        self.histories = self.histories or tempfile.mkdtemp(prefix="fenceguard-histories-")
        os.makedirs(self.histories, exist_ok=True)
        return shutil.copy(path, os.path.join(self.histories, name.replace("/", "-") + ".jsonl"))


class Report:
    """A row for each scenario of a storage. Thread-safe."""

    def __init__(self, path=None, seed=0):
        self._path = path
        self._lock = threading.Lock()
        self.rows = {}
        self.seeds = [seed]
        self.failures = []
        if path and os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                kept = json.load(file)
            self.rows = {(row["storage"], row["source"], row["scenario"]): row for row in kept["rows"]}
            self.seeds = [*kept["seeds"], seed]

    def row(self, kind, scenario):
        key = (kind.name, kind.source_name, scenario)
        with self._lock:
            return self.rows.setdefault(key, {
                "scenario": scenario, "storage": kind.name, "source": kind.source_name, "cycles": 0, "operations": 0,
                "writes": 0, "refused": 0, "unknown": 0, "violations": 0, "kept_out_s": 0, "injected": {}})

    def add(self, row, operations, injected, violation):
        told = collections.Counter(line.get("verdict", "unknown") for line in operations)
        writes = [line for line in operations if line["op"] == "write" and line.get("verdict") == "admitted"]
        with self._lock:
            row["cycles"] += 1
            row["operations"] += len(operations)
            row["writes"] += len(writes)
            row["refused"] += told["stale"] + told["conflict"]
            row["unknown"] += told["unknown"]
            row["violations"] += bool(violation)
            row["kept_out_s"] = round(max(row["kept_out_s"], longest_gap_s(operations)), 2)
            row["injected"] = dict(collections.Counter(row["injected"]) + injected)
            self._save()

    def add_control(self, row, lost, updates, lost_guarded, injected):
        with self._lock:
            row["cycles"] += 1
            row["operations"] += updates
            row["writes"] += updates
            row["violations"] += lost_guarded > 0
            row["injected"] = dict(collections.Counter(row["injected"]) + injected)
            row["lost_unguarded"] = row.get("lost_unguarded", 0) + lost
            row["lost_guarded"] = row.get("lost_guarded", 0) + lost_guarded
            self._save()

    def fail(self, sentence):
        with self._lock:
            self.failures.append(sentence)

    def _save(self):
        if self._path:
            with open(self._path + ".new", "w", encoding="utf-8") as file:
                file.write(self.json())
            os.replace(self._path + ".new", self._path)

    def is_well(self):
        return not self.failures and not any(row["violations"] for row in self.rows.values())

    def json(self):
        return json.dumps({"date": datetime.date.today().isoformat(), "seeds": self.seeds,
                           "rows": [row for _, row in sorted(self.rows.items()) if row["cycles"]]}, indent=1)

    def text(self):
        names = ["storage", "source", "scenario", "cycles", "operations", "refused", "unknown", "violations", "kept_out_s"]
        table = [["storage", "source", "scenario", "cycles", "operations", "refused", "unknown", "violations", "kept out s",
                  "what happened"]]
        for _, row in sorted(self.rows.items()):
            if not row["cycles"]:
                continue
            told = ", ".join(f"{count} {what}" for what, count in row["injected"].items())
            if "lost_unguarded" in row:
                told += (f"; without a guard {row['lost_unguarded']} of {row['writes']} updates lost, "
                         f"with it {row['lost_guarded']}")
            table.append([str(row[name]) for name in names] + [told])
        widths = [max(map(len, column)) for column in zip(*table)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in table]
        return "\n".join([*lines, f"seeds {self.seeds}"])


def run(plan, report):
    """All that is planned, some storages at a time. False: the time was over first."""
    for sentence in LEFT_OUT:
        print(sentence, flush=True)
    is_whole = True
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        rounds = {pool.submit(run_round, plan, report, key): key for key in STORAGES if plan.scenarios_of(key)}
        while rounds:
            for ended in concurrent.futures.wait(rounds, return_when=concurrent.futures.FIRST_COMPLETED).done:
                key, left = rounds.pop(ended), ended.result()
                if left and plan.is_over():
                    is_whole = False
                elif left:  # behind the other storages
                    rounds[pool.submit(run_round, plan, report, key)] = key
    return is_whole


def run_round(plan, report, key):
    """Each scenario of a storage once more, where it is not done yet. Whether something is left."""
    kind = STORAGES[key]
    rows = {name: report.row(kind, name) for name in plan.scenarios_of(key)}
    todo = [name for name, row in rows.items() if row["cycles"] < plan.cycles]
    if not todo or plan.is_over():
        return bool(todo)
    try:
        with kind() as storage:  # a new one for each round
            for name in todo:
                if plan.is_over():
                    return True
                run_one(plan, report, rows[name], storage, key, name)
    except Exception:  # a server that does not start, a client that ends, nothing that happened
        report.fail(f"{key}, {plan.seed}: {traceback.format_exc()}")
        return False
    return any(row["cycles"] < plan.cycles for row in rows.values())


def run_one(plan, report, row, storage, key, scenario):
    name = f"{key}/{scenario}/{row['cycles']}"
    folder = tempfile.mkdtemp(prefix="cycle-", dir=storage.folder)
    if scenario == CONTROL:
        run_control(report, row, storage, folder, name, f"{plan.seed}/{name}")
        return
    cycle = Cycle(storage, folder, name, f"{plan.seed}/{name}", scenario=SCENARIOS[key][scenario])
    cycle.run()
    require_injected(cycle, scenario)
    operations, log = cycle.operations(), cycle.log()
    violation = broken_updates(log)
    parts = parts_of(operations, log, cycle.forgetting) if cycle.forgetting else [(operations, log)]
    for number, part in enumerate(parts):
        path = os.path.join(folder, f"history-{number}.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write(history_of(*part))
        found = violations_in(path)
        if found or violation:
            report.fail(f"violation in {name}, seed {plan.seed}, kept in {plan.keep(path, f'{name}-{number}')}:\n{found}"
                        f"{violation}")
        violation = violation or found
    report.add(row, operations, cycle.injected, violation)
    if scenario == "pauses" and (left := undetected(operations, log, folder)):
        report.fail(f"{name}: its history was damaged, and history-check did not see: {left}")
    shutil.rmtree(folder)


def require_injected(cycle, scenario):
    """In every cycle a client was stopped for longer than a lease lives, and what the scenario is for happened."""
    told = [what for what, count in cycle.injected.items() if count > 0]
    if "pauses" not in told or (scenario != "pauses" and len(told) < 2):
        raise Nothing(f"{cycle.name}: nothing happened but {dict(cycle.injected)}")


def broken_updates(log):
    """What is wrong with updates: with a guard each stands on the one before."""
    for resource, entries in log.items():
        numbers = [number_of(entry) for entry in entries]
        if numbers != list(range(1, len(numbers) + 1)):
            return f"lost update: the numbers of {resource} are {numbers}\n"
    return ""


def require_lost(name, lost, updates):
    if lost < LOST_MIN * updates:
        raise Nothing(f"{name}: without a guard only {lost} of {updates} updates were lost, so the workload proves nothing")


def run_control(report, row, storage, folder, name, seed):
    """The same clients with the guard and without it: what is shown to be kept out must have been there."""
    lost, updates, injected = {}, {}, {}
    for way in ("guarded", "unguarded"):
        if way == "unguarded":
            storage.open_unguarded()
        place = os.path.join(folder, way)
        os.mkdir(place)
        cycle = Cycle(storage, place, f"{name}/{way}", seed, is_guarded=way == "guarded", **CONTROL_OPTIONS)
        cycle.run()
        require_injected(cycle, "pauses")
        log = cycle.log()
        lost[way], updates[way], injected[way] = lost_updates(log), sum(map(len, log.values())), cycle.injected
    require_lost(name, lost["unguarded"], updates["unguarded"])
    if lost["guarded"]:
        report.fail(f"{name}: with the guard {lost['guarded']} updates were lost, seed {seed}")
    report.add_control(row, lost["unguarded"], updates["unguarded"], lost["guarded"], injected["unguarded"])
