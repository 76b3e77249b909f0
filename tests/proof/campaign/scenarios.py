"""Which scenarios each storage has. The control, one for each storage, is the last: nothing is guarded any more after it."""

import contextlib
import typing

import faults
import served
import storages

CONTROL = "control"

STORAGES = {kind.__name__.lower(): kind for kind in (
    storages.Redis, served.RedisSidecar, storages.Postgres, storages.PostgresPair, storages.Etcd, storages.EtcdWithRedis,
    storages.EtcdCluster, storages.Zookeeper, storages.ZookeeperEnsemble, served.Embedded, served.Lane)}


class Scenario(typing.NamedTuple):
    """strike(cycle) runs beside the clients; around(cycle) is a context of the whole cycle."""

    strike: typing.Callable = faults.pauses
    around: typing.Callable = contextlib.nullcontext


PAUSES = {"pauses": Scenario()}
CLIENT = {"client killed": Scenario(faults.client_killed)}
STOPPED = {"server stopped": Scenario(faults.server_stopped)}
KILLED = {"server killed": Scenario(faults.server_killed)}
LINK = {"link": Scenario(around=faults.behind_link)}
GUARD = {"guard stopped": Scenario(faults.guard_stopped), "guard killed": Scenario(faults.guard_killed)}

GROUP = {"leader stopped": Scenario(faults.leader_stopped), "leader killed": Scenario(faults.leader_killed),
         "quorum lost": Scenario(faults.quorum_lost)}
CONTROLLED = {CONTROL: None}

SCENARIOS = {
    "redis": {**PAUSES, **CLIENT, **STOPPED, **KILLED, **LINK, "flushed": Scenario(faults.flushed), **CONTROLLED},
    "redissidecar": {**PAUSES, **CLIENT, **STOPPED, **KILLED, **GUARD},
    "postgres": {**PAUSES, **CLIENT, **STOPPED, **KILLED, **LINK,
                 "backup restored": Scenario(faults.restored, faults.behind_gate), **CONTROLLED},
    "postgrespair": {"promotion": Scenario(faults.promotion)},  # once: there is no second standby
    "etcd": PAUSES,
    "etcdwithredis": {**PAUSES, **CLIENT, **STOPPED, **KILLED, **LINK, **CONTROLLED},
    "zookeeper": {**PAUSES, **CLIENT, **STOPPED, **KILLED, **LINK, **CONTROLLED},
    "etcdcluster": GROUP,
    "zookeeperensemble": GROUP,
    "embedded": {**PAUSES, **CLIENT, **GUARD, **CONTROLLED},
    "lane": {**PAUSES, **CLIENT, **STOPPED, **GUARD, "second guard": Scenario(faults.second_guard),
             "link": Scenario(around=faults.upstream_behind_link), **CONTROLLED},
}
