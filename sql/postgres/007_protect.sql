-- Protected tables: triggers judge every row that is written, so that no client, psql included, can write one without a
-- claim that was admitted in its transaction. Row by row, or at a statement's end all the resources of its rows.

-- Judges a write to one row: true if this transaction was admitted to its resource and the fence still says so, or it
-- raises. Like fenceguard.rule_on() it runs at every write.
create or replace function fenceguard.check_row(resource text) returns boolean
language plpgsql security definer as $$
declare
  key constant pg_catalog.int8 := pg_catalog.hashtextextended(resource collate pg_catalog."C", 0);
  is_admitted pg_catalog.bool;
begin
  if fenceguard.share_lock(resource collate pg_catalog."C")
     and pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.=) 'read committed' then
    select pg_catalog.strpos(
             pg_catalog.current_setting(fenceguard.notes_name(key), true),
             fenceguard.note(f.secret, f.resource, f.token, f.holder) collate pg_catalog."C") operator(pg_catalog.>) 0
    into is_admitted
    from fenceguard.fences f
    where f.resource operator(pg_catalog.=) check_row.resource collate pg_catalog."C"
      and not f.closed and not f.below_floor;
    if is_admitted then return true; end if;
  end if;
  return fenceguard.check_row_slowly(resource collate pg_catalog."C");
end $$;

create or replace function fenceguard.check_row_slowly(resource text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform fenceguard.share_lock(resource);
  perform from fenceguard.fences f
  where f.resource = check_row_slowly.resource and not f.closed and not f.below_floor and fenceguard.is_noted(f);
  if not found then perform fenceguard.refuse_row(resource); end if;
  perform fenceguard.require_unchanged(resource);
  return true;
end $$;

-- The newest claim to it that was noted: for the words only, so its seal does not matter.
create or replace function fenceguard.noted_claim(resource text, out token bigint, out holder text)
language plpgsql stable as $$
begin
  select n.token::bigint, n.holder into token, holder
  from unnest(string_to_array(current_setting(fenceguard.notes_name(fenceguard.lock_key(resource)), true), E'\n')) note,
    lateral (select split_part(note, E'\t', 2) as token, split_part(note, E'\t', 3) as holder) n
  where split_part(note, E'\t', 1) = resource
    and case when n.token ~ '^[0-9]{1,19}$' then n.token::numeric <= 9223372036854775807 end
  order by n.token::bigint desc limit 1;
end $$;

create or replace function fenceguard.refuse_row(resource text) returns void
language plpgsql as $$
declare
  claim record;
begin
  if resource is null then
    raise exception 'the resource of a row in a protected table is null, so no claim can cover it'
      using errcode = 'null_value_not_allowed',
        hint = 'Fill the columns that the table''s resource expression uses, or protect it with another expression.';
  end if;
  perform fenceguard.require_resource(resource);
  select c.token, c.holder into claim from fenceguard.noted_claim(resource) c;
  if claim.token is not null and fenceguard.look(resource, claim.token, claim.holder, null) in ('stale', 'conflict') then
    perform fenceguard.refuse(fenceguard.look(resource, claim.token, claim.holder, null), resource, claim.token,
                              fenceguard.highest(resource));
  end if;
  perform fenceguard.refuse_session_claim(resource);
  perform fenceguard.refuse('missing', resource, null, fenceguard.highest(resource));
end $$;

create or replace function fenceguard.refuse_truncate() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'TRUNCATE of %, which is protected: it would write rows of any resource', tg_relid::regclass
    using errcode = 'ZF003', detail = jsonb_build_object('verdict', 'missing', 'resource', null, 'token', null,
                                                         'highest', null)::text,
      hint = 'Delete the rows under their claims, or call fenceguard.unprotect() first.';
end $$;

-- Children at any depth, partitions among them.
create or replace function fenceguard.children(parent oid) returns setof regclass
language sql stable set search_path = pg_catalog, pg_temp as $$
  with recursive tree as (
    select i.inhrelid from pg_catalog.pg_inherits i where i.inhparent = parent
    union
    select i.inhrelid from pg_catalog.pg_inherits i join tree t on i.inhparent = t.inhrelid
  )
  select t.inhrelid::regclass from tree t
$$;

-- Triggers of statements fire for the table that a statement names, and so not for what is written through a parent.
create or replace function fenceguard.has_relatives(relation oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (select from pg_catalog.pg_inherits i where relation in (i.inhrelid, i.inhparent))
      or (select c.relkind = 'p' from pg_catalog.pg_class c where c.oid = relation)
$$;

-- Whether writes to this one table are judged, by triggers that fire always.
create or replace function fenceguard.is_judged(relation oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select count(*) filter (where g.tgname = 'fenceguard_rows') = 1
     and count(*) filter (where g.tgname ~ '^fenceguard_(inserted|updated|deleted)$')
         >= 3 * count(*) filter (where g.tgname = 'fenceguard_rows' and g.tgqual is not null)
     and not (bool_or(g.tgname = 'fenceguard_rows' and g.tgqual is not null) and fenceguard.has_relatives(relation))
  from pg_catalog.pg_trigger g where g.tgrelid = relation and g.tgenabled = 'A'
$$;

-- Whether, besides, TRUNCATE is refused.
create or replace function fenceguard.is_protected(relation oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select fenceguard.is_judged(relation) and (
    (select c.relkind from pg_catalog.pg_class c where c.oid = relation) = 'f'
    or exists (select from pg_catalog.pg_trigger g where g.tgrelid = relation and g.tgname = 'fenceguard_truncate'
               and g.tgenabled = 'A'))
$$;

-- Where no event trigger may be installed: rows of a child that was added after protect() would be written without being
-- judged, and a partition be truncated, so statements on the parent fail until it was run again.
create or replace function fenceguard.require_protected_children() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  child regclass;
begin
  if exists (select from pg_inherits i where i.inhparent = tg_relid) then
    select c into child from fenceguard.children(tg_relid) c where not fenceguard.is_protected(c) limit 1;
    if found then
      raise exception '%, a child of the protected table %, is not protected', child, tg_relid::regclass
        using errcode = 'object_not_in_prerequisite_state',
          hint = format('It was added later. Run fenceguard.protect(%L, ...) again.', tg_relid::regclass);
    end if;
  end if;
  return null;
end $$;

-- What a check function does with its rows. Asked of the function itself, so a dump keeps it. Its digits are random, and so
-- no name of a column can look like the call.
create or replace function fenceguard.mode_of(check_function regproc) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select case when strpos(f.prosrc, format('fenceguard.observe_row(%L', substring(f.proname from '[0-9a-f]{16}$'))) > 0
    then 'observe' else 'enforce' end
  from pg_proc f where f.oid = check_function
$$;

-- Which tables are protected, and by which expression. The trigger of a row calls the table's check function, or one of
-- the extension's that has its name as a second argument: any role may make such a trigger, with any argument.
do $do$ begin perform fenceguard.install_view('protected', $$ as
  select g.relation, convert_from(g.first, 'UTF8') as resource_expression, fenceguard.is_judged(g.relation) as is_always,
         f.oid::regproc as check_function, g.per_statement,
         fenceguard.mode_of(f.oid::regproc) as mode
  from (select t.tgrelid::regclass as relation, t.tgqual is not null as per_statement, t.tgfoid, t.tgnargs,
               substring(t.tgargs for m.mark - 1) as first,
               convert_from(substring(t.tgargs from m.mark + 1 for greatest(octet_length(t.tgargs) - m.mark - 1, 0)),
                            'UTF8') as second
        from pg_catalog.pg_trigger t, lateral (select position('\x00'::bytea in t.tgargs) as mark) m
        where t.tgname = 'fenceguard_rows' and t.tgparentid = 0 and t.tgnargs in (1, 2)) g
  join pg_catalog.pg_proc c on c.oid = g.tgfoid
  join pg_catalog.pg_namespace cn on cn.oid = c.pronamespace
  join pg_catalog.pg_proc f on f.proname ~ '^fenceguard_check_[0-9a-f]{16}$' and not f.prosecdef and case g.tgnargs
    when 1 then f.oid = g.tgfoid
    else cn.nspname = 'fenceguard' and c.proname in ('check_rows', 'check_rows_in_settings')
      and f.proname = substring(g.second from '[^.]*$')
      and g.second = (select format('%I.%I', n.nspname, f.proname) from pg_catalog.pg_namespace n where n.oid = f.pronamespace)
    end
$$); end $do$;

create or replace function fenceguard.drop_triggers(relation regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  name text;
begin
  foreach name in array array['fenceguard_rows', 'fenceguard_inserted', 'fenceguard_updated', 'fenceguard_deleted',
                              'fenceguard_truncate', 'fenceguard_children', 'fenceguard_observed',
                              'fenceguard_session'] loop
    -- A partition's copy of a trigger goes with that of its parent.
    if exists (select from pg_catalog.pg_trigger g
               where g.tgrelid = relation and g.tgname = name and g.tgparentid = 0) then
      execute format('drop trigger %I on %s', name, relation);
    end if;
  end loop;
end $$;

-- Whether children that are added to a protected table are protected as they come: see protect_children().
create or replace function fenceguard.has_event_trigger() returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (select from pg_catalog.pg_event_trigger e where e.evtname = 'fenceguard_children' and e.evtenabled = 'A')
$$;

create or replace function fenceguard.refuse_relatives(relation regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception '% is judged by statements, and can have no parent, no child and no partition', relation
    using errcode = 'wrong_object_type',
      hint = format('Protect it row by row: fenceguard.protect(%L, ...) without per_statement.', relation);
end $$;

-- What the trigger of a row calls.
create or replace function fenceguard.row_trigger_call(check_function text, expression text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$ select format('%s(%L)', check_function, expression) $$;

-- REQUIRES: as protect().
drop function if exists fenceguard.attach_triggers(regclass, text, text),
  fenceguard.protect_by(regclass, text, text), fenceguard.protect_by(regclass, text, text, boolean);  -- of older ones
create or replace function fenceguard.attach_triggers(
  relation regclass, check_function text, expression text, per_statement boolean)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  is_foreign constant boolean := (select c.relkind = 'f' from pg_catalog.pg_class c where c.oid = relation);
  is_observed constant boolean := fenceguard.mode_of(check_function::regproc) = 'observe';
  name text;
begin
  -- What logical replication applies fires no trigger of a statement.
  if not exists (select from pg_catalog.pg_trigger g where g.tgrelid = relation and g.tgname = 'fenceguard_rows') then
    execute format('create trigger fenceguard_rows after insert or update or delete on %s for each row %s'
                   'execute function %s', relation, case when per_statement then
                     'when (pg_catalog.current_setting(''session_replication_role'') operator(pg_catalog.=) ''replica'') '
                     end, case when is_observed then format('%s(%L)', check_function, expression)
                          else fenceguard.row_trigger_call(check_function, expression) end);
  end if;
  if is_observed and not exists (select from pg_catalog.pg_trigger g
                                 where g.tgrelid = relation and g.tgname = 'fenceguard_observed') then
    execute format('create trigger fenceguard_observed after insert or update or delete on %s for each statement '
                   'execute function %s()', relation, check_function);
  end if;
  if per_statement then
    for name in select n from unnest(array['insert', 'update', 'delete']) n
                where not exists (select from pg_catalog.pg_trigger g where g.tgrelid = relation
                                  and g.tgname = 'fenceguard_' || rtrim(n, 'e') || 'ed') loop
      execute format('create trigger fenceguard_%sed after %s on %s referencing %s for each statement '
                     'execute function %s(%L)', rtrim(name, 'e'), name, relation,
                     concat_ws(' ', case when name <> 'delete' then 'new table as fenceguard_new_rows' end,
                               case when name <> 'insert' then 'old table as fenceguard_old_rows' end),
                     check_function, expression);
    end loop;
  end if;
  if not exists (select from pg_catalog.pg_trigger g
                 where g.tgrelid = relation and g.tgname = 'fenceguard_truncate') and not is_foreign then
    execute format('create trigger fenceguard_truncate before truncate on %s for each statement '
                   'execute function %s()', relation,
                   case when is_observed then check_function else 'fenceguard.refuse_truncate' end);
  end if;
  if not fenceguard.has_event_trigger() and not is_foreign and not is_observed then
    execute format('create trigger fenceguard_children before insert or update or delete on %s for each statement '
                   'execute function fenceguard.require_protected_children()', relation);
  end if;
  if not is_observed and not exists (select from pg_catalog.pg_trigger g
                                     where g.tgrelid = relation and g.tgname = 'fenceguard_session') then
    execute format('create trigger fenceguard_session before insert or update or delete on %s for each statement '
                   'execute function fenceguard.admit_session_claims()', relation);
  end if;
  -- Also where session_replication_role says replica.
  for name in select g.tgname from pg_catalog.pg_trigger g
              where g.tgrelid = relation and g.tgname like E'fenceguard\\_%' and g.tgenabled <> 'A' loop
    execute format('alter table %s enable always trigger %I', relation, name);
  end loop;
end $$;

create or replace function fenceguard.require_protectable(relation regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  c record;
begin
  select k.relkind, k.relowner, k.relpersistence, n.nspname into c
  from pg_catalog.pg_class k join pg_catalog.pg_namespace n on n.oid = k.relnamespace where k.oid = relation;
  if c.relkind is null or c.relkind not in ('r', 'p') or c.relpersistence = 't'
     or c.nspname in ('fenceguard', 'pg_catalog', 'information_schema') then
    raise exception '% cannot be protected: only ordinary and partitioned tables can', coalesce(relation::text, 'null')
      using errcode = 'wrong_object_type';
  end if;
  if exists (select from pg_catalog.pg_inherits i where i.inhrelid = relation and i.inhparent in
             (select p.relation from fenceguard.protected p)) then
    raise exception '% is a child of a protected table, and protected with it', relation
      using errcode = 'wrong_object_type';
  end if;
  if not pg_has_role(current_user, c.relowner, 'usage') then
    raise exception 'only the owner of % can do this', relation using errcode = 'insufficient_privilege';
  end if;
end $$;

-- From now on no row of this table is written, by whatever client or command, without a claim to its resource that was
-- admitted in the same transaction. The expression gives a row's resource from its own columns: $$ 'accounts/' || id $$.
-- An update is judged for the old and the new row. Children, partitions, and what is attached later are included;
-- TRUNCATE is refused. Run again, it puts the new expression in place of the old one. For the table's owner to call,
-- which also needs CREATE on the table's schema; only the owner and a superuser can undo it.
-- per_statement: each resource is judged once at a statement's end, however many rows of it were written. Less for a
-- statement that writes many rows, more for one that writes a single row. mode 'observe': what would be refused is warned
-- of and counted, and let through (007b_observe.sql). Either mode replaces the other in one statement.
create or replace function fenceguard.protect(
  relation regclass, resource_expression text, per_statement boolean default false, mode text default 'enforce')
returns void language plpgsql as $$
begin
  perform fenceguard.protect_by(relation, resource_expression, pg_catalog.current_setting('search_path'), per_statement,
                                mode);
end $$;

-- Those of older installations would make calls ambiguous. Who may call them may call this one, and nobody else.
do $$
declare
  old constant oid := to_regprocedure('fenceguard.protect(regclass, text)');
  grantee oid;
begin
  if old is null then return; end if;
  revoke all on function fenceguard.protect(regclass, text, boolean, text) from public;
  for grantee in select a.grantee from pg_catalog.pg_proc p,
      lateral pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) a
      where p.oid = old and a.grantee <> p.proowner loop
    execute format('grant execute on function fenceguard.protect(regclass, text, boolean, text) to %s',
                   case grantee when 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end);
  end loop;
  drop function fenceguard.protect(regclass, text);
  drop function if exists fenceguard.protect(regclass, text, boolean);
end $$;

-- Locks the table and all that is below it: no write and no child slips in between the old triggers and the new. What is below it
-- is read afterwards, by a newer snapshot. Writers queue behind the wait, so that has a limit.
create or replace function fenceguard.lock_tree(relation regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  own_timeout constant text := current_setting('lock_timeout');
begin
  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    raise exception 'a table is protected at READ COMMITTED: a child that was added since this snapshot would be missed'
      using errcode = 'active_sql_transaction',
        hint = 'begin isolation level read committed; select fenceguard.protect(...); commit';
  end if;
  if own_timeout = '0' then perform set_config('lock_timeout', '5s', true); end if;
  execute format('lock table %s in access exclusive mode', relation);
  perform set_config('lock_timeout', own_timeout, true);
end $$;

-- The same with the path that the expression is read with.
create or replace function fenceguard.protect_by(
  relation regclass, resource_expression text, path text, per_statement boolean, mode text default 'enforce') returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  id constant text := substr(replace(gen_random_uuid()::text, '-', ''), 1, 16);
  schema text;
  columns text[];
  child regclass;
begin
  perform fenceguard.require_protectable(relation);
  if mode is null or mode not in ('observe', 'enforce') then
    raise exception 'the mode is observe or enforce, and this is %', coalesce(quote_literal(mode), 'null')
      using errcode = 'invalid_parameter_value';
  end if;
  if mode = 'observe' and per_statement then
    raise exception 'a table is observed row by row: give per_statement with the mode enforce'
      using errcode = 'invalid_parameter_value';
  end if;
  perform fenceguard.lock_tree(relation);
  if per_statement and fenceguard.has_relatives(relation) then perform fenceguard.refuse_relatives(relation); end if;
  select quote_ident(n.nspname) into schema
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.oid = relation;
  columns := fenceguard.bind_expression(relation, resource_expression, path, schema || '.fenceguard_resource_' || id);
  -- It runs at every row. What it names is spelled out, so from PostgreSQL 14 on, where the resource function is bound
  -- when it is made, the writer's search_path does not matter, nor is it set each time; settings that change how a
  -- value reads as text are, if the expression has such values.
  execute format('create function %1$s.fenceguard_check_%2$s() returns trigger language plpgsql %3$s as %4$L',
                 schema, id, fenceguard.settings_for((schema || '.fenceguard_resource_' || id)::regproc),
                 case mode when 'observe' then fenceguard.observing_body(schema, id, columns) else format($f$
    declare
      before pg_catalog.text;
      after pg_catalog.text;
      resources pg_catalog.text[];
    begin
      if tg_level operator(pg_catalog.=) 'STATEMENT' then
        -- Not in a loop over the rows, which is a cursor.
        if tg_op operator(pg_catalog.=) 'INSERT' then
          resources := array(select %1$s.fenceguard_resource_%2$s(%5$s) collate pg_catalog."C"
                             from fenceguard_new_rows r group by 1);
        elsif tg_op operator(pg_catalog.=) 'DELETE' then
          resources := array(select %1$s.fenceguard_resource_%2$s(%5$s) collate pg_catalog."C"
                             from fenceguard_old_rows r group by 1);
        else
          resources := array(select %1$s.fenceguard_resource_%2$s(%5$s) collate pg_catalog."C" from fenceguard_old_rows r
                             union select %1$s.fenceguard_resource_%2$s(%5$s) from fenceguard_new_rows r);
        end if;
        foreach after in array resources loop
          perform fenceguard.check_row(after);
        end loop;
        return null;
      end if;
      if tg_op operator(pg_catalog.<>) 'DELETE' then
        after := %1$s.fenceguard_resource_%2$s(%3$s);
        if not fenceguard.check_row(after) then return null; end if;
      end if;
      if tg_op operator(pg_catalog.<>) 'INSERT' then
        before := %1$s.fenceguard_resource_%2$s(%4$s);
        if after is not null and before operator(pg_catalog.=) after then return null; end if;
        if not fenceguard.check_row(before) then return null; end if;
      end if;
      return null;
    end
  $f$, schema, id, (select string_agg('new.' || c, ', ') from unnest(columns) c),
       (select string_agg('old.' || c, ', ') from unnest(columns) c),
       (select string_agg('r.' || c, ', ') from unnest(columns) c)) end);
  execute format('grant execute on function %s.fenceguard_resource_%s to public', schema, id);
  perform fenceguard.give_to_owner(relation, schema, id);
  perform fenceguard.make_refusal_counters(relation, id);
  perform fenceguard.unprotect(relation);
  perform fenceguard.attach_triggers(relation, format('%s.fenceguard_check_%s', schema, id), resource_expression,
                                     per_statement);
  for child in select c from fenceguard.children(relation) c loop
    perform fenceguard.attach_triggers(child, format('%s.fenceguard_check_%s', schema, id), resource_expression, false);
  end loop;
  perform fenceguard.leave_notes();
end $$;

-- From now on every admission leaves a note, if a table is protected. See leaves_notes().
create or replace function fenceguard.leave_notes() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if fenceguard.leaves_notes() or not exists (select from fenceguard.protected) then return; end if;
  perform fenceguard.lock_or_refuse(fenceguard.notes_lock_key(), interval '5 s', false, false);
  create or replace function fenceguard.leaves_notes() returns boolean language sql stable as 'select true';
end $$;

-- Makes the function full_name(columns of the expression) -> resource, and answers these columns, in quotes.
-- The expression is taken as PostgreSQL reads it now, with this path, and written out in full.
drop function if exists fenceguard.make_resource_function(regclass, text, text, text);  -- of older installations
create or replace function fenceguard.bind_expression(
  relation regclass, resource_expression text, path text, full_name text) returns text[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  view_name constant text := full_name;
  name constant text := substring(full_name from '[^.]*$');
  view_query text;
  definition text;
  parameters text;
  columns text[];
begin
  if resource_expression is null or resource_expression ~ '^[[:space:]]*$' then
    raise exception 'the resource expression is missing: it gives a row''s resource, such as ''accounts/'' || id'
      using errcode = 'invalid_parameter_value';
  end if;
  view_query := format('create view %s as select (%s)::pg_catalog.text as %I from only %s as %I',
                       view_name, resource_expression || E'\n', name, relation, name);
  perform set_config('search_path', path, true);
  execute view_query;
  perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
  if exists (select from pg_catalog.pg_depend d join pg_catalog.pg_rewrite r on r.oid = d.objid
             join pg_catalog.pg_class k on k.oid = d.refobjid and k.relkind <> 'c'
             where r.ev_class = view_name::regclass and d.classid = 'pg_catalog.pg_rewrite'::regclass
               and d.refclassid = 'pg_catalog.pg_class'::regclass
               and d.refobjid not in (relation, view_name::regclass)) then
    raise exception 'the resource expression looks at other tables, and may use columns of % only', relation
      using errcode = 'invalid_parameter_value';
  end if;
  -- In quotes whatever they are: PL/pgSQL has keywords of its own.
  if (select r.ev_action::text ~ ':has(Aggs|WindowFuncs|TargetSRFs|SubLinks) true' from pg_catalog.pg_rewrite r
      where r.ev_class = view_name::regclass) then
    raise exception 'the resource expression gives one value for one row: no aggregate, no set, no sub-select'
      using errcode = 'invalid_parameter_value';
  end if;
  select string_agg(format('"%s" %s', replace(a.attname, '"', '""'), format_type(a.atttypid, a.atttypmod)), ', '
                    order by a.attnum),
         array_agg('"' || replace(a.attname, '"', '""') || '"' order by a.attnum) into parameters, columns
  from pg_catalog.pg_attribute a
  where a.attrelid = relation and a.attnum in (
    select d.refobjsubid from pg_catalog.pg_depend d join pg_catalog.pg_rewrite r on r.oid = d.objid
    where r.ev_class = view_name::regclass and d.classid = 'pg_catalog.pg_rewrite'::regclass
      and d.refobjid = relation and d.refobjsubid > 0);
  if parameters is null then
    raise exception 'the resource expression uses no column of %', relation using errcode = 'invalid_parameter_value';
  end if;
  perform set_config('quote_all_identifiers', 'off', true);
  perform set_config('search_path', '', true);
  definition := pg_catalog.pg_get_viewdef(view_name::pg_catalog.regclass);
  perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
  execute format('drop view %s', view_name);
  definition := substring(definition from '^[[:space:]]*SELECT[[:space:]]+(.*)[[:space:]]AS ' || name || '[[:space:]]+FROM ONLY ');
  if current_setting('server_version_num')::integer >= 140000 then
    execute format('create function %s(%s) returns text language sql stable return %s', view_name, parameters,
                   definition);
  else
    execute format('create function %s(%s) returns text language sql stable as %L', view_name, parameters,
                   'select ' || definition);
  end if;
  return columns;
end $$;

-- The SET clauses of a check function: none where only numbers, texts and uuids are put together. Whatever else is in the
-- expression may look at the path, or at how values read as text, and the writing session could set that.
create or replace function fenceguard.settings_for(resource_function regproc) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  is_bound constant boolean := current_setting('server_version_num')::integer >= 140000;
  -- Without its string literals, and with x for each quoted name.
  body constant text := substring(regexp_replace(regexp_replace(pg_get_functiondef(resource_function),
    $r$'([^']|'')*'$r$, '', 'g'), $r$"([^"]|"")*"$r$, 'x', 'g') from 'RETURN (.*)$');
  is_plain boolean;
begin
  select bool_and(t in ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype, 'text'::regtype,
                        'character varying'::regtype, 'uuid'::regtype))
         and body !~ '[[:alnum:]_][[:space:]]*[(]' and body !~* 'operator'
         and body !~ '::(?!text|bigint|integer|smallint|uuid|character varying)'
  into is_plain
  from pg_catalog.pg_proc p, unnest(p.proargtypes::oid[]) t where p.oid = resource_function;
  return case when is_bound and is_plain is true then '' else fenceguard.text_settings() end;
end $$;
create or replace function fenceguard.text_settings() returns text
language sql immutable as $$
  select $s$set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set intervalstyle = 'postgres'
    set timezone = 'UTC' set extra_float_digits = 1 set bytea_output = 'hex' set lc_monetary = 'C'
    set lc_numeric = 'C' set lc_time = 'C'$s$
$$;

-- A superuser may protect another's table; its owner must be able to undo that.
create or replace function fenceguard.give_to_owner(relation regclass, schema text, id text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  owner constant text := (select pg_get_userbyid(c.relowner) from pg_catalog.pg_class c where c.oid = relation);
  name text;
begin
  if owner = current_user then return; end if;
  for name in select p.oid::regprocedure::text from pg_catalog.pg_proc p
              where p.pronamespace = (select c.relnamespace from pg_catalog.pg_class c where c.oid = relation)
                and p.proname in ('fenceguard_check_' || id, 'fenceguard_resource_' || id) loop
    execute format('alter function %s owner to %I', name, owner);
  end loop;
end $$;

-- Takes the protection off again. The table owner's to call.
create or replace function fenceguard.unprotect(relation regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  functions text[];
  name text;
  child regclass;
begin
  perform fenceguard.require_protectable(relation);
  select array_agg(f.oid::regprocedure::text order by f.proname) into functions
  from fenceguard.protected p
  join pg_catalog.pg_proc c on c.oid = p.check_function
  join pg_catalog.pg_proc f on f.pronamespace = c.pronamespace
    and f.proname in (c.proname, replace(c.proname, 'fenceguard_check_', 'fenceguard_resource_'))
  where p.relation = unprotect.relation;
  perform fenceguard.drop_refusal_counters(relation);
  perform fenceguard.forget_observations(relation);
  perform fenceguard.drop_triggers(relation);
  for child in select c from fenceguard.children(relation) c loop
    perform fenceguard.drop_triggers(child);
  end loop;
  foreach name in array coalesce(functions, '{}') loop
    execute format('drop function %s', name);
  end loop;
end $$;

-- Whether a table was ever protected here, whatever the caller's snapshot sees: a function is read as it is now.
create or replace function fenceguard.was_any_protected() returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$ select fenceguard.leaves_notes() $$;

-- Children that are added to a protected table are protected as they come: what this command made or changed, and what
-- is below it. Any role can give a trigger of its own the name of ours, so one is copied only to a table of the same
-- owner, and only with a function of that owner's. Only a superuser can install an event trigger; without it statements
-- on the parent fail until protect() was run again.
create or replace function fenceguard.protect_children() returns event_trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  c record;
begin
  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    for c in select d.objid::regclass as child from pg_event_trigger_ddl_commands() d
             where d.classid = 'pg_class'::regclass and fenceguard.was_any_protected()
               and exists (select from pg_inherits i where d.objid in (i.inhrelid, i.inhparent) and not exists
                           (select from pg_trigger g where g.tgrelid = i.inhparent and g.tgname = 'fenceguard_rows')) loop
      raise exception 'where tables are protected, a child such as % is added at READ COMMITTED: its parent may have been '
        'protected since this snapshot', c.child using errcode = 'active_sql_transaction',
          hint = 'begin isolation level read committed; create or alter the table; commit';
    end loop;
  end if;
  for c in
    with touched as (
      select d.objid as relation from pg_event_trigger_ddl_commands() d where d.classid = 'pg_class'::regclass
    ), near as (
      select t.relation from touched t
      union select i.inhparent from touched t join pg_inherits i on i.inhrelid = t.relation
      union select i.inhrelid from touched t join pg_inherits i on i.inhparent = t.relation
    )
    select n.relation::regclass as relation from near n join pg_trigger g on g.tgrelid = n.relation
    where g.tgname = 'fenceguard_rows' and g.tgqual is not null and fenceguard.has_relatives(n.relation)
  loop
    perform fenceguard.refuse_relatives(c.relation);
  end loop;
  for c in
    with recursive touched as (
      select d.objid as relation from pg_event_trigger_ddl_commands() d where d.classid = 'pg_class'::regclass
      union
      select i.inhrelid from pg_inherits i join touched t on i.inhparent = t.relation
    ), above as (
      select t.relation as child, i.inhparent as ancestor from touched t join pg_inherits i on i.inhrelid = t.relation
      union
      select a.child, i.inhparent from above a join pg_inherits i on i.inhrelid = a.ancestor
    )
    select distinct a.child::regclass as child, p.relation as parent, p.check_function::text as check_function,
      p.resource_expression, p.mode, k.relowner = o.relowner and k.relowner = f.proowner as has_one_owner,
      exists (select from pg_trigger g where g.tgrelid = a.child and g.tgname = 'fenceguard_rows') as is_judged
    from above a join fenceguard.protected p on p.relation = a.ancestor
    join pg_class k on k.oid = a.child join pg_class o on o.oid = p.relation join pg_proc f on f.oid = p.check_function
    where not exists (select from pg_inherits i join fenceguard.protected q on q.relation = i.inhparent
                      where i.inhrelid = p.relation)
  loop
    if not c.is_judged and not c.has_one_owner then
      continue when c.mode = 'observe';
      raise exception '% cannot be a child of the protected table %: it, its parent and the function that judges its '
        'rows have more than one owner', c.child, c.parent using errcode = 'object_not_in_prerequisite_state',
          hint = format('Give them one owner and call fenceguard.protect(%L, ...) again, or fenceguard.unprotect(%1$L).',
                        c.parent);
    end if;
    perform fenceguard.attach_triggers(c.child, c.check_function, c.resource_expression, false);
  end loop;
end $$;

-- Its functions are called in whatever changes a table, a superuser's commands included, so they belong to a superuser, or
-- there is none.
do $$
declare
  owner constant name := (select pg_get_userbyid(n.nspowner) from pg_catalog.pg_namespace n where n.nspname = 'fenceguard');
  p record;
begin
  if not (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user) then return; end if;
  drop event trigger if exists fenceguard_children;
  if (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = owner) then
    create event trigger fenceguard_children on ddl_command_end
      when tag in ('CREATE TABLE', 'ALTER TABLE', 'CREATE SCHEMA', 'CREATE FOREIGN TABLE', 'ALTER FOREIGN TABLE')
      execute function fenceguard.protect_children();
    alter event trigger fenceguard_children enable always;
    return;
  end if;
  raise notice 'fenceguard: no event trigger, because % owns the schema and is no superuser: after a child was added to '
    'a protected table, run fenceguard.protect() again', owner;
  -- Statements on the parent fail until then.
  for p in select * from fenceguard.protected loop
    perform fenceguard.attach_triggers(p.relation, p.check_function::text, p.resource_expression, p.per_statement);
  end loop;
end $$;
