#!/usr/bin/python3
"""Prints docs/settings.md as it follows from the binary's own table of settings:

    scripts/settings.py build/release/fenceguard > docs/settings.md
"""

import re
import subprocess
import sys

HEADER = """# Settings of `fenceguard serve`

Every setting is a flag, an environment variable or a line of an INI file (`--config FILE`), in this order of
precedence. A switch is `true` or `false` in a variable or file. Durations read `500ms`, `10s`, `2m`.
A flag also stands above variables and lines that cannot be given with it: `--server` of a client above `FENCEGUARD_STORAGE`.
`serve --example-config` prints a file with every default, commented out; the other commands tell theirs by `--help`.

A variable that resembles the name of a setting and is none (`FENCEGUARD_LISTN`) is refused, as such a line of the file is.
Others that begin with `FENCEGUARD_`, such as those of a script or of Kubernetes, are left alone.

Words such as *lane* and *settle* are in the [glossary](glossary.md). This page is made from the binary's table of
settings by `scripts/settings.py`; a test compares the two.

| flag | environment variable | default | what it is |
| --- | --- | --- | --- |
"""

# A flag, or the variable of a secret, which has no flag.
OPTION = re.compile(r"  (--[a-z-]+|FENCEGUARD_[A-Z_]+)(?: ([A-Z]+))?(?: +(.*))?")


def options(help_text):
    """(name, placeholder, explanation) of every option in the text of --help."""
    section = help_text.partition("\nOptions:\n")[2].partition("\n\n")[0]
    found = []
    for line in section.splitlines():
        option = OPTION.fullmatch(line)
        if option:
            found.append([option[1], option[2] or "", option[3] or ""])
        else:
            found[-1][2] = f"{found[-1][2]} {line.strip()}".strip()
    return found


def row(name, placeholder, explanation):
    default = re.search(r" ?\[default: ([^\]]*)\]", explanation)
    if default:
        explanation = explanation.replace(default[0], "")
    variable = "FENCEGUARD_" + name.removeprefix("--").replace("-", "_").upper() if name.startswith("--") else name
    flag = f"`{name} {placeholder}`".replace(" `", "`") if name.startswith("--") else ""
    value = f"`{default[1]}`" if default else ""
    return f"| {flag} | `{variable}` | {value} | {explanation.replace('|', chr(92) + '|')} |\n"


def page(binary):
    done = subprocess.run([binary, "serve", "--help"], capture_output=True, text=True, check=True)
    return HEADER + "".join(row(*option) for option in options(done.stdout))


if __name__ == "__main__":
    sys.stdout.write(page(sys.argv[1]))
