"""'serve --hold' in front of Redis: clients that say no FENCE write under what the sidecar holds, or not at all, whatever
becomes of the lease meanwhile. The leases come from the Redis of the data, or, where the source is to fail alone, from one
beside it.

Clients of this process are older than every tenure. Where a test is about something else the sidecar takes any program;
ProgramTest is about which are let in."""

import contextlib
import os
import pathlib
import signal
import ssl
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import redis_server  # noqa: E402
import support  # noqa: E402
from certificates import Certificates  # noqa: E402
from demo_case import status_of  # noqa: E402
from programs import held_program  # noqa: E402
from programs.held_program import AccountTests, Program  # noqa: E402
from resp_case import Client, RespTest, setUpModule, wait_until  # noqa: E402, F401

RESOURCE = "accounts/1"
KEY = "{accounts/1}:log"
# Not before a busy machine has stood still for a moment.
SOON = ("--hold-ttl", "6s")
# Only a release ends it within a test.
LATE = ("--hold-ttl", "10m")


class HoldCase(RespTest):
    TAKES = ("--hold-reconnect", "allow")

    def hold(self, *arguments, **options):
        return self.sidecar("--hold", RESOURCE, *self.TAKES, *arguments, **options)

    def is_held(self, sidecar):
        return sidecar.call("GET", "/readyz").status == 200

    def await_held(self, sidecar):
        wait_until(lambda: self.is_held(sidecar), what="a sidecar that holds")

    def assert_ends(self, client):
        with self.assertRaisesRegex(Client.Gone, "has ended|reset by peer"):
            client.read()

    def log_of_writes(self):
        return self.redis().call("GET", KEY)

    def token(self):
        return int(self.redis().call("HGET", f"fenceguard:{{{RESOURCE}}}", "token"))


class LeaderTest(HoldCase):
    def test_unmodified_client_writes_as_the_leader_or_not_at_all(self):
        first = self.hold(*LATE)
        self.await_held(first)
        second = self.hold(*LATE)
        self.assertEqual(self.client(first).call("APPEND", KEY, "a"), 1)
        refused = self.client(second)
        self.assertEqual(refused.read(), f"UNAVAILABLE this sidecar does not hold '{RESOURCE}' now; another one may")
        self.assert_ends(refused)
        self.assertEqual(second.call("GET", "/readyz").status, 503)
        self.assertEqual(self.client(first).call("FENCES"), [[RESOURCE, str(self.token())]])
        self.assertIn(f"fenceguard_held_token {self.token()}\n", first.call("GET", "/metrics").body.decode())
        self.assertIn("fenceguard_held 0\n", second.call("GET", "/metrics").body.decode())
        self.assertEqual(first.stop(), 0)
        self.await_held(second)
        self.assertEqual(self.client(second).call("APPEND", KEY, "b"), 2)

    def test_claims_of_clients_are_refused_with_a_sentence(self):
        sidecar = self.hold(*LATE)
        self.await_held(sidecar)
        client = self.client(sidecar)
        for words in (("FENCE", RESOURCE, 2**62, "h"), ("FENCED", RESOURCE, 2**62, "h", "SET", KEY, "x"), ("UNFENCE",),
                      ("UNFENCE", RESOURCE)):
            self.assertFailure(client.call(*words), "ERR fenceguard: this sidecar holds the claims of its clients")
        self.assertEqual(client.call("RESET"), "RESET")
        self.assertEqual(client.call("APPEND", KEY, "a"), 1)
        self.assertFailure(client.call("SET", "elsewhere", "x"), "NOFENCE resource=elsewhere: this sidecar does not hold it")
        self.assertEqual(client.call("SELECT", "1"), "OK")
        self.assertFailure(client.call("APPEND", KEY, "x"), "NOFENCE")
        self.assertLess(self.token(), 2**62)

    def test_transactions_run_under_the_held_claim(self):
        sidecar = self.hold(*LATE)
        self.await_held(sidecar)
        client = self.client(sidecar)
        other = "{accounts/1}:other"
        self.assertEqual(client.calls(("MULTI",), ("APPEND", KEY, "a"), ("SET", other, "1"), ("EXEC",)),
                         ["OK", "QUEUED", "QUEUED", [1, "OK"]])
        self.assertEqual(client.calls(("WATCH", KEY), ("MULTI",), ("APPEND", KEY, "b"), ("EXEC",)),
                         ["OK", "OK", "QUEUED", [2]])
        self.assertEqual(client.call("BITFIELD", other, "SET", "u8", "0", "65"), [49])
        self.assertEqual(client.calls(("RENAME", other, other + "2"), ("MSET", KEY, "c", other, "d")), ["OK", "OK"])
        # Once a newer token was seen nothing of it lands.
        self.overtake()
        self.assertFailure(client.calls(("MULTI",), ("APPEND", KEY, "x"), ("EXEC",))[-1], "STALE")
        self.assertEqual(self.log_of_writes(), "c")

    def overtake(self):
        with Client(self.sidecar().data) as newer:
            self.assertEqual(newer.call("FENCE", RESOURCE, self.token() + 1000, "by-hand"), "OK")

    def test_fence_that_refuses_the_holder_makes_it_take_a_new_token(self):
        sidecar = self.hold(*LATE)
        self.await_held(sidecar)
        client = self.client(sidecar)
        self.assertEqual(client.call("APPEND", KEY, "a"), 1)
        self.overtake()
        token = self.token()
        self.assertFailure(client.call("APPEND", KEY, "x"), "STALE")
        self.assert_ends(client)
        wait_until(lambda: self.token() > token)
        self.await_held(sidecar)
        self.assertEqual(self.client(sidecar).call("APPEND", KEY, "b"), 2)

    def test_paused_holder_wakes_up_and_lands_nothing(self):
        first = self.hold(*SOON)
        self.await_held(first)
        second = self.hold(*SOON)
        writer, queue, reader = (self.client(first) for _ in range(3))
        self.assertEqual(writer.call("APPEND", KEY, "a"), 1)
        self.assertEqual(queue.calls(("MULTI",), ("APPEND", KEY, "x")), ["OK", "QUEUED"])
        self.assertEqual(reader.call("GET", KEY), "a")
        first.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: status_of(first.process.pid, "State").startswith("T"), what="a sidecar that has stopped")
        self.addCleanup(os.kill, first.process.pid, signal.SIGCONT)
        # Sent before anybody could know, and read when it is too late.
        writer.send(("APPEND", KEY, "x"))
        queue.send(("EXEC",))
        self.await_held(second)
        self.assertEqual(self.client(second).call("APPEND", KEY, "b"), 2)
        first.process.send_signal(signal.SIGCONT)
        for client in (writer, queue):
            try:
                self.assertFailure(client.read(), "STALE")
            except Client.Gone:
                continue
            self.assert_ends(client)
        self.assert_ends(reader)
        wait_until(lambda: not self.is_held(first))
        self.assertFailure(self.client(first).read(), "UNAVAILABLE")
        self.assertEqual(self.log_of_writes(), "ab")


class LossTest(HoldCase):
    """The source fails alone: no newer token comes, and what ends the connections is the sidecar."""

    def setUp(self):
        super().setUp()
        self.source = self.own_server()
        # Redis may be stopped for longer than it would have for an answer.
        self.guard = self.hold("--source", self.source.url(), *SOON, url=self.server.url("/0?timeout=60s"))
        self.await_held(self.guard)

    def lose(self):
        self.source.pause()
        wait_until(lambda: not self.is_held(self.guard))

    def test_connections_end_whatever_they_wait_for(self):
        idle, queue, watcher, blocked, subscriber = (self.client(self.guard) for _ in range(5))
        self.assertEqual(idle.call("APPEND", KEY, "a"), 1)
        self.assertEqual(queue.calls(("MULTI",), ("APPEND", KEY, "x")), ["OK", "QUEUED"])
        self.assertEqual(watcher.call("WATCH", KEY), "OK")
        blocked.send(("XREAD", "BLOCK", "0", "STREAMS", "{accounts/1}:stream", "$"))
        self.assertEqual(subscriber.call("SUBSCRIBE", "news"), ["subscribe", "news", 1])
        token = self.token()
        self.lose()
        for client in (idle, queue, watcher, blocked, subscriber):
            self.assert_ends(client)
        self.assertFailure(self.client(self.guard).read(), "UNAVAILABLE")
        self.source.resume()
        self.await_held(self.guard)
        self.assertGreater(self.token(), token)
        self.assertEqual(self.client(self.guard).call("APPEND", KEY, "b"), 2)

    def test_uninitialised_namespace_does_not_keep_the_holder_out(self):
        client = self.client(self.guard)
        self.assertEqual(client.call("APPEND", KEY, "a"), 1)
        self.server.cli("FLUSHALL")
        self.initialise(self.server)
        # The source's tokens are far above a floor of 0.
        self.assertFailure(client.call("APPEND", KEY, "x"), "IMPLAUSIBLE")
        self.assert_ends(client)
        self.await_held(self.guard)
        self.assertEqual(self.client(self.guard).call("APPEND", KEY, "b"), 1)

    def test_write_under_way_is_answered_before_the_connection_ends(self):
        writer, bystander = self.client(self.guard), self.client(self.guard)
        self.assertEqual([client.call("APPEND", KEY, "a") for client in (writer, bystander)], [1, 2])
        # Redis takes nothing for a while.
        self.server.pause()
        self.addCleanup(self.server.resume)
        writer.send(("APPEND", KEY, "b"))
        wait_until(lambda: "fenceguard_in_flight 1\n" in self.guard.call("GET", "/metrics").body.decode())
        self.source.pause()
        wait_until(lambda: "fenceguard_held 0\n" in self.guard.call("GET", "/metrics").body.decode())
        writer.send(("APPEND", KEY, "x"))
        self.assert_ends(bystander)
        self.server.resume()
        self.assertEqual(writer.read(), 3)
        self.assert_ends(writer)
        self.assertEqual(self.log_of_writes(), "aab")


class TlsTest(HoldCase):
    def test_tls_clients_write_as_the_leader_and_end_with_it(self):
        certificates = Certificates(self.folder)
        certificates.sign("server")
        sidecar = self.hold(*LATE, "--tls-certificate", certificates.file("server"), "--tls-key", certificates.key("server"))
        context = ssl.create_default_context(cafile=certificates.file("ca"))

        def connect():
            client = self.client(sidecar)
            client.encrypt(context)
            return client

        self.await_held(sidecar)
        client = connect()
        self.assertEqual(client.call("APPEND", KEY, "a"), 1)
        before = self.token()
        self.expect(0, "fence", "revoke", "--storage", self.server.url(), "--resource", RESOURCE)
        self.assertFailure(client.call("APPEND", KEY, "x"), "STALE")
        self.assert_ends(client)
        wait_until(lambda: self.token() > before)
        self.await_held(sidecar)
        self.assertEqual(connect().call("APPEND", KEY, "b"), 2)


class ClusterTest(HoldCase):
    """The fences, the locks and the data lie in a Redis Cluster."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = redis_server.Cluster()
        cls.addClassCleanup(cls.cluster.remove)

    def setUp(self):
        super().setUp()
        url = self.cluster.url()
        self.hold = lambda *arguments: self.sidecar("--hold", RESOURCE, "--hold", "accounts/2", *self.TAKES, *arguments,
                                                    url=url)

    def fences(self, sidecar):
        return dict(self.client(sidecar).call("FENCES"))

    def test_two_that_hold_keys_of_several_nodes_take_turns(self):
        first = self.hold(*SOON)
        self.await_held(first)
        second = self.hold(*SOON)
        client, old = self.client(first), self.fences(first)
        self.assertEqual(set(old), {RESOURCE, "accounts/2"})
        other = "{accounts/2}:log"
        self.assertNotEqual(*(self.cluster.nodes[0].cli("CLUSTER", "KEYSLOT", key) for key in (KEY, other)))
        self.assertEqual([client.call("APPEND", key, "a") for key in (KEY, other)], [1, 1])
        first.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: status_of(first.process.pid, "State").startswith("T"), what="a sidecar that has stopped")
        self.addCleanup(os.kill, first.process.pid, signal.SIGCONT)
        client.send(("APPEND", KEY, "x"), ("APPEND", other, "x"))
        self.await_held(second)
        newer = self.client(second)
        self.assertEqual([newer.call("APPEND", key, "b") for key in (KEY, other)], [2, 2])
        for name, token in self.fences(second).items():
            self.assertGreater(int(token), int(old[name]))
        first.process.send_signal(signal.SIGCONT)
        with contextlib.suppress(Client.Gone):
            for _ in (KEY, other):
                self.assertFailure(client.read(), "STALE")
        self.assert_ends(client)
        self.assertEqual([newer.call("GET", key) for key in (KEY, other)], ["ab", "ab"])
        self.assertEqual(second.stop(), 0)
        self.await_held(first)
        self.assertEqual(self.client(first).call("APPEND", KEY, "c"), 3)


class AccountCase(AccountTests, HoldCase):
    """Programs of their own processes, which read and write a balance."""

    TAKES = ()
    BALANCE = "{accounts/1}:balance"
    LOST = r"^failed: LOST the lease was lost at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ; start again from the read \(process "

    def setUp(self):
        super().setUp()
        self.redis().call("SET", self.BALANCE, "100")

    def balance(self):
        return int(self.redis().call("GET", self.BALANCE))

    def program(self, sidecar):
        return Program(self, "redis", sidecar.data)

    def refusals(self, sidecar):
        metrics = sidecar.call("GET", "/metrics").body.decode()
        return int(next(line.split()[1] for line in metrics.splitlines()
                        if line.startswith("fenceguard_hold_refusals_total ")))


class ProgramTest(AccountCase):
    """A program that read under an earlier tenure writes nothing before it says that it begins anew, though its driver has
    connected again unnoticed; one that was started since need not say anything."""

    def test_unnoticed_reconnect_does_not_write_what_is_outdated(self):
        first = self.hold(*SOON)
        self.await_held(first)
        second = self.hold(*LATE)
        account = self.program(first)
        self.assertEqual(account.ask("read"), "100")
        first.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: status_of(first.process.pid, "State").startswith("T"), what="a sidecar that has stopped")
        self.addCleanup(os.kill, first.process.pid, signal.SIGCONT)
        self.await_held(second)
        self.add_30(second)
        self.assertEqual(second.stop(), 0)
        first.process.send_signal(signal.SIGCONT)
        wait_until(lambda: "event=held " in first.log().partition("held no longer")[2], what="a sidecar that holds again")
        self.assertRegex(account.ask("write", 150), self.LOST)
        self.assertRegex(account.ask("read"), self.LOST)
        # What was forked from it has its memory.
        self.assertRegex(account.ask("forked", "write", 150), self.LOST)
        self.assertEqual((self.balance(), self.refusals(first)), (130, 2))
        self.assertIn('event="connection refused"', first.log())
        self.assertEqual(account.ask("begin"), "OK")
        self.assertEqual(account.ask("write", int(account.ask("read")) + 50), "True")
        self.add_30(first)
        self.assertEqual((self.balance(), self.refusals(first)), (210, 2))

    def test_sidecar_that_was_started_anew_lets_no_older_program_in(self):
        for address in (None, f"unix:{self.folder}/data"):
            with self.subTest(address=address):
                self.redis().call("SET", self.BALANCE, "100")
                serve = self.serve_here("--storage", self.server.url("/0?timeout=20s"), "--hold", RESOURCE, *LATE)
                if address:
                    serve = lambda: self.hold(*LATE, "--listen", address)  # noqa: E731  pylint: disable=unnecessary-lambda-assignment
                refusal = r"^failed: LOST the lease was taken at .*; start again from the read \(process \d+ began before"
                self.assertEqual(self.start_anew(serve, lambda: self.hold(*LATE), refusal).stop(), 0)

    def hold_inside(self, *namespace):
        """A sidecar in namespaces of its own, for a resource of its own; it ends with the process that made them."""
        program = self.write("program", f'#!/bin/sh\nexec unshare {" ".join(namespace)} --fork --kill-child {support.BINARY} "$@"\n')
        os.chmod(program, 0o700)
        binary, support.BINARY = support.BINARY, program
        try:
            sidecar = self.sidecar("--hold", "inside" + "".join(namespace), *LATE)
        finally:
            support.BINARY = binary
        self.await_held(sidecar)
        return sidecar

    def test_namespaces_do_not_make_a_program_newer(self):
        tomorrow = self.hold_inside("--time", "--monotonic", "86400", "--boottime", "86400")
        self.assertFailure(self.client(tomorrow).call("GET", KEY), "LOST the lease was taken at")
        self.assertEqual(self.program(tomorrow).ask("read"), "100")
        tomorrow.kill()
        for mount in ((), ("--mount-proc",)):
            with self.subTest(mount=mount):
                hidden = self.hold_inside("--pid", *mount)
                self.assertIn("the sidecar cannot see which process connects", self.program(hidden).ask("read"))
                hidden.kill()

    def test_connection_may_only_log_in_before_it_begins_anew(self):
        sidecar = self.hold(*LATE)
        self.await_held(sidecar)
        client = self.client(sidecar)
        for words in (("CLIENT", "SETNAME", "a"), ("SELECT", "0")):
            self.assertEqual(client.call(*words), "OK")
        for words in (("GET", KEY), ("APPEND", KEY, "x"), ("PING",), ("INFO",), ("MULTI",), ("SUBSCRIBE", "news"), ("NONE",),
                      ("FENCE", RESOURCE, 2**40, "h"), ("FENCED", RESOURCE, 2**40, "h", "SET", KEY, "x")):
            self.assertFailure(client.call(*words), "LOST the lease was taken at")
        self.assertFailure(client.call("FENCE.BEGIN", "1", "2"), "ERR fenceguard: write FENCE.BEGIN")
        self.assertFailure(client.call("FENCE.BEGIN", self.token() - 1), "LOST the lease of token ")
        self.assertEqual(client.call("RESET"), "RESET")
        self.assertFailure(client.call("APPEND", KEY, "x"), "LOST")
        self.assertEqual(client.calls(("FENCE.BEGIN",), ("APPEND", KEY, "a"), ("FENCE.BEGIN", self.token())), ["OK", 1, "OK"])
        self.assertEqual(client.call("RESET"), "RESET")
        self.assertEqual(client.call("APPEND", KEY, "b"), 2)
        # A connection that was not let in ends with the tenure as well.
        waiting = self.client(sidecar)
        self.assertFailure(waiting.call("GET", KEY), "LOST")
        self.expect(0, "fence", "revoke", "--server", sidecar.url, "--resource", RESOURCE)
        self.assertFailure(client.call("APPEND", KEY, "x"), "STALE")
        self.assert_ends(waiting)
        self.assertFailure(self.client(self.sidecar()).call("FENCE.BEGIN"), "ERR fenceguard: FENCE.BEGIN is for a sidecar")


class HoldForTest(AccountCase):
    """The sidecar runs the program, or is told which it is, and lets no other in."""

    def setUp(self):
        super().setUp()
        self.address = f"unix:{self.folder}/data"
        self.orders, self.answers = (os.path.join(self.folder, name) for name in ("orders", "answers"))

    def lose(self, write):
        """A fence that refuses a write of the program's has the sidecar take a new token. Answers what write() does."""
        token = self.token()
        self.expect(0, "fence", "revoke", "--storage", self.server.url(), "--resource", RESOURCE)
        refused = write()
        wait_until(lambda: self.token() > token)
        return refused

    def test_command_is_started_under_each_tenure_and_ended_with_it(self):
        os.mkfifo(self.orders)
        pathlib.Path(self.answers).touch()
        script = pathlib.Path(held_program.__file__)
        command = f"echo $$ >>runs; {sys.executable} -B {script} redis {self.address} <orders >>answers; exit 7"
        sidecar = self.hold(*LATE, "--listen", self.address, "--hold-for", command)
        runs = lambda: pathlib.Path(self.folder, "runs").read_text(encoding="utf-8").split()  # noqa: E731  pylint: disable=unnecessary-lambda-assignment
        said = 0

        def answers():
            return pathlib.Path(self.answers).read_text(encoding="utf-8").splitlines()

        def ask(orders, *words):
            nonlocal said
            said += 1
            print(*words, file=orders, flush=True)
            return wait_until(lambda: answers()[said - 1:])[0]

        # For reading too, so that it has a reader while none is started.
        with os.fdopen(os.open(self.orders, os.O_RDWR), "w", encoding="utf-8") as orders:
            self.assertEqual([ask(orders, "read"), ask(orders, "write", 110), ask(orders, "forked", "write", 120)],
                             ["100", "True", "True"])
            self.assertIn("is neither the one of --hold-for", self.program(sidecar).ask("write", 150))
            (first,) = runs()
            # Refused, and ended for it, it may not come to say so.
            self.lose(lambda: print("write", 150, file=orders, flush=True))
            wait_until(lambda: len(runs()) == 2, what="a second start")
            self.assertFalse(support.is_alive(first))
            said = len(answers())
            # The program that reads what is written now is the second.
            self.assertEqual(ask(orders, "read"), "120")
            self.assertEqual(ask(orders, "write", 170), "True")
        self.assertEqual(self.balance(), 170)
        # It has nothing more to do, and the sidecar ends with it, and gives the lease back.
        self.assertEqual(sidecar.wait(), 7)
        other = self.hold(*LATE)
        self.await_held(other)

    def test_command_ends_with_the_sidecar(self):
        for number, status in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
            with self.subTest(number=number):
                sidecar = self.hold(*LATE, "--hold-for", "echo $$ >run; while :; do sleep 600; done")
                run = wait_until(lambda: pathlib.Path(self.folder, "run").exists()
                                 and pathlib.Path(self.folder, "run").read_text(encoding="utf-8").strip())
                self.assertTrue(support.is_alive(run))
                self.assertEqual(sidecar.stop(number), status)
                wait_until(lambda: not support.is_alive(run), what="a command that has ended")
                os.remove(os.path.join(self.folder, "run"))

    def test_command_ends_with_its_lease_while_sidecar_is_stopped(self):
        runs = pathlib.Path(self.folder, "runs")
        runs.touch()
        processes = lambda: runs.read_text(encoding="utf-8").split()  # noqa: E731  pylint: disable=unnecessary-lambda-assignment
        first = self.hold("--hold", "accounts/2", "--hold-ttl", "8s", "--hold-for",
                          "trap '' TERM; echo $$ >>runs; while :; do sleep 0.1; done")
        wait_until(processes, what="a command that runs")
        second = self.hold(*LATE)
        first.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: status_of(first.process.pid, "State").startswith("T"), what="a sidecar that has stopped")
        self.addCleanup(first.process.send_signal, signal.SIGCONT)
        wait_until(lambda: not support.is_alive(processes()[-1]), what="a command that has ended")
        self.await_held(second)
        started = len(processes())
        first.process.send_signal(signal.SIGCONT)
        # It did not end by itself, so the sidecar waits in line again, and starts it anew.
        wait_until(lambda: "held no longer" in first.log(), what="a sidecar that knows")
        self.assertEqual(second.stop(), 0)
        wait_until(lambda: len(processes()) > started, what="another start")
        self.assertEqual(first.stop(), 0)

    def test_process_that_is_named_is_let_in_until_the_first_loss(self):
        account = Program(self, "redis", self.address)
        sidecar = self.hold(*LATE, "--listen", self.address, "--hold-for", str(account.process.pid))
        self.await_held(sidecar)
        self.assertEqual([account.ask("read"), account.ask("write", 110), account.ask("forked", "write", 120)],
                         ["100", "True", "True"])
        self.assertIn("is neither the one of --hold-for", self.program(sidecar).ask("write", 150))
        self.assertIn("STALE", self.lose(lambda: account.ask("write", 150)))
        self.await_held(sidecar)
        self.assertRegex(account.ask("write", 150), self.LOST)
        self.add_30(sidecar)
        self.assertEqual(self.balance(), 150)


class OptionsTest(HoldCase):
    def test_what_does_not_go_together_gets_a_sentence(self):
        done = self.expect(2, "serve", "--storage", self.server.url(), "--listen", "none", "--hold", "a")
        self.assertIn("give --listen", done.stderr)
        for arguments, sentence in ((("--hold", "a", "--hold-reconnect", "never"), "--hold-reconnect: refuse or allow"),
                                    (("--hold-reconnect", "allow"), "--hold-reconnect is for"),
                                    (("--hold-for", "1"), "--hold-for is for"),
                                    (("--hold", "a", "--hold-for", "0"), "process 0 is not seen here"),
                                    (("--hold", "a", "--hold-reconnect", "allow", "--hold-for", "./app"), "give one of them")):
            self.assertIn(sentence, self.expect(2, "serve", "--storage", self.server.url(), *arguments).stderr)


if __name__ == "__main__":
    unittest.main()
