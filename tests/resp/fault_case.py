"""Writers for the fault tests of the sidecar in front of Redis, and what may stand in their lists afterwards.

Each writer appends entries 'TOKEN WRITER NUMBER' to lists of a resource, and takes over from the others by ever higher
tokens. What it was told of each entry is compared with the lists: tokens never fall, what was acknowledged is there once,
what was refused is not, what is unknown is there at most once, and of a transaction over two lists both are there or
neither.
"""

import collections
import itertools
import random
import threading

from resp_case import Client, Failure
from waiting import LIMIT_S, wait_until

YES, NO, UNKNOWN = "yes", "no", "unknown"


def outcome_of(answer):
    """What the answer to one write says: every error but one is a 'no'."""
    if isinstance(answer, Failure):
        return UNKNOWN if answer.startswith("UNKNOWN") else NO
    return NO if answer is None else YES


class Resource:
    """Its lists, the next token, and what was said of each entry."""

    def __init__(self, name, first=1):
        self.name = name
        self.lists = [f"{{{name}}}:a", f"{{{name}}}:b"]
        self._tokens = itertools.count(first)
        self.told = collections.defaultdict(dict)  # by list, then by entry
        self.pairs = []  # entries of transactions over both lists

    def next_token(self):
        return next(self._tokens)

    def tell(self, key, entry, outcome):
        self.told[key][entry] = outcome

    def faults(self, lists, forgets=False):
        """What contradicts. lists: by key. forgets: the storage lost the end of what it had acknowledged."""
        found = []
        for key in self.lists:
            entries = lists[key]
            tokens = [int(entry.split()[0]) for entry in entries]
            for i, (before, after) in enumerate(itertools.pairwise(tokens)):
                if after < before:
                    found.append(f"{key}[{i + 1}]: {entries[i + 1]!r} behind {entries[i]!r}")
            count = collections.Counter(entries)
            told = dict(self.told[key])
            for entry, times in count.items():
                if entry not in told:
                    found.append(f"{key}: {entry!r} is there, and was never sent")
                elif times > 1 or told[entry] == NO:
                    found.append(f"{key}: {entry!r}, told {told[entry]}, is there {times} times")
            if not forgets:
                found += [f"{key}: {entry!r} was acknowledged and is missing"
                          for entry, outcome in told.items() if outcome == YES and entry not in count]
        there = [set(lists[key]) for key in self.lists]
        found += [f"{self.name}: {entry!r} is half there" for entry in list(self.pairs)
                  if (entry in there[0]) != (entry in there[1])]
        return found


class Writer:
    """A client of one of the sidecars that writes under its own claim until it is stopped, whatever happens."""

    _numbers = itertools.count(1)

    def __init__(self, resource, address, seed):
        self.resource = resource
        self.address = address  # a function: HOST:PORT
        self.random = random.Random(seed)
        self.name = f"w{next(self._numbers)}"
        self.counts = collections.Counter()
        self.last = None  # the last refusal
        self.wrong = None
        self._entries = itertools.count(1)
        self._client = None
        self._token = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def stop(self):
        self._is_over.set()
        self._thread.join(2 * LIMIT_S)
        if self._client:
            self._client.close()
        if self._thread.is_alive():
            self.wrong = self.wrong or "it hangs"

    def _run(self):
        try:
            while not self._is_over.is_set():
                try:
                    self._step()
                except (Client.Gone, OSError):
                    self.counts["gone"] += 1
                    if self._client:
                        self._client.close()
                    self._client = None
                    self._is_over.wait(0.01)
        except Exception as error:  # the test tells of it
            self.wrong = repr(error)

    def _step(self):
        if self._client is None:
            self._client = Client(self.address(), LIMIT_S)
            self._token = None
        if self._token is None:
            token = self.resource.next_token()
            if self._client.call("FENCE", self.resource.name, token, self.name) != "OK":
                self.counts["not fenced"] += 1
                self._is_over.wait(0.005)
                return
            self._token = token
            self.counts["takeovers"] += 1
        self.random.choice((self._single, self._single, self._pipeline, self._transaction, self._fenced))()

    def _entry(self):
        return f"{self._token} {self.name} {next(self._entries)}"

    def _send(self, writes, commands, places):
        """writes: (list, entry) each; places: which answer tells of it."""
        for key, entry in writes:
            self.resource.tell(key, entry, UNKNOWN)  # until it is answered
        answers = self._client.calls(*commands)
        for (key, entry), place in zip(writes, places):
            outcome = outcome_of(answers[place])
            self.resource.tell(key, entry, outcome)
            self.counts[outcome] += 1
            if outcome == NO:
                self.last = answers[place]
                if answers[place].startswith(("STALE", "CONFLICT")):
                    self._token = None
        if self.last and self._token is not None and self.last.startswith("UNAVAILABLE"):
            self._is_over.wait(0.002)
        # A takeover now and then, where nobody else does.
        if self.random.random() < 0.02:
            self._token = None

    def _single(self):
        key, entry = self.resource.lists[0], self._entry()
        self._send([(key, entry)], [("RPUSH", key, entry)], [0])

    def _pipeline(self):
        writes = [(self.random.choice(self.resource.lists), self._entry()) for _ in range(self.random.randint(2, 20))]
        self._send(writes, [("RPUSH", *write) for write in writes], range(len(writes)))

    def _fenced(self):
        key, entry = self.resource.lists[1], self._entry()
        words = ("FENCED", self.resource.name, self._token, self.name, "RPUSH", key, entry)
        self._send([(key, entry)], [words], [0])

    def _transaction(self):
        entry = self._entry()
        self.resource.pairs.append(entry)
        writes = [(key, entry) for key in self.resource.lists]
        self._send(writes, [("MULTI",), *[("RPUSH", *write) for write in writes], ("EXEC",)], [3, 3])


class Writers:
    """Several writers, as a context manager; at its end none of them may have failed."""

    def __init__(self, resources, addresses, each=2, seed=0):
        self.resources = resources
        self.all = [Writer(resource, addresses[i % len(addresses)], f"{seed} {resource.name} {i}")
                    for resource in resources for i in range(each)]

    def __enter__(self):
        for writer in self.all:
            writer.start()
        return self

    def __exit__(self, *_):
        for writer in self.all:
            writer.stop()

    def count(self, *what):
        return sum(writer.counts[each] for writer in self.all for each in what or (YES,))

    def await_more(self, *what, count=5, limit_s=2 * LIMIT_S):
        before = self.count(*what)
        wait_until(lambda: self.count(*what) >= before + count or any(writer.wrong for writer in self.all), limit_s,
                   f"{count} more of {what or YES}; the last refusals: {[writer.last for writer in self.all]}")

    def check(self, test, redis, forgets=False):
        """redis: a client of the server that has the lists."""
        test.assertEqual([writer.wrong for writer in self.all if writer.wrong], [])
        for resource in self.resources:
            lists = {key: redis.call("LRANGE", key, 0, -1) for key in resource.lists}
            test.assertEqual(resource.faults(lists, forgets)[:10], [])

    def summary(self):
        total = collections.Counter()
        for writer in self.all:
            total.update(writer.counts)
        return ", ".join(f"{name} {count}" for name, count in sorted(total.items()))
