-- Tables of which no client, whatever it is, writes a row without a claim to its resource: by triggers of each row. MySQL
-- has no way for a procedure to create a trigger, so these answer the statements that do:
--
--   mariadb -Nre "CALL fenceguard.protect('bank', 'accounts', 'CONCAT(''accounts/'', ROW.id)')" | mariadb

-- Of a trigger. The claim is what admit() left in a variable of the session, which any client can write: it is a claim and
-- no proof, and judged at every row, by the fence as it is, locked to the end of the transaction. Each table that is named
-- in here is locked by a LOCK TABLES of the protected one.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS require_row */
//
CREATE /*M! OR REPLACE */ PROCEDURE require_row(resource LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
BEGIN
  DECLARE wrong VARCHAR(128) CHARACTER SET utf8mb4 DEFAULT objection(resource);
  DECLARE claimed VARCHAR(200) CHARACTER SET utf8mb4;
  DECLARE name VARBINARY(512);
  DECLARE owner, record_holder VARBINARY(128);
  DECLARE number, record_token, floor_token BIGINT;
  DECLARE is_closed, is_below_floor BOOLEAN DEFAULT FALSE;
  DECLARE verdict VARCHAR(16) CHARACTER SET ascii;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  CALL require_own_fences();
  CALL require_plain_reads();
  DELETE FROM admissions WHERE id = 0;  -- a number before the first lock: see rule_in()
  IF wrong IS NOT NULL THEN CALL invalid(wrong); END IF;
  SET name = CAST(resource AS BINARY);
  IF JSON_VALID(@fenceguard_claims) THEN
    SET claimed = JSON_UNQUOTE(JSON_EXTRACT(@fenceguard_claims, CONCAT('$."', SHA2(name, 256), '"')));
  END IF;
  SET number = read_number(SUBSTRING_INDEX(claimed, ' ', 1), 1);
  IF number IS NULL THEN CALL refuse('missing', NULL, NULL); END IF;
  SET owner = CAST(SUBSTRING(claimed, LOCATE(' ', claimed) + 1) AS BINARY);
  -- As in rule_in(): by the snapshot, which must see the advance, and without a lock; then by what is there.
  SELECT n.floor_token, f.token, f.holder, f.closed INTO floor_token, record_token, record_holder, is_closed
  FROM namespace n LEFT JOIN fences f ON f.resource = name;
  SET verdict = IF(floor_token IS NULL, 'stale',
                   judge(record_token, record_holder, NULL, is_closed, floor_token, number, owner, NULL));
  IF verdict = 'admitted' THEN
    SET record_token = NULL;
    SELECT f.token, f.holder, f.closed, f.below_floor INTO record_token, record_holder, is_closed, is_below_floor
    FROM fences f WHERE f.resource = name LOCK IN SHARE MODE;
    SET verdict = IF(record_token IS NULL OR is_below_floor, 'stale',
                     judge(record_token, record_holder, NULL, is_closed, floor_token, number, owner, NULL));
  END IF;
  IF verdict <> 'admitted' THEN CALL refuse(verdict, number, record_token); END IF;
  -- As in rule_in(): a session may write again under its claim without asking for it.
  IF is_certified() THEN CALL write_fence(name, NULL); END IF;
END
//
-- Of a row that may have moved from one resource to another.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS require_rows */
//
CREATE /*M! OR REPLACE */ PROCEDURE require_rows(
  old_resource LONGTEXT CHARACTER SET utf8mb4, new_resource LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
BEGIN
  CALL require_row(old_resource);
  IF NOT CAST(old_resource AS BINARY) <=> CAST(new_resource AS BINARY) THEN CALL require_row(new_resource); END IF;
END
//
-- The same after it was written: only a later trigger can have moved it since the other was judged.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS require_row_after */
//
CREATE /*M! OR REPLACE */ PROCEDURE require_row_after(
  old_resource LONGTEXT CHARACTER SET utf8mb4, new_resource LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
IF NOT CAST(old_resource AS BINARY) <=> CAST(new_resource AS BINARY) THEN CALL require_row(new_resource); END IF
//
-- What is wrong is told twice: as a statement that fails with it, because in a pipe the second client's end is the one that
-- counts, and as an error.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS fail_protect */
//
CREATE /*M! OR REPLACE */ PROCEDURE fail_protect(sentence VARCHAR(128) CHARACTER SET utf8mb4)
NO SQL
BEGIN
  SELECT CONCAT('SIGNAL SQLSTATE ''22023'' SET MESSAGE_TEXT = ''', REPLACE(sentence, '''', ''''''), ''';') AS statement;
  CALL invalid(sentence);
END
//
-- Rows: the statements that protect the table, also while it is written: each trigger takes the place of the one before in one
-- step, and waits for transactions that use the table for 5 s, in which others wait behind it. MySQL has no such step, so
-- there the table is locked for it. expression: the resource of a row, in which ROW.x is its column x, and which no
-- setting of a session may alter. It is judged before the row is written, because within a stored function or trigger that
-- handles errors the server keeps a row that is refused afterwards; and afterwards, because a later trigger may have made
-- another row of it.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS protect */
//
CREATE /*M! OR REPLACE */ PROCEDURE protect(
  db VARCHAR(64) CHARACTER SET utf8mb4, table_name VARCHAR(64) CHARACTER SET utf8mb4,
  expression VARCHAR(2000) CHARACTER SET utf8mb4)
READS SQL DATA
BEGIN
  DECLARE engine_name, kind, numbered, zoned VARCHAR(64) CHARACTER SET utf8mb4;
  DECLARE target, here VARCHAR(300) CHARACTER SET utf8mb4;
  DECLARE old_row, new_row, first_row VARCHAR(4000) CHARACTER SET utf8mb4;
  DECLARE can_replace BOOLEAN DEFAULT FALSE /*M! OR TRUE */;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  SELECT t.engine, t.table_type INTO engine_name, kind FROM information_schema.tables t
  WHERE t.table_schema = db AND t.table_name = table_name;
  IF kind IS NULL THEN CALL fail_protect('there is no such table, or this user may not see it'); END IF;
  IF kind NOT IN ('BASE TABLE', 'SYSTEM VERSIONED') THEN
    CALL fail_protect(CONCAT('this is no table but of the type ', kind, ', which has no triggers'));
  END IF;
  IF NOT engine_name <=> 'InnoDB' THEN
    CALL fail_protect(CONCAT('the table''s engine is ', COALESCE(engine_name, 'none'),
                             ', which has no transactions: make it InnoDB'));
  END IF;
  IF expression IS NULL OR INSTR(expression, 'ROW.') = 0 THEN
    CALL fail_protect('the expression names a column of the row, as in CONCAT(''accounts/'', ROW.id)');
  END IF;
  SELECT MIN(c.column_name) INTO zoned FROM information_schema.columns c
  WHERE c.table_schema = db AND c.table_name = table_name AND c.data_type = 'timestamp'
    AND CONVERT(expression USING utf8mb4) REGEXP CONCAT('(?i)ROW[.]`?\\Q', c.column_name, '\\E(`|\\b)');
  IF zoned IS NOT NULL THEN
    CALL fail_protect('a TIMESTAMP reads differently in each time_zone: name no such column in the expression');
  END IF;
  SET target = CONCAT('`', REPLACE(db, '`', '``'), '`.`', REPLACE(table_name, '`', '``'), '`');
  SET here = CONCAT('`', REPLACE(DATABASE(), '`', '``'), '`.');
  SET old_row = REPLACE(expression, 'ROW.', 'OLD.');
  SET new_row = REPLACE(expression, 'ROW.', 'NEW.');
  -- A number that the server is to give is 0 before the row is written, which would be another resource.
  SELECT c.column_name INTO numbered FROM information_schema.columns c
  WHERE c.table_schema = db AND c.table_name = table_name AND c.extra LIKE '%auto_increment%';
  SET first_row = COALESCE(REGEXP_REPLACE(new_row, CONCAT('(?i)NEW[.]`?\\Q', numbered, '\\E\\b`?'),
                                          CONCAT('NULLIF(NEW.`', numbered, '`, 0)')), new_row);
  SELECT 'SET SESSION lock_wait_timeout = 5;' AS statement
  UNION ALL SELECT CONCAT('LOCK TABLES ', target, ' WRITE;') FROM DUAL WHERE NOT can_replace
  UNION ALL
  SELECT CONCAT(IF(can_replace, 'CREATE OR REPLACE',
                   CONCAT('DROP TRIGGER IF EXISTS ', trigger_name(db, table_name, e.event), ';\nCREATE')),
                ' TRIGGER ', trigger_name(db, table_name, e.event), e.moment, target, ' FOR EACH ROW CALL ', here, e.judgement, ';')
  FROM (SELECT 'insert' AS event, ' BEFORE INSERT ON ' AS moment, CONCAT('require_row(', first_row, ')') AS judgement
        UNION ALL SELECT 'update', ' BEFORE UPDATE ON ', CONCAT('require_rows(', old_row, ', ', new_row, ')')
        UNION ALL SELECT 'delete', ' BEFORE DELETE ON ', CONCAT('require_row(', old_row, ')')
        UNION ALL SELECT 'inserted', ' AFTER INSERT ON ', CONCAT('require_row(', new_row, ')')
        UNION ALL SELECT 'updated', ' AFTER UPDATE ON ', CONCAT('require_row_after(', old_row, ', ', new_row, ')')) e
  UNION ALL SELECT 'UNLOCK TABLES;' FROM DUAL WHERE NOT can_replace;
END
//
/*M! DO 0 */ /*!80000 DROP FUNCTION IF EXISTS trigger_name */
//
CREATE /*M! OR REPLACE */ FUNCTION trigger_name(
  db VARCHAR(64) CHARACTER SET utf8mb4, table_name VARCHAR(64) CHARACTER SET utf8mb4,
  event VARCHAR(8) CHARACTER SET utf8mb4) RETURNS VARCHAR(200) CHARACTER SET utf8mb4 DETERMINISTIC NO SQL
RETURN CONCAT('`', REPLACE(db, '`', '``'), '`.fenceguard_', event, '_', MD5(table_name))
//
-- Rows: the statements that take the protection off.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS unprotect */
//
CREATE /*M! OR REPLACE */ PROCEDURE unprotect(db VARCHAR(64) CHARACTER SET utf8mb4, table_name VARCHAR(64) CHARACTER SET utf8mb4)
NO SQL
SELECT CONCAT('DROP TRIGGER IF EXISTS ', trigger_name(db, table_name, e.event), ';') AS statement
FROM (SELECT 'insert' AS event UNION ALL SELECT 'update' UNION ALL SELECT 'delete' UNION ALL SELECT 'inserted'
      UNION ALL SELECT 'updated') e
//
SET SESSION lock_wait_timeout = DEFAULT, innodb_lock_wait_timeout = DEFAULT
//
-- Tells the one who installs what was lost.
CALL require_floor((SELECT n.floor_token FROM namespace n))
//
CALL read_counter(@fenceguard_tables)
//
