"""The storages and sources of the campaign whose clients write to them, each with its real servers: how clients get at
it, and what it itself says was applied, in its order. Those behind a guard: served.py."""

import contextlib
import json
import shutil
import subprocess
import tempfile

import kazoo.client
import kazoo.exceptions

import clocks
import etcd_server
import fault_proxy
import postgres_server
import redis_server
import support
import zookeeper_server
from waiting import LIMIT_S


def run(*arguments):
    """What fenceguard says; it must succeed."""
    done = subprocess.run([support.BINARY, *arguments], env=support.environment(), capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise AssertionError(f"fenceguard {arguments} ended with {done.returncode}: {done.stderr}")
    return done.stdout


class Storage:
    """url, source: what clients are given; unguarded: the data without a guard. ttl_s: of a lease; pause_s: how long a client
    is stopped, which is longer than any lease lives. operations: of each client in a cycle. server: the process that has the
    data."""

    ttl_s = 0.3
    pause_s = 0.5
    operations = 60
    source_name = "its own"
    guard = None  # of a storage behind 'fenceguard serve'

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="fenceguard-campaign-")
        try:
            self.open()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def open(self):
        raise NotImplementedError

    def entries(self, resource):
        """What was applied to a resource, in the storage's order."""
        raise NotImplementedError

    def open_unguarded(self):
        """Called before the control, after which nothing is guarded any more."""

    def through(self, port):
        """The clients' URLs with the storage's server behind this port."""
        raise NotImplementedError

    def processes(self):
        """Of the storage's server, all of them."""
        return [self.server.pid]

    def close(self):
        for name in ("guard", "server"):
            if getattr(self, name, None) is not None:
                getattr(self, name).remove()
        shutil.rmtree(self.folder, ignore_errors=True)


class WithUrls(Storage):
    """Clients write to it themselves. has_other_source: its numbers are another's."""

    has_other_source = False

    def open(self):
        self.server = self.start()
        self.url, self.source = self.through(self.server.port)
        self.unguarded = self.url
        run("fence", "init", "--storage", self.url, *(["--source", self.source] if self.has_other_source else []))

    def through(self, port):
        return (self.server.url(self.rest).replace(f":{self.server.port}", f":{port}"),) * 2


DURABLE = {"appendonly": "yes", "appendfsync": "always"}


class Redis(WithUrls):
    name = "redis"
    rest = "/0"
    make = redis_server.Server

    def start(self):
        return self.make(DURABLE)

    def entries(self, resource):
        return self.server.cli("LRANGE", f"{{{resource}}}:log", 0, -1)


class RedisWithClock(Redis):
    make = clocks.with_time_of_day(redis_server.Server)


class RedisWithQuorum(Redis):
    """Its source is a majority of three other servers."""

    source_name = "redis-quorum"
    has_other_source = True

    def open(self):
        self.nodes = [redis_server.Server({**DURABLE, "no-appendfsync-on-rewrite": "no"}) for _ in range(3)]
        super().open()

    def through(self, port):
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return super().through(port)[0], f"redis-quorum://{hosts}/0?node_timeout=100ms"

    def close(self):
        super().close()
        for node in getattr(self, "nodes", []):
            node.remove()


class Postgres(WithUrls):
    name = "postgres"
    rest = "campaign"
    make = postgres_server.Server

    def start(self):
        server = self.make()
        server.create_database("campaign", install=True)
        server.psql("create table journal (position bigserial primary key, resource text, entry text); "
                    "create index on journal (resource, position)", "campaign")
        return server

    def entries(self, resource):
        found = self.server.psql("select entry from journal where resource = "
                                 f"{postgres_server.literal(resource)} order by position", "campaign")
        return found.splitlines()

    def processes(self):
        return [self.server.pid, *support.descendants(self.server.pid)]


class PostgresWithClock(Postgres):
    make = clocks.with_time_of_day(postgres_server.Server)


class Etcd(WithUrls):
    """etcd counts the time of leases in whole seconds, and ends them a while later."""

    name = "etcd"
    rest = ""
    ttl_s = 1
    pause_s = 2.5
    operations = 40

    def start(self):
        return clocks.with_monotonic_clock(etcd_server.Server)()

    def entries(self, resource):
        key = f"campaign/{resource}"
        listed = json.loads(self.server.ctl("get", key, "-w", "json"))
        if not listed.get("kvs"):
            return []
        last = listed["header"]["revision"]
        count = listed["kvs"][0]["version"]
        watch = self.server.start_ctl("watch", key, "--rev", "1")
        try:  # three lines for each revision: PUT, key, value
            lines = [watch.stdout.readline().rstrip("\n") for _ in range(3 * count)]
        finally:
            support.end_process(watch)
        if lines[::3] != ["PUT"] * count or lines[1::3] != [key] * count:
            raise AssertionError(f"etcdctl says {lines[:6]} of {key} at {last}")
        return lines[2::3]


class EtcdWithRedis(Etcd):
    source_name = "redis"
    has_other_source = True
    ttl_s = Storage.ttl_s
    pause_s = Storage.pause_s
    operations = Storage.operations

    def open(self):
        self.redis = redis_server.Server(DURABLE)
        super().open()

    def through(self, port):
        return super().through(port)[0], self.redis.url("/0")

    def close(self):
        super().close()
        if hasattr(self, "redis"):
            self.redis.remove()


class Zookeeper(WithUrls):
    """The lease is the client's session, which the server ends."""

    name = "zookeeper"
    rest = "/app?timeout=3s"
    ttl_s = 0.6
    pause_s = 1.5
    operations = 40

    def start(self):
        return clocks.with_monotonic_clock(zookeeper_server.Server)()

    def open(self):
        super().open()
        with self.peer() as peer:
            peer.create("/app/campaign", makepath=True)

    def through(self, port):
        url, _ = super().through(port)
        return url, url + "&session_timeout=900ms"

    @contextlib.contextmanager
    def peer(self):
        client = kazoo.client.KazooClient(f"127.0.0.1:{self.server.port}", timeout=LIMIT_S)
        client.start(LIMIT_S)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def entries(self, resource):
        place = "/app/campaign/" + resource.replace("/", "%2F")
        with self.peer() as peer:
            try:
                names = sorted(name for name in peer.get_children(place) if name.startswith("entry-"))
            except kazoo.exceptions.NoNodeError:
                return []
            return [peer.get(f"{place}/{name}")[0].decode() for name in names]


class OfMembers:
    """Several servers, one of which leads. server: any."""

    def open(self):
        self.group = self.start_group()
        super().open()

    def start(self):
        return self.group.members[0]

    def through(self, port):
        """There is no link to break; port is that of any."""
        return (self.group.url(self.rest),) * 2

    def close(self):
        super().close()
        if hasattr(self, "group"):
            self.group.remove()


class EtcdCluster(OfMembers, Etcd):
    name = "etcd cluster"

    @staticmethod
    def start_group():
        return etcd_server.Cluster()


class ZookeeperEnsemble(OfMembers, Zookeeper):
    name = "zookeeper ensemble"

    @staticmethod
    def start_group():
        return zookeeper_server.Ensemble()

    def through(self, port):
        url = self.group.url(self.rest)
        return url, url + "&session_timeout=900ms"


class PostgresPair(Postgres):
    """A standby that has every commit before it is acknowledged. Clients go to whichever is the primary."""

    name = "postgres pair"

    def start(self):
        self.primary = super().start()
        self.standby = self.primary.standby()
        self.primary.psql("alter system set synchronous_standby_names = '*'")
        self.primary.psql("select pg_reload_conf()")
        self.address = fault_proxy.FaultProxy(self.primary.port)
        return self.primary

    def through(self, port):
        return super().through(self.address.port)

    def close(self):
        for name in ("standby", "primary"):
            if hasattr(self, name):
                getattr(self, name).remove()
        super().close()
        if hasattr(self, "address"):
            self.address.close()
