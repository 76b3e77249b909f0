"""serve's control side with postgres:// as the storage, also while the server breaks."""

import contextlib
import itertools
import os
import signal
import threading
import unittest

from postgres_case import INSTALL, PostgresTest, claim_fields, setUpModule  # noqa: F401
from support import wait_until


class Serving(PostgresTest):
    def test_only_the_control_side_is_there(self):
        guard = self.serve()
        self.assertRegex(guard.line, r"^listening data=none control=127\.0\.0\.1:\d+\n$")
        self.assertIn("write to it themselves", guard.log())
        self.assertEqual(guard.call("GET", "/healthz").status, 200)
        self.assertEqual(guard.call("GET", "/readyz").status, 200)
        self.assertEqual(guard.stop(), 0)

    def test_a_data_side_is_there_for_whoever_asks_for_it(self):
        guard = self.serve("--listen", "127.0.0.1:0")
        self.assertRegex(guard.line, r"^listening data=127\.0\.0\.1:\d+ control=")
        self.assertNotIn("level=warning", guard.log())
        self.assertEqual(guard.stop(), 0)

    def test_asking_for_none_is_no_warning(self):
        guard = self.serve("--listen", "none")
        self.assertRegex(guard.line, r"^listening data=none control=")
        self.assertNotIn("level=warning", guard.log())
        self.assertEqual(guard.stop(), 0)

    def test_a_lease_is_advanced_before_it_is_handed_out(self):
        guard = self.serve()
        lease = guard.lease("accounts/42")
        self.assertEqual(lease.status, 201)
        fence = guard.call("GET", "/v1/fences/accounts/42")
        self.assertEqual((fence.status, fence.json["token"]), (200, lease.json["token"]))
        self.assertEqual(guard.lease("accounts/42").status, 409)
        self.assertEqual(guard.lease("accounts/42", holder=lease.json["holder"]).status, 200)
        headers = {"Fencing-Token": lease.json["token"], "Fencing-Holder": lease.json["holder"]}
        self.assertEqual(guard.call("PUT", "/v1/leases/accounts/42", headers).status, 200)
        self.assertEqual(guard.call("DELETE", "/v1/leases/accounts/42", headers).status, 204)
        self.assertEqual(guard.call("GET", "/v1/leases/accounts/42").status, 404)

    def test_a_waiting_caller_is_woken_by_a_release(self):
        guard = self.serve()
        first = guard.lease("a").json
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(guard.lease("a", wait_ms=20_000)))
        waiting.start()
        wait_until(lambda: b"fenceguard_leases_waiting 1" in guard.call("GET", "/metrics").body)
        guard.call("DELETE", "/v1/leases/a", claim_fields(first["token"], first["holder"]))
        waiting.join()
        self.assertEqual(answers[0].status, 201)

    def test_advances_are_judged_and_counted(self):
        guard = self.serve("--max-jump", "100")

        def advance(token, holder="h"):
            return guard.call("POST", "/v1/fences/a/advance", claim_fields(token, holder))
        self.assertEqual(advance("5").status, 200)
        self.assertEqual(advance("5").status, 200)
        self.assertEqual((advance("4").status, advance("4").headers["fencing-highest"]), (412, "5"))
        self.assertEqual(advance("5", "other").status, 409)
        self.assertEqual(advance("106").status, 422)
        self.assertEqual(advance("105").status, 200)
        self.assertEqual(guard.call("POST", "/v1/fences/a/advance").status, 428)
        self.assertEqual(guard.call("POST", "/v1/fences/a/advance", {"Fencing-Token": "x"}).status, 400)
        metrics = guard.call("GET", "/metrics").body.decode()
        self.assertIn('fenceguard_verdicts_total{storage="postgres",verdict="stale"} 2', metrics)
        self.assertIn("fenceguard_advances_total 2", metrics)

        def gauges():
            text = guard.call("GET", "/metrics").body.decode()
            return "fenceguard_resources 1\n" in text
        wait_until(gauges)

    def test_what_the_database_refused_by_itself_is_in_the_metrics(self):
        guard = self.serve()
        self.sql("create table accounts (id text primary key); "
                 "select fenceguard.protect('accounts', $$ 'accounts/' || id $$); "
                 "select fenceguard.advance('a', 7, 'new')")
        for refused in ("insert into accounts values ('1')", "select fenceguard.admit('a', 6, 'old')"):
            with self.assertRaises(Exception):
                self.sql(refused)
        for line in (b'fenceguard_storage_refusals{table="accounts",verdict="missing"} 1',
                     b'fenceguard_storage_refusals{table="",verdict="stale"} 1'):
            wait_until(lambda: line in guard.call("GET", "/metrics").body)

    def test_the_other_name_of_the_scheme_has_the_same_label(self):
        guard = self.serve(env={"FENCEGUARD_STORAGE": self.url.replace("postgres:", "postgresql:", 1)})
        self.assertIn(b'storage="postgres"', guard.call("GET", "/metrics").body)

    def test_revoke_compact_and_list(self):
        guard = self.serve()
        lease = guard.lease("a").json
        answer = guard.call("POST", "/v1/fences/a/revoke")
        self.assertEqual((answer.status, answer.json["closed"]), (200, True))
        stale = guard.call("POST", "/v1/fences/a/advance", {"Fencing-Token": lease["token"],
                                                            "Fencing-Holder": lease["holder"]})
        self.assertEqual(stale.status, 412)
        self.assertIn("closed by a revoke", stale.json["detail"])
        self.assertEqual(guard.call("GET", "/v1/leases/a").status, 404)
        self.assertEqual(guard.call("POST", "/v1/fences/nobody/revoke").status, 404)
        page = guard.call("GET", "/v1/fences?prefix=a").json
        self.assertEqual([each["resource"] for each in page["fences"]], ["a"])
        self.assertEqual(guard.call("GET", "/v1/fences?prefix=%00").status, 400)
        self.assertEqual(guard.call("POST", "/v1/fences/compact").json,
                         {"dropped": 1, "floor": lease["token"]})

    def test_an_advance_that_waits_holds_up_no_others(self):
        self.sql(f"alter database {self.database} set fenceguard.drain = '120s'")
        guard = self.serve()
        holder = self.server.session(self.database)
        holder.run("begin; select fenceguard.admit('stuck', 1, 'h')")
        answers = []

        def advance(resource, token):
            return guard.call("POST", f"/v1/fences/{resource}/advance", {"Fencing-Token": str(token)})
        threads = [threading.Thread(target=lambda token=token: answers.append(advance("stuck", token)))
                   for token in range(2, 22)]
        for thread in threads:
            thread.start()
        wait_until(lambda: self.sql("select count(*) from pg_stat_activity where wait_event = 'advisory' and "
                                    f"datname = '{self.database}'") == "1", what="a waiting advance")
        for number in range(20):
            self.assertEqual(advance(f"free/{number}", 1).status, 200)
        self.assertEqual(answers, [])
        holder.run("commit")
        for thread in threads:
            thread.join()
        self.assertEqual({answer.status for answer in answers} - {200, 412}, set())
        self.assertEqual(self.fence_json(0, "show", "--resource", "stuck")["token"], "21")

    def test_two_guards_share_the_fences(self):
        guards = [self.serve(), self.serve()]
        lease = guards[0].lease("a").json
        self.assertEqual(guards[1].lease("a").status, 409)
        headers = claim_fields(lease["token"], lease["holder"])
        self.assertEqual(guards[1].call("DELETE", "/v1/leases/a", headers).status, 204)
        self.assertEqual(guards[1].lease("a").status, 201)
        self.assertEqual(guards[0].call("POST", "/v1/fences/a/advance", headers).status, 412)

    def test_a_separate_source_and_init(self):
        guard = self.serve("--source", "sqlite:leases.db", "--init")
        self.assertEqual(guard.lease("a").json["token"], "2")
        self.assertEqual(self.fence_json(0, "init", "--floor", "0"), {"floor": "1"})

    def test_a_missing_schema_is_unavailable_until_it_is_installed(self):
        self.database = self.server.create_database()
        self.url = self.url_of(self.database)
        guard = self.serve()
        self.assertIn(INSTALL, guard.log())
        ready = guard.call("GET", "/readyz")
        self.assertEqual(ready.status, 503)
        self.assertIn(INSTALL, ready.json["detail"])
        self.assertEqual(guard.lease("a").status, 503)
        self.assertEqual(guard.call("POST", "/v1/fences/a/advance", {"Fencing-Token": "1"}).status, 503)
        self.server.install(self.database)
        wait_until(lambda: guard.call("GET", "/readyz").status == 200)
        self.assertEqual(guard.lease("a").status, 201)


class Crashing(PostgresTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(lambda: self.server.is_running() or self.server.start())

    def test_killed_server_is_unavailable_then_recovers(self):
        guard = self.serve()
        self.assertEqual(guard.lease("before").status, 201)
        self.server.kill()
        wait_until(lambda: guard.call("GET", "/readyz").status == 503)
        self.assertEqual(guard.call("GET", "/healthz").status, 200)
        self.assertEqual(guard.call("POST", "/v1/fences/a/advance", {"Fencing-Token": "1"}).status, 503)
        self.assertEqual(guard.call("GET", "/v1/fences/before").status, 503)
        self.assertEqual(guard.lease("a").status, 503)
        self.server.start()
        wait_until(lambda: guard.call("GET", "/readyz").status == 200)
        self.assertEqual(guard.lease("a").status, 201)
        self.assertEqual(guard.call("GET", "/v1/fences/before").status, 200)

    def test_acknowledged_writes_stay_and_others_are_reported_truly(self):
        # Shows that no answer is a lie; by advances that go on while the server is killed, again and again.
        guard = self.serve()
        acknowledged, statuses, stop = {}, set(), threading.Event()

        def advance(worker):
            for token in itertools.count(1):
                if stop.is_set():
                    return
                answer = guard.call("POST", f"/v1/fences/r/{worker}/advance", {"Fencing-Token": str(token)})
                statuses.add(answer.status)
                if answer.status == 200:
                    acknowledged[worker] = token
        workers = [threading.Thread(target=advance, args=(number,)) for number in range(4)]
        for worker in workers:
            worker.start()
        for _ in range(5):
            before = dict(acknowledged)
            wait_until(lambda: all(acknowledged.get(n, 0) > before.get(n, 0) for n in range(4)))
            self.server.kill()
            self.server.start()
        stop.set()
        for worker in workers:
            worker.join()
        self.assertEqual(statuses - {200, 500, 503}, set())  # 500: unknown
        for number, token in acknowledged.items():
            fence = self.fence_json(0, "show", "--resource", f"r/{number}")
            self.assertGreaterEqual(int(fence["token"]), token)

    def test_silent_server_delays_neither_probes_nor_the_stop(self):
        guard = self.serve("--drain-timeout", "1s")
        backends = self.sql("select string_agg(pid::text, ' ') from pg_stat_activity where "
                            f"datname = '{self.database}' and pid <> pg_backend_pid()").split()
        pids = [self.server.pid, *map(int, backends)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # its client has gone
                os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: guard.call("GET", "/readyz").status == 503)
            self.assertIn("does not answer", guard.call("GET", "/readyz").json["detail"])
            guard.process.terminate()
            self.assertEqual(guard.wait(60), 0)
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    unittest.main()
