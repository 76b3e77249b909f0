-- What an operator sees and does: how often claims were refused (counted by count_refusal() in 002_rule.sql), the way
-- out, and a word on each function.

-- Of a protected table: one counter for each verdict, in the table's schema, which the owner of the fences may use.
create or replace function fenceguard.make_refusal_counters(relation regclass, id text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  place record;
  name text;
begin
  select quote_ident(n.nspname) as schema, pg_get_userbyid(c.relowner) as owner,
    (select pg_get_userbyid(f.nspowner) from pg_namespace f where f.nspname = 'fenceguard') as counted_by into place
  from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = relation;
  foreach name in array array['stale', 'conflict', 'missing'] loop
    name := format('%s.fenceguard_refused_%s_%s', place.schema, name, id);
    execute format('create sequence %s as bigint no cycle', name);
    execute format('grant usage, select on sequence %s to %I', name, place.counted_by);
    if place.owner <> current_user then execute format('alter sequence %s owner to %I', name, place.owner); end if;
  end loop;
end $$;

create or replace function fenceguard.drop_refusal_counters(relation regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  name text;
begin
  for name in select s.oid::regclass::text from fenceguard.protected p
              join pg_proc f on f.oid = p.check_function
              join pg_class s on s.relnamespace = f.pronamespace and s.relkind = 'S'
                and s.relname like 'fenceguard\_refused\_%' || substring(f.proname from '_[0-9a-f]{16}$')
              where p.relation = drop_refusal_counters.relation loop
    execute format('drop sequence %s', name);
  end loop;
end $$;

-- With its owner's rights, because a role that may read a view may not read the sequences behind it.
create or replace function fenceguard.count_refusals(out relation regclass, out verdict text, out refusals bigint)
returns setof record language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select null::regclass, v, coalesce(pg_sequence_last_value(('fenceguard.refused_' || v)::regclass), 0)
  from unnest(array['stale', 'conflict', 'missing']) v
  union all
  select p.relation, v, coalesce(pg_sequence_last_value(s.oid), 0)
  from fenceguard.protected p
  join pg_proc f on f.oid = p.check_function
  cross join unnest(array['stale', 'conflict', 'missing']) v
  join pg_class s on s.relnamespace = f.pronamespace and s.relkind = 'S'
    and s.relname = 'fenceguard_refused_' || v || substring(f.proname from '_[0-9a-f]{16}$')
    and case when s.relkind = 'S' then has_sequence_privilege(s.oid, 'usage') end
  where not exists (select from pg_inherits i join fenceguard.protected q on q.relation = i.inhparent
                    where i.inhrelid = p.relation)
$$;

-- Claims that were refused since the installation: at rows of a protected table, or (relation is null) where they were
-- made. Rolled back or not.
do $do$ begin perform fenceguard.install_view('refusals', $$ as
  select r.relation, r.verdict, r.refusals from fenceguard.count_refusals() r
$$); end $do$;

-- Where the extension was left: its triggers are replaced, and what only it needs goes. Before, rows were refused.
do $$
declare
  p record;
  leftover regprocedure;
  name name;
begin
  if exists (select from pg_catalog.pg_extension e where e.extname = 'fenceguard') then return; end if;
  for p in select q.* from fenceguard.protected q join pg_catalog.pg_trigger g on g.tgrelid = q.relation
           where g.tgname = 'fenceguard_rows' and g.tgnargs = 2 loop
    execute format('drop trigger fenceguard_rows on %s', p.relation);
    perform fenceguard.attach_triggers(p.relation, p.check_function::text, p.resource_expression, p.per_statement);
  end loop;
  for name in select g.tgname from pg_catalog.pg_trigger g
              where g.tgrelid = 'fenceguard.fences'::regclass and g.tgname in ('tell_update', 'tell_delete', 'tell_truncate') loop
    execute format('drop trigger %I on fenceguard.fences', name);
  end loop;
  for leftover in
    select f.oid from pg_catalog.pg_proc f where f.pronamespace = 'fenceguard'::regnamespace and f.proname in
      ('keep_claim', 'is_claim_kept', 'kept_token', 'kept_holder', 'rule_with_lock', 'check_rows',
       'check_rows_in_settings', 'tell_change', 'leave_extension', 'session_claims_in_order') loop
    execute format('drop function %s', leftover);
  end loop;
end $$;

-- Takes the protection off every table, then drops the schema, fences and leases with it. (To drop the schema alone
-- leaves tables that no client can write.) For the owner of the schema and of the tables, or a superuser.
create or replace function fenceguard.uninstall() returns void
language plpgsql set search_path = pg_catalog, pg_temp set client_min_messages = warning as $$
declare
  theirs text;
  relation regclass;
begin
  select string_agg(p.relation::text, ', ') into theirs
  from fenceguard.protected p join pg_class c on c.oid = p.relation
  where not pg_has_role(current_user, c.relowner, 'usage');
  if theirs is not null then
    raise exception 'protected tables that belong to others could not be written any more: %', theirs
      using errcode = 'insufficient_privilege',
        hint = 'Let their owners, or a superuser, call fenceguard.unprotect() first. Nothing was done.';
  end if;
  for relation in select p.relation from fenceguard.protected p
                  where not exists (select from pg_inherits i join fenceguard.protected q on q.relation = i.inhparent
                                    where i.inhrelid = p.relation) loop
    perform fenceguard.unprotect(relation);
  end loop;
  drop extension if exists fenceguard cascade;
  drop schema if exists fenceguard cascade;
end $$;

-- What \df+ and \dv+ tell.
do $do$
declare
  c record;
  f regprocedure;
begin
  for c in select * from (values
    ('admit', 'Admits a claim in this transaction, or raises ZF001 (stale), ZF002 (conflict), ZF003 (missing)'),
    ('admit_all', 'Admits several claims, all or none'),
    ('admitted', 'A claim as a condition of one statement that writes'),
    ('confirm', 'A claim as a statement that is sent together with the one that writes'),
    ('try_admit', 'A claim for one statement that writes; answers a refusal as a row, and never advances'),
    ('rule', 'As admit(), with a refusal as a row: whoever calls it must not commit then'),
    ('rule_all', 'As admit_all(), with refusals as rows: whoever calls it must not commit then'),
    ('require_admitted', 'As admit(), raising for a duplicate too (ZF005)'),
    ('require_noted', 'Raises ZF003 unless the claim was admitted in this transaction'),
    ('took_effect', 'Whether the write with this sequence took effect; false proves nothing'),
    ('advance', 'Raises a fence before the new holder''s first read: drains, then cuts older writers'),
    ('try_advance', 'As advance(), with a refusal as a row'),
    ('revoke', 'Closes a fence and ends its lease; with a token, that one only'),
    ('revoke_present', 'Closes the fence of whoever is there, and cuts off a lease of another source'),
    ('finish', 'Closes a holder''s own fence: it writes no more, and need not be cut off'),
    ('cut', 'Ends the backends of older holders that keep an advance waiting'),
    ('compact', 'Folds idle fences into the floor'),
    ('init', 'Raises the floor; never lowers it'),
    ('rebase', 'Sets a fence by hand, and leaves a record of it; lowering one forfeits the guarantee'),
    ('acquire', 'Takes a lease, with a token of its own'),
    ('renew', 'Extends a lease'),
    ('release', 'Gives a lease back'),
    ('end_lease', 'Ends the present lease of a resource, whoever holds it'),
    ('raise', 'Lifts the counter of tokens above this one'),
    ('draw', 'Draws a token and grants nothing'),
    ('lowest_live', 'The lowest token that is held or still to be drawn'),
    ('protect', 'From now on rows of this table are written under a claim to their resource only'),
    ('unprotect', 'Takes the protection of a table off again'),
    ('uninstall', 'Takes the protection off every table and drops the schema'),
    ('version', 'The version of this schema')) x (name, words) loop
    for f in select p.oid from pg_catalog.pg_proc p
             where p.pronamespace = 'fenceguard'::regnamespace and p.proname = c.name loop
      execute format('comment on function %s is %L', f, c.words);
    end loop;
  end loop;
  comment on schema fenceguard is 'Fencing tokens: keeps stale writers out';
end $do$;
