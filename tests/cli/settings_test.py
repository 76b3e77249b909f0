"""The page of settings in the docs is what the binary's own table says."""

import importlib.util
import os
import unittest

import support

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def load_script():
    spec = importlib.util.spec_from_file_location("settings", os.path.join(ROOT, "scripts", "settings.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Settings(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.script = load_script()
        self.maxDiff = None

    def test_the_docs_say_what_the_binary_says(self):
        with open(os.path.join(ROOT, "docs", "settings.md"), encoding="utf-8") as file:
            self.assertEqual(file.read(), self.script.page(support.BINARY),
                             "run: scripts/settings.py build/release/fenceguard > docs/settings.md")

    def test_docs_have_every_line_of_the_example_configuration(self):
        # The two come from one table by two ways: a setting that one of them loses is noticed.
        example = self.expect(0, "serve", "--example-config").stdout
        lines = [line[1:].partition(" =") for line in example.splitlines() if line.startswith("#") and " =" in line
                 and not line.startswith("# ")]
        named = {name: value.strip() for name, _, value in lines}
        self.assertGreater(len(named), 20)
        rows = [line.split(" | ") for line in self.script.page(support.BINARY).splitlines() if line.startswith("| `--")]
        documented = {row[0][3:].strip("|` ").split()[0].lstrip("-"): row[2].strip("` ") for row in rows}
        switches = {name for name, value in named.items() if value == "false"}
        self.assertEqual({name: "" if name in switches else value for name, value in named.items()},
                         {name: value for name, value in documented.items()
                          if name not in ("config", "example-config")})


if __name__ == "__main__":
    unittest.main()
