-- The fences of one database: tables, what makes them durable, and the view for people. PostgreSQL 13 and later.
--
-- A fence is what is remembered per resource: the highest token seen and whose it was. Only the functions of the next
-- files write here; the roles that use them need no right on any table.

do $$
declare
  version text;
begin
  if current_setting('server_version_num')::int < 130000 then
    raise exception 'fenceguard needs PostgreSQL 13 or later, and this is %', current_setting('server_version');
  end if;
  if pg_catalog.getdatabaseencoding() <> 'UTF8' then
    raise exception 'fenceguard needs a database whose encoding is UTF8, and this one is %',
      pg_catalog.getdatabaseencoding();
  end if;
  if to_regclass('fenceguard.schema_version') is not null then
    select v.version into version from fenceguard.schema_version v;
    if version::int > 1 then
      raise exception 'the schema fenceguard has version %, and this SQL is version 1: install the newer one', version;
    end if;
  end if;
end $$;

create schema if not exists fenceguard;
do $$
begin
  if not pg_has_role(current_user, (select n.nspowner from pg_catalog.pg_namespace n where n.nspname = 'fenceguard'),
                     'usage') then
    raise exception 'the schema fenceguard belongs to another role: install as its owner, or drop it if it is not ours';
  end if;
end $$;

create table if not exists fenceguard.schema_version (
  only_row boolean primary key default true check (only_row),
  version  integer not null
);

-- For programs, which need to know before they have any right to look.
create or replace function fenceguard.version() returns integer
language sql immutable as $$ select 1 $$;

-- The fence of every resource that has no record of its own; only ever rises.
create table if not exists fenceguard.floor (
  only_row boolean primary key default true check (only_row),
  floor    bigint not null check (floor >= 0)
);
insert into fenceguard.floor (floor) values (0) on conflict do nothing;

create table if not exists fenceguard.fences (
  resource    text collate "C" primary key,
  token       bigint not null check (token > 0),
  holder      text collate "C" not null,
  sequence    bigint,                         -- last one that took effect under this token
  closed      boolean not null default false, -- by a revoke; a higher token opens it again
  below_floor boolean not null default false, -- kept by triggers, so that a write need not read the floor
  advanced_by xid8 not null default pg_current_xact_id(), -- transaction that set the token
  updated_at  timestamptz not null default clock_timestamp()
) with (fillfactor = 70);                   -- room for new versions of a row on its own page
create index if not exists fences_token on fenceguard.fences (token);  -- highest token, and what to compact

-- Fences that were set by hand.
create table if not exists fenceguard.rebases (
  resource   text collate "C" not null,
  token_from bigint,
  token_to   bigint not null,
  done_by    text not null,
  done_at    timestamptz not null default clock_timestamp()
);

-- What people look at. It names holders, and token and holder together are a claim: grant it with care.
create or replace view fenceguard.fence as
  select resource, token, holder, sequence, closed, updated_at from fenceguard.fences;

-- What is looked at on each write, with its owner's rights: the fences that this transaction has a claim to. Its claims
-- are in a setting (004_admit.sql), each as a line feed, resource, tab, token, tab, holder, line feed. The views show
-- nothing that the claims do not name, and compare the holder once, at a known place, so that no search of a long
-- setting tells by its duration what it was looking for.
drop view if exists fenceguard.admissible, fenceguard.admissible_last;
create view fenceguard.admissible with (security_barrier) as
  select resource from fenceguard.fences
  where not closed and not below_floor and not pg_is_in_recovery()
    and starts_with(split_part(current_setting('fenceguard.claims', true),
                               E'\n' || resource || E'\t' || token::text || E'\t', 2), holder || E'\n');

-- The same for the claim that was noted last, which is the one that is being ruled on: that another one to the same
-- resource would be admitted says nothing of it.
create view fenceguard.admissible_last with (security_barrier) as
  select resource, advanced_by from fenceguard.fences
  where not closed and not below_floor and not pg_is_in_recovery()
    and right(current_setting('fenceguard.claims', true), length(resource || token::text || holder) + 4)
        = E'\n' || resource || E'\t' || token::text || E'\t' || holder || E'\n';

create or replace function fenceguard.mark_record_below_floor() returns trigger
language plpgsql as $$
begin
  new.below_floor := new.token < (select f.floor from fenceguard.floor f);
  return new;
end $$;
alter function fenceguard.mark_record_below_floor() set search_path = pg_catalog, pg_temp;

create or replace function fenceguard.mark_records_below_floor() returns trigger
language plpgsql as $$
begin
  update fenceguard.fences f set below_floor = true where f.token < new.floor and not f.below_floor;
  return null;
end $$;
alter function fenceguard.mark_records_below_floor() set search_path = pg_catalog, pg_temp;

drop trigger if exists below_floor on fenceguard.fences;
create trigger below_floor before insert or update of token on fenceguard.fences
  for each row execute function fenceguard.mark_record_below_floor();
drop trigger if exists below_floor on fenceguard.floor;
create trigger below_floor after insert or update on fenceguard.floor
  for each row execute function fenceguard.mark_records_below_floor();
alter table fenceguard.fences enable always trigger below_floor;
alter table fenceguard.floor enable always trigger below_floor;

-- SET CONSTRAINTS can make the trigger below run before the commit; a row here makes it run once more. None stays.
create table if not exists fenceguard.commit_looks (looked_by xid8 not null default pg_current_xact_id());

-- An advance, and a grant, commit durably whatever the session says and whatever it was set to in between: this runs
-- at commit. A stronger setting stays. It cannot tell when it was made to run before, so it lines up again: once, and
-- more often where the client's text speaks of constraints.
create or replace function fenceguard.commit_durably() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  rounds constant integer := coalesce(nullif(current_setting('fenceguard.looked', true), ''), '0')::integer;
  rounds_max constant integer := case when strpos(lower(current_query()), 'constraints') > 0 then 20 else 1 end;
begin
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  if tg_table_name = 'commit_looks' then
    delete from fenceguard.commit_looks l where l.looked_by = new.looked_by;
  end if;
  if rounds < rounds_max then
    perform set_config('fenceguard.looked', (rounds + 1)::text, true);
    set constraints fenceguard.durable_look deferred;
    insert into fenceguard.commit_looks default values;
  end if;
  return null;
end $$;
drop trigger if exists durable_look on fenceguard.commit_looks;
create constraint trigger durable_look after insert on fenceguard.commit_looks
  deferrable initially deferred for each row execute function fenceguard.commit_durably();
alter table fenceguard.commit_looks enable always trigger durable_look;

drop trigger if exists durable_insert on fenceguard.fences;
create constraint trigger durable_insert after insert on fenceguard.fences
  deferrable initially deferred for each row execute function fenceguard.commit_durably();
drop trigger if exists durable_update on fenceguard.fences;
create constraint trigger durable_update after update on fenceguard.fences
  deferrable initially deferred for each row
  when (old.token is distinct from new.token or old.closed is distinct from new.closed)
  execute function fenceguard.commit_durably();
drop trigger if exists durable_update on fenceguard.floor;
create constraint trigger durable_update after insert or update on fenceguard.floor
  deferrable initially deferred for each row execute function fenceguard.commit_durably();
alter table fenceguard.fences enable always trigger durable_insert;
alter table fenceguard.fences enable always trigger durable_update;
alter table fenceguard.floor enable always trigger durable_update;
