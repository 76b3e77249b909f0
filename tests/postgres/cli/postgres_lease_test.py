"""lease and exec with postgres:// as the source and the storage."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import unittest

import postgres_server
import support
from fault_proxy import FaultProxy
from postgres_case import SECRET, PostgresTest, setUpModule  # noqa: F401
from product_case import MadeUpNumbers
from waiting import wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from pgbouncer import PgBouncer  # noqa: E402


def state(pid):
    """Of a process, as ps(1) shows it: T is stopped."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return stat.read().rpartition(")")[2].split()[0]


class Leases(PostgresTest):
    def test_the_life_of_a_lease(self):
        lease = self.lease_json(0, "acquire", "--resource", "a", "--storage", self.url, "--ttl", "24m")
        claim = ["--resource", "a", "--token", lease["token"], "--holder", lease["holder"]]
        self.assertEqual(self.fence_json(0, "show", "--resource", "a")["token"], lease["token"])
        self.assertEqual(self.lease_json(0, "show", "--resource", "a")["token"], lease["token"])
        again = self.lease_json(0, "acquire", "--resource", "a", "--holder", lease["holder"], "--ttl", "24m")
        self.assertEqual(again["token"], lease["token"])
        self.assertEqual(self.lease_json(1, "acquire", "--resource", "a", "--wait", "0s")["verdict"], "held")
        self.lease_json(0, "renew", *claim, "--ttl", "20m")
        self.expect(1, "lease", "renew", "--source", self.url, *claim[:4], "--holder", "other")
        self.lease_json(0, "release", *claim)
        self.expect(1, "lease", "release", "--source", self.url, *claim)
        self.expect(1, "lease", "show", "--source", self.url, "--resource", "a")

    def test_without_a_storage_it_says_that_nothing_was_advanced(self):
        done = self.expect(0, "lease", "acquire", "--source", self.url, "--resource", "a")
        self.assertIn("no guard was advanced", done.stderr)

    def test_a_source_behind_its_fences_is_raised(self):
        self.fence(0, "advance", "--resource", "a", "--token", "1000")
        lease = self.lease_json(0, "acquire", "--resource", "a", "--storage", self.url)
        self.assertEqual(lease["token"], "1001")

    def test_raise_never_lowers(self):
        for mark in ("50", "20"):
            self.expect(0, "lease", "raise", "--source", self.url, "--resource", "a", "--token", mark)
        self.assertEqual(self.lease_json(0, "acquire", "--resource", "a")["token"], "51")

    def test_another_source_and_this_storage(self):
        lease = self.lease_json(0, "acquire", "--resource", "a", "--storage", self.url, "--init",
                                url="sqlite:leases.db")
        self.assertEqual(self.fence_json(0, "show", "--resource", "a")["token"], lease["token"])


class Numbers(MadeUpNumbers, PostgresTest):
    def by_hand(self):
        return self.sql("select done_by from fenceguard.rebases where resource = '' order by done_at").splitlines()


class Staying(PostgresTest):
    """Leases that live by the connection of 'lease acquire'."""

    def acquire(self, lock):
        url = f"{self.url}?lock={lock}"
        process = self.start("lease", "acquire", "--source", url, "--storage", self.url, "--resource", "a", "--json")
        lease = json.loads(process.stdout.readline())
        return url, process, ["--resource", "a", "--token", lease["token"], "--holder", lease["holder"]]

    def test_it_stays_until_it_is_signalled(self):
        for lock, number in itertools.product(("row", "advisory"), (signal.SIGTERM, signal.SIGINT)):
            with self.subTest(lock=lock, number=number):
                url, process, _ = self.acquire(lock)
                self.expect(1, "lease", "acquire", "--source", url, "--resource", "a", "--wait", "0s")
                self.assertIsNone(process.poll())
                process.send_signal(number)
                self.assertEqual(process.wait(support.LIMIT_S), 0, process.stderr.read())

    def test_renew_and_release_from_elsewhere_say_what_holds(self):
        for lock in ("row", "advisory"):
            with self.subTest(lock=lock):
                url, process, claim = self.acquire(lock)
                done = self.expect(0, "lease", "renew", "--source", url, *claim)
                self.assertIn("as long as the process", done.stderr)
                done = self.expect(1, "lease", "release", "--source", url, *claim)
                self.assertIn("still held", done.stderr)
                self.assertIsNone(process.poll())
                process.terminate()
                self.assertEqual(process.wait(support.LIMIT_S), 0)
                self.assertIn("lost", self.expect(1, "lease", "renew", "--source", url, *claim).stderr)
                self.assertIn("not held", self.expect(1, "lease", "release", "--source", url, *claim).stderr)

    def test_it_is_shown_without_a_time_left(self):
        for lock in ("row", "advisory"):
            with self.subTest(lock=lock):
                url, process, claim = self.acquire(lock)
                for way in (self.url, url):
                    shown = self.lease_json(0, "show", "--resource", "a", url=way)
                    self.assertEqual(shown, {"resource": "a", "token": claim[3]})
                    self.assertEqual(self.lease_json(0, "list", url=way)["leases"], [shown])
                guard = self.serve()
                self.assertEqual(guard.call("GET", "/v1/leases/a").json, shown)
                self.assertEqual(guard.call("GET", "/v1/leases").json["leases"], [shown])
                guard.stop()
                process.terminate()
                self.assertEqual(process.wait(support.LIMIT_S), 0)

    def test_it_is_gone_when_its_process_is_killed(self):
        url, process, _ = self.acquire("row")
        process.kill()
        process.wait()
        self.assertGreater(int(self.lease_json(0, "acquire", "--resource", "a", "--wait", "20s")["token"]), 0)
        del url

    def test_a_lost_lease_is_1(self):
        for lock in ("row", "advisory"):
            with self.subTest(lock=lock):
                _, process, _ = self.acquire(lock)
                pid = self.sql("select keeper_pid from fenceguard.leases where resource = 'a'")
                self.sql(f"select pg_terminate_backend({pid})")
                self.assertEqual(process.wait(support.LIMIT_S), 1)
                stderr = process.stderr.read()
                self.assertIn("lost", stderr)
                self.assertNotIn(SECRET, stderr)

    def test_a_revoke_ends_it(self):
        _, process, claim = self.acquire("row")
        self.fence(0, "revoke", "--resource", "a")
        self.assertEqual(process.wait(support.LIMIT_S), 1)
        self.fence(1, "advance", *claim)


class Exec(PostgresTest):
    def run_command(self, status, *command, arguments=()):
        return self.expect(status, "exec", "--source", self.url, "--storage", self.url, "--resource", "a",
                           *arguments, "--", *command)

    def test_the_command_runs_under_an_advanced_claim(self):
        done = self.run_command(7, "sh", "-c", "echo $FENCING_RESOURCE $FENCING_TOKEN; env; exit 7")
        self.assertEqual(done.stdout.splitlines()[0], "a 1")
        self.assertNotIn("postgres://", done.stdout)
        self.assertEqual(self.fence_json(0, "show", "--resource", "a")["token"], "1")
        self.assertEqual(self.run_command(0, "sh", "-c", "echo $FENCING_TOKEN").stdout, "2\n")

    def test_every_kind_of_lock(self):
        for lock in ("ttl", "row", "advisory"):
            done = self.expect(0, "exec", "--source", f"{self.url}?lock={lock}", "--storage", self.url,
                               "--resource", "a", "--", "sh", "-c", "echo $FENCING_TOKEN")
            self.assertGreater(int(done.stdout), 0)

    def test_held_by_another_holder_is_1_or_the_status_asked_for(self):
        self.lease_json(0, "acquire", "--resource", "a")
        self.run_command(1, "true", arguments=["--wait", "0s"])
        self.run_command(9, "true", arguments=["--wait", "0s", "--conflict-exit-code", "9"])

    def test_a_lost_lease_ends_the_command_with_124(self):
        process = self.start("exec", "--source", self.url, "--storage", self.url, "--resource", "a",
                             "--", "sh", "-c", "echo started; exec sleep 60")
        self.assertEqual(process.stdout.readline(), "started\n")
        self.fence(0, "revoke", "--resource", "a")
        self.assertEqual(process.wait(support.LIMIT_S), 124)

    def test_a_stopped_command_goes_on_only_while_its_lock_is_held(self):
        # The connection by which it is held ends while exec is stopped with its command, another holder works, and the job is
        # continued. The next renewal would be due in minutes.
        script = ("import sys, time, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                  "while True: print('works', file=open('diary', 'a')); time.sleep(0.005)")
        process = self.start("exec", "--source", f"{self.url}?lock=advisory", "--storage", self.url, "--resource", "a", "--ttl",
                             "24m", "--", sys.executable, "-c", script, start_new_session=False, process_group=0)

        def size():
            return os.path.exists(self.path("diary")) and os.path.getsize(self.path("diary"))

        def stop():
            process.send_signal(signal.SIGTSTP)
            wait_until(lambda: state(process.pid) == "T", what="exec's stop")
            return size()
        wait_until(size, what="the command's start")
        before = stop()
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: size() > before, what="the command to be continued")
        before = stop()
        self.fence(0, "revoke", "--resource", "a")
        self.run_command(0, "true")
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(support.LIMIT_S), 124)
        self.assertEqual(size(), before)

    PROTECT = ("create table jobs (name text primary key, done bigint not null); insert into jobs values ('a', 0), ('b', 0);"
               "select fenceguard.protect('jobs', 'name')")
    JOB = "update jobs set done = done + 1 where name = 'a' returning done"

    def psql_words(self, sql):
        return ["psql", "-XqAt", "-v", "VERBOSITY=verbose", self.server.conninfo(self.database), "-c", sql]

    def test_command_unaware_of_claims_writes_under_its_lease(self):
        self.sql(self.PROTECT)
        self.assertEqual(self.run_command(0, *self.psql_words(self.JOB)).stdout, "1\n")
        self.assertIn("ZF003", self.run_command(1, *self.psql_words("update jobs set done = 9")).stderr)
        self.assertEqual(self.sql("select sum(done) from jobs"), "1")

    def test_command_whose_lease_was_taken_writes_nothing_more(self):
        """The older job is stopped before its first write, and goes on when the newer one has written."""
        self.sql(self.PROTECT)
        job = ("echo started; read go; exec psql -XqAt -v VERBOSITY=verbose -c \"$0\" \"$1\"", self.JOB,
               self.server.conninfo(self.database))
        old = self.start("exec", "--source", self.url, "--storage", self.url, "--resource", "a", "--ttl", "24m", "--", "bash",
                         "-c", "trap '' TERM; " + job[0], *job[1:], stdin=subprocess.PIPE)
        self.assertEqual(old.stdout.readline(), "started\n")
        self.sql("select fenceguard.end_lease('a')")
        self.assertEqual(self.run_command(0, *self.psql_words(self.JOB)).stdout, "1\n")
        _, said = old.communicate("go\n", timeout=support.LIMIT_S)
        self.assertIn("ZF001", said)
        self.assertEqual(self.sql("select sum(done) from jobs"), "1")

    def test_what_pgoptions_holds_already_stays_however_long_it_is(self):
        self.sql(self.PROTECT)
        mine = "-c statement_timeout=12345 -c fenceguard.filler=" + "y" * 6000
        done = self.expect(0, "exec", "--source", self.url, "--storage", self.url, "--resource", "a", "--",
                           *self.psql_words(self.JOB + ", current_setting('statement_timeout'), "
                                            "length(current_setting('fenceguard.filler'))"), env={"PGOPTIONS": mine})
        self.assertEqual(done.stdout, "1|12345ms|6000\n")

    def test_pgoptions_is_unchanged_without_a_database_storage(self):
        self.make_file("file.db")
        for arguments in (["--source", self.url], ["--source", self.url, "--storage", "sqlite:file.db"]):
            done = self.expect(0, "exec", *arguments, "--resource", "a", "--", "sh", "-c", "echo $PGOPTIONS",
                               env={"PGOPTIONS": "-c x.y=1"})
            self.assertEqual(done.stdout, "-c x.y=1\n")

    ADMITS_ITSELF = ("begin; select fenceguard.admit(:'resource', :'token', :'holder') \\g /dev/null\n" + JOB + "; commit")

    def test_pooler_as_the_storage_is_refused_before_locking(self):
        self.sql(self.PROTECT)
        bouncer = PgBouncer(self.server)
        self.addCleanup(bouncer.remove)
        pooled = bouncer.conninfo(self.database, "postgres")
        exec_ = ["exec", "--source", self.url, "--storage", pooled, "--resource", "a"]
        refused = self.expect(125, *exec_, "--", "echo", "run")
        self.assertEqual(refused.stdout, "")
        self.assertRegex(refused.stderr, "a pooler .PgBouncer. stands before --storage.*--pgoptions off")
        self.expect(1, "lease", "show", "--source", self.url, "--resource", "a")
        job = ("psql -XqAt -v ON_ERROR_STOP=1 -v resource=$FENCING_RESOURCE -v token=$FENCING_TOKEN -v holder=$FENCING_HOLDER "
               "\"$0\" <<< \"$1\"")
        done = self.expect(0, *exec_, "--pgoptions", "off", "--", "bash", "-c", job, pooled, self.ADMITS_ITSELF)
        self.assertEqual(done.stdout, "1\n")
        self.assertIn("on or off", self.expect(125, *exec_, "--pgoptions", "no", "--", "true").stderr)

    def test_own_connection_options_are_told_where_the_claim_went(self):
        self.sql(self.PROTECT)
        own = self.server.conninfo(self.database) + "&options=-cstatement_timeout%3D1min"
        said = self.run_command(1, "psql", "-XqAt", own, "-c", self.JOB).stderr
        self.assertIn("has its claim in PGOPTIONS, unless it connects with options of its own", said)

    def test_any_resource_and_holder_pass_through_pgoptions(self):
        self.sql(self.PROTECT)
        for number, name in enumerate(("plain", "two words", "back\\slash", 'quote" and \'', "\u00e9\u00a0x",
                                       "\u4e16\u754c", "\U0001f512 key",
                                       "a$b `c` %d", "[{}]:,", "x" * 512, "\\" * 256), 1):
            holder = "h\\\"'$(" + "~" * 100
            with self.subTest(name):
                printed = self.expect(0, "lease", "acquire", "--source", self.url, "--storage", self.url, "--resource", name,
                                      "--holder", holder, "--print", "pgoptions").stdout
                self.assertEqual(len(printed.splitlines()), 1)
                said = self.server.psql("select current_setting('fenceguard.session_claims')::jsonb -> 0 ->> 'holder';"
                                        "insert into jobs values (:'name', 1)", self.database, variables={"name": name},
                                        env={"PGOPTIONS": printed.rstrip("\n")})
                self.assertEqual(said, holder)
                self.assertEqual(self.sql("select count(*) from jobs where done = 1"), str(number))

    def test_what_else_is_to_be_printed_is_told(self):
        acquire = ["lease", "acquire", "--source", self.url, "--resource", "a", "--print"]
        self.assertIn("pgoptions", self.expect(2, *acquire, "jdbc").stderr)
        self.assertIn("--json", self.expect(2, *acquire, "pgoptions", "--json").stderr)
        self.expect(1, "lease", "show", "--source", self.url, "--resource", "a")


class Hosts(PostgresTest):
    def test_one_hung_host_of_several_does_not_end_a_lease(self):
        """It takes connections and answers nothing, as a server does whose process is stopped: a proxy that freezes between
        two renewals. The command outlives two terms of its lease."""
        hung, well = FaultProxy(self.server.port), FaultProxy(self.server.port)
        self.addCleanup(hung.close)
        self.addCleanup(well.close)
        url = f"postgres://postgres:{SECRET}@127.0.0.1:{hung.port},127.0.0.1:{well.port}/{self.database}"
        expiry = "select coalesce(max(extract(epoch from expires_at)), 0) from fenceguard.leases where token is not null"
        command = threading.Thread(target=lambda: ended.append(self.run_binary(
            "exec", "--source", url, "--resource", "a", "--ttl", "12s", "--", "sleep", "30", limit_s=120)))
        ended = []
        command.start()
        postgres_server.wait_until(lambda: float(self.sql(expiry)) > 0, what="the lease")
        first = float(self.sql(expiry))
        postgres_server.wait_until(lambda: float(self.sql(expiry)) > first, what="a renewal")
        hung.freeze()
        command.join()
        self.assertEqual([(done.returncode, done.stderr) for done in ended if done.returncode], [])
        self.assertEqual(len(ended), 1)


if __name__ == "__main__":
    unittest.main()
