-- Where old holders are cut off: what is owed before a newer token goes on.

CREATE TABLE fenceguard_cut (
  resource TEXT    PRIMARY KEY,
  token    INTEGER NOT NULL,          -- all holders up to this token are not known to be cut off
  checksum INTEGER NOT NULL
) WITHOUT ROWID;
