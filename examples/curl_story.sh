#!/bin/bash
# The story in curl, against a running guard:  fenceguard serve
# A takes a lease and stops for too long; B takes the lock and writes; A wakes up, writes too, and is refused.
data=${DATA:-http://127.0.0.1:7420}
control=${CONTROL:-http://127.0.0.1:7421}

lease() { curl -s "$control/v1/leases" -H 'Content-Type: application/json' -d "$1"; }
field() { sed -n 's/.*"'"$1"'" *: *"\([^"]*\)".*/\1/p'; }
put() { # LEASE BODY
  curl -s -o /dev/null -w '%{http_code} %header{fencing-verdict}\n' -X PUT "$data/accounts/42" -d "$2" \
    -H "Fencing-Token: $(field token <<<"$1")" -H "Fencing-Holder: $(field holder <<<"$1")"
}

a=$(lease '{"resource": "accounts/42", "ttl_ms": 500}')
echo "A is granted token $(field token <<<"$a")"
echo "A writes 100:      $(put "$a" 100)"
# A is silent from here on. B waits until A's lease has run out.
b=$(lease '{"resource": "accounts/42", "ttl_ms": 10000, "wait_ms": 5000}')
echo "B is granted token $(field token <<<"$b")"
echo "B writes 70:       $(put "$b" 70)"
echo "A writes 130:      $(put "$a" 130)"
echo "What is kept:      $(curl -s "$data/accounts/42")"
