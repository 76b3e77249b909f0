"""What the clients of a scenario are led to: a guard behind a proxy on each side, and what is no guard."""

import contextlib
import signal

import support
from fault_proxy import Listener
from http_proxy import HttpProxy
from server_process import STARTS_MAX, Nowhere, free_ports
from upstream_server import Server as Upstream
from waiting import wait_until

SIDES = ("data", "control")
PAGE = b"<html><body>It works!</body></html>"


def serve_page(link):
    """A web server that says 200 to everything."""
    with link:
        while link.recv(65536):
            link.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s"
                         % (len(PAGE), PAGE))


def serve_banner(link):
    """What speaks first, and no HTTP. It stays until the client goes."""
    with link:
        link.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")
        while link.recv(65536):
            pass


class Guard:
    """'fenceguard serve' on ports and files that stay, and the places beside it."""

    def __init__(self, test, wish):
        self._test = test
        self._places = contextlib.ExitStack()
        test.addCleanup(self._places.close)
        self._arguments = ["--storage", "sqlite:guard.db", *wish.get("arguments", [])]
        self._admin = {}
        if wish.get("storage") == "http":
            self._upstream = self._places.enter_context(Upstream())
            self._arguments[1:2] = [self._upstream.url(), "--state", "sqlite:state.db", "--init", "--settled"]
        if "bearer" in wish:
            self._write_bearer(wish["bearer"])
            self._arguments += ["--control-token-file", "tokens"]
        self._start_on_free_ports()
        self.proxies = {side: self._places.enter_context(HttpProxy(side, self._port(side))) for side in SIDES}

    # -- where a client is led ------------------------------------------------------------------------------------

    def url(self, side, place):
        other = SIDES[1 - SIDES.index(side)]
        if place == "nowhere":
            return f"http://127.0.0.1:{self._places.enter_context(contextlib.closing(Nowhere())).port}"
        if place in ("html", "banner"):
            return self._places.enter_context(Listener(serve_page if place == "html" else serve_banner)).url
        return {"proxy": self.proxies[side].url, "direct": f"http://{getattr(self._server, side)}",
                "wrong-side": f"http://{getattr(self._server, other)}"}[place]

    def undescribed(self):
        return [sentence for proxy in self.proxies.values() for sentence in proxy.undescribed]

    def call(self, method, target, body=None):
        return self._server.call(method, target, self._admin, body)

    # -- faults ---------------------------------------------------------------------------------------------------

    def kill_server(self):
        self._server.process.send_signal(signal.SIGKILL)
        status = self._server.wait()
        self._await_closed()
        return lambda: status == -signal.SIGKILL

    def start_server(self):
        before = self._server.process.pid
        self._server = self._test.serve("--listen", self._server.data, *self._control(), *self._arguments,
                                        listen=False)
        return lambda: self._server.process.pid != before

    def restart_server(self):
        status = self._server.stop()
        self._await_closed()
        is_new = self.start_server()
        return lambda: status == 0 and is_new()

    def _await_closed(self):
        for proxy in self.proxies.values():
            proxy.wait_until_closed()

    def bearer(self, lines):
        """Every token that was valid before and is not now is refused when this returns."""
        self._write_bearer(lines)
        before = self._server.log().count("event=tokens_reloaded")
        self._server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self._server.log().count("event=tokens_reloaded") > before, what="new bearer tokens")

    def _write_bearer(self, lines):
        self._test.write_private("tokens", "".join(line + "\n" for line in lines))
        admin = next(line.split()[1] for line in lines if line.startswith("admin "))
        self._admin = {"Authorization": f"Bearer {admin}"}

    def reset_in_storage(self):
        self._upstream.set_default("reset")
        seen = len(self._upstream.events("seen"))
        return lambda: len(self._upstream.events("seen")) > seen

    # -- its start ------------------------------------------------------------------------------------------------

    def _control(self):
        return ["--control", self._server.control]

    def _port(self, side):
        return int(getattr(self._server, side).rpartition(":")[2])

    def _start_on_free_ports(self):
        """On ports that no client's connection is given, so that the next start finds them free."""
        for attempt in range(STARTS_MAX):
            data, control = (f"127.0.0.1:{port}" for port in free_ports(2))
            try:
                where = ["--listen", data, "--control", control]
                self._server = self._test.serve(*where, *self._arguments, listen=False)
                return
            except AssertionError as failure:
                if attempt == STARTS_MAX - 1 or "another process listens there already" not in str(failure):
                    raise
