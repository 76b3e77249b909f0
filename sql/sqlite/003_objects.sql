-- The objects of the embedded storage, written in the same transaction as their fence.

CREATE TABLE fenceguard_object (
  path         TEXT    PRIMARY KEY,
  body         BLOB    NOT NULL,
  content_type TEXT    NOT NULL,
  version      INTEGER NOT NULL,      -- the ETag, with the namespace's generation
  checksum     INTEGER NOT NULL
) WITHOUT ROWID;
