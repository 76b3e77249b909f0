-- The rule, what a claim is, and how a refusal is told. Nothing here writes anything.

-- Judges a claim against what is on record (nulls: no record) and the floor. The twin of judge() in guard/judge.cpp; both
-- answer the shared table of cases, tests/judge_cases.tsv. 'advance': admitted, and the fence is to be raised.
/*M! DO 0 */ /*!80000 DROP FUNCTION IF EXISTS judge */
//
CREATE /*M! OR REPLACE */ FUNCTION judge(
  record_token BIGINT, record_holder VARBINARY(128), record_sequence BIGINT, record_closed BOOLEAN,
  floor_token BIGINT, token BIGINT, holder VARBINARY(128), sequence BIGINT)
RETURNS VARCHAR(16) CHARACTER SET ascii DETERMINISTIC NO SQL
RETURN CASE
  WHEN token = record_token AND record_token >= floor_token THEN
    CASE
      WHEN record_closed THEN 'stale'
      WHEN holder <> record_holder THEN 'conflict'
      WHEN sequence IS NULL OR record_sequence IS NULL OR sequence > record_sequence THEN 'admitted'
      WHEN sequence = record_sequence THEN 'duplicate'
      ELSE 'stale'
    END
  WHEN token > GREATEST(COALESCE(record_token, 0), floor_token) THEN 'advance'
  ELSE 'stale'
END
//
-- A number of low to 9223372036854775807 in its only spelling; null for everything else. A parameter of type BIGINT would
-- make the highest token of a number that is too large, and 12 of '12x', with a warning at most.
/*M! DO 0 */ /*!80000 DROP FUNCTION IF EXISTS read_number */
//
CREATE /*M! OR REPLACE */ FUNCTION read_number(digits LONGTEXT CHARACTER SET utf8mb4, low INT) RETURNS BIGINT DETERMINISTIC NO SQL
RETURN CASE
  WHEN digits REGEXP '^(0|[1-9][0-9]{0,18})$' AND digits NOT REGEXP '[^0-9]'
       AND CAST(digits AS DECIMAL(20)) BETWEEN low AND 9223372036854775807
    THEN CAST(digits AS SIGNED)
END
//
-- What is wrong with the name of a resource, as a sentence; null if it is one. See guard/resource.hpp.
/*M! DO 0 */ /*!80000 DROP FUNCTION IF EXISTS objection */
//
CREATE /*M! OR REPLACE */ FUNCTION objection(resource LONGTEXT CHARACTER SET utf8mb4)
RETURNS VARCHAR(100) CHARACTER SET utf8mb4 DETERMINISTIC NO SQL
RETURN CASE
  WHEN resource IS NULL THEN 'a resource is missing: it is null'
  WHEN resource = '' OR LENGTH(resource) > 512 THEN 'a resource has a name of 1 to 512 bytes'
  WHEN resource REGEXP '[\\x{1}-\\x{1f}\\x{7f}-\\x{9f}]' OR INSTR(resource, CHAR(0 USING utf8mb4)) > 0
    THEN 'a resource''s name has no control characters'
  WHEN resource REGEXP '(^|/)(/|$)' THEN 'a resource has no empty segment: no slash at either end, no two in a row'
  WHEN resource REGEXP '(^|/)[.]{1,2}(/|$)' THEN 'a resource has no dot segment (''.'' or ''..'')'
END
//
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS invalid */
//
CREATE /*M! OR REPLACE */ PROCEDURE invalid(sentence VARCHAR(128) CHARACTER SET utf8mb4)
NO SQL
SIGNAL SQLSTATE '22023' SET MESSAGE_TEXT = sentence
//
-- The parts of a claim as they are kept; raises 22023 for what is none. The text parameters have room for all that can be
-- said: a session cuts off what is too long, or fails in strict mode, before the procedure sees it and can end the transaction.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS read_claim */
//
CREATE /*M! OR REPLACE */ PROCEDURE read_claim(
  resource_text LONGTEXT CHARACTER SET utf8mb4, token_text LONGTEXT CHARACTER SET utf8mb4,
  holder_text LONGTEXT CHARACTER SET utf8mb4, sequence_text LONGTEXT CHARACTER SET utf8mb4,
  OUT resource VARBINARY(512), OUT token BIGINT, OUT holder VARBINARY(128), OUT sequence BIGINT)
NO SQL
BEGIN
  DECLARE wrong VARCHAR(128) CHARACTER SET utf8mb4 DEFAULT objection(resource_text);
  IF wrong IS NOT NULL THEN CALL invalid(wrong); END IF;
  IF token_text IS NULL THEN CALL refuse('missing', NULL, NULL); END IF;
  SET token = read_number(token_text, 1);
  IF token IS NULL THEN CALL invalid('a token is a number from 1 to 9223372036854775807'); END IF;
  SET holder_text = COALESCE(holder_text, '');
  -- The range alone would fold case, and let in what folds to ASCII.
  IF LENGTH(holder_text) > 128 OR LENGTH(holder_text) <> CHAR_LENGTH(holder_text) OR holder_text REGEXP '[^!-~]' THEN
    CALL invalid('a holder is up to 128 bytes of visible ASCII without spaces');
  END IF;
  SET sequence = read_number(sequence_text, 0);
  IF sequence_text IS NOT NULL AND sequence IS NULL THEN
    CALL invalid('a sequence is a number from 0 to 9223372036854775807');
  END IF;
  SET resource = CAST(resource_text AS BINARY);
  SET holder = CAST(holder_text AS BINARY);
END
//
-- Raises ZF001 (stale), ZF002 (conflict), ZF003 (missing), ZF004 (implausible), ZF007 (outside of a transaction) or 40001
-- (advance first). The message is JSON of less than 128 characters, which is all that MySQL keeps; it never names the
-- present holder.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS refuse */
//
CREATE /*M! OR REPLACE */ PROCEDURE refuse(verdict VARCHAR(16) CHARACTER SET utf8mb4, token BIGINT, highest BIGINT)
NO SQL
BEGIN
  DECLARE message VARCHAR(128) CHARACTER SET utf8mb4;
  SET message = CONCAT('{"verdict":"', verdict, '","token":', COALESCE(CONCAT('"', token, '"'), 'null'),
                       ',"highest":', COALESCE(CONCAT('"', highest, '"'), 'null'), '}');
  CASE verdict
    WHEN 'stale' THEN SIGNAL SQLSTATE 'ZF001' SET MESSAGE_TEXT = message;
    WHEN 'conflict' THEN SIGNAL SQLSTATE 'ZF002' SET MESSAGE_TEXT = message;
    WHEN 'missing' THEN SIGNAL SQLSTATE 'ZF003' SET MESSAGE_TEXT = message;
    WHEN 'implausible' THEN SIGNAL SQLSTATE 'ZF004' SET MESSAGE_TEXT = message;
    WHEN 'outside' THEN SIGNAL SQLSTATE 'ZF007' SET MESSAGE_TEXT = message;
    ELSE SIGNAL SQLSTATE '40001' SET MESSAGE_TEXT = message;
  END CASE;
END
//
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS refuse_hidden */
//
CREATE /*M! OR REPLACE */ PROCEDURE refuse_hidden()
NO SQL
SIGNAL SQLSTATE 'ZF008' SET MESSAGE_TEXT = 'a temporary table of this session hides one of the fences'' tables: drop it'
//
-- A temporary table of the session's hides the database's own of its name, from the procedures as well. It has no
-- partitions, which tells. (A view over the table does not help: it can be hidden itself.)
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS require_own_fences */
//
CREATE /*M! OR REPLACE */ PROCEDURE require_own_fences()
READS SQL DATA
BEGIN
  DECLARE EXIT HANDLER FOR 1747 CALL refuse_hidden();
  IF EXISTS (SELECT 1 FROM fences PARTITION (p0), namespace PARTITION (p0), admissions PARTITION (p0) WHERE FALSE) THEN
    DO 0;
  END IF;
END
//
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS require_own_tables */
//
CREATE /*M! OR REPLACE */ PROCEDURE require_own_tables()
READS SQL DATA
BEGIN
  DECLARE EXIT HANDLER FOR 1747 CALL refuse_hidden();
  CALL require_own_fences();
  IF EXISTS (SELECT 1 FROM rebases PARTITION (p0), commit_marks PARTITION (p0),
               counter PARTITION (p0), leases PARTITION (p0), lock_secret PARTITION (p0) WHERE FALSE) THEN
    DO 0;
  END IF;
END
//
-- For what looks at the limit: an admission does not.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS require_own_limits */
//
CREATE /*M! OR REPLACE */ PROCEDURE require_own_limits()
READS SQL DATA
BEGIN
  DECLARE EXIT HANDLER FOR 1747 CALL refuse_hidden();
  IF EXISTS (SELECT 1 FROM limits PARTITION (p0) WHERE FALSE) THEN
    DO 0;
  END IF;
END
//
-- Raises ZF008 where a fence that is raised here would not be there after a crash, or not be the one that counts: the
-- procedures run with their definer's rights, which may well be above read_only.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS require_fit_server */
//
CREATE /*M! OR REPLACE */ PROCEDURE require_fit_server()
NO SQL
BEGIN
  IF CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF') THEN
    SIGNAL SQLSTATE 'ZF008' SET MESSAGE_TEXT = 'this server is read_only: go to the primary';
  END IF;
  IF @@global.innodb_flush_log_at_trx_commit NOT IN (1, 3) THEN
    SIGNAL SQLSTATE 'ZF008' SET MESSAGE_TEXT = 'a commit is not durable here: set innodb_flush_log_at_trx_commit = 1';
  END IF;
  IF @@global.log_bin AND @@global.sync_binlog <> 1 THEN
    SIGNAL SQLSTATE 'ZF008' SET MESSAGE_TEXT = 'a commit is not durable here: set sync_binlog = 1, as there is a binary log';
  END IF;
END
//
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS require_floor */
//
CREATE /*M! OR REPLACE */ PROCEDURE require_floor(floor_token BIGINT)
NO SQL
IF floor_token IS NULL THEN
  SIGNAL SQLSTATE 'ZF008' SET MESSAGE_TEXT = 'namespace not initialised (no floor): claims are refused; run fenceguard fence init';
END IF
//
