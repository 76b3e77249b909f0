-- The lease table and the counter of the token source.

CREATE TABLE fenceguard_counter (
  id       INTEGER PRIMARY KEY CHECK (id = 1),
  last     INTEGER NOT NULL,          -- last token drawn
  checksum INTEGER NOT NULL
);

-- Times are milliseconds of the machine's clock since boot, so that setting the wall clock moves no lease; after a
-- reboot (another boot_id) every lease counts as expired.
CREATE TABLE fenceguard_lease (
  resource   TEXT    PRIMARY KEY,
  token      INTEGER NOT NULL,
  holder     TEXT    NOT NULL,
  expires_ms INTEGER NOT NULL,
  boot_id    TEXT    NOT NULL
) WITHOUT ROWID;
