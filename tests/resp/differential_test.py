"""The same commands to Redis and through the sidecar under valid claims: the same bytes come back, and the same keys
are there afterwards.

How: two databases of one server, so that what depends on its hash seed is the same in both. Direct commands go to
database 0, those through the sidecar to database 1, alone, pipelined, under FENCED, and in MULTI with and without
WATCH. Then DUMP of every key is compared. The commands are made by chance (command_maker.py), of every command in the
server's table but those of EXCLUDED.

As a test, a few thousand. tests/resp/differential_test.py --commands 100000 --seed 1 makes as many as it is told, goes on
after a difference, and prints what was made. FENCEGUARD_BINARY and PYTHONPATH as tests/kit/README.md says.
"""

import argparse
import collections
import os
import random
import re
import sys
import time
import unittest

import resp_case
from command_maker import PLAIN_KEYS, RESOURCES, Maker
from wire import Wire, value_of

COMMANDS = int(os.environ.get("FENCEGUARD_DIFFERENTIAL_COMMANDS", "4000"))
SEED = 1  # of the test; others by hand
RESERVED = b"fenceguard:"
CLAIM = (b"34", b"holder")
NEAR_MS = 120_000  # so much later may the second of two have come
EXPIRED_KEYS_AFTER = 2_000  # commands, so that values stay small

# Not made here, and why.
EXCLUDED = {
    "multi exec discard watch unwatch": "what the transactions here are made of",
    "auth hello select reset quit client": "answered by the sidecar, about the client's connection",
    "subscribe unsubscribe psubscribe punsubscribe ssubscribe sunsubscribe": "push messages: clients_test.py",
    "cluster readonly readwrite asking monitor sync psync replconf": "refused: not relayed",
    "acl bgrewriteaof bgsave config debug failover flushall flushdb latency memory migrate module move pfdebug pfselftest "
    "replicaof restore-asking save shutdown slaveof slowlog swapdb": "refused: for administrators",
    "script function fcall fcall_ro eval_ro evalsha evalsha_ro": "scripts by name: sidecar tests; EVAL is made here",
    "time lastsave info role lolwut": "about the server and its clock, passed on as they are",
    "randomkey": "by chance, and of what the sidecar keeps beside the data",
    "dbsize": "counts what the sidecar keeps beside the data",
    "command": "the table itself, half a megabyte",
    "wait waitaof": "replicas: there are none",
    "object|freq": "depends on the eviction policy, an error here",
    "vadd vsim vrem vrandmember vlinks vinfo vemb vcard vdim vgetattr vsetattr vismember": "a graph whose levels are by chance",
}
# Forms of others that are not made, and why.
FORMS_EXCLUDED = {
    "xadd with * as its id": "the clock's: made with ids",
    "spop of a part": "by chance: made of all or nothing",
    "a range by names of a set with several scores": "not defined, and by chance",
    "sort by what is no pattern": "in the order of a set's table, which may have grown in other steps",
    "sort with *, and nothing else, as a pattern": "refused: it could read what is fenceguard's own",
    "eval without keys": "refused: no claim covers it",
    "sort with ALPHA, and LIMIT or STORE or in MULTI": "of what it takes for equal, what comes first is by the table",
    "a keyword that keys stand behind, twice": "refused: Redis takes the last, and describes the first",
    "sort with STORE as another option's value": "taken for the keyword, whose key no claim covers",
    "sort by or getting other keys, under FENCED": "refused: no claim covers those keys",
    "copy with DB": "refused: for administrators",
    "scan and its kin from another cursor than 0": "where that is depends on the table",
    "scan without a COUNT beyond all keys": "its cursor depends on how many keys there are, the sidecar's own included",
}
# They wait, which is refused under a claim. In MULTI they do not.
WAITING = {"blpop", "brpop", "blmove", "brpoplpush", "blmpop", "bzpopmin", "bzpopmax", "bzmpop"}
# Compared in another way than byte by byte, and why.
BY_CHANCE = {"srandmember", "hrandfield", "zrandmember"}  # as many of the same kinds
OF_THE_CLOCK = {"ttl", "pttl", "expiretime", "pexpiretime", "xpending", "xinfo|stream", "xinfo|consumers", "xinfo|groups",
                "object|idletime"}  # numbers may differ by NEAR_MS
TABLES = SET, _ = 2, 4  # RDB_TYPE_SET, RDB_TYPE_HASH
# In the order of a hash's or set's table, which may have grown in other steps.
OF_A_TABLE = {"hgetall", "hkeys", "hvals", "hscan", "smembers", "sscan", "sinter", "sunion", "sdiff", "spop", "zscan"}
SORTS = {"sort", "sort_ro"}  # likewise those that ALPHA takes for equal: up to a NUL, or by what BY leads to
OF_ALL_KEYS = {"keys", "scan"}  # in the order of the database's table, in which the sidecar's own keys are as well


def as_dict(pairs):
    return dict(zip(pairs[::2], pairs[1::2]))


def text_of(value):
    if isinstance(value, list):
        return [text_of(one) for one in value]
    return value.decode() if isinstance(value, bytes) else value


def arguments_of(described):
    found = []
    for argument in described:
        form = as_dict([text_of(one) if at % 2 == 0 else one for at, one in enumerate(argument)])
        inner = form.pop("arguments", None)
        form = {name: text_of(value) for name, value in form.items()}
        if "token" in form:
            form["token"] = form["token"].encode()
        if inner is not None:
            form["arguments"] = arguments_of(inner)
        found.append(form)
    return found


def docs_of(described):
    """By name, of the answer to COMMAND DOCS: the arguments and the group, and the same of each subcommand."""
    found = {}
    for name, doc in as_dict(described).items():
        doc = {text_of(key): value for key, value in as_dict(doc).items()}
        form = {"group": text_of(doc["group"]), "arguments": arguments_of(doc.get("arguments", []))}
        if "subcommands" in doc:
            form["subcommands"] = docs_of(doc["subcommands"])
        found[text_of(name)] = form
    return found


def flags_of(table):
    """By name, of the answer to COMMAND."""
    found = {}
    for info in table:
        found[text_of(info[0])] = set(info[2])
        found.update(flags_of(info[9]))
    return found


def make_dumps(link):
    """What RESTORE can be given, of each type."""
    link.call("FLUSHDB")
    for words in ("SET s value", "RPUSH l a b c", "SADD t a b", "SADD n 1 2 3", "HSET h f v", "ZADD z 1 a 2 b", "XADD x 1-1 f v"):
        link.call(*words.split())
    dumps = [link.call("DUMP", name) for name in "sltnhzx"]
    link.call("FLUSHDB")
    return dumps


def is_by_nothing(command):
    return any(word.upper() == b"BY" and b"*" not in pattern for word, pattern in zip(command[2:], command[3:]))


def options_of(command):
    """As Redis reads them: up to a NUL."""
    return [word.partition(b"\0")[0].upper() for word in command[1:]]


def has_misleading_keyword(name, command):
    words = options_of(command)
    if any(words.count(keyword) > 1 for keyword in (b"STORE", b"STOREDIST", b"STREAMS")):
        return True
    before = words[:words.index(b"STORE")] if name in SORTS and b"STORE" in words else []
    return any(word in (b"BY", b"GET", b"LIMIT") for word in before[-1:]) or before[-2:-1] == [b"LIMIT"]


def is_sort_by_table(command, is_in_multi):
    words = options_of(command)
    return b"ALPHA" in words and (is_in_multi or b"LIMIT" in words or b"STORE" in words)


def reads_by_pattern(name, command):
    return name in SORTS and any(word.upper() in (b"BY", b"GET") for word in command[2:])


def only_shape(value):
    if isinstance(value, list):
        return [only_shape(one) for one in value]
    return str(value) if isinstance(value, Exception) else type(value)


def is_near(one, other):
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_near, one, other))
    if isinstance(one, int) and isinstance(other, int):
        return one == other or (min(one, other) >= 0 and abs(one - other) <= NEAR_MS)
    return str(one) == str(other)


def flat(value):
    return [inner for one in value for inner in flat(one)] if isinstance(value, list) else [value]


def is_same(name, direct, relayed):
    if direct == relayed:
        return True
    one, other = value_of(direct), value_of(relayed)
    if name in BY_CHANCE:
        return only_shape(one) == only_shape(other)
    if name in OF_THE_CLOCK:
        return is_near(one, other)
    if name in OF_A_TABLE | SORTS:
        return sorted(map(str, flat(one))) == sorted(map(str, flat(other)))
    if name in OF_ALL_KEYS:
        own = [key for key in flat(other) if not str(key).startswith(str(RESERVED)[:-1])]
        return sorted(map(str, flat(one))) == sorted(map(str, own))
    return False


class Differential:
    """Makes commands, sends them both ways and compares. differences: a sentence each."""

    def __init__(self, redis_address, sidecar_address, seed, differences_max=1):
        self.rng = random.Random(seed)
        self.differences_max = differences_max
        self.direct = [Wire(redis_address) for _ in range(2)]
        self.relayed = [Wire(sidecar_address) for _ in range(2)]
        self.zero, self.one = Wire(redis_address), Wire(redis_address)
        self.one.call("SELECT", 1)
        for link in self.relayed:
            for resource in RESOURCES + PLAIN_KEYS:
                answer = link.call("FENCE", resource, *CLAIM)
                assert answer == b"OK", answer
        excluded = {name for names in EXCLUDED for name in names.split()}
        self.maker = Maker(self.rng, docs_of(self.zero.call("COMMAND", "DOCS")), flags_of(self.zero.call("COMMAND")),
                           make_dumps(self.zero), excluded)
        self.counts = collections.Counter()
        self.by_name = collections.Counter()
        self.otherwise = {}
        self.differences = []
        self.recent = []
        self.is_spoilt = False  # a command of the transaction was refused here, which Redis refuses when it runs it
        self.must_forget = False  # the keys differ, because of one
        self.modes = [(self.alone, 25), (self.pipelined, 35), (self.fenced, 10), (self.multi, 25), (self.watching, 5)]

    def close(self):
        for link in (*self.direct, *self.relayed, self.zero, self.one):
            link.close()

    def run(self, count):
        fresh_at = EXPIRED_KEYS_AFTER
        while self.counts["commands"] < count and len(self.differences) < self.differences_max:
            self.rng.choices(*zip(*self.modes))[0]()
            if self.must_forget:
                self.must_forget = False
                self.recent = []
                self.forget_all()
            self.compare_keys()
            if self.counts["commands"] > fresh_at:
                fresh_at += EXPIRED_KEYS_AFTER
                self.forget_all()

    # -- making -----------------------------------------------------------------------------------------------------

    def keys_of(self, command):
        """None if the server cannot tell."""
        found = self.zero.call("COMMAND", "GETKEYS", *command)
        if isinstance(found, list):
            return found
        return [] if "no key arguments" in str(found) else None

    def make(self, is_in_multi=False):
        while True:
            name, command = self.maker.make()
            if name in WAITING and not is_in_multi:
                continue
            if self.rng.random() < 0.08:
                command = self.maker.spoil(command)
            if not command[0] or (name in ("xread", "xreadgroup") and not is_in_multi and b"BLOCK" in command):
                continue
            if command[0].lower() != name.split("|")[0].encode() and self.zero.call("COMMAND", "INFO", command[0]) != [None]:
                continue
            if name in SORTS and (b"*" in command[2:] or is_by_nothing(command) or is_sort_by_table(command, is_in_multi)):
                continue
            if has_misleading_keyword(name, command) or (name == "spop" and len(command) == 2):
                continue
            if name.endswith("scan") and b"0" not in command[1:3]:
                continue
            keys = self.keys_of(command)
            if name == "eval" and not keys:
                continue
            if is_in_multi and (keys is None or name in {"dump"} | BY_CHANCE | OF_THE_CLOCK | OF_A_TABLE | OF_ALL_KEYS):
                continue
            if all(self.is_claimed(key) for key in keys or []):
                self.counts["commands"] += 1
                self.by_name[name] += 1
                return name, command, keys

    @staticmethod
    def is_claimed(key):
        found = re.match(rb"[^{]*\{([^}]+)\}", key, re.DOTALL)
        return (found[1] if found else key) in RESOURCES + PLAIN_KEYS

    # -- the ways ---------------------------------------------------------------------------------------------------

    def exchange(self, mode, commands, relayed=None, names=None, on=0):
        """Both ways in one flight each, and the replies compared."""
        self.recent += commands
        self.direct[on].send(*commands)
        self.relayed[on].send(*(relayed or commands))
        replies = []
        for at, command in enumerate(commands):
            one, other = self.direct[on].read(), self.relayed[on].read()
            replies.append(one)
            name = names[at] if names else command[0].decode("latin-1").lower()
            if not is_same(name, one, other) and not (name == "dump" and self.is_same_dump(one, other)):
                self.note(mode, name, command, one, other)
        return replies

    def note(self, mode, name, command, one, other):
        is_queued = mode in ("multi", "watch") and one == b"+QUEUED\r\n"
        if is_queued and re.match(rb"-ERR fenceguard: the keys of|-NOFENCE it names no key", other):
            self.counts["refused when queued"] += 1
            self.is_spoilt = True
        elif self.is_spoilt and command[0].upper() == b"EXEC" and other.startswith(b"-EXECABORT "):
            self.is_spoilt, self.must_forget = False, True
        elif re.match(rb"-ERR fenceguard: |-NOFENCE ", other) and one.startswith(b"-"):
            self.counts["refused in other words"] += 1
            self.otherwise.setdefault((name, one[:50], other[17:80]), command)
        else:
            self.differences.append(f"{mode} {shown(command)}\n  direct  {one[:300]!r}\n  relayed {other[:300]!r}")

    def alone(self):
        for _ in range(self.rng.randrange(1, 20)):
            name, command, _ = self.make()
            self.exchange("alone", [command], names=[name])
            self.counts["alone"] += 1

    def pipelined(self):
        made = [self.make() for _ in range(self.rng.randrange(2, 80))]
        self.exchange("pipelined", [command for _, command, _ in made], names=[name for name, _, _ in made])
        self.counts["pipelined"] += len(made)

    def fenced(self):
        made = []
        while len(made) < 10:
            name, command, keys = self.make()
            resources = {self.resource_of(key) for key in keys or []}
            if len(resources) == 1 and not reads_by_pattern(name, command):
                made.append((name, command, [b"FENCED", resources.pop(), *CLAIM, *command]))
        self.exchange("fenced", [one[1] for one in made], [one[2] for one in made], [one[0] for one in made])
        self.counts["fenced"] += len(made)

    @staticmethod
    def resource_of(key):
        found = re.match(rb"[^{]*\{([^}]+)\}", key, re.DOTALL)
        return found[1] if found else key

    def transaction(self):
        made = [self.make(is_in_multi=True)[1] for _ in range(self.rng.randrange(0, 12))]
        self.counts["multi"] += len(made)
        self.is_spoilt = False
        return [[b"MULTI"], *made, [b"EXEC"] if self.rng.random() < 0.95 else [b"DISCARD"]]

    def multi(self):
        commands = self.transaction()
        if self.rng.random() < 0.5:
            self.exchange("multi", commands)
        else:
            for command in commands:
                self.exchange("multi", [command])

    def watching(self):
        """Another connection writes a watched key in between, or another key, or none does."""
        key = self.maker.key("string", self.rng.choice(RESOURCES))
        self.exchange("watch", [[b"WATCH", key, self.maker.key("list", self.rng.choice(RESOURCES))]])
        way = self.rng.randrange(3)
        if way:
            self.exchange("watch", [[b"SET", key if way == 1 else key + b"other", b"%d" % self.rng.randrange(1000)]], on=1)
        self.exchange("watch", self.transaction())
        self.counts["watching"] += 1

    # -- what is there ----------------------------------------------------------------------------------------------

    def keys_in(self, link):
        return sorted(key for key in link.call("KEYS", "*") if not key.startswith(RESERVED))

    def compare_keys(self):
        both = []
        for link in (self.zero, self.one):
            keys = self.keys_in(link)
            link.send(*([word, key] for key in keys for word in (b"DUMP", b"PEXPIRETIME")))
            replies = [value_of(link.read()) for _ in range(2 * len(keys))]
            both.append({key: (self.content(link, key, replies[2 * at]), replies[2 * at + 1]) for at, key in enumerate(keys)})
        self.counts["dumps"] += len(both[0])
        wrong = [key for key in sorted(both[0] | both[1]) if not self.is_same_key(both[0].get(key), both[1].get(key))]
        for key in wrong:
            said = "\n  ".join(shown(command) for command in self.recent if key in command)
            self.differences.append(f"the key {key!r}: {both[0].get(key)} and {both[1].get(key)} after\n  {said}")
        self.recent = []
        if wrong:
            self.forget_all()

    def content(self, link, key, dump):
        """Of a set or a hash that is a table, what is in it: the order of a table tells by which steps it grew."""
        if dump is not None and dump[0] in TABLES:
            held = link.call(b"SMEMBERS" if dump[0] == SET else b"HGETALL", key)
            return sorted(held) if dump[0] == SET else sorted(zip(held[::2], held[1::2]))
        return self.without_times(dump)

    def is_same_dump(self, *replies):
        """Of a table, by what is in it alone; in a stream are times."""
        one, other = map(value_of, replies)
        if not isinstance(one, bytes) or not isinstance(other, bytes):
            return False
        one, other = self.without_times(one), self.without_times(other)
        return sorted(one) == sorted(other) if one[0] in TABLES and one[0] == other[0] else one == other

    @staticmethod
    def is_same_key(one, other):
        return one is not None and other is not None and one[0] == other[0] and is_near(one[1], other[1])

    def without_times(self, dump):
        """Without its checksum and version, and without the times of day in it: those of consumers and deliveries."""
        if dump is None:
            return None
        now = int(time.time() * 1000) >> 16
        for high in range((self.maker.began_ms >> 16) - 1, now + 2):
            dump = re.sub(b".." + re.escape(high.to_bytes(6, "little")), b"-a time-", dump, flags=re.DOTALL)
        return dump[:-10]

    def forget_all(self):
        for link in (self.zero, self.one):
            if keys := self.keys_in(link):
                link.call("DEL", *keys)


def shown(command):
    return " ".join(repr(word[:60])[2:-1] or "''" for word in command[:40])


class DifferentialTest(resp_case.SidecarTest):
    def differ(self, count, seed, differences_max):
        sidecar = self.start_sidecar("--allow-scripts", database=1)
        run = Differential(("127.0.0.1", self.redis.port), ("127.0.0.1", int(sidecar.data.rpartition(":")[2])), seed, differences_max)
        self.addCleanup(run.close)
        run.run(count)
        return run

    def test_replies_and_keys_are_those_of_redis(self):
        run = self.differ(COMMANDS, SEED, 1)
        self.assertEqual(run.differences, [], "\n".join(run.differences))


def long_run(options):
    """A test of its own, which no test run finds."""
    class Long(DifferentialTest):
        def runTest(self):
            began = time.monotonic()
            run = self.differ(options.commands, options.seed, options.differences)
            print("\n".join(run.differences))
            for (name, one, other), command in sorted(run.otherwise.items()):
                print(f"in other words: {name}: {one!r}, fenceguard: {other!r}: {shown(command)[:100]}")
            print(f"seed {options.seed}: {dict(run.counts)}, {len(run.by_name)} commands, "
                  f"{len(run.differences)} differences, {time.monotonic() - began:.0f} s")
            self.assertEqual(len(run.differences), 0)

    return Long()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--commands", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--differences", type=int, default=20, help="so many, and it ends")
    done = unittest.TextTestRunner().run(long_run(parser.parse_args()))
    sys.exit(not done.wasSuccessful())


if __name__ == "__main__":
    if "--commands" in sys.argv:
        main()
    unittest.main()
