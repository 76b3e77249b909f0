-- Claims are judged in the transaction that writes, and for that transaction only: a pooler between cannot leak one.
-- An admission holds the fence's lock until the transaction ends, so nothing newer is admitted before this write is
-- committed or rolled back.
--
-- What an admission leaves behind, for the triggers of protected tables and for the commit of a library, is a note: the
-- claim with a seal, made of the fence's secret and the number of the transaction. Notes are kept in settings, which end
-- with the transaction or with a savepoint that is rolled back. Any session can write a setting, so only the seal
-- counts; and as a session may bring back the note of a savepoint, a row is judged by the fence as well. A statement that
-- judges its own claim leaves a note only once a table is protected: for nothing else would look at it.
--
-- What runs at every guarded write has no search_path of its own, which would have to be set each time: there everything
-- is spelled out, operators, types and collations too (tests/postgres/sql/search_path_test.py looks at that).

-- Whether a claim that the statement itself judges leaves a note: from the first protect() on, for good. PostgreSQL puts
-- the answer into the plans that ask, and makes them anew when it changes (because it is inlined; what is immutable would
-- be evaluated instead, and forgotten). A statement on a table that was protected just now comes after that: it waits for
-- the table's lock.
do $$
begin
  if to_regprocedure('fenceguard.leaves_notes()') is null then
    create function fenceguard.leaves_notes() returns boolean language sql stable as 'select false';
  end if;
end $$;

-- The claim to a fence with this secret, as it is noted in this transaction. PostgreSQL inlines this and the next two
-- where they are called.
create or replace function fenceguard.note(secret bytea, resource text, token bigint, holder text) returns text
language sql stable as $$
  select E'\n' operator(pg_catalog.||) resource operator(pg_catalog.||) E'\t'
    operator(pg_catalog.||) token::pg_catalog.text operator(pg_catalog.||) E'\t'
    operator(pg_catalog.||) holder operator(pg_catalog.||) E'\t'
    operator(pg_catalog.||) pg_catalog.encode(pg_catalog.sha256(
      secret operator(pg_catalog.||) pg_catalog.xid8send(pg_catalog.pg_current_xact_id())
        operator(pg_catalog.||) pg_catalog.int8send(token)
        operator(pg_catalog.||) pg_catalog.convert_to(holder, 'UTF8')), 'hex') operator(pg_catalog.||) E'\n'
$$;

-- The setting that has the notes to a resource, by the key of its lock: one of some, so that the thousandth claim of a
-- transaction is not looked for among all the others.
create or replace function fenceguard.notes_name(key bigint) returns text
language sql immutable as $$
  select 'fenceguard.claims_' operator(pg_catalog.||) (key operator(pg_catalog.&) 63)::pg_catalog.text
$$;

-- True, or fails with 40001 where a cursor may be older than the fence. It looks no further where none is open but the
-- statement itself.
create or replace function fenceguard.require_seen_by_cursors(resource text) returns boolean
language plpgsql as $$
begin
  perform from pg_catalog.pg_cursor() c
  where c.name operator(pg_catalog.<>) ''
     or c.statement operator(pg_catalog.<>) coalesce(pg_catalog.current_query(), '');
  if found then perform fenceguard.require_old_fence(resource); end if;
  return true;
end $$;

-- Keeps a note of a claim to this resource in the setting of this name; true. What is there from another transaction,
-- because it was set for the session, is dropped. A cursor that was opened after the note sees what it should.
create or replace function fenceguard.keep_note(name text, note text, resource text) returns boolean
language sql volatile as $$
  select coalesce(pg_catalog.strpos(pg_catalog.current_setting(name, true), note) operator(pg_catalog.>) 0, false)
    or fenceguard.require_seen_by_cursors(resource)
   and pg_catalog.set_config(name, case
         when pg_catalog.starts_with(pg_catalog.current_setting(name, true),
                pg_catalog.pg_current_xact_id()::pg_catalog.text operator(pg_catalog.||) E'\n')
           then pg_catalog.current_setting(name, true)
         else pg_catalog.pg_current_xact_id()::pg_catalog.text operator(pg_catalog.||) E'\n'
       end operator(pg_catalog.||) note, true) is not null
$$;

-- Whether the claim that equals this fence was admitted in this transaction.
create or replace function fenceguard.is_noted(f fenceguard.fences) returns boolean
language sql stable as $$
  select coalesce(pg_catalog.strpos(
    pg_catalog.current_setting(fenceguard.notes_name(fenceguard.lock_key(f.resource)), true),
    fenceguard.note(f.secret, f.resource, f.token, f.holder)) operator(pg_catalog.>) 0, false)
$$;

-- The heart of it: rules on a claim for a write in this statement or a later one of this transaction. Answers admitted,
-- duplicate, stale, conflict, or 'advance' for a claim that is newer than the fence.
--
-- snapshot is that of the statement that writes, where this is called in one, and else null. If the fence was advanced
-- after it, the statement would read what is older than the writes that the advance waited for: 'advance' too.
create or replace function fenceguard.rule_on(
  resource text, token bigint, holder text, sequence bigint, snapshot pg_snapshot default null) returns text
language plpgsql security definer as $$
declare
  key constant pg_catalog.int8 := pg_catalog.hashtextextended(resource collate pg_catalog."C", 0);
  name constant pg_catalog.text := fenceguard.notes_name(key);
  note pg_catalog.text;
  advanced_by pg_catalog.xid8;
  leaves_note pg_catalog.bool := snapshot is null or fenceguard.leaves_notes();
begin
  if sequence is null
     -- The lock first, and then a look with a snapshot that is newer than it.
     and fenceguard.share_lock(resource collate pg_catalog."C")
     and pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.=) 'read committed' then
    if not leaves_note then
      -- Beside a cursor an earlier note tells that the claim came before it.
      perform from pg_catalog.pg_cursor() c
      where c.name operator(pg_catalog.<>) ''
         or c.statement operator(pg_catalog.<>) coalesce(pg_catalog.current_query(), '');
      leaves_note := found;
    end if;
    select case when leaves_note
             then fenceguard.note(f.secret, f.resource, f.token, f.holder) else '' end, f.advanced_by into note, advanced_by
    from fenceguard.fences f
    where f.resource operator(pg_catalog.=) rule_on.resource collate pg_catalog."C"
      and f.token operator(pg_catalog.=) rule_on.token
      and f.holder operator(pg_catalog.=) rule_on.holder collate pg_catalog."C"
      and not f.closed and not f.below_floor and not pg_catalog.pg_is_in_recovery();
    if note is not null
       and (snapshot is null
            or (pg_catalog.pg_visible_in_snapshot(advanced_by, snapshot)
                and advanced_by operator(pg_catalog.<>) pg_catalog.pg_current_xact_id()))
       and (not leaves_note
            or fenceguard.keep_note(name collate pg_catalog."C", note collate pg_catalog."C",
                                    resource collate pg_catalog."C")) then
      return 'admitted';
    end if;
  end if;
  return fenceguard.rule_slowly(resource collate pg_catalog."C", token, holder collate pg_catalog."C", sequence,
                                snapshot);
end $$;

-- The rest: refusals, sequences, and transactions above READ COMMITTED, whose snapshot may be older than an advance.
-- REQUIRES: the fence's lock is shared, or a sequence is given.
create or replace function fenceguard.rule_slowly(
  resource text, token bigint, holder text, sequence bigint, snapshot pg_snapshot)
returns text language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  verdict text;
begin
  perform fenceguard.require_claim(resource, token, holder, sequence);
  perform fenceguard.require_primary();
  verdict := fenceguard.look(resource, token, holder, sequence);
  if verdict = 'admitted' and not fenceguard.is_in_snapshot(resource, snapshot) then verdict := 'advance'; end if;
  if verdict <> 'admitted' then
    -- It shares the lock all the same: an older one that advances must not take it for an older writer.
    if verdict = 'advance' then perform fenceguard.hold_tags(fenceguard.lock_key(resource), token); end if;
    if verdict = 'duplicate' then perform fenceguard.demand_durable_commit(); end if;
    return verdict;
  end if;
  if sequence is null then
    perform fenceguard.require_unchanged(resource);
    perform fenceguard.note_admitted(resource);
    return verdict;
  end if;
  verdict := (fenceguard.admit_alone(resource, token, holder, sequence)).verdict;
  if not fenceguard.is_in_snapshot(resource, snapshot) then
    raise exception 'the fence of % was advanced after this statement began', quote_literal(resource)
      using errcode = 'serialization_failure', hint = 'Nothing was written. Repeat it.';
  end if;
  return verdict;
end $$;

-- REQUIRES: the claim that equals the fence has just been admitted.
create or replace function fenceguard.note_admitted(resource text) returns void
language plpgsql as $$
begin
  perform fenceguard.keep_note(fenceguard.notes_name(fenceguard.lock_key(f.resource)),
    fenceguard.note(f.secret, f.resource, f.token, f.holder), f.resource)
  from fenceguard.fences f where f.resource = note_admitted.resource;
end $$;

-- Whether a statement with this snapshot sees what the fence's last advance waited for. An advance of this transaction
-- tells by its row in commit_looks what that was. A number that is not from this server's life (the fence was restored
-- from a dump) is older than everything.
create or replace function fenceguard.is_in_snapshot(resource text, snapshot pg_snapshot) returns boolean
language plpgsql as $$
declare
  advanced_by xid8;
begin
  if snapshot is null then return true; end if;
  select f.advanced_by into advanced_by from fenceguard.fences f where f.resource = is_in_snapshot.resource;
  if advanced_by = pg_current_xact_id_if_assigned() then
    return (select bool_and(pg_snapshot_xmax(snapshot) >= pg_snapshot_xmax(l.seen)
              and not exists (select from pg_snapshot_xip(snapshot) x where pg_visible_in_snapshot(x, l.seen)))
            from fenceguard.commit_looks l where l.looked_by = advanced_by) is true;
  end if;
  return (pg_visible_in_snapshot(advanced_by, snapshot)
          or advanced_by >= pg_snapshot_xmax(pg_current_snapshot())) is not false;
end $$;

-- Fails with 40001 if the record was changed after this transaction's snapshot. What only reads, reads that snapshot; but
-- a savepoint that only reads ends, and its transaction writes: only outside of one can a snapshot be exported.
create or replace function fenceguard.require_unchanged(resource text) returns void
language plpgsql as $$
begin
  if current_setting('transaction_read_only') = 'on' then
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
      perform pg_export_snapshot() /* in a transaction that only reads: admit before the first savepoint */;
    end if;
    return;
  end if;
  perform fenceguard.lock_fence_row(resource, true);
end $$;

-- REQUIRES: this transaction has the fence's lock. So of ours only a transaction that moves the floor may keep the row
-- locked, and is cut as a holder of the floor's lock, however short the session's drain is. Above READ COMMITTED it
-- fails with 40001 if the row was changed after the snapshot.
create or replace function fenceguard.lock_fence_row(
  resource text, shared boolean, drain interval default null, cut boolean default null) returns void
language plpgsql as $$
begin
  if shared then
    perform from fenceguard.fences f where f.resource = lock_fence_row.resource for share skip locked;
  else
    perform from fenceguard.fences f where f.resource = lock_fence_row.resource for update skip locked;
  end if;
  if found or not exists (select from fenceguard.fences f where f.resource = lock_fence_row.resource) then return; end if;
  perform fenceguard.lock_or_refuse(fenceguard.floor_lock_key(), greatest(fenceguard.limit_of(drain), interval '5 s'), true,
                                    cut);
  if shared then
    perform from fenceguard.fences f where f.resource = lock_fence_row.resource for share nowait;
  else
    perform from fenceguard.fences f where f.resource = lock_fence_row.resource for update nowait;
  end if;
end $$;

create or replace function fenceguard.require_primary() returns void
language plpgsql as $$
begin
  if pg_is_in_recovery() then
    raise exception 'this server is a standby, whose fences may be older than the primary''s'
      using errcode = 'read_only_sql_transaction', hint = 'Go to the server that was advanced, for fenced reads too.';
  end if;
end $$;

-- The verdict with what is on record in this snapshot, or 'advance' for an admitted claim that is newer. Locks nothing.
-- A refusal is final all the same, because a fence only rises.
create or replace function fenceguard.look(resource text, token bigint, holder text, sequence bigint) returns text
language plpgsql as $$
declare
  fence record;
  verdict text;
begin
  select f.token, f.holder, f.sequence, f.closed, o.floor into fence
  from fenceguard.floor o left join fenceguard.fences f on f.resource = look.resource;
  if not found then
    raise exception 'the fences have no floor: the table fenceguard.floor is empty'
      using errcode = 'object_not_in_prerequisite_state',
        hint = 'Namespace not initialised: claims are refused. Restore the floor, or run ''fenceguard fence init --storage postgres://...''.';
  end if;
  verdict := fenceguard.judge(fence.token, fence.holder, fence.sequence, fence.closed, fence.floor,
                              token, holder, sequence);
  if verdict = 'admitted' and token > greatest(fence.token, fence.floor) then return 'advance'; end if;
  return verdict;
end $$;

-- Judges with the fence's lock held alone, and records: for a claim that is newer than its fence, or has a sequence.
-- A claim that would raise the fence too far above the highest token seen raises ZF004: see jump_bound().
create or replace function fenceguard.admit_alone(
  resource text, token bigint, holder text, sequence bigint,
  drain interval default null, cut boolean default null, jump_max bigint default null,
  out verdict text, out highest bigint)
language plpgsql as $$
declare
  is_advance boolean := fenceguard.look(resource, token, holder, sequence) = 'advance';
begin
  if is_advance then
    perform fenceguard.require_new_snapshots(resource);
    perform fenceguard.require_no_cursors(resource);
    perform fenceguard.lock_or_refuse(fenceguard.floor_lock_key(), interval '10 s', true);
  end if;
  perform fenceguard.lock_alone(resource, token, token - 1, drain, cut);
  perform fenceguard.lock_fence_row(resource, false, drain, cut);
  verdict := fenceguard.look(resource, token, holder, sequence);
  if verdict = 'advance' and not is_advance then
    raise exception 'the fence of % was lowered by hand meanwhile', quote_literal(resource)
      using errcode = 'serialization_failure';
  elsif verdict = 'advance' then
    perform fenceguard.require_plausible(resource, token, jump_max);
    -- For whoever is to cut the holder before off: its token, whether it is finished, whether it is the same. Proves nothing.
    perform set_config('fenceguard.overtaken', coalesce((
      select format('%s %s %s', f.token, (f.closed and f.finished is not distinct from f.token)::int,
                    (f.holder = admit_alone.holder and f.holder <> '')::int)
      from fenceguard.fences f where f.resource = admit_alone.resource), ''), true);
    insert into fenceguard.fences as f (resource, token, holder, sequence)
    values (resource, token, holder, sequence)
    on conflict on constraint fences_pkey do update
      set token = excluded.token, holder = excluded.holder, sequence = excluded.sequence, closed = false,
          advanced_by = excluded.advanced_by, updated_at = clock_timestamp();
    verdict := 'admitted';
  elsif verdict = 'admitted' and sequence is not null then
    update fenceguard.fences f set sequence = admit_alone.sequence, updated_at = clock_timestamp()
    where f.resource = admit_alone.resource;
  end if;
  if verdict = 'admitted' then perform fenceguard.note_admitted(resource); end if;
  highest := fenceguard.highest(resource);
end $$;

-- An advance waits for older writes, and what it then reads must include them: not with an older snapshot.
create or replace function fenceguard.require_new_snapshots(resource text) returns void
language plpgsql as $$
begin
  if not fenceguard.is_read_committed() then
    raise exception 'the claim to % is newer than its fence, and the snapshot of a % transaction would be older than '
      'the writes that an advance waits for', quote_literal(resource), upper(current_setting('transaction_isolation'))
      using errcode = 'serialization_failure',
        hint = 'Call fenceguard.advance(resource, token, holder) in a READ COMMITTED transaction of its own first, '
          'then start this transaction again.';
  end if;
end $$;

-- What a cursor has yet to fetch is as old as its opening. Names those that are open (null: none), in this session. The
-- statement that calls this may be a cursor itself: the unnamed one, or one that the protocol named. What the protocol calls
-- without a statement, and a worker of logical replication, has no query.
create or replace function fenceguard.open_cursors() returns text
language sql stable as $$
  select string_agg(quote_ident(c.name), ', ') from pg_catalog.pg_cursors c
  where not (c.statement = coalesce(current_query(), '') and (c.name = '' or c.statement !~* 'declare'))
$$;

create or replace function fenceguard.require_no_cursors(resource text) returns void
language plpgsql as $$
declare
  cursors constant text := fenceguard.open_cursors();
begin
  if cursors is not null then
    raise exception 'the claim to % is newer than its fence, and a cursor that is open (%) would go on reading what is '
      'older than the writes that an advance waits for', quote_literal(resource), cursors
      using errcode = 'serialization_failure',
        hint = 'Call fenceguard.advance(resource, token, holder) before the first cursor is opened, best in a '
          'transaction of its own.';
  end if;
end $$;

-- Which transactions an open cursor sees is nowhere to be read; but it sees those that are older than everything that this
-- backend keeps visible. Above READ COMMITTED there is but one snapshot, and require_unchanged() looks after it. As in
-- is_in_snapshot(), a number that is not from this server's life is old.
create or replace function fenceguard.require_old_fence(resource text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  cursors constant text := fenceguard.open_cursors();
  advanced_by bigint;
  xid_next bigint;
  xid_oldest bigint;
begin
  if cursors is null or not fenceguard.is_read_committed() then return; end if;
  select f.advanced_by::text::bigint into advanced_by from fenceguard.fences f
  where f.resource = require_old_fence.resource;
  xid_next := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  -- Of its number the lower half is told.
  select xid_next - ((xid_next - a.backend_xmin::text::bigint) & 4294967295) into xid_oldest
  from pg_stat_get_activity(pg_backend_pid()) a;
  if advanced_by < xid_oldest or advanced_by >= xid_next then return; end if;
  raise exception 'the fence of % may be newer than a cursor that is open (%), which would go on reading what is older '
    'than the writes that the advance waited for', quote_literal(resource), cursors
    using errcode = 'serialization_failure',
      hint = 'Claim before the first cursor of the transaction is opened.';
end $$;

-- How far this session's claim may be above the highest token seen; null: as far as it likes. A role that may call init(),
-- which sets the floor to any number, is bound by nothing but what it asks for (null, 0: nothing): the owner's, and a guard's,
-- whose own source grants what it grants. Every other one has the owner's bound, and may ask for a lower one.
create or replace function fenceguard.jump_bound(jump_max bigint) returns bigint
language sql stable set search_path = pg_catalog, pg_temp as $$
  select case when has_function_privilege(session_user, 'fenceguard.init(bigint)', 'execute') then nullif(jump_max, 0)
    else least(nullif(jump_max, 0), (select nullif(l.jump_max, 0) from fenceguard.limits l)) end
$$;

-- What the counter of acquire() ever drew was seen, too. Most claims are told by their own fence, or by that counter.
create or replace function fenceguard.require_plausible(resource text, token bigint, jump_max bigint) returns void
language plpgsql as $$
declare
  bound constant bigint := fenceguard.jump_bound(jump_max);
  seen bigint;
begin
  if bound is null then return; end if;
  seen := greatest(fenceguard.highest(resource), (select s.last_value from fenceguard.token s));
  if token <= seen or token - seen <= bound then return; end if;
  seen := greatest(seen, (select max(f.token) from fenceguard.fences f));
  if token > seen and token - seen > bound then
    raise exception 'the token for % is more than % above the highest seen here, %', quote_literal(resource), bound,
      seen using errcode = 'ZF004', hint = 'Find out where that number came from. No fence was moved. Where it is the first '
        'of a source whose numbers stand high, run ''fenceguard fence init'' with that source.';
  end if;
end $$;

-- As admit(), but answers a refusal as a row: for libraries, which must then not commit. highest is the fence's token
-- afterwards. drain, cut and jump_max: see admit_alone(); null is the setting.
create or replace function fenceguard.rule(
  resource text, token bigint, holder text default '', sequence bigint default null,
  drain interval default null, cut boolean default null, jump_max bigint default null,
  out verdict text, out highest bigint)
language plpgsql security definer as $$
begin
  if fenceguard.equals_fence(resource, token, holder, sequence) then
    verdict := 'admitted';
    highest := token;
  else
    select r.verdict, r.highest into verdict, highest
    from fenceguard.rule_fully(resource collate pg_catalog."C", token, holder collate pg_catalog."C", sequence, drain, cut, jump_max) r;
    perform fenceguard.count_refusal(verdict, resource collate pg_catalog."C", token, highest);
  end if;
end $$;

-- Admits the claim in this transaction, or raises ZF001 (stale), ZF002 (conflict) or ZF003 (missing), with token,
-- highest and resource as JSON in the DETAIL. Answers 'admitted', or 'duplicate': the write with this sequence took
-- effect before, so write nothing. To be called in a statement of its own, before the first savepoint; a claim that is
-- newer than the fence waits for older transactions (the settings fenceguard.drain, 5 s, and fenceguard.cut, on).
create or replace function fenceguard.admit(
  resource text, token bigint, holder text default '', sequence bigint default null, out verdict text)
language plpgsql security definer as $$
declare
  highest pg_catalog.int8;
begin
  if fenceguard.equals_fence(resource, token, holder, sequence) then
    verdict := 'admitted';
    return;
  end if;
  select r.verdict, r.highest into verdict, highest
  from fenceguard.rule_fully(resource collate pg_catalog."C", token, holder collate pg_catalog."C", sequence) r;
  if verdict operator(pg_catalog.=) any (array['stale', 'conflict']) then
    perform fenceguard.refuse(verdict, resource, token, highest);
  end if;
end $$;

-- The common case of the two: true if the claim equals the fence and shares its lock now. It looks before it locks,
-- because a transaction that then needs the lock alone must not hold it shared: two such transactions would wait for
-- each other.
create or replace function fenceguard.equals_fence(resource text, token bigint, holder text, sequence bigint)
returns boolean language plpgsql security definer as $$
declare
  key constant pg_catalog.int8 := pg_catalog.hashtextextended(resource collate pg_catalog."C", 0);
  name constant pg_catalog.text := fenceguard.notes_name(key);
  note pg_catalog.text;
begin
  if sequence is not null
     or pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.<>) 'read committed' then
    return false;
  end if;
  perform from fenceguard.fences f
  where f.resource operator(pg_catalog.=) equals_fence.resource collate pg_catalog."C"
    and f.token operator(pg_catalog.=) equals_fence.token
    and f.holder operator(pg_catalog.=) equals_fence.holder collate pg_catalog."C";
  if not found then return false; end if;
  perform fenceguard.share_lock(resource collate pg_catalog."C");
  select fenceguard.note(f.secret, f.resource, f.token, f.holder) into note from fenceguard.fences f
  where f.resource operator(pg_catalog.=) equals_fence.resource collate pg_catalog."C"
    and f.token operator(pg_catalog.=) equals_fence.token
    and f.holder operator(pg_catalog.=) equals_fence.holder collate pg_catalog."C"
    and not f.closed and not f.below_floor and not pg_catalog.pg_is_in_recovery();
  return note is not null and fenceguard.keep_note(name collate pg_catalog."C", note collate pg_catalog."C",
                                resource collate pg_catalog."C");
end $$;

create or replace function fenceguard.rule_fully(
  resource text, token bigint, holder text, sequence bigint,
  drain interval default null, cut boolean default null, jump_max bigint default null,
  out verdict text, out highest bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform fenceguard.require_claim(resource, token, holder, sequence);
  perform fenceguard.require_primary();
  verdict := fenceguard.look(resource, token, holder, sequence);
  if verdict = 'admitted' then verdict := fenceguard.rule_on(resource, token, holder, sequence); end if;
  if verdict = 'advance' then
    verdict := (fenceguard.admit_alone(resource, token, holder, sequence, drain, cut, jump_max)).verdict;
  end if;
  -- The commit that it rests on may be one whose end no client saw.
  if verdict = 'duplicate' then perform fenceguard.demand_durable_commit(); end if;
  highest := fenceguard.highest(resource);
end $$;

-- What the next two need of what they may not see themselves.
create or replace function fenceguard.highest_seen(resource text) returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select fenceguard.highest(resource collate "C")
$$;

drop function if exists fenceguard.refuse_statement(text, bigint, text, bigint);
create or replace function fenceguard.refuse_statement(resource text, token bigint, holder text)
returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  verdict constant text := fenceguard.look(resource, token, holder, null);
begin
  if verdict in ('advance', 'admitted') then
    raise exception 'the claim to % is newer than its fence, and a statement that writes cannot advance it',
      quote_literal(resource) using errcode = 'serialization_failure',
        hint = 'Call fenceguard.advance(resource, token, holder) in a transaction of its own first, then repeat this.';
  end if;
  perform fenceguard.refuse(verdict, resource, token, fenceguard.highest(resource));
  return false;
end $$;

-- For one-statement writes, where judge and write are one round trip:
--
--   with g as materialized (select * from fenceguard.try_admit('accounts/42', 34, 'h'))
--   update account set balance = 70 from g where g.verdict = 'admitted' and id = 42;
--
-- Answers the verdict as a row, and raises nothing for a refusal. Never advances: the statement's snapshot is older
-- than the wait for older writes, so a claim that is newer than the fence gets 'advance', and is to be advanced in a
-- transaction of its own first. highest is the fence's token. statement is the snapshot of the statement that calls it,
-- and to be left out.
create or replace function fenceguard.try_admit(
  resource text, token bigint, holder text default '', sequence bigint default null,
  statement pg_snapshot default pg_current_snapshot())
returns table (verdict text, highest bigint) language plpgsql rows 1 security definer as $$
begin
  verdict := fenceguard.rule_on(resource, token, holder, sequence, statement);
  highest := case when verdict operator(pg_catalog.=) any (array['admitted', 'duplicate']) then token
                  else fenceguard.tell_refusal(verdict, resource collate pg_catalog."C", token) end;
  return next;
end $$;

-- The one of version 1 has a parameter less. The roles that may call that one may call this one, and no others.
do $$
declare
  before constant regprocedure := to_regprocedure('fenceguard.try_admit(text, bigint, text, bigint)');
  allowed record;
begin
  if before is null then return; end if;
  revoke all on function fenceguard.try_admit(text, bigint, text, bigint, pg_snapshot) from public;
  for allowed in
    select case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end as role,
      case when a.is_grantable then 'with grant option' else '' end as how
    from pg_catalog.pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
    where p.oid = before and a.grantee <> p.proowner
  loop
    execute format('grant execute on function fenceguard.try_admit(text, bigint, text, bigint, pg_snapshot) to %s %s',
                   allowed.role, allowed.how);
  end loop;
  execute format('drop function %s', before);
end $$;

-- The same as a condition, and the fastest form:
--
--   update account set balance = 70 where id = 42 and fenceguard.admitted('accounts/42', 34, 'h');
--
-- True, or raises ZF001, ZF002, ZF003, or 40001 for a claim that must advance first. Where many rows are written,
-- `and (select fenceguard.admitted(...))` judges once. A condition is asked once per row, and again after a wait for one:
-- so it takes no sequence, which would count at the first. statement: as in try_admit().
create or replace function fenceguard.admitted(
  resource text, token bigint, holder text default '', sequence bigint default null,
  statement pg_snapshot default pg_current_snapshot()) returns boolean
language plpgsql volatile security definer as $$
declare
  is_seen pg_catalog.bool;
begin
  -- What rule_on() does, without a call and a note.
  if sequence is null and not fenceguard.leaves_notes()
     and pg_catalog.pg_try_advisory_xact_lock_shared(
           pg_catalog.hashtextextended(resource collate pg_catalog."C", 0))
     and pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.=) 'read committed' then
    select pg_catalog.pg_visible_in_snapshot(f.advanced_by, statement)
           and coalesce(f.advanced_by operator(pg_catalog.<>) pg_catalog.pg_current_xact_id_if_assigned(), true)
    into is_seen from fenceguard.fences f
    where f.resource operator(pg_catalog.=) admitted.resource collate pg_catalog."C"
      and f.token operator(pg_catalog.=) admitted.token
      and f.holder operator(pg_catalog.=) admitted.holder collate pg_catalog."C"
      and not f.closed and not f.below_floor and not pg_catalog.pg_is_in_recovery();
    if is_seen then
      perform from pg_catalog.pg_cursor() c
      where c.name operator(pg_catalog.<>) ''
         or c.statement operator(pg_catalog.<>) coalesce(pg_catalog.current_query(), '');
      if not found then return true; end if;
    end if;
  end if;
  return fenceguard.admitted_slowly(resource, token, holder, sequence, statement);
end $$;

create or replace function fenceguard.admitted_slowly(
  resource text, token bigint, holder text, sequence bigint, statement pg_snapshot) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if sequence is not null then
    raise exception 'a condition takes no sequence: it is asked once per row, and the sequence would count at the first'
      using errcode = 'feature_not_supported',
        hint = 'Use fenceguard.try_admit() in a WITH ... AS MATERIALIZED, or fenceguard.admit() before the statement.';
  end if;
  if fenceguard.rule_on(resource, token, holder, null, statement) = 'admitted' then return true; end if;
  return fenceguard.refuse_statement(resource collate "C", token, holder collate "C");
end $$;

-- The same as a statement of its own, sent together with the one that it guards: in one message or one pipeline, which
-- is one transaction then. Nothing, or raises as admitted() does, and what follows is not begun.
--
--   select fenceguard.confirm('accounts/42', 34, 'h');  update account set balance = 70 where id = 42;
--
-- What follows has a snapshot that is newer than the lock, so it sees whatever the last advance waited for.
create or replace function fenceguard.confirm(resource text, token bigint, holder text default '') returns void
language plpgsql volatile security definer as $$
begin
  if not fenceguard.leaves_notes()
     and pg_catalog.pg_try_advisory_xact_lock_shared(
           pg_catalog.hashtextextended(resource collate pg_catalog."C", 0))
     and pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.=) 'read committed' then
    perform from fenceguard.fences f
    where f.resource operator(pg_catalog.=) confirm.resource collate pg_catalog."C"
      and f.token operator(pg_catalog.=) confirm.token
      and f.holder operator(pg_catalog.=) confirm.holder collate pg_catalog."C"
      and not f.closed and not f.below_floor and not pg_catalog.pg_is_in_recovery();
    if found then
      perform from pg_catalog.pg_cursor() c
      where c.name operator(pg_catalog.<>) ''
         or c.statement operator(pg_catalog.<>) coalesce(pg_catalog.current_query(), '');
      if not found then return; end if;
    end if;
  end if;
  perform fenceguard.confirm_slowly(resource, token, holder);
end $$;

create or replace function fenceguard.confirm_slowly(resource text, token bigint, holder text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if fenceguard.rule_on(resource, token, holder, null) <> 'admitted' then
    perform fenceguard.refuse_statement(resource collate "C", token, holder collate "C");
  end if;
end $$;

-- What a sidecar hands over as it opens a session for its client: the setting fenceguard.relayed_claims, 32 random
-- characters and a JSON array of claims. So no statement names a claim, and none stands where other sessions of the role
-- and readers of the server's log look: pg_stat_activity, pg_cursors, the statement of an error. Token and holder together
-- are a claim.
--
-- What a session can set proves nothing: each of the sidecar's statements has the digest of what was handed over, and a
-- setting that was changed is refused.
create or replace function fenceguard.relayed_claims(seal text) returns jsonb
language plpgsql stable as $$
declare
  given constant pg_catalog.text := coalesce(pg_catalog.current_setting('fenceguard.relayed_claims', true), '');
begin
  if pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(given, 'UTF8')), 'hex') collate pg_catalog."C"
     operator(pg_catalog.<>) seal then
    raise exception 'the claims of this session are not those that its sidecar handed over' using errcode = 'ZF003',
      hint = 'The setting fenceguard.relayed_claims was changed. Leave it alone, and connect again. Nothing was written.';
  end if;
  return pg_catalog.substr(given, 33)::pg_catalog.jsonb;
end $$;

-- confirm() for each of them, with the caller's rights.
create or replace function fenceguard.confirm_relayed(seal text) returns void
language plpgsql as $$
declare
  claims constant pg_catalog.jsonb := fenceguard.relayed_claims(seal);
  claim constant pg_catalog.jsonb := claims operator(pg_catalog.->) 0;
begin
  if pg_catalog.jsonb_array_length(claims) operator(pg_catalog.=) 1 then
    perform fenceguard.confirm(claim operator(pg_catalog.->>) 'resource',
                               (claim operator(pg_catalog.->>) 'token')::pg_catalog.int8,
                               claim operator(pg_catalog.->>) 'holder');
  else
    perform fenceguard.admit_all(claims);
  end if;
end $$;

-- try_advance() for one of them, which are counted from 0, with the caller's rights.
create or replace function fenceguard.advance_relayed(seal text, place integer, jump_max bigint,
                                                      out verdict text, out highest bigint)
language plpgsql as $$
declare
  claim constant pg_catalog.jsonb := fenceguard.relayed_claims(seal) operator(pg_catalog.->) place;
begin
  select a.verdict, a.highest into verdict, highest
  from fenceguard.try_advance(claim operator(pg_catalog.->>) 'resource',
                              (claim operator(pg_catalog.->>) 'token')::pg_catalog.int8,
                              claim operator(pg_catalog.->>) 'holder', null, null, jump_max) a;
end $$;

-- As a statement of its own in the message, and so in the transaction, of the one that it guards: raises for whatever is
-- not admitted, a duplicate (ZF005) included, so that the next statement is not begun. For libraries.
create or replace function fenceguard.require_admitted(
  resource text, token bigint, holder text default '', sequence bigint default null,
  drain interval default null, cut boolean default null, jump_max bigint default null) returns void
language plpgsql security definer as $$
declare
  verdict pg_catalog.text;
  highest pg_catalog.int8;
begin
  if fenceguard.equals_fence(resource, token, holder, sequence) then return; end if;
  select r.verdict, r.highest into verdict, highest
  from fenceguard.rule_fully(resource collate pg_catalog."C", token, holder collate pg_catalog."C", sequence, drain, cut, jump_max) r;
  if verdict operator(pg_catalog.=) 'duplicate' then
    raise exception 'the write to % with this sequence took effect before', pg_catalog.quote_literal(resource)
      using errcode = 'ZF005', detail = pg_catalog.jsonb_build_object('verdict', verdict, 'resource', resource,
        'token', token::pg_catalog.text, 'highest', highest::pg_catalog.text)::pg_catalog.text, hint = 'There is nothing to be written.';
  elsif verdict operator(pg_catalog.<>) 'admitted' then
    perform fenceguard.refuse(verdict, resource, token, highest);
  end if;
end $$;

-- Raises ZF003 unless the claim was admitted in this transaction and no rollback to a savepoint took that back. Rides in
-- the message of a COMMIT, which then is not begun; nor is it where an earlier statement had failed.
create or replace function fenceguard.require_noted(resource text, token bigint, holder text default '') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  -- A cursor that failed after a savepoint released what it had locked.
  perform fenceguard.share_lock(resource collate "C");
  perform from fenceguard.fences f
  where f.resource = require_noted.resource collate "C" and f.token = require_noted.token
    and f.holder = require_noted.holder collate "C" and fenceguard.is_noted(f);
  if not found then perform fenceguard.refuse('missing', resource, token, fenceguard.highest(resource collate "C")); end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform fenceguard.require_unchanged(resource collate "C");
  end if;
end $$;

-- After a write whose end was not seen: true proves that the one with this sequence took effect. False proves nothing:
-- it may still be under way, have been overtaken, or have been rolled back.
create or replace function fenceguard.took_effect(resource text, token bigint, holder text, sequence bigint)
returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform fenceguard.require_claim(resource collate "C", token, holder, sequence);
  perform fenceguard.require_primary();
  if sequence is null or fenceguard.look(resource collate "C", token, holder, sequence) <> 'duplicate' then
    return false;
  end if;
  perform fenceguard.demand_durable_commit();
  return true;
end $$;

-- Several claims, all or none: [{"resource": "accounts/1", "token": "34", "holder": "h", "sequence": null}, ...].
-- Locked in one order, so writers of overlapping sets do not deadlock. Raises as admit() does for the first that is
-- refused, and ZF006 if some are duplicates and some are not.
create or replace function fenceguard.admit_all(claims jsonb)
returns table (resource text, verdict text, highest bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  resources text[];
  verdicts text[];
  marks bigint[];
begin
  -- Not in a loop over the rows, which is a cursor.
  select array_agg(a.resource), array_agg(a.verdict), array_agg(a.highest) into resources, verdicts, marks
  from fenceguard.rule_all(claims) a;
  for i in 1 .. cardinality(verdicts) loop
    if verdicts[i] in ('stale', 'conflict') then
      perform fenceguard.raise_refusal(verdicts[i], resources[i], (claims -> (i - 1) ->> 'token')::bigint, marks[i]);
    end if;
  end loop;
  if 'duplicate' = any (verdicts) and 'admitted' = any (verdicts) then
    raise exception 'some of these claims took effect before and some did not, so they were not one write'
      using errcode = 'ZF006', hint = 'Nothing was recorded. Give one write''s claims their sequences together.';
  end if;
  return query select * from unnest(resources, verdicts, marks);
end $$;

-- The same with every refusal as a row: for libraries, which must then not commit. Where one claim is not admitted
-- nothing is recorded for any.
create or replace function fenceguard.rule_all(
  claims jsonb, drain interval default null, cut boolean default null, jump_max bigint default null)
returns table (resource text, verdict text, highest bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  c record;
begin
  perform fenceguard.require_primary();
  for c in select * from fenceguard.read_claims(claims) loop
    perform fenceguard.require_claim(c.resource, c.token, c.holder, c.sequence);
  end loop;
  -- All locks, then all verdicts, then all records. A refusal is final without a lock, because a fence only rises.
  if fenceguard.are_admissible(claims) then
    perform fenceguard.lock_all(claims, drain, cut);
    if fenceguard.are_admissible(claims) then
      for i in 0 .. jsonb_array_length(claims) - 1 loop
        select c.resource, r.verdict, r.highest into resource, verdict, highest
        from fenceguard.read_claims(jsonb_build_array(claims -> i)) c,
          lateral fenceguard.rule_fully(c.resource, c.token, c.holder, c.sequence, drain, cut, jump_max) r;
        perform fenceguard.count_refusal(verdict, resource, (claims -> i ->> 'token')::bigint, highest);
        return next;
      end loop;
      return;
    end if;
  end if;
  for c in select * from fenceguard.read_claims(claims) loop
    resource := c.resource;
    verdict := fenceguard.look(c.resource, c.token, c.holder, c.sequence);
    if verdict = 'advance' then verdict := 'admitted'; end if;
    if verdict = 'duplicate' then perform fenceguard.demand_durable_commit(); end if;
    highest := fenceguard.highest(c.resource);
    perform fenceguard.count_refusal(verdict, resource, c.token, highest);
    return next;
  end loop;
end $$;

-- Whether each of them would be admitted, with what is on record in this snapshot.
create or replace function fenceguard.are_admissible(claims jsonb) returns boolean
language plpgsql as $$
begin
  return (select bool_and(fenceguard.look(r.resource, r.token, r.holder, r.sequence) in ('admitted', 'advance'))
          from fenceguard.read_claims(claims) r);
end $$;

create or replace function fenceguard.lock_all(claims jsonb, drain interval, cut boolean) returns void
language plpgsql as $$
declare
  c record;
begin
  if exists (select from fenceguard.read_claims(claims) r
             where fenceguard.look(r.resource, r.token, r.holder, r.sequence) = 'advance') then
    perform fenceguard.lock_or_refuse(fenceguard.floor_lock_key(), interval '10 s', true);
  end if;
  for c in select r.*, fenceguard.look(r.resource, r.token, r.holder, r.sequence) as seen
           from fenceguard.read_claims(claims) r order by fenceguard.lock_key(r.resource), r.resource loop
    if c.seen = 'advance' then perform fenceguard.require_new_snapshots(c.resource); end if;
    if c.seen = 'advance' or c.sequence is not null then
      perform fenceguard.lock_alone(c.resource, c.token, c.token - 1, drain, cut);
    else
      perform fenceguard.share_lock(c.resource);
    end if;
  end loop;
end $$;

create or replace function fenceguard.read_claims(
  claims jsonb, out resource text, out token bigint, out holder text, out sequence bigint) returns setof record
language plpgsql as $$
begin
  if claims is null or jsonb_typeof(claims) <> 'array' or jsonb_array_length(claims) = 0 then
    raise exception 'claims are a JSON array such as [{"resource": "accounts/1", "token": "34", "holder": "h"}]'
      using errcode = 'invalid_parameter_value';
  end if;
  if exists (select 1 from jsonb_array_elements(claims) e group by e ->> 'resource' having count(*) > 1) then
    raise exception 'two claims of one call name the same resource' using errcode = 'invalid_parameter_value';
  end if;
  return query select e ->> 'resource', (e ->> 'token')::bigint, coalesce(e ->> 'holder', ''),
    (e ->> 'sequence')::bigint from jsonb_array_elements(claims) e;
end $$;
