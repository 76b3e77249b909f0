"""history-check as it is run: what it says of good and bad histories, and of files that are none."""

import json
import os
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["FENCEGUARD_HISTORY_CHECK"]


def write(value, called, returned, /, **changes):
    line = {"op": "write", "resource": "accounts/42", "process": 1, "token": "34", "holder": "h", "value": value,
            "called": called, "returned": returned, "verdict": "admitted", "highest": "34"}
    line.update(changes)
    return json.dumps({name: word for name, word in line.items() if word != "absent"}, separators=(",", ":"))


class HistoryCheck(unittest.TestCase):
    def run_on(self, *lines, options=()):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("\n".join(lines))
            file.flush()
            done = subprocess.run([PROGRAM, *options, file.name], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_a_good_history_is_0(self):
        status, out, err = self.run_on(write("x", 0, 5), write("y", 10, 20), "", '{"applied":"write","resource":'
                                       '"accounts/42","token":"34","value":"x"}',
                                       '{"applied":"write","resource":"accounts/42","token":"34","value":"y"}')
        self.assertEqual((status, err), (0, ""))
        self.assertIn("no violation in 2 operations on 1 resources (0 with an unknown outcome)", out)

    def test_a_violation_is_1_and_a_table(self):
        read = {"op": "read", "process": 2, "value": "x", "token": "absent", "holder": "absent", "highest": "absent"}
        status, out, err = self.run_on(write("x", 0, 5), write("y", 10, 20), write("x", 30, 40, **read),
                                       write("later", 50, 60))
        self.assertEqual((status, err), (1, ""))
        self.assertIn("violation: accounts/42: no-order: no order of the operations", out)
        self.assertIn("returned ns", out)
        self.assertNotIn("later", out)

    def test_several_files_are_judged_each(self):
        with tempfile.TemporaryDirectory() as folder:
            names = [os.path.join(folder, name) for name in ("one", "two")]
            for name, token in zip(names, ("34", "35")):
                with open(name, "w", encoding="utf-8") as file:
                    file.write(write("x", 0, 5) + "\n" + write("y", 10, 20, token=token, verdict="stale") + "\n")
            done = subprocess.run([PROGRAM, *names], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.count("violation: accounts/42: no-reason"), 2)

    def test_what_is_no_history_is_2_with_the_line(self):
        good = write("x", 0, 5)
        for lines, sentence in [
                ((good, good[:40]), "line 2: the line is cut off"),
                ((good, write("y", 10, 20, op="increment")), "line 2: 'increment' of op is not known"),
                ((good, write("y", 10, 20, verdict="perhaps")), "line 2: 'perhaps' of verdict is not known"),
                ((write("x", 0, 5, token="0"),), "line 1: 'token' is a number as a text"),
                ((write("x", 0, 5, token="9223372036854775808"),), "line 1: 'token' is a number as a text"),
                ((write("x", 0, 5, token="034"),), "line 1: 'token' is a number as a text"),
                ((write("x", 0, 5, token=34),), "line 1: 'token' is a text"),
                ((write("x", 0, 5, called=-1),), "line 1: 'called' is a number of nanoseconds"),
                ((good.replace('"called":0', '"called":0.5'),), "line 1: '}' is expected"),
                ((write("x", 0, 5, colour="red"),), "line 1: 'colour' is no field of a history"),
                ((write("x", 0, 5, resource="absent"),), "line 1: 'resource' is missing"),
                ((write("x", 0, 5, token="absent"),), "line 1: 'token' is missing"),
                ((write("x", 0, 5, verdict="absent", highest="absent"),), "line 1: 'returned' without a verdict"),
                ((write("x", 0, "absent"),), "line 1: a verdict was told, so 'returned' is needed"),
                ((good, write("y", 20, 10)), "line 2: returned before it was called"),
                ((good, "", write("y", 3, 20)), "line 3: process 1 is at another operation, of line 1"),
                ((good, write("x", 10, 20)), "line 2: the value 'x' is written twice"),
                (('{"applied":"write","resource":"r","token":"1"}',), "line 1: what was applied has a token and a value"),
                ((good[:-1] + ',"value":"z"}',), "line 1: 'value' is there twice"),
                (("x" * 70_000,), "line 1: longer than 65536 bytes"),
                (("[1]",), "line 1: '{' is expected at column 1"),
                (('{"bound":"1","op":"write"}',), "line 1: a bound is a line of its own"),
                (("",), "holds no operation, so it proves nothing")]:
            status, out, err = self.run_on(*lines)
            self.assertEqual((status, out), (2, ""), lines)
            self.assertIn(sentence, err)

    def test_wrong_usage_is_2(self):
        for words in [(), ("--sideways",), ("/does/not/exist",)]:
            done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, words)
            self.assertNotEqual(done.stderr, "")

    def test_a_long_log_is_judged_by_the_rules_alone(self):
        lines = [write(f"v{i}", i * 10, i * 10 + 5) for i in range(3_000)]
        status, out, _ = self.run_on(*lines)
        self.assertEqual(status, 1)
        self.assertIn("undecided", out)
        self.assertEqual(self.run_on(*lines, options=["--rules-only"])[0], 0)


if __name__ == "__main__":
    unittest.main()
