"""Every scenario of clients/conformance.json, against real servers, by one client: FENCEGUARD_CLIENT_DRIVER is the
command that starts its driver, with its arguments, as a shell takes it apart."""

import json
import os
import pathlib
import shlex
import unittest

import support
from scenario import Scenario

SCENARIOS = pathlib.Path(__file__).resolve().parents[2] / "clients" / "conformance.json"
# In turn: digits of their own, and an 'i' without a dot; a clock an uneven time away from UTC. Java asks no LC_ALL.
LOCALES = (("ar", "EG", "Africa/Cairo"), ("fa", "IR", "Asia/Tehran"), ("tr", "TR", "Asia/Kathmandu"))
DRIVER = shlex.split(os.environ["FENCEGUARD_CLIENT_DRIVER"])


class Conformance(support.BinaryTest):
    """One test per scenario."""

    def run_scenario(self, data, locale):
        language, country, zone = locale
        Scenario(self, data, DRIVER, {
            "LC_ALL": f"{language}_{country}.UTF-8", "TZ": zone,
            "JAVA_TOOL_OPTIONS": f"-Duser.language={language} -Duser.country={country}"}).run()


def add_tests():
    for number, data in enumerate(json.loads(SCENARIOS.read_text(encoding="utf-8"))["scenarios"]):
        def test(self, data=data, locale=LOCALES[number % len(LOCALES)]):
            self.run_scenario(data, locale)
        test.__doc__ = data["shows"]
        setattr(Conformance, "test_" + data["name"].replace("-", "_"), test)


class WhatBringsNothingAbout(support.BinaryTest):
    """The scenarios' own test: a fault that does not take place is noticed."""

    CLIENTS = {"a": {}}
    ACQUIRE = {"client": "a", "do": "acquire", "resource": "a", "ttl_ms": 60000, "gives": {"outcome": "granted"}}

    def expect_failure(self, words, *steps):
        with self.assertRaisesRegex(AssertionError, words):
            Scenario(self, {"name": "none", "clients": self.CLIENTS, "steps": [self.ACQUIRE, *steps]}, DRIVER).run()

    def test_a_scenario_without_fault_or_refusal_fails(self):
        self.expect_failure("it brought nothing about")

    def test_a_fault_that_met_no_request_fails(self):
        cut = {"fault": "cut-request", "side": "data", "method": "PUT"}
        self.expect_failure("cut-request did not take place", cut)

    def test_another_outcome_fails(self):
        self.expect_failure("'outcome' in", {"client": "a", "do": "read", "gives": {"outcome": "stale"}})


add_tests()

if __name__ == "__main__":
    unittest.main()
