"""nginx as a server of the tests."""

import os

import server_process


class Nginx(server_process.ServerProcess):
    """Started by start_on_free_ports(). block() answers what its http block has beside its folders."""

    def __init__(self):
        super().__init__("nginx")

    def block(self):
        raise NotImplementedError

    def choose_ports(self):
        super().choose_ports()
        with open(os.path.join(self.folder, "conf"), "w", encoding="ascii") as conf:
            conf.write("daemon off; master_process off; pid nginx.pid; error_log error.log;\n"
                       "events { worker_connections 64; }\n"
                       "http { client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4;\n"
                       f"scgi_temp_path t5; {self.block()}\n}}\n")

    def words(self):
        return ["/usr/sbin/nginx", "-p", self.folder, "-c", os.path.join(self.folder, "conf"), "-e", "error.log"]

    def is_ready(self):
        return os.path.exists(os.path.join(self.folder, "nginx.pid"))  # once it has the port
