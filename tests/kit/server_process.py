"""A real server as a child process of a test: in a temporary folder, and gone afterwards.

What a server left behind is ended and removed when the test's process is over, even if that was killed. Nothing here
sleeps for luck: wait_until() waits for a condition, with a limit. A missing program is a failure.
"""

import atexit
import collections
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

from waiting import LIMIT_S, wait_until


def program(name):
    found = shutil.which(name)
    if not found:
        raise AssertionError(f"{name} is not installed")
    return found


PORT_MIN = 10_000
PAGE_PORTS = (7_500, PORT_MIN)  # of nobody who can take another where one is taken
CLAIMS_MAX = 100  # of a process, and the newest: of older ports it is known whether they are in use
STARTS_MAX = 5
IN_USE = "address already in use"


def _port_of_a_server():
    """One that no connection to elsewhere is given; 0, which means any, where there is no such range."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as limits:
        first_of_clients = int(limits.read().split()[0])
    return random.SystemRandom().randrange(PORT_MIN, first_of_clients) if first_of_clients >= 2 * PORT_MIN else 0


_claims = collections.deque(maxlen=CLAIMS_MAX)


def _claim(port):
    """Keeps other tests from taking it before it is in use, and while who has it is away. Raises OSError where they have it."""
    claim = socket.socket(socket.AF_UNIX)
    claim.bind(f"\0fenceguard-port-{port}")
    _claims.append(claim)


def _bind(probe, among):
    for attempt in range(100):
        try:
            port = random.SystemRandom().randrange(*among) if among else _port_of_a_server()
            if port:
                _claim(port)
            probe.bind(("127.0.0.1", port))
            return
        except OSError:
            if attempt == 99:
                raise


def free_ports(count, among=None):
    """Free ports of 127.0.0.1, all different, of a range if one is given. A server that went away finds its own free again."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            _bind(probe, among)
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _start_on_free_ports(start, servers):
    for attempt in range(STARTS_MAX):
        try:
            return start()
        except AssertionError:
            if attempt == STARTS_MAX - 1 or not any(IN_USE in server.log().lower() for server in servers()):
                raise


class Nowhere:
    """Where no server is, and none can come: the port is taken, and nobody listens on it. To be closed."""

    def __init__(self):
        self._probe = socket.socket()
        self._probe.bind(("127.0.0.1", 0))
        self.port = self._probe.getsockname()[1]

    def close(self):
        self._probe.close()


class ServerProcess:
    """One server; a context manager that removes it. folder holds everything and stays over stop() or kill() and
    start().

    A class of a product says what is started (words(), process_options()) and when it is ready (is_ready()); and, where
    that is not as here, which ports it takes, where its folder is, what else is removed with it, and which signal ends
    it at once.
    """

    crash = "KILL"

    def __init__(self, kind):
        self.kind = kind
        self.folder = self.make_folder(f"fenceguard-{kind}-")
        self.log_path = os.path.join(self.folder, "log")
        self.process = None
        self._is_paused = False
        self._heir = self._watch()
        atexit.register(self.remove)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    def words(self):
        raise NotImplementedError

    def process_options(self):
        """Of the process: its environment, its user."""
        return {}

    def is_ready(self):
        raise NotImplementedError

    def make_folder(self, prefix):
        return tempfile.mkdtemp(prefix=prefix)

    def leftovers(self):
        """Folders beside its own that are removed should our process be killed."""
        return []

    def _watch(self):
        """A process that ends the server and removes the folder should ours be killed: our end of its pipe closes."""
        script = (f'read -r line; [ -n "$line" ] && exit; kill -{self.crash} "$(cat "$1/pid")" 2>/dev/null; '
                  'sleep 1; rm -rf "$@"')
        return subprocess.Popen(["sh", "-c", script, "sh", self.folder, *self.leftovers()], stdin=subprocess.PIPE,
                                cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def launch(self):
        """Starts it, and does not wait."""
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.words(), cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            **self.process_options())
        with open(os.path.join(self.folder, "pid"), "w", encoding="ascii") as file:
            file.write(str(self.process.pid))

    def await_ready(self, limit_s=LIMIT_S):
        try:
            wait_until(lambda: self.is_ready() or self.process.poll() is not None, limit_s, f"a start of {self.kind}")
        except AssertionError:
            self.kill()
            raise
        if self.process.poll() is not None:
            raise AssertionError(f"{self.kind} did not start: {self.log()[-2000:]}")

    def start(self, limit_s=LIMIT_S):
        """Starts it, and waits until it answers what it is asked."""
        self.launch()
        self.await_ready(limit_s)

    def choose_ports(self):
        """Takes free ports, and writes what depends on them."""
        self.port = free_ports(1)[0]

    def start_on_free_ports(self):
        """Starts it; again where another process was quicker to listen there. Removes what did not start."""
        def start():
            self.choose_ports()
            self.start()

        try:
            _start_on_free_ports(start, lambda: [self])
        except BaseException:
            self.remove()
            raise

    @property
    def pid(self):
        return self.process.pid

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def _end(self, number, limit_s=LIMIT_S):
        if self.is_running():
            self.process.send_signal(number)
            if self._is_paused:
                self.resume()
            self.process.wait(limit_s)

    def stop(self):
        """SIGTERM."""
        self._end(signal.SIGTERM)

    def kill(self):
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def pause(self):
        """SIGSTOP; returns when it has stopped."""
        self.process.send_signal(signal.SIGSTOP)
        self._is_paused = True
        wait_until(self._has_stopped, what=f"a stop of {self.kind}")

    def _has_stopped(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "T"

    def resume(self):
        """SIGCONT."""
        self._is_paused = False
        self.process.send_signal(signal.SIGCONT)

    def log(self):
        try:
            with open(self.log_path, encoding="utf-8", errors="replace") as log:
                return log.read()
        except FileNotFoundError:
            return ""

    def remove(self):
        """Ends it and removes its folder. May be called twice."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._heir.poll() is None:
            self._heir.communicate(b"done\n")
        atexit.unregister(self.remove)


class Members:
    """Servers that are one service: self.members, in which a constructor puts them. A context manager that removes them."""

    def __init__(self, scheme):
        self.scheme = scheme
        self.members = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    def url(self, rest=""):
        return f"{self.scheme}://" + ",".join(f"127.0.0.1:{member.port}" for member in self.members) + rest

    def start_on_free_ports(self, start):
        """start() makes the members on ports that it takes; again where another process was quicker to listen there."""
        def start_anew():
            self.remove()
            self.members.clear()
            start()

        try:
            _start_on_free_ports(start_anew, lambda: self.members)
        except BaseException:
            self.remove()
            raise

    def leader(self):
        return wait_until(lambda: next((member for member in self.members if member.is_leader()), None), what="a leader")

    def remove(self):
        for member in self.members:
            member.remove()


def _serve_control(listener, moves):
    while True:
        link, _ = listener.accept()
        with link, link.makefile("rw", encoding="utf-8") as file, contextlib.suppress(OSError):
            line = file.readline()
            if not line:
                continue
            try:
                word, *mode = line.split()
                moves[word](*mode)
                file.write("ok\n")
            except Exception as error:  # the program is told, whatever it was
                file.write(f"failed: {error!r}\n")


def run_beside(server, arguments, prefix, names, moves):
    """Runs a program beside the server; its status, or 128 and the number of the signal that ended it. It finds names with the
    prefix in its environment, and CONTROL: a Unix stream socket to which it sends one line, a word of moves and its
    argument, once per connection, and receives 'ok' or 'failed: WHY' when it is done."""
    with socket.socket(socket.AF_UNIX) as listener:
        control = os.path.join(server.folder, "control")
        listener.bind(control)
        listener.listen()
        threading.Thread(target=_serve_control, args=(listener, moves), daemon=True).start()
        environment = {f"{prefix}{name}": value for name, value in {**names, "CONTROL": control}.items()}
        status = subprocess.run(arguments, check=False, env={**os.environ, **environment}).returncode
    if status != 0:
        sys.stderr.write(f"the end of the server's log:\n{server.log()[-3000:]}\n")
    return status if status >= 0 else 128 - status
