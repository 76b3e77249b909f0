"""with_server.py [--] COMMAND ARG...: runs a test program beside a MariaDB server of its own.

The server is in a temporary folder, on a free port, and gone afterwards. The program makes its own databases in it, and
finds it by its environment:

    FENCEGUARD_MARIADB_PORT     of 127.0.0.1, for root without a password
    FENCEGUARD_MARIADB_SOCKET   path of its Unix socket
    FENCEGUARD_MARIADB_CONTROL  Unix stream socket that moves the server: send one line, receive one line, once per
                                connection. 'start', 'stop' and 'kill' (SIGKILL) answer 'ok', or 'failed: WHY'

Exits with the program's status, or 128 and the number of the signal that ended it.
"""

import sys

from mariadb_server import Server
from server_process import run_beside


def main(arguments):
    if arguments[:1] == ["--"]:
        arguments = arguments[1:]
    if not arguments:
        sys.exit(__doc__.partition(":")[0])
    with Server() as server:
        moves = {"start": server.start, "kill": server.kill, "stop": server.stop}
        return run_beside(server, arguments, "FENCEGUARD_MARIADB_", {"PORT": str(server.port), "SOCKET": server.socket}, moves)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
