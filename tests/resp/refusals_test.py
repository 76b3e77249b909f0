"""What the sidecar in front of Redis refuses, and to whom: claims that are none, keys that are not theirs, commands that
would go round the guard, clients that have not logged in."""

import base64
import unittest

import redis_server
from fault_proxy import Listener
from product_case import SECRET
from resp_case import Client, RespTest, encoded, setUpModule, wait_until  # noqa: F401

TOKENS = ("0", "-1", "01", "+1", "1.0", "", " 1", "9223372036854775808", "99999999999999999999", "x")
RESOURCES = ("", "a//b", "./a", "a/..", "/a", "a/", "a\n", b"\xff\xfe", "r" * 513, "a\0b")
HOLDERS = ("h" * 129, "h h", "h\n", b"\xc3\xa4", "h\x7f")


class Claims(RespTest):
    def setUp(self):
        super().setUp()
        self.guard = self.sidecar()

    def fences(self):
        return [key for key in self.redis().call("KEYS", "fenceguard:{*")]

    def test_claims_that_are_none_move_no_fence(self):
        client = self.client(self.guard)
        for token in TOKENS:
            self.assertFailure(client.call("FENCE", "r", token, "h"), "ERR fenceguard: a token")
            self.assertFailure(client.call("FENCED", "r", token, "h", "SET", "r", 1), "ERR fenceguard: a token")
        for resource in RESOURCES:
            for words in (("FENCE", resource, 1, "h"), ("FENCED", resource, 1, "h", "SET", "r", 1),
                          ("FENCE.SHOW", resource)):
                self.assertFailure(client.call(*words), "ERR fenceguard: ")
        for holder in HOLDERS:
            self.assertFailure(client.call("FENCE", "r", 1, holder), "ERR fenceguard: ")
            self.assertFailure(client.call("FENCED", "r", 1, holder, "SET", "r", 1), "ERR fenceguard: ")
        for words in (("FENCE",), ("FENCE", "r"), ("FENCE", "r", 1, "h", "x"), ("FENCE", "r", 1, "h", "SIG"),
                      ("FENCED",), ("FENCED", "r", 1, "h"), ("UNFENCE", "r", "s"), ("FENCE.SHOW",),
                      ("FENCED", "r", 1, "h", "SEQ", "-1", "SET", "r", 1), ("FENCED", "r", 1, "h", "SEQ", 1),
                      ("FENCED", "r", 1, "h", "SEQ", "9223372036854775808", "SET", "r", 1)):
            self.assertFailure(client.call(*words), "ERR ")
        self.assertEqual((client.call("FENCES"), self.fences(), client.call("EXISTS", "r")), ([], [], 0))

    def test_the_greatest_token_and_the_empty_holder(self):
        client = self.client(self.sidecar("--max-jump", "0"))
        self.assertEqual(client.call("FENCE", "r", 9223372036854775807), "OK")
        self.assertEqual(client.call("SET", "r", 1), "OK")
        self.assertEqual(client.call("FENCE.SHOW", "r"), ["9223372036854775807", None, 0])
        self.assertFailure(client.call("FENCE", "r", 9223372036854775807, "h"), "CONFLICT ")
        self.assertEqual(client.call("FENCE", "s", 1, "h" * 128), "OK")
        self.assertEqual(client.call("FENCE", "r" * 512, 1, "h"), "OK")
        self.assertEqual(client.call("SET", "{" + "r" * 512 + "}:x", 1), "OK")

    def test_keys_that_belong_to_no_resource_cannot_be_written(self):
        client = self.client(self.guard)
        for key in RESOURCES:
            self.assertFailure(client.call("SET", key, 1), "ERR fenceguard: the key ")
            self.assertIsNone(client.call("GET", key))
        self.assertEqual(self.claimed(self.guard, "a/b", 1).call("SET", b"\xff{a/b}\0", 1), "OK")

    def test_fence_and_fenced_within_multi(self):
        client = self.claimed(self.guard, "r", 5)
        for words in (("FENCE", "r", 6, "h"), ("FENCED", "r", 6, "h", "SET", "r", 1), ("UNFENCE",), ("FENCES",),
                      ("FENCE.SHOW", "r"), ("SELECT", 1), ("AUTH", "x"), ("HELLO", 2), ("SUBSCRIBE", "c"),
                      ("SET", "unclaimed", 1)):
            self.assertEqual(client.calls(("MULTI",), ("INCR", "r")), ["OK", "QUEUED"])
            self.assertFailure(client.call(*words), "ERR fenceguard: ", "NOFENCE resource=unclaimed")
            self.assertFailure(client.call("EXEC"), "EXECABORT ")
        self.assertEqual((client.call("EXISTS", "r"), client.call("FENCE.SHOW", "r")[0]), (0, "5"))

    def test_what_cannot_be_said_under_fenced(self):
        client = self.client(self.guard)
        for command in (("FENCE", "r", 6, "h"), ("FENCED", "r", 6, "h", "SET", "r", 1), ("MULTI",), ("EXEC",),
                        ("DISCARD",), ("WATCH", "r"), ("SELECT", 1), ("SUBSCRIBE", "c"), ("AUTH", "x"), ("QUIT",),
                        ("RESET",), ("HELLO", 2), ("UNFENCE",), ("BLPOP", "r", 0), ("BLMOVE", "r", "r", "LEFT", "LEFT", 0),
                        ("XREAD", "BLOCK", 0, "STREAMS", "r", "$"), ("PUBLISH", "c", "x"), ("PING",), ("EVAL", "", 0),
                        ("FLUSHALL",), ("CLIENT", "ID"), ("NOSUCH", "r"), ("SET", "r"), ("DBSIZE",), ("SET", "other", 1),
                        ("MSET", "r", 1, "other", 2), ("DEL", "fenceguard:{r}"), ("EVAL", "return 1", 1, "r")):
            answer = client.call("FENCED", "r", 5, "h", *command)
            self.assertFailure(answer, "ERR ", "NOFENCE ")
        self.assertEqual((self.fences(), client.call("PING")), ([], "PONG"))

    def test_a_jump_that_is_implausible_moves_nothing(self):
        client = self.claimed(self.sidecar("--max-jump", "100"), "r", 50)
        for words in (("FENCE", "r", 151, "h"), ("FENCE", "s", 151, "h"), ("FENCED", "r", 151, "h", "SET", "r", 1),
                      ("FENCED", "r", 151, "h", "BITFIELD", "r", "SET", "u8", 0, 1)):
            self.assertFailure(client.call(*words), "IMPLAUSIBLE ")
        self.assertEqual(client.call("FENCE.SHOW", "r"), ["50", None, 0])
        self.assertEqual((client.call("FENCE.SHOW", "s"), client.call("EXISTS", "r")), (None, 0))
        self.assertEqual(client.call("FENCE", "r", 150, "h"), "OK")

    def test_claims_that_are_not_signed(self):
        key = base64.urlsafe_b64encode(b"k" * 32).decode().rstrip("=")
        file = self.write_private("key", f"k1 {key}\n")
        guard = self.sidecar("--claim-key", file, "--require-signature", "--source", self.server.url())
        client = self.client(guard)
        lease = guard.lease("r").json
        claim = ("r", lease["token"], lease["holder"])
        for words in (("FENCE", *claim), ("FENCE", *claim, "SIG", "x"), ("FENCED", *claim, "SET", "r", 1),
                      ("FENCED", *claim, "SIG", "k1.x", "SET", "r", 1),
                      ("FENCE", "s", *claim[1:], "SIG", lease["signature"]),
                      ("FENCE", "r", int(lease["token"]) + 1, claim[2], "SIG", lease["signature"])):
            self.assertFailure(client.call(*words), "UNSIGNED ")
        self.assertEqual((client.call("FENCES"), client.call("FENCE.SHOW", "s")), ([], None))
        self.assertEqual(client.call("FENCE.SHOW", "r")[0], lease["token"])
        self.assertEqual(client.call("FENCE", *claim, "SIG", lease["signature"]), "OK")
        self.assertEqual(client.call("FENCED", *claim, "SIG", lease["signature"], "SET", "r", 2), "OK")

    def test_resp3_is_answered_so_that_clients_fall_back(self):
        client = self.client(self.guard)
        self.assertFailure(client.call("HELLO", 3), "ERR unknown command")
        self.assertFailure(client.call("HELLO", 4), "NOPROTO ")
        said = client.call("HELLO", 2, "SETNAME", "me")
        self.assertEqual(dict(zip(said[::2], said[1::2]))["proto"], 2)
        self.assertEqual(client.call("CLIENT", "GETNAME"), "me")


# By every kind of command; PREFIX is the fence's.
RESERVED = [
    ("GET", "PREFIX"), ("HGETALL", "PREFIX"), ("HGET", "PREFIX", "holder"), ("DUMP", "PREFIX"), ("TYPE", "PREFIX"),
    ("OBJECT", "ENCODING", "PREFIX"), ("EXISTS", "r", "PREFIX"), ("MGET", "r", "PREFIX"), ("TTL", "PREFIX"),
    ("SORT_RO", "r", "BY", "fenceguard:*", "GET", "#"), ("SORT", "r", "GET", "fence*->holder"),
    ("SORT", "r", "BY", "nosort", "GET", "*->holder"), ("SORT_RO", "r", "GET", "fenceguard:{*}->holder"),
    ("SORT", "r", "STORE", "PREFIX"), ("SORT", "r", "GET", "GET", "GET", "fenceguard:{*}->holder"),
    ("SORT", "r", "BY", "*"), ("COPY", "PREFIX", "r"), ("COPY", "r", "PREFIX"), ("RENAME", "PREFIX", "r"),
    ("RENAME", "r", "PREFIX"), ("RESTORE", "PREFIX", 0, "x"), ("DEL", "PREFIX"), ("UNLINK", "r", "PREFIX"),
    ("SET", "PREFIX", 1), ("HSET", "PREFIX", "token", 1), ("EXPIRE", "PREFIX", 0), ("PERSIST", "PREFIX"),
    ("WATCH", "PREFIX"), ("TOUCH", "PREFIX"), ("BLPOP", "PREFIX", 0), ("BLPOP", "r", "PREFIX", 0),
    ("BRPOPLPUSH", "PREFIX", 0, 0), ("BRPOPLPUSH", "r", "PREFIX", 0), ("BLMPOP", 0, 1, "PREFIX", "LEFT"),
    ("XREAD", "STREAMS", "PREFIX", 0), ("XREAD", "BLOCK", 0, "STREAMS", "PREFIX", "$"), ("XINFO", "STREAM", "PREFIX"),
    ("ZUNIONSTORE", "PREFIX", 1, "r"), ("ZUNION", 1, "PREFIX"), ("LMPOP", 1, "PREFIX", "LEFT"), ("SINTERCARD", 1, "PREFIX"),
    ("BITOP", "NOT", "r", "PREFIX"), ("PFMERGE", "r", "PREFIX"), ("PFCOUNT", "PREFIX"), ("GEORADIUS", "r", 0, 0, 1, "m",
    "STORE", "PREFIX"), ("LCS", "PREFIX", "r"), ("SCAN2", "PREFIX"), ("FENCED", "r", 9, "h", "HGET", "PREFIX", "holder"),
    ("MIGRATE", "127.0.0.1", 1, "PREFIX", 0, 10), ("MIGRATE", "127.0.0.1", 1, "", 0, 10, "KEYS", "r", "PREFIX"),
    ("MOVE", "PREFIX", 1), ("DEBUG", "OBJECT", "PREFIX"), ("EVAL", "return 1", 1, "PREFIX"),
    ("EVAL", "return 1", 2, "r", "PREFIX"), ("FCALL", "f", 1, "PREFIX"), ("EVAL_RO", "return 1", 1, "PREFIX"),
    ("EVALSHA", "0" * 40, 1, "PREFIX")]


class Keys(RespTest):
    def test_what_is_fenceguards_own_is_reached_by_no_command(self):
        for arguments in ((), ("--unfenced", "allow", "--allow-admin", "--allow-scripts"), ("--unfenced", "refuse")):
            guard = self.sidecar(*arguments)
            client = self.claimed(guard, "r", 5)
            before = self.redis().call("HGETALL", "fenceguard:{r}")
            for name in ("fenceguard:{r}", "fenceguard:namespace", "fenceguard:floor", "fenceguard:resources"):
                for words in RESERVED:
                    words = [name if word == "PREFIX" else word for word in words]
                    self.assertFailure(client.call(*words), "ERR ")
                    if words[0] not in ("FENCED", "WATCH"):
                        self.assertEqual(client.call("MULTI"), "OK")
                        self.assertFailure(client.call(*words), "ERR ")
                        self.assertFailure(client.call("EXEC"), "EXECABORT ")
            self.assertEqual(self.redis().call("HGETALL", "fenceguard:{r}"), before)
            client.close()

    def test_a_nul_behind_an_option_hides_nothing(self):
        """Redis takes 'STORE\\0' for STORE."""
        redis = self.redis()
        redis.call("RPUSH", "{v}l", "1")
        redis.call("SET", "v", "kept")
        for token, arguments in ((1, ("--unfenced", "allow")), (3, ())):
            stale = self.claimed(self.sidecar(*arguments), "v", token)
            newer = self.claimed(self.sidecar(), "v", token + 1)
            fence = redis.call("HGETALL", "fenceguard:{v}")
            self.assertFailure(stale.call("SORT", "{v}l", b"STORE\0", "v"), "STALE ")
            self.assertFailure(newer.call("SORT", "{v}l", b"STORE\0", "fenceguard:{v}"), "ERR fenceguard: the key")
            self.assertFailure(newer.call("SORT_RO", "{v}l", b"BY\0", "nosort", b"GET\0", "fenceguard:{v*->holder"),
                               "ERR fenceguard: a pattern")
            self.assertFailure(stale.call("COPY", "v", "{v}2", b"DB\0", 1), "ERR fenceguard: COPY")
            self.assertFailure(stale.call("XREADGROUP", "GROUP", "g", "c", b"STREAMS\0", "{v}s", ">"), "STALE ")
            self.assertEqual(redis.call("HGETALL", "fenceguard:{v}"), fence)
        self.assertEqual(redis.call("GET", "v"), "kept")
        # It waits on a connection of its own: others are answered.
        guard = self.sidecar()
        self.client(guard).send(("XREAD", b"BLOCK\0", 0, "STREAMS", "{v}s", "$"))
        wait_until(lambda: redis.call("INFO", "clients").split("blocked_clients:")[1].startswith("1"))
        for _ in range(8):
            self.assertEqual(self.client(guard).call("GET", "v"), "kept")

    def test_locks_that_are_kept_elsewhere_are_reached_by_no_command(self):
        url = self.server.url("/0?lock_key=lock:%25s")
        client = self.claimed(self.sidecar("--unfenced", "allow", url=url), "r", 5)
        self.redis().call("SET", "lock:r", "5 holder")
        for words in (("GET", "lock:r"), ("DEL", "lock:r"), ("SET", "lock:other", "x"), ("FENCED", "r", 5, "h", "GET", "lock:r")):
            self.assertFailure(client.call(*words), "ERR fenceguard: the key 'lock:")
        self.assertEqual(self.redis().call("GET", "lock:r"), "5 holder")
        self.assertEqual(client.call("SET", "r", "x"), "OK")

    def test_of_another_prefix_and_of_the_default_one(self):
        url = self.server.url("/0?prefix=mine:")
        self.initialise(self.server, url)
        client = self.claimed(self.sidecar(url=url), "r", 5)
        for key in ("mine:{r}", "mine:", "fenceguard:{r}", "mine:floor"):
            self.assertFailure(client.call("GET", key), "ERR fenceguard: the key ")
        for pattern in ("mine:*", "m*", "*", "fenceguard:*"):
            self.assertFailure(client.call("SORT_RO", "r", "BY", pattern), "ERR fenceguard: a pattern")
        self.assertEqual(client.call("SORT_RO", "r", "BY", "other:*"), [])


ADMIN = [("FLUSHALL",), ("FLUSHDB",), ("SWAPDB", 0, 1), ("MOVE", "r", 1), ("MIGRATE", "127.0.0.1", 1, "r", 0, 10),
         ("CONFIG", "SET", "maxmemory", 0), ("CONFIG", "GET", "*"), ("DEBUG", "SLEEP", 0), ("SCRIPT", "FLUSH"),
         ("REPLICAOF", "NO", "ONE"), ("SHUTDOWN",), ("SAVE",), ("BGSAVE",), ("ACL", "SETUSER", "x"), ("CLIENT", "KILL",
         "127.0.0.1:1"), ("CLIENT", "LIST"), ("COPY", "r", "s", "DB", 1), ("FUNCTION", "FLUSH"), ("LATENCY", "RESET"),
         ("SLOWLOG", "GET"), ("MODULE", "LIST"), ("FAILOVER",)]
SCRIPTS = [("EVAL", "return 1", 0), ("EVAL", "return 1", 1, "r"), ("EVALSHA", "0" * 40, 1, "r"), ("EVAL_RO", "return 1", 0),
           ("FCALL", "f", 0), ("SCRIPT", "LOAD", "return 1"), ("FUNCTION", "LIST")]
NEVER = [("CLUSTER", "NODES"), ("READONLY",), ("ASKING",), ("MONITOR",), ("SYNC",), ("PSYNC", "?", -1), ("REPLCONF",
         "ACK", 1), ("CLIENT", "REPLY", "OFF"), ("CLIENT", "TRACKING", "ON"), ("RESTORE-ASKING", "r", 0, "x")]


class Commands(RespTest):
    def test_administration_and_scripts_are_refused_unless_permitted(self):
        client = self.claimed(self.sidecar("--unfenced", "allow"), "r", 5)
        for words in ADMIN + SCRIPTS + NEVER:
            self.assertFailure(client.call(*words), "ERR fenceguard: ")
        client = self.claimed(self.sidecar("--allow-admin"), "r", 5)
        for words in SCRIPTS[:-2] + NEVER:
            self.assertFailure(client.call(*words), "ERR fenceguard: ")
        self.assertEqual(client.call("CONFIG", "SET", "maxmemory", 0), "OK")
        self.assertEqual(client.call("SCRIPT", "FLUSH"), "OK")
        self.assertEqual(client.call("SET", "r", 1), "OK")
        self.assertIn("cmd=client", client.call("CLIENT", "LIST"))

    def test_a_permitted_script_writes_under_the_claims_of_its_keys(self):
        guard = self.sidecar("--allow-scripts")
        client, other = self.claimed(guard, "r", 5), self.claimed(guard, "s", 5)
        script = "return redis.call('INCR', KEYS[1])"
        self.assertEqual(client.call("EVAL", script, 1, "r"), 1)
        self.assertEqual(client.call("EVALSHA", client.call("SCRIPT", "LOAD", script), 1, "{r}:x"), 1)
        self.assertFailure(client.call("EVAL", script, 1, "s"), "NOFENCE resource=s")
        self.assertFailure(client.call("EVAL", script, 0), "NOFENCE ")
        self.assertFailure(client.call("EVAL", script, "x", "r"), "ERR ")
        self.assertFailure(client.call("EVAL", script, 2, "r"), "ERR ")
        for words in ADMIN + NEVER:
            self.assertFailure(client.call(*words), "ERR fenceguard: ")
        self.assertEqual(other.call("FENCE", "r", 6, "h2"), "OK")
        self.assertFailure(client.call("EVAL", script, 1, "r"), "STALE token=5 highest=6 resource=r")
        self.assertEqual(self.redis().call("GET", "r"), "1")

    def test_unfenced_reads_and_writes_follow_the_setting(self):
        reads = [("GET", "u"), ("MGET", "u", "v"), ("SCAN", 0), ("DBSIZE",), ("XREAD", "STREAMS", "u", 0)]
        writes = [("SET", "u", 1), ("MSET", "u", 1, "v", 1), ("DEL", "u"), ("BLPOP", "u", 0.01), ("BLPOP", "u", 0)]
        read, refuse = self.client(self.sidecar()), self.client(self.sidecar("--unfenced", "refuse"))
        for words in reads:
            self.assertNotIsInstance(read.call(*words), str)
            self.assertFailure(refuse.call(*words), "NOFENCE ")
        for words in writes:
            self.assertFailure(read.call(*words), "NOFENCE resource=u")
            self.assertFailure(refuse.call(*words), "NOFENCE resource=u")
        self.assertEqual(refuse.call("FENCE", "u", 1, "h"), "OK")
        self.assertIsNone(refuse.call("GET", "u"))
        self.assertFailure(refuse.call("MGET", "u", "v"), "NOFENCE resource=v")

        allow = self.client(self.sidecar("--unfenced", "allow"))
        self.assertEqual(allow.calls(("SET", "v", 1), ("GET", "v"), ("DEL", "v"), ("BLPOP", "v", 0.01)), ["OK", "1", 1, None])
        # What it holds a claim to is judged all the same, however it is written.
        self.assertEqual(allow.call("FENCE", "u", 1, "h"), "OK")
        for words in (("BLPOP", "u", 0), ("BRPOPLPUSH", "u", "0", 0), ("BLMOVE", "u", "u", "LEFT", "LEFT", 0)):
            self.assertFailure(allow.call(*words), "ERR fenceguard: under a claim ")
        self.assertEqual(self.client(self.sidecar()).call("FENCE", "u", 2, "h2"), "OK")
        for words in (("SET", "u", 1), ("MSET", "u", 1, "v", 1), ("BITFIELD", "u", "SET", "u8", 0, 1)):
            self.assertFailure(allow.call(*words), "STALE ")


class Renewal(RespTest):
    def test_one_of_as_many_claims_as_a_connection_holds_is_renewed(self):
        client = self.client(self.sidecar())
        for first in range(0, 10_000, 500):
            self.assertEqual(client.calls(*[("FENCE", f"r{number}", 5, "h") for number in range(first, first + 500)]), ["OK"] * 500)
        self.assertFailure(client.call("FENCE", "one more", 5, "h"), "ERR fenceguard: a connection holds up to")
        self.assertEqual(client.calls(("FENCE", "r7", 6, "h"), ("SET", "r7", 1)), ["OK", "OK"])


class UnfencedAllow(RespTest):
    """Clients may write without a claim, as long as there is no fence."""

    def setUp(self):
        super().setUp()
        self.guard = self.sidecar("--unfenced", "allow", "--allow-scripts")

    def test_a_client_that_comes_back_without_its_claim_is_refused(self):
        """However it writes; what has no fence is as it was."""
        holder = self.claimed(self.guard, "r", 5)
        self.assertEqual(holder.call("SET", "r", "new"), "OK")
        holder.close()
        back = self.client(self.guard)
        script = "return redis.call('SET', KEYS[1], 'old')"
        for words in (("SET", "r", "old"), ("DEL", "{r}:x", "r"), ("MSET", "free", 1, "r", "old"), ("BITFIELD", "r", "SET", "u8", 0, 1),
                      ("RENAME", "free", "r"), ("BLPOP", "r", 0), ("BLMOVE", "free", "r", "LEFT", "LEFT", 0),
                      ("EVAL", script, 1, "r"), ("EVAL", script, 2, "free", "r")):
            self.assertFailure(back.call(*words), "NOFENCE resource=r: it has a fence")
        self.assertEqual(back.calls(("MULTI",), ("SET", "free", 1), ("SET", "r", "old"), ("EXEC",))[:3], ["OK", "QUEUED", "QUEUED"])
        answers = back.calls(("WATCH", "free"), ("MULTI",), ("SET", "free", 1), ("SET", "r", "old"), ("EXEC",))
        self.assertFailure(answers[4], "NOFENCE resource=r: it has a fence")
        answers = back.calls(*[("SET", key, "old") for key in ("free", "r", "{r}:x", "other", "r", "r")], ("GET", "r"), ("EXISTS", "r", "free"))
        self.assertEqual([str(answer)[:8] for answer in answers], ["OK", "NOFENCE ", "NOFENCE ", "OK", "NOFENCE ", "NOFENCE ", "new", "2"])
        self.assertEqual(self.client(self.sidecar("--unfenced", "allow")).call("SET", "r", "old")[:8], "NOFENCE ")  # another sidecar
        self.assertEqual(back.calls(("FENCE", "r", 6, "h"), ("SET", "r", "newer")), ["OK", "OK"])
        self.redis().call("DEL", "fenceguard:{r}")  # evicted
        self.assertFailure(self.client(self.guard).call("SET", "r", "old"), "NOFENCE ")

    def test_what_has_no_fence_is_answered_as_by_redis(self):
        client, redis = self.client(self.guard), self.redis()
        number, script = 2**60 + 1, "return redis.call('INCR', KEYS[1])"
        calls = [("SET", "{k}n", number), ("INCR", "{k}n"), ("LPOP", "{k}none", 2), ("LPOP", "{k}none"), ("LPUSH", "{k}n", 1), ("SET", "{k}n"),
                 ("BITFIELD", "{k}b", "SET", "i64", 0, number, "GET", "i64", 0), ("MSET", "{k}1", 1, "{k}2", 2), ("MSET", "a", 1, "b", 2),
                 ("BLPOP", "{k}none", 0.01), ("RPUSH", "{k}l", *range(3)), ("BLPOP", "{k}l", 0), ("EVAL", script, 1, "{k}1"), ("EVAL", script, 1, "a"),
                 ("SET", "a//b", 1), ("XADD", "{k}x", "1-1", "a", 1), ("ZADD", "{k}z", "NAN", "x"), ("MULTI",), ("INCR", "a"), ("LPUSH", "a", 1), ("EXEC",),
                 ("GETDEL", "a"), ("SPOP", "{k}none", 3), ("SETRANGE", "{k}s", 3, "x"), ("PEXPIRE", "b", 100000), ("EXPIRE", "none", 1)]
        expected = [redis.call(*words) for words in calls]
        redis.call("DEL", "a", "b", "a//b", *[f"{{k}}{name}" for name in "n12blxzs"])
        self.assertEqual([client.call(*words) for words in calls], expected)
        redis.call("DEL", "a", "b", "a//b", *[f"{{k}}{name}" for name in "n12blxzs"])
        self.assertEqual(client.calls(*calls), expected)

    def test_a_fence_that_is_made_meanwhile_counts(self):
        """While a transaction is judged, and while scripts are forgotten."""
        back, holder = self.client(self.guard), self.client(self.guard)
        for token in range(1, 20):
            self.redis().call("SCRIPT", "FLUSH") if token % 3 == 0 else None
            name = f"r{token}"
            back.send(*[("SET", name, "old")] * 3, ("MULTI",), ("SET", name, "old"), ("EXEC",))
            self.assertEqual(holder.calls(("FENCE", name, token, "h"), ("SET", name, "new")), ["OK", "OK"])
            answers = [back.read() for _ in range(6)]
            late = self.client(self.guard).call("SET", name, "old")
            self.assertFailure(late, "NOFENCE ")
            self.assertEqual(holder.call("GET", name), "new", answers)


class Scripts(RespTest):
    def test_a_script_leads_nobody_elsewhere(self):
        """In front of a cluster it answers that a slot has moved; the guard would bring its password there."""
        asked = []
        with redis_server.Cluster() as cluster, Listener(lambda link: asked.append(link.recv(1000))) as elsewhere:
            guard = self.sidecar("--unfenced", "allow", "--allow-scripts", url=cluster.url())
            slot = cluster.nodes[0].cli("CLUSTER", "KEYSLOT", "r")
            client = self.client(guard)
            for kind in ("MOVED", "ASK"):
                for script in (f"return redis.error_reply('{kind} {slot} 127.0.0.1:{elsewhere.port}')",
                               f"error('{kind} {slot} 127.0.0.1:{elsewhere.port}')"):
                    for keys in ((0,), (1, "r")):
                        self.assertFailure(client.call("EVAL", script, *keys), "TRYAGAIN ", "ERR ")
                        self.assertFailure(client.calls(("MULTI",), ("EVAL", script, *keys), ("EXEC",))[2][0], kind, "ERR ")
                        self.assertEqual(client.call("SET", "r", 1), "OK")
                        self.assertEqual(self.client(guard).call("GET", "r"), "1")
        self.assertEqual(asked, [])


class Users(RespTest):
    """Who is who: whose rights a client has at Redis, and what it must say first."""

    def test_the_password_of_the_data_side(self):
        server = self.own_server(password=SECRET)
        self.initialise(server)
        file = self.write_private("password", "opens\n")
        guard = self.sidecar("--data-password-file", file, env={"FENCEGUARD_STORAGE": server.url()}, url=server.url())
        client = self.client(guard)
        for words in (("GET", "r"), ("FENCE", "r", 1, "h"), ("FENCED", "r", 1, "h", "SET", "r", 1), ("SELECT", 1),
                      ("MULTI",), ("EXEC",), ("FENCES",), ("FENCE.SHOW", "r"), ("SUBSCRIBE", "c"), ("CLIENT", "ID"),
                      ("PING",), ("NOSUCH",), ("WATCH", "r"), ("HELLO",), ("HELLO", 2), ("COMMAND",), ("INFO",)):
            self.assertFailure(client.call(*words), "NOAUTH ")
        for words in (("AUTH", "wrong"), ("AUTH", "default", "wrong"), ("AUTH", "other", "opens"), ("AUTH", SECRET),
                      ("AUTH", ""), ("HELLO", 2, "AUTH", "default", "wrong")):
            self.assertFailure(client.call(*words), "WRONGPASS ")
        self.assertFailure(client.call("GET", "r"), "NOAUTH ")
        self.assertEqual(client.calls(("AUTH", "opens"), ("FENCE", "r", 1, "h"), ("SET", "r", 1)), ["OK"] * 3)
        self.assertEqual(client.call("RESET"), "RESET")
        self.assertFailure(client.call("GET", "r"), "NOAUTH ")
        self.assertEqual(client.call("HELLO", 2, "AUTH", "default", "opens")[0], "server")
        self.assertEqual(client.call("GET", "r"), "1")
        # Of a client that has not said it little is taken.
        for data, word in ((b"*11\r\n", b"multibulk"), (b"*2\r\n$20000\r\n", b"bulk")):
            client = self.client(guard)
            client.send_bytes(data)
            self.assertEqual(client.rest(), b"-ERR Protocol error: unauthenticated %s length\r\n" % word)
        self.assertNotIn("opens", guard.log())

    def test_a_password_is_not_lent_to_other_machines(self):
        server = self.own_server(password=SECRET)
        self.initialise(server)
        words = ("serve", "--storage", server.url(), "--control", "127.0.0.1:0", "--listen", "0.0.0.0:0")
        done = self.run_binary(*words)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--data-password-file", done.stderr)
        self.assertNotIn(SECRET, done.stdout + done.stderr)

    def guard_of(self, server):
        """One without credentials, whose clients log in at Redis."""
        self.initialise(server)
        return self.sidecar(url=self.bare_url(server))

    def bare_url(self, server):
        return f"redis://127.0.0.1:{server.port}/0"

    def test_without_credentials_the_control_side_says_what_it_lacks(self):
        server = self.own_server(password=SECRET)
        guard = self.guard_of(server)
        self.assertEqual(guard.call("GET", "/readyz").status, 200)
        self.assertIn("event=unavailable", guard.log())
        self.assertIn("NOAUTH", guard.log())
        self.assertEqual(guard.lease("r", holder="h").status, 501)
        self.assertEqual(guard.call("POST", "/v1/fences/r/advance", body={"token": "7", "holder": "h"}).status, 503)
        # What the guard has learnt from one user's connection serves the next, whose rights are few.
        server.cli("ACL", "SETUSER", "app", "on", ">a", "~*", "&*", "+@all")
        server.cli("ACL", "SETUSER", "reader", "on", ">r", "~*", "-@all", "+get")
        reader = self.client(guard)
        self.assertFailure(reader.call("AUTH", "reader", "r"), "UNAVAILABLE ", "NOPERM ")
        app = self.client(guard)
        self.assertEqual(app.calls(("AUTH", "app", "a"), ("FENCE", "r", 7, "h"), ("SET", "r", 1)), ["OK"] * 3)
        self.assertEqual(reader.calls(("AUTH", "reader", "r"), ("GET", "r")), ["OK", "1"])
        self.assertFailure(reader.call("FENCE", "r", 8, "h"), "NOPERM", "UNAVAILABLE")
        # What needs the control side's rights at once does not start.
        done = self.run_binary("serve", "--storage", self.bare_url(server), "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0",
                               "--init")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("--init: Redis at ", done.stderr)

    def test_without_credentials_every_user_has_rights_of_its_own(self):
        server = self.own_server(password=SECRET)
        guard = self.guard_of(server)
        server.cli("ACL", "SETUSER", "alice", "on", ">a", "~r*", "~{r}*", "~fenceguard:*", "+@all", "-@dangerous", "+info")
        server.cli("ACL", "SETUSER", "bob", "on", ">b", "~*", "+@read", "+@connection", "+acl|whoami")
        client = self.client(guard)
        self.assertFailure(client.call("GET", "r"), "NOAUTH ")
        self.assertFailure(client.call("FENCE", "r", 1, "h"), "NOAUTH ")
        for words in (("AUTH", "wrong"), ("AUTH", "alice", "b"), ("AUTH", "nobody", "a"), ("AUTH", "")):
            self.assertFailure(client.call(*words), "WRONGPASS ")
        alice, bob = self.client(guard), self.client(guard)
        self.assertEqual((alice.call("AUTH", "alice", "a"), bob.call("AUTH", "bob", "b")), ("OK", "OK"))
        for _ in range(20):
            self.assertEqual((alice.call("ACL", "WHOAMI"), bob.call("ACL", "WHOAMI")), ("alice", "bob"))
        self.assertEqual(alice.calls(("FENCE", "r", 1, "h"), ("SET", "r", 1)), ["OK", "OK"])
        self.assertFailure(alice.call("FENCED", "other", 1, "h", "SET", "other", 1), "NOPERM", "UNAVAILABLE")
        self.assertFailure(alice.call("GET", "other"), "NOPERM ")
        # One that may only read may not write under any claim, and moves no fence.
        self.assertEqual(bob.call("GET", "r"), "1")
        self.assertFailure(bob.call("FENCE", "r", 2, "h"), "NOPERM", "UNAVAILABLE")
        self.assertFailure(bob.call("FENCED", "r", 2, "h", "SET", "r", 2), "NOPERM", "UNAVAILABLE")
        self.assertFailure(client.call("GET", "r"), "NOAUTH ")
        self.assertEqual(alice.call("FENCE.SHOW", "r")[0], "1")
        other = self.client(guard)
        self.assertEqual(other.calls(("AUTH", "alice", "a"), ("RESET",)), ["OK", "RESET"])
        self.assertFailure(other.call("GET", "r"), "NOAUTH ")
        # The same connection as another user.
        self.assertEqual(alice.call("AUTH", "bob", "b"), "OK")
        self.assertFailure(alice.call("SET", "r", 3), "NOPERM", "UNAVAILABLE")
        self.assertEqual(self.log_in_fails(alice), "bob")

    def log_in_fails(self, client):
        """Who the client still is then."""
        self.assertFailure(client.call("AUTH", "alice", "wrong"), "WRONGPASS ")
        return client.call("ACL", "WHOAMI")

    def test_changed_password_opens_no_connection_of_others(self):
        server = self.own_server(password=SECRET)
        guard = self.guard_of(server)
        server.cli("ACL", "SETUSER", "alice", "on", ">old", "~*", "+@all")
        first = [self.client(guard) for _ in range(4)]
        for client in first:
            self.assertEqual(client.call("AUTH", "alice", "old"), "OK")
        server.cli("ACL", "SETUSER", "alice", "<old", ">new")
        for _ in range(4):
            client = self.client(guard)
            self.assertFailure(client.call("AUTH", "alice", "old"), "WRONGPASS ")
            self.assertFailure(client.call("GET", "r"), "NOAUTH ")
            self.assertEqual(client.call("AUTH", "alice", "new"), "OK")
        server.cli("ACL", "SETUSER", "alice", "off")
        for _ in range(4):
            self.assertFailure(self.client(guard).call("HELLO", 2, "AUTH", "alice", "new"), "WRONGPASS ")
        # As in Redis those that were in stay in.
        self.assertEqual([client.call("ACL", "WHOAMI") for client in first], ["alice"] * 4)


if __name__ == "__main__":
    unittest.main()
