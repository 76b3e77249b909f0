"""What tests put where a server would be: a listener that calls a function, and a proxy that breaks connections."""

import socket
import threading

LOCAL = "127.0.0.1"


class Listener:
    """Gives every connection to serve(link), on a thread of its own. A context manager that closes all of them."""

    def __init__(self, serve, host=LOCAL):
        self._serve = serve
        self._links = []
        self._listener = socket.create_server((host, 0))
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

    change(connection, to_server, piece) answers what is passed on in its place, or None: then the connection is cut; or a
    list of such, which are passed on one by one. connection counts from 0. to_port may be set anew, for further
    connections. freeze() keeps all connections and passes nothing on any more.
    """

    def __init__(self, to_port, change=lambda connection, to_server, piece: piece, host=LOCAL):
        self.to_port = to_port
        self._change = change
        self._is_frozen = threading.Event()
        self._clients = {}
        self._over = []  # connections of which nothing more is passed on to the server
        self._numbers = iter(range(1 << 30))
        super().__init__(self._connect, host)

    def freeze(self):
        self._is_frozen.set()

    def leave(self, connection):
        """Ends it towards its client alone: what came from there is still passed on."""
        self._clients[connection].shutdown(socket.SHUT_RDWR)

    def carried(self, connection):
        """Whether all that came for the server on it has been passed on, and its end."""
        return connection in self._over

    def _connect(self, client):
        number = next(self._numbers)
        self._clients[number] = client
        try:
            server = socket.create_connection((LOCAL, self.to_port))
        except OSError:
            client.close()  # as if it had refused
            raise
        for link in (client, server):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # parts stay apart
        self._links.append(server)
        threading.Thread(target=self._carry, args=(number, server, client, False), daemon=True).start()
        self._carry(number, client, server, True)

    def _carry(self, number, source, target, to_server):
        try:
            while piece := source.recv(65536):
                if self._is_frozen.is_set():
                    return
                passed = self._change(number, to_server, piece)
                parts = passed if isinstance(passed, list) else [passed]
                for part in parts[:parts.index(None) if None in parts else None]:
                    target.sendall(part)
                if None in parts:
                    break
        except OSError:
            pass
        for link in (source, target):  # also where one of them was reset
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        if to_server:
            self._over.append(number)


class CuttingProxy(FaultProxy):
    """Passes so many bytes on in one direction, over all connections together, and then cuts the connection on which
    that number was reached. arm() counts from there."""

    def __init__(self, to_port):
        self._lock = threading.Lock()
        self._left = None
        self._direction = None
        self._ended = set()  # the connections of which one direction has ended
        self.cuts = 0
        self.over = []  # the connections that ended in both directions
        super().__init__(to_port)

    def arm(self, to_server, count):
        with self._lock:
            self._direction, self._left = to_server, count

    def disarm(self):
        """True if nothing was cut."""
        with self._lock:
            was_left, self._left = self._left, None
            return was_left is not None

    def _share(self, _number, to_server, piece):
        with self._lock:
            if self._left is None or to_server != self._direction:
                return piece, False
            part = piece[:self._left]
            self._left -= len(part)
            if self._left > 0:
                return part, False
            self._left = None
            self.cuts += 1
            return part, True

    def cut_all(self):
        with self._lock:
            for link in self._links:
                self._end(link)

    def _end(self, link):
        try:
            link.shutdown(2)
        except OSError:
            pass

    def _carry(self, number, source, target, to_server):
        try:
            while piece := source.recv(65536):
                part, is_cut = self._share(number, to_server, piece)
                target.sendall(part)
                if is_cut:
                    break
        except OSError:
            pass
        with self._lock:
            is_over = number in self._ended
            self._ended ^= {number}
            if is_over:
                self.over.append(number)
            for link in (source, target):
                self._end(link)
                if is_over:
                    link.close()
                    self._links.remove(link)
