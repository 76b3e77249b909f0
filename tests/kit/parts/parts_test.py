"""The parts of a file of tests: nothing is lost between them, and nothing runs twice."""

import contextlib
import io
import itertools
import unittest
from unittest import mock

import parts


def file_of_tests():
    """Two classes of 21 tests each, one of which has one form."""

    class First(unittest.TestCase):
        def test_alone(self):
            pass

        test_alone.has_one_form = True

    class Second(First):
        pass

    for number in range(20):
        setattr(First, f"test_{number}", lambda self: None)
    return First, Second


def names_of(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from names_of(test)
        else:
            yield test.id()


class Parts(unittest.TestCase):
    def part(self, form=None, commit="", index=0, count=1):
        cases = unittest.TestSuite(map(unittest.defaultTestLoader.loadTestsFromTestCase, file_of_tests()))
        with (mock.patch.object(parts, "COMMIT", commit),
              mock.patch.dict("os.environ", {"GTEST_SHARD_INDEX": str(index), "GTEST_TOTAL_SHARDS": str(count)})):
            return list(names_of(parts.Loader(form)._chosen(cases)))

    def test_shards_are_all_tests_and_each_once(self):
        dealt = itertools.chain(*(self.part(index=index, count=3) for index in range(3)))
        self.assertEqual(sorted(dealt), sorted(self.part()))
        self.assertEqual(len(self.part()), 42)

    def test_a_commit_runs_each_test_in_one_form_others_in_the_other(self):
        seen = {0: set(), 1: set()}
        for commit in map(str, range(40)):
            halves = [self.part(form, commit) for form in (0, 1)]
            common = {name for name in halves[0] if name in halves[1]}
            self.assertEqual({name.rpartition(".")[2] for name in common}, {"test_alone"})
            self.assertEqual({*halves[0], *halves[1]}, set(self.part()))
            seen = {form: names | set(halves[form]) for form, names in seen.items()}
        self.assertEqual(seen, {0: set(self.part()), 1: set(self.part())})

    def test_without_a_commit_all_run_in_both_forms(self):
        self.assertEqual(self.part(0), self.part(1))
        for commit, rounds in (("", 300), ("1", 100)):
            with mock.patch.object(parts, "COMMIT", commit):
                self.assertEqual(parts.rounds(300), rounds)

    def test_halves_of_a_program_complement_each_other_in_shards(self):
        with mock.patch.object(parts, "COMMIT", "1"), contextlib.redirect_stderr(io.StringIO()):
            dealt = []
            for index, form in itertools.product(range(3), range(2)):
                with mock.patch.dict("os.environ", {"GTEST_SHARD_INDEX": str(index), "GTEST_TOTAL_SHARDS": "3"}):
                    asked = parts.halved("program", form)
                dealt += [i for i in range(50) if i % int(asked["GTEST_TOTAL_SHARDS"]) == int(asked["GTEST_SHARD_INDEX"])]
        self.assertEqual(sorted(dealt), list(range(50)))


if __name__ == "__main__":
    unittest.main()
