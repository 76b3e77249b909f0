-- The fences of one database: tables, and the view for people. MariaDB 10.6 and later; every statement of these files is
-- one of MySQL 8, too. A statement ends at a line that is //.
--
-- A fence is what is remembered per resource: the highest token seen and whose it was. Names without a database are of
-- the database in which they are installed, for the procedures as well. Only the procedures of the next files write here;
-- the users that call them need EXECUTE and no right on any table. Each table is of one partition: a temporary one that
-- has its name has none, and is found out by that (require_own_tables() in 002_rule.sql).

-- While clients write: each routine takes the place of the one before in one step, and nothing is dropped. (MySQL has no such
-- step.) A step waits for the transactions that have called what it replaces, and their callers wait behind it, so the wait has a limit.
-- The first to be replaced is judge(), which every claim calls: where a transaction stands still, that fails, before anything changed.
-- A routine whose parameters change gets another name, for those that run in between.
SET SESSION lock_wait_timeout = 5, innodb_lock_wait_timeout = 5
//
-- Stored with every routine: no setting of a caller's is in force in one.
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ONLY_FULL_GROUP_BY,ERROR_FOR_DIVISION_BY_ZERO'
//
SET NAMES utf8mb4 COLLATE utf8mb4_bin
//
-- The tables that are there. A floor and a counter are made with the first of them, and never anew: after a loss no claim is
-- let in until an administrator has set them (init(), raise_counter()).
SET @fenceguard_tables = (SELECT COALESCE(GROUP_CONCAT(t.table_name), '') FROM information_schema.tables t
  WHERE t.table_schema = DATABASE() AND t.table_name IN ('namespace', 'fences', 'counter', 'leases'))
//
-- One row: the fence of every resource that has no record of its own, which only ever rises.
CREATE TABLE IF NOT EXISTS namespace (
  only_row    TINYINT NOT NULL PRIMARY KEY DEFAULT 1,
  version     INT NOT NULL,
  floor_token BIGINT NOT NULL
) ENGINE = InnoDB PARTITION BY KEY () PARTITIONS 1
//
-- Bytes, which no collation folds or pads.
CREATE TABLE IF NOT EXISTS fences (
  resource    VARBINARY(512) NOT NULL PRIMARY KEY,
  token       BIGINT NOT NULL,
  holder      VARBINARY(128) NOT NULL,
  sequence    BIGINT,                      -- last one that took effect under this token
  closed      TINYINT NOT NULL DEFAULT 0,  -- 1: by a revoke, 2: by its own holder; a higher token opens it again
  below_floor BOOLEAN NOT NULL DEFAULT 0,  -- so that a write need not lock the floor
  updated_at  DATETIME(6) NOT NULL,        -- UTC, by the session's clock (SET timestamp): nothing is judged by it
  KEY fences_token (token)                 -- highest token, and what to compact
) ENGINE = InnoDB PARTITION BY KEY () PARTITIONS 1
//
-- How far a number may be above the highest that was seen, so that a typing error, or a client that means harm, does not
-- use up all there are: a claim's, and one that lifts the counter. For the owner to set; 0: as far as it likes. A Redis server
-- that starts again leaps by an eighth of the microseconds since it last did: within 2^44 after four years.
CREATE TABLE IF NOT EXISTS limits (
  only_row TINYINT NOT NULL PRIMARY KEY DEFAULT 1,
  jump_max BIGINT NOT NULL
) ENGINE = InnoDB PARTITION BY KEY () PARTITIONS 1
//
INSERT IGNORE INTO limits (only_row, jump_max) VALUES (1, 17592186044416)
//
-- Fences that were set by hand, and with an empty name the counter.
CREATE TABLE IF NOT EXISTS rebases (
  id         BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  resource   VARBINARY(512) NOT NULL,
  token_from BIGINT,
  token_to   BIGINT NOT NULL,
  done_by    VARCHAR(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  done_at    DATETIME(6) NOT NULL
) ENGINE = InnoDB PARTITION BY KEY () PARTITIONS 1
//
-- A row comes and goes with a transaction that changed nothing else and must be durable: InnoDB shows what is committed
-- before it is written, and a commit without changes writes nothing.
CREATE TABLE IF NOT EXISTS commit_marks (
  id VARBINARY(36) NOT NULL PRIMARY KEY
) ENGINE = InnoDB PARTITION BY KEY () PARTITIONS 1
//
-- What the names of locks are made with that a lease lives by (session_lock_name() in 005_leases.sql), so that nobody takes one
-- who only knows its resource. Readable by whoever may SELECT on this whole database; no procedure tells it.
CREATE TABLE IF NOT EXISTS lock_secret (
  only_row TINYINT NOT NULL PRIMARY KEY DEFAULT 1,
  secret   VARBINARY(128) NOT NULL,
  made_at  DATETIME(6) NOT NULL            -- UTC; when older names went out of use, which all know (005_leases.sql)
) ENGINE = InnoDB PARTITION BY KEY () PARTITIONS 1
//
INSERT INTO lock_secret (secret, made_at)
  SELECT SHA2(CONCAT(UUID(), RAND(), RAND(), SYSDATE(6), CONNECTION_ID()
                     /*M!101000 , RANDOM_BYTES(32) */ /*!80000 , RANDOM_BYTES(32) */), 512), '1970-01-01'
  FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM lock_secret)
//
-- Always empty. To delete from it gives a transaction a number of its own, by which InnoDB tells whose lock another waits
-- for: one that has only shared locks has none. An older one has no partition.
CREATE TABLE IF NOT EXISTS admissions (
  id TINYINT NOT NULL PRIMARY KEY
) ENGINE = InnoDB PARTITION BY KEY () PARTITIONS 1
//
SET @fenceguard_step = IF(
  EXISTS (SELECT 1 FROM information_schema.partitions p WHERE p.table_schema = DATABASE() AND p.table_name = 'admissions'
          AND p.partition_name IS NOT NULL),
  'DO 0', 'ALTER TABLE admissions PARTITION BY KEY () PARTITIONS 1')
//
PREPARE fenceguard_step FROM @fenceguard_step
//
EXECUTE fenceguard_step
//
DEALLOCATE PREPARE fenceguard_step
//
-- What people look at. It names no holder: token and holder together are a claim.
CREATE OR REPLACE VIEW fence AS
  SELECT CONVERT(f.resource USING utf8mb4) AS resource, f.token, f.sequence, f.closed <> 0 AS closed, f.updated_at FROM fences f
//
INSERT INTO namespace (only_row, version, floor_token) SELECT 1, 1, 0 FROM DUAL WHERE @fenceguard_tables = ''
//
-- A floor without the fences above it is none.
DELETE FROM namespace WHERE @fenceguard_tables <> '' AND NOT FIND_IN_SET('fences', @fenceguard_tables)
//
