"""Real MariaDB servers for tests: each in a temporary folder, on a free port, and gone afterwards.

A Server has a data folder of its own, root without a password, and a commit that is durable. A Session is a connection
that a test may leave waiting, so that it can interleave several. What a server left behind is ended and removed when the
test's process is over, even if that was killed. Nothing here sleeps for luck; a missing server is a failure.
"""

import atexit
import contextlib
import itertools
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import pymysql

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kit"))

from server_process import ServerProcess, program  # noqa: E402
from waiting import LIMIT_S, wait_until  # noqa: E402

SQL = pathlib.Path(__file__).resolve().parents[2] / "sql" / "mariadb"
MEMORY_MIN = 4 << 30  # free bytes, of which a server takes some hundred million
LOOK_S = 0.12


def statements():
    """What installs the fences in the database that is in use."""
    text = "".join(file.read_text(encoding="utf-8") for file in sorted(SQL.glob("00[1-9]*.sql")))
    return [statement for statement in text.split("\n//\n") if statement.strip()]


def server_user():
    """How subprocess runs a server, which refuses to run as root."""
    return {"user": "mysql", "group": "mysql", "extra_groups": []} if os.getuid() == 0 else {}


def temporary_folder(prefix):
    memory = "/dev/shm"
    is_roomy = os.path.isdir(memory) and shutil.disk_usage(memory).free >= MEMORY_MIN
    folder = tempfile.mkdtemp(prefix=prefix, dir=memory if is_roomy else None)
    if os.getuid() == 0:
        shutil.chown(folder, "mysql", "mysql")
    return folder


_template_lock = threading.Lock()


class Server(ServerProcess):
    """A mariadbd. Started by its constructor; a context manager that removes it. Port and folder stay the same over stop()
    or kill() and start(). settings: options by name."""

    _template = None

    def __init__(self, settings=None):
        self.settings = dict(settings or {})
        self._sessions = []
        self._names = itertools.count(1)
        super().__init__("mariadb")
        self.data = os.path.join(self.folder, "data")
        self.socket = os.path.join(self.folder, "socket")
        self._initialise()
        self.start_on_free_ports()

    def make_folder(self, prefix):
        return temporary_folder(prefix)

    def _initialise(self):
        """mariadb-install-db runs once in each process; its outcome is copied."""
        with _template_lock:
            if Server._template is None:
                folder = temporary_folder("fenceguard-mariadb-template-")
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
                done = subprocess.run(
                    [program("mariadb-install-db"), "--no-defaults", "--auth-root-authentication-method=normal",
                     "--skip-test-db", f"--datadir={folder}/data", f"--tmpdir={folder}"], stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/", check=False, **server_user())
                if done.returncode != 0:
                    raise AssertionError(f"mariadb-install-db failed: {done.stdout}")
                Server._template = folder
        subprocess.run(["cp", "-a", os.path.join(Server._template, "data"), self.data], check=True, cwd="/", **server_user())

    def words(self):
        settings = {"datadir": self.data, "socket": self.socket, "port": self.port, "bind-address": "127.0.0.1",
                    "pid-file": os.path.join(self.folder, "mariadb.pid"),
                    "tmpdir": self.folder,  # at its start a server removes what others have in the usual one
                    "innodb-buffer-pool-size": "64M",
                    "innodb-log-file-size": "16M", "max-connections": 400, "skip-name-resolve": None, **self.settings}
        return [program("mariadbd"), "--no-defaults",
                *(f"--{name}" if value is None else f"--{name}={value}" for name, value in settings.items())]

    def process_options(self):
        return server_user()

    def is_ready(self):
        if not os.path.exists(self.socket):
            return False
        with contextlib.suppress(pymysql.Error):
            self._connect().close()
            return True
        return False

    def stop(self):
        self._dismiss_sessions()
        super().stop()

    def restart(self):
        self.stop()
        self.start()

    def _dismiss_sessions(self):
        for session in list(self._sessions):
            session.close()

    def url(self, dbname="", user="root", rest=""):
        return f"mariadb://{user}@127.0.0.1:{self.port}/{dbname}{rest}"

    def _connect(self, dbname=None, user="root", **options):
        return pymysql.connect(unix_socket=self.socket, user=user, database=dbname, charset="utf8mb4", autocommit=None,
                               **options)

    def session(self, dbname=None, user="root", **options):
        return Session(self, dbname, user, **options)

    def run(self, sql, dbname=None, arguments=None):
        """What one statement says to a session of its own."""
        with self.session(dbname) as session:
            return session.run(sql, arguments)

    def install(self, dbname):
        with self.session(dbname) as session:
            for statement in statements():
                session.run(statement)

    def create_database(self, name=None, install=True):
        name = name or f"test_{next(self._names)}"
        self.run(f"create database {name} character set utf8mb4 collate utf8mb4_bin")
        if install:
            self.install(name)
        return name

    def is_waiting(self, session):
        """Whether it waits for a row's lock. InnoDB looks anew only where it was not asked for a tenth of a second."""
        time.sleep(LOOK_S)
        return bool(self.run("select 1 from information_schema.innodb_trx where trx_state = 'LOCK WAIT' "
                             f"and trx_mysql_thread_id = {session.id}"))

    def wait_until_waiting(self, session):
        wait_until(lambda: self.is_waiting(session), LIMIT_S, f"a wait for a lock, of {session.begun!r},")

    def wait_until_waiting_for_metadata(self, session):
        wait_until(lambda: self.run("select 1 from information_schema.processlist where state like 'Waiting for % lock' and id = "
                                    f"{session.id}"), LIMIT_S, f"a wait for a metadata lock, of {session.begun!r},")


MALFORMED_PACKET = 2027  # of the client libraries


class Session:
    """A connection. run() answers the rows of a statement (of several results, of the first), and raises pymysql.Error;
    begin_run() and wait() are its two halves. id is the server's."""

    def __init__(self, server, dbname=None, user="root", **options):
        self.server = server
        self.begun = None
        self._connection = server._connect(dbname, user, **options)
        self.id = self._connection.thread_id()
        server._sessions.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def run(self, sql, arguments=None):
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql, arguments)
                rows = cursor.fetchall()
                while cursor.nextset():
                    pass
                return rows
        except struct.error as error:
            raise pymysql.OperationalError(MALFORMED_PACKET, f"{error}: what came of it is not known") from error

    def begin_run(self, sql):
        """Sends it and does not wait."""
        assert self.begun is None, f"{self.begun!r} has not been waited for"
        self.begun = sql
        self._outcome = None

        def work():
            try:
                self._outcome = (self.run(sql), None)
            except Exception as error:
                self._outcome = (None, error)

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def is_over(self):
        return self._outcome is not None

    def wait(self, limit_s=LIMIT_S):
        self._thread.join(limit_s)
        if self._outcome is None:
            raise AssertionError(f"{self.begun!r} is not over after {limit_s} s")
        self.begun = None
        rows, error = self._outcome
        if error is not None:
            raise error
        return rows

    def close(self):
        if self in self.server._sessions:
            self.server._sessions.remove(self)
        with contextlib.suppress(Exception):
            # A thread may be reading.
            self._connection._sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(Exception):
            self._connection._force_close()
