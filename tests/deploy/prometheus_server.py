"""A real Prometheus that scrapes every second, with the alert rules of deploy/."""

import http.client
import json
import os
import urllib.parse

import yaml
from server_process import ServerProcess, program

RULES = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy/prometheus/alerts.yml"))


class Prometheus(ServerProcess):
    """Started by its constructor; a context manager that removes it. targets: HOST:PORT by the name of their job."""

    def __init__(self, targets):
        super().__init__("prometheus")
        self._targets = targets
        self.start_on_free_ports()

    def choose_ports(self):
        super().choose_ports()
        settings = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [RULES],
                    "scrape_configs": [{"job_name": job, "static_configs": [{"targets": [target]}]}
                                       for job, target in self._targets.items()]}
        with open(os.path.join(self.folder, "prometheus.yml"), "w", encoding="utf-8") as file:
            yaml.safe_dump(settings, file)

    def words(self):
        return [program("prometheus"), f"--config.file={self.folder}/prometheus.yml",
                f"--storage.tsdb.path={self.folder}/data", f"--web.listen-address=127.0.0.1:{self.port}"]

    def _get(self, target):
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            link.request("GET", target)
            answer = link.getresponse()
            return answer.status, answer.read()
        finally:
            link.close()

    def is_ready(self):
        try:
            return self._get("/-/ready")[0] == 200
        except OSError:
            return False

    def ask(self, path, **parameters):
        """What the API answers to a call that succeeds."""
        status, body = self._get(f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        answer = json.loads(body)
        if status != 200 or answer["status"] != "success" or answer.get("warnings"):
            raise AssertionError(f"{path} {parameters}: {status} {answer}")
        return answer["data"]

    def query(self, expression):
        """The samples of now: (labels, value)."""
        return [(sample["metric"], float(sample["value"][1]))
                for sample in self.ask("query", query=expression)["result"]]
