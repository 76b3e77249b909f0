-- The fences of one namespace. Written by the library and the server only: each row carries a checksum over its
-- other columns, so that a damaged one is noticed and never believed.

CREATE TABLE fenceguard_schema (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  version INTEGER NOT NULL            -- number of the last of these files that was applied
);

-- One row, written by 'fenceguard fence init' or by installing. No row: namespace not initialised, claims are refused.
CREATE TABLE fenceguard_namespace (
  id             INTEGER PRIMARY KEY CHECK (id = 1),
  floor          INTEGER NOT NULL,    -- the fence of every resource that has no record; only ever rises
  highest        INTEGER NOT NULL,    -- highest token seen, floor included
  resources      INTEGER NOT NULL,    -- rows in fenceguard_fence
  object_version INTEGER NOT NULL,    -- last version given to an object
  generation     TEXT    NOT NULL,    -- random, so that versions of two files never look alike
  checksum       INTEGER NOT NULL
);

CREATE TABLE fenceguard_fence (
  resource   TEXT    PRIMARY KEY,
  token      INTEGER NOT NULL,        -- highest token seen
  holder     TEXT    NOT NULL,
  sequence   INTEGER,                 -- last one that took effect under this token
  closed     INTEGER NOT NULL,        -- 1: by a revoke; a higher token opens it again
  checksum   INTEGER NOT NULL
) WITHOUT ROWID;

-- Fences that were set by hand.
CREATE TABLE fenceguard_rebase (
  resource   TEXT    NOT NULL,
  token_from INTEGER NOT NULL,
  token_to   INTEGER NOT NULL,
  done_by    TEXT    NOT NULL,
  done_at    TEXT    NOT NULL
);
