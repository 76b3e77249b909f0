"""The commands of pages, run as they stand: each ```sh block of a page in one shell, and what it prints compared with
the ```text block behind it, in which … stands for anything. The ports of a page are exchanged for free ones."""

import os
import pathlib
import re
import signal
import subprocess
import unittest

import etcd_server
import postgres_server
import redis_server
import support
import upstream_server
import zookeeper_server
from server_process import free_ports

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "--end of a block--"


def blocks(page):
    """(commands, what they print or None), in their order."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(text, following[1] if following and following[0] == "text" else None)
            for (language, text), following in zip(found, [*found[1:], None]) if language == "sh"]


def pattern(text):
    return ".*".join(map(re.escape, text.split("…"))) + "$"


class Pages(support.BinaryTest):
    def run_page(self, name, environment=None, servers=None):
        """servers: the ports of those that run, by the ports that the page names."""
        steps = blocks(DOCS / name)
        self.assertTrue(steps)
        script = "".join(f"{commands}echo '{MARK}'\n" for commands, _ in steps)
        ports = {**dict(zip(("7420", "7421"), map(str, free_ports(2)))), **(servers or {})}
        for old, new in ports.items():
            script = script.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        variables = support.environment({"PATH": f"{os.path.dirname(support.BINARY)}:{os.environ['PATH']}",
                                         "FENCEGUARD_LISTEN": f"127.0.0.1:{ports['7420']}",
                                         "FENCEGUARD_CONTROL": f"127.0.0.1:{ports['7421']}", **(environment or {})})
        self.write("page.sh", script + "kill $(jobs -p) 2>/dev/null || true\n")
        with open(self.path("out"), "w") as out, open(self.path("errors"), "w") as errors:
            shell = subprocess.Popen(["bash", "-eu", "-o", "pipefail", "page.sh"], cwd=self.folder, env=variables,
                                     stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True)
        self.addCleanup(self.end_group, shell.pid)
        try:
            shell.wait(2 * support.LIMIT_S)
        except subprocess.TimeoutExpired:
            self.end_group(shell.pid)
            shell.wait()
        out, errors = (pathlib.Path(self.path(name)).read_text(encoding="utf-8") for name in ("out", "errors"))
        printed = out.split(MARK + "\n")
        self.assertEqual((shell.returncode, len(printed)), (0, len(steps) + 1), out + errors)
        for (commands, expected), said in zip(steps, printed):
            if expected is not None:
                self.assertRegex(said, re.compile(pattern(expected), re.DOTALL), f"after:\n{commands}")

    @staticmethod
    def end_group(pid):
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def start(self, module, **options):
        server = module.Server(**options)
        self.addCleanup(server.remove)
        return server

    def test_the_api_by_hand(self):
        self.run_page("api.md")

    def start_postgres(self):
        """A server with a database mydb, and what leads psql there."""
        server = self.start(postgres_server)
        server.create_database("mydb")
        return server, {"PGHOST": server.folder, "PGPORT": str(server.port), "PGUSER": "postgres"}

    def test_a_token_of_another_lock(self):
        self.run_page("instead-of.md", self.start_postgres()[1])

    def test_functions_of_redis(self):
        self.run_page("redis.md", servers={"6379": str(self.start(redis_server).port)})

    def test_the_doors(self):
        postgres, environment = self.start_postgres()
        servers = {"5432": postgres, "6379": self.start(redis_server), "2181": self.start(zookeeper_server),
                   "2379": self.start(etcd_server), "8080": self.start(upstream_server)}
        self.run_page("index.md", environment, {port: str(server.port) for port, server in servers.items()})


if __name__ == "__main__":
    unittest.main()
