"""Holds the answers of a guard to docs/openapi.yaml: paths, methods, statuses, fields, and bodies by their schemas.

check() raises AssertionError for what is not described. Of the data side in front of an http: storage only the guard's
own answers are looked at: those of the storage are its own.
"""

import functools
import json
import pathlib
import re

import jsonschema
import yaml

PATH = pathlib.Path(__file__).parents[2] / "docs" / "openapi.yaml"
DOCUMENT = yaml.safe_load(PATH.read_text(encoding="utf-8"))
DATA = "/{resource}"
PROBLEM = "application/problem+json"


def _resolved(node):
    if "$ref" not in node:
        return node
    return functools.reduce(lambda found, name: found[name], node["$ref"].removeprefix("#/").split("/"), DOCUMENT)


# The control side's paths, those without a resource first, as the guard looks for them.
_PATHS = [(re.compile(re.escape(path).replace(re.escape("{resource}"), ".+") + "$"), path)
          for path in sorted(set(DOCUMENT["paths"]) - {DATA}, key=lambda path: (path.count("{"), -len(path)))]
_RESOLVER = jsonschema.RefResolver("", DOCUMENT)


def _operation(side, method, target):
    method = {"HEAD": "get"}.get(method, method.lower())
    if side == "data":
        return DOCUMENT["paths"][DATA].get(method)
    for pattern, path in _PATHS:
        operation = DOCUMENT["paths"][path].get(method)
        if operation and pattern.match(target.partition("?")[0]):
            return operation
    return None


def _require(is_so, sentence):
    if not is_so:
        raise AssertionError(f"docs/openapi.yaml: {sentence}")


def _validate(schema, value, what):
    errors = list(jsonschema.Draft202012Validator(schema, resolver=_RESOLVER).iter_errors(value))
    _require(not errors, f"{what} is {value!r}: {[error.message for error in errors]}")


def _check_fields(described, answer, what):
    for name, header in described.get("headers", {}).items():
        header = _resolved(header)
        given = answer.headers.get(name.lower())
        _require(given is not None or not header.get("required"), f"{what} has no {name}")
        if given is not None:
            _validate(header["schema"], given, f"{name} of {what}")


def _check_body(described, answer, what):
    content = described.get("content")
    if not content:
        _require(answer.body == b"", f"{what} has the body {answer.body!r}")
        return
    media = answer.headers.get("content-type", "").partition(";")[0]
    _require(media in content, f"{what} is {media!r}, not one of {list(content)}")
    text = answer.body.decode()
    value = json.loads(text) if media.endswith("json") else text
    _validate(content[media]["schema"], value, f"the body of {what}")
    if media == PROBLEM:
        _require(value["status"] == answer.status, f"{what} says the status {value['status']}")
        _require(value.get("verdict") == answer.headers.get("fencing-verdict"),
                 f"{what} has the verdicts {value.get('verdict')!r} and {answer.headers.get('fencing-verdict')!r}")


def _is_storages_own(answer):
    if answer.headers.get("content-type", "") != PROBLEM:
        return True
    return not answer.body.decode().startswith('{"type":"urn:fenceguard:problem:')


def check(side, method, target, answer):
    """side: 'control' or 'data'. answer has status, headers by their names in lower case, and body."""
    what = f"{answer.status} of {method} {target}"
    if side == "data" and (method == "HEAD" or _is_storages_own(answer)):
        return
    operation = _operation(side, method, target)
    if operation is None:
        _require(answer.status >= 400, f"{what}: it is not described")
        described = DOCUMENT["components"]["responses"]["Problem"]
    else:
        described = operation["responses"].get(str(answer.status))
        _require(described is not None, f"{what}: this status is not described")
    described = _resolved(described)
    _check_fields(described, answer, what)
    if method != "HEAD":
        _check_body(described, answer, what)
