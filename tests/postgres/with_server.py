"""with_server.py [--twin] [--] COMMAND ARG...: runs a test program beside a PostgreSQL server of its own.

The server is in a temporary folder, on a free port, and gone afterwards. The program makes its own databases in it, and
finds it by its environment:

    FENCEGUARD_POSTGRES_URL      postgres://postgres@127.0.0.1:PORT/postgres
    FENCEGUARD_POSTGRES_SOCKET   folder of the server's Unix socket
    FENCEGUARD_POSTGRES_PORT     the same port, which is also part of the Unix socket's name
    FENCEGUARD_POSTGRES_DATA     folder of its data
    FENCEGUARD_POSTGRES_BIN      folder of PostgreSQL's programs
    FENCEGUARD_POSTGRES_SQL      folder of the SQL to install
    FENCEGUARD_POSTGRES_CONTROL  Unix stream socket that moves the server: send one line, receive one line, once per
                                 connection. 'start', 'stop MODE', 'restart MODE' (MODE: fast, immediate) and 'kill'
                                 (SIGKILL of the postmaster) answer 'ok', or 'failed: WHY', when it is done

--twin: the command runs once more beside a server with the extension in C, and each of its tests, for a change, in one of
the two forms (kit/parts).
Exits with the program's status, or 128 and the number of the signal that ended it.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kit"))

import parts  # noqa: E402
from postgres_server import FAST, SQL, Server, program  # noqa: E402
from server_process import run_beside  # noqa: E402


def main(arguments):
    is_twin = arguments[:1] == ["--twin"]
    arguments = arguments[is_twin:]
    if arguments[:1] == ["--"]:
        arguments = arguments[1:]
    if not arguments:
        sys.exit(__doc__.partition(":")[0])
    if is_twin:
        os.environ.update(parts.halved(os.path.basename(arguments[0]), 1 if FAST else 0))
    with Server() as server:
        names = {"URL": server.url(), "SOCKET": server.folder, "PORT": str(server.port), "DATA": server.data,
                 "BIN": os.path.dirname(program("postgres")), "SQL": SQL}
        moves = {"start": server.start, "kill": server.kill, "stop": server.stop, "restart": server.restart}
        return run_beside(server, arguments, "FENCEGUARD_POSTGRES_", names, moves)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
