-- Who may write beside whom. Writers under the token of the fence share its lock; whoever changes the fence holds it
-- alone, and so waits until every older write is over.
--
-- The locks are advisory ones, of the transaction, because their queue is fair: from the moment somebody waits for the
-- exclusive one, no further shared one is let in. (A stream of FOR SHARE on the row starves the waiter: measured, 43 s.)
--
-- Whoever asks for a lock alone also holds its 'tags': shared locks that nobody ever waits for, and that spell out
-- in pg_locks under which token it is asked for. So others can tell the older holder, which may be cut, from the newer
-- one, which must not.

-- Of a fence. Two resources whose hashes are equal wait for each other, and nothing else.
create or replace function fenceguard.lock_key(resource text) returns bigint
language sql immutable as $$ select hashtextextended(resource collate "C", 0) $$;

-- Of the floor: shared by whoever may add a record, alone for compacting.
create or replace function fenceguard.floor_lock_key() returns bigint
language sql immutable as $$ select -7020450312114311203 $$;

-- Tag number part (0 to 2) of a fence: 41 bits of its key, the number of the part, 21 bits of the token.
create or replace function fenceguard.tag(key bigint, part integer, token bigint) returns bigint
language sql immutable as $$
  select ((key >> 23) << 23) | (part::bigint << 21) | ((token >> (21 * part)) & 2097151)
$$;

create or replace function fenceguard.hold_tags(key bigint, token bigint) returns void
language plpgsql as $$
declare
  tag bigint;
begin
  for part in 0..2 loop
    tag := fenceguard.tag(key, part, token);
    perform pg_advisory_xact_lock_shared((tag >> 32)::integer, ((tag << 32) >> 32)::integer);
  end loop;
end $$;

-- Who holds or awaits the lock of a fence, alone or shared, and under which token at most (null where no tag tells). A
-- prepared transaction has no pid.
create or replace function fenceguard.lock_holders(
  resource text, out pid integer, out transaction text, out granted boolean, out alone boolean, out token_max bigint)
returns setof record language sql stable as $$
  with advisory as materialized (
    select l.pid, l.virtualtransaction, l.granted, l.mode, l.objsubid,
      (l.classid::bigint << 32) | l.objid::bigint as key
    from pg_catalog.pg_locks l
    where l.locktype = 'advisory' and l.database = (select d.oid from pg_catalog.pg_database d
                                                    where d.datname = current_database())
  ), tags as (
    select a.pid, ((a.key >> 21) & 3) as part, max(a.key & 2097151) as bits
    from advisory a
    where a.objsubid = 2 and a.granted and (a.key >> 23) = (fenceguard.lock_key(resource) >> 23)
    group by 1, 2
  )
  select a.pid, a.virtualtransaction, bool_or(a.granted), bool_or(a.granted and a.mode = 'ExclusiveLock'),
    (select sum(t.bits << (21 * t.part::integer)) from tags t
     where t.pid is not distinct from a.pid having count(*) = 3)::bigint
  from advisory a
  where a.objsubid = 1 and a.key = fenceguard.lock_key(resource)
  group by 1, 2
$$;

-- Ends the backends that hold the lock of a fence under a token of at most token_max; answers how many. Who holds it
-- alone has its token in its tags (without any it is no claim of ours). Who shares it writes under the fence's own
-- token, which is looked up after the locks, unless its tags say that it was refused as newer. Whether they had committed before is known once the lock was had.
create or replace function fenceguard.cut_older(resource text, token_max bigint) returns integer
language plpgsql as $$
declare
  -- Above READ COMMITTED the fence that we see may be older than who shares its lock now.
  may_be_newer constant boolean := current_setting('transaction_isolation') <> 'read committed';
  held text[];
  sharing text[];
  ended integer;
begin
  select array_agg(h.transaction) filter (where h.alone and coalesce(h.token_max, 0) <= cut_older.token_max),
         array_agg(h.transaction) filter (where not h.alone and coalesce(h.token_max, 0) <= cut_older.token_max)
  into held, sharing
  from fenceguard.lock_holders(resource) h where h.granted and h.pid <> pg_backend_pid();
  if not may_be_newer and fenceguard.highest(resource) <= cut_older.token_max then held := held || sharing; end if;
  -- Only as long as they are in that transaction.
  select count(*) filter (where pg_terminate_backend(h.pid)) into ended
  from fenceguard.lock_holders(resource) h where h.granted and h.pid is not null and h.transaction = any (held);
  return ended;
exception when insufficient_privilege then
  raise exception 'a client that is stopped inside its transaction holds the fence of %, and its backend may not be '
    'ended: %', quote_literal(resource), sqlerrm
    using errcode = 'insufficient_privilege',
      hint = format('As a superuser: grant pg_signal_backend to %I. Or end the older transaction by hand.',
                    current_user);
end $$;

-- How long an advance waits for older transactions before it cuts them, and whether it does.
create or replace function fenceguard.drain_setting() returns interval
language sql stable as $$
  select coalesce(nullif(current_setting('fenceguard.drain', true), '')::interval, interval '5 s')
$$;
create or replace function fenceguard.cut_setting() returns boolean
language sql stable as $$ select coalesce(nullif(current_setting('fenceguard.cut', true), '')::boolean, true) $$;

-- Takes the lock of a fence alone, for a claim with this token: waits for drain, then cuts whoever holds it under a
-- token of at most token_max, unless told not to. Raises lock_not_available where the lock cannot be had; then nothing
-- was done. The session's own lock_timeout counts too.
create or replace function fenceguard.lock_alone(
  resource text, token bigint, token_max bigint, drain interval, cut boolean) returns void
language plpgsql as $$
declare
  key constant bigint := fenceguard.lock_key(resource);
  begun timestamptz;
  own_timeout interval;
  wait interval;
  was_cut boolean := false;
begin
  perform fenceguard.hold_tags(key, token);
  if pg_try_advisory_xact_lock(key) then return; end if;

  begun := clock_timestamp();
  drain := greatest(coalesce(drain, fenceguard.drain_setting()), interval '0');
  cut := coalesce(cut, fenceguard.cut_setting());
  own_timeout := nullif(current_setting('lock_timeout')::interval, interval '0');
  wait := least(drain, own_timeout);
  loop
    if fenceguard.lock_within(key, wait) then return; end if;
    if clock_timestamp() - begun >= own_timeout then
      raise exception 'canceled by lock_timeout while older writes to % are open', quote_literal(resource)
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

-- The lock of the floor or of the counter: whoever keeps it in an open transaction must not stop everybody for ever.
create or replace function fenceguard.lock_or_refuse(key bigint, wait interval, shared boolean) returns void
language plpgsql as $$
begin
  if fenceguard.lock_within(key, wait, shared) then return; end if;
  raise exception 'another transaction, still open, keeps the lock of fenceguard''s %',
      case key when fenceguard.floor_lock_key() then 'floor' else 'counter' end
    using errcode = 'lock_not_available',
      detail = format('Waited %s. Nothing was done.', wait),
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

-- For people: ends the backends that keep an advance waiting, and answers how many. Without a token: those that are
-- older than the highest token for which somebody waits now.
create or replace function fenceguard.cut(resource text, token bigint default null) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  newest bigint := token;
begin
  perform fenceguard.require_resource(resource);
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'cut() needs to see the present fence: call it in a READ COMMITTED transaction'
      using errcode = 'invalid_transaction_state';
  end if;
  if newest is null then
    select max(h.token_max) into newest from fenceguard.lock_holders(resource) h where not h.granted;
  end if;
  return coalesce(fenceguard.cut_older(resource, newest - 1), 0);
end $$;
