"""A manual page for each command, and one for all, in the macros of man(7)."""

import re

SPECIAL = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}


def roff(text):
    """Text that stands for itself, also where a line begins with it."""
    return re.sub(r"^\.", r"\\&.", "".join(SPECIAL.get(letter, letter) for letter in text), flags=re.MULTILINE)


def bold(text):
    return rf"\fB{roff(text)}\fR"


def section(title, *paragraphs):
    return f".SH {title.upper()}\n" + ".PP\n".join(f"{text}\n" for text in paragraphs)


def items(pairs):
    """Each name, set already, above what it is."""
    return "".join(f".TP\n{name}\n{roff(text)}\n" for name, text in pairs)


def page(program, name, summary, synopsis, *sections):
    head = f'.TH {roff(name.upper())} 1 "" "fenceguard {program.version}" "User Commands"\n'
    return head + section("Name", rf"{roff(name)} \- {roff(summary)}") + section("Synopsis", synopsis) + "".join(sections)


def references(names):
    return section("See also", ",\n".join(f"{bold(name)}(1)" for name in names))


def of_command(program, command):
    parts = [section("Description", *map(roff, command.notes))] if command.notes else []
    if command.options:
        parts.append(section("Options") + items(
            (bold(name) + (rf" \fI{roff(placeholder)}\fR" if placeholder else ""), text)
            for name, placeholder, text in command.options))
    if command.items:
        parts.append(section(command.title) + items((bold(name), text) for name, text in command.items))
    return page(program, command.page, command.summary, f"{bold('fenceguard ' + command.name)} {roff(command.synopsis)}",
                *parts, references(["fenceguard"]))


def of_program(program):
    parts = [section("Description", roff(program.notes)),
             section("Commands") + items((f"{bold(command.page)}(1)", command.summary) for command in program.commands),
             section("Exit status", roff(program.statuses)),
             references(command.page for command in program.commands)]
    return page(program, "fenceguard", program.summary, f"{bold('fenceguard')} {roff(program.synopsis)}", *parts)


def pages(program):
    """The text of each page by its name."""
    return {"fenceguard": of_program(program)} | {command.page: of_command(program, command) for command in program.commands}
