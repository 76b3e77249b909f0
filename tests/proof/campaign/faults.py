"""What happens to a cycle meanwhile. Each function is a scenario of its own: it runs beside the clients, waits for some of their
operations to be done, and says in cycle.injected what it did. Everything is whole again when it returns. around: a context
in which the cycle runs."""

import contextlib
import json
import os
import shutil
import signal
import threading
import time

from clocks import DAY_S
from cycle import Forgetting
from fault_proxy import FaultProxy
from network import Network
from postgres_server import run_as_server
from served import Guard
from storages import run


def pauses(cycle):
    """Nothing else than what happens in every cycle: clients stop between read and write, for longer than a lease lives."""


def client_killed(cycle):
    for _ in range(3):
        cycle.await_progress(0.05, 0.5)
        victim = cycle.chooser.choice([client for client in cycle.clients if client.process.poll() is None])
        victim.kill()
        cycle.injected["clients killed"] += 1
        cycle.start_client()


def server_stopped(cycle):
    cycle.await_progress(0.1, 0.4)
    pids = cycle.storage.processes()
    for pid in pids:
        send(pid, signal.SIGSTOP)
    try:
        time.sleep(2 * cycle.storage.ttl_s)
    finally:
        for pid in pids:
            send(pid, signal.SIGCONT)
    cycle.injected["server stops"] += 1


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # a backend that has ended


def server_killed(cycle):
    cycle.await_progress(0.1, 0.4)
    cycle.storage.server.kill()
    cycle.storage.server.start()
    cycle.injected["server kills"] += 1


def guard_killed(cycle):
    for _ in range(2):
        cycle.await_progress(0.1, 0.5)
        cycle.storage.guard.kill()
        cycle.storage.guard.start()
        cycle.injected["guard kills"] += 1


def guard_stopped(cycle):
    cycle.await_progress(0.1, 0.4)
    cycle.storage.guard.pause()
    try:
        time.sleep(2 * cycle.storage.ttl_s)
    finally:
        cycle.storage.guard.resume()
    cycle.injected["guard stops"] += 1


def flushed(cycle):
    """FLUSHALL: nobody writes until the namespace is initialised again, and then nobody who was there before."""
    cycle.await_progress(0.2, 0.5)
    storage = cycle.storage
    began = time.monotonic_ns()
    storage.server.cli("FLUSHALL")
    time.sleep(storage.ttl_s)
    if any(cycle.log().values()):
        raise AssertionError(f"{cycle.name}: a write took effect in a namespace that was not initialised")
    floor = json.loads(run("fence", "init", "--storage", storage.url, "--json"))["floor"]
    cycle.forgetting = Forgetting(began, time.monotonic_ns(), floor, {})
    cycle.injected["flushes"] += 1


def restored(cycle):
    """An old backup is restored, as docs/guarantees.md says: the source is raised, and the floor."""
    cycle.await_progress(0.05, 0.15)
    storage = cycle.storage
    server, backup = storage.server, storage.server.data + "-backup"
    server.stop()
    run_as_server("cp", "-a", server.data, backup)
    server.start()
    cycle.await_progress(0.3, 0.5)
    cycle.is_closed = True
    began = time.monotonic_ns()
    server.stop("immediate")
    shutil.rmtree(server.data)
    os.rename(backup, server.data)
    server.start()
    survivors = cycle.log()
    highest = max(int(line.get("token", 0)) for line in cycle.operations())
    run("lease", "raise", "--source", storage.source, "--resource", cycle.resources[0], "--token", str(highest))
    floor = json.loads(run("fence", "init", "--storage", storage.url, "--json"))["floor"]
    cycle.forgetting = Forgetting(began, time.monotonic_ns(), floor, survivors)
    cycle.is_closed = False
    cycle.injected["restores"] += 1


@contextlib.contextmanager
def behind_gate(cycle):
    """No client reaches the server while cycle.is_closed."""
    with FaultProxy(cycle.storage.server.port, lambda *piece: None if cycle.is_closed else piece[-1]) as proxy:
        cycle.url, cycle.source = cycle.storage.through(proxy.port)
        yield


def second_guard(cycle):
    """Waits while the first is only stopped, and takes over when it is dead."""
    cycle.await_progress(0.05, 0.2)
    first = cycle.storage.guard
    second = Guard(cycle.storage.guard_options, waits=True)
    try:
        first.pause()
        time.sleep(2 * cycle.storage.ttl_s)
        first.resume()
        if second.is_ready():
            raise AssertionError(f"{cycle.name}: a second guard serves although the first is not dead")
        cycle.await_progress(0.2, 0.4)
        first.kill()
        second.await_ready()
    except BaseException:
        second.remove()
        raise
    cycle.storage.lead_to(second)
    first.remove()
    cycle.injected["takeovers"] += 1


def leader_killed(cycle):
    cycle.await_progress(0.1, 0.4)
    leader = cycle.storage.group.leader()
    leader.kill()
    cycle.storage.group.leader()
    leader.start()
    cycle.injected["leader kills"] += 1


def leader_stopped(cycle):
    """Until another leads."""
    cycle.await_progress(0.1, 0.4)
    leader = cycle.storage.group.leader()
    leader.pause()
    try:
        cycle.storage.group.leader()
    finally:
        leader.resume()
    cycle.injected["leader stops"] += 1


def quorum_lost(cycle):
    cycle.await_progress(0.1, 0.4)
    lost = cycle.storage.group.members[1:]
    for member in lost:
        member.kill()
    time.sleep(2 * cycle.storage.ttl_s)
    for member in lost:
        member.launch()
    for member in lost:
        member.await_ready()
    cycle.injected["quorum losses"] += 1


def promotion(cycle):
    """The primary is killed, and clients find the standby in its place."""
    cycle.await_progress(0.1, 0.4)
    storage = cycle.storage
    storage.primary.kill()
    storage.standby.promote()
    storage.standby.psql("alter system set synchronous_standby_names = ''")  # it has none
    storage.standby.psql("select pg_reload_conf()")
    storage.address.to_port = storage.standby.port
    storage.server = storage.standby
    cycle.injected["promotions"] += 1


def node_killed(cycle):
    """One of the source's servers at a time: the others are a majority."""
    for node in cycle.storage.nodes:
        cycle.await_progress(0.05, 0.6)
        node.kill()
        time.sleep(cycle.storage.ttl_s)
        node.start()
        cycle.injected["node kills"] += 1


def majority_stopped(cycle):
    """Of the source's servers: for that long it grants nothing."""
    cycle.await_progress(0.1, 0.4)
    stopped = cycle.storage.nodes[1:]
    for node in stopped:
        node.pause()
    try:
        time.sleep(2 * cycle.storage.ttl_s)
    finally:
        for node in stopped:
            node.resume()
    cycle.injected["majority stops"] += 1


def clock_set(cycle):
    """The server's time of day: a year on, so that every lease ends; a year back, so that none does; and right again."""
    for ahead_s, latest in ((365 * DAY_S, 0.3), (-365 * DAY_S, 0.6)):
        cycle.await_progress(0.1, latest)
        cycle.storage.server.set_time(ahead_s)
        time.sleep(2 * cycle.storage.ttl_s)
        cycle.injected["clock jumps"] += 1
    cycle.storage.server.set_time(0)


def monotonic_set(cycle):
    """The server is killed and comes up where the monotonic clock is a day on, and then where it is not."""
    for ahead_s in (DAY_S, 0):
        cycle.await_progress(0.1, 0.5)
        cycle.storage.server.kill()
        cycle.storage.server.monotonic_ahead_s = ahead_s
        cycle.storage.server.start()
        cycle.injected["monotonic clocks"] += 1


@contextlib.contextmanager
def across_network(cycle):
    """The clients of this cycle are in a network of their own."""
    network = cycle.network = Network()
    try:
        with FaultProxy(cycle.storage.server.port, host=network.host) as proxy:
            cycle.url, cycle.source = (url.replace(f"127.0.0.1:{proxy.port}", f"{network.host}:{proxy.port}")
                                       for url in cycle.storage.through(proxy.port))
            cycle.words = network.words
            yield
    finally:
        network.close()


def network_cut(cycle):
    for what, cut, latest in (("links down", cycle.network.down, 0.3), ("blackholes", cycle.network.blackhole, 0.6)):
        cycle.await_progress(0.1, latest)
        with cut():
            time.sleep(2 * cycle.storage.ttl_s)
        cycle.injected[what] += 1


class Link:
    """A link that breaks, by whatever passes it: each connection at a byte drawn by the seed, in either direction.

    cut: what was before that byte passes, and no more. silent: nothing passes any more, and the connection stays for a
    while. late: what comes waits for longer than a lease lives, and then passes, though its sender may be dead. answer
    lost: the next answer does not pass. sliced: from now on bytes pass one by one, up to SLICED_MAX.
    """

    KINDS = ("cut", "cut", "silent", "late", "answer lost", "sliced")
    BYTES = (500, 12_000)
    SLICED_MAX = 60

    def __init__(self, cycle):
        self._cycle = cycle
        self._lock = threading.Lock()
        self._left = {}
        self._kinds = {}

    def change(self, connection, to_server, piece):
        with self._lock:
            chooser = self._cycle.chooser
            left = self._left.setdefault(connection, chooser.randint(*self.BYTES))
            self._left[connection] = left - len(piece)
            if left < 0 or left >= len(piece):
                return self._further(connection, to_server, piece)
            kind = self._kinds[connection] = chooser.choice(self.KINDS)
            if kind != "answer lost":
                self._cycle.injected[kind] += 1
        if kind == "cut":
            return [piece[:left], None]
        hold_s = 2 * self._cycle.storage.ttl_s
        if kind == "silent":
            time.sleep(hold_s)
            return None
        if kind == "late":
            time.sleep(hold_s)
            return piece
        return self._further(connection, to_server, piece)

    def _further(self, connection, to_server, piece):
        kind = self._kinds.get(connection)
        if kind == "answer lost" and not to_server:
            self._cycle.injected[kind] += 1
            return None
        if kind == "sliced":
            return [piece[i:i + 1] for i in range(min(len(piece), self.SLICED_MAX))] + [piece[self.SLICED_MAX:]]
        return piece


@contextlib.contextmanager
def behind_link(cycle):
    """The clients of this cycle reach the storage's server through a link that breaks."""
    with FaultProxy(cycle.storage.server.port, Link(cycle).change) as proxy:
        cycle.url, cycle.source = cycle.storage.through(proxy.port)
        yield


@contextlib.contextmanager
def upstream_behind_link(cycle):
    """Likewise the guard the upstream."""
    cycle.storage.change = Link(cycle).change
    try:
        yield
    finally:
        cycle.storage.change = None
