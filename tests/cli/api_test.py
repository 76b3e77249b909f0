"""docs/openapi.yaml: served as it is, and held to by every answer that the tests see. --write makes openapi.json anew."""

import copy
import json
import sys
import unittest

import api_description
import support

SERVED = api_description.PATH.with_suffix(".json")
TEXT = json.dumps(api_description.DOCUMENT, separators=(",", ":"), ensure_ascii=False) + "\n"


class Description(support.BinaryTest):
    def test_what_is_served_is_what_is_written(self):
        self.assertEqual(SERVED.read_text(encoding="utf-8"), TEXT,
                         "run PYTHONPATH=tests/kit FENCEGUARD_BINARY= python3 tests/cli/api_test.py --write")
        tokens = self.write_private("tokens", "admin 8d2e64f1c07b4b9c95aa\n")
        server = self.serve("--storage", "sqlite:guard.db", "--init", "--control-token-file", tokens,
                            "--probe", "127.0.0.1:0")
        answer = server.call("GET", "/v1/openapi.json")
        self.assertEqual((answer.status, answer.json), (200, api_description.DOCUMENT))
        self.assertEqual(server.call("HEAD", "/v1/openapi.json").status, 200)
        self.assertEqual(server.call("POST", "/v1/openapi.json").headers["allow"], "GET, HEAD")
        self.assertEqual(server.call("GET", "/v1/fences").status, 401)
        probe = server.line.split("probe=")[1].strip()
        self.assertEqual(support.request(probe, "GET", "/v1/openapi.json").status, 404)

    def test_its_version_is_the_programs(self):
        self.assertIn(f"fenceguard {api_description.DOCUMENT['info']['version']}\n", self.expect(0, "--version").stdout)


class Check(support.BinaryTest):
    """What is not described fails: a good answer with one thing changed."""

    def setUp(self):
        super().setUp()
        server = self.serve("--storage", "sqlite:guard.db", "--init")
        self.lease = server.lease("accounts/42")
        self.held = server.lease("accounts/42")
        self.missing = server.request("PUT", "/accounts/42", body="1")

    def assert_fails(self, side, method, target, answer, **changes):
        api_description.check(side, method, target, answer)
        changed = copy.deepcopy(answer)
        for name, value in changes.items():
            setattr(changed, name, value)
        with self.assertRaisesRegex(AssertionError, "docs/openapi.yaml"):
            api_description.check(side, method, target, changed)

    def body(self, answer, **members):
        body = {**answer.json, **members}
        return json.dumps({name: value for name, value in body.items() if value is not None},
                          separators=(",", ":")).encode()

    def fields(self, answer, name, value):
        fields = {**answer.headers, name: value}
        return {name: value for name, value in fields.items() if value is not None}

    def test_a_member_more_or_less_or_of_another_type_fails(self):
        for members in ({"secret": "x"}, {"token": None}, {"token": 1}, {"holder": None}):
            with self.subTest(members=members):
                self.assert_fails("control", "POST", "/v1/leases", self.lease, body=self.body(self.lease, **members))

    def test_a_status_that_is_not_described_fails(self):
        self.assert_fails("control", "POST", "/v1/leases", self.lease, status=202)

    def test_a_problem_of_no_known_type_or_another_status_fails(self):
        for members in ({"type": "urn:fenceguard:problem:other"}, {"status": 418}):
            with self.subTest(members=members):
                self.assert_fails("control", "POST", "/v1/leases", self.held, body=self.body(self.held, **members))

    def test_verdicts_that_differ_or_are_missing_fail(self):
        self.assertEqual(self.missing.status, 428)
        request = ("data", "PUT", "/accounts/42", self.missing)
        self.assert_fails(*request, headers=self.fields(self.missing, "fencing-verdict", "stale"))
        self.assert_fails(*request, headers=self.fields(self.missing, "fencing-verdict", None))
        self.assert_fails(*request, body=self.body(self.missing, verdict=None))

    def test_a_success_of_no_call_and_another_media_type_fail(self):
        answer = copy.deepcopy(self.lease)
        with self.assertRaisesRegex(AssertionError, "not described"):
            api_description.check("control", "POST", "/v1/other", answer)
        self.assert_fails("control", "POST", "/v1/leases", self.lease,
                          headers=self.fields(self.lease, "content-type", "text/html"))


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        SERVED.write_text(TEXT, encoding="utf-8")
    else:
        unittest.main()
