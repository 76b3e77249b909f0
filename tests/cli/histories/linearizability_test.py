"""The checker of histories is shown histories that are good, and the same with one thing planted that must not be."""

import copy
import random
import unittest

from linearizability import violation

HISTORIES = 60
OPERATIONS = 60
CLIENTS = 5


def one(kind, token, begun, ended, outcome="done", **more):
    return {"resource": "r", "kind": kind, "token": token, "begun": begun, "ended": ended, "outcome": outcome, **more}


def write(token, value, begun, ended, outcome="done"):
    return one("write", token, begun, ended, outcome, value=value)


def read(token, seen, begun, ended):
    return one("read", token, begun, ended, seen=seen)


def look(seen, begun, ended):
    return {"resource": "r", "kind": "look", "begun": begun, "ended": ended, "outcome": "done", "seen": seen}


class Guarded:
    """A resource that is what it should be: each operation is one step at a moment within its time."""

    def __init__(self, chooser):
        self._chooser = chooser
        self._fence, self._value, self._tokens = 0, None, 0
        self._lost = []  # writes of which nobody was told; they may take effect later
        self.lines = []

    def record(self):
        now = [0.0] * CLIENTS
        held = [0] * CLIENTS
        plans = []
        for number in range(OPERATIONS):
            client = self._chooser.randrange(CLIENTS)
            if held[client] == 0 or self._chooser.random() < 0.2:
                self._tokens += 1
                held[client] = self._tokens
            begun = now[client] + self._chooser.random()
            ended = begun + 3 * self._chooser.random()
            now[client] = ended
            kind = self._chooser.choice(["write", "write", "read", "read", "look", "advance"])
            line = one(kind, held[client], begun, ended, value=f"v{number}" if kind == "write" else None)
            plans.append((self._chooser.uniform(begun, ended), line))
        for _, line in sorted(plans, key=lambda plan: plan[0]):
            self._step(line)
        return self.lines

    def _step(self, line):
        self.lines.append(line)
        if self._lost and self._chooser.random() < 0.1:
            self._apply(self._lost.pop())
        if line["kind"] == "look":
            del line["token"]
            line["seen"] = self._value
        elif line["kind"] == "write" and self._chooser.random() < 0.1:
            line["outcome"] = "unknown"
            self._lost.append(line)
        elif line["token"] < self._fence:
            line["outcome"] = "stale"
        else:
            self._apply(line)

    def _apply(self, line):
        if line["token"] < self._fence:
            return
        self._fence = line["token"]
        if line["kind"] == "write":
            self._value = line["value"]
        elif line["kind"] == "read":
            line["seen"] = self._value


class Linearizability(unittest.TestCase):
    def expect(self, is_good, lines, models=("transaction", "lane"), start=None):
        for model in models:
            found = violation(lines, model, start)
            self.assertEqual(is_good, not found, f"{model}: {found or lines}")

    def test_what_happens_at_once_has_an_order(self):
        self.expect(True, [write(1, "a", 0, 9), write(1, "b", 1, 8), read(1, "b", 2, 3), read(1, "a", 4, 5)])
        self.expect(False, [write(1, "a", 0, 1), write(1, "b", 2, 3), read(1, "a", 4, 5)])

    def test_a_fenced_read_of_what_a_newer_token_wrote_is_caught(self):
        history = [write(3, "three", 0, 1), write(4, "four", 3, 4)]
        self.expect(True, [*history, read(3, "three", 2, 5)])
        self.expect(False, [*history, read(3, "four", 2, 5)])
        self.expect(True, [*history, look("four", 2, 5)])

    def test_a_stale_write_is_caught(self):
        for admitted in (one("advance", 4, 0, 1), read(4, None, 0, 1), write(4, "four", 0, 1)):
            self.expect(False, [admitted, write(3, "late", 2, 3)])
        self.expect(True, [one("advance", 4, 0, 1), write(3, "early", 0, 3)])

    def test_write_of_unknown_outcome_happens_later_once_or_never(self):
        history = [write(3, "lost", 0, 1, "unknown"), look(None, 2, 3)]
        self.expect(True, history)
        self.expect(True, [*history, look("lost", 4, 5)])
        self.expect(False, [*history, look("lost", 4, 5), look(None, 6, 7)])
        self.expect(False, [*history, read(4, None, 4, 5), look("lost", 6, 7)])
        self.expect(False, [*history, look("lost", 4, 5), write(3, "x", 6, 7), look("lost", 8, 9)])

    def test_an_acknowledged_write_that_vanishes_is_caught(self):
        self.expect(False, [write(3, "gone", 0, 1), read(3, None, 2, 3)])
        self.expect(False, [write(3, "gone", 0, 1), look("never written", 2, 3)])

    def test_a_refused_write_that_took_effect_is_caught(self):
        for outcome in ("stale", "nothing"):
            self.expect(False, [write(4, "four", 0, 1), write(3, "late", 2, 3, outcome), look("late", 4, 5)])

    def test_a_refusal_needs_a_higher_token(self):
        refused = write(3, "x", 2, 3, "stale")
        self.expect(False, [write(3, "a", 0, 1), refused])
        for outcome in ("unknown", "nothing"):
            self.expect(True, [write(4, "a", 0, 1, outcome), refused])
        self.expect(False, [write(4, "a", 4, 5), refused])
        self.expect(True, [one("advance", 4, 0, 1, "unknown"), refused])

    def test_lane_write_may_end_after_a_refusal_but_no_admission(self):
        history = [write(3, "three", 0, 9), write(4, "four", 1, 2, "nothing"), write(2, "x", 3, 4, "stale"),
                   look(None, 5, 6), look("three", 7, 8)]
        self.expect(False, history, ["transaction"])
        self.expect(True, history, ["lane"])
        self.expect(True, [*history, write(3, "y", 4, 5, "stale")], ["lane"])
        self.expect(False, [*history, read(4, None, 4, 5)], ["lane"])

    def test_recorded_histories_pass_and_altered_ones_fail(self):
        seed = random.randrange(2**32)
        print(f"seed {seed}", flush=True)
        planted = 0
        for number in range(HISTORIES):
            chooser = random.Random(seed + number)
            lines = Guarded(chooser).record()
            with self.subTest(seed=seed + number):
                self.expect(True, lines)
                for plant in (self.plant_a_newer_value, self.plant_an_older_value, self.plant_a_stale_write):
                    wrong = plant(copy.deepcopy(lines))
                    if wrong:
                        planted += 1
                        self.expect(False, wrong)
        self.assertGreater(planted, HISTORIES)

    @staticmethod
    def plant_a_newer_value(lines):
        """A fenced read is answered what a higher token wrote."""
        for line in lines:
            newer = [other["value"] for other in lines if other["kind"] == "write" and other["outcome"] == "done"
                     and other["token"] > line.get("token", 0)]
            if line["kind"] == "read" and line["outcome"] == "done" and newer:
                line["seen"] = newer[0]
                return lines
        return None

    @staticmethod
    def plant_an_older_value(lines):
        """A fenced read does not see the write that ended before it began."""
        for line in lines:
            if line["kind"] != "read" or line["outcome"] != "done" or line["seen"] is None:
                continue
            seen = next(other for other in lines if other.get("value") == line["seen"])
            if seen["ended"] < line["begun"] and seen["outcome"] == "done":
                line["seen"] = None
                return lines
        return None

    @staticmethod
    def plant_a_stale_write(lines):
        """A write is told as done after a higher token's operation was."""
        for line in lines:
            higher = [other for other in lines if other["outcome"] == "done" and other["ended"] < line["begun"]
                      and other.get("token", 0) > line.get("token", 0)]
            if line["kind"] == "write" and line["outcome"] == "stale" and higher:
                line["outcome"] = "done"
                return lines
        return None


if __name__ == "__main__":
    unittest.main()
