"""The campaign, each scenario once, with a seed that is printed; and that it fails where it would prove nothing.

For a change half of the scenarios, chosen by the commit (kit/parts).
"""

import json
import os
import pathlib
import re
import shutil
import tempfile
import unittest
from unittest import mock

import page
import parts
import runs
import storages
from cycle import Cycle, Nothing, history_of, lost_updates, violations_in
from scenarios import SCENARIOS, Scenario

REDIS_OR_POSTGRES = ("redis", "postgres")


class Campaign(unittest.TestCase):
    def run_each_once(self, keys):
        names = [f"{key}/{name}" for key in keys for name in SCENARIOS[key]]
        plan = runs.Plan(only=[name for name in names if not parts.COMMIT or parts.form_of(name)])
        print(f"seed {plan.seed}, {len(plan.only)} of {len(names)} scenarios", flush=True)
        report = runs.Report(seed=plan.seed)
        self.assertTrue(runs.run(plan, report))
        print(report.text(), flush=True)
        self.assertEqual(report.failures, [])
        self.assertTrue(report.is_well())

    def test_each_scenario_of_redis_and_postgres_once(self):
        self.run_each_once([key for key in SCENARIOS if key.startswith(REDIS_OR_POSTGRES)])

    def test_each_scenario_of_the_others_once(self):
        self.run_each_once([key for key in SCENARIOS if not key.startswith(REDIS_OR_POSTGRES)])


class WhereItProvesNothing(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="fenceguard-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def report_of(self, *only, cycles=1, path=None):
        plan = runs.Plan(cycles=cycles, only=only, histories=self.folder)
        report = runs.Report(path, plan.seed)
        self.assertTrue(runs.run(plan, report))
        return report

    def test_a_server_that_does_not_start_is_a_failure(self):
        with mock.patch.dict(os.environ, {"FENCEGUARD_REDIS_SERVER": "/bin/false"}):
            report = self.report_of("redis/pauses")
        self.assertTrue(any("did not start" in failure for failure in report.failures), report.failures)
        self.assertFalse(report.is_well())

    def test_without_a_guard_violations_and_lost_updates_are_found(self):
        with storages.Redis() as storage:
            cycle = Cycle(storage, self.folder, "unguarded", 1, is_guarded=False, **runs.CONTROL_OPTIONS)
            cycle.run()
            operations, log = cycle.operations(), cycle.log()
        self.assertGreater(lost_updates(log), 0)
        self.assertTrue(runs.broken_updates(log))
        path = os.path.join(self.folder, "history")
        with open(path, "w", encoding="utf-8") as file:
            file.write(history_of(operations, log))
        self.assertIn("violation: ", violations_in(path))

    def test_clients_that_never_stop_or_absent_faults_are_failures(self):
        with storages.Redis() as storage:
            cycle = Cycle(storage, self.folder, "quiet", 1, operations=5, pause=0)
            cycle.run()
            with self.assertRaises(Nothing):
                runs.require_injected(cycle, "pauses")
            cycle.injected["pauses"] = 1
            runs.require_injected(cycle, "pauses")
            with self.assertRaises(Nothing):
                runs.require_injected(cycle, "link")

            place = os.path.join(self.folder, "late")
            os.mkdir(place)
            never = Scenario(lambda cycle: cycle.await_progress(1000, 1000))
            late = Cycle(storage, place, "late", 1, operations=1, scenario=never)
            with self.assertRaises(Nothing):
                late.run()

    def test_a_control_that_loses_too_little_is_a_failure(self):
        runs.require_lost("name", 5, 100)
        with self.assertRaises(Nothing):
            runs.require_lost("name", 4, 100)

    def test_it_goes_on_from_its_progress(self):
        path = os.path.join(self.folder, "progress.json")
        for cycles in (1, 2, 2):
            report = self.report_of("redis/pauses", cycles=cycles, path=path)
            self.assertEqual([row["cycles"] for row in report.rows.values()], [cycles])
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
        self.assertEqual((kept["rows"][0]["cycles"], len(kept["seeds"])), (2, 2))


class Page(unittest.TestCase):
    def test_it_names_tests_that_there_are_for_each_storage(self):
        lists = pathlib.Path(__file__).resolve().parents[2].rglob("CMakeLists.txt")
        there = set(re.findall(r"[a-z]+_\w+", " ".join(path.read_text(encoding="utf-8") for path in lists)))
        self.assertEqual({name for names in page.TESTS.values() for name in names} - there, set())
        self.assertEqual({kind.name for kind in runs.STORAGES.values()}, set(page.TESTS))


if __name__ == "__main__":
    parts.main()
