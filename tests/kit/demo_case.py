"""What the tests of the scenarios share: 'fenceguard demo' run to its end, or interrupted, in a folder of its own, of
which nothing may be left."""

import json
import pathlib
import re
import signal
import xml.etree.ElementTree

import support
from support import processes_with, wait_until

LIMIT_S = 300
COLUMNS_MAX = 100


def pictures_of(html):
    """The pictures of both runs that are recorded in a page."""
    recorded = json.loads(re.search(r'<script type="application/json" id="recording">(.*?)</script>', html, re.DOTALL)[1])
    return [recorded[run]["picture"] for run in ("round", "through")]


class DemoTest(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.temp = pathlib.Path(self.folder) / "tmp"
        self.temp.mkdir()
        self.variables = {"TMPDIR": str(self.temp), "LC_ALL": "C", "TERM": "dumb"}

    def processes(self):
        return processes_with(f"TMPDIR={self.temp}")

    def require_nothing_is_left(self):
        wait_until(lambda: not self.processes() and not list(self.temp.iterdir()),
                   what="an end without processes and folders")

    def demo(self, *arguments, env=None):
        done = self.run_binary("demo", *arguments, env={**self.variables, **(env or {})}, limit_s=LIMIT_S)
        self.require_nothing_is_left()
        return done

    def report(self, story, *options):
        """The facts of both runs, and the whole report, of a scenario that came out as expected."""
        done = self.demo(story, "--json", *options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        report = json.loads(done.stdout)
        self.assertEqual(report["scenario"], story)
        self.assertTrue(report["as_it_must_be"])
        for telling in ("round", "through"):
            self.assertTrue(report[telling]["as_it_must_be"])
            times = [event["at_us"] for event in report[telling]["events"]]
            self.assertEqual(times, sorted(times))
            self.assertGreater(len(times), 3)
        return report["round"]["facts"], report["through"]["facts"], report

    def refusals(self, report):
        return [event for event in report["through"]["events"] if event.get("answer", "").startswith("REFUSED")]

    def require_page(self, page):
        """A page that stands alone, with a picture of each run."""
        html = page.read_text(encoding="utf-8")
        self.assertEqual(set(re.findall(r"https?://[^'\" ]+", html)), {"http://www.w3.org/2000/svg"})
        for picture in pictures_of(html):
            xml.etree.ElementTree.fromstring(picture)

    def require_text_and_page(self, story):
        """Answers the text."""
        page = pathlib.Path(self.folder) / f"{story}.html"
        done = self.demo(story, "--timeline", str(page))
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        for part in ("1. WITHOUT THE GUARD", "2. WITH THE GUARD", "without the guard:", "with the guard:"):
            self.assertIn(part, done.stdout)
        self.assertTrue(done.stdout.isascii())
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), COLUMNS_MAX)
        self.require_page(page)
        return done.stdout

    def require_listed(self, *stories):
        helped = self.expect(0, "demo", "--help").stdout
        for story in stories:
            self.assertRegex(helped, rf"(?m)^  {story} +\S.*$")

    def require_missing(self, story, package, path):
        """The scenario with this PATH names the package that it needs."""
        done = self.demo(story, "--json", env={"PATH": path})
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn(f"in the package {package}\n", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)

    def interrupted(self, story, number, is_time):
        """The status of a scenario that got the signal when is_time() said so. One that was faster is run again."""
        return support.interrupted(lambda: self.start("demo", story, env=self.variables), number, is_time, LIMIT_S)

    def require_clean_interruption(self, story, is_time):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(story=story, number=number):
                self.assertEqual(self.interrupted(story, number, is_time), 128 + number)
                self.require_nothing_is_left()

    # Times for a signal.

    def has_server(self):
        return len(self.processes()) > 1

    def has_two_servers(self):
        return len(self.processes()) > 2

    def has_paused_process(self):
        return any(status_of(pid, "State").startswith("T") for pid in self.processes())

    def has_many_threads(self):
        return any(int(status_of(pid, "Threads") or 0) > 200 for pid in self.processes())


def status_of(pid, name):
    """A line of /proc/PID/status; empty if the process is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            return next((line.split(":", 1)[1].strip() for line in status if line.startswith(name + ":")), "")
    except (FileNotFoundError, ProcessLookupError):
        return ""
