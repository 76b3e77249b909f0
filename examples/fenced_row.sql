-- A row that keeps its own fence: for a database that the library does not reach, with any source of tokens.
-- One statement judges and writes, so there is nothing between the two. Runs in SQLite as it stands:
--
--   fenceguard exec --source sqlite:/srv/leases.db --init --resource accounts/42 -- ./fenced_row.sh bank.db 70
--
-- It prints 1 (admitted) or 0 (refused: stale, or another holder of the same number), once for the advance and
-- once for the write.

CREATE TABLE IF NOT EXISTS account (
  id           INTEGER PRIMARY KEY,
  balance      INTEGER NOT NULL,
  fence_token  INTEGER NOT NULL DEFAULT 0,   -- the highest token seen
  fence_holder TEXT    NOT NULL DEFAULT ''   -- whose it is: a source can issue one number twice
);
INSERT INTO account (id, balance) VALUES (42, 100) ON CONFLICT DO NOTHING;

-- Advance before the first read, or an older holder's delayed write can still land between it and the write.
UPDATE account SET fence_token = :token, fence_holder = :holder
 WHERE id = 42 AND (fence_token < :token OR (fence_token = :token AND fence_holder = :holder));
SELECT changes();

-- Write under the same condition; every write to the row must carry it.
UPDATE account SET balance = :balance, fence_token = :token, fence_holder = :holder
 WHERE id = 42 AND (fence_token < :token OR (fence_token = :token AND fence_holder = :holder));
SELECT changes();
