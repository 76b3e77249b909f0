"""A machine that slept, for one program: /proc/uptime is a file of the test's in a mount namespace of its own."""

import os
import subprocess


def inside(test, uptime):
    """The words in front of a program's that make it so. Skips the test where the machine does not allow it."""
    root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    words = ["unshare", *root, "--mount", "sh", "-c", 'mount --bind "$0" /proc/uptime && exec "$@"', uptime]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        test.skipTest(f"this machine does not allow a mount namespace: {tried.stderr.strip()}")
    return words
