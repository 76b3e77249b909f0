"""Every container of deploy/ that runs a guard is started as the process that it would be, with the test's paths, ports and
hosts in place of its own, and its probes are asked. What the files say of each other is compared."""

import base64
import os
import re
import subprocess
import tempfile
import unittest

import http_load
import manifests
import parts
import support
from manifests import PORTS, ROOT, moved
from server_process import PAGE_PORTS, ServerProcess, free_ports, program
from waiting import wait_until

TOKEN = "0123456789abcdef0123"
LIMIT_S = 120
HARDENED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


class Running:
    """A container as a process: args are those of fenceguard."""

    def __init__(self, test, arguments, variables, instead):
        self.ports = dict(zip(PORTS, map(str, free_ports(3, PAGE_PORTS))))
        self.instead = {**{f":{old}": f":{new}" for old, new in self.ports.items()}, **instead}
        self.variables = {name: moved(value, self.instead) for name, value in variables.items()}
        arguments = [moved(argument, self.instead) for argument in arguments]
        self.log_path = test.path(f"log-{self.ports['7420']}")
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([support.BINARY, *arguments], cwd=test.folder, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, env=support.environment(self.variables))
        test.addCleanup(support.end_process, self.process)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def ask(self, port, method, target, headers=None, body=None):
        return support.request(f"127.0.0.1:{self.ports[port]}", method, target, headers, body)

    def answers(self, target, status=200):
        """Whether the probe answers so; fails where the process has ended."""
        if self.process.poll() is not None:
            raise AssertionError(f"it ended with {self.process.returncode}: {self.log()}")
        try:
            return self.ask("7422", "GET", target).status == status
        except OSError:
            return False

    def await_answer(self, target, status=200):
        wait_until(lambda: self.answers(target, status), LIMIT_S, f"{status} of {target}: {self.log()}")


class WebDav(ServerProcess):
    """nginx with deploy/storage.conf."""

    def __init__(self):
        super().__init__("webdav")
        self.data = os.path.join(self.folder, "data")
        os.mkdir(self.data)
        os.mkdir(os.path.join(self.folder, "tmp"))
        for path in (self.folder, self.data, os.path.join(self.folder, "tmp")):
            os.chmod(path, 0o777)
        self.start_on_free_ports()

    def choose_ports(self):
        super().choose_ports()
        text = (manifests.DEPLOY / "storage.conf").read_text(encoding="utf-8")
        for old, new in ((" /tmp/", f" {self.folder}/tmp/"), (" /data;", f" {self.data};"),
                         ("listen 8080;", f"listen 127.0.0.1:{self.port};")):
            assert old in text, old
            text = text.replace(old, new)
        with open(os.path.join(self.folder, "storage.conf"), "w", encoding="utf-8") as file:
            file.write(text)

    def words(self):
        return [program("nginx"), "-e", "stderr", "-c", os.path.join(self.folder, "storage.conf")]

    def is_ready(self):
        try:
            return support.request(f"127.0.0.1:{self.port}", "GET", "/").status in (403, 404)
        except OSError:
            return False


class Started(http_load.GuardedTest):
    def setUp(self):
        super().setUp()
        self.image = manifests.Image()
        for name in ("state", "secrets"):
            os.mkdir(self.path(name))
        self.instead = {"/secrets": self.path("secrets"),
                        **{place: self.path("state") for place in ("/state", "/var/lib/fenceguard")}}

    def make_secrets(self):
        """As a kubelet lays them: another's files, which our group may read."""
        key = base64.urlsafe_b64encode(b"k" * 33).decode()
        for name, text in (("tokens", f"admin {TOKEN}\n"), ("claim-keys", f"k1 {key}\n")):
            os.chmod(self.write(f"secrets/{name}", text), 0o440)

    def start(self, container, **instead):
        """With what the image says, which the container may say otherwise."""
        variables = {**self.image.variables, **manifests.variables(container)}
        return Running(self, container.get("args", self.image.words), variables, {**self.instead, **instead})

    def run_init(self):
        (container,) = manifests.guards("init.yaml")
        init = self.start(container)
        self.assertEqual(init.process.wait(LIMIT_S), 0, init.log())

    def check_probes(self, running, container, is_ready=True):
        """Those of the manifest: by their paths, at the port that has their name."""
        ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
        kinds = ("startupProbe", "readinessProbe", "livenessProbe")
        probes = [container[kind]["httpGet"] for kind in kinds if kind in container]
        self.assertGreaterEqual(len(probes), 2)
        for probe in probes:
            self.assertEqual(ports[probe["port"]], "7422")
            running.await_answer(probe["path"], 200 if is_ready or probe["path"] == "/healthz" else 503)
        self.assertEqual(running.ask("7422", "GET", "/metrics").status, 200)

    def check_lane(self, running):
        """Called as clients of the Service call it: with a bearer token, and signed claims."""
        data, control = (f"fenceguard:{running.ports[port]}" for port in ("7420", "7421"))
        bearer = {"Authorization": f"Bearer {TOKEN}", "Host": control}
        ask = {"resource": "a", "ttl_ms": 600_000}
        self.assertEqual(running.ask("7421", "POST", "/v1/leases", {"Host": control}, ask).status, 401)
        self.assertEqual(running.ask("7421", "POST", "/v1/leases", {**bearer, "Host": "other"}, ask).status, 403)
        granted = running.ask("7421", "POST", "/v1/leases", bearer, ask)
        self.assertEqual(granted.status, 201, granted)
        claim = {"Host": data, "Fencing-Token": granted.json["token"], "Fencing-Holder": granted.json["holder"]}
        self.assertEqual(running.ask("7420", "PUT", "/a", claim, "x").status, 401)
        claim["Fencing-Signature"] = granted.json["signature"]
        self.assertIn(running.ask("7420", "PUT", "/a", claim, "x").status, (201, 204))
        self.assertEqual(running.ask("7420", "PUT", "/a", {**claim, "Host": "other"}, "x").status, 403)
        self.assertEqual(running.ask("7421", "DELETE", "/v1/leases/a", {**claim, **bearer}).status, 204)
        # A command within the container has its variables.
        within = {**running.variables, "FENCEGUARD_SERVER_TOKEN": TOKEN}
        server = f"http://127.0.0.1:{running.ports['7421']}"
        self.expect(0, "fence", "list", "--server", server, env=within)
        self.expect(0, "lease", "acquire", "--server", server, "--resource", "b", env=within)

    def stop(self, running):
        running.process.terminate()
        self.assertEqual(running.process.wait(LIMIT_S), 0, running.log())
        self.assertIn("event=stopped clean=true", running.log())

    def test_a_lane(self):
        self.make_secrets()
        storage = self.guarded().upstream
        (container,) = manifests.guards("lane.yaml")
        unmade = self.start(container, **{"http://storage:8080": storage.url()})
        unmade.await_answer("/readyz", 503)
        # It waits for another guard's state before it has looked.
        wait_until(lambda: "fence init" in unmade.ask("7422", "GET", "/readyz").json["detail"])
        self.stop(unmade)
        self.run_init()
        lane = self.start(container, **{"http://storage:8080": storage.url()})
        self.check_probes(lane, container)
        self.check_lane(lane)
        self.stop(lane)

    def test_a_leader_and_its_standby(self):
        self.make_secrets()
        self.run_init()
        storage = self.guarded().upstream
        (container,) = manifests.guards("leader.yaml")
        first = self.start(container, **{"http://storage:8080": storage.url()})
        self.check_probes(first, container)
        second = self.start(container, **{"http://storage:8080": storage.url()})
        self.check_probes(second, container, is_ready=False)
        self.check_lane(first)
        self.stop(first)
        self.check_probes(second, container)
        self.check_lane(second)
        self.stop(second)

    def test_a_sidecar(self):
        (container,) = manifests.guards("sidecar.yaml")
        (application,) = [other for other in manifests.containers("sidecar.yaml") if other["name"] == "application"]
        sidecar = self.start(container)
        self.check_probes(sidecar, container)
        told = {name: moved(value, sidecar.instead) for name, value in manifests.variables(application).items()}
        lease = self.expect_json(0, "lease", "acquire", "--resource", "a", env={**told, "FENCEGUARD_TTL": "10m"})
        self.assertEqual(told["FENCEGUARD_DATA"], f"http://127.0.0.1:{sidecar.ports['7420']}")
        claim = {"Fencing-Token": lease["token"], "Fencing-Holder": lease["holder"]}
        self.assertEqual(sidecar.ask("7420", "PUT", "/a", claim, "x").status, 201)
        self.stop(sidecar)

    def start_composed(self, *files, storage=None, **instead):
        services = manifests.compose(*files)
        if storage is None:
            storage = WebDav()
            self.addCleanup(storage.remove)
        guard = Running(self, services["guard"]["command"], self.image.variables,
                        {**self.instead, "storage:8080": f"127.0.0.1:{storage.port}", **instead})
        guard.await_answer("/readyz")
        return guard, storage, services

    def write_through(self, guard, storage, status=201):
        """A lease as it is taken within the container, on loopback."""
        control = f"http://127.0.0.1:{guard.ports['7421']}"
        lease = self.expect_json(0, "lease", "acquire", "--server", control, "--resource", "accounts/42", "--ttl", "10m",
                                 env=guard.variables)
        claim = {"Fencing-Token": lease["token"], "Fencing-Holder": lease["holder"]}
        self.assertEqual(guard.ask("7420", "PUT", "/accounts/42", {}, "x").status, 428)
        self.assertEqual(guard.ask("7420", "PUT", "/accounts/42", claim, "x").status, status)
        with open(os.path.join(storage.data, "accounts", "42"), encoding="ascii") as file:
            self.assertEqual(file.read(), "x")
        self.expect(0, "lease", "release", "--server", control, "--resource", "accounts/42", "--token", lease["token"],
                    "--holder", lease["holder"], env=guard.variables)
        return claim

    def test_a_try_with_compose(self):
        # The control side is where the image leaves it: on loopback, without tokens.
        self.image.variables["FENCEGUARD_CONTROL"] = "127.0.0.1:7421"
        guard, storage, services = self.start_composed("compose.yaml")
        old = self.write_through(guard, storage)
        self.stop(guard)
        # Another container of the guard has the volume, and its fences: who held the lock before is still behind.
        self.assertEqual(services["guard"]["volumes"], ["state:/var/lib/fenceguard"])
        again, _, _ = self.start_composed("compose.yaml", storage=storage)
        new = self.write_through(again, storage, status=204)
        self.assertGreater(int(new["Fencing-Token"]), int(old["Fencing-Token"]))
        self.assertEqual(again.ask("7420", "PUT", "/accounts/42", old, "late").status, 412)
        self.stop(again)
        self.assertEqual(services["guard"]["ports"], ["127.0.0.1:7420:7420"])
        with open(manifests.DEPLOY / "prometheus" / "prometheus.yml", encoding="utf-8") as file:
            self.assertIn('"guard:7422"', file.read())

    def test_a_try_with_leases_from_redis(self):
        self.image.variables["FENCEGUARD_CONTROL"] = "127.0.0.1:7421"
        redis = self.start_redis()
        guard, storage, services = self.start_composed("compose.yaml", "compose.redis.yaml",
                                                       **{"redis:6379": f"127.0.0.1:{redis}"})
        self.assertIn("redis", services)
        self.write_through(guard, storage)
        self.stop(guard)

    def start_redis(self):
        """The command of compose.redis.yaml, on a port of its own."""
        words = manifests.compose("compose.redis.yaml")["redis"]["command"]
        folder = tempfile.mkdtemp(dir=self.folder)

        class Redis(ServerProcess):
            def words(self):
                return [program(words[0]), *words[1:], "--port", str(self.port), "--bind", "127.0.0.1", "--dir", folder]

            def is_ready(self):
                return "Ready to accept connections" in self.log()

        redis = Redis("composed-redis")
        self.addCleanup(redis.remove)
        redis.start_on_free_ports()
        return redis.port

    def test_the_images_health_is_that_of_the_guard(self):
        variables = {**self.image.variables, "FENCEGUARD_CONTROL": "127.0.0.1:7421"}
        guard = Running(self, self.image.words, variables, self.instead)
        guard.await_answer("/healthz")

        def health():
            return subprocess.run(self.image.health, env={**os.environ, **guard.variables}, stdin=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, timeout=LIMIT_S).returncode
        self.assertEqual(health(), 0)
        self.stop(guard)
        self.assertNotEqual(health(), 0)


def seconds(text):
    return int(text.removesuffix("s"))


class Agreement(unittest.TestCase):
    """What is said in two places."""

    def setUp(self):
        self.image = manifests.Image()
        self.guards = [(name, container) for name in manifests.kubernetes_files()
                       if name != "network.yaml" for container in manifests.guards(name)]

    def test_every_variable_is_a_setting(self):
        with open(ROOT / "docs" / "settings.md", encoding="utf-8") as file:
            known = set(re.findall(r"`(FENCEGUARD_\w+)`", file.read())) | {"CREDENTIALS_DIRECTORY"}
        told = [set(manifests.variables(container)) for _, container in self.guards]
        told.append(set(self.image.variables))
        self.assertEqual(len(told), 5)
        for names in told:
            self.assertLessEqual(names, known)

    def test_the_image_has_the_programs_version_everywhere(self):
        version = re.search(r"project\(fenceguard VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
        for path in [*manifests.DEPLOY.rglob("*.yaml"), manifests.DEPLOY / "Dockerfile", manifests.DEPLOY / "README.md"]:
            for named in re.findall(r"\bfenceguard:(\d[\w.]*)", path.read_text(encoding="utf-8")):
                self.assertEqual(named, version, path)

    def test_each_container_is_hardened(self):
        for name, container in self.guards:
            _, spec = manifests.pod(name)
            self.assertEqual(container["securityContext"], HARDENED, name)
            self.assertTrue(spec["securityContext"]["runAsNonRoot"])
            users = {spec["securityContext"][key] for key in ("runAsUser", "runAsGroup", "fsGroup")}
            self.assertEqual(users, {self.image.user})
            self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
            self.assertFalse(spec["automountServiceAccountToken"])
            self.assertIn("memory", container["resources"]["limits"])

    def test_a_pod_has_the_time_to_drain(self):
        for name in ("lane.yaml", "leader.yaml", "sidecar.yaml"):
            (container,) = manifests.guards(name)
            told = manifests.variables(container)
            needed = seconds(told["FENCEGUARD_DRAIN_TIMEOUT"]) + seconds(told.get("FENCEGUARD_SETTLE", "0s"))
            self.assertGreater(manifests.pod(name)[1]["terminationGracePeriodSeconds"], needed)

    def test_what_selects_pods_selects_those_that_are_meant(self):
        service, = manifests.of_kind("network.yaml", "Service")
        storage, guard = manifests.of_kind("network.yaml", "NetworkPolicy")
        (peer,) = storage["spec"]["ingress"][0]["from"]
        for name in ("lane.yaml", "leader.yaml"):
            metadata, spec = manifests.pod(name)
            (budget,) = manifests.of_kind(name, "PodDisruptionBudget")
            for labels in (service["spec"]["selector"], peer["podSelector"]["matchLabels"],
                           guard["spec"]["podSelector"]["matchLabels"], budget["spec"]["selector"]["matchLabels"]):
                self.assertLessEqual(labels.items(), metadata["labels"].items())
            (container,) = spec["containers"]
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            for port in service["spec"]["ports"]:
                self.assertEqual(ports[port["targetPort"]], port["port"])
            allowed = {port["port"] for rule in guard["spec"]["ingress"] for port in rule["ports"]}
            self.assertEqual(allowed, set(ports.values()))
        # Nothing else may come to the storage, and the guard may go there.
        self.assertEqual(len(storage["spec"]["ingress"]), 1)
        self.assertEqual(guard["spec"]["egress"][0]["to"][0]["podSelector"], storage["spec"]["podSelector"])
        self.assertEqual(guard["spec"]["egress"][0]["ports"], storage["spec"]["ingress"][0]["ports"])

    def test_trial_storage_shares_a_network_only_with_the_guard(self):
        services = manifests.compose("compose.yaml", "compose.redis.yaml")
        inside = [name for name, service in services.items() if "storage" in service["networks"]]
        self.assertEqual(inside, ["storage", "guard"])
        self.assertNotIn("ports", services["storage"])


if __name__ == "__main__":
    parts.main()
