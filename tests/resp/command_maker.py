"""Commands by chance, from what the server says of itself: COMMAND DOCS gives the shape of each, and the tables here
what its words are worth trying with. Keys are of the data's own types most of the time, and of others at times; a part
of the commands is spoilt afterwards (a word too few, one too many, one that makes no sense).

Everything is drawn from one generator of random numbers: the same seed and server make the same commands.
"""

import time

RESOURCES = [b"r1", b"r2", b"accounts/42", "k\u00f6nig".encode()]
KINDS = ["string", "bitmap", "hyperloglog", "list", "set", "intset", "hash", "sorted-set", "geo", "stream", "spare"]
OTHER_KINDS = {"set": ["set", "intset"], "string": ["string", "string", "bitmap", "hyperloglog"],
               "bitmap": ["bitmap", "string"], "geo": ["geo", "geo", "sorted-set"],
               "sorted-set": ["sorted-set", "sorted-set", "sorted-set", "geo", "set"], "generic": KINDS}
# Keys without a hash tag are resources of their own.
PLAIN_KEYS = [b"plain", b"plain:2", b"a{}b"]

WORDS = [b"a", b"b", b"c", b"ab", b"abc", b"foo", b"bar", b"", b"0", b"1", b"-1", b"10", b"3.0", b"1e3", b"nan", b"\x00\xff\r\n",
         b"\xc3\xb6", b"%s %d \\", b"9007199254740993", b"-9007199254740993", b"9223372036854775807",
         b"-9223372036854775808", b"x" * 45, b"y" * 100]
SMALL = [b"0", b"1", b"-1", b"2", b"-2", b"3", b"5", b"-5", b"10"]
BIG = [b"9007199254740992", b"9007199254740993", b"-9007199254740993", b"9223372036854775807", b"-9223372036854775808",
       b"1234567890123456789", b"9223372036854775808", b"abc", b"", b"1.5"]
SCORES = [b"0", b"1", b"-1", b"2.5", b"1e10", b"3.14159", b"inf", b"-inf", b"9007199254740993", b"-9007199254740993", b"1e-7",
          b"0.1", b"17", b"1e300", b"nan", b"x"]
BOUNDS = [b"-inf", b"+inf", b"0", b"1", b"(1", b"(2.5", b"10", b"-1", b"-", b"+", b"[a", b"(b", b"[c", b"[", b"x"]
IDS = [b"1-1", b"1-2", b"2-1", b"3-1", b"3-*", b"4-1", b"5-5", b"6-1", b"7-*", b"8-1", b"9-1", b"0-0", b"18446744073709551615-1",
       b"9007199254740993-9007199254740993", b"x-1"]
JUNK = [b"", b"-1", b"0", b"\xff\x00", b"nan", b"9223372036854775808", b"COUNT", b"x" * 200, b"STORE\x00x", b"count\x00"]

# What a word by that name is drawn from; else what its type says.
BY_NAME = {
    "encoding": [b"u8", b"i8", b"u1", b"i64", b"u63", b"i16", b"u64", b"i65", b"x"],
    "offset": [b"0", b"1", b"7", b"8", b"100", b"#1", b"#3", b"-1", b"99999999999", b"x"],
    "bit": [b"0", b"1", b"2"],
    "longitude": [b"13.361389", b"15.087269", b"2.349014", b"-74.006", b"0", b"180", b"181", b"x"],
    "latitude": [b"38.115556", b"37.502669", b"48.864716", b"40.7128", b"0", b"85", b"86", b"x"],
    "radius": [b"0", b"1", b"200", b"5000", b"20000", b"-1", b"x"],
    "width": [b"1", b"400", b"10000"], "height": [b"1", b"400", b"10000"],
    "min": BOUNDS, "max": BOUNDS, "start": BOUNDS + SMALL, "stop": BOUNDS + SMALL, "end": SMALL,
    "index": SMALL, "element": WORDS, "pivot": WORDS, "member": WORDS[:10], "member1": WORDS[:10], "member2": WORDS[:10],
    "field": WORDS[:8], "score": SCORES, "increment": SCORES + BIG + SMALL, "decrement": BIG + SMALL, "weight": SCORES,
    "group": [b"g1", b"g1", b"g2", b"none"], "consumer": [b"c1", b"c2"],
    "cursor": [b"0"], "pattern": [b"*", b"a*", b"?", b"[a-c]", b"{r1}*", b"nothing"],
    "count": [b"1", b"2", b"3", b"10", b"100", b"0", b"-1", b"x"],
    "maxlen": [b"0", b"1", b"2", b"100"], "threshold": [b"0", b"1", b"2", b"3-1", b"100"], "limit": SMALL,
    "rank": SMALL, "len": [b"0", b"1", b"2"], "min-match-len": [b"0", b"1", b"2", b"4"],
    "min-idle-time": [b"0", b"0", b"0", b"100000000", b"x"], "destination": SMALL,
    "numlocal": [b"0"], "timeout": [b"0", b"0.01", b"-1", b"x"], "entries-read": [b"0", b"1", b"-1", b"9007199254740993"],
    "entries-added": [b"0", b"20", b"9007199254740993", b"-1"], "message": WORDS, "channel": [b"ch1", b"ch2"],
    "shardchannel": [b"ch1", b"ch2"], "milliseconds": [b"0", b"5", b"x"],
}
FORMS = [b"GET", b"INCRBY", b"hash*", b"{r1}string*", b"#", b"nosort", b"{r1}hash*->a", b"fee*"]
SCRIPTS = [b"return redis.call('SET', KEYS[1], ARGV[1] or 'x')", b"return {1, 'two', {false, 3}, redis.call('TYPE', KEYS[1])}",
           b"return redis.call('INCR', KEYS[1])", b"return redis.error_reply('MY error')", b"return redis.call('NOSUCH')",
           b"return {KEYS[1] or false, ARGV[1] or false}"]

# Of some forms the outcome is by chance or another database's (see EXCLUDED): made by hand alone.
BY_HAND_ALONE = {"copy", "scan", "sscan", "hscan", "zscan", "spop"}
OF_EQUAL_SCORES = {"zrangebylex", "zrevrangebylex", "zlexcount", "zremrangebylex"}


class Maker:
    """commands of the server by its docs and table; dumps: what RESTORE is given."""

    def __init__(self, rng, docs, infos, dumps, excluded):
        self.rng = rng
        self.dumps = dumps
        self.began_ms = int(time.time() * 1000)
        self._terms = 0
        self.infos = infos
        self.shapes = {}
        for name, doc in docs.items():
            for word, form in doc.get("subcommands", {}).items() or [(name, doc)]:
                if word not in excluded and name not in excluded and word in infos:
                    self.shapes[word] = form
        self.names = sorted(self.shapes)
        self.weights = [3 if b"write" in infos[name] else 1 for name in self.names]
        self.by_hand = {name: getattr(self, "_" + name.replace("|", "_")) for name in self.names
                        if hasattr(self, "_" + name.replace("|", "_"))}

    def pick(self, values):
        return self.rng.choice(values)

    def chance(self, share):
        return self.rng.random() < share

    # -- words ------------------------------------------------------------------------------------------------------

    def key(self, kind, resource=None):
        kinds = OTHER_KINDS.get(kind, [kind])
        kind = self.pick(kinds if self.chance(0.9) else KINDS)
        if self.chance(0.03) and resource is None:
            return self.pick(PLAIN_KEYS)
        resource = resource or (self.home if self.chance(0.8) else self.pick(RESOURCES))
        end = b"\x00\xff" if self.chance(0.03) else self.pick([b"1", b"1", b"2", b"3"])
        return b"{%s}%s%s" % (resource, kind.encode(), end)

    def term_ms(self):
        """A time to live like no other, so that which is longer never depends on when they were given."""
        self._terms += 1
        return 1_000_000 + 1_000_000 * (self._terms * 7919 % 99991)

    def word(self, name, kind, group):
        if kind == "key":
            return self.key(group)
        if "unix-time" in kind:
            at = self.began_ms + self.term_ms() if self.chance(0.9) else self.pick([0, -1, 1, 2**62])
            return str(at if "milliseconds" in name else at // 1000).encode()
        if name in ("seconds", "milliseconds") and kind == "integer" and group != "server":
            term = self.term_ms() if self.chance(0.85) else self.pick([0, -1, 2**62, 2**63])
            return str(term if name == "milliseconds" else term // 1000).encode()
        if name in ("id", "min-id", "max-id", "lastid", "last-id", "entries_read", "last-delivered-id") or (
                group == "stream" and name in ("start", "end", "threshold")):
            return self.pick(IDS + [b"-", b"+", b"(1-1", b"2", b"$"] if name in ("start", "end") else IDS)
        if name in BY_NAME:
            return self.pick(BY_NAME[name])
        if kind == "integer":
            return self.pick(SMALL if self.chance(0.8) else BIG)
        if kind == "double":
            return self.pick(SCORES)
        if kind == "pattern":
            return self.pick(BY_NAME["pattern"])
        if self.chance(0.002):
            return bytes(self.rng.getrandbits(8) for _ in range(64)) * self.pick([1, 100, 1000])
        return self.pick(WORDS)

    # -- shapes -----------------------------------------------------------------------------------------------------

    def _add(self, form, group, out, counted):
        flags = form.get("flags", [])
        if "optional" in flags and self.chance(0.6):
            return
        name, kind, token = form["name"], form["type"], form.get("token")
        times = self.pick([1, 1, 2, 3, 4]) if "multiple" in flags else 1
        if kind == "string" and name == "id" and counted.get("keys") and counted.get("streams"):
            times = counted["keys"]
        if name == "numkeys":
            counted["at"] = len(out)
        for turn in range(times):
            if token is not None and kind != "pure-token" and (turn == 0 or "multiple_token" in flags):
                out.append(token)
            if kind == "pure-token":
                out.append(token if name != "auto_id" else self.pick(IDS))  # which is the clock's
                counted["streams"] = counted.get("streams") or token == b"STREAMS"
            elif kind == "oneof":
                self._add(self.pick(form["arguments"]), group, out, counted)
            elif kind == "block":
                counted["streams"] = counted.get("streams") or token == b"STREAMS"
                for inner in form["arguments"]:
                    self._add(inner, group, out, counted)
            else:
                out.append(self.word(name, kind, group))
        if kind == "key" and "at" in counted:
            out[counted.pop("at")] = str(times if self.chance(0.96) else times + self.pick([1, -1, -times, 2**31])).encode()
        if kind == "key":
            counted["keys"] = times

    def plain(self, name):
        """A command as its docs say."""
        form = self.shapes[name]
        group = form.get("group", "generic")
        out = [part.encode() for part in name.split("|")]
        counted = {}
        for argument in form.get("arguments", []):
            self._add(argument, group, out, counted)
        return out

    def make(self):
        """A command; not one that is spoilt."""
        self.home = self.pick(RESOURCES)
        name = self.rng.choices(self.names, self.weights)[0]
        is_by_hand = name in self.by_hand and (name in BY_HAND_ALONE or self.chance(0.6))
        command = self.by_hand[name]() if is_by_hand else self.plain(name)
        if name in OF_EQUAL_SCORES or b"BYLEX" in command:
            command[2 if name == "zrangestore" else 1] = self.lexical_key()
        return name, command

    def lexical_key(self):
        """Of a set whose scores are all 0: of another, what lies between two names depends on how its list has grown."""
        return b"{%s}lexical" % self.home

    def spoil(self, command):
        """Not so that a set of equal scores has others."""
        command, at = list(command), self.rng.randrange(len(command))
        way = self.rng.randrange(2 if any(word.endswith(b"}lexical") for word in command) else 5)
        if way == 0 and len(command) > 1:
            command.pop()
        elif way == 1:
            command.append(self.pick(JUNK))
        elif way == 2:
            command[at] = self.pick(JUNK)
        elif way == 3:
            command.insert(at, command[at])
        elif at > 0:
            command[at] = self.pick(BIG)
        return command

    # -- by hand ----------------------------------------------------------------------------------------------------

    def _many(self, values, most=4):
        return [self.pick(values) for _ in range(self.rng.randrange(1, most + 1))]

    def _xadd(self):
        trim = self.pick([[], [], [], [b"MAXLEN", b"~", b"5"], [b"MAXLEN", b"3"], [b"MINID", b"2-1"]])
        return [b"XADD", self.key("stream"), *trim, self.pick(IDS), b"f", self.pick(WORDS), b"g", self.pick(WORDS)]

    def _xgroup_create(self):
        return [b"XGROUP", b"CREATE", self.key("stream"), self.pick([b"g1", b"g2"]), self.pick([b"0", b"$", b"2-1"]), b"MKSTREAM"]

    def _xreadgroup(self):
        keys = [self.key("stream") for _ in range(self.pick([1, 1, 2]))]
        return [b"XREADGROUP", b"GROUP", self.pick([b"g1", b"g2"]), self.pick([b"c1", b"c2"]),
                *self.pick([[], [b"COUNT", b"1"], [b"NOACK"]]), b"STREAMS", *keys,
                *(self.pick([b">", b">", b">", b"0", b"1-1"]) for _ in keys)]

    def _xpending(self):
        span = [*self.pick([[], [b"IDLE", b"0"]]), b"-", b"+", b"10", *self.pick([[], [b"c1"]])]
        return [b"XPENDING", self.key("stream"), self.pick([b"g1", b"g2"]), *self.pick([[], span])]

    def _xautoclaim(self):
        return [b"XAUTOCLAIM", self.key("stream"), b"g1", self.pick([b"c1", b"c2"]), b"0", self.pick([b"0", b"0-0", b"2-1"]),
                *self.pick([[], [b"COUNT", b"1"], [b"JUSTID"]])]

    def _xclaim(self):
        return [b"XCLAIM", self.key("stream"), b"g1", self.pick([b"c1", b"c2"]), b"0", *self._many(IDS),
                *self.pick([[], [b"JUSTID"], [b"FORCE"], [b"RETRYCOUNT", b"9007199254740993"]])]

    def _xread(self):
        keys = [self.key("stream") for _ in range(self.pick([1, 1, 2]))]
        return [b"XREAD", *self.pick([[], [b"COUNT", b"1"]]), b"STREAMS", *keys, *(self.pick([b"0", b"2-1", b"$"]) for _ in keys)]

    def _bitfield(self):
        words = []
        for _ in range(self.rng.randrange(1, 5)):
            place = [self.pick([b"u8", b"i8", b"u1", b"i64", b"u63", b"i16"]), self.pick([b"0", b"#1", b"7", b"64"])]
            words += self.pick([[b"GET", *place], [b"SET", *place, self.pick(SMALL + BIG[:6])],
                                [b"INCRBY", *place, self.pick(SMALL + BIG[:6])], [b"OVERFLOW", self.pick([b"SAT", b"FAIL", b"WRAP"])]])
        return [b"BITFIELD", self.key("bitmap"), *words]

    def _geoadd(self):
        places = []
        for _ in range(self.rng.randrange(1, 4)):
            places += [self.pick(BY_NAME["longitude"][:5]), self.pick(BY_NAME["latitude"][:5]), self.pick(WORDS[:8])]
        return [b"GEOADD", self.key("geo"), *places]

    def _zadd(self):
        if self.chance(0.15):
            return [b"ZADD", self.lexical_key(), *(word for member in self._many(WORDS) for word in (b"0", member))]
        pairs = []
        for _ in range(self.rng.randrange(1, 5)):
            pairs += [self.pick(SCORES[:12]), self.pick(WORDS)]
        return [b"ZADD", self.key("sorted-set"), *self.pick([[], [], [b"NX"], [b"XX", b"CH"], [b"GT"]]), *pairs]

    def _sadd(self):
        is_numbers = self.chance(0.5)
        return [b"SADD", self.key("intset" if is_numbers else "set"), *self._many(SMALL if is_numbers else WORDS, 8)]

    def _rpush(self):
        values = self._many(WORDS, 8)
        if self.chance(0.004):
            values = [b"%d" % number for number in range(self.pick([6_990, 7_001, 9_000]))]
        return [self.pick([b"RPUSH", b"LPUSH"]), self.key("list"), *values]

    def _set(self):
        value = self.pick(WORDS)
        if self.chance(0.01):
            value = b"long" * self.pick([5_000, 20_000, 60_000])
        return [b"SET", self.key("string"), value]

    def _mset(self):
        pairs = []
        for _ in range(self.rng.randrange(1, 5)):
            pairs += [self.key("string"), self.pick(WORDS)]
        return [self.pick([b"MSET", b"MSETNX"]), *pairs]

    def _sort(self):
        words = [b"SORT", self.key(self.pick(["list", "set", "intset", "sorted-set"]))]
        for option in ([b"BY", self.pick(FORMS)], [b"LIMIT", b"0", b"5"], [b"GET", self.pick(FORMS)], [b"GET", b"#"], [b"ALPHA"],
                       [b"DESC"], [b"STORE", self.key("list")]):
            if self.chance(0.4):
                words += option
        return words

    def _spop(self):
        """By chance only of what is alike: none of it, or all."""
        return [b"SPOP", self.key("set"), self.pick([b"0", b"1000000", b"-1", b"x"])]

    def _restore(self):
        flags = [flag for flag in ([b"REPLACE"], [b"REPLACE"], [b"IDLETIME", b"5"], [b"FREQ", b"3"]) if self.chance(0.4)]
        return [b"RESTORE", self.key("generic"), self.pick([b"0", b"0", str(self.term_ms()).encode(), b"-1"]),
                self.pick(self.dumps + [b"junk", b""]), *(word for flag in flags for word in flag)]

    def _scan(self):
        return [b"SCAN", b"0", b"COUNT", b"1000000", *self.pick([[], [b"MATCH", b"*r1*"], [b"TYPE", b"list"]])]

    def _whole_scan(self, name, group):
        return [name, self.key(group), b"0", b"COUNT", b"1000000", *self.pick([[], [b"MATCH", b"a*"]])]

    def _sscan(self):
        return self._whole_scan(b"SSCAN", "set")

    def _hscan(self):
        return self._whole_scan(b"HSCAN", "hash")

    def _zscan(self):
        return self._whole_scan(b"ZSCAN", "sorted-set")

    def _eval(self):
        keys = [self.key("string") for _ in range(self.pick([1, 1, 2]))]
        return [b"EVAL", self.pick(SCRIPTS), str(len(keys)).encode(), *keys, *self._many(WORDS, 2)]

    def _object_encoding(self):
        return [b"OBJECT", b"ENCODING", self.key("generic")]

    def _copy(self):
        return [b"COPY", self.key("generic"), self.key("generic"), *self.pick([[], [b"REPLACE"]])]
