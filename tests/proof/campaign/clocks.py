"""Servers whose clocks are set: the time of day by libfaketime while they run, the monotonic one by a time namespace from a start
on. That of the clients, who write the histories, stays."""

import glob
import os
import shutil
import tempfile

LIBRARIES = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1")
DAY_S = 24 * 3600


def with_monotonic_clock(server_class):
    """Such servers with monotonic_ahead_s, which counts from the next start on."""

    class Server(server_class):
        monotonic_ahead_s = 0

        def words(self):
            if not self.monotonic_ahead_s:
                return super().words()
            ahead = str(self.monotonic_ahead_s)
            return ["unshare", "--time", "--monotonic", ahead, "--boottime", ahead, "--fork", "--kill-child", *super().words()]

    return Server


def with_time_of_day(server_class):
    """Such servers with set_time()."""

    class Server(server_class):
        def __init__(self, *arguments):
            self._times = tempfile.mkdtemp(prefix="fenceguard-clock-")
            os.chmod(self._times, 0o755)  # a server may run as another user
            self.set_time(0)
            super().__init__(*arguments)

        def set_time(self, ahead_s):
            """At once, so that the server never reads half of it."""
            path = os.path.join(self._times, "time")
            with open(path + ".new", "w", encoding="ascii") as file:
                file.write(f"{ahead_s:+d}\n")
            os.chmod(path + ".new", 0o644)
            os.replace(path + ".new", path)

        def process_options(self):
            options = super().process_options()
            found = [path for pattern in LIBRARIES for path in glob.glob(pattern)]
            if not found:
                raise AssertionError("libfaketime is not there: install faketime")
            # As in demo/clock_jump.cpp.
            clock = {"LD_PRELOAD": found[0] + " libc.so.6", "FAKETIME_TIMESTAMP_FILE": os.path.join(self._times, "time"),
                     "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
            return {**options, "env": {**options.get("env", os.environ), **clock}}

        def remove(self):
            super().remove()
            shutil.rmtree(self._times, ignore_errors=True)

    return Server
