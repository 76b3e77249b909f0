"""One cycle: eight clients at ten resources, a fault meanwhile, and the history of it, judged."""

import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
import typing

import support
from waiting import LIMIT_S, wait_until

CLIENT = os.environ["FENCEGUARD_CAMPAIGN_CLIENT"]
CHECK = os.environ["FENCEGUARD_HISTORY_CHECK"]
CLIENTS, RESOURCES = 8, 10
CYCLE_LIMIT_S = 120
STOPPED = "T"


class Nothing(AssertionError):
    """A cycle in which what was to happen did not happen: it proves nothing."""


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


class Client:
    def __init__(self, words, record, log):
        self.record = record
        with open(log, "ab") as errors:
            self.process = subprocess.Popen([*words, "--record", record], stdin=subprocess.DEVNULL, stderr=errors,
                                            cwd=os.path.dirname(record), env=support.environment())
        self.stopped_at = None
        self.is_killed = False
        self.is_frozen = False  # by a fault, which continues it

    def resume_late(self, pause_s):
        """Continues a client that has stopped itself that long ago. Answers how long it was, or 0."""
        if self.is_frozen or state_of(self.process.pid) != STOPPED:
            self.stopped_at = None
            return 0
        self.stopped_at = self.stopped_at or time.monotonic()
        stopped_s = time.monotonic() - self.stopped_at
        if stopped_s < pause_s:
            return 0
        self.process.send_signal(signal.SIGCONT)
        self.stopped_at = None
        return stopped_s

    def kill(self):
        self.is_killed = True
        self.process.kill()
        self.process.wait(LIMIT_S)


class Cycle:
    """name: of its resources, of which no other cycle has any, and count how many. pause: of how many writes in a hundred come
    late. operations: of each client."""

    def __init__(self, storage, folder, name, seed, operations=None, pause=4, is_guarded=True, scenario=None,
                 count=RESOURCES):
        self.storage = storage
        self.name = name
        self.seed = seed
        self.chooser = random.Random(seed)
        self.injected = collections.Counter()
        self.failure = None
        self.forgetting = None
        self.is_closed = False
        self._folder = folder
        self._operations = operations or storage.operations
        self._pause = pause
        self._count = count
        self._is_guarded = is_guarded
        self._scenario = scenario
        self.url = storage.url if is_guarded else storage.unguarded
        self.source = storage.source
        self.words = []  # before those of a client
        self.clients = []
        self._all = []  # killed ones too
        self.is_over = threading.Event()

    @property
    def resources(self):
        return [f"{self.name}/{i}" for i in range(self._count)]

    def start_client(self):
        number = len(self._all)
        words = {"storage": self.url, "source": self.source, "process": number,
                 "seed": self.chooser.randrange(2**32), "operations": self._operations, "resources": self.name,
                 "count": self._count, "ttl-ms": int(self.storage.ttl_s * 1000), "pause": self._pause}
        line = [word for name, value in words.items() for word in ("--" + name, str(value))]
        client = Client([*self.words, CLIENT, *line] + ([] if self._is_guarded else ["--unguarded"]), os.path.join(self._folder, f"record-{number}"),
                        os.path.join(self._folder, "errors"))
        self.clients.append(client)
        self._all.append(client)
        return client

    def await_progress(self, low, high):
        """Returns when a share of all operations between these was done, drawn by the seed."""
        share = self.chooser.uniform(low, high)
        total = CLIENTS * self._operations
        wait_until(lambda: self.is_over.is_set() or self._count_lines() / 2 >= share * total, CYCLE_LIMIT_S,
                   "progress of the clients")
        if self.is_over.is_set():
            raise Nothing("the clients had ended before the fault came")

    def _count_lines(self):
        total = 0
        for client in list(self._all):
            try:
                with open(client.record, "rb") as file:
                    total += file.read().count(b"\n")
            except FileNotFoundError:
                pass
        return total

    def run(self):
        """Until all clients have done their operations. Raises AssertionError if one did not."""
        with self._scenario.around(self) if self._scenario else contextlib.nullcontext():
            self._run()

    def _run(self):
        for _ in range(CLIENTS):
            self.start_client()
        thread = threading.Thread(target=self._run_fault)
        thread.start()
        deadline = time.monotonic() + CYCLE_LIMIT_S
        try:
            while any(client.process.poll() is None for client in list(self.clients)) or self._awaits_fault(thread):
                for client in list(self.clients):
                    if (stopped_s := client.resume_late(self.storage.pause_s)):
                        self.injected["pauses"] += stopped_s > self.storage.ttl_s
                if time.monotonic() > deadline:
                    raise AssertionError(f"{self.name}: clients were not done after {CYCLE_LIMIT_S} s")
                time.sleep(0.01)
        finally:
            self.is_over.set()
            for client in self.clients:
                if client.process.poll() is None:
                    client.kill()
            thread.join()
        if self.failure:
            raise self.failure
        ended = [client.process.returncode for client in self._all if not client.is_killed]
        if any(ended):
            with open(os.path.join(self._folder, "errors"), encoding="utf-8", errors="replace") as file:
                raise AssertionError(f"{self.name}: clients ended with {ended}: {file.read()[-1000:]}")

    def _awaits_fault(self, thread):
        """While a fault is under way it is let end, but clients that have ended are waited for by no fault."""
        if thread.is_alive() and all(client.process.poll() is not None for client in list(self.clients)):
            self.is_over.set()
        return thread.is_alive()

    def _run_fault(self):
        try:
            if self._scenario:
                self._scenario.strike(self)
        except BaseException as failure:  # told by run()
            self.failure = failure

    # -- what was recorded -----------------------------------------------------------------------------------------------

    def operations(self):
        found = []
        for client in self._all:
            if not os.path.exists(client.record):  # it was killed before it began
                continue
            with open(client.record, encoding="ascii") as file:
                lines = [json.loads(line) for line in file if line.endswith("\n")]
            for line in lines:
                if "op" in line:
                    found.append(line)
                else:
                    found[-1].update(line)
        return found

    def log(self):
        """{resource: entries} of the storage."""
        return {resource: self.storage.entries(resource) for resource in self.resources}


def history_of(operations, log):
    """The text of a history as docs/histories.md has it."""
    applied = [{"applied": "write", "resource": resource, "token": entry.split()[0], "value": entry}
               for resource, entries in log.items() for entry in entries]
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in [*operations, *applied])


class Forgetting(typing.NamedTuple):
    """The storage forgot what it had since a backup was made, began at a moment, and was whole again at another; floor: the
    token that became the floor meanwhile. survivors: {resource: entries} of the backup."""

    began: int
    ended: int
    floor: str
    survivors: dict


def parts_of(operations, log, forgetting):
    """The operations and logs of the two histories that the storage has then: what was before, of which it has no log, and
    what survived and came after. Of what was under way meanwhile nobody knows to which of them it belongs."""
    survivors = {entry for entries in forgetting.survivors.values() for entry in entries}
    before, after = [], []
    for line in operations:
        is_survivor = line["op"] == "write" and line["value"] in survivors
        if line["called"] >= forgetting.ended:
            after.append(line)
        elif line.get("returned", forgetting.ended) <= forgetting.began:
            before.append(line)
            after += [line] if is_survivor else []
        else:
            before.append(without_answer(line))
            after.append(without_answer(line))
    floors = [{"op": "floor", "resource": resource, "process": 1_000_000 + i, "token": forgetting.floor,
               "called": forgetting.began, "returned": forgetting.ended, "verdict": "admitted"}
              for i, resource in enumerate(log)]
    return (before, {}), (floors + after, log)


def without_answer(line):
    told = ("highest",) if line["op"] == "write" else ("highest", "value")
    return {**{name: value for name, value in line.items() if name not in told},
            **({"verdict": "unknown"} if "returned" in line else {})}


def violations_in(path):
    """What history-check says of a history: empty where there is none."""
    done = subprocess.run([CHECK, "--quiet", path], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode not in (0, 1):
        raise AssertionError(f"history-check: {done.stderr}")
    return done.stdout if done.returncode else ""


def number_of(entry):
    return int(entry.split()[1])


def lost_updates(log):
    """Of all updates, how many the newest entry of their resource does not stand on."""
    return sum(len(entries) - number_of(entries[-1]) for entries in log.values() if entries)


def longest_gap_s(operations):
    """The longest time in which no write was acknowledged, up to the end of all."""
    ends = sorted(line["returned"] for line in operations if line["op"] == "write" and line.get("verdict") == "admitted")
    ends.append(max((line["called"] for line in operations), default=0))
    return max((later - earlier for earlier, later in zip(ends, ends[1:])), default=0) / 1e9
