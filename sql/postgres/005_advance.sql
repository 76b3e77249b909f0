-- What a new holder, and an administrator, do to a fence.

-- Judges the claim alone, before the new holder's first read: waits until every write with a lower token is over, and
-- commits durably. In a READ COMMITTED transaction of its own. Older transactions get drain to end (the setting
-- fenceguard.drain, or 5 s) and are then cut: their backends are ended, their rollback is known. With cut false it only
-- waits. Where the lock cannot be had it raises lock_not_available, and nothing was done.
-- Answers the verdict as a row; highest is the fence's token afterwards.
create or replace function fenceguard.try_advance(
  resource text, token bigint, holder text default '', drain interval default null, cut boolean default null,
  jump_max bigint default null, out verdict text, out highest bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  select r.verdict, r.highest into verdict, highest
  from fenceguard.rule_fully(resource collate "C", token, holder, null, drain, cut, jump_max) r;
  perform fenceguard.count_refusal(verdict, resource collate "C", token, highest);
  if verdict = 'admitted' then perform fenceguard.demand_durable_commit(); end if;
end $$;

-- The same, raising ZF001, ZF002 or ZF003 for a refusal.
create or replace function fenceguard.advance(
  resource text, token bigint, holder text default '', drain interval default null, cut boolean default null,
  out verdict text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  highest bigint;
begin
  select a.verdict, a.highest into verdict, highest
  from fenceguard.rule_fully(resource collate "C", token, holder, null, drain, cut) a;
  if verdict <> 'admitted' then perform fenceguard.refuse(verdict, resource, token, highest); end if;
  perform fenceguard.demand_durable_commit();
end $$;

-- Closes a fence: its present token is refused from now on, and a higher one opens it again. Waits for the transactions
-- that hold the fence's lock, and then cuts them, whatever their tokens are. The present lease of fenceguard.leases is
-- ended, and cut off even if it has not advanced yet. With a token it means that one only: a fence and a lease of a
-- newer or another one stay, and so do their writers. Answers whether there was anything to close.
create or replace function fenceguard.revoke(
  resource text, token bigint default null, holder text default '', drain interval default null,
  cut boolean default null) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  had_lease boolean;
begin
  perform fenceguard.require_claim(resource collate "C", coalesce(token, 1), holder, null);
  if token is null then return fenceguard.revoke_present(resource collate "C", null, '', drain, cut); end if;
  perform fenceguard.require_primary();
  perform fenceguard.require_new_snapshots(resource);
  -- The lease before the fence: no transaction may wait for the fence while this one waits for a renewal.
  had_lease := exists (select from fenceguard.end_present_lease(resource collate "C", token, token, drain, cut) e
                       where e.token is not null);
  if fenceguard.highest(resource collate "C") > token then return had_lease; end if;
  perform fenceguard.lock_or_refuse(fenceguard.floor_lock_key(), interval '10 s', true, cut);
  perform fenceguard.lock_alone(resource collate "C", token, token, drain, cut);
  if fenceguard.highest(resource collate "C") > token then return had_lease; end if;
  return fenceguard.close_fence(resource collate "C", token, holder) or had_lease;
end $$;

-- The same for the present token, and for a lease of another source, if that has not advanced yet. For sidecars.
create or replace function fenceguard.revoke_present(
  resource text, lease_token bigint default null, lease_holder text default '', drain interval default null,
  cut boolean default null) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  lease record;
begin
  perform fenceguard.require_claim(resource collate "C", coalesce(lease_token, 1), lease_holder, null);
  perform fenceguard.require_primary();
  perform fenceguard.require_new_snapshots(resource);
  -- A lease that is newer than the one that was seen stays.
  select e.token, e.holder into lease
  from fenceguard.end_present_lease(resource collate "C", null, lease_token, drain, cut) e;
  if lease.token is null or lease.token < lease_token then
    lease.token := lease_token;
    lease.holder := lease_holder;
  end if;
  perform fenceguard.lock_or_refuse(fenceguard.floor_lock_key(), interval '10 s', true, cut);
  perform fenceguard.lock_alone(resource collate "C",
                                greatest(lease.token, fenceguard.highest(resource collate "C")),
                                9223372036854775807, drain, cut);
  return fenceguard.close_fence(resource collate "C", lease.token, lease.holder);
end $$;

-- Closes a holder's own fence, which writes no more: the next one need not cut it off, unless it has no name, which anybody
-- can say. Its lease stays. Answers whether the fence was its.
create or replace function fenceguard.finish(resource text, token bigint, holder text default '') returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform fenceguard.require_claim(resource collate "C", token, holder, null);
  perform from fenceguard.fences f
  where f.resource = finish.resource collate "C" and f.token = finish.token and f.holder = finish.holder collate "C";
  if not found then return false; end if;
  perform fenceguard.require_primary();
  perform fenceguard.require_new_snapshots(resource);
  perform fenceguard.lock_or_refuse(fenceguard.floor_lock_key(), interval '10 s', true, null);
  perform fenceguard.lock_alone(resource collate "C", token, token, null, null);
  update fenceguard.fences f
  set closed = true, finished = case when finish.holder <> '' then finish.token end, updated_at = clock_timestamp()
  where f.resource = finish.resource collate "C" and f.token = finish.token and f.holder = finish.holder collate "C";
  return found;
end $$;

-- REQUIRES: the fence's lock is held alone. Closes it at this token or at its own, which may be higher.
create or replace function fenceguard.close_fence(resource text, token bigint, holder text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if token > fenceguard.highest(resource) then
    insert into fenceguard.fences as f (resource, token, holder, closed) values (resource, token, holder, true)
    on conflict on constraint fences_pkey do update
      set token = excluded.token, holder = excluded.holder, sequence = null, closed = true, finished = null,
          updated_at = clock_timestamp();
    return true;
  end if;
  update fenceguard.fences f set closed = true, updated_at = clock_timestamp() where f.resource = close_fence.resource;
  return found;
end $$;

-- Folds every record with a token lower than lowest_live into the floor, and drops leases that are long over. Only
-- where all tokens of this database's fences come from one counter; left out, that is the counter of fenceguard.acquire,
-- and it is refused if tokens were seen that did not come from there.
create or replace function fenceguard.compact(
  lowest_live bigint default null, out dropped bigint, out floor bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare
  live bigint := lowest_live;
begin
  perform fenceguard.require_primary();
  perform fenceguard.require_new_snapshots('');
  if live is null then
    live := fenceguard.lowest_live();
    if (select max(f.token) from fenceguard.fences f) > (select s.last_value from fenceguard.token s) then
      raise exception 'tokens were seen that did not come from fenceguard.acquire, so its counter does not tell which '
        'are still live' using errcode = 'object_not_in_prerequisite_state',
          hint = 'Pass the lowest token that is still held or awaited at the source that you use.';
    end if;
  end if;
  -- No transaction adds a record meanwhile. One that waits for this one waits briefly, because this one does not wait
  -- long itself. No backend is cut: a compaction can be done another time.
  perform fenceguard.lock_or_refuse(fenceguard.floor_lock_key(), interval '1 s', false, false);
  with gone as (
    delete from fenceguard.fences f where f.token < live returning f.token
  ), summary as (
    select count(*) as dropped, max(g.token) as highest from gone g
  ), raised as (
    update fenceguard.floor o set floor = s.highest from summary s where s.highest > o.floor returning o.floor
  )
  select s.dropped, coalesce((select r.floor from raised r), o.floor) into dropped, floor
  from summary s, fenceguard.floor o;
  delete from fenceguard.leases l where l.expires_at < clock_timestamp() - interval '1 day';
end $$;

-- Makes this number the floor, or leaves a higher one: after a restore, or for a source that issued tokens before.
-- Answers the floor.
create or replace function fenceguard.init(floor bigint default 0) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  present bigint;
begin
  if init.floor is null or init.floor < 0 then
    raise exception 'a floor is a number from 0 to 9223372036854775807' using errcode = 'invalid_parameter_value';
  end if;
  perform fenceguard.require_primary();
  perform fenceguard.require_new_snapshots('');
  perform fenceguard.lock_or_refuse(fenceguard.floor_lock_key(), interval '5 s', false);
  insert into fenceguard.floor as o (floor) values (init.floor)
  on conflict (only_row) do update set floor = excluded.floor where excluded.floor > o.floor;
  select o.floor into present from fenceguard.floor o;
  return present;
end $$;

-- Sets a fence by hand and records the operator. Lowering one forfeits the guarantee that no stale write lands.
create or replace function fenceguard.rebase(resource text, token bigint, done_by text default session_user)
returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform fenceguard.require_claim(resource collate "C", token, '', null);
  perform fenceguard.require_primary();
  perform fenceguard.require_new_snapshots(resource);
  perform fenceguard.lock_or_refuse(fenceguard.floor_lock_key(), interval '10 s', true);
  perform fenceguard.lock_alone(resource collate "C", token,
                                greatest(token, fenceguard.highest(resource collate "C")), null, null);
  insert into fenceguard.rebases (resource, token_from, token_to, done_by)
  values (resource, (select f.token from fenceguard.fences f where f.resource = rebase.resource collate "C"), token,
          done_by);
  insert into fenceguard.fences as f (resource, token, holder, closed) values (resource, token, '', true)
  on conflict on constraint fences_pkey do update
    set token = excluded.token, holder = '', sequence = null, closed = true, finished = null,
        updated_at = clock_timestamp();
end $$;
