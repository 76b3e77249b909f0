"""Redis's own test suite, of the source package of this system's Redis, through the sidecar.

tests/resp/redis_suite.py [--mode allow|fence] [--unit unit/type/list]... [--source FOLDER]

allow: --unfenced allow, so that the suite's clients write without claims. fence: a claim is wanted for every write; the
suite's client says FENCE where it is told NOFENCE, and repeats the command (redis_suite_fence.tcl). Both with --allow-admin
and --allow-scripts, because the suite configures and empties the server.

What the suite itself leaves out against a server that it did not start (external:skip) is not run. What else is left out
stands in redis_suite_skips.txt, with the reason. Ends with 0 if all others passed.

The source package comes from this system's Debian archive, once, into FOLDER, by default redis-source in the folder of
temporary files. FENCEGUARD_BINARY and PYTHONPATH as tests/kit/README.md says.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import redis_server
import resp_case
import support
from server_process import free_ports

HERE = pathlib.Path(__file__).resolve().parent
UNITS = [f"unit/type/{name}" for name in ("string", "incr", "list", "list-2", "list-3", "set", "zset", "hash", "stream",
                                          "stream-cgroups")]
UNITS += [f"unit/{name}" for name in ("multi", "expire", "keyspace", "bitops", "bitfield", "geo", "hyperloglog", "sort", "scan",
                                      "pubsub", "dump", "protocol")]
# Under claims. Of the others too many tests say something without waiting for its answer, so that a client cannot say FENCE
# and repeat it, or block.
FENCED_UNITS = [f"unit/{name}" for name in ("type/incr", "type/list-2", "type/list-3", "type/set", "type/hash", "type/stream", "bitops",
                                            "bitfield", "geo")]
UNIT_MAX_S = 240
DATABASES = (0, 9)  # the suite's
LINE = re.compile(r"^\[(ok|err|exception|skip|ignore)\]: (.*?)(?: \(\d+ ms\))?$")


def fetch(folder):
    """The source of Redis in folder/redis; once."""
    if (folder / "redis").exists():
        return
    support.unpack_source("redis", folder)
    for name in ("redis-cli", "redis-benchmark", "redis-server"):
        (folder / "unpacked" / "src" / name).symlink_to(shutil.which(name))
    (folder / "unpacked").rename(folder / "redis")


def skips(mode):
    """{unit: {test: reason}} of those that are left out in a mode. A line: MODE, UNIT, TEST and the reason, with tabs between."""
    found = {}
    for line in (HERE / "redis_suite_skips.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            modes, unit, test, reason = line.split("\t")
            if mode in modes.split(","):
                found.setdefault(unit, {})[test] = reason
    return found


class Suite(resp_case.SidecarTest):
    """A run of some units in one mode. self.passed, self.failed: the names of tests."""

    units, mode = (), "allow"
    source = pathlib.Path(os.environ.get("FENCEGUARD_REDIS_SOURCE", pathlib.Path(tempfile.gettempdir()) / "redis-source"))

    def setUp(self):
        support.BinaryTest.setUp(self)
        fetch(self.source)
        self.passed, self.failed = [], []
        self.tree = pathlib.Path(self.folder) / "redis"
        shutil.copytree(self.source / "redis", self.tree, symlinks=True, ignore=shutil.ignore_patterns("deps"))
        if self.mode == "fence":
            with open(self.tree / "tests/support/redis.tcl", "a", encoding="utf-8") as client:
                client.write((HERE / "redis_suite_fence.tcl").read_text(encoding="utf-8"))

    def run_unit(self, unit, left_out):
        """On servers of its own."""
        if "*" in left_out:
            return
        redis = redis_server.Server({"enable-debug-command": "yes", "enable-protected-configs": "yes"})
        self.addCleanup(redis.remove)
        init = [[support.BINARY, "fence", "init", "--storage", redis.url(f"/{number}"), "--floor", "0"] for number in DATABASES]
        for words in init:
            self.expect(0, *words[1:])
        sidecar = self.serve("--storage", redis.url(), "--unfenced", "allow" if self.mode == "allow" else "read", "--allow-admin",
                             "--allow-scripts")
        skipped = self.write("skipped", "\n".join(left_out))
        done = subprocess.run(
            ["./runtest", "--host", "127.0.0.1", "--port", sidecar.data.rpartition(":")[2], "--single", unit, "--durable",
             "--baseport", str(free_ports(1)[0]),
             "--tags", "-resp3", "--skipfile", skipped], cwd=self.tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=UNIT_MAX_S, check=False,
            env=support.environment({"FENCE_INIT": ";".join(" ".join(words) for words in init)}))
        said = re.sub(r"\x1b\[[\d;]*m", "", done.stdout.decode("utf-8", "replace"))
        self.write(f"said-{unit.replace('/', '-')}", said)
        passed = [found[2] for line in said.splitlines() if (found := LINE.match(line)) and found[1] == "ok"]
        failed = [found[2] for line in said.splitlines() if (found := LINE.match(line)) and found[1] in ("err", "exception")]
        if done.returncode and not failed:
            failed.append(f"runtest: {said[-1500:]}")
        print(f"{self.mode} {unit}: {len(passed)} passed, {len(failed)} failed, {len(left_out)} left out", file=sys.stderr)
        for name in failed:
            at = said.find(name)
            print(f"  {said[at:at + 600] if at >= 0 else name}", file=sys.stderr)
        self.passed += passed
        self.failed += [f"{unit}: {name}" for name in failed]
        sidecar.kill()
        redis.remove()

    def run_units(self):
        left_out = skips(self.mode)
        for unit in self.units:
            self.run_unit(unit, left_out.get(unit, {}))
        self.assertEqual(self.failed, [])
        self.assertTrue(self.passed)


class AllowedToAll(Suite):
    units = ("unit/type/incr", "unit/bitfield")

    def test_units(self):
        self.run_units()


class UnderClaims(Suite):
    units, mode = ("unit/type/incr", "unit/bitfield"), "fence"

    def test_units(self):
        self.run_units()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=["allow", "fence"], default="allow")
    parser.add_argument("--unit", action="append", help="default: all that are of use")
    parser.add_argument("--source", type=pathlib.Path, default=Suite.source)
    options = parser.parse_args()
    kind = AllowedToAll if options.mode == "allow" else UnderClaims
    kind.units = options.unit or (UNITS if options.mode == "allow" else FENCED_UNITS)
    kind.source = options.source
    case = kind("test_units")
    done = unittest.TextTestRunner().run(case)
    print(f"{options.mode}: {len(case.passed)} passed, {len(case.failed)} failed, "
          f"{sum(len(tests) for unit, tests in skips(options.mode).items() if unit in kind.units)} left out")
    sys.exit(not done.wasSuccessful())


if __name__ == "__main__":
    if {"--mode", "--unit", "--source"} & set(sys.argv):
        main()
    unittest.main()
