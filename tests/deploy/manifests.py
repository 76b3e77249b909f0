"""The files of deploy/ as plain values, and the containers in them as processes of a test."""

import json
import pathlib
import re
import shlex

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PORTS = ("7420", "7421", "7422")  # data, control, probe
POD_OWNERS = ("StatefulSet", "Deployment", "Job")


def documents(name):
    """Those of a file of Kubernetes."""
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text(encoding="utf-8")))


def kubernetes_files():
    return sorted(path.name for path in (DEPLOY / "kubernetes").glob("*.yaml"))


def of_kind(name, *kinds):
    return [document for document in documents(name) if document["kind"] in kinds]


def pod(name):
    """The metadata and the specification of the only pod of a file."""
    (owner,) = of_kind(name, *POD_OWNERS)
    template = owner["spec"]["template"]
    return template["metadata"], template["spec"]


def containers(name):
    _, spec = pod(name)
    return [*spec.get("initContainers", []), *spec["containers"]]


def guards(name):
    """Those that run fenceguard."""
    return [container for container in containers(name) if container["image"].startswith("fenceguard:")]


def variables(container):
    return {variable["name"]: variable["value"] for variable in container.get("env", [])}


def compose(*names):
    """The services, each of a later file over those of an earlier one."""
    services = {}
    for name in names:
        for service, told in yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))["services"].items():
            services.setdefault(service, {}).update(told)
    return services


class Image:
    """What the Dockerfile's last stage says of the container that is made from it."""

    def __init__(self):
        text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
        self.steps = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
        self.steps = self.steps[max(at for at, (word, _) in enumerate(self.steps) if word == "FROM"):]
        self.user = int(self._only("USER").split(":")[0])
        self.variables = dict(word.split("=", 1) for word in shlex.split(self._only("ENV")))
        self.health = json.loads(self._only("HEALTHCHECK").split("CMD", 1)[1])
        self.words = json.loads(self._only("ENTRYPOINT"))[1:] + json.loads(self._only("CMD"))

    def _only(self, word):
        (rest,) = [rest for step, rest in self.steps if step == word]
        return rest


def moved(value, instead):
    """value with each text of instead, which is not part of a longer number or name, replaced."""
    pattern = "|".join(rf"{re.escape(old)}(?![\w.-])" for old in instead)
    return re.sub(pattern, lambda found: instead[found[0]], value)
