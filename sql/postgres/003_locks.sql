-- Which transactions may write side by side. Writers under the token of the fence share its lock; a transaction that
-- changes the fence holds it alone, and so waits until every older write is over.
--
-- The locks are advisory ones, of the transaction, because their queue is fair: from the moment a transaction waits for
-- the exclusive one, no further shared one is granted. (A stream of FOR SHARE on the row starves the waiter: measured,
-- 43 s.)
--
-- A transaction that asks for a lock alone also holds its 'tags': shared locks that no transaction ever waits for, and
-- that spell out in pg_locks under which token it asks. So others can tell the older holder, which may be cut, from the
-- newer one, which must not.

-- Of a fence. Two resources whose hashes are equal wait for each other, and nothing else.
create or replace function fenceguard.lock_key(resource text) returns bigint
language sql immutable as $$ select hashtextextended(resource collate "C", 0) $$;

-- Of the floor: shared by a transaction that may add a record, alone for compacting.
create or replace function fenceguard.floor_lock_key() returns bigint
language sql immutable as $$ select -7020450312114311203 $$;

-- Of what the first protect() switches on.
create or replace function fenceguard.notes_lock_key() returns bigint
language sql immutable as $$ select -7020450312114311204 $$;

-- Tells the tags of one token from those of another one in the same transaction.
create or replace function fenceguard.tag_group(token bigint) returns bigint
language sql immutable as $$
  select (token # (token >> 12) # (token >> 24) # (token >> 36) # (token >> 48) # (token >> 60)) & 4095
$$;

-- Tag number part (0 to 2) of a fence: 29 bits of its key, 12 of the group, 2 of the part, 21 of the token.
create or replace function fenceguard.tag(key bigint, part integer, token bigint) returns bigint
language sql immutable as $$
  select ((key >> 35) << 35) | (fenceguard.tag_group(token) << 23) | (part::bigint << 21)
    | ((token >> (21 * part)) & 2097151)
$$;

-- fenceguard holds tags shared only. A session that holds one alone is not cut, because any application may take such a
-- lock, and a claimant could choose its token so as to hit it; the claim goes without that tag then, and may be cut as
-- if it were an older one.
create or replace function fenceguard.hold_tags(key bigint, token bigint) returns void
language plpgsql as $$
declare
  tag bigint;
begin
  for part in 0..2 loop
    tag := fenceguard.tag(key, part, token);
    perform pg_try_advisory_xact_lock_shared((tag >> 32)::integer, ((tag << 32) >> 32)::integer);
  end loop;
end $$;

create or replace function fenceguard.this_database() returns oid
language sql stable set search_path = pg_catalog, pg_temp as $$
  select d.oid from pg_catalog.pg_database d where d.datname = current_database()
$$;

-- Ends the backends that are in these transactions, and only as long as they are; answers how many. Without a warning
-- that one was gone already: a warning means that a commit is in doubt.
create or replace function fenceguard.end_backends(transactions text[]) returns integer
language plpgsql set search_path = pg_catalog, pg_temp set client_min_messages = error as $$
declare
  ended integer;
begin
  select count(*) filter (where pg_terminate_backend(h.pid)) into ended
  from (select distinct l.pid from pg_catalog.pg_locks l
        where l.virtualtransaction = any (transactions) and l.pid <> pg_backend_pid()) h;
  return ended;
exception when insufficient_privilege then
  raise exception 'a client that is stopped inside its transaction keeps a lock, and its backend may not be ended: %',
    sqlerrm using errcode = 'insufficient_privilege',
      hint = format('As a superuser: grant pg_signal_backend to %I. Or end the older transaction by hand.',
                    current_user);
end $$;

-- The holders of an advisory lock of the one-number kind. A prepared transaction has no pid.
create or replace function fenceguard.holders_of(
  key bigint, out pid integer, out transaction text, out alone boolean) returns setof record
language sql stable set search_path = pg_catalog, pg_temp as $$
  select l.pid, l.virtualtransaction, bool_or(l.mode = 'ExclusiveLock')
  from pg_catalog.pg_locks l
  where l.locktype = 'advisory' and l.objsubid = 1 and l.granted and l.pid is distinct from pg_backend_pid()
    and ((l.classid::bigint << 32) | l.objid::bigint) = key and l.database = fenceguard.this_database()
  group by 1, 2
$$;

-- The holders and waiters of the lock of a fence, alone or shared, and under which token at most (null where no tag
-- tells). A prepared transaction has no pid.
create or replace function fenceguard.lock_holders(
  resource text, out pid integer, out transaction text, out granted boolean, out alone boolean, out token_max bigint)
returns setof record language sql stable as $$
  with advisory as materialized (
    select l.pid, l.virtualtransaction, l.granted, l.mode, l.objsubid,
      (l.classid::bigint << 32) | l.objid::bigint as key
    from pg_catalog.pg_locks l
    where l.locktype = 'advisory' and l.database = fenceguard.this_database()
  ), tags as (
    select t.pid, t.token
    from (select a.pid, (a.key >> 23) & 4095 as tag_group, count(*) as parts,
                 sum((a.key & 2097151) << (21 * ((a.key >> 21) & 3)::integer))::bigint as token
          from advisory a
          where a.objsubid = 2 and a.granted and (a.key >> 35) = (fenceguard.lock_key(resource) >> 35)
          group by 1, 2) t
    where t.parts = 3 and fenceguard.tag_group(t.token) = t.tag_group
  )
  select a.pid, a.virtualtransaction, bool_or(a.granted), bool_or(a.granted and a.mode = 'ExclusiveLock'),
    (select max(t.token) from tags t where t.pid is not distinct from a.pid)
  from advisory a
  where a.objsubid = 1 and a.key = fenceguard.lock_key(resource)
  group by 1, 2
$$;

-- Ends the backends that hold the lock of a fence under a token of at most token_max; answers how many. A transaction
-- that holds it alone has its token in its tags (without any it is no claim of ours). One that shares it writes under
-- the fence's own token, which is looked up after the locks, unless its tags say that it was refused as newer. Whether
-- they had committed before is known once the lock was had.
create or replace function fenceguard.cut_older(resource text, token_max bigint) returns integer
language plpgsql as $$
declare
  -- Above READ COMMITTED the fence in the snapshot may be older than the transactions that share its lock now.
  may_be_newer constant boolean := not fenceguard.is_read_committed();
  held text[];
  sharing text[];
begin
  select array_agg(h.transaction) filter (where h.alone and coalesce(h.token_max, 0) <= cut_older.token_max),
         array_agg(h.transaction) filter (where not h.alone and coalesce(h.token_max, 0) <= cut_older.token_max)
  into held, sharing
  from fenceguard.lock_holders(resource) h where h.granted and h.pid <> pg_backend_pid();
  if not may_be_newer and fenceguard.highest(resource) <= cut_older.token_max then held := held || sharing; end if;
  return fenceguard.end_backends(held);
end $$;

-- How long an advance waits for older transactions before it cuts them, and whether it does.
create or replace function fenceguard.drain_setting() returns interval
language sql stable as $$
  select coalesce(nullif(current_setting('fenceguard.drain', true), '')::interval, interval '5 s')
$$;
create or replace function fenceguard.cut_setting() returns boolean
language sql stable as $$ select coalesce(nullif(current_setting('fenceguard.cut', true), '')::boolean, true) $$;
create or replace function fenceguard.limit_of(drain interval) returns interval
language sql stable set search_path = pg_catalog, pg_temp as $$
  select greatest(coalesce(drain, fenceguard.drain_setting()), interval '0')
$$;

-- Takes the lock of a fence alone, for a claim with this token: waits for drain, then cuts the holders under a token of
-- at most token_max, unless told not to. Raises lock_not_available where the lock cannot be had; then nothing was done.
-- The session's own lock_timeout counts too.
create or replace function fenceguard.lock_alone(
  resource text, token bigint, token_max bigint, drain interval, cut boolean) returns void
language plpgsql as $$
begin
  perform fenceguard.hold_tags(fenceguard.lock_key(resource), token);
  if pg_try_advisory_xact_lock(fenceguard.lock_key(resource)) then return; end if;
  perform fenceguard.lock_or_cut(resource, token_max, drain, cut, false);
end $$;

-- Shares the lock of a fence; true. A wait ends as that of lock_alone(): it cuts a transaction that holds the lock
-- alone under a token lower than the fence's, or with no claim at all. PostgreSQL inlines the second of the two where
-- it is called.
create or replace function fenceguard.share_lock_slowly(resource text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if resource is null then return null; end if;
  perform fenceguard.lock_or_cut(resource, greatest(fenceguard.highest(resource) - 1, 0), null, null, true);
  return true;
end $$;
create or replace function fenceguard.share_lock(resource text) returns boolean
language sql volatile as $$
  select pg_catalog.pg_try_advisory_xact_lock_shared(
           pg_catalog.hashtextextended(resource collate pg_catalog."C", 0))
    or fenceguard.share_lock_slowly(resource)
$$;

create or replace function fenceguard.lock_or_cut(
  resource text, token_max bigint, drain interval, cut boolean, shared boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  key constant bigint := fenceguard.lock_key(resource);
  begun constant timestamptz := clock_timestamp();
  own_timeout constant interval := nullif(current_setting('lock_timeout')::interval, interval '0');
  wait interval;
  was_cut boolean := false;
begin
  drain := fenceguard.limit_of(drain);
  cut := coalesce(cut, fenceguard.cut_setting());
  wait := least(drain, own_timeout);
  loop
    if fenceguard.lock_within(key, wait, shared) then return; end if;
    if clock_timestamp() - begun >= own_timeout then
      raise exception 'canceled by lock_timeout while other writes to % are open', quote_literal(resource)
        using errcode = 'lock_not_available';
    end if;
    -- After a cut the lock is free within moments; what stays is newer, or cannot be ended.
    if clock_timestamp() - begun > drain + interval '5 s' then
      perform fenceguard.refuse_busy(resource, drain, cut);
    elsif cut and fenceguard.cut_older(resource, token_max) > 0 then
      was_cut := true;
    elsif not was_cut then
      perform fenceguard.refuse_busy(resource, drain, cut);
    end if;
    wait := least(interval '0.2 s', begun + own_timeout - clock_timestamp());
  end loop;
end $$;

-- False if the lock was not had in time, or in the session's own lock_timeout.
create or replace function fenceguard.lock_within(key bigint, wait interval, shared boolean default false)
returns boolean language plpgsql as $$
declare
  own_timeout constant text := current_setting('lock_timeout');
  longest constant interval := least(wait, nullif(own_timeout::interval, interval '0'));
  wait_ms constant bigint := least(greatest(extract(epoch from longest) * 1000, 1), 2147483647);
begin
  if shared and pg_try_advisory_xact_lock_shared(key) then return true; end if;
  perform set_config('lock_timeout', wait_ms::text, true);
  if shared then
    perform pg_advisory_xact_lock_shared(key);
  else
    perform pg_advisory_xact_lock(key);
  end if;
  perform set_config('lock_timeout', own_timeout, true);
  return true;
exception when lock_not_available then
  return false;  -- the setting went back with the sub-transaction
end $$;

-- The lock of the floor, of the counter, or another one of ours: waits so long, then ends the backends that keep it,
-- unless cut says no, and refuses where that does not help. The session does not choose how long: all sessions share
-- these locks, and a holder is not older than a waiter. A session whose own lock_timeout is shorter ends no backend.
drop function if exists fenceguard.lock_or_refuse(bigint, interval, boolean),
  fenceguard.hold_tags(bigint, bigint, interval, boolean), fenceguard.tag_lease_row(text),
  fenceguard.keep_note(text, text), fenceguard.note(text, bigint, text), fenceguard.note_last(text),
  fenceguard.forget(text, bigint, text), fenceguard.note_admitted(text, bigint, text);
create or replace function fenceguard.lock_or_refuse(
  key bigint, wait interval, shared boolean, cut boolean default null) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  own_timeout constant interval := nullif(current_setting('lock_timeout')::interval, interval '0');
begin
  if fenceguard.lock_within(key, wait, shared) then return; end if;
  if coalesce(cut, fenceguard.cut_setting()) and coalesce(own_timeout >= wait, true)
     and fenceguard.end_backends(array(select h.transaction from fenceguard.holders_of(key) h
                                       where h.alone or not shared)) > 0
     and fenceguard.lock_within(key, interval '5 s', shared) then
    return;
  end if;
  raise exception 'another transaction, still open, keeps the lock of fenceguard''s %',
      case key when fenceguard.floor_lock_key() then 'floor' when fenceguard.counter_lock_key() then 'counter'
               when fenceguard.notes_lock_key() then 'protected tables' else 'leases' end
    using errcode = 'lock_not_available',
      detail = format('Waited %s for %s. Nothing was done.', least(wait, own_timeout), coalesce(
        (select string_agg(coalesce('backend ' || h.pid, 'a prepared transaction'), ', ')
         from fenceguard.holders_of(key) h), 'a transaction that is over now')),
      hint = 'Try again when it is over. Advances, leases and fence commands belong into transactions of their own.';
end $$;

create or replace function fenceguard.refuse_busy(resource text, drain interval, cut boolean) returns void
language plpgsql as $$
declare
  holders text;
begin
  select string_agg(coalesce('backend ' || h.pid, 'a prepared transaction'), ', ') into holders
  from fenceguard.lock_holders(resource) h where h.granted and h.pid is distinct from pg_backend_pid();
  raise exception 'the fence of % is held by an open transaction, and nothing was done', quote_literal(resource)
    using errcode = 'lock_not_available',
      detail = format('Waited %s for %s.', drain, coalesce(holders, 'a transaction that is over now')),
      hint = case when not cut then 'Allow it to be cut, or end it: see fenceguard.cut().'
        else 'It is newer, writes under the same token, or is a prepared transaction. Try again when it is over.' end;
end $$;

-- For operators: ends the backends that keep an advance waiting, and answers how many. Without a token: those that are
-- older than the highest token for which a transaction waits now.
create or replace function fenceguard.cut(resource text, token bigint default null) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  newest bigint := token;
begin
  perform fenceguard.require_resource(resource collate "C");
  if not fenceguard.is_read_committed() then
    raise exception 'cut() needs to see the present fence: call it in a READ COMMITTED transaction'
      using errcode = 'invalid_transaction_state';
  end if;
  if newest is null then
    select max(h.token_max) into newest from fenceguard.lock_holders(resource collate "C") h where not h.granted;
  end if;
  return coalesce(fenceguard.cut_older(resource collate "C", newest - 1), 0);
end $$;
