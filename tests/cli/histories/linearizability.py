#!/usr/bin/python3
"""Whether recorded histories of guarded resources are linearizable, with a fenced read as one step.

    linearizability.py FILE…        prints one line a file; exit status 1 where one is not

A history is one JSON object a line. The first names the model: {"model": "transaction"} or {"model": "lane"}. Each other
line is one operation of a client:

  resource  kind     write, read (under a claim), look (without one) or advance
  token     value    what a write writes: its own, no other's     seen: what a read or look was answered, null: no object
  begun     ended    seconds of one clock of the machine
  outcome   done     it took effect once, between the two times
            stale    it was refused: a higher token was seen
            nothing  nothing was written; the fence may have been raised, then or later
            unknown  it may take effect at any time after begun, or never

Each resource is checked for itself. What one step may do:

  transaction   the fence is one number. Done: the token is not below it, and becomes it. Stale: it is above the token.
                Data and fence are one: what is unknown moves both or neither.
  lane          A guard in front of a storage: the fence is raised before the older writes are over, and a write may take
                effect after a refusal named a higher token. So stale asks for nothing but a higher token that was sent
                before the refusal came; and what is done raises the number below which nothing takes effect any more.

Method: J. M. Wing, C. Gong, 'Testing and verifying concurrent objects' (1993), with the memory of G. Lowe, 'Testing for
linearizability' (2017): a depth-first search for an order, which never looks at the same set of operations in the same
state twice. What is unknown is tried only where it explains something: a value that was seen, or a refusal.
"""

import collections
import json
import math
import sys

STEPS_MAX = 2_000_000
KINDS = ("write", "read", "look", "advance")
OUTCOMES = ("done", "stale", "nothing", "unknown")

State = collections.namedtuple("State", "fence value")


class Undecided(Exception):
    """The search was given up."""


class Operation:
    def __init__(self, line):
        self.line = line
        self.kind, self.outcome = line["kind"], line["outcome"]
        self.token, self.value, self.seen = line.get("token", 0), line.get("value"), line.get("seen")
        if self.kind not in KINDS or self.outcome not in OUTCOMES or (self.kind == "write" and not self.value):
            raise ValueError(f"no operation: {line}")
        self.begun = line["begun"]
        self.ended = line["ended"] if self.is_certain() else math.inf

    def is_certain(self):
        return self.outcome in ("done", "stale")

    def observes(self):
        """It was answered a value."""
        return self.kind in ("read", "look") and self.outcome == "done"


class Search:
    """One resource."""

    def __init__(self, operations, is_lane, start):
        self._is_lane = is_lane
        self._start = start
        certain = [one for one in operations if one.is_certain()]
        # A lane's refusals are judged without the search.
        self._certain = sorted((one for one in certain if not (is_lane and one.outcome == "stale")),
                               key=lambda one: one.begun)
        observed = {one.seen for one in certain if one.observes()}
        open_ended = [one for one in operations if not one.is_certain() and one.kind != "look"]
        # Writes that explain a value, and, where the fence is one with the data, whatever may have raised it.
        self._writes = [one for one in open_ended if one.kind == "write" and one.outcome == "unknown"
                        and (one.value in observed or not is_lane)]
        self._raises = [] if is_lane else [one for one in open_ended if one not in self._writes]
        self._readers = collections.defaultdict(int)  # value: which certain operations saw it
        for i, one in enumerate(self._certain):
            if one.observes():
                self._readers[one.seen] |= 1 << i
        self.deepest = 0

    def run(self):
        """An order of the certain operations that explains them; nothing if there is none."""
        everything = (1 << len(self._certain)) - 1
        start = (0, 0, self._start)
        known = {start}
        path = [(start, self._next(*start))]
        while path:
            (done, _, __), choices = path[-1]
            if done == everything:
                return True
            for node in choices:
                if node not in known:
                    known.add(node)
                    if len(known) > STEPS_MAX:
                        raise Undecided(f"{len(known)} states were not enough")
                    if node[0].bit_count() > self.deepest.bit_count():
                        self.deepest = node[0]
                    path.append((node, self._next(*node)))
                    break
            else:
                path.pop()
        return None

    def _candidates(self, done):
        """Which of the certain operations may come next: nobody's end lies before their beginning."""
        found, watermark = [], math.inf
        first = (~done & (done + 1)).bit_length() - 1
        for i in range(first, len(self._certain)):
            one = self._certain[i]
            if one.begun > watermark:
                break
            if not done >> i & 1:
                found.append(i)
                watermark = min(watermark, one.ended)
        found.sort(key=lambda i: self._certain[i].ended)
        return [i for i in found if self._certain[i].begun <= watermark], watermark

    def _next(self, done, used, state):
        candidates, watermark = self._candidates(done)
        for i in candidates:
            after = self._after(self._certain[i], state)
            if after is not None:
                yield done | 1 << i, used, after
        for i, one in enumerate(self._writes):
            if used >> i & 1 or one.begun > watermark or one.token < state.fence:
                continue
            after = State(one.token, one.value)
            if self._readers[one.value] & ~done:
                yield done, used | 1 << i, after
            elif not self._is_lane:
                yield from self._explain_refusals(done, used | 1 << i, state, after, candidates)
        for one in self._raises:
            if one.begun <= watermark and one.token > state.fence:
                yield from self._explain_refusals(done, used, state, State(one.token, state.value), candidates)

    def _explain_refusals(self, done, used, before, after, candidates):
        """Refusals that are none before, and are ones after."""
        for i in candidates:
            one = self._certain[i]
            if one.outcome == "stale" and before.fence <= one.token < after.fence:
                yield done | 1 << i, used, after

    @staticmethod
    def _after(one, state):
        """The state after this operation; None where it cannot come now."""
        if one.kind == "look":
            return state if one.seen == state.value else None
        if one.outcome == "stale":
            return state if state.fence > one.token else None
        if one.token < state.fence or (one.kind == "read" and one.seen != state.value):
            return None
        return State(one.token, one.value if one.kind == "write" else state.value)

    def tell(self):
        """The operations around those that no order explains."""
        stuck, _ = self._candidates(self.deepest)
        last = [one for i, one in enumerate(self._certain) if self.deepest >> i & 1][-8:]
        return [one.line for one in last], [self._certain[i].line for i in stuck]


def groundless(operations):
    """Refusals in a lane before which no higher token was sent."""
    begun = sorted((one.begun, one.token) for one in operations if one.kind != "look")
    found, highest, i = [], 0, 0
    for one in sorted((one for one in operations if one.outcome == "stale"), key=lambda one: one.ended):
        while i < len(begun) and begun[i][0] <= one.ended:
            highest = max(highest, begun[i][1])
            i += 1
        if highest <= one.token:
            found.append(one.line)
    return found


def violation(lines, model, start=None):
    """What is wrong with the operations of one resource, as a sentence; '' if nothing is."""
    operations = [Operation(line) for line in lines]
    is_lane = {"transaction": False, "lane": True}[model]
    if is_lane and (wrong := groundless(operations)):
        return f"refused as stale before a higher token was sent: {wrong[0]}"
    search = Search(operations, is_lane, State(0, start))
    if search.run():
        return ""
    last, stuck = search.tell()
    return "no order explains the history; after\n  " + "\n  ".join(map(json.dumps, last)) + \
        "\nnone of these can come next\n  " + "\n  ".join(map(json.dumps, stuck))


def check(lines, model):
    """The violations in a history of many resources, each behind its resource's name."""
    by_resource = collections.defaultdict(list)
    for line in lines:
        by_resource[line["resource"]].append(line)
    found = {name: violation(own, model) for name, own in sorted(by_resource.items())}
    return [f"{name}: {what}" for name, what in found.items() if what]


def check_file(path):
    with open(path, encoding="utf-8") as file:
        head, *lines = (json.loads(line) for line in file)
    return check(lines, head["model"])


def main():
    is_good = True
    for path in sys.argv[1:]:
        found = check_file(path)
        print(f"{path}: {'linearizable' if not found else 'NOT LINEARIZABLE'}", *found, sep="\n", flush=True)
        is_good = is_good and not found
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
