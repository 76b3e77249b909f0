"""Three MariaDB servers as a Galera cluster, in each of which anybody may write."""

import contextlib

import pymysql

from mariadb_server import Server
from server_process import Members, free_ports
from waiting import LIMIT_S, wait_until

PROVIDER = "/usr/lib/galera/libgalera_smm.so"
STARTS_MAX = 3


class Node(Server):
    """A member. ports: its own, and those by which members speak to each other. peer: whom it joins; null: it is the first."""

    def __init__(self, ports, peer, settings):
        self._ports = ports
        group, ist, sst = ports[1:]
        super().__init__({
            "binlog-format": "ROW", "innodb-autoinc-lock-mode": 2, "wsrep-on": "ON", "wsrep-provider": PROVIDER,
            "wsrep-cluster-name": "fenceguard", "wsrep-cluster-address": f"gcomm://{peer or ''}",
            "wsrep-node-address": f"127.0.0.1:{group}", "wsrep-sst-method": "rsync",
            "wsrep-sst-receive-address": f"127.0.0.1:{sst}",
            "wsrep-provider-options": f"base_port={group};ist.recv_addr=127.0.0.1:{ist};gcache.size=16M", **settings})

    def choose_ports(self):
        self.port = self._ports[0]

    def is_ready(self):
        with contextlib.suppress(pymysql.Error):
            return super().is_ready() and self.run("show status like 'wsrep_ready'") == (("wsrep_ready", "ON"),)
        return False


class Cluster(Members):
    def __init__(self, settings=None):
        super().__init__("mariadb")
        for attempt in range(STARTS_MAX):
            try:
                self._start(settings or {})
                return
            except AssertionError:  # another process may have been quicker to take a port
                self.remove()
                self.members.clear()
                if attempt == STARTS_MAX - 1:
                    raise

    def _start(self, settings):
        ports = free_ports(12)
        for number in range(3):
            self.members.append(Node(ports[4 * number:4 * number + 4], f"127.0.0.1:{ports[1]}" if number else None,
                                     settings))
        wait_until(lambda: all(node.run("show status like 'wsrep_cluster_size'")[0][1] == "3" for node in self.members),
                   LIMIT_S, "a cluster of three")
