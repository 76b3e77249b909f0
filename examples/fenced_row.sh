#!/bin/bash
# usage: fenced_row.sh FILE BALANCE      under 'fenceguard exec', which sets FENCING_TOKEN and FENCING_HOLDER
# Ends with status 1 if the write was refused.
set -euo pipefail
# In hexadecimal, so that nothing needs quoting.
holder=$(printf %s "$FENCING_HOLDER" | od -An -v -tx1 | tr -d ' \n')
answers=$(sqlite3 "$1" ".timeout 5000" ".param set :token $FENCING_TOKEN" \
  ".param set :holder \"CAST(X'$holder' AS TEXT)\"" ".param set :balance $(($2))" \
  ".read $(dirname "$0")/fenced_row.sql")
[[ "$(tail -n 1 <<<"$answers")" == 1 ]] || { echo "refused: a newer token was seen" >&2; exit 1; }
