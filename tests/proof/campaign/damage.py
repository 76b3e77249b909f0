"""Histories that are damaged on purpose, to show that the checker finds it in the histories of every storage."""

import os

from cycle import history_of, violations_in


def acknowledged(operations, resource):
    return [line["value"] for line in operations if line["op"] == "write" and line["resource"] == resource
            and line.get("verdict") == "admitted"]


def moved(entries, _):
    """The first write to the end, behind one with a higher token."""
    return entries[1:] + entries[:1]


def dropped(entries, told):
    return [entry for entry in entries if entry != told[len(told) // 2]]


def doubled(entries, told):
    return [copy for entry in entries for copy in [entry] * (1 + (entry == told[len(told) // 2]))]


def undetected(operations, log, folder):
    """The damages that were not found. Raises AssertionError if the history has too little to damage."""
    for resource, entries in log.items():
        told = acknowledged(operations, resource)
        if told and len({entry.split()[0] for entry in entries}) > 1:
            break
    else:
        raise AssertionError("no resource was written under two tokens")
    left = []
    for damage in (moved, dropped, doubled):
        path = os.path.join(folder, damage.__name__)
        with open(path, "w", encoding="utf-8") as file:
            file.write(history_of(operations, {**log, resource: damage(entries, told)}))
        if f"violation: {resource}: " not in violations_in(path):
            left.append(damage.__name__)
    return left
