-- The token source: leases by the server's clock, each with a number from one counter. No verdict rests on that clock.

create sequence if not exists fenceguard.token as bigint no cycle;

create table if not exists fenceguard.leases (
  resource   text collate "C" primary key,
  token      bigint,                             -- last one granted; nulls: none yet
  holder     text collate "C",
  expires_at timestamptz not null default '-infinity',
  -- A lease that lives by a connection instead ('row': a row that is kept locked; 'advisory': a lock of the session).
  kept_by    text not null default 'ttl' check (kept_by in ('ttl', 'row', 'advisory')),
  keeper_pid integer                             -- backend of that connection: live while it holds the lock below
) with (fillfactor = 70);
do $do$ begin perform fenceguard.install_trigger('fenceguard.leases', 'durable_grant', $$
  create trigger durable_grant after update on fenceguard.leases
    for each row when (old.token is distinct from new.token)
    execute function fenceguard.commit_durably()
$$); end $do$;

-- What '?lock=row' keeps locked.
create table if not exists fenceguard.lease_rows (resource text collate "C" primary key);

-- Written by whatever moves the counter outside of a grant, so that it commits durably.
create table if not exists fenceguard.counter_marks (
  only_row boolean primary key default true check (only_row),
  mark     bigint not null
);
insert into fenceguard.counter_marks (mark) values (0) on conflict do nothing;
do $do$ begin perform fenceguard.install_trigger('fenceguard.counter_marks', 'durable_mark', $$
  create trigger durable_mark after update on fenceguard.counter_marks
    for each row execute function fenceguard.commit_durably()
$$); end $do$;

do $do$ begin perform fenceguard.install_trigger('fenceguard.counter_marks', 'keep_present_row', $$
  create trigger keep_present_row before insert on fenceguard.counter_marks
    for each row execute function fenceguard.keep_present_row()
$$); end $do$;

-- Of the counter: shared while a number is drawn and granted, alone to lift it or to look at what is live.
create or replace function fenceguard.counter_lock_key() returns bigint
language sql immutable as $$ select -3391278451190272455 $$;

-- Of the connection that keeps a lease, whichever way: the backend that holds this lock is the keeper.
create or replace function fenceguard.lease_lock_key(resource text) returns bigint
language sql immutable as $$ select hashtextextended(resource collate "C", 1) $$;

-- The backend that keeps a lease now; null: none.
create or replace function fenceguard.keeper(resource text) returns integer
language sql stable as $$
  select l.pid from pg_catalog.pg_locks l
  where l.locktype = 'advisory' and l.objsubid = 1 and l.mode = 'ExclusiveLock' and l.granted
    and (l.classid::bigint << 32) | l.objid::bigint = fenceguard.lease_lock_key(resource)
    and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
  limit 1
$$;

-- The leases that are live.
do $do$ begin perform fenceguard.install_view('lease', $$ as
  select l.resource, l.token, l.holder,
    case when l.expires_at < 'infinity' then l.expires_at - clock_timestamp() end as remaining, l.kept_by, l.keeper_pid
  from fenceguard.leases l
  where l.token is not null and l.expires_at > clock_timestamp()
    and (l.kept_by = 'ttl' or fenceguard.keeper(l.resource) = l.keeper_pid)
$$); end $do$;

create or replace function fenceguard.require_ttl(ttl interval) returns void
language plpgsql as $$
begin
  if ttl is null or ttl < interval '10 ms' or ttl > interval '24 hours' then
    raise exception 'a time to live is 10 ms to 24 hours, and this is %', coalesce(ttl::text, 'null')
      using errcode = 'invalid_parameter_value';
  end if;
end $$;

-- Takes the lock of resource for ttl: granted with a new token; or granted with the same token and a lease of at least
-- ttl from now, if the holder has it already; or held by another holder, at most for retry_after unless it is released.
-- The grant is the caller's once this transaction has committed, which it does durably. Nothing was advanced: call
-- fenceguard.advance() with it before the first read.
create or replace function fenceguard.acquire(
  resource text, ttl interval default '10 s', holder text default null,
  out verdict text, out token bigint, out granted_to text, out is_new boolean, out retry_after interval)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  l fenceguard.leases;
begin
  perform fenceguard.require_ttl(ttl);
  holder := coalesce(holder, replace(gen_random_uuid()::text, '-', ''));
  -- Without the row's lock: a request for a lock that is held must not hold up a renewal.
  select r.* into l from fenceguard.leases r
  where r.resource = acquire.resource collate "C" and r.holder <> acquire.holder collate "C";
  if found and fenceguard.is_live(l) then
    perform fenceguard.require_claim(resource collate "C", 1, holder, null);
    perform fenceguard.require_primary();
  else
    l := fenceguard.lock_lease(resource collate "C", holder);
  end if;
  is_new := not (fenceguard.is_live(l) and l.holder = acquire.holder collate "C" and l.kept_by = 'ttl');
  if is_new and fenceguard.is_live(l) then
    verdict := 'held';
    is_new := null;
    retry_after := case when l.kept_by = 'ttl' then l.expires_at - clock_timestamp() else ttl end;
    return;
  end if;
  verdict := 'granted';
  granted_to := holder;
  token := case when is_new then fenceguard.draw_above(l.token) else l.token end;
  update fenceguard.leases u
  set token = acquire.token, holder = acquire.holder, kept_by = 'ttl', keeper_pid = null,
      expires_at = case when is_new then clock_timestamp() + ttl
                        else greatest(l.expires_at, clock_timestamp() + ttl) end
  where u.resource = acquire.resource collate "C";
  -- A new token sees to it by its trigger.
  if not is_new then perform fenceguard.demand_durable_commit(); end if;
end $$;

-- The lease's row, locked; new if there is none. Every draw of a number comes through here.
create or replace function fenceguard.lock_lease(resource text, holder text) returns fenceguard.leases
language plpgsql as $$
begin
  perform fenceguard.require_claim(resource, 1, holder, null);
  perform fenceguard.require_primary();
  perform fenceguard.lock_or_refuse(fenceguard.counter_lock_key(), interval '5 s', true);
  return fenceguard.lock_lease_row(resource, true, null, null);
end $$;

-- The lease's row, locked for this transaction; nulls where there is none and none is to be made. Waits for drain, then
-- cuts the transaction that keeps it locked.
create or replace function fenceguard.lock_lease_row(
  resource text, make boolean, drain interval, cut boolean, out l fenceguard.leases)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  begun constant timestamptz := clock_timestamp();
  own_timeout constant interval := nullif(current_setting('lock_timeout')::interval, interval '0');
  wait interval;
  was_cut boolean := false;
begin
  drain := fenceguard.limit_of(drain);
  cut := coalesce(cut, fenceguard.cut_setting());
  wait := least(drain, own_timeout);
  -- Without a sub-transaction first, whose lock would make a multixact of each update.
  select r.* into l from fenceguard.leases r where r.resource = lock_lease_row.resource for update skip locked;
  while l.resource is null loop
    if not make and not exists (select from fenceguard.leases r where r.resource = lock_lease_row.resource) then
      return;
    end if;
    l := fenceguard.lease_row_within(resource, make, wait);
    exit when l.resource is not null;
    if clock_timestamp() - begun >= own_timeout then
      raise exception 'canceled by lock_timeout while another transaction keeps the lease of %', quote_literal(resource)
        using errcode = 'lock_not_available';
    end if;
    was_cut := cut and fenceguard.cut_lease_row(resource) > 0 or was_cut;
    if not was_cut or clock_timestamp() - begun > drain + interval '5 s' then
      raise exception 'another transaction, still open, keeps the lease of %', quote_literal(resource)
        using errcode = 'lock_not_available', detail = 'Nothing was done.',
          hint = 'Leases belong into transactions of their own. Try again when it is over.';
    end if;
    wait := least(interval '0.2 s', begun + own_timeout - clock_timestamp());
  end loop;
  perform fenceguard.lock_or_refuse(fenceguard.lease_tag_key(resource), drain, true, cut);
end $$;

-- Null: not in time, or there is none.
create or replace function fenceguard.lease_row_within(resource text, make boolean, wait interval)
returns fenceguard.leases language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  own_timeout constant text := current_setting('lock_timeout');
  l fenceguard.leases;
begin
  perform set_config('lock_timeout', greatest(extract(epoch from wait) * 1000, 1)::bigint::text, true);
  if make then insert into fenceguard.leases (resource) values (resource) on conflict do nothing; end if;
  select r.* into l from fenceguard.leases r where r.resource = lease_row_within.resource for update;
  perform set_config('lock_timeout', own_timeout, true);
  return l;
exception when lock_not_available then
  return null;  -- the setting went back with the sub-transaction
end $$;

-- The transaction that has the row locked also holds this, shared: it tells which backend that is. Ours only share it,
-- so none of ours waits for another's.
create or replace function fenceguard.lease_tag_key(resource text) returns bigint
language sql immutable set search_path = pg_catalog, pg_temp as $$ select hashtextextended(resource collate "C", 2) $$;

create or replace function fenceguard.cut_lease_row(resource text) returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  return fenceguard.end_backends(array(
    select h.transaction from fenceguard.holders_of(fenceguard.lease_tag_key(resource)) h));
end $$;

-- REQUIRES: the row is locked by this transaction.
create or replace function fenceguard.is_live(l fenceguard.leases) returns boolean
language plpgsql as $$
begin
  if l.token is null or l.expires_at <= clock_timestamp() then return false; end if;
  return l.kept_by = 'ttl' or coalesce(fenceguard.keeper(l.resource) = l.keeper_pid, false);
end $$;

-- REQUIRES: the lease's row and the counter's lock are held.
create or replace function fenceguard.draw_above(last bigint) returns bigint
language plpgsql as $$
declare
  drawn constant bigint := nextval('fenceguard.token');
begin
  if drawn <= last then
    raise exception 'the counter fenceguard.token stands at %, below the last token of this resource, %', drawn, last
      using errcode = 'object_not_in_prerequisite_state',
        hint = format('Somebody set it back. Run: select fenceguard.raise(%s)', last);
  end if;
  return drawn;
end $$;

-- Extends the lease to ttl from now; false: it expired, was released or ended, or belongs to another claim.
create or replace function fenceguard.renew(resource text, token bigint, holder text, ttl interval default '10 s')
returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform fenceguard.require_ttl(ttl);
  if not fenceguard.lock_own_lease(resource collate "C", token, holder) then return false; end if;
  update fenceguard.leases l
  set expires_at = case when l.kept_by = 'ttl' then clock_timestamp() + ttl else l.expires_at end
  where l.resource = renew.resource collate "C" and l.token = renew.token and l.holder = renew.holder collate "C"
    and l.expires_at > clock_timestamp() and (l.kept_by = 'ttl' or fenceguard.keeper(l.resource) = l.keeper_pid);
  return found;
end $$;

-- Frees the lock if this claim still holds it; answers whether it did. Waiters are notified.
create or replace function fenceguard.release(resource text, token bigint, holder text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not fenceguard.lock_own_lease(resource collate "C", token, holder) then return false; end if;
  update fenceguard.leases l set expires_at = '-infinity', keeper_pid = null
  where l.resource = release.resource collate "C" and l.token = release.token and l.holder = release.holder collate "C"
    and l.expires_at > clock_timestamp();
  if found then perform pg_notify('fenceguard_released', resource); return true; end if;
  return false;
end $$;

-- The row's lock, for a caller that knows the lease's token and holder; any other caller leaves the row unlocked.
create or replace function fenceguard.lock_own_lease(resource text, token bigint, holder text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  return exists (select from fenceguard.leases l where l.resource = lock_own_lease.resource
                   and l.token = lock_own_lease.token and l.holder = lock_own_lease.holder)
    and (fenceguard.lock_lease_row(resource, false, null, null)).resource is not null;
end $$;

-- Ends the present lease, whichever client holds it, and the connection that keeps it; answers whether there was one.
create or replace function fenceguard.end_lease(resource text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  return exists (select from fenceguard.end_present_lease(resource collate "C") e where e.token is not null);
end $$;

-- Only one whose token is in that range, where it is given.
drop function if exists fenceguard.end_present_lease(text, bigint);
create or replace function fenceguard.end_present_lease(
  resource text, token_min bigint default null, token_max bigint default null, drain interval default null,
  cut boolean default null, out token bigint, out holder text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  l fenceguard.leases;
begin
  -- A row that is only seen is not locked: neither a renewal of a lease that stays, nor its writer, is to be cut.
  select r.* into l from fenceguard.leases r where r.resource = end_present_lease.resource;
  if l.token < token_min or l.token > token_max then return; end if;
  l := fenceguard.lock_lease_row(resource, false, drain, cut);
  if l.resource is null or not fenceguard.is_live(l) or l.token < token_min or l.token > token_max then return; end if;
  if l.kept_by <> 'ttl' then perform pg_terminate_backend(l.keeper_pid); end if;
  update fenceguard.leases u set expires_at = '-infinity', keeper_pid = null where u.resource = l.resource;
  perform pg_notify('fenceguard_released', resource);
  token := l.token;
  holder := l.holder;
end $$;

-- Lifts the counter, so that every token drawn from now on is higher than mark; never lowers it. Raises ZF004 for a mark
-- that is further above what it ever drew than the limit: numbers that are skipped are used up.
create or replace function fenceguard.raise(mark bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform fenceguard.lift_counter(mark, coalesce((select nullif(l.jump_max, 0) from fenceguard.limits l), mark));
end $$;

create or replace function fenceguard.lift_counter(mark bigint, jump_max bigint) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  last bigint;
begin
  if mark is null or mark < 1 then
    raise exception 'a token is a number from 1 to 9223372036854775807' using errcode = 'invalid_parameter_value';
  end if;
  perform fenceguard.require_primary();
  perform fenceguard.lock_or_refuse(fenceguard.counter_lock_key(), interval '2 s', false);
  select s.last_value into last from fenceguard.token s;
  if mark > last and mark - last > jump_max then
    raise exception 'the counter stands at %, and % is more than % above it: it is not raised so far', last, mark, jump_max
      using errcode = 'ZF004', hint = 'If a client made that number up, set the fence back: ''fenceguard fence rebase''. If it '
        'is right, raise the counter by hand: ''fenceguard lease raise --far''.';
  end if;
  perform setval('fenceguard.token', mark) from fenceguard.token s
  where s.last_value < mark or (s.last_value = mark and not s.is_called);
  update fenceguard.counter_marks m set mark = lift_counter.mark;
  return last;
end $$;

-- By hand, however far; leaves a record of who did it.
create or replace function fenceguard.raise_far(mark bigint, done_by text default session_user) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  last constant bigint := fenceguard.lift_counter(mark, mark);
begin
  insert into fenceguard.rebases (resource, token_from, token_to, done_by) values ('', last, greatest(mark, last), done_by);
end $$;

-- Sets the counter back by hand, where a number that was made up has brought it near its end; leaves a record. What was
-- granted above it is granted again: fences that have seen such numbers are to be rebased, and until then refuse the new
-- ones. Leases above it end, with the sessions that keep them. Answers where the counter stood.
create or replace function fenceguard.lower_counter(mark bigint, done_by text default session_user) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  last bigint;
begin
  perform fenceguard.require_claim('r', mark, '', null);
  perform fenceguard.require_primary();
  -- No number is drawn meanwhile.
  perform fenceguard.lock_or_refuse(fenceguard.counter_lock_key(), interval '2 s', false);
  select s.last_value into last from fenceguard.token s;
  if mark >= last then
    raise exception 'the counter stands at %, which is not above %', last, mark
      using errcode = 'invalid_parameter_value', hint = 'To raise it, call fenceguard.raise().';
  end if;
  perform pg_terminate_backend(l.keeper_pid) from fenceguard.lease l where l.token > mark and l.kept_by <> 'ttl';
  perform pg_notify('fenceguard_released', l.resource) from fenceguard.leases l where l.token > mark;
  delete from fenceguard.leases l where l.token > mark;
  update fenceguard.counter_marks m set mark = lower_counter.mark;
  insert into fenceguard.rebases (resource, token_from, token_to, done_by) values ('', last, mark, done_by);
  perform setval('fenceguard.token', mark);  -- last, as no rollback takes it back
  return last;
end $$;

-- Draws a number and grants nothing: every token granted before is at most this, every later one is higher.
create or replace function fenceguard.draw() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  drawn bigint;
begin
  perform fenceguard.require_primary();
  perform fenceguard.lock_or_refuse(fenceguard.counter_lock_key(), interval '2 s', false);
  drawn := nextval('fenceguard.token');
  update fenceguard.counter_marks m set mark = drawn;
  return drawn;
end $$;

-- The lowest token that is held or still to be drawn.
create or replace function fenceguard.lowest_live() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  next bigint;
begin
  perform fenceguard.lock_or_refuse(fenceguard.counter_lock_key(), interval '2 s', false, false);
  select case when s.is_called and s.last_value < 9223372036854775807 then s.last_value + 1 else s.last_value end
  into next from fenceguard.token s;
  return least(next, (select min(l.token) from fenceguard.lease l));
end $$;

-- For leases that live by a connection. A client first gets the lock on a connection of its own (the keeper) with
-- hold_row(), in a transaction that stays open, or with pg_advisory_lock(fenceguard.lease_lock_key(resource)); and then
-- the token by acquire_kept() on another one, which commits it.
create or replace function fenceguard.prepare_row(resource text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform fenceguard.require_resource(resource collate "C");
  if exists (select from fenceguard.lease_rows r where r.resource = prepare_row.resource collate "C") then return; end if;
  -- An insert would wait without a limit for another one that is not committed.
  perform fenceguard.lock_or_refuse(hashtextextended(resource collate "C", 3), interval '5 s', false);
  insert into fenceguard.lease_rows (resource) values (resource) on conflict do nothing;
end $$;

-- True when the row is locked for this transaction, whose backend is the keeper then. Without wait, false if another
-- session has it, or keeps a lease of the other kind. With wait it waits for both, as long as lock_timeout allows; the
-- keeper's lock first, which is freed last. After false, roll back.
create or replace function fenceguard.hold_row(resource text, wait boolean) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if wait then
    perform pg_advisory_xact_lock(fenceguard.lease_lock_key(resource));
    perform from fenceguard.lease_rows r where r.resource = hold_row.resource collate "C" for update;
    return found;
  end if;
  if not pg_try_advisory_xact_lock(fenceguard.lease_lock_key(resource)) then return false; end if;
  perform from fenceguard.lease_rows r where r.resource = hold_row.resource collate "C" for update nowait;
  return found;
exception when lock_not_available then
  return false;
end $$;

-- The token for a lock that the backend keeper_pid holds. 'held' if a lease by time is live; retry_after then.
create or replace function fenceguard.acquire_kept(
  resource text, holder text, kept_by text, keeper_pid integer,
  out verdict text, out token bigint, out retry_after interval)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  l fenceguard.leases;
begin
  if fenceguard.keeper(resource) is distinct from keeper_pid then
    raise exception 'backend % does not hold the lock of %', coalesce(keeper_pid::text, 'null'), quote_literal(resource)
      using errcode = 'object_not_in_prerequisite_state', hint = 'Take it first: hold_row(), or pg_advisory_lock().';
  end if;
  l := fenceguard.lock_lease(resource collate "C", holder);
  -- A lease that was kept by a connection is over: its lock is ours now.
  if l.kept_by = 'ttl' and fenceguard.is_live(l) then
    verdict := 'held';
    retry_after := l.expires_at - clock_timestamp();
    return;
  end if;
  verdict := 'granted';
  token := fenceguard.draw_above(l.token);
  update fenceguard.leases u
  set token = acquire_kept.token, holder = acquire_kept.holder, kept_by = acquire_kept.kept_by,
      keeper_pid = acquire_kept.keeper_pid, expires_at = 'infinity'
  where u.resource = acquire_kept.resource collate "C";
end $$;
