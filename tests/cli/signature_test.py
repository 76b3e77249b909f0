"""Signed claims as a user meets them: 'serve --claim-key --require-signature', and clients with and without the key."""

import base64
import hashlib
import hmac
import os
import signal
import unittest

import support
import upstream_server
from waiting import wait_until

HIGHEST = "9223372036854775807"


def key_line(name, secret):
    return f"{name} {base64.urlsafe_b64encode(secret).rstrip(b'=').decode()}\n"


def signature(name, secret, resource, token, holder, space="fenceguard"):
    """As the docs describe it, made without fenceguard."""
    text = b"".join(b"%d:%s," % (len(part), part) for part in
                    (part.encode() for part in (space, resource, token, holder)))
    code = hmac.new(secret, text, hashlib.sha256).digest()
    return f"{name}.{base64.urlsafe_b64encode(code).rstrip(b'=').decode()}"


def fields(lease, **changed):
    lease = {**lease, **changed}
    found = {"Fencing-Token": lease["token"], "Fencing-Holder": lease["holder"]}
    if lease.get("signature") is not None:
        found["Fencing-Signature"] = lease["signature"]
    return found


class Signatures(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.secret, self.other = os.urandom(32), os.urandom(64)
        self.keys = self.write_private("keys", "# ours\n" + key_line("k1", self.secret))
        self.server = self.serve("--claim-key", self.keys, "--require-signature")

    def acquire(self, resource="accounts/42", holder="mine"):
        answer = self.server.lease(resource, holder=holder)
        self.assertEqual(answer.headers["fencing-signature"], answer.json["signature"])
        return answer.json

    def put(self, headers, body="70"):
        return self.server.request("PUT", "/accounts/42", headers, body)

    def assert_unsigned(self, answer):
        self.assertEqual(answer.status, 401, answer)
        self.assertEqual(answer.json["type"], "urn:fenceguard:problem:unsigned")
        self.assertEqual(answer.headers["fencing-verdict"], "unsigned")

    def test_a_granted_claim_is_signed_as_the_docs_say(self):
        lease = self.acquire()
        self.assertEqual(lease["signature"],
                         signature("k1", self.secret, "accounts/42", lease["token"], "mine"))
        self.assertEqual(self.put(fields(lease)).status, 201)

    def test_a_forged_claim_is_401_and_moves_no_fence(self):
        lease = self.acquire()
        self.assertEqual(self.put(fields(lease)).status, 201)
        before = self.server.call("GET", "/v1/fences/accounts/42").body
        mine = ("accounts/42", HIGHEST, "mine")
        forged = [None, "", "k1", lease["signature"], signature("k1", self.other, *mine),
                  signature("k2", self.secret, *mine), signature("k1", self.secret, *mine, space="elsewhere"),
                  signature("k1", self.secret, "accounts/43", HIGHEST, "mine"),
                  signature("k1", self.secret, "accounts/42", HIGHEST, "his"),
                  signature("k1", self.secret, *mine) + "="]
        for one in forged:
            with self.subTest(signature=one):
                claim = fields(lease, token=HIGHEST, signature=one)
                self.assert_unsigned(self.put(claim, "mine for ever"))
                self.assert_unsigned(self.server.request("DELETE", "/accounts/42", claim))
                self.assert_unsigned(self.server.request("GET", "/accounts/42", claim))
                self.assert_unsigned(self.server.call("POST", "/v1/fences/accounts/42/advance", claim))
                self.assert_unsigned(self.server.call("PUT", "/v1/leases/accounts/42", claim))
                self.assert_unsigned(self.server.call("DELETE", "/v1/leases/accounts/42", claim))
        self.assertEqual(self.server.call("GET", "/v1/fences/accounts/42").body, before)
        self.assertEqual(self.put(fields(lease), "71").status, 204)
        self.assertIn("verdict=unsigned", self.server.log())
        self.assertNotIn(lease["signature"], self.server.log())

    def reload(self, lines, event):
        count = self.server.log().count(event)
        self.write_private("keys", lines)
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.server.log().count(event) > count, what=event)

    def test_keys_are_changed_with_two_valid_at_a_time(self):
        old = self.acquire()
        self.reload(key_line("k2", self.other) + key_line("k1", self.secret), "event=keys_reloaded")
        self.assertEqual(self.put(fields(old)).status, 201)
        new = self.acquire()
        self.assertEqual(new["token"], old["token"])
        self.assertTrue(new["signature"].startswith("k2."))
        self.reload(key_line("k2", self.other), "event=keys_reloaded")
        self.assert_unsigned(self.put(fields(old)))
        self.assertEqual(self.put(fields(new)).status, 204)

    def test_key_withdrawn_during_a_body_admits_no_more(self):
        lease = self.acquire()
        with self.server.half_sent("PUT", "/accounts/42", fields(lease), "70") as request:
            self.reload(key_line("k2", self.other), "event=keys_reloaded")
            self.assert_unsigned(request.finish())
        self.assertEqual(self.server.request("GET", "/accounts/42").status, 404)

    def test_a_bad_file_leaves_the_old_keys(self):
        lease = self.acquire()
        self.reload("k1 short\n", "event=keys_kept")
        self.assertNotIn("short", self.server.log())
        self.assertEqual(self.put(fields(lease)).status, 201)

    def test_the_command_line_passes_the_signature_on(self):
        way = ["--server", self.server.url]
        lease = self.expect_json(0, "lease", "acquire", *way, "--resource", "accounts/42")
        self.assertEqual(self.put(fields(lease)).status, 201)
        claim = ["--resource", "accounts/42", "--token", lease["token"], "--holder", lease["holder"]]
        signed = [*claim, "--signature", lease["signature"]]
        for command in (["lease", "renew"], ["fence", "advance"], ["lease", "release"]):
            with self.subTest(command=command):
                self.expect(3, *command, *way, *claim)
                self.expect(0, *command, *way, *signed)
        text = self.expect(0, "lease", "acquire", *way, "--resource", "accounts/42").stdout
        self.assertRegex(text, r"(?m)^signature\s+k1\.")

    def test_exec_hands_the_signature_to_its_command(self):
        script = ('curl -sS -o answer -w "%{http_code}" -X PUT --data 70 -H "Fencing-Token: $FENCING_TOKEN" '
                  '-H "Fencing-Holder: $FENCING_HOLDER" -H "Fencing-Signature: $FENCING_SIGNATURE" "$0"')
        process = self.start("exec", "--server", self.server.url, "--resource", "accounts/42", "--ttl", "12s", "--",
                             "sh", "-c", "read go; " + script, f"http://{self.server.data}/accounts/42",
                             stdin=support.subprocess.PIPE)
        shown = []

        def has_been_renewed():
            answer = self.server.call("GET", "/v1/leases/accounts/42")
            shown.extend([answer.json["ttl_ms"]] if answer.status == 200 else [])
            return any(later > earlier for earlier, later in zip(shown, shown[1:]))
        wait_until(has_been_renewed, what="a renewal")
        output, errors = process.communicate("go\n", timeout=support.LIMIT_S)
        self.assertEqual((process.returncode, output), (0, "201"), errors)
        self.assertEqual(self.server.call("GET", "/v1/leases/accounts/42").status, 404)

    def test_a_holder_of_the_key_signs_without_the_server(self):
        self.make_file("leases.db")
        way = ["--source", "sqlite:leases.db", "--claim-key", self.keys]
        lease = self.expect_json(0, "lease", "acquire", *way, "--resource", "accounts/42")
        self.assertEqual(lease["signature"],
                         signature("k1", self.secret, "accounts/42", lease["token"], lease["holder"]))
        self.assertEqual(self.put(fields(lease)).status, 201)
        done = self.expect(0, "exec", *way, "--claim-space", "other", "--resource", "b", "--",
                           "sh", "-c", "echo $FENCING_TOKEN $FENCING_HOLDER $FENCING_SIGNATURE")
        token, holder, signed = done.stdout.split()
        self.assertEqual(signed, signature("k1", self.secret, "b", token, holder, space="other"))

    def test_the_signature_of_an_outer_exec_is_not_inherited(self):
        done = self.expect(0, "exec", "--source", "sqlite:leases.db", "--init", "--resource", "a", "--",
                           "sh", "-c", "echo ${FENCING_SIGNATURE-none}", env={"FENCING_SIGNATURE": "k1.outer"})
        self.assertEqual(done.stdout, "none\n")


class OverAProxy(support.BinaryTest):
    """The proxy asks for the signature of every claim, and nothing else reaches what it stands in front of."""

    def setUp(self):
        super().setUp()
        self.upstream = upstream_server.Server()
        self.addCleanup(self.upstream.remove)
        keys = self.write_private("keys", key_line("k1", os.urandom(32)))
        self.server = self.serve("--storage", self.upstream.url(), "--source", "sqlite:leases.db", "--init",
                                 "--settled", "--claim-key", keys, "--require-signature")

    def test_only_signed_claims_are_forwarded(self):
        lease = self.server.lease("a").json
        for wrong in (fields(lease, signature=None), fields(lease, token=HIGHEST),
                      fields(lease, signature=lease["signature"] + "A")):
            for method in ("PUT", "GET", "DELETE", "MKCOL", "PROPFIND"):
                answer = self.server.request(method, "/a", wrong, "x" if method == "PUT" else None)
                self.assertEqual((answer.status, answer.headers["fencing-verdict"]), (401, "unsigned"), method)
        self.assertEqual(self.upstream.seen(), [])
        self.assertEqual(self.server.request("PUT", "/a", fields(lease), "70").status, 201)
        self.assertNotIn(b"fencing-signature", self.upstream.seen()[0]["head"].lower())

    def test_a_move_needs_both_signatures(self):
        own, other = self.server.lease("a").json, self.server.lease("b").json
        self.assertEqual(self.server.request("PUT", "/a", fields(own), "70").status, 201)
        claim = {**fields(own), "Destination": f"http://{self.server.data}/b",
                 "Fencing-Destination-Token": other["token"], "Fencing-Destination-Holder": other["holder"]}
        for signed in ({}, {"Fencing-Destination-Signature": own["signature"]}):
            self.assertEqual(self.server.request("MOVE", "/a", {**claim, **signed}).status, 401)
        self.assertEqual(len(self.upstream.seen()), 1)
        signed = {**claim, "Fencing-Destination-Signature": other["signature"]}
        self.assertEqual(self.server.request("MOVE", "/a", signed).status, 201)


class Usage(support.BinaryTest):
    def refuse(self, *arguments):
        done = self.expect(2, *arguments)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        return done.stderr

    def test_what_cannot_work_is_a_sentence(self):
        way = ["serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"]
        good = self.write_private("good", key_line("k1", bytes(32)))
        self.assertIn("--claim-key", self.refuse(*way, "--require-signature"))
        self.assertIn("cannot be read", self.refuse(*way, "--claim-key", self.path("missing")))
        self.assertIn("chmod 600", self.refuse(*way, "--claim-key", self.write("open", key_line("k1", bytes(32)))))
        self.assertIn("namespace", self.refuse(*way, "--claim-key", good, "--claim-space", "a b"))
        self.assertIn("--claim-key", self.refuse("lease", "acquire", "--server", "http://127.0.0.1:1",
                                                 "--resource", "a", "--claim-key", good))
        bad = self.write_private("bad", "k1 tr0ub4dor\n")
        said = self.refuse("lease", "acquire", "--source", "sqlite:l.db", "--init", "--resource", "a",
                           "--claim-key", bad)
        self.assertIn("line 1", said)
        self.assertNotIn("tr0ub4dor", said)

    def test_without_the_option_nothing_is_asked_for(self):
        keys = self.write_private("keys", key_line("k1", bytes(32)))
        for arguments in ([], ["--claim-key", keys]):
            server = self.serve(*arguments, "--storage", f"sqlite:{len(arguments)}.db")
            lease = server.lease("a").json
            self.assertEqual("signature" in lease, bool(arguments))
            self.assertEqual(server.request("PUT", "/a", fields(lease, signature=None), "x").status, 201)


if __name__ == "__main__":
    unittest.main()
