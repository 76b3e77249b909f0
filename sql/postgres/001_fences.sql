-- The fences of one database: tables, what makes them durable, and the view for people. PostgreSQL 13 and later.
--
-- A fence is what is remembered per resource: the highest token seen and whose it was. Only the functions of the next
-- files write here; the roles that use them need no right on any table.

-- For this transaction: others may have functions and operators of PostgreSQL's names in the installer's own path.
set local search_path = pg_catalog, pg_temp;

do $$
declare
  version text;
begin
  -- An open transaction must not hold up this one, and with it all writers, for ever. After the limit nothing is
  -- installed.
  if current_setting('lock_timeout') = '0' then perform set_config('lock_timeout', '5s', true); end if;
  if current_setting('server_version_num')::int < 130000 then
    raise exception 'fenceguard needs PostgreSQL 13 or later, and this is %', current_setting('server_version');
  end if;
  if pg_catalog.getdatabaseencoding() <> 'UTF8' then
    raise exception 'fenceguard needs a database whose encoding is UTF8, and this one is %',
      pg_catalog.getdatabaseencoding();
  end if;
  if exists (select from pg_catalog.pg_extension e where e.extname = 'fenceguard')
     and current_setting('fenceguard.installer', true) is distinct from 'extension' then
    raise exception 'the extension fenceguard is installed here, and plain SQL would take half of it away'
      using hint = 'Upgrade it by ALTER EXTENSION fenceguard UPDATE. To go back to plain SQL, call '
        'fenceguard.leave_extension() and install then, in one transaction.';
  end if;
  if to_regclass('fenceguard.schema_version') is not null then
    select v.version into version from fenceguard.schema_version v;
    if version::int > 2 then
      raise exception 'the schema fenceguard has version %, and this SQL is version 2: install the newer one', version;
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

-- For this installation: they make a trigger or a view unless it is there and the same. What did not change is not
-- locked, so that an upgrade waits for no open transaction, and no writer waits for the upgrade.
create or replace function fenceguard.install_trigger(relation regclass, name text, definition text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  mark constant text := 'fenceguard ' || md5(definition);
  present record;
begin
  select t.oid, t.tgenabled = 'A' and obj_description(t.oid, 'pg_trigger') = mark as is_same into present
  from pg_trigger t where t.tgrelid = relation and t.tgname = name;
  if present.is_same then return; end if;
  if present.oid is not null then execute format('drop trigger %I on %s', name, relation); end if;
  execute definition;
  execute format('alter table %s enable always trigger %I', relation, name);
  execute format('comment on trigger %I on %s is %L', name, relation, mark);
end $$;

create or replace function fenceguard.install_view(name text, definition text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  target constant text := format('fenceguard.%I', name);
  fresh constant text := format('fenceguard.%I', name || '_fresh');
  is_same boolean;
begin
  execute format('create view %s %s', fresh, definition);
  select pg_get_viewdef(o.oid) = pg_get_viewdef(n.oid) and o.reloptions is not distinct from n.reloptions into is_same
  from pg_class o, pg_class n where o.oid = to_regclass(target) and n.oid = to_regclass(fresh);
  execute format('drop view %s', fresh);
  if is_same then return; end if;
  execute format('create or replace view %s %s', target, definition);
exception when invalid_table_definition then  -- other columns than before
  execute format('drop view %s', target);
  execute format('create view %s %s', target, definition);
end $$;

create table if not exists fenceguard.schema_version (
  only_row boolean primary key default true check (only_row),
  version  integer not null
);

-- For programs, which need to know before they have any right to look.
create or replace function fenceguard.version() returns integer
language sql immutable as $$ select 2 $$;

-- The fence of every resource that has no record of its own; only ever rises.
create table if not exists fenceguard.floor (
  only_row boolean primary key default true check (only_row),
  floor    bigint not null check (floor >= 0)
);
insert into fenceguard.floor (floor) values (0) on conflict do nothing;

-- Data that are restored alone, into this schema as it was installed, meet the rows that the installation made. The
-- higher floor counts.
create or replace function fenceguard.merge_floor() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  update fenceguard.floor o set floor = new.floor where o.floor < new.floor;
  if exists (select from fenceguard.floor) then return null; end if;
  return new;
end $$;
create or replace function fenceguard.merge_limits() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  update fenceguard.limits l set jump_max = new.jump_max;  -- what the owner had set
  if found then return null; end if;
  return new;
end $$;
create or replace function fenceguard.keep_present_row() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  is_present boolean;
begin
  execute format('select exists (select from %s)', tg_relid::regclass) into is_present;
  return case when is_present then null else new end;
end $$;

create table if not exists fenceguard.fences (
  resource    text collate "C" primary key,
  token       bigint not null check (token > 0),
  holder      text collate "C" not null,
  sequence    bigint,                         -- last one that took effect under this token
  closed      boolean not null default false, -- by a revoke; a higher token opens it again
  below_floor boolean not null default false, -- kept by triggers, so that a write need not read the floor
  advanced_by xid8 not null default pg_current_xact_id(), -- transaction that set the token
  updated_at  timestamptz not null default clock_timestamp(),
  secret      bytea not null default uuid_send(gen_random_uuid()), -- what the seal of an admission is made with (004_admit.sql)
  finished    bigint                          -- token whose own holder closed it, and writes no more
) with (fillfactor = 70);                   -- room for new versions of a row on its own page
do $$
begin
  if to_regclass('fenceguard.fences_token') is null then
    create index fences_token on fenceguard.fences (token);  -- highest token, and what to compact
  end if;
  if not exists (select from pg_catalog.pg_attribute a
                 where a.attrelid = 'fenceguard.fences'::regclass and a.attname = 'secret') then
    alter table fenceguard.fences add column secret bytea not null default uuid_send(gen_random_uuid());
  end if;
  if not exists (select from pg_catalog.pg_attribute a
                 where a.attrelid = 'fenceguard.fences'::regclass and a.attname = 'finished') then
    alter table fenceguard.fences add column finished bigint;
  end if;
end $$;

-- Fences that were set by hand, and with an empty name the counter.
create table if not exists fenceguard.rebases (
  resource   text collate "C" not null,
  token_from bigint,
  token_to   bigint not null,
  done_by    text not null,
  done_at    timestamptz not null default clock_timestamp()
);

-- How far a number may be above the highest that was seen, so that a typing error, or a client that means harm, does not use
-- up all there are: a claim's (see jump_bound()), and one that lifts the counter. For the owner to set; 0: as far as it likes.
-- A Redis server that starts again leaps by an eighth of the microseconds since it last did: within 2^44 after four years.
create table if not exists fenceguard.limits (
  only_row boolean primary key default true check (only_row),
  jump_max bigint not null default 17592186044416 check (jump_max >= 0)  -- 2^44
);
insert into fenceguard.limits (only_row) select true where not exists (select from fenceguard.limits);

-- What people look at. It names holders, and token and holder together are a claim: grant it with care.
do $do$ begin perform fenceguard.install_view('fence', $$ as
  select resource, token, holder, sequence, closed, updated_at from fenceguard.fences
$$); end $do$;

drop view if exists fenceguard.admissible, fenceguard.admissible_last;  -- of older installations

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

do $do$ begin perform fenceguard.install_trigger('fenceguard.fences', 'below_floor', $$
  create trigger below_floor before insert or update of token on fenceguard.fences
    for each row execute function fenceguard.mark_record_below_floor()
$$); end $do$;
do $do$ begin perform fenceguard.install_trigger('fenceguard.floor', 'below_floor', $$
  create trigger below_floor after insert or update on fenceguard.floor
    for each row execute function fenceguard.mark_records_below_floor()
$$); end $do$;

do $do$ begin perform fenceguard.install_trigger('fenceguard.floor', 'merge_floor', $$
  create trigger merge_floor before insert on fenceguard.floor
    for each row execute function fenceguard.merge_floor()
$$); end $do$;
do $do$ begin perform fenceguard.install_trigger('fenceguard.schema_version', 'keep_present_row', $$
  create trigger keep_present_row before insert on fenceguard.schema_version
    for each row execute function fenceguard.keep_present_row()
$$); end $do$;
do $do$ begin perform fenceguard.install_trigger('fenceguard.limits', 'merge_limits', $$
  create trigger merge_limits before insert on fenceguard.limits
    for each row execute function fenceguard.merge_limits()
$$); end $do$;

-- An advance, and a grant, commit durably whatever the session says and whatever it was set to in between: each leaves
-- a row here, whose deferred trigger runs at commit. None stays. seen: what was committed when it was made.
create table if not exists fenceguard.commit_looks (
  looked_by xid8 not null default pg_current_xact_id(),
  seen      pg_snapshot not null default pg_current_snapshot(),
  is_last   boolean not null default false
);
do $$
begin
  if not exists (select from pg_catalog.pg_attribute a
                 where a.attrelid = 'fenceguard.commit_looks'::regclass and a.attname = 'seen') then
    alter table fenceguard.commit_looks
      add column seen pg_snapshot not null default pg_current_snapshot(),
      add column is_last boolean not null default false;
  end if;
end $$;

-- Also where nothing is written: that what is on record was said to be so, to a client that asks again, must not rest on
-- a commit whose end was not seen.
create or replace function fenceguard.demand_durable_commit() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if current_setting('transaction_read_only') = 'on' then return; end if;
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  set constraints fenceguard.durable_look deferred;
  insert into fenceguard.commit_looks default values;
end $$;

create or replace function fenceguard.commit_durably() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform fenceguard.demand_durable_commit();
  return null;
end $$;

-- A stronger setting stays. SET CONSTRAINTS makes this run before the commit, and leaves its trigger immediate: then the
-- row that is inserted here has fired it again, and is gone, and one is left for the commit. At commit the row stays, and
-- is looked at after what other triggers still do.
create or replace function fenceguard.look_at_commit() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  place tid;
begin
  -- The query of such a cursor runs after every trigger, and may set what it likes.
  if exists (select from pg_cursors c where c.is_holdable and c.creation_time >= transaction_timestamp()) then
    raise exception 'an advance or a grant, and a cursor WITH HOLD, do not go into one transaction'
      using errcode = 'object_not_in_prerequisite_state', hint = 'Advance in a transaction of its own.';
  end if;
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  delete from fenceguard.commit_looks l where l.ctid = new.ctid;
  if new.is_last then return null; end if;
  insert into fenceguard.commit_looks as l (is_last) values (true) returning l.ctid into place;
  if not exists (select from fenceguard.commit_looks l where l.ctid = place) then
    set constraints fenceguard.durable_look deferred;
    insert into fenceguard.commit_looks default values;
  end if;
  return null;
end $$;
do $do$ begin perform fenceguard.install_trigger('fenceguard.commit_looks', 'durable_look', $$
  create constraint trigger durable_look after insert on fenceguard.commit_looks
    deferrable initially deferred for each row execute function fenceguard.look_at_commit()
$$); end $do$;

do $do$ begin perform fenceguard.install_trigger('fenceguard.fences', 'durable_insert', $$
  create trigger durable_insert after insert on fenceguard.fences
    for each row execute function fenceguard.commit_durably()
$$); end $do$;
do $do$ begin perform fenceguard.install_trigger('fenceguard.fences', 'durable_update', $$
  create trigger durable_update after update on fenceguard.fences
    for each row when (old.token is distinct from new.token or old.closed is distinct from new.closed)
    execute function fenceguard.commit_durably()
$$); end $do$;
do $do$ begin perform fenceguard.install_trigger('fenceguard.floor', 'durable_update', $$
  create trigger durable_update after insert or update on fenceguard.floor
    for each row execute function fenceguard.commit_durably()
$$); end $do$;
