"""main() runs a test file as unittest.main() does, or the part of it that the environment asks for.

GTEST_TOTAL_SHARDS and GTEST_SHARD_INDEX deal the tests out, as GoogleTest does. FENCEGUARD_CHANGE, the commit that a
change's command is at, asks for half of what runs in two forms: each test in the one or the other, as the commit and its
name decide; and for a third of the rounds of what is repeated at random. What is left out is said.
"""

import os
import sys
import unittest
import zlib

COMMIT = os.environ.get("FENCEGUARD_CHANGE", "")


def form_of(name):
    """0 or 1: in which form a test runs for this commit."""
    return zlib.crc32(f"{COMMIT} {name}".encode()) & 1


def rounds(count):
    """How many of so many random rounds are made."""
    return count // 3 if COMMIT else count


def shard():
    """The index of this shard, and how many there are."""
    return int(os.environ.get("GTEST_SHARD_INDEX", "0")), int(os.environ.get("GTEST_TOTAL_SHARDS", "1"))


def halved(name, form):
    """The environment in which a program of GoogleTest runs those of its tests that are of this form for this commit."""
    if not COMMIT:
        return {}
    index, count = shard()
    half = form_of(name) ^ form
    print(f"{name}: half {half + 1} of 2, chosen by commit {COMMIT[:12]}; its twin runs the other", file=sys.stderr, flush=True)
    return {"GTEST_TOTAL_SHARDS": str(2 * count), "GTEST_SHARD_INDEX": str(index + half * count)}


class Loader(unittest.TestLoader):
    def __init__(self, form):
        super().__init__()
        self.form = form
        self.count = 0

    def loadTestsFromModule(self, *arguments, **options):
        found = super().loadTestsFromModule(*arguments, **options)
        chosen = self._chosen(found)
        if chosen.countTestCases() < self.count:
            index, count = shard()
            twin = f", form {self.form + 1} of 2 by commit {COMMIT[:12]}" if COMMIT and self.form is not None else ""
            print(f"{chosen.countTestCases()} of {self.count} tests: shard {index + 1} of {count}{twin}", file=sys.stderr, flush=True)
        return chosen

    def _chosen(self, suite):
        """Of each class, so that what its tests share is made once."""
        chosen = unittest.TestSuite()
        for test in suite:
            if isinstance(test, unittest.TestSuite):
                chosen.addTest(self._chosen(test))
                continue
            index, count = shard()
            is_dealt = self.count % count == index
            self.count += 1
            has_one_form = self.form is None or getattr(getattr(test, test._testMethodName), "has_one_form", False)
            is_of_form = not COMMIT or has_one_form or form_of(test.id().partition(".")[2]) == self.form
            if is_dealt and is_of_form:
                chosen.addTest(test)
        return chosen


def main(form=None):
    """form: 0 or 1, for a file that runs in two."""
    unittest.main(testLoader=Loader(form))
