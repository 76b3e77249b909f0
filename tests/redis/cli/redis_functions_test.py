"""The functions that 'fenceguard sql redis' prints, in a real server: the table of rule cases, attackers, and failures."""

import os
import pathlib
import subprocess
import unittest

import redis
import redis_server
import support
from redis_case import RedisTest, setUpModule  # noqa: F401

CASES = pathlib.Path(__file__).resolve().parents[2] / "judge_cases.tsv"
FIELDS = ("token", "holder", "sequence", "closed")
MAX = 2 ** 63 - 1


def cases():
    """(line, record, floor, claim, verdict, record afterwards), None standing for what is absent."""
    for line, text in enumerate(CASES.read_text(encoding="utf-8").split("\n"), 1):
        if text and not text.startswith("#"):
            words = [None if word == "-" else word for word in text.split("\t")]
            yield line, words[0:4], words[4], words[5:8], words[8], words[9:13]


class Functions(RedisTest):
    def setUp(self):
        super().setUp()
        self.own = self.own_server()
        self.cli = self.own.cli
        self.load()
        self.initialise("0", "0")

    def load(self):
        text = self.expect(0, "sql", "redis").stdout
        self.assertEqual(self.cli("FUNCTION", "LOAD", "REPLACE", text), "fenceguard")

    def initialise(self, floor, highest):
        self.cli("HSET", "fenceguard:namespace", "floor", floor, "highest", highest)

    def write(self, key, token, holder, sequence, *command):
        return self.cli("FCALL", "fenceguard_write", 1, key, token, holder, sequence, *command)

    def advance(self, key, token, holder):
        return self.cli("FCALL", "fenceguard_advance", 1, key, token, holder)

    def record(self, resource):
        fields = self.cli("HMGET", f"fenceguard:{{{resource}}}", *FIELDS)
        if fields[0] is None:
            return [None] * 4
        return [fields[0], fields[1], fields[2] or None, fields[3] or "0"]

    def assert_refused(self, pattern, *words):
        before = sorted(self.cli("KEYS", "*"))
        with self.assertRaisesRegex(redis_server.RedisError, pattern):
            self.cli(*words)
        self.assertEqual(sorted(self.cli("KEYS", "*")), before)

    def test_every_case_of_the_shared_table_is_judged_as_it_says(self):
        count = 0
        for line, record, floor, claim, verdict, after in cases():
            for is_advance in (False, True):
                if is_advance and claim[2] is not None:
                    continue  # an advance has no sequence
                with self.subTest(line=line, is_advance=is_advance):
                    count += 1
                    self.cli("FLUSHALL")
                    self.initialise(floor, max(floor, record[0] or "0", key=int))
                    if record[0] is not None:
                        self.cli("HSET", "fenceguard:{r}", "token", record[0], "holder", record[1], "sequence",
                                 record[2] or "", "closed", record[3])
                        self.cli("ZADD", "fenceguard:resources", 0, "r")
                    answer = self.judge(is_advance, claim)
                    if answer == "implausible":
                        continue
                    self.assertEqual(answer[0], verdict)
                    self.assertEqual(self.record("r"), after)
                    if not is_advance:
                        self.assertEqual(self.cli("GET", "{r}:data"), "new" if verdict == "admitted" else None)
        self.assertGreater(count, 50)

    def judge(self, is_advance, claim):
        try:
            if is_advance:
                return self.advance("{r}:data", claim[0], claim[1])
            return self.write("{r}:data", claim[0], claim[1], claim[2] or "-", "SET", "{r}:data", "new")
        except redis_server.RedisError as error:
            # The table has no bound, and the functions have that of a guard.
            self.assertRegex(str(error), "^IMPLAUSIBLE")
            self.assertGreater(int(claim[0]), 2 ** 40)
            return "implausible"

    def test_a_write_its_reply_and_a_stale_one(self):
        self.assertEqual(self.advance("{accounts/42}", 33, "a"), ["admitted", "33"])
        self.assertEqual(self.write("{accounts/42}:balance", 33, "a", "-", "SET", "{accounts/42}:balance", 100),
                         ["admitted", "33", None, "OK"])
        self.assertEqual(self.write("{accounts/42}:balance", 34, "b", 7, "INCRBY", "{accounts/42}:balance", -30),
                         ["admitted", "34", "7", 70])
        self.assertEqual(self.write("{accounts/42}:balance", 34, "b", 7, "INCRBY", "{accounts/42}:balance", -30)[0],
                         "duplicate")
        self.assertEqual(self.write("{accounts/42}:balance", 33, "a", "-", "SET", "{accounts/42}:balance", 130),
                         ["stale", "34", "7"])
        self.assertEqual(self.write("{accounts/42}:balance", 34, "x", "-", "DEL", "{accounts/42}:balance")[0], "conflict")
        self.assertEqual(self.cli("GET", "{accounts/42}:balance"), "70")
        self.assertEqual(self.write("{accounts/42}:balance", 34, "b", "-", "GET", "{accounts/42}:balance")[3], "70")
        self.assertEqual(self.cli("FCALL", "fenceguard_show", 1, "{accounts/42}"), ["0", "34", "7", 0])
        shown = self.fence_json(0, "show", "--resource", "accounts/42", url=self.own.url("/0"))
        self.assertEqual((shown["token"], shown["sequence"]), ("34", "7"))

    def test_numbers_above_two_to_the_53rd_are_exact(self):
        self.initialise(str(MAX - 10), str(MAX - 10))
        self.assertEqual(self.advance("r", MAX - 1, "a"), ["admitted", str(MAX - 1)])
        self.assertEqual(self.write("r", MAX - 2, "a", "-", "SET", "r", 1)[0], "stale")
        self.cli("SET", "r", str(2 ** 60))
        self.assertEqual(self.write("r", MAX - 1, "a", "-", "INCR", "r")[3], str(2 ** 60 + 1))

    def test_failing_command_returns_its_error_and_uses_no_sequence(self):
        self.cli("SET", "r", "text")
        with self.assertRaisesRegex(redis_server.RedisError, "not an integer"):
            self.write("r", 1, "a", 5, "INCR", "r")
        self.assertEqual(self.record("r"), ["1", "a", None, "0"])
        self.assertEqual(self.write("r", 1, "a", 5, "SET", "r", 2), ["admitted", "1", "5", "OK"])

    def test_what_belongs_to_another_resource_or_to_us_is_refused(self):
        self.cli("SET", "{b}:x", "1")
        for command in (["SET", "{b}:x", 2], ["RENAME", "{a}:x", "{b}:x"], ["MSET", "{a}:x", 1, "{b}:x", 2],
                        ["DEL", "{a}:x", "{b}:x"]):
            with self.subTest(command=command):
                self.assert_refused("^INVALID", "FCALL", "fenceguard_write", 1, "{a}:x", 1, "h", "-", *command)
                self.assert_refused("^INVALID the keys belong", "FCALL", "fenceguard_write", 2, "{a}:x", "{b}:x", 1, "h",
                                    "-", *command)
        for key in ("fenceguard:{a}", "fenceguard:namespace", "fenceguard:lock:{a}"):
            with self.subTest(key=key):
                for keys in ([key], [key, "{a}:x"], ["{a}:x", key]):
                    self.assert_refused("^INVALID", "FCALL", "fenceguard_write", len(keys), *keys, 1, "h", "-", "DEL", key)
        self.assertEqual(self.cli("GET", "{b}:x"), "1")

    def test_commands_without_positional_keys_are_refused(self):
        for command in (["FLUSHALL"], ["EVAL", "return 1", 1, "r"], ["FCALL", "fenceguard_show", 1, "r"], ["MULTI"],
                        ["SORT", "r", "STORE", "x"], ["MOVE", "r", 1], ["COPY", "r", "r", "DB", 1], ["SELECT", 1],
                        ["CONFIG", "SET", "maxmemory", 1], ["SCRIPT", "FLUSH"], ["ZUNIONSTORE", "r", 1, "x"],
                        ["XGROUP", "CREATE", "r", "g", "0"], ["SUBSCRIBE", "r"], ["BLPOP", "r", 1], ["unknown", "r"], ["SET"],
                        []):
            with self.subTest(command=command):
                self.assert_refused("^INVALID", "FCALL", "fenceguard_write", 1, "r", 1, "h", "-", *command)

    def test_claims_that_are_none_are_refused(self):
        for claim in ((0, "h", "-"), (-1, "h", "-"), ("01", "h", "-"), (MAX + 1, "h", "-"), ("x", "h", "-"), (1, "a b", "-"),
                      (1, "h\n", "-"), (1, "h" * 129, "-"), (1, "h", "x"), (1, "h", -1), (1, "h", ""), ("1 h - 1 0", "h", "-")):
            with self.subTest(claim=claim):
                self.assert_refused("^INVALID", "FCALL", "fenceguard_write", 1, "r", *claim, "SET", "r", 1)
        for key in ("", "a/../b", "/a", "a/", "a//b", "a\x01b", "x" * 513):
            with self.subTest(key=key):
                self.assert_refused("^INVALID", "FCALL", "fenceguard_advance", 1, key, 1, "h")

    def test_too_long_a_command_uses_no_sequence(self):
        for words in (6999, 7000):
            self.assert_refused("^INVALID a command has up to", "FCALL", "fenceguard_write", 1, "r", 1, "h", 1, "RPUSH", "r",
                                *("x" for _ in range(words)))
            self.assertEqual(self.record("r"), [None] * 4)
        answer = self.write("r", 1, "h", 1, "RPUSH", "r", *("x" for _ in range(6998)))
        self.assertEqual(answer, ["admitted", "1", "1", 6998])

    def test_a_namespace_without_a_floor_takes_no_claim(self):
        self.cli("DEL", "fenceguard:namespace")
        self.assert_refused("^UNINITIALISED", "FCALL", "fenceguard_write", 1, "r", 1, "h", "-", "SET", "r", 1)
        self.assert_refused("^UNINITIALISED", "FCALL", "fenceguard_advance", 1, "r", 1, "h")

    def test_without_memory_nothing_is_done(self):
        self.assertEqual(self.write("r", 1, "a", 1, "SET", "r", 1)[0], "admitted")
        self.cli("CONFIG", "SET", "maxmemory", 1)
        self.assert_refused("OOM", "FCALL", "fenceguard_write", 1, "r", 2, "b", 1, "SET", "r", 2)
        self.cli("CONFIG", "SET", "maxmemory", 0)
        self.assertEqual(self.record("r"), ["1", "a", "1", "0"])
        # A holder is cut off all the same.
        self.cli("CONFIG", "SET", "maxmemory", 1)
        self.assertEqual(self.cli("FCALL", "fenceguard_advance", 1, "r", 2, "b"), ["admitted", "2"])
        self.cli("CONFIG", "SET", "maxmemory", 0)

    def test_a_replica_judges_nothing(self):
        replica = self.own_server(replica_of=self.own)
        self.own.wait_for_replicas()
        for words in (["fenceguard_write", 1, "r", 1, "a", "-", "GET", "r"], ["fenceguard_advance", 1, "r", 1, "a"]):
            with self.assertRaisesRegex(redis_server.RedisError, "^READONLY"):
                replica.cli("FCALL", *words)

    def example(self, language):
        page = (support.ROOT / "docs" / "redis.md").read_text(encoding="utf-8")
        [(_, text, _)] = support.blocks(page, languages=(language,))
        return text.replace("6379", str(self.own.port))

    def test_the_example_in_python(self):
        names = {"redis": redis, "token": 7, "holder": "a"}
        exec(self.example("python"), names)  # pylint: disable=exec-used
        self.assertEqual((names["verdict"], names["highest"], names["rest"]), ("admitted", "7", [None, "OK"]))
        self.assertEqual(self.cli("GET", "{accounts/42}:balance"), "70")

    def test_the_example_in_node(self):
        script = (f"(async (token, holder) => {{ {self.example('js')}\n console.log(JSON.stringify([verdict, highest, rest])); "
                  "await redis.quit(); })('7', 'a')")
        done = subprocess.run(["node", "-e", script], env={**os.environ, "NODE_PATH": "/usr/share/nodejs"},
                              capture_output=True, text=True, timeout=support.LIMIT_S, check=False)
        self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", '["admitted","7",[null,"OK"]]\n'))
        self.assertEqual(self.cli("GET", "{accounts/42}:balance"), "70")

    def test_the_doctor_compares_versions(self):
        url = self.own.url("/0")
        self.assertIn("ok functions: version", self.run_binary("doctor", "--storage", url).stdout)
        text = self.expect(0, "sql", "redis").stdout
        older = text.replace("local version = '", "local version = '0.0.", 1)
        self.cli("FUNCTION", "LOAD", "REPLACE", older)
        self.assertRegex(self.run_binary("doctor", "--storage", url).stdout,
                         r"warning functions: version 0\.0\..*fenceguard sql redis \| redis-cli -x FUNCTION LOAD REPLACE")
        self.cli("FUNCTION", "DELETE", "fenceguard")
        self.assertIn("ok functions: not seen", self.run_binary("doctor", "--storage", url).stdout)


class InACluster(RedisTest):
    KEYS = ("fenceguard:{a}", "{a}:x")

    def setUp(self):
        super().setUp()
        self.cluster = redis_server.Cluster()
        self.addCleanup(self.cluster.remove)
        text = self.expect(0, "sql", "redis").stdout
        for node in self.cluster.nodes:
            node.cli("FUNCTION", "LOAD", text)
        self.owner = next(node for node in self.cluster.nodes if self.is_owner(node))
        self.other = next(node for node in self.cluster.nodes if node is not self.owner)

    def is_owner(self, node):
        try:
            return self.write(node, 5, "a", 1)[0] == "admitted"
        except redis_server.RedisError as error:
            self.assertRegex(str(error), "^MOVED")
            return False

    def write(self, node, token, holder, value, asking=False):
        with node.link() as link:
            if asking:
                link.call("ASKING")
            return link.call("FCALL", "fenceguard_write", len(self.KEYS), *self.KEYS, token, holder, "-", "SET", "{a}:x", value)

    def test_a_resource_is_guarded_in_its_slot(self):
        self.assertEqual(self.write(self.owner, 4, "b", 2)[:2], ["stale", "5"])
        self.assertEqual(self.owner.cli("FCALL", "fenceguard_advance", 2, *self.KEYS, 6, "b"), ["admitted", "6"])
        self.assertEqual(self.owner.cli("FCALL", "fenceguard_show", 2, *self.KEYS), ["0", "6", None, 0])

    def test_a_call_that_does_not_name_the_fence_is_refused(self):
        for words in (["fenceguard_write", 1, "{a}:x", 9, "z", "-", "SET", "{a}:x", 9],
                      ["fenceguard_advance", 1, "{a}:x", 9, "z"], ["fenceguard_advance", 1, "fenceguard:{a}", 9, "z"]):
            with self.subTest(words=words), self.assertRaisesRegex(redis_server.RedisError, "^INVALID"):
                self.owner.cli("FCALL", *words)

    def test_stale_write_does_not_land_on_data_ahead_of_its_fence(self):
        slot = self.owner.cli("CLUSTER", "KEYSLOT", "{a}:x")
        self.other.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", self.owner.cli("CLUSTER", "MYID"))
        self.owner.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", self.other.cli("CLUSTER", "MYID"))
        self.owner.cli("MIGRATE", "127.0.0.1", self.other.port, "{a}:x", 0, 5000)
        for token, holder in ((4, "stale"), (6, "next")):
            for node, asking in ((self.owner, False), (self.other, True)):
                with self.subTest(token=token), self.assertRaisesRegex(redis_server.RedisError, "^(TRYAGAIN|ASK)"):
                    self.write(node, token, holder, 9, asking)
        self.owner.cli("MIGRATE", "127.0.0.1", self.other.port, "fenceguard:{a}", 0, 5000)
        self.assertEqual(self.write(self.other, 4, "stale", 9, asking=True)[:2], ["stale", "5"])
        self.assertEqual(self.write(self.other, 5, "a", 2, asking=True)[0], "admitted")


if __name__ == "__main__":
    unittest.main()
