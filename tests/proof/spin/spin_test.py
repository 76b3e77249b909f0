"""The designs in Promela, searched in full by Spin: what the product does has no error, and each variant in which one part
of it is missing has one.
"""

import pathlib
import re
import subprocess
import tempfile
import unittest

import parts

FOLDER = pathlib.Path(__file__).resolve().parent
BROKEN = {"lane": ("TWO_STEPS", "MEMORY_ONLY", "NO_DRAIN", "NO_HOLDER", "NO_SETTLE", "NO_MARK"),
          "sql": ("TWO_STEPS", "MEMORY_ONLY", "NO_DRAIN", "NO_HOLDER"),
          "quorum": ("MEMORY_ONLY", "ONE_ROUND", "NO_NUMBER", "MINORITY")}


def search(model, *variants, options=()):
    """How many errors Spin finds, in which states, and what it says. options: of the search, for gcc."""
    with tempfile.TemporaryDirectory() as folder:
        def run(*words):
            done = subprocess.run(words, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            if done.returncode != 0:
                raise AssertionError(f"{words} failed: {done.stdout}")
            return done.stdout
        run("spin", "-a", *(f"-D{name}" for name in variants), str(FOLDER / f"{model}.pml"))
        run("gcc", "-O2", "-DSAFETY", *options, "-w", "-o", "pan", "pan.c")
        output = run("./pan", "-m1000000")
    errors = int(re.search(r"errors: (\d+)", output).group(1))
    states = int(re.search(r"(\d+) states, stored", output).group(1))
    return errors, states, output


class Spin(unittest.TestCase):
    def check(self, least, model, *variants, options=()):
        errors, states, output = search(model, *variants, options=options)
        self.assertEqual(errors, 0, output)
        self.assertNotRegex(output, "max search depth too small|Search not completed|out of memory")
        self.assertGreater(states, least)

    def test_the_design_has_no_error_in_any_state(self):
        for model in BROKEN:
            with self.subTest(model):
                self.check(10_000, model)

    def test_three_takers_without_the_late_message(self):
        """In a gigabyte: each part of a state is kept once."""
        self.check(10_000_000, "quorum", "TAKERS=3", "NO_LATE", options=["-DCOLLAPSE"])

    def test_each_missing_part_is_an_error(self):
        for model, variants in BROKEN.items():
            for variant in variants:
                with self.subTest(model, variant=variant):
                    errors, _, output = search(model, variant)
                    self.assertEqual(errors, 1, output)
                    self.assertRegex(output, "assertion violated")


if __name__ == "__main__":
    parts.main()
