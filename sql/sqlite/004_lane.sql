-- What a lane keeps beside its fences, in front of a storage that has no check of its own.

CREATE TABLE fenceguard_lane (
  id       INTEGER PRIMARY KEY CHECK (id = 1),
  is_open  INTEGER NOT NULL,          -- 1: the last process may have left a write unfinished or unknown
  checksum INTEGER NOT NULL
);
