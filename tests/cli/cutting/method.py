"""A fence method for tests: a command that notes its runs, waits while it is held, and ends with the status that it is
told. It uses nothing but files of its folder."""

import os

from waiting import wait_until

SCRIPT = """#!/bin/sh
echo "begun $FENCING_RESOURCE $FENCING_OLD_TOKEN $FENCING_NEW_TOKEN" >> {folder}/runs
env > {folder}/environment
ls -l /proc/$$/fd > {folder}/descriptors
while [ -e {folder}/hold ]; do sleep 0.02; done
read status < {folder}/status
echo "ended $FENCING_RESOURCE $FENCING_OLD_TOKEN $FENCING_NEW_TOKEN" >> {folder}/runs
echo "says $status"
exit $status
"""


def write_whole(path, text, mode=0o644):
    """Who reads the path meanwhile finds what was there before, and never a part."""
    with open(f"{path}.new", "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(f"{path}.new", mode)
    os.rename(f"{path}.new", path)


def make_script(path, text):
    write_whole(path, text, 0o755)
    return path


class Method:
    def __init__(self, folder, status=0):
        self.folder = folder
        os.mkdir(folder)
        self.path = make_script(os.path.join(folder, "method"), SCRIPT.format(folder=folder))
        self.word = f"command:{self.path}"
        self.end_with(status)

    def _file(self, name):
        return os.path.join(self.folder, name)

    def end_with(self, status):
        write_whole(self._file("status"), f"{status}\n")

    def hold(self):
        with open(self._file("hold"), "w", encoding="ascii"):
            pass

    def release(self):
        os.unlink(self._file("hold"))

    def read(self, name):
        try:
            with open(self._file(name), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def runs(self, what="begun"):
        """[(resource, old token, new token)] of those that have begun, or ended."""
        lines = [line.split(" ") for line in self.read("runs").splitlines()]
        return [(resource, int(old), int(new)) for word, resource, old, new in lines if word == what]

    def await_run(self, number):
        wait_until(lambda: len(self.runs()) >= number, what=f"run {number} of the method")
