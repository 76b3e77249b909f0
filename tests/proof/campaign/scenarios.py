"""Which scenarios each storage has. The control, one for each storage, is the last: nothing is guarded any more after it."""

import contextlib
import subprocess
import typing

import faults
import served
import storages

CONTROL = "control"

STORAGES = {kind.__name__.lower(): kind for kind in (
    storages.Redis, storages.RedisWithClock, storages.RedisWithQuorum, served.RedisSidecar, storages.Postgres,
    storages.PostgresWithClock, storages.PostgresPair, served.PostgresSidecar, storages.Etcd, storages.EtcdWithRedis,
    storages.EtcdCluster, storages.Zookeeper, storages.ZookeeperEnsemble, served.Embedded, served.Lane)}


class Scenario(typing.NamedTuple):
    """strike(cycle) runs beside the clients; around(cycle) is a context of the whole cycle."""

    strike: typing.Callable = faults.pauses
    around: typing.Callable = contextlib.nullcontext


# What this machine does not allow, and is told.
LEFT_OUT = []


def allowed(what, scenarios, *probe):
    done = subprocess.run(probe, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return scenarios
    LEFT_OUT.append(f"SKIPPED: the campaign's {what}: {done.stderr.strip()}")
    return {}


PAUSES = {"pauses": Scenario()}
CLIENT = {"client killed": Scenario(faults.client_killed)}
STOPPED = {"server stopped": Scenario(faults.server_stopped)}
KILLED = {"server killed": Scenario(faults.server_killed)}
LINK = {"link": Scenario(around=faults.behind_link)}
GUARD = {"guard stopped": Scenario(faults.guard_stopped), "guard killed": Scenario(faults.guard_killed)}

CLOCK = {"clock": Scenario(faults.clock_set)}
MONOTONIC = allowed("monotonic clock", {"monotonic clock": Scenario(faults.monotonic_set)},
                    "unshare", "--time", "--monotonic", "1", "--fork", "true")
NETWORK = allowed("network", {"network": Scenario(faults.network_cut, faults.across_network)},
                  "unshare", "--net", "sh", "-c", "ip link add fg0 type veth peer name fg1 netns 1 && ip link del fg0")
GROUP = {"leader stopped": Scenario(faults.leader_stopped), "leader killed": Scenario(faults.leader_killed),
         "quorum lost": Scenario(faults.quorum_lost)}
CONTROLLED = {CONTROL: None}

SCENARIOS = {
    "redis": {**PAUSES, **CLIENT, **STOPPED, **KILLED, **LINK, **NETWORK, "flushed": Scenario(faults.flushed), **CONTROLLED},
    "rediswithclock": CLOCK,
    "rediswithquorum": {**PAUSES, "node killed": Scenario(faults.node_killed),
                        "majority stopped": Scenario(faults.majority_stopped)},
    "redissidecar": {**PAUSES, **CLIENT, **STOPPED, **KILLED, **GUARD},
    "postgres": {**PAUSES, **CLIENT, **STOPPED, **KILLED, **LINK, **NETWORK,
                 "backup restored": Scenario(faults.restored, faults.behind_gate), **CONTROLLED},
    "postgreswithclock": CLOCK,
    # The promotion once: there is no second standby.
    "postgrespair": {"promotion": Scenario(faults.promotion), **CONTROLLED},
    "postgressidecar": {**PAUSES, **CLIENT, **STOPPED, **KILLED, **GUARD},
    "etcd": {**PAUSES, **CONTROLLED},
    "etcdwithredis": {**PAUSES, **CLIENT, **STOPPED, **KILLED, **LINK, **MONOTONIC, **CONTROLLED},
    "zookeeper": {**PAUSES, **CLIENT, **STOPPED, **KILLED, **LINK, **NETWORK, **MONOTONIC, **CONTROLLED},
    "etcdcluster": {**GROUP, **CONTROLLED},
    "zookeeperensemble": {**GROUP, **CONTROLLED},
    "embedded": {**PAUSES, **CLIENT, **GUARD, **CONTROLLED},
    "lane": {**PAUSES, **CLIENT, **STOPPED, **GUARD, "second guard": Scenario(faults.second_guard),
             "link": Scenario(around=faults.upstream_behind_link), **CONTROLLED},
}
