-- Tables that are observed: their triggers judge as those of a protected table do, warn and count once per statement and
-- verdict, and let everything through. Nothing here waits for a lock or raises, and nothing stands for an admission.

-- What was seen, by the hexadecimal digits in the name of the table's check function. No index and no key: a writer counts
-- in whichever row of its kind no other writer has locked, or in a new one.
create table if not exists fenceguard.observations (
  check_id         text not null,
  verdict          text not null,
  application_name text not null,
  statements       bigint not null,
  first_at         timestamptz not null,
  last_at          timestamptz not null,
  last_resource    text
) with (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

-- The body of the check function of an observed table. Also called where a statement ends, and before a TRUNCATE.
create or replace function fenceguard.observing_body(schema text, id text, columns text[]) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select format($f$
    declare
      before pg_catalog.text;
      after pg_catalog.text;
      failure pg_catalog.text;
    begin
      if tg_op operator(pg_catalog.=) 'TRUNCATE' then
        perform fenceguard.observe_row('%2$s', tg_op, null, true);
        perform fenceguard.end_observed_statement('%2$s');
        return null;
      elsif tg_level operator(pg_catalog.=) 'STATEMENT' then
        perform fenceguard.end_observed_statement('%2$s');
        return null;
      end if;
      if tg_op operator(pg_catalog.<>) 'DELETE' then
        begin
          after := %1$s.fenceguard_resource_%2$s(%3$s);
        exception when others or assert_failure then  -- not a cancel, which is for the whole statement
          failure := sqlstate;
        end;
        perform fenceguard.observe_row('%2$s', after, failure, false);
      end if;
      if tg_op operator(pg_catalog.<>) 'INSERT' then
        failure := null;
        begin
          before := %1$s.fenceguard_resource_%2$s(%4$s);
        exception when others or assert_failure then  -- not a cancel, which is for the whole statement
          failure := sqlstate;
        end;
        if after is not null and before operator(pg_catalog.=) after then return null; end if;
        perform fenceguard.observe_row('%2$s', before, failure, false);
      end if;
      return null;
    exception when others or assert_failure then
      return null;
    end
  $f$, schema, id, (select string_agg('new.' || c, ', ') from unnest(columns) c),
       (select string_agg('old.' || c, ', ') from unnest(columns) c))
$$;

-- The verdict that a write to this resource would have met, or null. It reads without a lock that could wait. At
-- SERIALIZABLE a read of the fences could fail this transaction or another; a claim that was admitted there keeps its
-- fence's row locked, so its note is enough.
create or replace function fenceguard.foresee(resource text) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  claim record;
begin
  if resource is null then return 'null'; end if;
  begin
    perform fenceguard.require_resource(resource);
  exception when invalid_parameter_value then
    return 'invalid';
  end;
  select c.token, c.holder into claim from fenceguard.noted_claim(resource) c;
  if current_setting('transaction_isolation') = 'serializable' then
    return case when claim.token is null then 'missing' end;
  end if;
  lock table fenceguard.fences, fenceguard.floor in access share mode nowait;
  if exists (select from fenceguard.fences f where f.resource = foresee.resource collate "C" and not f.closed
             and not f.below_floor and fenceguard.is_noted(f)) then
    return null;
  end if;
  -- A protected table would admit the session's before the statement.
  if claim.token is null then
    select c.token, c.holder into claim from fenceguard.session_claim(resource) c;
    if fenceguard.look(resource, claim.token, claim.holder, null) = 'admitted' then return null; end if;
  end if;
  return case when claim.token is not null and fenceguard.look(resource, claim.token, claim.holder, null)
    in ('stale', 'conflict') then fenceguard.look(resource, claim.token, claim.holder, null) else 'missing' end;
exception when others then
  return 'unjudged';
end $$;

-- Counts without waiting. A row that changed after this transaction's snapshot is left to others. Above the bounds, which
-- only an old snapshot or very many application names reach, nothing is counted.
create or replace function fenceguard.count_observation(id text, verdict text, resource text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  application constant text := current_setting('application_name');
  place tid;
  bytes bigint;
begin
  lock table fenceguard.observations in row exclusive mode nowait;
  bytes := pg_relation_size('fenceguard.observations');
  if current_setting('transaction_isolation') <> 'serializable' and bytes < 16777216 then
    begin
      select o.ctid into place from fenceguard.observations o
      where o.check_id = id and o.verdict = count_observation.verdict and o.application_name = application
      limit 1 for update skip locked;
      update fenceguard.observations o
      set statements = o.statements + 1, last_at = clock_timestamp(), last_resource = resource where o.ctid = place;
      if found then return; end if;
    exception when others then
      null;
    end;
  end if;
  if bytes < 8388608 then
    insert into fenceguard.observations
    values (id, verdict, application, 1, clock_timestamp(), clock_timestamp(), resource);
  end if;
exception when others then
  null;
end $$;

-- Of one row: the first with this verdict in a statement is counted and told. What the statement was told already is kept
-- in a setting, which a client could forge: it would hide from the count, and from nothing else.
create or replace function fenceguard.observe_row(id text, resource text, failure text, is_truncate boolean) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  verdict constant text := case when is_truncate then 'missing' when failure is not null then 'failed'
    else fenceguard.foresee(resource) end;
  mark constant text := id || ':' || verdict || ' ';
  told constant text := coalesce(current_setting('fenceguard.observed', true), '');
begin
  if verdict is null or strpos(told, mark) > 0
     or not exists (select from pg_proc p where p.proname = 'fenceguard_check_' || id) then
    return;
  end if;
  perform set_config('fenceguard.observed', told || mark, true);
  perform fenceguard.count_observation(id, verdict, left(resource, 512));
  raise warning using
    errcode = case verdict when 'stale' then 'ZF001' when 'conflict' then 'ZF002' when 'missing' then 'ZF003'
      when 'null' then '22004' when 'invalid' then '22023' else '01000' end,
    message = format('fenceguard would refuse this write as %s: %s', verdict,
      case when is_truncate then 'TRUNCATE' when failure is not null then format('the resource expression fails (%s)', failure)
           else coalesce(quote_literal(left(resource, 512)), 'the resource is null') end),
    hint = case when verdict in ('stale', 'conflict') then 'The lock was lost: take it again, and start over from the read.'
      when is_truncate then 'Delete the rows under their claims.'
      when verdict = 'missing' then 'Call fenceguard.admit(resource, token, holder) in this transaction first.'
      when verdict = 'unjudged' then 'The fences could not be read just then.'
      else 'Give fenceguard.protect() an expression that names a resource for every row.' end;
end $$;

create or replace function fenceguard.end_observed_statement(id text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  told constant text := coalesce(current_setting('fenceguard.observed', true), '');
begin
  if strpos(told, id) > 0 then
    perform set_config('fenceguard.observed', regexp_replace(told, id || ':[a-z]+ ', '', 'g'), true);
  end if;
end $$;

-- What would have been refused since the table is observed, in statements. Those that rolled back are not in it.
do $do$ begin perform fenceguard.install_view('observed', $$ as
  select p.relation, o.verdict, o.application_name, sum(o.statements)::bigint as statements, min(o.first_at) as first_at,
    max(o.last_at) as last_at, (array_agg(o.last_resource order by o.last_at desc))[1] as last_resource
  from fenceguard.observations o
  join pg_catalog.pg_proc f on f.proname = 'fenceguard_check_' || o.check_id
  join fenceguard.protected p on p.check_function = f.oid
  where p.mode = 'observe' and not exists (
    select from pg_catalog.pg_inherits i join fenceguard.protected q on q.relation = i.inhparent
    where i.inhrelid = p.relation)
  group by p.relation, o.verdict, o.application_name
$$); end $do$;

-- With the observation its counts go. REQUIRES: the table's owner, who may not write here.
create or replace function fenceguard.forget_observations(relation regclass) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from fenceguard.observations o using pg_proc f, pg_class c
  where c.oid = relation and pg_has_role(session_user, c.relowner, 'usage')
    and 'fenceguard_check_' || o.check_id = f.proname
    and f.oid in (select p.check_function::oid from fenceguard.protected p where p.relation = forget_observations.relation);
end $$;
