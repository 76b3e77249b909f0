"""How 'fenceguard demo' becomes fenceguard-demo: where it looks for it, what it leaves as it is, and what it says where there
is none; and how fenceguard-demo finds fenceguard."""

import os
import pathlib
import shutil
import subprocess
import unittest

import support

# Tells what it was given, and ends with a status of its own.
STAND_IN = """#!/bin/sh
echo "pid $$"
echo "arguments $*"
grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status
echo "said: $(cat)"
echo complaint >&2
exit 7
"""


class Program(support.BinaryTest):
    def setUp(self):
        super().setUp()
        self.bin = pathlib.Path(self.folder, "bin")
        self.bin.mkdir()
        self.binary = self.copy("fenceguard")

    def copy(self, name):
        return shutil.copy(pathlib.Path(support.BINARY).with_name(name), self.bin)

    def stand_in(self, folder, text=STAND_IN):
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "fenceguard-demo"
        file.write_text(text)
        file.chmod(0o755)
        return file

    def run_program(self, program, *arguments, **variables):
        return subprocess.run([program, *arguments], cwd=self.folder, env=support.environment(variables), text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=support.LIMIT_S, check=False)

    def require_missing(self, package, done):
        self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
        self.assertRegex(done.stderr, rf"^fenceguard: demo: .*in the package {package}\n$")

    def test_arguments_streams_status_and_signals_are_the_programs(self):
        stand_in = self.stand_in(self.bin)
        arguments = ["demo", "gc-pause", "--json", "--storage=http"]
        process = subprocess.Popen([self.binary, *arguments], env=support.environment(), text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output, complaint = process.communicate("a line", timeout=support.LIMIT_S)
        direct = subprocess.run([stand_in, *arguments[1:]], env=support.environment(), input="a line", text=True,
                                capture_output=True, timeout=support.LIMIT_S, check=False)
        self.assertEqual((process.returncode, complaint), (7, "complaint\n"))
        self.assertEqual(output.splitlines()[0], f"pid {process.pid}")
        self.assertEqual(output.splitlines()[1:], direct.stdout.splitlines()[1:])
        self.assertIn("arguments gc-pause --json --storage=http", output)

    def test_a_signal_that_ends_it_is_seen_by_the_caller(self):
        self.stand_in(self.bin, "#!/bin/sh\nkill -TERM $$\n")
        self.assertEqual(self.run_program(self.binary, "demo").returncode, -15)

    def test_help_is_the_programs_own(self):
        self.stand_in(self.bin)
        self.assertIn("arguments --help\n", self.run_program(self.binary, "demo", "--help").stdout)

    def test_wrong_usage_is_told_before_it_is_looked_for(self):
        done = self.run_program(self.binary, "demo", "--bogus")
        self.assertEqual(done.returncode, 2)
        self.assertIn("unknown option --bogus; see 'fenceguard demo --help'", done.stderr)

    def test_a_missing_program_is_named_by_its_package(self):
        elsewhere = pathlib.Path(self.folder, "elsewhere")
        self.stand_in(elsewhere)
        for arguments in (["demo"], ["demo", "--help"]):
            self.require_missing("fenceguard-demo", self.run_program(self.binary, *arguments, PATH=f"{elsewhere}:/usr/bin:/bin"))

    def test_it_may_be_in_libexec(self):
        self.stand_in(pathlib.Path(self.folder, "libexec", "fenceguard"))
        self.assertEqual(self.run_program(self.binary, "demo").returncode, 7)

    def test_a_symbolic_link_is_followed(self):
        self.stand_in(self.bin)
        link = pathlib.Path(self.folder, "link")
        link.symlink_to(self.binary)
        self.assertEqual(self.run_program(link, "demo").returncode, 7)

    @unittest.skipUnless(os.geteuid() == 0, "only root can give a program to another user")
    def test_a_privileged_binary_starts_no_other_program(self):
        self.stand_in(self.bin)
        os.chown(self.binary, 65534, 65534)
        os.chmod(self.binary, 0o6755)
        done = self.run_program(self.binary, "demo")
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("privileges", done.stderr)

    def test_a_missing_guard_is_named_by_its_package(self):
        demo = self.copy("fenceguard-demo")
        os.remove(self.binary)
        self.require_missing("fenceguard", self.run_program(demo, "--json", TMPDIR=self.folder))
        self.assertEqual([path.name for path in pathlib.Path(self.folder).iterdir()], ["bin"])

    def test_a_file_with_settings_of_other_commands_is_passed_over(self):
        self.copy("fenceguard-demo")
        self.write("all.ini", "listen = 127.0.0.1:1\nvia = bogus\n")
        self.write("wrong.ini", "listn = 127.0.0.1:1\n")
        self.assertIn("--via: direct or sidecar", self.run_program(self.binary, "demo", "--config", "all.ini").stderr)
        self.assertIn("unknown option 'listn'", self.run_program(self.binary, "demo", "--config", "wrong.ini").stderr)


if __name__ == "__main__":
    unittest.main()
