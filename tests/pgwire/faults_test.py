"""Clients write through the sidecar while everything else fails; what stands in their history is compared with what they
were told (fault_case.py).

Some cycles of each fault in the tests; with --cycles 200, and the name of a test or none, that many. The cuts are then at
every message, and in the middle of each. A cycle in which nothing was done to anybody is a failure.
"""

import os
import signal
import subprocess
import sys
import unittest

import psycopg
from fault_case import NO, RESOURCE, UNKNOWN, YES, FaultTest, History, MessageProxy, Row, Writer, Writers, insert
from waiting import moment, wait_until

CYCLES = 0  # 0: a few of each


def cycles(few):
    return CYCLES or few


def has_stopped(process):
    with open(f"/proc/{process.pid}/stat", encoding="ascii") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"


class Check(unittest.TestCase):
    """What is to be found is found."""

    def test_each_kind_of_fault(self):
        history = History()
        first, second, refused, lost = ([f"{token} w 1", f"{token} w 2"] for token in (1, 2, 3, 4))
        for entries, outcome in ((first, YES), (second, YES), (refused, NO), (lost, UNKNOWN)):
            history.tell(entries, outcome)
            history.together.append(entries)
        good = [Row(1, 1, "w", 1, 10, "10:10:"), Row(2, 1, "w", 2, 10, "10:10:"),
                Row(3, 2, "w", 1, 12, "12:12:"), Row(4, 2, "w", 2, 12, "11:13:11")]
        self.assertEqual(history.faults(good), [])
        late = [row._replace(seen="10:13:10") if row.token == 2 else row for row in good]
        for rows, word in (([*good[2:], *good[:2]], "stale"), (late, "stale"), (good[:2], "lost"), (good[:3], "half"),
                           ([*good[:2], good[2]._replace(seen="10:10:"), good[3]], "stale"), ([*good, good[3]], "2 times"),
                           ([*good, Row(5, 3, "w", 1, 13, "13:13:"), Row(6, 3, "w", 2, 13, "13:13:")], "told no"),
                           ([*good, Row(5, 9, "w", 1, 13, "13:13:")], "never sent"),
                           ([*good, Row(5, 4, "w", 1, 13, "13:13:")], "half")):
            self.assertTrue(any(word in fault for fault in history.faults(rows)), word)


class Holders(FaultTest):
    def setUp(self):
        super().setUp()
        self.sidecar = self.start_sidecar()
        self.other = Writer(self, self.sidecar, self.seed)
        self.addCleanup(self.other.close)

    def start_holder(self):
        holder = subprocess.Popen([sys.executable, "-B", os.path.abspath(__file__), "--holder"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (holder.kill(), holder.communicate()))
        return holder

    def ask(self, holder, *words):
        print(*words, sep="\t", file=holder.stdin, flush=True)

    def hear(self, holder, *words):
        """The rest of its next line, which begins so."""
        line = holder.stdout.readline().rstrip("\n").split("\t")
        self.assertEqual(line[:len(words)], list(words), line)
        return line[len(words):]

    def takes_over(self):
        self.assertTrue(self.other.take_over())
        self.assertEqual(self.other.write(self.other.block), YES)

    def begin(self, holder):
        """It holds a new token, and has a transaction open that was admitted. Answers its backend, and what it wrote."""
        token = self.history.next_token()
        self.ask(holder, "take", self.conninfo(self.sidecar, (RESOURCE, token, "holder")))
        [pid] = self.hear(holder, "taken")
        entries = self.history.next_entries(token, "holder", 2)
        self.ask(holder, "insert", ";".join(map(insert, entries)))
        self.hear(holder, "inserted")
        return int(pid), entries

    def stop_amid(self, holder):
        """Stopped in an open transaction; another advances, and writes. Answers what the holder hears of its COMMIT."""
        pid, entries = self.begin(holder)
        holder.send_signal(signal.SIGSTOP)
        wait_until(lambda: has_stopped(holder), what="a holder that is stopped")
        self.assertEqual(self.run_directly(f"select state from pg_stat_activity where pid = {pid}"), "idle in transaction")
        self.takes_over()
        self.ask(holder, "commit")
        holder.send_signal(signal.SIGCONT)
        outcome, said = self.hear(holder, "committed")
        self.history.tell(entries, NO if said == "57P01" else outcome)  # it was told so before it said COMMIT
        self.assertEqual(self.other.write(self.other.single), YES)
        self.other.close()
        return said

    def test_a_holder_is_stopped_between_admission_and_commit(self):
        """The newer one cuts it, and it is told so."""
        holder = self.start_holder()
        for _ in range(cycles(10)):
            self.assertEqual(self.stop_amid(holder), "57P01")
        self.tell(f"{cycles(10)} holders stopped in a transaction, each told 57P01")

    def test_a_holder_is_stopped_at_any_moment(self):
        """It writes one transaction after another, is stopped, goes on when another has written, and is refused."""
        holder, heard = self.start_holder(), {}
        for _ in range(cycles(10)):
            token = self.history.next_token()
            self.ask(holder, "take", self.conninfo(self.sidecar, (RESOURCE, token, "holder")))
            self.hear(holder, "taken")
            blocks = [self.history.next_entries(token, "holder", 2) for _ in range(500)]
            self.ask(holder, "blocks", *[";".join(map(insert, entries)) for entries in blocks])
            self.hear(holder, "committed", YES)
            self.history.tell(blocks[0], YES)
            moment(self.random, 0.01)
            holder.send_signal(signal.SIGSTOP)
            wait_until(lambda: has_stopped(holder), what="a holder that is stopped")
            self.takes_over()
            holder.send_signal(signal.SIGCONT)
            outcome = YES
            for entries in blocks[1:]:
                if outcome == YES:
                    outcome, said = self.hear(holder, "committed")
                    self.history.tell(entries, outcome)
                else:
                    self.history.tell(entries, NO)  # never sent
            self.assertIn(said, ("57P01", "ZF001"))
            heard[said] = heard.get(said, 0) + 1
            self.assertEqual(self.other.write(self.other.single), YES)
            self.other.close()
        self.tell(f"{cycles(10)} holders stopped as they wrote, each refused: {heard}")

    def test_without_admissions_what_is_stale_is_found(self):
        """The same with a database that admits everybody: what the tests here look for comes about, and they see it."""
        self.run_directly("create or replace function fenceguard.confirm(resource text, token bigint, holder text default '') "
                          "returns void language sql as $$ select 1 $$")
        self.assertEqual(self.stop_amid(self.start_holder()), "")
        faults = self.history.faults(self.rows())
        self.assertTrue(faults and all(fault.startswith("stale: transactions ") for fault in faults), faults)


class Processes(FaultTest):
    """Writers go through two sidecars of one server, to one of which, or to the server, something is done again and again at
    any moment."""

    def campaign(self, told, act):
        """act(sidecar, number of the cycle, writers)"""
        guards = [self.guard() for _ in range(2)]
        with Writers(self, guards) as writers:
            for cycle in range(cycles(10)):
                writers.await_more()
                moment(self.random)
                act(guards[cycle % 2], cycle, writers)
            writers.await_more()
        writers.check(f"{cycles(10)} {told}")

    def test_a_sidecar_is_killed(self):
        """Or told to end, and comes back."""
        def kill(guard, cycle, _):
            self.assertIsNone(guard.process.poll())
            guard.stop() if cycle % 4 == 3 else guard.kill()
            guard.start()
        self.campaign(f"sidecars ended, of which {cycles(10) // 4} by SIGTERM", kill)

    def test_a_sidecar_is_stopped_and_goes_on(self):
        """What it had taken before is sent when others have taken over."""
        def stop(guard, _, writers):
            guard.pause()
            try:
                wait_until(lambda: has_stopped(guard.process), what="a sidecar that is stopped")
                writers.await_more("takeovers", count=2)
            finally:
                guard.resume()
        self.campaign("sidecars stopped, and others took over meanwhile", stop)

    def test_postgresql_is_ended_and_recovers(self):
        def end(*_):
            self.assertTrue(self.postgres.is_running())
            self.postgres.stop("immediate")
            self.postgres.start()
        self.campaign("ends of PostgreSQL with -m immediate", end)


class Cuts(FaultTest):
    """The connection is cut behind each message, and within each, of one client's transaction, in one direction and in the
    other, between client and sidecar and between sidecar and server. Then another takes over."""

    def setUp(self):
        super().setUp()
        # The control side has connections to the server, too; those of clients begin read-only.
        self.near = MessageProxy(self.postgres.port, b"default_transaction_read_only")
        self.addCleanup(self.near.close)
        behind = self.start_sidecar()
        self.far = MessageProxy(int(behind.data.rpartition(":")[2]), b"")
        self.addCleanup(self.far.close)
        self.other = Writer(self, behind, self.seed)
        self.addCleanup(self.other.close)
        url = self.postgres.url(self.database).replace(f":{self.postgres.port}/", f":{self.near.port}/")
        self.in_front = self.serve("--storage", url, "--listen", "127.0.0.1:0")

    def flight(self, side, way, is_raw):
        """A writer that takes over and writes once; what it says is with the history."""
        guard = self.in_front if side is self.near else self.far_end
        writer, before = Writer(self, guard, self.seed, is_raw), side.marked_over()
        is_done = writer.take_over() and writer.write(getattr(writer, way), 2) == YES
        writer.close()
        wait_until(lambda: side.marked_over() > before, what="an end of the connection")
        self.heard = f"{writer.last} {dict(writer.counts)} {dict(writer.said)}"
        return is_done

    class Place:
        """Where clients connect."""

        def __init__(self, port):
            self.data = f"127.0.0.1:{port}"

    @property
    def far_end(self):
        return self.Place(self.far.port)

    def places(self, side, to_server):
        """Behind each message, and somewhere within it."""
        ends = side.ends(to_server)
        within = [self.random.randrange(before + 1, after) for before, after in zip(ends, ends[1:]) if after > before + 1]
        return sorted({*ends, *within})

    def cut_everywhere(self, way, is_raw=False):
        cuts = done = 0
        for side in (self.near, self.far):
            for to_server in (True, False):
                side.record()
                self.assertTrue(self.flight(side, way, is_raw))
                places = self.places(side, to_server)
                for place in places if CYCLES else self.random.sample(places, 2):
                    side.arm(to_server, place)
                    done += self.flight(side, way, is_raw)
                    self.assertFalse(side.disarm(), f"nothing was cut at {place} of {places}; {self.heard}")
                    cuts += 1
                    self.assertTrue(self.other.take_over())
                    self.assertEqual(self.other.write(self.other.single), YES)
                    self.other.close()
        self.tell(f"{cuts} cuts, of which {done} behind the answer")

    def test_statements_that_commit_by_themselves(self):
        self.cut_everywhere("single")

    def test_blocks(self):
        self.cut_everywhere("block")

    def test_copy(self):
        self.cut_everywhere("copy")

    def test_the_extended_protocol(self):
        self.cut_everywhere("pipeline", is_raw=True)

    def test_copy_in_the_extended_protocol(self):
        self.cut_everywhere("copy_raw", is_raw=True)


def hold():
    """A holder in a process of its own, which does what it is told: take CONNINFO, insert SQL, commit, blocks SQL…"""
    link, notices = None, []

    def tell(*words):
        print(*words, sep="\t", flush=True)

    def commit(*statements):
        is_sent = False
        try:
            for statement in statements:
                link.cursor().execute(statement)
            is_sent = True
            link.commit()
            tell("committed", YES, "")
            return True
        except psycopg.Error as error:
            # What comes while nothing was asked for is a notice to libpq.
            is_cut = "57P01" in notices or "due to administrator command" in str(error)
            said = error.sqlstate or ("57P01" if is_cut else str(error))
            tell("committed", UNKNOWN if is_sent else NO, " ".join(said.split()))
            return False

    for line in sys.stdin:
        command, *words = line.rstrip("\n").split("\t")
        if command == "take":
            if link:
                link.close()
            link = psycopg.connect(words[0])
            notices.clear()
            link.add_notice_handler(lambda notice: notices.append(notice.sqlstate))
            tell("taken", link.info.backend_pid)
        elif command == "insert":
            link.cursor().execute(words[0])
            tell("inserted")
        elif command == "commit":
            commit()
        elif command == "blocks":
            for word in words:
                if not commit(word):
                    break


if __name__ == "__main__":
    if sys.argv[1:2] == ["--holder"]:
        hold()
    else:
        if "--cycles" in sys.argv:
            position = sys.argv.index("--cycles")
            CYCLES = int(sys.argv[position + 1])
            del sys.argv[position:position + 2]
        unittest.main()
