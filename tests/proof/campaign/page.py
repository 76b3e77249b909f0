"""The campaign's table as a page of the documentation has it, in the place of the one that is there."""

import json
import re

HEAD = "| storage | source | scenarios | cycles | operations | refused | unknown | violations | updates lost without a guard |"
TABLE = re.compile(r"(<!-- campaign -->\n).*?(<!-- end -->\n)", re.DOTALL)


def table_of(report):
    """One row for each storage and source, and when and with which seeds."""
    pairs = {}
    for row in report["rows"]:
        pairs.setdefault((row["storage"], row["source"]), []).append(row)
    lines = [HEAD, "| --- " * HEAD.count(" | ") + "| --- |"]
    for (storage, source), rows in pairs.items():
        def total(name):
            return sum(row[name] for row in rows)
        control = next((row for row in rows if "lost_unguarded" in row), None)
        lost = f"{control['lost_unguarded']} of {control['writes']}" if control else ""
        lines.append(f"| {storage} | {source} | {', '.join(row['scenario'] for row in rows)} | {total('cycles')} | "
                     f"{total('operations'):,} | {total('refused'):,} | {total('unknown'):,} | {total('violations')} | {lost} |")
    seeds = ", ".join(map(str, report["seeds"]))
    return "\n".join([*lines, "", f"{report['date']}, seeds {seeds}."]) + "\n"


def write(path, json_path):
    with open(json_path, encoding="utf-8") as file:
        table = table_of(json.load(file))
    with open(path, encoding="utf-8") as file:
        text = file.read()
    changed, count = TABLE.subn(lambda found: found[1] + table + found[2], text)
    if count != 1:
        raise ValueError(f"{path} has no place for the table")
    with open(path, "w", encoding="utf-8") as file:
        file.write(changed)
