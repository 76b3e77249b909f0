-- What a writer calls in its own transaction.
--
-- A transaction is let in under a claim that *equals* the fence, and never raises it: that is advance(), in a transaction
-- of its own, before. The fence's row is locked until the end of the transaction, shared by writers of one token, and
-- InnoDB's queue for a row is first come, first served: an advance that waits lets no other writer pass.
--
-- What is SQL SECURITY INVOKER is called by one of the others, with their rights on the tables: alone it would keep a lock
-- under a claim that was refused, or leave none of what tells the next holder whom to cut.

-- Whether others may write on another server at the same time, and a commit is refused only for a row that both wrote:
-- Galera. There a lock is this server's alone, and each admission writes the fence's row.
/*M! DO 0 */ /*!80000 DROP FUNCTION IF EXISTS is_certified */
//
CREATE /*M! OR REPLACE */ FUNCTION is_certified() RETURNS BOOLEAN NOT DETERMINISTIC NO SQL
RETURN FALSE /*M! OR @@global.wsrep_on */
//
-- Raises ZF008 within a stored function or trigger where a plain read there is a locking one, which does not tell an old snapshot:
-- with a binary log, unless that is of rows. There the call of a procedure with a ROLLBACK in it is what fails (1422).
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS require_plain_reads */
//
CREATE /*M! OR REPLACE */ PROCEDURE require_plain_reads()
NO SQL
BEGIN
  DECLARE EXIT HANDLER FOR 1422
    SIGNAL SQLSTATE 'ZF008' SET MESSAGE_TEXT = 'within a function or trigger a claim needs binlog_format = ROW';
  IF @@global.log_bin AND @@session.binlog_format <> 'ROW' THEN CALL fail_in_function(); END IF;
END
//
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS fail_in_function */
//
CREATE /*M! OR REPLACE */ PROCEDURE fail_in_function()
NO SQL
IF FALSE THEN ROLLBACK; END IF
//
-- Writes the fence's row as it is, with its new sequence if there is one. A row that stays the same is not written.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS write_fence */
//
CREATE /*M! OR REPLACE */ PROCEDURE write_fence(resource VARBINARY(512), sequence BIGINT)
MODIFIES SQL DATA
SQL SECURITY INVOKER
UPDATE fences f SET f.sequence = COALESCE(sequence, f.sequence),
  f.updated_at = GREATEST(UTC_TIMESTAMP(6), f.updated_at + INTERVAL 1 MICROSECOND)
WHERE f.resource = resource
//
-- Judges in the caller's transaction. verdict: 'admitted', 'duplicate', 'stale', 'conflict', 'advance' (advance first; or
-- begin anew, if the snapshot is older than the advance), 'outside' (no transaction is open).
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS rule_in */
//
CREATE /*M! OR REPLACE */ PROCEDURE rule_in(
  resource VARBINARY(512), token BIGINT, holder VARBINARY(128), sequence BIGINT,
  OUT verdict VARCHAR(16) CHARACTER SET ascii, OUT highest BIGINT)
MODIFIES SQL DATA
SQL SECURITY INVOKER
rule: BEGIN
  DECLARE floor_token, record_token, record_sequence BIGINT;
  DECLARE record_holder VARBINARY(128);
  DECLARE is_closed, is_below_floor, is_open BOOLEAN DEFAULT FALSE;
  DECLARE is_written BOOLEAN DEFAULT sequence IS NOT NULL OR is_certified();
  DECLARE CONTINUE HANDLER FOR 1568 SET is_open = TRUE;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  CALL require_plain_reads();
  -- A number before the first lock, so that the next holder finds whose it is: at SERIALIZABLE a plain read locks, too. A
  -- transaction that only reads gets none, and is refused (1792).
  DELETE FROM admissions WHERE id = 0;
  -- Two that share a lock cannot both wait to write: alone from the start, as at SERIALIZABLE the next read shares it.
  IF is_written THEN
    SELECT f.token INTO record_token FROM fences f WHERE f.resource = resource FOR UPDATE;
  END IF;
  -- By the transaction's snapshot, which is made here unless it was before, and without a lock: what is refused by it
  -- stays refused, as a fence only rises; and where there is no record no gap stays locked.
  SELECT n.floor_token, f.token, f.holder, f.sequence, f.closed
  INTO floor_token, record_token, record_holder, record_sequence, is_closed
  FROM namespace n LEFT JOIN fences f ON f.resource = resource;
  -- Without a transaction the lock would be let go of at once. This fails in one, and does nothing else.
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  IF NOT is_open THEN
    SET verdict = 'outside';
    LEAVE rule;
  END IF;
  CALL require_floor(floor_token);
  SET highest = GREATEST(COALESCE(record_token, 0), floor_token);
  SET verdict = judge(record_token, record_holder, record_sequence, is_closed, floor_token, token, holder, NULL);
  IF verdict <> 'admitted' THEN LEAVE rule; END IF;
  -- The snapshot sees the advance to this token, and so whatever that waited for. Now by what is there, and locked.
  IF is_written THEN
    SELECT f.token INTO record_token FROM fences f WHERE f.resource = resource FOR UPDATE;
  END IF;
  SET record_token = NULL;
  SELECT f.token, f.holder, f.sequence, f.closed, f.below_floor
  INTO record_token, record_holder, record_sequence, is_closed, is_below_floor
  FROM fences f WHERE f.resource = resource LOCK IN SHARE MODE;
  SET highest = GREATEST(COALESCE(record_token, 0), highest);
  IF record_token IS NULL OR is_below_floor THEN
    SET verdict = 'stale';
  ELSE
    SET verdict = judge(record_token, record_holder, record_sequence, is_closed, 0, token, holder, sequence);
  END IF;
  -- A duplicate is told once its first commit is durable, which this one's is not before.
  IF is_written AND verdict IN ('admitted', 'duplicate') THEN CALL write_fence(resource, sequence); END IF;
END
//
-- Leaves an admitted claim for the triggers of protected tables, which judge it again (006_protect.sql). Of more than there
-- is room for the older ones are forgotten: a write under them is refused then.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS note_claim */
//
CREATE /*M! OR REPLACE */ PROCEDURE note_claim(resource VARBINARY(512), token BIGINT, holder VARBINARY(128))
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE mark VARCHAR(64) CHARACTER SET utf8mb4 DEFAULT CONCAT('fenceguard.admitted.', CONNECTION_ID());
  -- For the next holder, which ends this one at once, and others after a while.
  IF NOT IS_USED_LOCK(mark) <=> CONNECTION_ID() THEN DO GET_LOCK(mark, 0); END IF;
  IF @fenceguard_claims IS NULL OR LENGTH(@fenceguard_claims) > 65536 OR NOT JSON_VALID(@fenceguard_claims) THEN
    SET @fenceguard_claims = '{}';
  END IF;
  SET @fenceguard_claims = JSON_SET(@fenceguard_claims, CONCAT('$."', SHA2(resource, 256), '"'),
                                    CONCAT(token, ' ', CONVERT(holder USING utf8mb4)));
END
//
-- After a refusal: rolls back, and leaves the session in a transaction that reads only, until that ends: also by a statement that
-- commits by itself. Where no procedure may do so (in an
-- XA transaction; within a stored function or trigger, which may handle the error besides) the session ends.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS doom */
//
CREATE /*M! OR REPLACE */ PROCEDURE doom()
NO SQL
BEGIN
  DECLARE EXIT HANDLER FOR 1399, 1422 KILL CONNECTION_ID();
  CALL roll_back();
END
//
-- A procedure of its own, as within a function the call of one that has such statements is what fails.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS roll_back */
//
CREATE /*M! OR REPLACE */ PROCEDURE roll_back()
NO SQL
BEGIN
  ROLLBACK AND NO CHAIN NO RELEASE;
  START TRANSACTION READ ONLY;
END
//
-- Judges a claim as rule_in() does, and dooms the transaction unless it is 'admitted' or a 'duplicate'.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS admit_in */
//
CREATE /*M! OR REPLACE */ PROCEDURE admit_in(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4, sequence LONGTEXT CHARACTER SET utf8mb4,
  OUT verdict VARCHAR(16) CHARACTER SET ascii, OUT highest BIGINT)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE number, turn BIGINT;
  DECLARE name VARBINARY(512);
  DECLARE owner VARBINARY(128);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL doom();
    RESIGNAL;
  END;
  CALL require_own_tables();
  CALL require_fit_server();
  CALL read_claim(resource, token, holder, sequence, name, number, owner, turn);
  CALL rule_in(name, number, owner, turn, verdict, highest);
  IF verdict IN ('admitted', 'duplicate') THEN CALL note_claim(name, number, owner); ELSE CALL doom(); END IF;
END
//
-- The claim, judged in this transaction and for it; a row: verdict ('admitted', 'duplicate') and highest. Raises for all
-- else (see refuse()). After that (see doom()) a client that does not look writes nothing until it ends the transaction,
-- which a statement that commits by itself does as well.
--
--   START TRANSACTION;
--   CALL fenceguard.admit('accounts/42', 34, 'h', NULL);
--   UPDATE account SET balance = 70 WHERE id = 42;
--   COMMIT;
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS admit */
//
CREATE /*M! OR REPLACE */ PROCEDURE admit(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4, sequence LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
BEGIN
  DECLARE verdict VARCHAR(16) CHARACTER SET ascii;
  DECLARE highest BIGINT;
  CALL admit_in(resource, token, holder, sequence, verdict, highest);
  IF verdict NOT IN ('admitted', 'duplicate') THEN CALL refuse(verdict, read_number(token, 1), highest); END IF;
  SELECT verdict, highest;
END
//
-- The same with every refusal as a row, after which the session is as above: for libraries.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS try_admit */
//
CREATE /*M! OR REPLACE */ PROCEDURE try_admit(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4, sequence LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
BEGIN
  DECLARE verdict VARCHAR(16) CHARACTER SET ascii;
  DECLARE highest BIGINT;
  CALL admit_in(resource, token, holder, sequence, verdict, highest);
  SELECT verdict, highest;
END
//
-- Before the COMMIT: raises unless the fence equals the claim still, and keeps it so until then. The lock that admit() took
-- is gone after a rollback to a savepoint that is older than the transaction's first statement, a statement that commits
-- by itself (DDL, LOCK TABLES, BEGIN), and a deadlock. For libraries, in one message: CALL fenceguard.confirm(...); COMMIT.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS confirm */
//
CREATE /*M! OR REPLACE */ PROCEDURE confirm(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
BEGIN
  DECLARE verdict VARCHAR(16) CHARACTER SET ascii;
  DECLARE highest BIGINT;
  CALL admit_in(resource, token, holder, NULL, verdict, highest);
  IF verdict <> 'admitted' THEN CALL refuse(verdict, read_number(token, 1), highest); END IF;
END
//
-- For libraries: begins a READ COMMITTED transaction and judges in it, as try_admit(); and advances before, in one of its
-- own, where the claim must (see try_advance()). Fails with 1568 inside of another transaction. A row: verdict
-- ('admitted', 'duplicate', 'stale', 'conflict', 'implausible') and highest. A transaction is open after 'admitted' and
-- 'duplicate'; after all else the session is as after a refusal of admit().
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS start_admitted */
//
CREATE /*M! OR REPLACE */ PROCEDURE start_admitted(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4, holder LONGTEXT CHARACTER SET utf8mb4,
  sequence LONGTEXT CHARACTER SET utf8mb4, drain_s INT, jump_max BIGINT)
MODIFIES SQL DATA
BEGIN
  DECLARE verdict VARCHAR(16) CHARACTER SET ascii;
  DECLARE highest BIGINT;
  DECLARE changed BOOLEAN;
  DECLARE overtaken VARCHAR(32) CHARACTER SET ascii;
  DECLARE is_begun BOOLEAN DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    IF is_begun THEN CALL doom(); END IF;
    RESIGNAL;
  END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  SET is_begun = TRUE;
  START TRANSACTION;
  CALL admit_in(resource, token, holder, sequence, verdict, highest);
  IF verdict = 'advance' THEN
    COMMIT AND NO CHAIN NO RELEASE;
    CALL advance_alone(resource, token, holder, drain_s, GREATEST(jump_max, 0), verdict, highest, changed, overtaken);
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    IF verdict = 'admitted' THEN
      CALL admit_in(resource, token, holder, sequence, verdict, highest);
    ELSE
      CALL doom();
    END IF;
  END IF;
  IF verdict IN ('admitted', 'duplicate') THEN SAVEPOINT fenceguard_admitted; END IF;
  SELECT verdict, highest;
END
//
-- The COMMIT of a transaction that start_admitted() began: raises ZF007 where that is over, or was rolled back to a
-- savepoint before the admission, which both end this savepoint and the lock with it. With the caller's own rights, so that a
-- server that has become read_only refuses it.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS commit_admitted */
//
CREATE /*M! OR REPLACE */ PROCEDURE commit_admitted()
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK AND NO CHAIN NO RELEASE;
    RESIGNAL;
  END;
  DECLARE EXIT HANDLER FOR 1305
  BEGIN
    ROLLBACK AND NO CHAIN NO RELEASE;
    CALL refuse('outside', NULL, NULL);
  END;
  RELEASE SAVEPOINT fenceguard_admitted;
  COMMIT AND NO CHAIN NO RELEASE;
  SET @fenceguard_claims = NULL;  -- of the next who borrows this session
END
//
