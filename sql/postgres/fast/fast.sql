-- The common cases in C: a claim that equals its fence, and a row written under one. Whatever is anything else goes on to
-- the plain SQL. The claims of a transaction are kept in the backend's memory, which no SQL can write, and end with it or
-- with the savepoint that is rolled back; so notes are not needed.

create or replace function fenceguard.keep_claim(resource text, token bigint, holder text) returns void
language c volatile as 'MODULE_PATHNAME', 'fenceguard_keep_claim';
create or replace function fenceguard.is_claim_kept(resource text, token bigint, holder text) returns boolean
language c stable as 'MODULE_PATHNAME', 'fenceguard_is_claim_kept';
create or replace function fenceguard.kept_token(resource text) returns bigint
language c stable as 'MODULE_PATHNAME', 'fenceguard_kept_token';
create or replace function fenceguard.kept_holder(resource text) returns text
language c stable as 'MODULE_PATHNAME', 'fenceguard_kept_holder';

create or replace function fenceguard.is_noted(f fenceguard.fences) returns boolean
language sql stable as $$ select fenceguard.is_claim_kept(f.resource, f.token, f.holder) $$;

create or replace function fenceguard.note_admitted(resource text) returns void
language plpgsql as $$
declare
  fence fenceguard.fences;
begin
  select f.* into fence from fenceguard.fences f where f.resource = note_admitted.resource;
  -- A cursor that was opened after the claim was noted sees what it should.
  if not fenceguard.is_noted(fence) then perform fenceguard.require_seen_by_cursors(resource); end if;
  perform fenceguard.keep_claim(fence.resource, fence.token, fence.holder);
end $$;

create or replace function fenceguard.noted_claim(resource text, out token bigint, out holder text)
language sql stable as $$ select fenceguard.kept_token(resource), fenceguard.kept_holder(resource) $$;

alter function fenceguard.require_seen_by_cursors(text) security definer set search_path = pg_catalog, pg_temp;

-- Asked in the place of rule_on(), which may not have shared the lock.
create or replace function fenceguard.rule_with_lock(
  resource text, token bigint, holder text, sequence bigint, snapshot pg_snapshot) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if sequence is null then perform fenceguard.share_lock(resource); end if;
  return fenceguard.rule_slowly(resource collate "C", token, holder collate "C", sequence, snapshot);
end $$;
create or replace function fenceguard.rule_on(
  resource text, token bigint, holder text, sequence bigint, snapshot pg_snapshot default null) returns text
language c volatile as 'MODULE_PATHNAME', 'fenceguard_rule_on';

create or replace function fenceguard.equals_fence(resource text, token bigint, holder text, sequence bigint)
returns boolean language c volatile as 'MODULE_PATHNAME', 'fenceguard_equals_fence';

-- Its cost is that of the plain one and its argument, so that conditions are asked in the same order.
create or replace function fenceguard.admitted(
  resource text, token bigint, holder text default '', sequence bigint default null,
  statement pg_snapshot default null) returns boolean
language c volatile cost 101 as 'MODULE_PATHNAME', 'fenceguard_admitted';

create or replace function fenceguard.confirm(resource text, token bigint, holder text default '') returns void
language c volatile as 'MODULE_PATHNAME', 'fenceguard_confirm';

create or replace function fenceguard.check_row(resource text) returns boolean
language c volatile as 'MODULE_PATHNAME', 'fenceguard_check_row';

-- Before each statement that writes a protected table. The claims of the session are read when they are others than
-- before: resource, token and holder of each, in the order in which they are locked.
create or replace function fenceguard.session_claims_in_order() returns text[]
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select array_agg(p.part order by fenceguard.lock_key(c.resource), c.resource, p.place)
  from fenceguard.read_session_claims() c,
    unnest(array[c.resource, c.token::text, c.holder]) with ordinality p (part, place)
$$;
create or replace function fenceguard.admit_session_claims() returns trigger
language c stable as 'MODULE_PATHNAME', 'fenceguard_admit_session_claims';

-- What a backend knows of the fences it read lasts until one is changed.
create or replace function fenceguard.tell_change() returns trigger
language c volatile as 'MODULE_PATHNAME', 'fenceguard_tell_change';
do $do$ begin
  perform fenceguard.install_trigger('fenceguard.fences', 'tell_update', $$
    create trigger tell_update after update on fenceguard.fences for each row
      when ((old.resource, old.token, old.holder, old.closed, old.below_floor, old.advanced_by)
            is distinct from (new.resource, new.token, new.holder, new.closed, new.below_floor, new.advanced_by))
      execute function fenceguard.tell_change()
  $$);
  perform fenceguard.install_trigger('fenceguard.fences', 'tell_delete', $$
    create trigger tell_delete after delete on fenceguard.fences for each row execute function fenceguard.tell_change()
  $$);
  perform fenceguard.install_trigger('fenceguard.fences', 'tell_truncate', $$
    create trigger tell_truncate after truncate on fenceguard.fences execute function fenceguard.tell_change()
  $$);
end $do$;

-- After each row of a protected table, with its expression and the name of its own check function as arguments.
create or replace function fenceguard.check_rows() returns trigger
language c volatile as 'MODULE_PATHNAME', 'fenceguard_check_rows';
do $do$
begin
  execute 'create or replace function fenceguard.check_rows_in_settings() returns trigger language c volatile '
    || fenceguard.text_settings() || $$ as 'MODULE_PATHNAME', 'fenceguard_check_rows' $$;
end $do$;

create or replace function fenceguard.row_trigger_call(check_function text, expression text) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  resource_function constant regproc :=
    regexp_replace(check_function, 'fenceguard_check_([0-9a-f]{16})$', 'fenceguard_resource_\1');
begin
  return format('fenceguard.check_rows%s(%L, %L)',
                case fenceguard.settings_for(resource_function) when '' then '' else '_in_settings' end,
                expression, check_function);
end $$;

-- The way back: the schema stays, without the extension, until plain SQL is installed over it.
create or replace function fenceguard.leave_extension() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  member text;
begin
  for member in
    select format('%s %s', i.type, i.identity)
    from pg_depend d, lateral pg_identify_object(d.classid, d.objid, d.objsubid) i
    where d.refclassid = 'pg_extension'::regclass and d.deptype = 'e'
      -- Types go with what they are of.
      and d.classid in ('pg_class'::regclass, 'pg_proc'::regclass, 'pg_namespace'::regclass, 'pg_event_trigger'::regclass)
      and d.refobjid = (select e.oid from pg_extension e where e.extname = 'fenceguard')
  loop
    execute 'alter extension fenceguard drop ' || member;
  end loop;
  drop extension fenceguard;
end $$;
