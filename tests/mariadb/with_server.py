"""with_server.py [--] COMMAND ARG...: runs a test program beside a MariaDB server of its own.

The server is in a temporary folder, on a free port, and gone afterwards. The program makes its own databases in it, and
finds it by its environment:

    FENCEGUARD_MARIADB_PORT     of 127.0.0.1, for root without a password
    FENCEGUARD_MARIADB_SOCKET   path of its Unix socket
    FENCEGUARD_MARIADB_CONTROL  Unix stream socket that moves the server: send one line, receive one line, once per
                                connection. 'start', 'stop' and 'kill' (SIGKILL) answer 'ok', or 'failed: WHY'

Exits with the program's status, or 128 and the number of the signal that ended it.
"""

import os
import socket
import subprocess
import sys
import threading

from mariadb_server import Server


def serve_control(server, listener):
    while True:
        link, _ = listener.accept()
        with link, link.makefile("rw", encoding="utf-8") as file:
            try:
                {"start": server.start, "kill": server.kill, "stop": server.stop}[file.readline().strip()]()
                file.write("ok\n")
            except Exception as error:  # the program is told, whatever it was
                file.write(f"failed: {error!r}\n")


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
        names = {"PORT": str(server.port), "SOCKET": server.socket, "CONTROL": control}
        status = subprocess.run(arguments, check=False, env={
            **os.environ, **{f"FENCEGUARD_MARIADB_{name}": value for name, value in names.items()}}).returncode
        if status != 0:
            sys.stderr.write(f"the end of the server's log:\n{server.log()[-3000:]}\n")
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
