"""fenceguard demo, as a user runs it: real server, real clients, both outcomes, and nothing left behind."""

import fcntl
import html.parser
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import tempfile
import termios
import unittest
import xml.etree.ElementTree

import demo_case
import support
from support import wait_until

BINARY = os.environ["FENCEGUARD_BINARY"]
LIMIT_S = 60
COLUMNS_MAX = 100


class Page(html.parser.HTMLParser):
    """Collects what a page would load, and whether its elements are closed."""

    VOID = {"meta", "br", "hr", "img", "link", "input"}
    LOADING = {"src", "href", "srcset", "data", "xlink:href"}

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.links = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in self.LOADING]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


class DemoTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fenceguard-demo-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.temp = self.folder / "tmp"
        self.temp.mkdir()
        foreign = ("FENCEGUARD_", "LC_", "LANG", "NO_COLOR")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self.environment |= {"TMPDIR": str(self.temp), "TERM": "xterm"}

    def demo(self, *arguments, **variables):
        result = subprocess.run([BINARY, "demo", *arguments], env=self.environment | variables,
                                cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=LIMIT_S, check=False)
        self.assert_nothing_left()
        return result

    def told(self, *arguments, **variables):
        result = self.demo(*arguments, **variables)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stderr, "")
        return result.stdout

    def processes(self):
        """State by pid of every living process that was started with our temporary folder."""
        mark = f"TMPDIR={self.temp}".encode()
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if mark not in (entry / "environ").read_bytes().split(b"\0"):
                    continue
                found[int(entry.name)] = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
        return {pid: state for pid, state in found.items() if state not in "ZX"}

    def assert_nothing_left(self):
        self.assertEqual(self.processes(), {})
        self.assertEqual(list(self.temp.iterdir()), [])

    def start(self):
        process = subprocess.Popen([BINARY, "demo"], env=self.environment, cwd=self.folder, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(support.end_process, process)
        return process

    def interrupted_while_a_is_stopped(self, number):
        return support.interrupted(self.start, number, lambda: "T" in self.processes().values(), LIMIT_S)

    def test_shows_both_outcomes_and_ends_well(self):
        text = self.told()
        self.assertIn("round the guard:   150, should be 180: B's +30 is LOST", text)
        self.assertIn("through the guard: 180: both updates survive", text)
        for part in ("STOPPED by SIGSTOP", "GOES ON", "REFUSED as stale:", "rolls back", "token 3 for A"):
            self.assertIn(part, text)
        self.assertTrue(text.isascii())
        self.assertNotIn("\x1b", text)
        self.assertLessEqual(max(map(len, text.splitlines())), COLUMNS_MAX)

    def test_scenario_by_name_is_the_default_one(self):
        self.assertIn("both updates survive", self.told("gc-pause"))

    def test_json_tells_what_happened(self):
        report = json.loads(self.told("--json"))
        self.assertEqual(report["scenario"], "gc-pause")
        self.assertTrue(report["as_it_must_be"])
        around, through = report["round"], report["through"]
        self.assertEqual((around["final"], around["lost_update"]), (150, "B"))
        self.assertEqual((through["final"], through["lost_update"]), (180, "none"))
        for run in (around, through):
            self.assertGreater(run["pause_us"], run["ttl_ms"] * 1000)
            times = [event["ended_us"] for event in run["events"]]
            self.assertEqual(times, sorted(times))
        refusals = [event for event in through["events"] if event["event"] == "refused"]
        said = [(each["client"], each["status"], each["token"], each["highest"]) for each in refusals]
        self.assertEqual(said, [("A", 412, "1", "2")])
        self.assertNotIn("refused", [event["event"] for event in around["events"]])
        writes = [(event["client"], event["token"], event["balance"])
                  for event in through["events"] if event["event"] == "written"]
        self.assertEqual(writes, [("B", "2", 130), ("A", "3", 180)])

    def test_the_guard_had_advanced_before_a_lease_was_used(self):
        report = json.loads(self.told("--json"))
        grants = [(event["token"], event["highest"])
                  for event in report["through"]["events"] if event["event"] == "lock_granted"]
        self.assertEqual(grants, [("1", "1"), ("2", "2"), ("3", "3")])

    def test_timeline_is_one_page_that_loads_nothing(self):
        file = self.folder / "timeline.html"
        self.assertIn("timeline.html", self.told("--timeline", str(file)))
        text = file.read_text(encoding="utf-8")
        page = Page(text)
        self.assertEqual(page.open, [])
        self.assertEqual([link for link in page.links if not link.startswith("#")], [])
        for loading in ("link", "img", "iframe", "object", "embed", "use"):
            self.assertNotIn(loading, page.tags)
        self.assertEqual(set(re.findall(r"https?://[^'\" ]+", text)), {"http://www.w3.org/2000/svg"})
        self.assertNotIn("@import", text)
        self.assertIn("prefers-color-scheme: dark", text)
        for picture in demo_case.pictures_of(text):
            self.assert_readable(xml.etree.ElementTree.fromstring(picture))

    def assert_readable(self, picture):
        """A picture has a name, and no two of its time labels overlap."""
        space = "{http://www.w3.org/2000/svg}"
        self.assertTrue(picture.find(f"{space}title").text)
        self.assertIn("STOPPED", picture.find(f"{space}desc").text)
        labels = [label for label in picture.iter(f"{space}text") if label.get("class") == "time"]
        times = [float(label.get("y").removesuffix("em")) for label in labels]
        self.assertGreater(len(times), 3)
        gaps = [after - before for before, after in zip(times, times[1:])]
        self.assertGreaterEqual(min(gaps), 1)
        self.assertLess(max(times), float(picture.get("height").removesuffix("em")))

    def test_unknown_scenario_lists_the_known_ones(self):
        result = self.demo("split-brain")
        self.assertEqual(result.returncode, 2)
        self.assertIn("gc-pause", result.stderr)
        self.assertEqual(result.stdout, "")

    def test_unwritable_timeline_is_said_before_the_scenario(self):
        result = self.demo("--timeline", str(self.folder / "no" / "such" / "folder.html"))
        self.assertEqual(result.returncode, 3)
        self.assertIn("cannot be written", result.stderr)
        self.assertEqual(result.stdout, "")

    def test_unknown_storage_lists_the_known_ones(self):
        for option in ("--storage", "--source"):
            result = self.demo(option, "nosuch://user:secret@host/")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("sqlite", result.stderr)
            self.assertNotIn("secret", result.stderr)

    def test_a_server_that_does_not_start_is_a_fault_with_its_reason(self):
        result = self.demo("--storage", f"sqlite:{self.folder}/no/such/file.db")
        self.assertEqual(result.returncode, 3)
        self.assertIn("did not start", result.stderr)

    def test_a_given_storage_is_used_and_left_clean(self):
        file = self.folder / "mine.db"
        text = self.told("--storage", f"sqlite:{file}")
        self.assertIn("fenceguard-demo/", text)
        with sqlite3.connect(file) as database:
            found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            tables = [name for (name,) in found]
            objects = [name for name in tables if "object" in name]
            self.assertTrue(objects, tables)
            for name in objects:
                self.assertEqual(database.execute(f'SELECT count(*) FROM "{name}"').fetchone(), (0,))

    def test_a_given_source_grants_the_leases(self):
        file = self.folder / "leases.db"
        self.assertIn("both updates survive", self.told("--source", f"sqlite:{file}"))
        self.assertTrue(file.exists())

    def test_server_settings_in_the_environment_are_ignored(self):
        text = self.told(FENCEGUARD_CONTROL="256.0.0.1:x", FENCEGUARD_LISTEN="?")
        self.assertIn("both updates survive", text)

    def on_terminal(self, columns=0, **variables):
        here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([BINARY, "demo"], env=self.environment | variables, cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=there, stderr=subprocess.STDOUT)
        os.close(there)
        output = b""
        try:
            while chunk := os.read(here, 4096):
                output += chunk
        except OSError:
            pass  # the other side of a terminal is gone
        os.close(here)
        self.assertEqual(process.wait(timeout=LIMIT_S), 0, output)
        return output.decode()

    def test_colour_on_a_terminal_only_unless_declined(self):
        coloured = self.on_terminal(LANG="C.UTF-8")
        self.assertIn("\x1b[", coloured)
        self.assertIn("░", coloured)
        plain = self.on_terminal(NO_COLOR="1")
        self.assertNotIn("\x1b[", plain)
        self.assertTrue(plain.isascii())

    def test_a_terminal_that_is_narrow_is_told_in_fewer_columns(self):
        text = self.on_terminal(columns=72)
        self.assertIn("both updates survive", text)
        self.assertLessEqual(max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines())), 72)

    def test_output_that_is_not_read_ends_it_in_order(self):
        here, there = os.pipe()
        os.close(here)
        process = subprocess.Popen([BINARY, "demo"], env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                                   stdout=there, stderr=there)
        os.close(there)
        self.assertEqual(process.wait(timeout=LIMIT_S), 3)
        self.assert_nothing_left()

    def test_timeline_is_a_picture_where_it_is_called_one(self):
        file = self.folder / "timeline.svg"
        self.told("--timeline", str(file))
        picture = xml.etree.ElementTree.parse(file).getroot()
        self.assertEqual(picture.tag, "{http://www.w3.org/2000/svg}svg")
        self.assertEqual(len(picture.findall("{http://www.w3.org/2000/svg}svg")), 2)
        result = self.demo("--timeline", "timeline.png")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn(".svg", result.stderr)

    def test_each_scenario_has_its_line_and_picture_in_the_docs(self):
        told = self.demo("--help").stdout.partition("Scenarios:\n")[2]
        scenarios = set(re.findall(r"^  ([a-z-]+) ", told, re.MULTILINE))
        docs = pathlib.Path(__file__).resolve().parents[3] / "docs"
        page = (docs / "failures.md").read_text()
        self.assertEqual(set(re.findall(r"\| `([a-z-]+)` \|", page)), scenarios)
        for scenario in scenarios:
            picture = xml.etree.ElementTree.parse(docs / "failures" / f"{scenario}.svg").getroot()
            self.assertEqual(len(picture.findall("{http://www.w3.org/2000/svg}svg")), 2, scenario)
            self.assertIn(f"(failures/{scenario}.svg)", page)

    def test_an_interrupt_leaves_nothing_behind(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.assertEqual(self.interrupted_while_a_is_stopped(number), 128 + number)
            self.assert_nothing_left()

    def test_its_processes_die_with_it_also_a_stopped_one(self):
        self.assertEqual(self.interrupted_while_a_is_stopped(signal.SIGKILL), -signal.SIGKILL)
        wait_until(lambda: not self.processes(), what="all processes of the demonstration ended")


if __name__ == "__main__":
    unittest.main()
