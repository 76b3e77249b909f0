"""What tests put where a server would be: a listener that calls a function, and a proxy that breaks connections."""

import socket
import threading

LOCAL = "127.0.0.1"


class Listener:
    """Gives every connection to serve(link), on a thread of its own. A context manager that closes all of them."""

    def __init__(self, serve):
        self._serve = serve
        self._links = []
        self._listener = socket.create_server((LOCAL, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def url(self):
        return f"http://{LOCAL}:{self.port}"

    def _accept(self):
        while True:
            try:
                link = self._listener.accept()[0]
            except OSError:
                return
            self._links.append(link)
            threading.Thread(target=self._run, args=(link,), daemon=True).start()

    def _run(self, link):
        try:
            self._serve(link)
        except OSError:
            pass

    def close(self):
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()
        for link in self._links:
            link.close()


class FaultProxy(Listener):
    """Stands between clients and a port of this machine.

    change(connection, to_server, piece) answers what is passed on in its place, or None: then the connection is cut.
    connection counts from 0. freeze() keeps all connections and passes nothing on any more.
    """

    def __init__(self, to_port, change=lambda connection, to_server, piece: piece):
        self._to_port = to_port
        self._change = change
        self._is_frozen = threading.Event()
        self._numbers = iter(range(1 << 30))
        super().__init__(self._connect)

    def freeze(self):
        self._is_frozen.set()

    def _connect(self, client):
        number = next(self._numbers)
        server = socket.create_connection((LOCAL, self._to_port))
        self._links.append(server)
        threading.Thread(target=self._carry, args=(number, server, client, False), daemon=True).start()
        self._carry(number, client, server, True)

    def _carry(self, number, source, target, to_server):
        try:
            while piece := source.recv(65536):
                if self._is_frozen.is_set():
                    return
                passed = self._change(number, to_server, piece)
                if passed is None:
                    break
                target.sendall(passed)
            for link in (source, target):
                link.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
