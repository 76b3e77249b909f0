"""The floors of the house: server stands on adapters, adapters stand on guard, and nothing includes upwards. The
demonstrations stand beside the server, of which they include little.

A unit is a header together with its source: 'guard/judge' is judge.hpp and judge.cpp.
"""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
FLOORS = ["guard", "adapters", "server"]
# What the demonstrations may include of the server: what speaks HTTP, what a command says, and the page of /ui.
OF_SERVER_FOR_DEMO = {"server/cli/terminal/demo_command.hpp", "server/cli/terminal/output.hpp", "server/cli/terminal/sibling_program.hpp",
                      "server/control/watch/console_page.hpp", "server/http/client.hpp", "server/http/server.hpp"}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]((?:guard|adapters|server|demo|tests|bench)/[^">]+)[">]', re.MULTILINE)
FILES_MAX = 20


def sources():
    return [path for floor in [*FLOORS, "demo"] for path in sorted((ROOT / floor).rglob("*.?pp"))]


def folders(folder=ROOT):
    """Every folder of the tree but what is built, hidden, or made by Python."""
    yield folder
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.name.startswith((".", "__")) and entry != ROOT / "build":
            yield from folders(entry)


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def includes(path):
    return INCLUDE.findall(path.read_text())


def unit(name):
    return name.rsplit(".", 1)[0]


def first_circle(arrows):
    """Some circle of units that include each other, as a list; empty if there is none."""
    done, path = set(), []

    def walk(node):
        if node in path:
            return path[path.index(node):] + [node]
        if node in done:
            return []
        path.append(node)
        for target in sorted(arrows.get(node, ())):
            if circle := walk(target):
                return circle
        path.pop()
        done.add(node)
        return []

    for node in sorted(arrows):
        if circle := walk(node):
            return circle
    return []


class Structure(unittest.TestCase):
    def test_the_tree_is_where_it_is_looked_for(self):
        for floor in [*FLOORS, "demo"]:
            self.assertTrue(any(name_of(path).startswith(floor + "/") for path in sources()), floor)
        self.assertLessEqual({*FLOORS, "bench", "docs", "tests/kit"}, set(map(name_of, folders())))

    def test_every_include_of_ours_is_there(self):
        missing = [f"{name_of(path)}: {name}" for path in sources() for name in includes(path)
                   if not (ROOT / name).is_file()]
        self.assertEqual(missing, [])

    def test_nothing_includes_what_stands_on_it(self):
        upward = [f"{name_of(path)} includes {name}" for path in sources() for name in includes(path)
                  if not name_of(path).startswith("demo/")
                  and name.split("/")[0] not in FLOORS[:FLOORS.index(name_of(path).split("/")[0]) + 1]]
        self.assertEqual(upward, [])

    def test_the_demonstrations_include_little_of_the_server(self):
        included = {name for path in sources() for name in includes(path) if name_of(path).startswith("demo/")}
        self.assertEqual({name for name in included if not name.startswith(("guard/", "adapters/", "demo/"))},
                         OF_SERVER_FOR_DEMO)

    def test_an_adapter_includes_no_other_adapter(self):
        across = [f"{name_of(path)} includes {name}" for path in sources() for name in includes(path)
                  if name_of(path).count("/") > 1 and name_of(path).startswith("adapters/")
                  and name.startswith("adapters/") and name.split("/")[1] != name_of(path).split("/")[1]]
        self.assertEqual(across, [])

    def test_the_net_knows_no_protocol(self):
        allowed = ("guard/", "server/net/")
        wrong = [f"{name_of(path)} includes {name}" for path in sources() for name in includes(path)
                 if name_of(path).startswith("server/net/") and not name.startswith(allowed)]
        self.assertEqual(wrong, [])

    def test_lanes_know_no_http(self):
        allowed = ("guard/", "server/lane/")
        wrong = [f"{name_of(path)} includes {name}" for path in sources() for name in includes(path)
                 if name_of(path).startswith("server/lane/") and not name.startswith(allowed)]
        self.assertEqual(wrong, [])

    def test_no_units_include_each_other_in_a_circle(self):
        arrows = {}
        for path in sources():
            here = unit(name_of(path))
            arrows.setdefault(here, set()).update(unit(name) for name in includes(path) if unit(name) != here)
        self.assertEqual(first_circle(arrows), [])

    def test_every_package_has_the_programs_version(self):
        version = re.search(r"project\(fenceguard VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
        packages = {"sql/postgres/fast/fenceguard.control": r"default_version = '(.*)'",
                    "clients/java/pom.xml": r"</artifactId>\s*<version>(.*)</version>",
                    "clients/node/package.json": r'"version": "(.*)"',
                    "clients/python/pyproject.toml": r'version = "(.*)"'}
        for name, pattern in packages.items():
            self.assertEqual(re.search(pattern, (ROOT / name).read_text())[1], version, name)

    def test_a_folder_can_be_taken_in_at_a_glance(self):
        crowded = {name_of(folder): count for folder in folders()
                   if (count := sum(entry.is_file() for entry in folder.iterdir())) > FILES_MAX}
        self.assertEqual(crowded, {})


class FirstCircle(unittest.TestCase):
    def test_finds_a_circle_and_none_in_a_diamond(self):
        self.assertEqual(first_circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}), ["a", "b", "c", "a"])
        self.assertEqual(first_circle({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}}), [])


if __name__ == "__main__":
    unittest.main()
