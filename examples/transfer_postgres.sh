#!/usr/bin/env bash
# Moves money between two accounts with psql alone: takes both locks, advances, reads, thinks, and writes both
# balances in one transaction that judges both claims. Whoever thought for too long is refused.
#
#   transfer_postgres.sh postgres://USER@HOST/DATABASE FROM TO AMOUNT
#
# Once before: fenceguard sql postgres | psql, and CREATE TABLE account (id bigint PRIMARY KEY, balance bigint).
# TTL (10 s) is how long the locks last, THINK_S (0) how long it thinks. Exit status: 0 done; 1 an account is
# locked by somebody else, or the locks were lost: nothing was written, try again; 2 psql could not tell the end.
set -euo pipefail
url=$1
status=0
psql -XqAt -v ON_ERROR_STOP=1 -v from="$2" -v to="$3" -v amount="$4" -v ttl="${TTL:-10 s}" "$url" <<'SQL' || status=$?
-- The lower account first, so that two transfers do not wait for each other.
SELECT 'accounts/' || least(:from, :to) AS a, 'accounts/' || greatest(:from, :to) AS b \gset
SELECT verdict = 'granted' AS has_a, token AS token_a, granted_to AS holder_a FROM fenceguard.acquire(:'a', :'ttl') \gset
\if :has_a
\else
  DO $$ BEGIN RAISE EXCEPTION 'the account is locked by somebody else'; END $$;
\endif
SELECT verdict = 'granted' AS has_b, token AS token_b, granted_to AS holder_b FROM fenceguard.acquire(:'b', :'ttl') \gset
\if :has_b
\else
  SELECT fenceguard.release(:'a', :token_a, :'holder_a') AS ignored \gset
  DO $$ BEGIN RAISE EXCEPTION 'the account is locked by somebody else'; END $$;
\endif

-- Before the first read: what older holders still write lands before, or never.
SELECT fenceguard.advance(:'a', :token_a, :'holder_a') AS ignored \gset
SELECT fenceguard.advance(:'b', :token_b, :'holder_b') AS ignored \gset
SELECT balance - :amount AS from_balance FROM account WHERE id = :from \gset
SELECT balance + :amount AS to_balance FROM account WHERE id = :to \gset
\! sleep "${THINK_S:-0}"

BEGIN;
SELECT count(*) AS ignored FROM fenceguard.admit_all(jsonb_build_array(
  jsonb_build_object('resource', :'a', 'token', :'token_a', 'holder', :'holder_a'),
  jsonb_build_object('resource', :'b', 'token', :'token_b', 'holder', :'holder_b'))) \gset
UPDATE account SET balance = :from_balance WHERE id = :from;
UPDATE account SET balance = :to_balance WHERE id = :to;
COMMIT;
\echo moved
SELECT fenceguard.release(:'a', :token_a, :'holder_a'), fenceguard.release(:'b', :token_b, :'holder_b') \g /dev/null
SQL
# psql says 3 for a statement that failed and 2 for a lost connection.
case $status in
  0) ;;
  3) exit 1 ;;
  *) exit 2 ;;
esac
