"""What the binary says of itself in --help, which follows from its one table of commands and settings."""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import settings  # noqa: E402

ITEM = re.compile(r"^  (\S+(?: \S+)?) +(\S.*)$", re.MULTILINE)


class Command:
    """One command: its name, summary, synopsis, options as settings.options() gives them, and notes. items: what its
    help lists beside them under a title, such as scenarios."""

    def __init__(self, name, text):
        self.name = name
        head, _, rest = text.partition("\n\nUsage: ")
        self.summary = head.partition(": ")[2].rstrip(".")
        usage, *parts = rest.split("\n\n")
        self.synopsis = " ".join(usage.split()).removeprefix(f"fenceguard {name}").strip()
        self.options = settings.options(text)
        self.title, self.items, self.notes = "", [], []
        for part in parts:
            title, _, lines = part.partition(":\n")
            if title == "Options":
                continue
            if lines.startswith("  "):
                self.title, self.items = title, ITEM.findall(lines)
            else:
                self.notes.append(" ".join(part.split()))

    @property
    def page(self):
        return "fenceguard-" + self.name.replace(" ", "-")

    @property
    def flags(self):
        """(flag, placeholder, explanation) of what can be given on the command line."""
        return [option for option in self.options if option[0].startswith("--")]


class Program:
    """All commands, and what --help says beside them."""

    def __init__(self, binary):
        def run(*words):
            return subprocess.run([binary, *words], capture_output=True, text=True, check=True).stdout

        self.version = run("--version").split()[1]
        self.example = run("serve", "--example-config")
        summary, usage, listing, rest = run("--help").split("\n\n")
        self.summary = summary.removeprefix("fenceguard ").rstrip(".")
        self.synopsis = usage.removeprefix("Usage: fenceguard ")
        self.notes, _, self.statuses = " ".join(rest.split()).partition(" Exit status: ")
        self.commands = [Command(name, run(*name.split(), "--help")) for name, _ in ITEM.findall(listing)]

    def groups(self):
        """The commands of each first word that has several, such as 'lease'."""
        found = {}
        for command in self.commands:
            group, _, name = command.name.partition(" ")
            if name:
                found.setdefault(group, []).append(command)
        return found

    def placeholders(self):
        """The placeholder of each flag, which is the same at every command that has it."""
        found = {}
        for command in self.commands:
            for flag, placeholder, _ in command.flags:
                if found.setdefault(flag, placeholder) != placeholder:
                    raise SystemExit(f"{flag} of '{command.name}' takes {placeholder!r}, and elsewhere {found[flag]!r}")
        return found
