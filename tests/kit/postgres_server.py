"""Real PostgreSQL servers for tests: each in a temporary folder, on a free port, and gone afterwards.

A Server is a cluster of its own: the newest PostgreSQL that is installed, trusting every local connection, with fsync
on and room for prepared transactions. It lies in memory where there is room: what a killed server loses is what the
kernel did not have yet, and these tests kill servers, not kernels. A Session is a psql that stays open, so that a test
can interleave several. What a server left behind is ended and removed when the test's process is over, even if that
was killed.

Nothing here sleeps for luck: wait_until() waits for a condition, with a limit. A missing server is a failure.
"""

import atexit
import contextlib
import glob
import itertools
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse

from server_process import ServerProcess
from waiting import LIMIT_S, wait_until

NOTICE_S = 10  # for a backend to find that its postmaster has gone
MEMORY_MIN = 4 << 30  # free bytes, of which some servers take some hundred million

SQL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "sql", "postgres")


# Folder of programs beside which the extension in C is installed (postgres_tree.py), for all tests that run with it.
FAST = os.environ.get("FENCEGUARD_POSTGRES_FAST")


def program(name):
    """The path of one of PostgreSQL's programs, of the newest version that is installed."""
    folders = glob.glob("/usr/lib/postgresql/*/bin")
    folders.sort(key=lambda folder: float(folder.split("/")[-2]))
    for folder in [FAST] if FAST else reversed(folders):
        if os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    found = shutil.which(name)
    if not found:
        raise AssertionError(f"PostgreSQL's {name} is not installed")
    return found


def environment(extra=None):
    """The environment without PG*, which would lead psql elsewhere, and with extra."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    clean.update({"LC_ALL": "C.UTF-8"}, **(extra or {}))
    return clean


def server_user():
    """How subprocess runs a server, which refuses to run as root."""
    return {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}


def temporary_folder(prefix):
    memory = "/dev/shm"
    is_roomy = os.path.isdir(memory) and shutil.disk_usage(memory).free >= MEMORY_MIN
    return tempfile.mkdtemp(prefix=prefix, dir=memory if is_roomy else None)


def own(path):
    if os.getuid() == 0:
        shutil.chown(path, "postgres", "postgres")


def run_as_server(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env=environment(), cwd="/", check=False, **server_user())
    if done.returncode != 0:
        raise AssertionError(f"{command} failed: {done.stdout}")


class SqlError(Exception):
    """A statement failed: sqlstate, message, detail and hint as the server gave them, and all of psql's stderr."""

    def __init__(self, stderr):
        super().__init__(stderr)
        self.stderr = stderr
        first = re.search(r"^(?:psql:[^\n]*?: )?(ERROR|FATAL|PANIC):  (?:([0-9A-Z]{5}): )?(.*)$", stderr, re.M)
        self.severity, self.sqlstate, self.message = first.groups() if first else (None, None, stderr)
        self.detail = self._field("DETAIL")
        self.hint = self._field("HINT")

    def _field(self, name):
        found = re.search(rf"^{name}:  (.*)$", self.stderr, re.MULTILINE)
        return found.group(1) if found else None


class ConnectionLost(SqlError):
    """The connection ended before the answer was complete: what was sent last may or may not have taken effect."""


_template_lock = threading.RLock()


class Server(ServerProcess):
    """A PostgreSQL cluster. Started by its constructor; a context manager that removes it.

    folder holds everything and is the Unix socket's folder; data is the cluster; pid is the postmaster's.
    """

    crash = "QUIT"
    _template = None

    def __init__(self, settings=None, data_from=None):
        """settings: more of postgresql.conf by name. data_from: makes the cluster, given where; else initdb does."""
        self.settings = dict(settings or {})
        self._sessions = []
        self._ruler = None
        self._scripts = {}  # by database
        self._names = itertools.count(1)
        super().__init__("pg")
        self.data = os.path.join(self.folder, "data")
        (data_from or self._initialise)(self.data)
        self.start_on_free_ports()

    # -- the server's life ------------------------------------------------------------------------------------------

    def make_folder(self, prefix):
        folder = temporary_folder(prefix)
        own(folder)
        return folder

    def leftovers(self):
        return [self._template_folder()]

    @classmethod
    def _template_folder(cls):
        with _template_lock:
            if Server._template is None:
                Server._template = temporary_folder("fenceguard-initdb-")
                own(Server._template)
                atexit.register(shutil.rmtree, Server._template, ignore_errors=True)
            return Server._template

    @classmethod
    def _initialise(cls, data):
        """initdb runs once in each process; its outcome is copied."""
        with _template_lock:
            template = os.path.join(cls._template_folder(), "data")
            if not os.path.exists(template):
                run_as_server(program("initdb"), "-D", template, "-U", "postgres", "-A", "trust", "-E", "UTF8",
                              "--locale=C.UTF-8", "--no-sync", "--no-instructions")
        run_as_server("cp", "-a", template, data)

    def words(self):
        settings = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": self.folder,
                    "max_connections": 200, "max_prepared_transactions": 20, "fsync": "on", "shared_buffers": "32MB",
                    **self.settings}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [program("postgres"), "-D", self.data, *options]

    def process_options(self):
        return {"env": environment(), **server_user()}

    def is_ready(self):
        """It accepts connections; after a crash it has recovered."""
        try:
            with open(os.path.join(self.data, "postmaster.pid"), encoding="utf-8") as file:
                lines = file.read().split("\n")
            return lines[0] == str(self.process.pid) and len(lines) > 7 and lines[7].strip() == "ready"
        except FileNotFoundError:
            return False

    def stop(self, mode="fast", limit_s=LIMIT_S):
        """mode: 'smart', 'fast', or 'immediate', which is a crash: the next start recovers."""
        self._dismiss_sessions()
        self._end({"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode], limit_s)

    def kill(self):
        """SIGKILL to the postmaster; returns when its backends have gone, which they do by themselves when they notice.
        Those that have not after NOTICE_S are killed as well, as an operator does it."""
        self._dismiss_sessions()
        super().kill()
        try:
            wait_until(lambda: not self._backends(), NOTICE_S)
        except AssertionError:
            for pid in self._backends():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self._backends(), what="an end of the backends of a postmaster that was killed")

    def _backends(self):
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{name}/cwd") == self.data:
                    found.append(int(name))
        return found

    def restart(self, mode="fast"):
        self.stop(mode)
        self.start()

    def remove(self):
        for session in list(self._sessions):
            session.close()
        self.stop("immediate")
        super().remove()

    def standby(self, settings=None):
        """A Server that streams from this one, asynchronously, and answers reads. See promote()."""
        def copy(data):
            run_as_server(program("pg_basebackup"), "-d", self.conninfo("postgres"), "-D", data, "-R", "-c", "fast",
                          "--no-sync")
        return Server({**self.settings, **(settings or {})}, data_from=copy)

    def promote(self):
        """Makes a standby a primary; returns when it takes writes."""
        self.psql("select pg_promote(true, 30)")

    # -- its databases ----------------------------------------------------------------------------------------------

    def url(self, dbname="postgres", user="postgres"):
        quote = urllib.parse.quote
        return f"postgres://{quote(user, safe='')}@127.0.0.1:{self.port}/{quote(dbname, safe='')}"

    def conninfo(self, dbname="postgres", user="postgres"):
        """The same, for psql, through the Unix socket."""
        return f"postgres:///{urllib.parse.quote(dbname, safe='')}?" + urllib.parse.urlencode(
            {"host": self.folder, "port": self.port, "user": user}, quote_via=urllib.parse.quote)

    def psql(self, sql, dbname="postgres", user="postgres", variables=None, arguments=(), env=None, limit_s=LIMIT_S):
        """What psql -XqtA says to a script, without the last line feed. Raises SqlError at the first failure."""
        words = [word for item in (variables or {}).items() for word in ("-v", "=".join(item))]
        done = subprocess.run([program("psql"), "-XqtA", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", *words,
                               *arguments, self.conninfo(dbname, user)],
                              input=sql, capture_output=True, text=True, env=environment(env), timeout=limit_s,
                              check=False)
        if done.returncode != 0:
            raise (ConnectionLost if done.returncode == 2 else SqlError)(done.stderr)
        return done.stdout.rstrip("\n")

    def script(self, sql, dbname="postgres"):
        """As psql(), but in one session for all scripts of the superuser in a database, which forgets everything between
        them: a psql and a backend for each cost more than most scripts do. ALTER DATABASE and ALTER ROLE do not reach it."""
        session = self._scripts.get(dbname)
        if session is None or not session.is_open():
            session = self._scripts[dbname] = self.session(dbname)
        try:
            answer = session.run(f"\\set ON_ERROR_STOP on\n{sql}\n;rollback;discard all")
        except SqlError:
            self._scripts.pop(dbname).close()
            raise
        return answer

    def create_database(self, name=None, owner="postgres", install=False):
        """Answers its name. install: with the schema fenceguard."""
        name = name or f"test_{next(self._names)}"
        self.psql(f"create database {identifier(name)} owner {identifier(owner)}")
        if install:
            self.install(name)
        return name

    def install(self, dbname, user="postgres", plain=not FAST, before=""):
        """Installs sql/postgres/ as a user does, in one transaction, or the extension. before: SQL in the same transaction."""
        if not plain and user == "postgres":
            self.psql("set client_min_messages = warning; create extension fenceguard", dbname)
            return
        files = sorted(glob.glob(os.path.join(SQL, "0*.sql")))
        self.psql("", dbname, user, arguments=["-1", "-c", before, *(word for file in files for word in ("-f", file))])

    def session(self, dbname="postgres", user="postgres", env=None):
        return Session(self, dbname, user, env)

    def ruler(self):
        """A session of the superuser that looks at the others."""
        if self._ruler is None or not self._ruler.is_open():
            self._ruler = self.session()
        return self._ruler

    def _dismiss_sessions(self):
        if self._ruler is not None:
            self._ruler.close()
            self._ruler = None
        for session in self._scripts.values():
            session.close()
        self._scripts.clear()

    @contextlib.contextmanager
    def cancelled_standby_waits(self):
        """The server waits for a standby which is not there, and the wait of each COMMIT is cancelled."""
        is_over = threading.Event()

        def cancel():
            while not is_over.wait(0.05):
                self.psql("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'")

        def await_standby(name):
            self.psql(f"alter system set synchronous_standby_names = '{name}'")
            self.psql("select pg_reload_conf()")
            wait_until(lambda: self.psql("show synchronous_standby_names") == name, what="the setting")
            self.psql("checkpoint")  # until its checkpointer has read it as well, no commit waits

        canceller = threading.Thread(target=cancel)
        await_standby("nobody")
        canceller.start()
        try:
            yield
        finally:
            is_over.set()
            canceller.join()
            await_standby("")

    def wait_until_waiting(self, session, limit_s=LIMIT_S):
        """Returns when what the session has begun waits for a lock."""
        wait_until(lambda: self.is_waiting(session), limit_s, f"a wait for a lock, of {session.begun!r},")

    def is_waiting(self, session):
        return self.ruler().run("select count(*) from pg_stat_activity where wait_event_type = 'Lock' "
                                f"and state = 'active' and pid = {session.pid}") == "1"

    def is_connected(self, pid):
        return self.ruler().run(f"select count(*) from pg_stat_activity where pid = {pid}") == "1"


class Session:
    """A psql that stays open. pid is its backend's.

    run() answers what a statement (or several) says, as psql -tA prints it, and raises SqlError if any failed, or
    ConnectionLost. begin_run() and wait() are its two halves. notices holds stderr of what was run last.
    """

    def __init__(self, server, dbname="postgres", user="postgres", env=None):
        self.server = server
        self.begun = None
        self.notices = ""
        self._marks = itertools.count(1)
        self._received = ""
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen([program("psql"), "-XqtA", "-v", "VERBOSITY=verbose",
                                          server.conninfo(dbname, user)], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=self._errors, env=environment(env))
        server._sessions.append(self)
        try:
            self.pid = int(self.run("select pg_backend_pid()"))
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def run(self, sql, limit_s=LIMIT_S):
        self.begin_run(sql)
        return self.wait(limit_s)

    def begin_run(self, sql):
        """Sends it and does not wait. REQUIRES: what was begun before has been waited for."""
        assert self.begun is None, f"{self.begun!r} has not been waited for"
        self.begun = sql
        self._mark = f"--{next(self._marks)}--end-- failed: "
        self._errors_before = self._errors.seek(0, os.SEEK_END)
        try:
            self._process.stdin.write(f"\\set ERROR false\n{sql}\n;\n\\echo '{self._mark}':ERROR\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # wait() tells

    def is_over(self):
        """Whether wait() would answer at once."""
        return self._receive(0)

    def wait(self, limit_s=LIMIT_S):
        deadline = time.monotonic() + limit_s
        while not self._receive(max(0, deadline - time.monotonic())):
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.begun!r} was not over within {limit_s} s")
        self.begun = None
        self._errors.seek(self._errors_before)
        self.notices = self._errors.read()
        answer, mark, has_failed = self._received.partition(self._mark)
        self._received = ""
        # psql may go on for a while after its connection was lost, of which libpq, not the server, tells.
        has_error = re.search(r"^ERROR:  ", self.notices, re.MULTILINE)
        has_stopped = not mark and has_error and self._process.wait(LIMIT_S) == 3  # ON_ERROR_STOP
        if not (mark or has_stopped) or re.search(r"^(FATAL|PANIC):  |^server closed the connection|^could not (send|receive) ",
                                 self.notices, re.MULTILINE):
            raise ConnectionLost(self.notices)
        if has_error:
            raise SqlError(self.notices)
        if has_failed != "false\n":
            raise ConnectionLost(self.notices)
        return answer.rstrip("\n")

    def _receive(self, limit_s):
        """Whether the answer is complete, or never will be."""
        if self._is_answered():
            return True
        if not select.select([self._process.stdout], [], [], limit_s)[0]:
            return False
        data = os.read(self._process.stdout.fileno(), 65536)
        self._received += data.decode(errors="replace")
        return not data or self._is_answered()

    def _is_answered(self):
        return self._received.endswith("\n") and self._mark in self._received

    def is_open(self):
        return self._process.poll() is None

    def kill(self):
        """Ends psql without a farewell to the server."""
        self._process.kill()
        self.close()

    def close(self):
        if self._process.stdin.closed:
            return
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(0.2 if self.begun else LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()
        self.server._sessions.remove(self)


def identifier(name):
    return '"' + name.replace('"', '""') + '"'


def literal(text):
    """REQUIRES: standard_conforming_strings, which is the default."""
    return "null" if text is None else "'" + str(text).replace("'", "''") + "'"


def session_claims_option(setting):
    """The setting fenceguard.session_claims as libpq wants it in options and PGOPTIONS."""
    return "-c fenceguard.session_claims=" + setting.replace("\\", "\\\\").replace(" ", "\\ ")
