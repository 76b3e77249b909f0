"""Test programs of a build that is there, with some source files altered: what depends on those is compiled anew, and
linked with everything else as it was.

An embedded script is not even compiled: it lies in the program as a text of its own, and is replaced there.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


class DoesNotBuild(Exception):
    """An altered file does not compile, or not link."""


def run(command, folder, shell=False):
    done = subprocess.run(command, cwd=folder, shell=shell, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    if done.returncode != 0:
        raise DoesNotBuild(done.stdout[-3000:])
    return done.stdout


class Build:
    """What ninja and ctest know of a build folder. Thread-safe once it was made."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        edges = json.loads(run(["ninja", "-t", "compdb"], self.folder))
        self.commands = {edge["output"]: edge["command"] for edge in edges}
        self.sources = {edge["output"]: edge["file"] for edge in edges}
        self.files = {}  # by object: files of the project
        for line in run(["ninja", "-t", "deps"], self.folder).split("\n"):
            if line.startswith("    "):
                path = os.path.normpath(self.folder / line.strip())  # a compiler cache may make it relative
                if path.startswith(f"{ROOT}/") and not path.startswith(f"{self.folder}/"):
                    self.files[output].add(os.path.relpath(path, ROOT))
            elif line:
                output = line.partition(":")[0]
                self.files[output] = set()
        tests = json.loads(run(["ctest", "--show-only=json-v1"], self.folder))["tests"]
        self.tests = {test["name"]: test for test in tests}

    def output_of(self, word):
        """The output of this build that a word of a command line names, or None."""
        path = os.path.relpath(word, self.folder) if word.startswith("/") else None
        return path if path in self.commands else None

    def inputs(self, output):
        return [word for word in self.commands[output].split() if word in self.commands and word != output]

    def altered(self, output, tree, paths, scratch):
        """The program with the files at paths, which lie altered in tree; its own path if nothing of it is altered."""
        texts = {ROOT / path: tree / path for path in paths if path.endswith(".lua")}
        sources = {path for path in paths if path not in texts and not path.endswith((".lua", ".sql"))}
        program = str(self.folder / output)
        places = self._compile(output, sources, tree, scratch) if sources else {}
        if output in places:
            program = places[output]
        return _with_texts(program, texts, scratch) if texts else program

    def _compile(self, output, sources, tree, scratch):
        """The places of what is not as it was, by the names that it has in the build."""
        places = {}
        for name in self.inputs(output):
            if name.endswith(".o"):
                if self.files.get(name, set()) & sources:
                    places[name] = self._compile_object(name, sources, tree, scratch)
            else:
                places.update(self._compile(name, sources, tree, scratch))
        if not any(name in places for name in self.inputs(output)):
            return places
        place = scratch / output
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            words = self.commands[output].split(" ")
            run(" ".join(places.get(word, str(place) if word == output else word) for word in words), self.folder, True)
        places[output] = str(place)
        return places

    def _compile_object(self, name, sources, tree, scratch):
        place = scratch / name
        if place.exists():
            return str(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        source = pathlib.Path(self.sources[name])
        if source.is_relative_to(self.folder):  # several sources in one
            text = source.read_text(encoding="utf-8")
            for path in sources:
                text = text.replace(f'"{ROOT / path}"', f'"{tree / path}"')
            source = pathlib.Path(f"{place}.cpp")
            source.write_text(text, encoding="utf-8")
        elif str(source.relative_to(ROOT)) in sources:
            source = tree / source.relative_to(ROOT)
        words = shlex.split(self.commands[name])
        words[words.index("-o") + 1] = str(place)
        words[words.index("-MF") + 1] = f"{place}.d"
        words[-1] = str(source)
        words.insert(words.index(f"-I{ROOT}"), f"-I{tree}")
        run([word for word in words if not word.startswith("-W")], self.folder)
        return str(place)


def _with_texts(program, texts, scratch):
    """The program with other texts in the place of those that it holds, padded, and without comments if they are longer."""
    content = pathlib.Path(program).read_bytes()
    for original, altered in texts.items():
        before, after = original.read_bytes(), altered.read_bytes()
        if len(after) > len(before):
            after = re.sub(rb"(?m)^ *--.*\n", b"", after)
        if content.count(before) == 0:
            continue
        if len(after) > len(before) or content.count(before) > 1:
            raise DoesNotBuild(f"{altered}: longer than what it replaces, or more than once in {program}")
        content = content.replace(before, after.ljust(len(before), b"\n"))
    place = scratch / "texts" / os.path.basename(program)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    place.chmod(0o755)
    return str(place)
