"""Tests that need a network or mounts of their own: the whole test runs in namespaces, and whatever it started and
mounted is gone with it, also when it is killed.

Where the kernel refuses that, the test ends with a status that ctest shows as skipped, and a line 'SKIPPED: WHY', which
scripts/test.sh shows.
"""

import os
import subprocess
import sys

SKIPPED = 77
_INSIDE = "FENCEGUARD_TEST_NAMESPACE"
_NO_SUCH_PROGRAM = (126, 127)


def enter(kind, probe):
    """Returns in a process that has a namespace of this kind ('net', 'mount') to itself, where it is root, and one of
    processes, which end when it does.

    probe: a command of which the kernel allows as much as of the test itself; where it fails, the test is skipped.
    """
    if os.environ.get(_INSIDE) == kind:
        return
    words = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), f"--{kind}", "--pid", "--fork",
             "--kill-child", "--mount-proc"]
    tried = subprocess.run([*words, *probe], capture_output=True, text=True, check=False)
    if tried.returncode in _NO_SUCH_PROGRAM:
        sys.exit(tried.stderr)
    if tried.returncode != 0:
        name = os.path.basename(sys.argv[0])
        print(f"SKIPPED: {name}: this machine does not allow a {kind} namespace: {tried.stderr.strip()}", flush=True)
        sys.exit(SKIPPED)
    os.execvpe("unshare", [*words, sys.executable, "-B", *sys.argv], {**os.environ, _INSIDE: kind})
