#!/usr/bin/python3
"""Looks for inputs that break what reads them: builds each fuzz target by clang and runs it for a while, from its corpus on.

    fuzz.py [--seconds S] [--same] [--jobs N] [--only NAME]... [--build FOLDER] [--found FOLDER]

S seconds for each target (30), N at a time (as many as there are cores). --same: the same executions each time, about 30 s of
them, or fewer where the seconds are over first (give three times as many): for what a change must pass, which is refused for
what it does and not by luck. NAME: one target, 'lane'. --build: a build of the preset release (build/release). --found: where
what was found and the corpora stay (a temporary folder that goes if nothing was found); what an earlier run left there is gone
on from.

Prints executions, how many inputs the corpus has afterwards, and per second; exit status 1 where a target found something,
with how to replay it.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUFFIX = "_fuzz_corpus"
MAX_BYTES = 512
# Half a minute on a core of 2020, or less.
SAME = {"texts": 500_000, "http": 1_400_000, "lane": 20_000, "lease_queue": 45_000, "resp": 30_000, "pgwire_relay": 50_000,
        "pgwire_message": 450_000}
# What libFuzzer keeps depends on addresses, on the order of a folder, and on what it reads there again.
HAS_SETARCH = subprocess.run(["setarch", "-R", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0
SAME_ADDRESSES = ["setarch", "-R"] if HAS_SETARCH else []


def replays(build):
    """The tests that go over the corpora, {target: words}; no words where they are not built yet."""
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", "-R", SUFFIX + "$"], check=True,
                            capture_output=True, text=True)
    return {test["name"].removesuffix(SUFFIX): test.get("command") for test in json.loads(listed.stdout)["tests"]}


def fuzz(build, target, corpus, seconds, is_same, found):
    """What is to be said of one target, and whether it found nothing."""
    program = f"{build}/tests/{target}_fuzz"
    inputs, begin = os.path.join(found, target), os.path.join(found, f"{target}-begin")
    for folder in (inputs, begin):
        os.makedirs(folder, exist_ok=True)
    subprocess.run([f"{program}_replay", corpus, begin if is_same else inputs], check=True, stdout=subprocess.DEVNULL)
    artifact = os.path.join(found, f"{target}-found")
    words = [program, f"-max_len={MAX_BYTES}", f"-max_total_time={seconds}", f"-exact_artifact_path={artifact}",
             "-print_final_stats=1", "-timeout=60"]
    # Else its own seed each time; the corpus is where it begins.
    if is_same:
        names = sorted(os.path.join(begin, name) for name in os.listdir(begin))
        words = [*SAME_ADDRESSES, *words, "-seed=1", f"-runs={SAME[target]}", "-reload=0", f"-seed_inputs={','.join(names)}"]
    done = subprocess.run([*words, inputs], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, check=False)
    output = done.stdout.decode(errors="replace")
    count = re.search(r"stat::number_of_executed_units:\s*(\d+)", output)
    rate = re.search(r"stat::average_exec_per_sec:\s*(\d+)", output)
    if done.returncode == 0 and count and int(count[1]) > 0:
        return f"{target}: {int(count[1]):,} executions, {int(rate[1]):,}/s, {len(os.listdir(inputs)):,} inputs", True
    told = [output[-6000:], f"{target}: FOUND something, or ended with {done.returncode}"]
    if os.path.exists(artifact):
        digits = pathlib.Path(artifact).read_bytes().hex()
        told += ["to replay it, also without clang:",
                 f"  echo {digits} >input.hex",
                 f"  {build}/tests/{target}_fuzz_replay input.hex",
                 f"the line belongs into {os.path.relpath(corpus, ROOT)} once it is mended"]
    return "\n".join(told), False


def main():
    parser = argparse.ArgumentParser(usage="see the head of the file")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--same", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", action="append")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--found")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    if "\nFENCEGUARD_FUZZ:BOOL=ON\n" not in pathlib.Path(arguments.build, "CMakeCache.txt").read_text(encoding="utf-8"):
        subprocess.run(["cmake", "-DFENCEGUARD_FUZZ=ON", arguments.build], check=True, stdout=subprocess.DEVNULL)
    chosen = arguments.only or list(replays(arguments.build))
    if wrong := set(chosen) - replays(arguments.build).keys():
        parser.error(f"there is no target {', '.join(wrong)}")
    subprocess.run(["ninja", "-C", arguments.build, "-j", str(arguments.jobs),
                    *(f"{name}_{kind}" for name in chosen for kind in ("fuzz_replay", "fuzz"))], check=True,
                   stdout=subprocess.DEVNULL)
    corpora = {name: words[1] for name, words in replays(arguments.build).items() if name in chosen}
    found = arguments.found or tempfile.mkdtemp(prefix="fenceguard-fuzz-")
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        ran = list(pool.map(lambda one: fuzz(arguments.build, *one, arguments.seconds, arguments.same, found), corpora.items()))
    for told, _ in ran:
        print(told, flush=True)
    is_well = all(is_clean for _, is_clean in ran)
    if not arguments.found and is_well:
        shutil.rmtree(found)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
