"""A proxy in front of one side of a guard. It knows where a request begins and ends, and does faults to one of them.

Each connection of a client has one to the server; when the server closes its own, so does the proxy. Host is written
anew, because the control side takes its own name alone. Requests have a Content-Length or no body. What the guard
answers is held to docs/openapi.yaml.
"""

import collections
import re
import select
import socket
import threading

import api_description
import support
from fault_proxy import LOCAL, Listener
from waiting import wait_until

PAGE = b"<html><body>a page of the proxy's own</body></html>"


class Ended(Exception):
    """A connection ended in the middle, or where a message would have begun."""


class Messages:
    """Reads one message after the other from a socket."""

    def __init__(self, link):
        self.link = link
        self._received = b""

    def _receive(self):
        piece = self.link.recv(65536)
        if not piece:
            raise Ended
        self._received += piece

    def has_begun(self):
        return bool(self._received)

    def next(self, has_body=True):
        """The head, to its blank line, and the body."""
        while b"\r\n\r\n" not in self._received:
            self._receive()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
        if re.search(rb"\r\ntransfer-encoding:", head, re.IGNORECASE):
            raise AssertionError(f"a body without Content-Length: {head}")
        count = int(length.group(1)) if has_body and length else 0
        while len(self._received) < count:
            self._receive()
        body, self._received = self._received[:count], self._received[count:]
        return head + b"\r\n\r\n", body


class Fault:
    """What is done to the next request of a method, or (lasting) to all of them until clear()."""

    def __init__(self, kind, method, after_bytes=0, status=0):
        self.kind, self.method, self.after_bytes, self.status = kind, method, after_bytes, status
        self.happened = 0

    @property
    def lasts(self):
        return self.kind in ("answer", "freeze")

    def fits(self, method):
        return self.method in (None, method) and (self.lasts or not self.happened)


class HttpProxy(Listener):
    """In front of one side: undescribed are the sentences about answers that docs/openapi.yaml does not have."""

    def __init__(self, side, to_port):
        self.undescribed = []
        self._side = side
        self._to_port = to_port
        self._lock = threading.Lock()
        self._faults = []
        self._resumed = threading.Event()
        self._open = 0
        self._kept = 0
        self.counts = collections.Counter()
        super().__init__(self._connect)

    # -- faults ---------------------------------------------------------------------------------------------------

    def arm(self, kind, method=None, **details):
        fault = Fault(kind, method, **details)
        with self._lock:
            self._faults = [other for other in self._faults
                            if not (other.lasts and fault.lasts and other.method == method)] + [fault]
            self._resumed.clear()
        return fault

    def clear(self):
        """Lasting faults are over, and what was kept back is given up: its connection is closed."""
        with self._lock:
            self._faults = [fault for fault in self._faults if not fault.lasts]
        self._resumed.set()
        wait_until(lambda: self._kept == 0, what="an end of the connections that were kept")

    def wait_until_kept(self):
        wait_until(lambda: self._kept, what="a request or an answer that the proxy keeps")

    def wait_until_closed(self):
        """REQUIRES: the server has ended. Returns when no client has a connection any more that is not kept back."""
        wait_until(lambda: self._open == self._kept, what="an end of the connections of a server that has ended")

    # -- connections ----------------------------------------------------------------------------------------------

    def _connect(self, client):
        with self._lock:
            self._open += 1
        try:
            with client:
                self._carry(client)
        except (Ended, OSError):
            pass
        finally:
            with self._lock:
                self._open -= 1

    def _carry(self, client):
        requests, server = Messages(client), None
        try:
            while True:
                if not requests.has_begun() and server:
                    ready = select.select([client, server.link], [], [])[0]
                    if server.link in ready:
                        return
                head, body = requests.next()
                method = head.split(b" ", 1)[0].decode()
                fault = self._take(method)
                if fault and not self._passes_on(fault, client):
                    continue
                if server is None:
                    server = Messages(socket.create_connection((LOCAL, self._to_port)))
                head = re.sub(rb"(?i)\r\nhost: [^\r]*", b"\r\nHost: %s:%d" % (LOCAL.encode(), self._to_port), head)
                server.link.sendall(head + body)
                answer_head, answer_body = server.next(method != "HEAD")
                self._look_up(method, head.split(b" ", 2)[1].decode(), answer_head.decode(), answer_body)
                self._answer(client, answer_head + answer_body, fault)
        finally:
            if server:
                server.link.close()

    def _look_up(self, method, target, head, body):
        status, *fields = head.rstrip().split("\r\n")
        answer = support.Response(int(status.split(" ")[1]), (field.split(": ", 1) for field in fields), body)
        try:
            api_description.check(self._side, method, target, answer)
        except AssertionError as error:
            self.undescribed.append(str(error))

    def _take(self, method):
        with self._lock:
            self.counts[method] += 1
            fault = next((fault for fault in self._faults if fault.fits(method)), None)
            if fault:
                fault.happened += 1
            return fault

    def _passes_on(self, fault, client):
        """False: it was answered here. Raises Ended where the connection is to be closed."""
        if fault.kind == "answer":
            client.sendall(b"HTTP/1.1 %d Of The Proxy\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s"
                           % (fault.status, len(PAGE), PAGE))
            return False
        if fault.kind == "freeze":
            self._keep()
        if fault.kind in ("freeze", "cut-request"):
            raise Ended
        return True

    def _answer(self, client, answer, fault):
        if fault and fault.kind == "hold-answer":
            self._keep()
            raise Ended
        if fault and fault.kind == "cut-answer":
            client.sendall(answer[:fault.after_bytes])
            raise Ended
        client.sendall(answer)

    def _keep(self):
        with self._lock:
            self._kept += 1
        try:
            self._resumed.wait()
        finally:
            with self._lock:
                self._kept -= 1

    def close(self):
        self._resumed.set()
        super().close()
