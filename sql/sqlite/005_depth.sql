-- How the names of resources were made, so that no guard judges the same path under another name.

CREATE TABLE fenceguard_depth (
  id       INTEGER PRIMARY KEY CHECK (id = 1),
  depth    INTEGER NOT NULL,          -- as --resource-depth: the first so many segments of a path; 0: all of them
  checksum INTEGER NOT NULL
);
