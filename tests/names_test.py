"""Names: a class is in at most two sources, the name of a test has at most 60 characters, and words that were replaced do not
come back. What was not done when a check was made is listed beside it: a number there may only fall."""

import collections
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]

# (namespace, class) of those in more than two.
CUT_CLASSES = {("fenceguard", "TokenSource"), ("fenceguard::etcd", "LockClient")}
MEMBER = re.compile(r"^(?:[^\s#/(][^#;(]*?[\s&*])?([A-Z]\w*)::(?:\w+::)*~?\w+\s*\(", re.MULTILINE)
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.MULTILINE)

NAME_MAX = 60
TEST = re.compile(r"^\s*(?:TYPED_)?TEST(?:_F|_P)?\(\w+,\s*(\w+)\)|^\s+def (test_\w+)", re.MULTILINE)

# What was replaced, by what, and how often it is still there.
WORDS = {
    r"(?:DirectDoor|UnguardedDoor)": ("raw client", 0),
    r"(?:lane_desk|LaneDesk)": ("lane scheduler", 0),
    r"(?:lease_desk|LeaseDesk)": ("lease service", 0),
    r"(?:demo_tale|Tale)": ("scenario", 0),
    r"(?:timeline_words)": ("event labels", 0),
    r"(?:session_keeper|SessionKeeper)": ("session manager", 0),
    r"(?:lock_tenure)": ("lock renewal", 0),
    r"(?:lease_kept)": ("session lock source", 0),
    r"(?:fence_calls)": ("fence admin", 8),
    r"(?:lock_calls)": ("lock client", 0),
    r"(?:doctor_words)": ("four-letter words", 0),
    r"(?:fence_views|Sighting)": ("versioned fence", 0),
    r"(?:contenders?|Contender)": ("queue entry", 0),
    r"(?:fence_memory|FenceMirror)": ("fence cache", 0),
    r"(?:fence_check)": ("claim transaction", 0),
    r"(?:lock_numbers)": ("token allocation", 0),
    r"(?:lane_pass|LanePass)": ("lane permit", 0),
    r"(?:early_watch|EarlyWatch)": ("early response detector", 0),
    r"(?:answer_reader|AnswerReader)": ("response parser", 0),
    r"(?:Turned|turn_away)": ("rejection, reject", 0),
    r"(?:take_up|line_up|let_go)": ("evaluate, enqueue, dispatch", 40),
    r"(?:Slip)": ("delivery receipt", 0),
    r"(?:heirs?|Heir)": ("successor", 0),
    r"(?:Census)": ("connection counter", 0),
    r"(?:horizons?|Horizon)": ("watermark", 0),
    r"(?:patience|Patience)": ("retry budget, acquire deadline", 70),
    r"(?:GuardedRun|RunEnding|guarded_run)": ("CommandBatch, BatchResult", 0),
    r"(?:LongWay|long_way)": ("WatchedTransaction", 0),
    r"(?:OwedReplies|owed_replies)": ("ReplyQueue", 0),
    r"(?:relay_words|relay_checks)": ("connection_commands, command_validation", 0),
    r"(?:SharedLook|shared_look)": ("CoalescedScan", 0),
    r"(?:AnswerThread|answered_fences)": ("CompletionThread, completion_on_thread", 0),
    r"(?:OwedCuts|owed_cuts)": ("PendingFencing", 0),
    r"(?:lane_decision)": ("lane_admission", 0),
    r"(?:AllWritten)": ("WriteResult", 0),
    r"(?:is_same_word|is_same_text)": ("equals_ignoring_case", 0),
    r"(?:[Rr]ound the guard)": ("bypassing the guard", 10),
    r"(?:[Nn]o state is not a licence)": ("namespace not initialised: claims are refused", 0),
    r"(?:LeaseKeeper|Lease::Keeper)": ("LeaseRenewer, ExpiryWatchdog", 0),
}


def class_files(texts):
    """{(namespace, class): the sources that define its member functions}."""
    found = collections.defaultdict(set)
    for file, text in texts.items():
        namespace = NAMESPACE.search(text)
        for name in MEMBER.findall(text):
            found[namespace[1] if namespace else "", name].add(file)
    return found


def long_names(text):
    return [name for match in TEST.findall(text) for name in match if len(name) > NAME_MAX]


def uses(word, text):
    return len(re.findall(rf"\b{word}\b", text))


def sources():
    return {path.relative_to(ROOT).as_posix(): path.read_text() for floor in ("guard", "adapters", "server", "demo")
            for path in (ROOT / floor).rglob("*.cpp")}


def program_texts():
    for path in (ROOT / "tests").rglob("*"):
        if path.suffix in (".cpp", ".hpp", ".py") and path != pathlib.Path(__file__):
            yield path.read_text()


def everything():
    """All that we wrote in one text, but for this file and for the changes, which tell of the past."""
    kinds = (".cpp", ".hpp", ".py", ".md", ".sql", ".lua", ".go", ".js", ".java", ".sh", ".txt", ".patch", ".html")
    folders = ("guard", "adapters", "server", "demo", "tests", "docs", "clients", "examples", "bench", "sql", "scripts")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*"))
             if path.suffix in kinds and path.is_file() and "node_modules" not in path.parts and path != pathlib.Path(__file__)]
    return "\n".join(path.read_text(errors="replace") for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *files])


class Names(unittest.TestCase):
    def test_a_class_is_in_at_most_two_sources(self):
        cut = {name: sorted(files) for name, files in class_files(sources()).items()
               if len(files) > 2 and name not in CUT_CLASSES}
        self.assertEqual(cut, {})

    def test_names_of_tests_have_at_most_60_characters(self):
        self.assertEqual([name for text in program_texts() for name in long_names(text)], [])

    def test_replaced_words_do_not_come_back(self):
        text = everything()
        back = {word: f"{count} times, {left} at most: write {instead}" for word, (instead, left) in WORDS.items()
                if (count := uses(word, text)) > left}
        self.assertEqual(back, {})


class Checks(unittest.TestCase):
    """The checks find what they are for."""

    def test_a_class_in_three_sources_is_seen(self):
        text = "namespace a::b {\nint Cut::f() {\n}\nCut::Cut(int one)\n    : one_{one} {}\nvoid call() { Other::g(); }\n"
        self.assertEqual(class_files({name: text for name in ("1", "2", "3")}), {("a::b", "Cut"): {"1", "2", "3"}})

    def test_long_names_are_seen(self):
        long = "test_" + "x" * 56
        self.assertEqual(long_names(f"    def {long}(self):\nTEST_F(Suite, {long}) {{\nTEST(Suite, Short) {{\n"), [long, long])

    def test_words_are_seen_whole(self):
        self.assertEqual(uses("heir", "the heir\ntheir\nheirs\n"), 1)


if __name__ == "__main__":
    unittest.main()
