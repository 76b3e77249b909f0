"""A program as people write it, in a process of its own, which a test starts when it likes: its driver keeps a connection to a
sidecar and opens the next one by itself, unnoticed. It knows nothing of leases.

Here: Program, what a test drives it with, and AccountTests. As a process: 'held_program.py redis|postgres ADDRESS' reads one line each from its
stdin, does that, and prints one line.
"""

import os
import subprocess
import sys

TABLE = "accounts"


def endpoint(address):
    """For redis-py."""
    if address.startswith("unix:"):
        return {"unix_socket_path": address[len("unix:"):]}
    host, _, port = address.rpartition(":")
    return {"host": host, "port": int(port)}


class RedisAccount:
    """redis-py, whose pool opens a connection that has ended anew, before a command."""

    def __init__(self, address):
        import redis  # pylint: disable=import-outside-toplevel
        self._redis = redis.Redis(**endpoint(address))

    def read(self):
        return int(self._redis.get("{accounts/1}:balance"))

    def write(self, value):
        return self._redis.set("{accounts/1}:balance", value)

    def begin(self, *_):
        return self._redis.execute_command("FENCE.BEGIN").decode()


class PostgresAccount:
    """SQLAlchemy with pool_pre_ping, which opens a connection that has ended anew, before a transaction."""

    def __init__(self, url):
        self._url = url
        self._engine = self._make()

    def _make(self, **options):
        import sqlalchemy  # pylint: disable=import-outside-toplevel
        return sqlalchemy.create_engine(self._url, pool_pre_ping=True, connect_args=options)

    def read(self):
        with self._engine.begin() as transaction:
            return transaction.exec_driver_sql(f"select balance from {TABLE}").scalar()

    def write(self, value):
        with self._engine.begin() as transaction:
            transaction.exec_driver_sql(f"update {TABLE} set balance = {int(value)}")

    def begin(self, token):
        self._engine = self._make(options=f"-c fenceguard.begin={token}")


class Program:
    """One that runs; ends with the test."""

    def __init__(self, case, kind, address):
        self.process = subprocess.Popen([sys.executable, "-B", os.path.abspath(__file__), kind, address],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        case.addCleanup(self.end)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def ask(self, *words):
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")


class AccountTests:
    """What tests of such programs share; a test case beside it has await_held(), program() and balance(), which is 100."""

    WRITTEN = "True"  # what the driver answers

    def add_30(self, sidecar):
        """Another program, which comes and goes."""
        other = self.program(sidecar)
        self.assertEqual(other.ask("write", int(other.ask("read")) + 30), self.WRITTEN)
        other.end()

    def start_anew(self, serve, serve_other, refusal):
        """serve() starts a sidecar, each time at the same addresses: what read behind the first may not write behind the
        second, which is returned. serve_other() starts one elsewhere, which holds in between."""
        first = serve()
        self.await_held(first)
        account = self.program(first)
        self.assertEqual(account.ask("read"), "100")
        self.assertEqual(first.stop(), 0)
        second = serve_other()
        self.await_held(second)
        self.add_30(second)
        self.assertEqual(second.stop(), 0)
        again = serve()
        self.await_held(again)
        for words in (("write", 150), ("forked", "write", 150)):
            self.assertRegex(account.ask(*words), refusal)
        self.add_30(again)
        self.assertEqual(self.balance(), 160)
        return again


def answer(account, words):
    try:
        return str(getattr(account, words[0])(*words[1:]))
    except Exception as error:  # pylint: disable=broad-except
        return f"failed: {' '.join(str(error).split())}"


def answer_in_child(make, words):
    """In a process that was forked, and so has all that was read before."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, answer(make(), words).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def main():
    kind, address = sys.argv[1:]

    def make():
        return {"redis": RedisAccount, "postgres": PostgresAccount}[kind](address)

    account = make()
    for line in sys.stdin:
        words = line.split()
        said = answer_in_child(make, words[1:]) if words[0] == "forked" else answer(account, words)
        print(said, flush=True)


if __name__ == "__main__":
    main()
