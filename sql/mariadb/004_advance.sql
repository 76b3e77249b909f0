-- What a new holder, and an administrator, do to a fence. Each is a transaction of its own, READ COMMITTED, in which no
-- gap is locked, and fails with 1568 inside of another. The namespace's row is locked before a fence's. What is SQL SECURITY
-- INVOKER is an administrator's, who has the rights on the tables, or is called by one of the others, with theirs.

-- The time within which a lock is to be had, in seconds. Answers what it was.
DROP PROCEDURE IF EXISTS limit_lock_wait
//
CREATE PROCEDURE limit_lock_wait(INOUT seconds INT)
NO SQL
BEGIN
  DECLARE before_that INT DEFAULT @@session.innodb_lock_wait_timeout;
  SET SESSION innodb_lock_wait_timeout = seconds;
  SET seconds = before_that;
END
//
DROP PROCEDURE IF EXISTS require_floor
//
CREATE PROCEDURE require_floor(floor_token BIGINT)
NO SQL
IF floor_token IS NULL THEN
  SIGNAL SQLSTATE 'ZF008' SET MESSAGE_TEXT = 'the fences have no floor, and no state is not a licence: run fenceguard fence init';
END IF
//
-- REQUIRES: a transaction is open and reads what is committed. Makes its commit durable though it changes nothing else.
DROP PROCEDURE IF EXISTS mark_commit
//
CREATE PROCEDURE mark_commit()
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE mark VARBINARY(36) DEFAULT UUID();
  INSERT INTO commit_marks (id) VALUES (mark);
  DELETE FROM commit_marks WHERE id = mark;
END
//
-- REQUIRES: as above. Locks the fence alone, and judges; raises it where that is the verdict.
DROP PROCEDURE IF EXISTS raise_fence
//
CREATE PROCEDURE raise_fence(
  resource VARBINARY(512), new_token BIGINT, new_holder VARBINARY(128), floor_token BIGINT,
  OUT verdict VARCHAR(16) CHARACTER SET ascii, OUT highest BIGINT, OUT changed BOOLEAN)
MODIFIES SQL DATA
SQL SECURITY INVOKER
rule: BEGIN
  DECLARE record_token, record_sequence BIGINT;
  DECLARE record_holder VARBINARY(128);
  DECLARE is_closed BOOLEAN;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  SET changed = FALSE;
  -- A fence only rises: what is refused by what is there now stays refused, and what equals it is admitted without a wait
  -- for the writers of this very token.
  SELECT f.token, f.holder, f.sequence, f.closed INTO record_token, record_holder, record_sequence, is_closed
  FROM fences f WHERE f.resource = resource;
  SET highest = GREATEST(COALESCE(record_token, 0), floor_token);
  SET verdict = judge(record_token, record_holder, record_sequence, is_closed, floor_token, new_token, new_holder, NULL);
  IF verdict <> 'advance' THEN LEAVE rule; END IF;
  IF record_token IS NULL THEN
    -- One of two that come at once waits for the other's row, and gets it alone; it then judges what is in it.
    INSERT INTO fences (resource, token, holder, updated_at) VALUES (resource, new_token, new_holder, UTC_TIMESTAMP(6))
    ON DUPLICATE KEY UPDATE token = fences.token;
  END IF;
  SELECT f.token, f.holder, f.sequence, f.closed INTO record_token, record_holder, record_sequence, is_closed
  FROM fences f WHERE f.resource = resource FOR UPDATE;
  SET verdict = judge(record_token, record_holder, record_sequence, is_closed, floor_token, new_token, new_holder, NULL);
  SET changed = verdict = 'advance' OR (highest < new_token AND record_token = new_token AND verdict = 'admitted');
  IF verdict = 'advance' THEN
    INSERT INTO fences (resource, token, holder, updated_at) VALUES (resource, new_token, new_holder, UTC_TIMESTAMP(6))
    ON DUPLICATE KEY UPDATE token = new_token, holder = new_holder, sequence = NULL, closed = FALSE, below_floor = FALSE,
      updated_at = UTC_TIMESTAMP(6);
    SET verdict = 'admitted';
    SET record_token = new_token;
  END IF;
  SET highest = GREATEST(record_token, floor_token);
END
//
-- Judges the claim alone, before the new holder's first read: waits until every transaction that was let in with a lower
-- token is over, drain_s seconds at most (null: 5), and commits durably. A row: verdict, highest afterwards, and whether
-- the fence was raised. jump_max: a token that is more than this above the highest seen is 'implausible'; null is no bound.
-- Raises 1205 where an older transaction is still open: nothing was done, and no writer is held up any more.
DROP PROCEDURE IF EXISTS try_advance
//
CREATE PROCEDURE try_advance(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4, drain_s INT, jump_max BIGINT)
MODIFIES SQL DATA
BEGIN
  DECLARE verdict VARCHAR(16) CHARACTER SET ascii;
  DECLARE highest BIGINT;
  DECLARE changed BOOLEAN;
  CALL advance_alone(resource, token, holder, COALESCE(drain_s, 5), jump_max, verdict, highest, changed);
  SELECT verdict, highest, changed;
END
//
-- The same, raising for a refusal.
DROP PROCEDURE IF EXISTS advance
//
CREATE PROCEDURE advance(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
BEGIN
  DECLARE verdict VARCHAR(16) CHARACTER SET ascii;
  DECLARE highest BIGINT;
  DECLARE changed BOOLEAN;
  CALL advance_alone(resource, token, holder, 5, NULL, verdict, highest, changed);
  IF verdict <> 'admitted' THEN CALL refuse(verdict, read_number(token, 1), highest); END IF;
  SELECT verdict, highest;
END
//
DROP PROCEDURE IF EXISTS advance_alone
//
CREATE PROCEDURE advance_alone(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4, lock_wait INT, jump_max BIGINT,
  OUT verdict VARCHAR(16) CHARACTER SET ascii, OUT highest BIGINT, OUT changed BOOLEAN)
MODIFIES SQL DATA
ruling: BEGIN
  DECLARE floor_token, number, turn, seen BIGINT;
  DECLARE name VARBINARY(512);
  DECLARE owner VARBINARY(128);
  DECLARE is_limited BOOLEAN DEFAULT FALSE;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    IF is_limited THEN
      ROLLBACK;
      CALL limit_lock_wait(lock_wait);
    END IF;
    RESIGNAL;
  END;
  CALL require_fit_server();
  CALL read_claim(resource, token, holder, NULL, name, number, owner, turn);
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  CALL limit_lock_wait(lock_wait);
  SET is_limited = TRUE;
  START TRANSACTION READ WRITE;
  SELECT n.floor_token INTO floor_token FROM namespace n LOCK IN SHARE MODE;
  CALL require_floor(floor_token);
  IF jump_max IS NOT NULL THEN
    SELECT GREATEST(floor_token, COALESCE(MAX(f.token), 0)) INTO seen FROM fences f;
  END IF;
  IF number > seen AND number - seen > jump_max THEN
    SET verdict = 'implausible';
    SET highest = seen;
    SET changed = FALSE;
  ELSE
    CALL raise_fence(name, number, owner, floor_token, verdict, highest, changed);
    -- What is on record may rest on a commit whose end was not seen, or is not durable yet.
    IF verdict = 'admitted' THEN
      -- Where it is refused if a newer one was committed on another server before.
      IF is_certified() THEN
        UPDATE fences f SET f.updated_at = GREATEST(UTC_TIMESTAMP(6), f.updated_at + INTERVAL 1 MICROSECOND)
        WHERE f.resource = name;
      ELSE
        CALL mark_commit();
      END IF;
    END IF;
  END IF;
  CALL require_fit_server();  -- it may have become a replica while this waited
  COMMIT;
  CALL limit_lock_wait(lock_wait);
END
//
-- Closes a fence: its present token is refused from now on, and a higher one opens it again. lease_token, lease_holder: a
-- lease that is cut off with it although it has not advanced yet; null: none. Waits as an advance does.
DROP PROCEDURE IF EXISTS revoke_fence
//
CREATE PROCEDURE revoke_fence(
  resource LONGTEXT CHARACTER SET utf8mb4, lease_token LONGTEXT CHARACTER SET utf8mb4,
  lease_holder LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
SQL SECURITY INVOKER
CALL set_fence_alone(resource, lease_token, lease_holder, NULL)
//
-- A holder gives its claim back, and writes no more under it: closes the fence if that still equals the claim.
DROP PROCEDURE IF EXISTS finish
//
CREATE PROCEDURE finish(
  resource VARCHAR(600) CHARACTER SET utf8mb4, token VARCHAR(40) CHARACTER SET utf8mb4,
  holder VARCHAR(140) CHARACTER SET utf8mb4)
MODIFIES SQL DATA
BEGIN
  DECLARE number, turn BIGINT;
  DECLARE name VARBINARY(512);
  DECLARE owner VARBINARY(128);
  DECLARE is_begun BOOLEAN DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    IF is_begun THEN ROLLBACK; END IF;
    RESIGNAL;
  END;
  CALL require_fit_server();
  CALL read_claim(resource, token, holder, NULL, name, number, owner, turn);
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  SET is_begun = TRUE;
  START TRANSACTION READ WRITE;
  UPDATE fences f SET f.closed = TRUE, f.updated_at = UTC_TIMESTAMP(6)
  WHERE f.resource = name AND f.token = number AND f.holder = owner;
  COMMIT;
END
//
-- Sets a fence by hand, closed, and records the operator. Lowering one forfeits the guarantee that no stale write lands.
DROP PROCEDURE IF EXISTS rebase
//
CREATE PROCEDURE rebase(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  done_by VARCHAR(256) CHARACTER SET utf8mb4)
MODIFIES SQL DATA
SQL SECURITY INVOKER
CALL set_fence_alone(resource, token, '', COALESCE(done_by, USER()))
//
DROP PROCEDURE IF EXISTS set_fence_alone
//
CREATE PROCEDURE set_fence_alone(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4, rebased_by VARCHAR(256) CHARACTER SET utf8mb4)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE floor_token, number, turn, record_token BIGINT;
  DECLARE name VARBINARY(512);
  DECLARE owner VARBINARY(128);
  DECLARE lock_wait INT DEFAULT 5;
  DECLARE is_limited BOOLEAN DEFAULT FALSE;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    IF is_limited THEN
      ROLLBACK;
      CALL limit_lock_wait(lock_wait);
    END IF;
    RESIGNAL;
  END;
  CALL require_fit_server();
  CALL read_claim(resource, IF(rebased_by IS NULL, COALESCE(token, 1), token), holder, NULL, name, number, owner, turn);
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  CALL limit_lock_wait(lock_wait);
  SET is_limited = TRUE;
  START TRANSACTION READ WRITE;
  SELECT n.floor_token INTO floor_token FROM namespace n LOCK IN SHARE MODE;
  CALL require_floor(floor_token);
  SELECT f.token INTO record_token FROM fences f WHERE f.resource = name FOR UPDATE;
  IF rebased_by IS NOT NULL THEN
    INSERT INTO rebases (resource, token_from, token_to, done_by, done_at)
    VALUES (name, record_token, number, rebased_by, UTC_TIMESTAMP(6));
  END IF;
  IF rebased_by IS NOT NULL OR (token IS NOT NULL AND number > GREATEST(COALESCE(record_token, 0), floor_token)) THEN
    INSERT INTO fences (resource, token, holder, closed, below_floor, updated_at)
    VALUES (name, number, owner, TRUE, number < floor_token, UTC_TIMESTAMP(6))
    ON DUPLICATE KEY UPDATE
      closed = TRUE,
      holder = IF(rebased_by IS NOT NULL OR number > fences.token, owner, fences.holder),
      sequence = IF(rebased_by IS NOT NULL OR number > fences.token, NULL, fences.sequence),
      below_floor = IF(rebased_by IS NOT NULL OR number > fences.token, number < floor_token, fences.below_floor),
      updated_at = UTC_TIMESTAMP(6),
      token = IF(rebased_by IS NOT NULL OR number > fences.token, number, fences.token);
  ELSE
    UPDATE fences f SET f.closed = TRUE, f.updated_at = UTC_TIMESTAMP(6) WHERE f.resource = name;
  END IF;
  COMMIT;
  CALL limit_lock_wait(lock_wait);
END
//
-- Makes this number the floor, or leaves a higher one: after a restore, or for a source that issued tokens before. A row:
-- the floor.
DROP PROCEDURE IF EXISTS init
//
CREATE PROCEDURE init(floor_text LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE number, floor_token BIGINT DEFAULT read_number(floor_text, 0);
  DECLARE lock_wait INT DEFAULT 5;
  DECLARE is_limited BOOLEAN DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    IF is_limited THEN
      ROLLBACK;
      CALL limit_lock_wait(lock_wait);
    END IF;
    RESIGNAL;
  END;
  IF number IS NULL THEN CALL invalid('a floor is a number from 0 to 9223372036854775807'); END IF;
  CALL require_fit_server();
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  CALL limit_lock_wait(lock_wait);
  SET is_limited = TRUE;
  START TRANSACTION READ WRITE;
  INSERT INTO namespace (only_row, version, floor_token) VALUES (1, 1, number)
  ON DUPLICATE KEY UPDATE floor_token = GREATEST(namespace.floor_token, number);
  SELECT n.floor_token INTO floor_token FROM namespace n FOR UPDATE;
  UPDATE fences f SET f.below_floor = TRUE WHERE f.token < floor_token AND NOT f.below_floor;
  CALL mark_commit();
  COMMIT;
  CALL limit_lock_wait(lock_wait);
  SELECT floor_token;
END
//
-- Folds every record with a token lower than lowest_live into the floor. Only where all tokens of these fences come from
-- one counter, and lowest_live is the lowest that is held or awaited there. It waits briefly, because others wait for it;
-- 1205: another time. A row: how many were dropped, and the floor.
DROP PROCEDURE IF EXISTS compact
//
CREATE PROCEDURE compact(lowest_live LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE live, highest, dropped, floor_token BIGINT;
  DECLARE lock_wait INT DEFAULT 1;
  DECLARE is_limited BOOLEAN DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    IF is_limited THEN
      ROLLBACK;
      CALL limit_lock_wait(lock_wait);
    END IF;
    RESIGNAL;
  END;
  SET live = read_number(lowest_live, 1);
  IF live IS NULL THEN CALL invalid('a token is a number from 1 to 9223372036854775807'); END IF;
  CALL require_fit_server();
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  CALL limit_lock_wait(lock_wait);
  SET is_limited = TRUE;
  START TRANSACTION READ WRITE;
  SELECT n.floor_token INTO floor_token FROM namespace n FOR UPDATE;
  CALL require_floor(floor_token);
  SELECT COUNT(*), COALESCE(MAX(f.token), 0) INTO dropped, highest FROM fences f WHERE f.token < live FOR UPDATE;
  DELETE FROM fences WHERE token < live;
  SET floor_token = GREATEST(floor_token, highest);
  UPDATE namespace n SET n.floor_token = floor_token;
  COMMIT;
  CALL limit_lock_wait(lock_wait);
  SELECT dropped, floor_token;
END
//
