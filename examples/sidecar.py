#!/usr/bin/python3
"""A fenced read-modify-write from Python, through a running guard (fenceguard serve). Standard library only.

usage: sidecar.py ACCOUNT AMOUNT        adds AMOUNT to the balance of ACCOUNT
Where the guard is: FENCEGUARD_DATA and FENCEGUARD_CONTROL, by default http://127.0.0.1:7420 and :7421.
"""

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request

DATA = os.environ.get("FENCEGUARD_DATA", "http://127.0.0.1:7420")
CONTROL = os.environ.get("FENCEGUARD_CONTROL", "http://127.0.0.1:7421")
ATTEMPTS_MAX = 5


class Refused(Exception):
    """The claim is stale or in conflict: nothing was written. Roll back, take the lock again."""


def call(method, url, body=None, headers=None):
    """The answer's status, headers and body, whatever the status. Raises OSError where there is no answer."""
    request = urllib.request.Request(url, data=body, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


class Lease:
    """A lock that is held for ttl_ms. The guard was advanced before the lease was granted."""

    def __init__(self, resource, ttl_ms=10_000, wait_ms=30_000):
        wish = json.dumps({"resource": resource, "ttl_ms": ttl_ms, "wait_ms": wait_ms}).encode()
        status, _, body = call("POST", f"{CONTROL}/v1/leases", wish, {"Content-Type": "application/json"})
        if status not in (200, 201):
            raise TimeoutError(f"{resource} was not granted: {status} {body.decode()}")
        grant = json.loads(body)
        self.path = urllib.parse.quote(resource)
        # The token is text: it may exceed what a float can count.
        self.claim = {"Fencing-Token": grant["token"], "Fencing-Holder": grant["holder"]}

    def read(self):
        """The object of the resource, or None. A fenced read: refused if a newer holder was seen."""
        status, _, body = self._fenced("GET")
        return None if status == 404 else body

    def write(self, body):
        status, _, answer = self._fenced("PUT", body)
        if status >= 300:
            raise RuntimeError(f"not written: {status} {answer.decode()}")

    def release(self):
        call("DELETE", f"{CONTROL}/v1/leases/{self.path}", headers=self.claim)

    def _fenced(self, method, body=None):
        status, headers, answer = call(method, f"{DATA}/{self.path}", body, self.claim)
        if headers.get("Fencing-Verdict") in ("stale", "conflict"):
            raise Refused(answer.decode())
        return status, headers, answer


def add(resource, amount):
    """Adds amount to the number kept at resource, and returns the sum."""
    for _ in range(ATTEMPTS_MAX):
        lease = Lease(resource)
        try:
            total = int(lease.read() or 0) + amount
            lease.write(str(total).encode())
            return total
        except Refused:
            continue
        finally:
            lease.release()
    raise TimeoutError(f"{resource}: refused {ATTEMPTS_MAX} times")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(add(f"accounts/{sys.argv[1]}", int(sys.argv[2])))
