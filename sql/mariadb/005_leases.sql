-- The token source: leases by the server's clock, each with a number from one counter. No verdict rests on that clock.
-- AUTO_INCREMENT is no counter for this: before MySQL 8 it went back after a restart. A lease's row is locked before the
-- counter's, which is locked until the grant is committed: numbers rise in the order of the grants. SQL SECURITY INVOKER: see
-- 004_advance.sql.

CREATE TABLE IF NOT EXISTS counter (
  only_row TINYINT NOT NULL PRIMARY KEY DEFAULT 1,
  last     BIGINT NOT NULL                        -- number that was drawn last
) ENGINE = InnoDB PARTITION BY KEY () PARTITIONS 1
//
INSERT INTO counter (only_row, last) SELECT 1, 0 FROM DUAL WHERE @fenceguard_tables = ''
//
CREATE TABLE IF NOT EXISTS leases (
  resource   VARBINARY(512) NOT NULL PRIMARY KEY,
  token      BIGINT,                              -- last one granted; null: none yet
  holder     VARBINARY(128),
  expires_at DATETIME(6) NOT NULL,                -- UTC
  keeper     BIGINT,                              -- session whose lock it lives by (GET_LOCK); null: it lives by time
  KEY leases_expires_at (expires_at)
) ENGINE = InnoDB PARTITION BY KEY () PARTITIONS 1
//
-- The lock by which a lease lives that is kept by a session. Such a name has 64 characters at most in MySQL, and locks are
-- the whole server's: whoever knows the name can take it, and keep the lease from everybody. So it is made with a secret, and
-- called with the rights of the others: no user that may only EXECUTE is told it.
/*M! DO 0 */ /*!80000 DROP FUNCTION IF EXISTS session_lock_name */
//
CREATE /*M! OR REPLACE */ FUNCTION session_lock_name(resource VARBINARY(512)) RETURNS VARCHAR(64) CHARACTER SET utf8mb4
READS SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE found VARBINARY(128) DEFAULT (SELECT s.secret FROM lock_secret PARTITION (p0) s);
  IF found IS NULL THEN
    SIGNAL SQLSTATE 'ZF008' SET MESSAGE_TEXT = 'the secret of the locks is missing: install the fences again';
  END IF;
  RETURN SHA2(CONCAT(found, CAST(DATABASE() AS BINARY), '/', resource), 256);
END
//
-- Its name before there was a secret: of leases that an upgrade found.
/*M! DO 0 */ /*!80000 DROP FUNCTION IF EXISTS older_lock_name */
//
CREATE /*M! OR REPLACE */ FUNCTION older_lock_name(resource VARBINARY(512)) RETURNS VARCHAR(64) CHARACTER SET utf8mb4 NO SQL
RETURN SHA2(CONCAT(CAST(DATABASE() AS BINARY), '/', resource), 256)
//
/*M! DO 0 */ /*!80000 DROP FUNCTION IF EXISTS is_kept */
//
CREATE /*M! OR REPLACE */ FUNCTION is_kept(resource VARBINARY(512), keeper BIGINT) RETURNS BOOLEAN READS SQL DATA
RETURN COALESCE(IS_USED_LOCK(session_lock_name(resource)), 0) = keeper
       OR COALESCE(IS_USED_LOCK(older_lock_name(resource)), 0) = keeper
//
/*M! DO 0 */ /*!80000 DROP FUNCTION IF EXISTS is_live */
//
CREATE /*M! OR REPLACE */ FUNCTION is_live(
  resource VARBINARY(512), token BIGINT, expires_at DATETIME(6), keeper BIGINT, clock DATETIME(6)) RETURNS BOOLEAN READS SQL DATA
RETURN token IS NOT NULL AND COALESCE(expires_at > clock, FALSE)
       AND (keeper IS NULL OR is_kept(resource, keeper))
//
-- The leases that are live, without their holders.
CREATE OR REPLACE VIEW lease AS
  SELECT CONVERT(l.resource USING utf8mb4) AS resource, l.token, IF(l.keeper IS NULL, l.expires_at, NULL) AS expires_at,
    l.keeper FROM leases l
  WHERE l.expires_at > UTC_TIMESTAMP(6) AND is_live(l.resource, l.token, l.expires_at, l.keeper, UTC_TIMESTAMP(6))
//
-- The server's time now, in UTC: no client sets it by SET timestamp (as UTC_TIMESTAMP), nor where a local hour comes twice.
-- In MariaDB the zone is that of one statement, and no interruption leaves the session in it.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS read_clock */
//
CREATE /*M! OR REPLACE */ PROCEDURE read_clock(OUT clock DATETIME(6))
NO SQL
BEGIN
  /*!80000 DECLARE zone VARCHAR(64) DEFAULT @@session.time_zone; */
  /*!80000 SET SESSION time_zone = '+00:00'; */
  /*M! SET STATEMENT time_zone = '+00:00' FOR */ SELECT SYSDATE(6) INTO clock;
  /*!80000 SET SESSION time_zone = zone; */
END
//
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS read_ttl */
//
CREATE /*M! OR REPLACE */ PROCEDURE read_ttl(ttl_text LONGTEXT CHARACTER SET utf8mb4, OUT ttl_ms BIGINT)
NO SQL
BEGIN
  SET ttl_ms = read_number(ttl_text, 10);
  IF ttl_ms IS NULL OR ttl_ms > 86400000 THEN CALL invalid('a time to live is 10 to 86400000 ms'); END IF;
END
//
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS require_counter */
//
CREATE /*M! OR REPLACE */ PROCEDURE require_counter(last BIGINT)
NO SQL
IF last IS NULL THEN
  SIGNAL SQLSTATE 'ZF008' SET MESSAGE_TEXT = 'the counter is missing: restore it, or raise it above the highest fence';
END IF
//
-- Locks the counter and reads it.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS read_counter */
//
CREATE /*M! OR REPLACE */ PROCEDURE read_counter(OUT last BIGINT)
READS SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  SELECT c.last INTO last FROM counter c FOR UPDATE;
  CALL require_counter(last);
END
//
-- REQUIRES: a transaction is open. A number above all that were drawn, and above mark.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS draw_above */
//
CREATE /*M! OR REPLACE */ PROCEDURE draw_above(mark BIGINT, OUT number BIGINT)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE drawn BIGINT;
  CALL read_counter(drawn);
  SET drawn = GREATEST(drawn, COALESCE(mark, 0));
  IF drawn = 9223372036854775807 THEN
    SIGNAL SQLSTATE 'ZF008' SET MESSAGE_TEXT = 'the counter has reached the highest token there is: see fenceguard lease lower';
  END IF;
  SET number = drawn + 1;
  UPDATE counter c SET c.last = number WHERE c.only_row = 1;
END
//
-- Takes the lock of resource for ttl_ms: 'granted' with a new token; or with the same one and a lease of at least ttl_ms
-- from now, if the holder has it already; or 'held' by another holder, for retry_after_ms at most unless it is released.
-- A row: verdict, token, is_new, retry_after_ms. Durable before it is answered. Nothing was advanced: call advance() with
-- it before the first read.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS acquire */
//
CREATE /*M! OR REPLACE */ PROCEDURE acquire(
  resource LONGTEXT CHARACTER SET utf8mb4, ttl_ms LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
BEGIN
  DECLARE number, turn, ttl, present_token, present_keeper BIGINT;
  DECLARE name VARBINARY(512);
  DECLARE owner, present_holder VARBINARY(128);
  DECLARE clock, ends_at DATETIME(6);
  DECLARE verdict VARCHAR(16) CHARACTER SET ascii DEFAULT 'held';
  DECLARE is_new BOOLEAN DEFAULT FALSE;
  DECLARE wait_before INT DEFAULT @@session.innodb_lock_wait_timeout;
  DECLARE is_begun BOOLEAN DEFAULT FALSE;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL roll_back_alone(wait_before, is_begun);
    RESIGNAL;
  END;
  CALL read_claim(resource, 1, holder, NULL, name, number, owner, turn);
  CALL read_ttl(ttl_ms, ttl);
  CALL begin_alone(5, is_begun);
  -- Without a lock: a request for a lock that is held must not hold up a renewal.
  SELECT l.token, l.holder, l.expires_at, l.keeper INTO present_token, present_holder, ends_at, present_keeper
  FROM leases l WHERE l.resource = name;
  CALL read_clock(clock);
  IF ends_at IS NULL THEN
    INSERT INTO leases (resource, expires_at) VALUES (name, clock) ON DUPLICATE KEY UPDATE expires_at = leases.expires_at;
  END IF;
  IF NOT is_live(name, present_token, ends_at, present_keeper, clock) OR present_holder = owner THEN
    SELECT l.token, l.holder, l.expires_at, l.keeper INTO present_token, present_holder, ends_at, present_keeper
    FROM leases l WHERE l.resource = name FOR UPDATE;
    CALL read_clock(clock);
    IF NOT is_live(name, present_token, ends_at, present_keeper, clock) THEN
      CALL draw_above(present_token, present_token);
      SET verdict = 'granted', is_new = TRUE;
      CALL read_clock(clock);
      UPDATE leases l SET l.token = present_token, l.holder = owner, l.keeper = NULL,
        l.expires_at = TIMESTAMPADD(MICROSECOND, ttl * 1000, clock) WHERE l.resource = name;
    ELSEIF present_holder = owner AND present_keeper IS NULL THEN
      SET verdict = 'granted';
      UPDATE leases l SET l.expires_at = GREATEST(l.expires_at, TIMESTAMPADD(MICROSECOND, ttl * 1000, clock))
      WHERE l.resource = name;
      CALL mark_commit();
    END IF;
  END IF;
  CALL commit_alone(wait_before);
  SELECT verdict, IF(verdict = 'granted', present_token, NULL) AS token, is_new,
    IF(verdict = 'granted', NULL,
       IF(present_keeper IS NULL, CEIL(GREATEST(TIMESTAMPDIFF(MICROSECOND, clock, ends_at), 0) / 1000), ttl))
      AS retry_after_ms;
END
//
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS free_session_lock */
//
CREATE /*M! OR REPLACE */ PROCEDURE free_session_lock(resource VARBINARY(512))
READS SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE was_held BOOLEAN DEFAULT RELEASE_LOCK(session_lock_name(resource));  -- DO would say nothing of an error
  SET was_held = RELEASE_LOCK(older_lock_name(resource));
END
//
-- The same for a lease that lives as long as this session does, or until release_named(): by a lock of the session's
-- (GET_LOCK), with the number beside it. One lease for each session.
--
-- Where this takes the place of one that knew the older names alone, calls of that may go on: until the minute that begins below,
-- when all is in place, the older names are taken as well. A run that fails in between leaves it so for the one that repeats it.
UPDATE lock_secret SET made_at = '9999-12-31' WHERE only_row = 1 AND EXISTS (
  SELECT 1 FROM information_schema.routines r WHERE r.routine_schema = DATABASE() AND r.routine_name = 'acquire_named'
    AND COALESCE(INSTR(r.routine_definition, 'older_lock_name'), 0) = 0)
//
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS acquire_named */
//
CREATE /*M! OR REPLACE */ PROCEDURE acquire_named(
  resource LONGTEXT CHARACTER SET utf8mb4, ttl_ms LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
BEGIN
  DECLARE number, turn, ttl, present_token, present_keeper BIGINT;
  DECLARE name VARBINARY(512);
  DECLARE owner VARBINARY(128);
  DECLARE clock, ends_at DATETIME(6);
  DECLARE verdict VARCHAR(16) CHARACTER SET ascii DEFAULT 'held';
  DECLARE wait_before INT DEFAULT @@session.innodb_lock_wait_timeout;
  DECLARE is_begun BOOLEAN DEFAULT FALSE;
  DECLARE is_locked BOOLEAN DEFAULT FALSE;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL roll_back_alone(wait_before, is_begun);
    IF is_locked THEN CALL free_session_lock(name); END IF;
    RESIGNAL;
  END;
  IF is_certified() THEN
    CALL invalid('a lock by name is of one server: in a Galera cluster take a lease by time');
  END IF;
  CALL read_claim(resource, 1, holder, NULL, name, number, owner, turn);
  CALL read_ttl(ttl_ms, ttl);
  CALL begin_alone(5, is_begun);
  -- A call that an upgrade overtook may have left its lock by the older name, of no lease of this session's.
  IF is_kept(name, CONNECTION_ID())
     AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.resource = name AND l.keeper = CONNECTION_ID()) THEN
    CALL free_session_lock(name);
  END IF;
  IF NOT is_kept(name, CONNECTION_ID()) THEN
    SET is_locked = COALESCE(GET_LOCK(session_lock_name(name), 0), 0) = 1;
    -- A call that began before an upgrade may still be under way: it knows the older name alone.
    CALL read_clock(clock);
    IF is_locked AND TIMESTAMPDIFF(SECOND, (SELECT s.made_at FROM lock_secret s), clock) < 60 THEN
      SET is_locked = COALESCE(GET_LOCK(older_lock_name(name), 0), 0) = 1;
      IF NOT is_locked THEN CALL free_session_lock(name); END IF;
    END IF;
  END IF;
  IF is_locked THEN
    INSERT INTO leases (resource, expires_at) VALUES (name, UTC_TIMESTAMP(6))
    ON DUPLICATE KEY UPDATE expires_at = leases.expires_at;
    SELECT l.token, l.expires_at, l.keeper INTO present_token, ends_at, present_keeper
    FROM leases l WHERE l.resource = name FOR UPDATE;
    CALL read_clock(clock);
    -- With the lock, a session that keeps it is this one, or one that has it by the older name.
    IF present_keeper <=> CONNECTION_ID() OR NOT is_live(name, present_token, ends_at, present_keeper, clock) THEN
      CALL draw_above(present_token, present_token);
      UPDATE leases l SET l.token = present_token, l.holder = owner, l.keeper = CONNECTION_ID(),
        l.expires_at = '9999-12-31' WHERE l.resource = name;
      SET verdict = 'granted';
    END IF;
  END IF;
  CALL commit_alone(wait_before);
  IF is_locked AND verdict = 'held' THEN CALL free_session_lock(name); END IF;
  SELECT verdict, IF(verdict = 'granted', present_token, NULL) AS token, verdict = 'granted' AS is_new,
    IF(verdict = 'granted', NULL, ttl) AS retry_after_ms;
END
//
-- In the session that has it. A row: whether it has it still.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS confirm_named */
//
CREATE /*M! OR REPLACE */ PROCEDURE confirm_named(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4)
READS SQL DATA
BEGIN
  DECLARE number, turn BIGINT;
  DECLARE name VARBINARY(512);
  DECLARE owner VARBINARY(128);
  DECLARE is_live, is_begun BOOLEAN DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    IF is_begun THEN ROLLBACK AND NO CHAIN NO RELEASE; END IF;
    RESIGNAL;
  END;
  CALL read_claim(resource, token, holder, NULL, name, number, owner, turn);
  CALL begin_look();
  SET is_begun = TRUE;
  CALL require_own_tables();
  SET is_live = is_kept(name, CONNECTION_ID()) AND EXISTS (
    SELECT 1 FROM leases l WHERE l.resource = name AND l.token = number AND l.holder = owner AND l.keeper = CONNECTION_ID());
  COMMIT AND NO CHAIN NO RELEASE;
  SELECT is_live;
END
//
-- In the session that has it: frees the lock. A row: whether it was held.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS release_named */
//
CREATE /*M! OR REPLACE */ PROCEDURE release_named(resource LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
BEGIN
  DECLARE was_held, is_open BOOLEAN DEFAULT FALSE;
  DECLARE CONTINUE HANDLER FOR 1568 SET is_open = TRUE;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  SET was_held = is_kept(CAST(resource AS BINARY), CONNECTION_ID());
  CALL free_session_lock(CAST(resource AS BINARY));
  -- Without autocommit a look at the secret began one.
  IF NOT is_open THEN COMMIT AND NO CHAIN NO RELEASE; END IF;
  SELECT was_held;
END
//
-- Of a binary that is older than the secret: by this it finds the lock of a session that it is to end. And of a call that is:
-- it frees by this what it locked.
/*M! DO 0 */ /*!80000 DROP FUNCTION IF EXISTS lock_name */
//
CREATE /*M! OR REPLACE */ FUNCTION lock_name(name VARBINARY(512)) RETURNS VARCHAR(64) CHARACTER SET utf8mb4
READS SQL DATA
SQL SECURITY INVOKER
RETURN IF(IS_USED_LOCK(older_lock_name(name)) IN (
            CONNECTION_ID(), (SELECT l.keeper FROM leases PARTITION (p0) l WHERE l.resource = name)),
          older_lock_name(name), session_lock_name(name))
//
UPDATE lock_secret SET made_at = UTC_TIMESTAMP(6) WHERE only_row = 1 AND made_at > UTC_TIMESTAMP(6)
//
-- Sets when the lease of this claim ends; ttl_text null: now. A row: whether the claim had it still.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS set_end */
//
CREATE /*M! OR REPLACE */ PROCEDURE set_end(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4, ttl_text LONGTEXT CHARACTER SET utf8mb4, is_anybodys BOOLEAN)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE number, turn, ttl, present_token, present_keeper BIGINT;
  DECLARE name VARBINARY(512);
  DECLARE owner, present_holder VARBINARY(128);
  DECLARE clock, ends_at DATETIME(6);
  DECLARE was_live BOOLEAN DEFAULT FALSE;
  DECLARE wait_before INT DEFAULT @@session.innodb_lock_wait_timeout;
  DECLARE is_begun BOOLEAN DEFAULT FALSE;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL roll_back_alone(wait_before, is_begun);
    RESIGNAL;
  END;
  CALL read_claim(resource, token, holder, NULL, name, number, owner, turn);
  IF ttl_text IS NULL THEN SET ttl = 0; ELSE CALL read_ttl(ttl_text, ttl); END IF;
  CALL begin_alone(5, is_begun);
  SELECT l.token, l.holder, l.expires_at, l.keeper INTO present_token, present_holder, ends_at, present_keeper
  FROM leases l WHERE l.resource = name FOR UPDATE;
  CALL read_clock(clock);
  SET was_live = is_live(name, present_token, ends_at, present_keeper, clock)
                 AND (is_anybodys OR (present_token = number AND present_holder = owner AND present_keeper IS NULL));
  -- What a session keeps ends with that, and the caller is told which it is.
  IF was_live AND present_keeper IS NULL THEN
    UPDATE leases l SET l.expires_at = TIMESTAMPADD(MICROSECOND, ttl * 1000, clock) WHERE l.resource = name;
  END IF;
  CALL commit_alone(wait_before);
  SELECT was_live, IF(was_live, present_keeper, NULL) AS keeper;
END
//
-- A lease of ttl_ms from now. A row: 0 where it was lost.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS renew */
//
CREATE /*M! OR REPLACE */ PROCEDURE renew(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4, ttl_ms LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
CALL set_end(resource, token, holder, COALESCE(ttl_ms, ''), FALSE)
//
-- Frees the lock if the claim still holds it. A row: 0 where it does not.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS release_lease */
//
CREATE /*M! OR REPLACE */ PROCEDURE release_lease(
  resource LONGTEXT CHARACTER SET utf8mb4, token LONGTEXT CHARACTER SET utf8mb4,
  holder LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
CALL set_end(resource, token, holder, NULL, FALSE)
//
-- Ends the present lease, whichever claim has it. A row: 0 where there is none; and the session to be ended (KILL) where one
-- keeps it, which goes on until then.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS end_lease */
//
CREATE /*M! OR REPLACE */ PROCEDURE end_lease(resource LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
SQL SECURITY INVOKER
CALL set_end(resource, 1, '', NULL, TRUE)
//
-- Draws a number and grants nothing, or only lifts the counter to mark, within the limit. A row: the number that was drawn
-- last.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS move_counter */
//
CREATE /*M! OR REPLACE */ PROCEDURE move_counter(mark_text LONGTEXT CHARACTER SET utf8mb4, is_drawn BOOLEAN)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE number, mark, present, bound BIGINT;
  DECLARE wait_before INT DEFAULT @@session.innodb_lock_wait_timeout;
  DECLARE is_begun BOOLEAN DEFAULT FALSE;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL roll_back_alone(wait_before, is_begun);
    RESIGNAL;
  END;
  SET mark = read_number(mark_text, 1);
  IF mark_text IS NOT NULL AND mark IS NULL THEN CALL invalid('a token is a number from 1 to 9223372036854775807'); END IF;
  CALL begin_alone(5, is_begun);
  IF is_drawn THEN
    CALL draw_above(mark, number);
  ELSE
    CALL require_own_limits();
    SET bound = 17592186044416;  -- where the limit was lost
    SELECT l.jump_max INTO bound FROM limits l;
    SELECT c.last INTO present FROM counter c FOR UPDATE;
    IF bound > 0 AND mark > present AND mark - present > bound THEN
      SIGNAL SQLSTATE 'ZF004' SET MESSAGE_TEXT =
        'too far above what the counter drew: rebase the fence (fence rebase), or if it is right lease raise --far';
    END IF;
    -- An upsert, so that a counter that was lost can be made anew.
    INSERT INTO counter (only_row, last) VALUES (1, mark) ON DUPLICATE KEY UPDATE last = GREATEST(counter.last, mark);
    SELECT c.last INTO number FROM counter c FOR UPDATE;
    CALL mark_commit();
  END IF;
  CALL commit_alone(wait_before);
  SELECT number;
END
//
-- Lifts the counter, so that every number drawn from now on is higher than mark; never lowers it. Raises ZF004 for a mark
-- that is further above what it drew than the limit: numbers that are skipped are used up.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS raise_counter */
//
CREATE /*M! OR REPLACE */ PROCEDURE raise_counter(mark LONGTEXT CHARACTER SET utf8mb4)
MODIFIES SQL DATA
SQL SECURITY INVOKER
CALL move_counter(COALESCE(mark, ''), FALSE)
//
-- The same by hand, however far; leaves a record of who did it. A row: where the counter stood.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS raise_counter_far */
//
CREATE /*M! OR REPLACE */ PROCEDURE raise_counter_far(mark_text LONGTEXT CHARACTER SET utf8mb4, done_by VARCHAR(256) CHARACTER SET utf8mb4)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE number, mark BIGINT;
  DECLARE wait_before INT DEFAULT @@session.innodb_lock_wait_timeout;
  DECLARE is_begun BOOLEAN DEFAULT FALSE;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL roll_back_alone(wait_before, is_begun);
    RESIGNAL;
  END;
  SET mark = read_number(mark_text, 1);
  IF mark IS NULL THEN CALL invalid('a token is a number from 1 to 9223372036854775807'); END IF;
  CALL begin_alone(5, is_begun);
  SELECT c.last INTO number FROM counter c FOR UPDATE;
  INSERT INTO rebases (resource, token_from, token_to, done_by, done_at)
  VALUES ('', number, GREATEST(mark, COALESCE(number, 0)), COALESCE(done_by, USER()), UTC_TIMESTAMP(6));
  INSERT INTO counter (only_row, last) VALUES (1, mark) ON DUPLICATE KEY UPDATE last = GREATEST(counter.last, mark);
  CALL commit_alone(wait_before);
  SELECT number;
END
//
-- Sets the counter back by hand, where a number that was made up has brought it near its end; leaves a record. What was
-- granted above it is granted again: fences that have seen such numbers are to be rebased, and until then refuse the new
-- ones. Leases above it end. A row: where the counter stood.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS lower_counter */
//
CREATE /*M! OR REPLACE */ PROCEDURE lower_counter(mark_text LONGTEXT CHARACTER SET utf8mb4, done_by VARCHAR(256) CHARACTER SET utf8mb4)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE number, mark BIGINT;
  DECLARE wait_before INT DEFAULT @@session.innodb_lock_wait_timeout;
  DECLARE is_begun BOOLEAN DEFAULT FALSE;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL roll_back_alone(wait_before, is_begun);
    RESIGNAL;
  END;
  SET mark = read_number(mark_text, 1);
  IF mark IS NULL THEN CALL invalid('a token is a number from 1 to 9223372036854775807'); END IF;
  CALL begin_alone(5, is_begun);
  -- The leases before the counter, as a grant locks them.
  DELETE FROM leases WHERE token > mark;
  CALL read_counter(number);
  IF mark >= number THEN CALL invalid('the counter is not above this number: to raise it, call raise_counter()'); END IF;
  IF EXISTS (SELECT 1 FROM leases l WHERE l.token > mark) THEN
    SIGNAL SQLSTATE 'ZF008' SET MESSAGE_TEXT = 'a lease was granted meanwhile, and nothing was done: try again';
  END IF;
  INSERT INTO rebases (resource, token_from, token_to, done_by, done_at)
  VALUES ('', number, mark, COALESCE(done_by, USER()), UTC_TIMESTAMP(6));
  UPDATE counter c SET c.last = mark WHERE c.only_row = 1;
  CALL commit_alone(wait_before);
  SELECT number;
END
//
-- A number, for 'fence init': every token granted before is lower.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS draw */
//
CREATE /*M! OR REPLACE */ PROCEDURE draw()
MODIFIES SQL DATA
SQL SECURITY INVOKER
CALL move_counter(NULL, TRUE)
//
-- A row: the lowest token that is held or still to be drawn, as of one moment: what is granted after it is higher than the
-- counter was. It locks nothing.
/*M! DO 0 */ /*!80000 DROP PROCEDURE IF EXISTS lowest_live */
//
CREATE /*M! OR REPLACE */ PROCEDURE lowest_live()
READS SQL DATA
BEGIN
  DECLARE number, live BIGINT;
  DECLARE clock DATETIME(6);
  DECLARE is_begun BOOLEAN DEFAULT FALSE;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    IF is_begun THEN ROLLBACK AND NO CHAIN NO RELEASE; END IF;
    RESIGNAL;
  END;
  CALL require_fit_server();
  -- Before the snapshot: a lease that is renewed after that was live at this time.
  CALL read_clock(clock);
  CALL begin_look();
  SET is_begun = TRUE;
  CALL require_own_tables();
  SELECT c.last INTO number FROM counter c;
  CALL require_counter(number);
  SELECT MIN(l.token) INTO live FROM leases l
  WHERE l.expires_at > clock AND is_live(l.resource, l.token, l.expires_at, l.keeper, clock);
  COMMIT AND NO CHAIN NO RELEASE;
  SELECT COALESCE(live, IF(number < 9223372036854775807, number + 1, number)) AS lowest_live;
END
//
