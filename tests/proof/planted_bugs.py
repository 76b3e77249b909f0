"""Proves that the tests notice bugs: plants each of those in bugs/, in a copy of what it changes, and runs the test that
is to find it.

    planted_bugs.py [--build build/release] [--jobs 2] [--older] [--for-change] [PATCH...]

A patch begins with a sentence of what is wrong, and may say

    found by: CTEST_NAME [FILTER...]   the test that is to find it; else the simulation
    older: CTEST_NAME [FILTER]         with --older: what was there before the simulation, one line each

Prints a line per bug: what found it, and after how many seconds, the building included. A patch that does not apply, does
not build or is found by nothing makes it fail.

--for-change, where FENCEGUARD_CHANGE says the commit: those in whose folders something changed, which are those of the files
that they alter, of themselves and of the tests that find them, and a third of all others, chosen by the commit. What changed
is said by git: since FENCEGUARD_BASE, or where the commit left origin/main, or, where it is that itself or there is none,
since its parent.
Where git does not know, all. GTEST_TOTAL_SHARDS and GTEST_SHARD_INDEX: one part of what is to be tried.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from altered_build import ROOT, Build, DoesNotBuild

BUGS = pathlib.Path(__file__).resolve().parent / "bugs"
SIMULATION = "proof_simulation_test Histories.NoneHasAViolation"
OTHERS_SHARE = 3
# Said to the command that runs this, and not to the tests that it runs.
OUR_WORDS = ("FENCEGUARD_CHANGE", "GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX")
LIMIT_S = 900
# What a test says that failed, rather than one that could not begin.
SIGNS = (r"^FENCEGUARD_SEED=\d+: ([\w-]+): ", r"^\[  FAILED  \] ([\w./]+)", r"^(?:FAIL|ERROR): (test_\w+)",
         r"^(terminate called .*)$", r"^not ok \d+ - (.*)$")


class Bug:
    def __init__(self, path):
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        head = self.text.partition("\n--- ")[0].split("\n")
        self.name = path.stem.replace("_", " ")
        self.finders = [line.partition(": ")[2] for line in head if line.startswith("found by: ")] or [SIMULATION]
        self.older = [line.partition(": ")[2] for line in head if line.startswith("older: ")]
        self.files = re.findall(r"^\+\+\+ b/(\S+)", self.text, re.MULTILINE)

    def plant(self, tree):
        """Raises DoesNotBuild where it does not apply."""
        if not self.files:
            raise DoesNotBuild("it changes no file")
        for file in self.files:
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, tree / file)
        done = subprocess.run(["patch", "-p1", "--batch", "--forward", "--no-backup-if-mismatch"], cwd=tree, text=True,
                              input=self.text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise DoesNotBuild(f"it does not apply: {done.stdout}")


def command_of(build, bug, name, scratch, tree):
    """Command, environment and folder of a ctest entry, with everything in it that the bug alters."""
    if name not in build.tests:
        raise DoesNotBuild(f"there is no test {name}")
    test = build.tests[name]
    properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}

    def altered(word):
        output = build.output_of(word)
        if output:
            return build.altered(output, tree, bug.files, scratch)
        # The tests of what is not built find it beside themselves.
        if word.startswith(f"{ROOT}/tests/") and any(file.startswith("sql/") for file in bug.files):
            copied = ("tests/kit", "tests/postgres", "tests/mariadb", "sql", "tests/judge_cases.tsv", "docs")
            for part in copied:
                if not (tree / "copied" / part).exists():
                    copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
                    (tree / "copied" / part).parent.mkdir(parents=True, exist_ok=True)
                    copy(ROOT / part, tree / "copied" / part)
            for file in bug.files:
                shutil.copy2(tree / file, tree / "copied" / file)
            return str(tree / "copied" / pathlib.Path(word).relative_to(ROOT))
        return word

    environment = {}
    for entry in properties.get("ENVIRONMENT", []):
        key, _, value = entry.partition("=")
        if key in OUR_WORDS:
            continue  # the whole test, and not one shard of it
        environment[key] = ":".join(altered(word) for word in value.split(":")) if value.startswith("/") else value
    return [altered(word) for word in test["command"]], environment, properties["WORKING_DIRECTORY"]


def find(build, bug, finder, scratch, tree):
    """What the test says that fails, or None."""
    name, *filters = finder.split()
    command, environment, folder = command_of(build, bug, name, scratch, tree)
    if command[-1].startswith(("/", "--gtest_filter=")) and "_test.py" not in " ".join(command):
        command += ["--gtest_random_seed=1", "--gtest_fail_fast"]
        command += [f"--gtest_filter={':'.join(filters)}"] if filters else []
    else:
        command += ["-f", *filters]
    environment = {**{key: value for key, value in os.environ.items() if key not in OUR_WORDS}, **environment}
    process = subprocess.Popen(command, cwd=folder, env=environment, text=True, errors="replace",
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"{name}: does not end"
    if process.returncode == 0:
        if re.search(r"^(Ran 0 tests|\[==========\] Running 0 tests)", output, re.MULTILINE):
            raise DoesNotBuild(f"{finder}: there is no such test")
        return None
    for sign in SIGNS:
        if found := re.search(sign, output, re.MULTILINE):
            return f"{name}: {found.group(1)}"
    if process.returncode < 0:
        return f"{name}: ended by signal {-process.returncode}"
    raise DoesNotBuild(f"{name} failed without a test that did:\n{output[-3000:]}")


def try_bug(build, bug, asks_older):
    """The line to print, and whether the bug was found."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fenceguard-bug-") as folder:
        scratch, tree = pathlib.Path(folder) / "build", pathlib.Path(folder) / "tree"
        pathlib.Path(folder).chmod(0o755)
        tree.mkdir()
        try:
            bug.plant(tree)
            found = next(filter(None, (find(build, bug, finder, scratch, tree) for finder in bug.finders)), None)
            seconds = time.monotonic() - begun
            line = f"{bug.name}: {found or 'NOT FOUND'}, {seconds:.0f} s"
            if asks_older and bug.older:
                older = list(filter(None, (find(build, bug, finder, scratch, tree) for finder in bug.older)))
                line += f"; of the older: {', '.join(older) or 'nothing'}"
            return line, found is not None
        except DoesNotBuild as error:
            return f"{bug.name}: FAILED, {error}", False


def git(*words):
    """What git says, or None."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def changed_folders():
    """Those of the files that changed, in commits or not committed; None where git does not know."""
    base = os.environ.get("FENCEGUARD_BASE") or git("merge-base", "HEAD", "origin/main")
    if base is None or base == git("rev-parse", "HEAD"):
        base = "HEAD^"
    changed, untracked = git("diff", "--name-only", base), git("ls-files", "--others", "--exclude-standard")
    if changed is None or untracked is None:
        return None
    return {os.path.dirname(name) for name in (changed + "\n" + untracked).split("\n") if name}


def folders_of(bug, build):
    names = [*bug.files, os.path.relpath(bug.path, ROOT)]
    for finder in bug.finders:
        for word in build.tests.get(finder.split()[0], {}).get("command", ()):
            if output := build.output_of(word):
                names += [name.partition("/CMakeFiles/")[0] + "/" for name in build.inputs(output) if name.endswith(".o")]
            elif word.startswith(f"{ROOT}/tests/"):
                names.append(os.path.relpath(word, ROOT))
    return {os.path.dirname(name) for name in names}


def for_change(bugs, build, folders, turn):
    """Of these bugs those to try: (those in whose folders something changed, a share of the others)."""
    touched = [bug for bug in bugs if folders_of(bug, build) & folders]
    others = [bug for bug in bugs if bug not in touched]
    return touched, others[turn % OTHERS_SHARE::OTHERS_SHARE]


def chosen(bugs, build):
    """Those to try for this change, by what was said of it; all where nothing was."""
    commit = os.environ.get("FENCEGUARD_CHANGE")
    folders = changed_folders() if commit else None
    if folders is None:
        return bugs
    touched, others = for_change(bugs, build, folders, int(commit, 16))
    print(f"of {len(bugs)} bugs the {len(touched)} of folders that changed, and {len(others)} others, chosen by commit "
          f"{commit[:12]}", flush=True)
    return touched + others


def outgrown(paths):
    """Those that do not apply any more."""
    for path in paths:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                Bug(path).plant(pathlib.Path(scratch))
            except (DoesNotBuild, FileNotFoundError) as error:
                yield f"{path.relative_to(ROOT)}: {error}"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default=os.environ.get("FENCEGUARD_BUILD", ROOT / "build" / "release"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--older", action="store_true")
    parser.add_argument("--for-change", action="store_true")
    parser.add_argument("patches", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    paths = options.patches or sorted(BUGS.rglob("*.patch"))
    build, bugs = Build(options.build), [Bug(path.resolve()) for path in paths]
    begun, missed = time.monotonic(), 0
    if options.for_change:
        bugs = chosen(bugs, build)
    index, count = (int(os.environ.get(name, default)) for name, default in (("GTEST_SHARD_INDEX", 0), ("GTEST_TOTAL_SHARDS", 1)))
    left_out = sorted({path.resolve() for path in paths} - {bug.path for bug in bugs})
    bugs = bugs[index::count]
    for line in outgrown(left_out[index::count]):
        missed += 1
        print(line)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        tries = [pool.submit(try_bug, build, bug, options.older) for bug in bugs]
        for done in concurrent.futures.as_completed(tries):
            line, is_found = done.result()
            missed += not is_found
            print(line, flush=True)
    print(f"{len(bugs)} bugs, {missed} not found, {time.monotonic() - begun:.0f} s")
    return 1 if missed or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
