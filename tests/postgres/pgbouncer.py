"""A real PgBouncer in front of a server of postgres_server, for a test."""

import socket

import postgres_server
from postgres_server import Session
from server_process import ServerProcess

CONFIGURATION = """
[databases]
* = host={server.folder} port={server.port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 1
ignore_startup_parameters = extra_float_digits
"""


class PgBouncer(ServerProcess):
    """In front of a server; by CONFIGURATION with one connection to it per database. Sessions of it are sessions of the
    server's kind."""

    def __init__(self, server, configuration=CONFIGURATION):
        self.server = server
        self.configuration = configuration
        self._sessions = []
        super().__init__("bouncer")
        postgres_server.own(self.folder)
        self.start_on_free_ports()

    def choose_ports(self):
        super().choose_ports()
        with open(f"{self.folder}/pgbouncer.ini", "w", encoding="utf-8") as file:
            file.write(self.configuration.format(server=self.server, port=self.port))

    def words(self):
        return ["/usr/sbin/pgbouncer", "-q", f"{self.folder}/pgbouncer.ini"]

    def process_options(self):
        return postgres_server.server_user()

    def is_ready(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def conninfo(self, dbname, user):
        return f"postgres://{user}@127.0.0.1:{self.port}/{dbname}"

    def session(self, dbname):
        return Session(self, dbname, "postgres")

    def remove(self):
        for session in list(self._sessions):
            session.close()
        super().remove()
