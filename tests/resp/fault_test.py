"""Writers append through the sidecar while everything else fails; what stands in their lists is compared with what they
were told (fault_case.py).

Some cycles of each fault in the tests; with --cycles 200, and the name of a test or none, that many. The cuts at every
byte then leave none out.
"""

import os
import random
import signal
import subprocess
import sys
import unittest

import redis_server
from fault_case import NO, UNKNOWN, YES, Resource, Writers, outcome_of
from fault_proxy import CuttingProxy
from resp_case import Client, Failure, RespTest, setUpModule  # noqa: F401
from support import Guard
from waiting import moment, wait_until

CYCLES = 0  # 0: a few of each
DURABLE = {"appendonly": "yes", "appendfsync": "always"}


def cycles(few):
    return CYCLES or few


class FaultTest(RespTest):
    def setUp(self):
        super().setUp()
        self.seed = random.SystemRandom().randrange(1 << 32)
        self.random = random.Random(self.seed)
        print(f"seed {self.seed}", flush=True)

    def writers(self, guards, names=("r", "s"), each=3):
        return Writers([Resource(name) for name in names], [guard.address for guard in guards], each, self.seed)

    def start_guard(self, url, *options):
        return Guard(lambda *arguments: self.sidecar(*arguments, *options, url=url, threads=2))

    def tell(self, what, writers):
        print(f"{self.id().rpartition('.')[2]}: {what}; {writers.summary()}", flush=True)


class Check(unittest.TestCase):
    """What is to be found is found."""

    def test_each_kind_of_fault(self):
        resource = Resource("r")
        a, b = resource.lists
        for number, outcome in enumerate((YES, NO, UNKNOWN, YES)):
            resource.tell(a, f"{number + 1} w {number}", outcome)
        resource.pairs.append("9 w 9")
        resource.tell(a, "9 w 9", YES)
        resource.tell(b, "9 w 9", YES)
        good = ["1 w 0", "3 w 2", "4 w 3", "9 w 9"]
        self.assertEqual(resource.faults({a: good, b: ["9 w 9"]}), [])
        self.assertEqual(resource.faults({a: ["1 w 0", "4 w 3", "9 w 9"], b: ["9 w 9"]}), [])
        self.assertEqual(resource.faults({a: good[:2], b: []}, forgets=True), [])
        for wrong, word in ((["3 w 2", "1 w 0", *good[2:]], "behind"), ([*good[1:]], "missing"),
                            ([good[0], "2 w 1", *good[1:]], "told no"), ([good[0], *good], "2 times"),
                            ([*good[:3], "5 w 4", good[3]], "never sent"), (good[:3], "half")):
            self.assertTrue(any(word in fault for fault in resource.faults({a: wrong, b: ["9 w 9"]})), word)


class Processes(FaultTest):
    def test_a_sidecar_is_killed(self):
        """Two sidecars on one server; one after the other is killed at any moment, or told to end, and comes back."""
        guards = [self.start_guard(self.server.url()) for _ in range(2)]
        with self.writers(guards) as writers:
            for cycle in range(cycles(6)):
                writers.await_more()
                moment(self.random)
                guards[cycle % 2].stop() if cycle % 4 == 3 else guards[cycle % 2].kill()
                guards[cycle % 2].start()
            writers.await_more()
        writers.check(self, self.redis())
        self.tell(f"{cycles(6)} kills", writers)

    def test_a_sidecar_is_stopped_and_goes_on(self):
        """What it had taken before is sent when others have taken over."""
        guards = [self.start_guard(self.server.url()) for _ in range(2)]
        with self.writers(guards) as writers:
            for cycle in range(cycles(8)):
                writers.await_more()
                moment(self.random)
                guards[cycle % 2].pause()
                try:
                    writers.await_more("takeovers", count=2)
                finally:
                    guards[cycle % 2].resume()
            writers.await_more()
        writers.check(self, self.redis())
        self.tell(f"{cycles(8)} stops", writers)

    def test_a_holder_is_stopped_past_its_lease(self):
        """A process that writes is stopped; another takes over; the first goes on in the middle of what it did."""
        guard = self.start_guard(self.server.url())
        resource = Resource("r")
        other = self.client(guard.address())
        holder = subprocess.Popen([sys.executable, "-B", os.path.abspath(__file__), "--holder", guard.address(), "r"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (holder.kill(), holder.communicate()))
        for cycle in range(cycles(20)):
            token = resource.next_token()
            holder.stdin.write(f"{token}\n")
            holder.stdin.flush()
            self.heard(holder, resource, f"{token} holder 0")
            moment(self.random, 0.01)
            holder.send_signal(signal.SIGSTOP)
            above = resource.next_token()
            self.assertEqual(other.call("FENCE", "r", above, "other"), "OK")
            before = other.call("LRANGE", resource.lists[0], 0, -1)
            for number in range(2):
                entry = f"{above} other {number}"
                resource.tell(resource.lists[0], entry, YES)
                self.assertEqual(other.call("RPUSH", resource.lists[0], entry), len(before) + number + 1)
            holder.send_signal(signal.SIGCONT)
            self.assertTrue(self.heard(holder, resource, None).startswith(f"STALE token={token} highest={above}"))
        lists = {key: self.redis().call("LRANGE", key, 0, -1) for key in resource.lists}
        self.assertEqual(resource.faults(lists), [])
        print(f"a holder was stopped {cycles(20)} times; {len(lists[resource.lists[0]])} entries", flush=True)

    def heard(self, holder, resource, until):
        """Takes what the holder tells, to this entry, or to its first refusal, which is answered."""
        for line in holder.stdout:
            outcome, entry, answer = line.rstrip("\n").split("\t")
            resource.tell(resource.lists[0], entry, outcome)
            if entry == until or (until is None and outcome != YES):
                return answer
        raise AssertionError("the holder has ended")

    def test_scripts_are_flushed(self):
        guards = [self.start_guard(self.server.url())]
        redis = self.redis()
        with self.writers(guards) as writers:
            for _ in range(cycles(50)):
                writers.await_more(count=2)
                for _ in range(3):
                    moment(self.random, 0.002)
                    self.assertEqual(redis.call("SCRIPT", "FLUSH"), "OK")
            writers.await_more()
        writers.check(self, redis)
        self.tell(f"{cycles(50)} times 3 flushes of scripts", writers)


class Storage(FaultTest):
    def test_redis_is_killed_and_restarted(self):
        server = self.own_server(DURABLE)
        self.initialise(server)
        # What was sent to a process that is dead does not arrive late; a sidecar cannot know that it is.
        guards = [self.start_guard(server.url(), "--settle", "250ms") for _ in range(2)]
        with self.writers(guards) as writers:
            for _ in range(cycles(6)):
                writers.await_more()
                moment(self.random)
                server.kill()
                moment(self.random)
                server.start()
            writers.await_more()
        writers.check(self, self.redis(server))
        self.tell(f"{cycles(6)} kills of Redis", writers)

    def test_redis_does_not_answer_in_time(self):
        """What was given up is unknown, and may still be done; never behind what a higher token wrote."""
        server = self.own_server()
        self.initialise(server)
        guards = [wait_until(lambda: self.hasty_guard(server), what="a start in front of it") for _ in range(2)]
        with self.writers(guards) as writers:
            for _ in range(cycles(4)):
                writers.await_more()
                moment(self.random)
                server.pause()
                try:
                    writers.await_more(UNKNOWN, NO, "not fenced", count=6)
                finally:
                    server.resume()
            writers.await_more()
        writers.check(self, self.redis(server))
        self.tell(f"{cycles(4)} stops of Redis", writers)

    def hasty_guard(self, server):
        """None where Redis was too late for its start already."""
        try:
            return self.start_guard(server.url("/0?timeout=100ms"))
        except AssertionError as error:
            if "did not answer in time" not in str(error):
                raise
            return None

    def test_everything_is_flushed(self):
        """The namespace is then not initialised: nothing is written until 'fence init' was run."""
        guards = [self.start_guard(self.server.url())]
        redis = self.redis()
        refused = 0
        for cycle in range(cycles(8)):
            # All but one client stay connected over it, and hold claims from before.
            with self.writers(guards, each=2) as writers:
                writers.await_more()
                moment(self.random)
                self.assertEqual(redis.call("FLUSHALL"), "OK")
                for writer in writers.all:
                    writer.counts[NO] = 0
                writers.await_more("not fenced")
                self.assertEqual(redis.call("KEYS", "*"), [])
                refused += writers.count("not fenced")
            self.assertEqual(redis.call("KEYS", "*"), [])
            self.assertEqual([writer.wrong for writer in writers.all if writer.wrong], [])
            self.assertTrue(all(writer.last is None or writer.last.startswith(("UNAVAILABLE", "STALE"))
                                for writer in writers.all), [writer.last for writer in writers.all])
            self.initialise(self.server)
        print(f"{cycles(8)} flushes of everything; {refused} takeovers refused", flush=True)

    def test_a_replica_is_promoted(self):
        """G1 to G4 speak of the history that survives: what was acknowledged and lost by asynchronous replication takes its
        fence with it. So the lists of the replica are the beginnings of the old master's, behind them is only what was
        written after the promotion; of that nothing is missing, and over all of it tokens never fall."""
        self.lost = 0
        for _ in range(cycles(3)):
            with redis_server.Server({"repl-diskless-sync-delay": "0"}) as master:
                self.initialise(master)
                with redis_server.Server(replica_of=master) as replica, CuttingProxy(master.port) as proxy:
                    master.wait_for_replicas()
                    self.promote(master, replica, proxy)
        print(f"{cycles(3)} promotions; {self.lost} entries that were acknowledged went with their history", flush=True)

    def promote(self, master, replica, proxy):
        guards = [self.start_guard(f"redis://127.0.0.1:{proxy.port}", "--settle", "250ms")]
        with self.writers(guards) as writers:
            writers.await_more(count=20)
            if self.random.random() < 0.7:  # so that it lags
                replica.pause()
                writers.await_more(count=20)
                proxy.to_port = replica.port
                proxy.cut_all()
                with self.redis(master) as link:
                    link.call("CLIENT", "KILL", "TYPE", "replica")
                replica.resume()
            else:
                proxy.to_port = replica.port
                proxy.cut_all()
            wait_until(lambda: replica.cli("REPLICAOF", "NO", "ONE") == "OK")
            # Whatever is still on its way to the old master is refused by it from here on, or was done.
            master.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            old = {key: master.cli("LRANGE", key, 0, -1) for each in writers.resources for key in each.lists}
            writers.await_more(count=20)
        guards[0].kill()
        new = {key: replica.cli("LRANGE", key, 0, -1) for key in old}
        told = {}
        for resource in writers.resources:
            self.assertEqual(resource.faults(new, forgets=True)[:5], [])
            told.update({key: dict(resource.told[key]) for key in resource.lists})
        for key, entries in new.items():
            survived = [entry for entry in entries if entry in set(old[key])]
            self.assertEqual(survived, old[key][:len(survived)], key)
            self.assertEqual(entries[:len(survived)], survived, key)
            lost = set(old[key][len(survived):])
            self.lost += sum(told[key].get(entry) == YES for entry in lost)
            missing = [entry for entry, outcome in told[key].items()
                       if outcome == YES and entry not in entries and entry not in lost]
            self.assertEqual(missing, [], key)


class Cuts(FaultTest):
    """The connection to Redis is cut at the first byte of a flight, at the second, ... until it passes uncut; and so at
    each byte of its answer. With all that was sent before on that connection, and as the first that is sent on one."""

    def setUp(self):
        super().setUp()
        self.proxy = CuttingProxy(self.server.port)
        self.addCleanup(self.proxy.close)
        self.guard = self.sidecar(url=f"redis://127.0.0.1:{self.proxy.port}")
        self.link = self.redis()
        self.resource = Resource("r", 2)
        self.token, self.number = 1, 0
        self.writer = self.claimed(self.guard, "r", 1)
        self.told = {YES: 0, NO: 0, UNKNOWN: 0}
        self.refused = set()

    def entry(self):
        self.number += 1
        return f"{self.token} h {self.number}"

    def every_byte(self, flight, few):
        """flight(): sends it, checks what was told, and answers whether all of it was done."""
        positions = []
        for is_warm in (True, False):
            for to_server in (True, False):
                step = 1 if CYCLES else (few if is_warm else 40 * few)
                at = 1 if CYCLES else self.random.randint(1, step)
                positions.append(self.cut_from(flight, is_warm, to_server, range(at, 1 << 30, step)))
        self.check_all()
        print(f"{self.id().rpartition('.')[2]}: {'+'.join(map(str, positions))} cuts; "
              + ", ".join(f"{name} {count}" for name, count in self.told.items()), flush=True)

    def cut_from(self, flight, is_warm, to_server, places):
        """How many cuts there were until one was behind the end."""
        for cuts, place in enumerate(places):
            while True:
                self.warm() if is_warm else self.proxy.cut_all()
                self.proxy.arm(to_server, place)
                is_done = flight()
                if not self.proxy.disarm():
                    break
                if is_done:
                    return cuts
                # It went on a connection that was gone already.
        raise AssertionError("no end")

    def warm(self):
        """Until all of its connections are there and know the scripts."""
        def is_warm():
            entry = self.entry()
            answers = self.writer.calls(("RPUSH", "{r}:w", entry), ("LLEN", "r"), ("RPUSH", "{r}:w", entry),
                                        ("RPUSH", "{r}:w", entry), ("MULTI",), ("RPUSH", "{r}:w", entry), ("EXEC",),
                                        ("BITFIELD", "{r}:f", "SET", "u8", 0, 1), ("FENCE", "warm", 1, "h"))
            return not any(isinstance(answer, Failure) for answer in answers)
        wait_until(is_warm, what="connections to Redis")

    def note(self, outcome, count=1):
        self.told[outcome] += count
        return outcome

    def judge(self, entry, answer, times):
        outcome = self.note(outcome_of(answer))
        self.assertIn(times, {YES: (1,), NO: (0,), UNKNOWN: (0, 1)}[outcome], answer)
        if outcome == NO:
            self.refused.add(entry)
        return outcome == YES

    def there(self, entry, key="r"):
        return self.link.call("LRANGE", key, -50, -1).count(entry)

    def both(self, entry):
        """How often it is in each of the two lists of a transaction, looked at in one step."""
        lists = self.link.calls(("MULTI",), ("LRANGE", "r", -50, -1), ("LRANGE", "{r}:b", -50, -1), ("EXEC",))[3]
        here, there = (entries.count(entry) for entries in lists)
        self.assertEqual(here, there, "half of it")
        return here

    def check_all(self):
        """At the end: nothing came later that should not, and nothing twice."""
        for key in ("r", "{r}:b", "{q}:l"):
            entries = self.link.call("LRANGE", key, 0, -1)
            self.assertEqual(len(entries), len(set(entries)), key)
            self.assertEqual([entry for entry in entries if entry in self.refused], [])

    def test_one_write(self):
        def flight():
            entry = self.entry()
            answer = self.writer.call("RPUSH", "r", entry)
            return self.judge(entry, answer, self.there(entry))
        self.every_byte(flight, 9)

    def test_a_pipeline(self):
        def flight():
            entries = [self.entry() for _ in range(4)]
            commands = [command for entry in entries for command in (("RPUSH", "r", entry), ("LLEN", "r"))]
            answers = self.writer.calls(*commands)[::2]
            for entry, answer in zip(entries, answers):
                return self.judge(entry, answer, self.there(entry))
        self.every_byte(flight, 29)

    def test_a_run_of_writes(self):
        def flight():
            entries = [self.entry() for _ in range(5)]
            answers = self.writer.calls(*[("RPUSH", "r", entry) for entry in entries])
            for entry, answer in zip(entries, answers):
                return self.judge(entry, answer, self.there(entry))
        self.every_byte(flight, 15)

    def test_a_transaction(self):
        def flight():
            entry = self.entry()
            answer = self.writer.calls(("MULTI",), ("RPUSH", "r", entry), ("RPUSH", "{r}:b", entry), ("EXEC",))[3]
            here = self.both(entry)
            return self.judge(entry, answer, here)
        self.every_byte(flight, 15)

    def test_a_transaction_behind_a_watch(self):
        def flight():
            entry = self.entry()
            answers = self.writer.calls(("WATCH", "{r}:o"), ("MULTI",), ("RPUSH", "r", entry), ("RPUSH", "{r}:b", entry),
                                        ("EXEC",))
            here = self.both(entry)
            return self.judge(entry, answers[4], here)
        self.every_byte(flight, 25)

    def test_watched_transaction_of_one_command(self):
        def flight():
            self.number += 1
            answer = self.writer.call("BITFIELD", "{r}:n", "SET", "u32", 0, self.number)
            now = self.link.call("BITFIELD_RO", "{r}:n", "GET", "u32", 0)
            return self.judge(None, answer, int(now == [self.number]))
        self.every_byte(flight, 15)

    def test_a_command_with_a_claim_of_its_own_and_a_sequence(self):
        def flight():
            entry = self.entry()
            words = ("FENCED", "q", 1, "h", "SEQ", self.number, "RPUSH", "{q}:l", entry)
            answer = self.writer.call(*words)
            outcome = self.note(outcome_of(answer))
            self.assertIn(self.there(entry, "{q}:l"), {YES: (1,), NO: (0,), UNKNOWN: (0, 1)}[outcome], answer)
            is_uncut = self.proxy.disarm()
            # Said again it is done once, whatever was told.
            if outcome != YES:
                wait_until(lambda: outcome_of(again := self.writer.call(*words)) == YES or again.startswith("DUPLICATE"))
            self.assertEqual(self.there(entry, "{q}:l"), 1)
            if is_uncut:
                self.proxy.arm(True, 1 << 40)
            return outcome == YES
        self.every_byte(flight, 15)

    def test_what_only_reads_is_never_unknown(self):
        def flight():
            answers = [self.writer.call("GET", "r:n"), *self.writer.calls(
                ("FENCED", "r:n", 1, "h", "GET", "r:n"), ("LLEN", "r"), ("MULTI",), ("GET", "r:n"), ("LLEN", "r"), ("EXEC",),
                ("FENCED", "r:n", 1, "h", "BITFIELD_RO", "r:n", "GET", "u8", 0))]
            failures = [answer for answer in answers if isinstance(answer, Failure)]
            self.note(NO if failures else YES)
            for failure in failures:
                self.assertFailure(failure, "UNAVAILABLE ")
            return not failures
        self.every_byte(flight, 25)

    def test_a_takeover(self):
        """FENCE answers OK only where the fence is raised; where it does not, no write passes that should not."""
        def flight():
            self.token += 1
            answer = self.writer.call("FENCE", "r", self.token, "h")
            shown = self.link.call("HGET", "fenceguard:{r}", "token")
            if answer == "OK":
                self.note(YES)
                self.assertEqual(shown, str(self.token))
            else:
                self.note(NO)
                self.assertFailure(answer, "UNAVAILABLE ")
                self.assertIn(shown, (str(self.token), str(self.token - 1)))
                was_uncut = self.proxy.disarm()
                wait_until(lambda: self.writer.call("FENCE", "r", self.token, "h") == "OK")
                if was_uncut:
                    self.proxy.arm(True, 1 << 40)
            return answer == "OK"
        self.every_byte(flight, 9)

    def test_the_first_words_of_a_client(self):
        """While the sidecar greets Redis and asks it for its commands."""
        positions = 0
        for to_server in (True, False):
            step = 50 if CYCLES else 4_000
            at = self.random.randint(1, step)
            while True:
                guard = self.sidecar(url=f"redis://127.0.0.1:{self.proxy.port}")
                self.proxy.arm(to_server, at)
                with Client(guard.data) as client:
                    answer = client.call("GET", "r")
                    is_uncut = self.proxy.disarm()
                    self.assertTrue(answer is None or answer.startswith("UNAVAILABLE "), answer)
                    wait_until(lambda: client.call("GET", "r") is None, what="an answer behind it")
                guard.kill()
                if is_uncut:
                    break
                at += step
                positions += 1
        print(f"the first words of a client: {positions} cuts", flush=True)


def hold(address, name):
    """A holder in a process of its own: for each token that it is given it writes until it is refused."""
    client = Client(address)
    for line in sys.stdin:
        token, number, outcome = line.strip(), 0, YES
        if client.call("FENCE", name, token, "holder") != "OK":
            raise SystemExit("not fenced")
        while outcome == YES:
            entry = f"{token} holder {number}"
            answer = client.call("RPUSH", f"{{{name}}}:a", entry)
            outcome = outcome_of(answer)
            print(f"{outcome}\t{entry}\t{answer}", flush=True)
            number += 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--holder"]:
        hold(*sys.argv[2:])
    else:
        if "--cycles" in sys.argv:
            place = sys.argv.index("--cycles")
            CYCLES = int(sys.argv[place + 1])
            del sys.argv[place:place + 2]
        unittest.main()
