"""with_server.py [--] COMMAND ARG...: runs a test program beside a PostgreSQL server of its own.

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

Exits with the program's status, or 128 and the number of the signal that ended it.
"""

import os
import socket
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kit"))

from postgres_server import SQL, Server, program  # noqa: E402


def obey(server, line):
    word, _, mode = line.strip().partition(" ")
    mode = mode or "fast"
    try:
        {"start": server.start, "kill": server.kill, "stop": lambda: server.stop(mode),
         "restart": lambda: server.restart(mode)}[word]()
        return "ok\n"
    except Exception as error:  # the program is told, whatever it was
        return f"failed: {error!r}\n"


def serve_control(server, listener):
    while True:
        link, _ = listener.accept()
        with link, link.makefile("rw", encoding="utf-8") as file:
            try:
                line = file.readline()
                if line:
                    file.write(obey(server, line))
            except OSError:
                pass


def main(arguments):
    if arguments[:1] == ["--"]:
        arguments = arguments[1:]
    if not arguments:
        sys.exit(__doc__.partition(":")[0])
    with Server() as server, socket.socket(socket.AF_UNIX) as listener:
        control = os.path.join(server.folder, "control")
        listener.bind(control)
        listener.listen()
        threading.Thread(target=serve_control, args=(server, listener), daemon=True).start()
        names = {"URL": server.url(), "SOCKET": server.folder, "PORT": str(server.port), "DATA": server.data,
                 "BIN": os.path.dirname(program("postgres")), "SQL": SQL, "CONTROL": control}
        status = subprocess.run(arguments, check=False, env={
            **os.environ, **{f"FENCEGUARD_POSTGRES_{name}": value for name, value in names.items()}}).returncode
        if status != 0:
            sys.stderr.write(f"the end of the server's log:\n{server.log()[-3000:]}\n")
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
