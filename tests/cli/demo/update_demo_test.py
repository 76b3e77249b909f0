"""The scenarios of a late write on the embedded storage: lost-update and read-before-advance."""

import unittest

from demo_case import DemoTest


class LateWrite(DemoTest):
    def require_lost_and_saved(self, scenario):
        without, with_, report = self.report(scenario)
        self.assertEqual((without["verdict_a"], without["verdict_b"], without["b_overwrote"]),
                         ("admitted", "admitted", "1"))
        self.assertEqual((without["balance"], without["expected"]), ("130", "180"))
        self.assertEqual((with_["verdict_a"], with_["verdict_b"], with_["b_overwrote"]), ("stale", "admitted", "0"))
        self.assertEqual(with_["balance"], with_["expected"])
        for facts in (without, with_):
            self.assertGreater(int(facts["token_b"]), int(facts["token_a"]))
        self.assertEqual(len(self.refusals(report)), 1)
        return report

    def test_lost_update(self):
        self.require_lost_and_saved("lost-update")
        self.assertIn("A's update, which was acknowledged", " ".join(self.require_text_and_page("lost-update").split()))

    def test_read_before_advance_loses_despite_tokens(self):
        report = self.require_lost_and_saved("read-before-advance")
        writes = [event for event in report["round"]["events"] if event.get("event") == "written"]
        self.assertEqual([event["client"] for event in writes], ["A", "B"])
        self.assertTrue(all("token" in event for event in writes))

    def test_read_before_advance_names_what_the_first_run_lacks(self):
        done = self.demo("read-before-advance", "--timeline", "page.html")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        for part in ("1. WITHOUT THE ADVANCE", "2. WITH THE ADVANCE", "with the advance:    the account holds 180"):
            self.assertIn(part, done.stdout)

    def test_they_are_listed(self):
        self.require_listed("lost-update", "read-before-advance")

    def test_a_signal_in_the_middle_leaves_nothing(self):
        self.require_clean_interruption("lost-update", self.has_two_servers)


if __name__ == "__main__":
    unittest.main()
