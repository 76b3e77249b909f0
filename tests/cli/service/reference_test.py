"""What is installed says what --help says: man pages, completions of three shells, the example configuration."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import shells
import support

COMMAND = re.compile(r"^  ([a-z]+(?: [a-z]+)?)  +\S", re.MULTILINE)
OPTION = re.compile(r"^  (--[a-z-]+|FENCEGUARD_[A-Z_]+)( [A-Z]+)?$|^  (--[a-z-]+|FENCEGUARD_[A-Z_]+)( [A-Z]+)? ", re.MULTILINE)


def words(text):
    return " ".join(text.split())


class Installed(support.BinaryTest):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="fenceguard-installed-")
        cls.addClassCleanup(shutil.rmtree, folder)
        for component in ("program", "demo"):
            subprocess.run([os.environ["FENCEGUARD_CMAKE"], "--install", os.path.dirname(support.BINARY), "--component",
                            component, "--prefix", folder], check=True, capture_output=True)
        cls.prefix, cls.share = pathlib.Path(folder), os.path.join(folder, "share")

    def help(self, command):
        return self.expect(0, *command.split(), "--help").stdout

    def commands(self):
        found = COMMAND.findall(self.expect(0, "--help").stdout)
        self.assertGreater(len(found), 15)
        return found

    def flags(self, command):
        options = ["".join(option[0::2]) for option in OPTION.findall(self.help(command).partition("\nOptions:\n")[2])]
        return {option for option in options if option.startswith("--")}

    def shown(self, page):
        """The page as a terminal shows it, without the breaks of its lines."""
        path = self.prefix / "share" / "man" / "man1" / f"{page}.1.gz"
        shown = subprocess.run(["man", "--warnings", "--no-hyphenation", "--no-justification", "-l", path], check=True, text=True,
                               capture_output=True,
                               env={**os.environ, "MANWIDTH": "400", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"})
        self.assertEqual(shown.stderr, "")
        return words(shown.stdout)

    def test_every_command_has_a_page_that_says_what_its_help_says(self):
        for command in self.commands():
            with self.subTest(command=command):
                head, _, rest = self.help(command).partition(".\n\n")
                page = self.shown("fenceguard-" + command.replace(" ", "-"))
                self.assertIn(f"fenceguard-{command.replace(' ', '-')} - {head.partition(': ')[2]}", page)
                # Its parts in their own order: what begins with a name stands alone, as in the page.
                parts = re.split(r"\n(?=  \S)|\n\n", rest.replace("Options:\n", "\n").replace("Usage: ", ""))
                for part in parts:
                    part = re.sub(r"^[A-Z][a-z]+:$", "", part)
                    self.assertIn(words(part), page)

    def test_manual_page_names_every_command_with_its_summary(self):
        page = self.shown("fenceguard")
        general = self.expect(0, "--help").stdout
        for name, summary in re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +(\S.*)$", general, re.MULTILINE):
            self.assertIn(f"fenceguard-{name.replace(' ', '-')}(1) {summary}", page)
        self.assertIn(words(general.partition("Exit status: ")[2]), page)
        pages = {path.name for path in (self.prefix / "share" / "man" / "man1").iterdir()}
        self.assertEqual(pages, {"fenceguard.1.gz"} | {f"fenceguard-{name.replace(' ', '-')}.1.gz" for name in self.commands()})

    def expect_offered(self, complete, line, expected):
        offered = {word.rstrip("=") for word in complete(self.share, line)}
        self.assertEqual(offered - {"--help", "--version"}, set(expected), f"{complete.__name__}: {line}")

    def test_each_shell_offers_the_commands(self):
        commands = self.commands()
        for complete in (shells.bash, shells.fish, shells.zsh):
            self.expect_offered(complete, ["fenceguard", ""], {name.split()[0] for name in commands})
            self.expect_offered(complete, ["fenceguard", "lease", ""],
                                {name.split()[1] for name in commands if name.startswith("lease ")})
            self.expect_offered(complete, ["fenceguard", "bogus", "--"], set())

    def test_bash_and_fish_offer_every_option_of_every_command(self):
        for command in self.commands():
            for complete in (shells.bash, shells.fish):
                self.expect_offered(complete, ["fenceguard", *command.split(), "--"], self.flags(command))

    def test_zsh_completes_every_option(self):
        for command in ("serve", "lease acquire"):
            self.expect_offered(shells.zsh, ["fenceguard", *command.split(), "--"], self.flags(command))

    def test_an_option_that_takes_a_file_is_followed_by_files(self):
        self.write("settings.ini", "")
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)
        for complete in (shells.bash, shells.fish, shells.zsh):
            self.expect_offered(complete, ["fenceguard", "serve", "--config", "sett"], {"settings.ini"})
        self.expect_offered(shells.bash, ["fenceguard", "serve", "--config", "=", "sett"], {"settings.ini"})
        self.expect_offered(shells.bash, ["fenceguard", "serve", "--listen", ""], set())

    def test_exec_is_followed_by_a_command_behind_its_dashes(self):
        for complete in (shells.bash, shells.zsh):
            self.expect_offered(complete, ["fenceguard", "exec", "--resource", "a", "--", "mkfif"], {"mkfifo"})

    def test_the_demonstration_offers_its_scenarios(self):
        for complete in (shells.bash, shells.fish):
            self.expect_offered(complete, ["fenceguard", "demo", "gc"], {"gc-pause"})

    def test_the_configuration_is_the_example_with_every_default(self):
        installed = self.prefix / "etc" / "fenceguard" / "fenceguard.ini"
        self.assertEqual(installed.read_text(encoding="utf-8"), self.expect(0, "serve", "--example-config").stdout)

    def test_the_unit_starts_the_program_that_was_installed_with_it(self):
        unit = (self.prefix / "lib" / "systemd" / "system" / "fenceguard.service").read_text(encoding="utf-8")
        self.assertNotRegex(unit, "@[A-Za-z_]+@")
        self.assertRegex(unit, r"(?m)^ExecStart=/\S+/bin/fenceguard serve --config /\S+/fenceguard\.ini$")


if __name__ == "__main__":
    unittest.main()
