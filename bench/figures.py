"""What the benchmarks in Python share: batches that alternate between the sides, servers and load on processors of their
own, and the line, also as JSON in the file that FENCEGUARD_FIGURES names, that each target ends in. As in measure.hpp.

    figures.py FOLDER     writes the tables of README.md and figures.json from its files, one a program: NAME.jsonl
"""

import contextlib
import json
import os
import re
import resource
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
README = os.path.join(HERE, "README.md")
JSON = os.path.join(HERE, "figures.json")
PROCESSORS = sorted(os.sched_getaffinity(0))


def processors(of):
    """Those for the 'servers' or for the 'load'; all where there is but one."""
    half = len(PROCESSORS) // 2
    return set((PROCESSORS[:half] if of == "servers" else PROCESSORS[half:]) or PROCESSORS)


def pinned(words, of):
    """The command, on the processors of the servers or of the load."""
    return ["taskset", "-c", ",".join(map(str, sorted(processors(of)))), *words]


def pin_servers(pid):
    """A server that runs, with all its processes and those that it will start."""
    for one in [pid, *descendants(pid)]:
        for task in os.listdir(f"/proc/{one}/task"):
            os.sched_setaffinity(int(task), processors("servers"))


def descendants(pid):
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                for child in file.read().split():
                    found += [int(child), *descendants(int(child))]
    return found


def processor_seconds(pid):
    """Of a server, the processes that it started, and those of them that have ended."""
    ticks = 0
    for one in [*descendants(pid), pid]:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile: counted with its parent
            with open(f"/proc/{one}/stat", encoding="utf-8") as file:
                ticks += sum(map(int, file.read().rsplit(")", 1)[1].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def load_seconds():
    """Processor time of the commands that were run and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Batches:
    """Those of one side: rates, and processor time an operation. pid: of its server."""

    def __init__(self, pid):
        self.pid, self.rates, self.costs, self.others = pid, [], [], []

    def run(self, load):
        """load: does it, and answers the rate, how many, and what else is of interest."""
        before = load_seconds(), processor_seconds(self.pid)
        rate, done, *other = load()
        used = load_seconds() - before[0], processor_seconds(self.pid) - before[1]
        self.rates.append(rate)
        self.costs.append([seconds * 1e6 / done for seconds in used])
        self.others.append(other)

    def rate(self):
        return statistics.median(self.rates)

    def cost(self):
        return [statistics.median(column) for column in zip(*self.costs)]

    def other(self):
        return [statistics.median(column) for column in zip(*self.others)]


def ratios(ours, other):
    """Of batches that ran side by side."""
    return [a / b for a, b in zip(ours.rates, other.rates)]


def tell_rates(name, ours, other, target):
    side_by_side = ratios(ours, other)
    tell(name, statistics.median(side_by_side), f"{ours.rate():,.0f}/s", f"{other.rate():,.0f}/s", target, side_by_side,
         ours.cost(), other.cost())


def quartiles(values):
    if len(values) < 2:
        return values * 2
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, high]


def tell(name, ratio, ours, other, target, ratios=None, our_us=None, other_us=None):
    """One line. ratio: a number, or a text with one. ratios: of batches side by side. our_us, other_us: microseconds of
    processor time an operation, of the load and of the servers."""
    text = ratio if isinstance(ratio, str) else f"{ratio:.2f}"
    print(f"{name}: {text} (ours {ours}, other {other}), target {target}", flush=True)
    path = os.environ.get("FENCEGUARD_FIGURES")
    if path is None:
        return
    figure = {"name": name, "ratio": text, "ours": ours, "other": other, "target": target, "load": os.getloadavg()[0]}
    figure.update({key: value for key, value in (("quartiles", ratios and quartiles(ratios)), ("our_us", our_us),
                                                 ("other_us", other_us)) if value})
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(figure) + "\n")


def is_met(figure):
    """None where there is no target."""
    sign = re.match(r"(<=|>=|<|>|) ?([\d.]+)", figure["target"])
    value = re.match(r"[\d.]+", figure["ratio"])
    if not sign or not value:
        return None
    value, limit = float(value[0]), float(sign[2])
    return {"<=": value <= limit, ">=": value >= limit, "<": value < limit, ">": value > limit,
            "": value == limit}[sign[1]]


def row(figure):
    ratio = figure["ratio"]
    if "quartiles" in figure:
        ratio += " ({:.2f} to {:.2f})".format(*figure["quartiles"])
    cost = "; ".join(f"{side} {figure[key][0]:.1f} + {figure[key][1]:.1f}"
                     for side, key in (("ours", "our_us"), ("other", "other_us")) if key in figure)
    target = figure["target"] + (", **missed**" if is_met(figure) is False else "")
    return f"| {figure['name']} | {ratio} | {figure['ours']} | {figure['other']} | {cost} | {target} | {figure['load']:.1f} |"


def table(figures):
    return "\n".join(["| what | ratio (quartiles) | ours | other side | us an operation, load + servers | target | load |",
                      "| --- | --- | --- | --- | --- | --- | --- |", *map(row, figures)])


def write(folder):
    """Each program's figures take the place of what it measured before."""
    programs = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as lines:
            programs[name.removesuffix(".jsonl")] = [json.loads(line) for line in lines]
    known = {}
    if os.path.exists(JSON):
        with open(JSON, encoding="utf-8") as file:
            known = json.load(file)
    known.update(programs)
    with open(JSON, "w", encoding="utf-8") as file:
        json.dump(known, file, indent=1)
        file.write("\n")
    with open(README, encoding="utf-8") as file:
        text = file.read()
    for program, figures in known.items():
        begin, end = f"<!-- figures of {program} -->", "<!-- end -->"
        if begin not in text:
            raise SystemExit(f"figures.py: README.md has no place for {program}: a line '{begin}' and one '{end}'")
        head, _, rest = text.partition(begin)
        text = head + begin + "\n" + table(figures) + "\n" + end + rest.partition(end)[2]
    with open(README, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(sys.argv[1])
