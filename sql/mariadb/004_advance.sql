-- What a new holder, and an administrator, do to a fence. Each is a transaction of its own, READ COMMITTED, in which no
-- gap is locked, and fails with 1568 inside of another. The namespace's row is locked before a fence's. What is SQL SECURITY
-- INVOKER is an administrator's, who has the rights on the tables, or is called by one of the others, with theirs.

-- What each begins with: a lock is to be had within so many seconds. No table is read before, which without autocommit
-- begins a transaction. A procedure that fails sets no OUT parameter: it rolls back what it began.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS begin_alone */
//
CREATE /*M! OR REPLACE */ PROCEDURE begin_alone(lock_wait_s INT, OUT is_begun BOOLEAN)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    IF is_begun THEN ROLLBACK AND NO CHAIN NO RELEASE; END IF;
    RESIGNAL;
  END;
  CALL require_fit_server();
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  SET SESSION innodb_lock_wait_timeout = lock_wait_s;
  START TRANSACTION READ WRITE;
  SET is_begun = TRUE;
  CALL require_own_tables();
  DELETE FROM commit_marks WHERE id = '';  -- a number before the first lock: see rule_in()
END
//
-- What it ends with. wait_before_s: innodb_lock_wait_timeout, as the session had it.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS commit_alone */
//
CREATE /*M! OR REPLACE */ PROCEDURE commit_alone(wait_before_s INT)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  COMMIT AND NO CHAIN NO RELEASE;
  SET SESSION innodb_lock_wait_timeout = wait_before_s;
END
//
-- And after an error, which may be that it could not begin.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS roll_back_alone */
//
CREATE /*M! OR REPLACE */ PROCEDURE roll_back_alone(wait_before_s INT, is_begun BOOLEAN)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  IF is_begun THEN ROLLBACK AND NO CHAIN NO RELEASE; END IF;
  SET SESSION innodb_lock_wait_timeout = wait_before_s;
END
//
-- REQUIRES: a transaction is open. The floor, which stays as it is until the end of the transaction.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS share_floor */
//
CREATE /*M! OR REPLACE */ PROCEDURE share_floor(OUT floor_token BIGINT)
READS SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  SELECT n.floor_token INTO floor_token FROM namespace n LOCK IN SHARE MODE;
  CALL require_floor(floor_token);
END
//
-- REQUIRES: a transaction is open and reads what is committed. Makes its commit durable though it changes nothing else.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS mark_commit */
//
CREATE /*M! OR REPLACE */ PROCEDURE mark_commit()
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE mark VARBINARY(36) DEFAULT UUID();
  INSERT INTO commit_marks (id) VALUES (mark);
  DELETE FROM commit_marks WHERE id = mark;
END
//
-- REQUIRES: as above. Locks the fence alone, and judges; raises it where that is the verdict. overtaken: over which record, for
-- whoever is to cut its holder off: its token, whether it is finished, and whether it is the same holder's; null: there was none.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS raise_fence */
//
CREATE /*M! OR REPLACE */ PROCEDURE raise_fence(
  resource VARBINARY(512), new_token BIGINT, new_holder VARBINARY(128), floor_token BIGINT,
  OUT verdict VARCHAR(16) CHARACTER SET ascii, OUT highest BIGINT, OUT changed BOOLEAN,
  OUT overtaken VARCHAR(32) CHARACTER SET ascii)
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
    SET overtaken = CONCAT(record_token, ' ', is_closed = 2, ' ', record_holder = new_holder AND new_holder <> '');
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
-- token is over, drain_s seconds at most (null: 5), and commits durably. A row: verdict, highest afterwards, whether
-- the fence was raised, and over which record (see raise_fence()). jump_max: a token that is more than this above the highest
-- seen is 'implausible'; the owner's limit counts where that is lower, and for null.
-- Raises 1205 where an older transaction is still open: nothing was done, and no writer is held up any more.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS try_advance */
//
CREATE /*M! OR REPLACE */ PROCEDURE try_advance(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4, drain_s INT, jump_max BIGINT)
MODIFIES SQL DATA
BEGIN
  DECLARE verdict VARCHAR(16) CHARACTER SET ascii;
  DECLARE highest BIGINT;
  DECLARE changed BOOLEAN;
  DECLARE overtaken VARCHAR(32) CHARACTER SET ascii;
  CALL advance_alone(resource, token, holder, drain_s, GREATEST(jump_max, 0), verdict, highest, changed, overtaken);
  SELECT verdict, highest, changed, overtaken;
END
//
-- The same, raising for a refusal.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS advance */
//
CREATE /*M! OR REPLACE */ PROCEDURE advance(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
BEGIN
  DECLARE verdict VARCHAR(16) CHARACTER SET ascii;
  DECLARE highest BIGINT;
  DECLARE changed BOOLEAN;
  DECLARE overtaken VARCHAR(32) CHARACTER SET ascii;
  CALL advance_alone(resource, token, holder, NULL, NULL, verdict, highest, changed, overtaken);
  IF verdict <> 'admitted' THEN CALL refuse(verdict, read_number(token, 1), highest); END IF;
  SELECT verdict, highest;
END
//
-- try_advance() without the owner's limit: for a guard whose own source granted the token, with a user that has rights on the
-- tables, and so can set any number there is.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS try_advance_far */
//
CREATE /*M! OR REPLACE */ PROCEDURE try_advance_far(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4, drain_s INT)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE verdict VARCHAR(16) CHARACTER SET ascii;
  DECLARE highest BIGINT;
  DECLARE changed BOOLEAN;
  DECLARE overtaken VARCHAR(32) CHARACTER SET ascii;
  CALL advance_alone(resource, token, holder, drain_s, -1, verdict, highest, changed, overtaken);
  SELECT verdict, highest, changed, overtaken;
END
//
-- REQUIRES: as for raise_fence(). How far this token may be above the highest seen, and that, the counter included: what it
-- ever drew is plausible. Most tokens are told by their own fence or the counter, which are less to read. Locks nothing.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS read_seen */
//
CREATE /*M! OR REPLACE */ PROCEDURE read_seen(
  resource VARBINARY(512), token BIGINT, jump_max BIGINT, floor_token BIGINT, OUT seen BIGINT, OUT bound BIGINT)
READS SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  CALL require_own_limits();
  SET bound = 17592186044416;  -- where the limit was lost
  SELECT l.jump_max INTO bound FROM limits l;
  SET bound = LEAST(COALESCE(NULLIF(bound, 0), 9223372036854775807), COALESCE(NULLIF(jump_max, 0), 9223372036854775807));
  SELECT GREATEST(floor_token, COALESCE(MAX(c.last), 0)) INTO seen FROM counter c;
  SELECT GREATEST(seen, f.token) INTO seen FROM fences f WHERE f.resource = resource;
  IF token > seen AND token - seen > bound THEN
    SELECT GREATEST(seen, COALESCE(MAX(f.token), 0)) INTO seen FROM fences f;
  END IF;
END
//
-- jump_max: as try_advance(); negative: no bound, and for what has rights on the tables alone.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS advance_alone */
//
CREATE /*M! OR REPLACE */ PROCEDURE advance_alone(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4, drain_s INT, jump_max BIGINT,
  OUT verdict VARCHAR(16) CHARACTER SET ascii, OUT highest BIGINT, OUT changed BOOLEAN,
  OUT overtaken VARCHAR(32) CHARACTER SET ascii)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE floor_token, number, turn, seen, bound BIGINT;
  DECLARE name VARBINARY(512);
  DECLARE owner VARBINARY(128);
  DECLARE wait_before INT DEFAULT @@session.innodb_lock_wait_timeout;
  DECLARE is_begun BOOLEAN DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL roll_back_alone(wait_before, is_begun);
    RESIGNAL;
  END;
  CALL read_claim(resource, token, holder, NULL, name, number, owner, turn);
  CALL begin_alone(COALESCE(drain_s, 5), is_begun);
  CALL share_floor(floor_token);
  IF COALESCE(jump_max, 0) >= 0 THEN CALL read_seen(name, number, jump_max, floor_token, seen, bound); END IF;
  IF number > seen AND number - seen > bound THEN
    SET verdict = 'implausible';
    SET highest = seen;
    SET changed = FALSE;
  ELSE
    CALL raise_fence(name, number, owner, floor_token, verdict, highest, changed, overtaken);
    -- What is on record may rest on a commit whose end was not seen, or is not durable yet.
    IF verdict = 'admitted' THEN
      -- Where it is refused if a newer one was committed on another server before.
      IF is_certified() THEN CALL write_fence(name, NULL); ELSE CALL mark_commit(); END IF;
    END IF;
  END IF;
  CALL require_fit_server();  -- it may have become a replica while this waited
  CALL commit_alone(wait_before);
END
//
-- Begins a transaction that only reads, and locks nothing: at SERIALIZABLE it would. Fails with 1568 inside of another.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS begin_look */
//
CREATE /*M! OR REPLACE */ PROCEDURE begin_look()
NO SQL
SQL SECURITY INVOKER
BEGIN
  SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
  START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY;
END
//
-- A row: 1 where an advance to this claim would raise the fence, else 0. A READ UNCOMMITTED session is answered by what is not
-- committed yet.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS would_raise */
//
CREATE /*M! OR REPLACE */ PROCEDURE would_raise(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4, holder LONGTEXT CHARACTER SET utf8mb4)
READS SQL DATA
BEGIN
  DECLARE number, turn BIGINT;
  DECLARE name VARBINARY(512);
  DECLARE owner VARBINARY(128);
  DECLARE floor_token BIGINT;
  DECLARE raises BOOLEAN;
  DECLARE is_begun BOOLEAN DEFAULT FALSE;
  DECLARE is_uncommitted BOOLEAN
    DEFAULT /*M! @@session.tx_isolation */ /*!80000 @@session.transaction_isolation */ = 'READ-UNCOMMITTED';
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    IF is_begun THEN ROLLBACK AND NO CHAIN NO RELEASE; END IF;
    RESIGNAL;
  END;
  CALL read_claim(resource, token, holder, NULL, name, number, owner, turn);
  IF is_uncommitted THEN
    SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED;
    START TRANSACTION READ ONLY;
  ELSE
    CALL begin_look();
  END IF;
  SET is_begun = TRUE;
  SELECT n.floor_token, judge(f.token, f.holder, NULL, f.closed, n.floor_token, number, owner, NULL) = 'advance'
  INTO floor_token, raises
  FROM namespace n LEFT JOIN fences f ON f.resource = name;
  CALL require_floor(floor_token);
  COMMIT AND NO CHAIN NO RELEASE;
  SELECT raises;
END
//
-- Closes a fence: its present token is refused from now on, and a higher one opens it again. lease_token, lease_holder: a
-- lease that is cut off with it although it has not advanced yet; null: none. Waits as an advance does.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS revoke_fence */
//
CREATE /*M! OR REPLACE */ PROCEDURE revoke_fence(
  resource LONGTEXT CHARACTER SET utf8mb4, lease_token LONGTEXT CHARACTER SET utf8mb4,
  lease_holder LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE floor_token, number, turn, highest BIGINT;
  DECLARE name VARBINARY(512);
  DECLARE owner VARBINARY(128);
  DECLARE verdict VARCHAR(16) CHARACTER SET ascii;
  DECLARE changed BOOLEAN;
  DECLARE overtaken VARCHAR(32) CHARACTER SET ascii;
  DECLARE wait_before INT DEFAULT @@session.innodb_lock_wait_timeout;
  DECLARE is_begun BOOLEAN DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL roll_back_alone(wait_before, is_begun);
    RESIGNAL;
  END;
  CALL read_claim(resource, COALESCE(lease_token, 1), lease_holder, NULL, name, number, owner, turn);
  CALL begin_alone(5, is_begun);
  CALL share_floor(floor_token);
  IF lease_token IS NOT NULL THEN CALL raise_fence(name, number, owner, floor_token, verdict, highest, changed, overtaken); END IF;
  UPDATE fences f SET f.closed = GREATEST(f.closed, 1), f.updated_at = UTC_TIMESTAMP(6) WHERE f.resource = name;
  CALL commit_alone(wait_before);
END
//
-- A holder gives its claim back, and writes no more under it: closes the fence if that still equals the claim. One without a
-- name may be another's, and is not taken for finished.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS finish */
//
CREATE /*M! OR REPLACE */ PROCEDURE finish(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4, holder LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
BEGIN
  DECLARE number, turn BIGINT;
  DECLARE name VARBINARY(512);
  DECLARE owner VARBINARY(128);
  DECLARE wait_before INT DEFAULT @@session.innodb_lock_wait_timeout;
  DECLARE is_begun BOOLEAN DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL roll_back_alone(wait_before, is_begun);
    RESIGNAL;
  END;
  CALL read_claim(resource, token, holder, NULL, name, number, owner, turn);
  CALL begin_alone(5, is_begun);
  UPDATE fences f SET f.closed = IF(owner = '', GREATEST(f.closed, 1), 2), f.updated_at = UTC_TIMESTAMP(6)
  WHERE f.resource = name AND f.token = number AND f.holder = owner;
  CALL commit_alone(wait_before);
END
//
-- Sets a fence by hand, closed, and records the operator. Lowering one forfeits the guarantee that no stale write lands.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS rebase */
//
CREATE /*M! OR REPLACE */ PROCEDURE rebase(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  done_by VARCHAR(256) CHARACTER SET utf8mb4)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE floor_token, number, turn, record_token BIGINT;
  DECLARE name VARBINARY(512);
  DECLARE owner VARBINARY(128);
  DECLARE wait_before INT DEFAULT @@session.innodb_lock_wait_timeout;
  DECLARE is_begun BOOLEAN DEFAULT FALSE;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL roll_back_alone(wait_before, is_begun);
    RESIGNAL;
  END;
  CALL read_claim(resource, token, '', NULL, name, number, owner, turn);
  CALL begin_alone(5, is_begun);
  CALL share_floor(floor_token);
  SELECT f.token INTO record_token FROM fences f WHERE f.resource = name FOR UPDATE;
  INSERT INTO rebases (resource, token_from, token_to, done_by, done_at)
  VALUES (name, record_token, number, COALESCE(done_by, USER()), UTC_TIMESTAMP(6));
  INSERT INTO fences (resource, token, holder, closed, below_floor, updated_at)
  VALUES (name, number, owner, TRUE, number < floor_token, UTC_TIMESTAMP(6))
  ON DUPLICATE KEY UPDATE token = number, holder = owner, sequence = NULL, closed = TRUE, below_floor = number < floor_token,
    updated_at = UTC_TIMESTAMP(6);
  CALL commit_alone(wait_before);
END
//
-- Makes this number the floor, or leaves a higher one: after a restore, or for a source that issued tokens before. A row:
-- the floor.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS init */
//
CREATE /*M! OR REPLACE */ PROCEDURE init(floor_text LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE number, floor_token BIGINT DEFAULT read_number(floor_text, 0);
  DECLARE wait_before INT DEFAULT @@session.innodb_lock_wait_timeout;
  DECLARE is_begun BOOLEAN DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL roll_back_alone(wait_before, is_begun);
    RESIGNAL;
  END;
  IF number IS NULL THEN CALL invalid('a floor is a number from 0 to 9223372036854775807'); END IF;
  CALL begin_alone(5, is_begun);
  INSERT INTO namespace (only_row, version, floor_token) VALUES (1, 1, number)
  ON DUPLICATE KEY UPDATE floor_token = GREATEST(namespace.floor_token, number);
  SELECT n.floor_token INTO floor_token FROM namespace n FOR UPDATE;
  UPDATE fences f SET f.below_floor = TRUE WHERE f.token < floor_token AND NOT f.below_floor;
  CALL mark_commit();
  CALL commit_alone(wait_before);
  SELECT floor_token;
END
//
-- Folds every record with a token lower than lowest_live into the floor. Only where all tokens of these fences come from
-- one counter, and lowest_live is the lowest that is held or awaited there. It waits briefly, because others wait for it;
-- 1205: another time. A row: how many were dropped, and the floor.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS compact */
//
CREATE /*M! OR REPLACE */ PROCEDURE compact(lowest_live LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE live, highest, dropped, floor_token BIGINT;
  DECLARE wait_before INT DEFAULT @@session.innodb_lock_wait_timeout;
  DECLARE is_begun BOOLEAN DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL roll_back_alone(wait_before, is_begun);
    RESIGNAL;
  END;
  SET live = read_number(lowest_live, 1);
  IF live IS NULL THEN CALL invalid('a token is a number from 1 to 9223372036854775807'); END IF;
  CALL begin_alone(1, is_begun);
  SELECT n.floor_token INTO floor_token FROM namespace n FOR UPDATE;
  CALL require_floor(floor_token);
  SELECT COUNT(*), COALESCE(MAX(f.token), 0) INTO dropped, highest FROM fences f WHERE f.token < live FOR UPDATE;
  DELETE FROM fences WHERE token < live;
  SET floor_token = GREATEST(floor_token, highest);
  UPDATE namespace n SET n.floor_token = floor_token WHERE n.only_row = 1;
  CALL commit_alone(wait_before);
  SELECT dropped, floor_token;
END
//
