"""costs.tsv: what it names is there, and ctest goes by it."""

import os
import pathlib
import subprocess
import unittest

import costs

BUILD = pathlib.Path(os.environ["FENCEGUARD_BUILD"])


class Costs(unittest.TestCase):
    def test_each_line_is_of_an_entry(self):
        """Written anew by costs.py."""
        self.assertEqual(set(costs.read()) - costs.entries(BUILD), set())

    def test_ctest_has_the_cost_of_each_entry(self):
        done = subprocess.run(["ctest", "--show-only=json-v1"], cwd=BUILD, stdout=subprocess.PIPE, check=True)
        known = costs.read()
        for test in costs.json.loads(done.stdout)["tests"]:
            cost = {entry["name"]: entry["value"] for entry in test["properties"]}.get("COST")
            self.assertEqual(cost, known.get(test["name"], 30), test["name"])

    def test_both_kinds_of_logs_are_read(self):
        said = "  1/3 Test  #17: proof_one .....   Passed    9.61 sec\n  2/3 Test #222: two_test ...***Failed   27.03 sec\n"
        written = "1/2 Testing: three\n1/2 Test: three\nCommand: ...\nOutput:\nTest time =  99.00 sec or so\n" \
                  "<end of output>\nTest time =   0.52 sec\n----\n"
        self.assertEqual(costs.said(said), {"proof_one": 10, "two_test": 27})
        self.assertEqual(costs.said(written), {"three": 1})


if __name__ == "__main__":
    unittest.main()
