"""The alert rules: each fires and stays quiet as alerts_test.yml says, and leads to a section that says what to do."""

import re
import subprocess
import unittest

import yaml
from manifests import DEPLOY, ROOT
from server_process import program

RULES = DEPLOY / "prometheus" / "alerts.yml"
TESTS = DEPLOY / "prometheus" / "alerts_test.yml"
LIMIT_S = 120


def rules():
    return [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


class Alerts(unittest.TestCase):
    def promtool(self, *arguments):
        done = subprocess.run([program("promtool"), *arguments], cwd=RULES.parent, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_they_are_well_formed(self):
        self.promtool("check", "rules", RULES.name)
        self.promtool("check", "config", "prometheus.yml")

    def test_they_fire_when_they_should_and_not_else(self):
        self.promtool("test", "rules", TESTS.name)

    def test_each_is_seen_to_fire_by_a_test(self):
        fired = set(re.findall(r'alertname="(\w+)"', TESTS.read_text(encoding="utf-8")))
        self.assertEqual({rule["alert"] for rule in rules()}, fired)

    def test_each_says_what_it_is_and_what_to_do(self):
        for rule in rules():
            self.assertEqual(set(rule["annotations"]), {"summary", "description", "action", "runbook"}, rule["alert"])
            self.assertIn(rule["labels"]["severity"], ("warning", "critical"))
            page, anchor = rule["annotations"]["runbook"].split("#")
            self.assertEqual(anchor, rule["alert"].lower())
            self.assertIn(f"\n## {rule['alert']}\n", (ROOT / page).read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
