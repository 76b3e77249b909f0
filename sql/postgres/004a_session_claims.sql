-- A session's claims, for a program that cannot be changed: the setting fenceguard.session_claims, the JSON of admit_all(),
-- given when the program connects. Before each statement that writes a protected table a trigger admits them in the
-- transaction, as try_admit() would: equal to the fence and seen by the statement, or not at all. They never advance.
--
-- The setting is a claim and no proof. What an admission leaves behind is the note of 004_admit.sql, and only that lets a
-- row through.
--
-- Before the statement, and not at its rows: the fence's lock comes before those of the rows. So a writer that an advance
-- waits for is never one that the new holder's own rows wait for, and one that is stopped half-way (a COPY whose client
-- sends nothing more) holds the lock by which it is cut.

-- What a client can hand over as it connects is less: 10,000 bytes.
create or replace function fenceguard.session_claims_bytes_max() returns integer
language sql immutable as $$ select 16384 $$;

-- Answers nothing where none are given. Raises 22023 for what is no list of claims.
create or replace function fenceguard.read_session_claims(out resource text, out token bigint, out holder text)
returns setof record language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  given constant text := coalesce(current_setting('fenceguard.session_claims', true), '');
  c record;
begin
  if given = '' then return; end if;
  if octet_length(given) > fenceguard.session_claims_bytes_max() then
    raise exception 'longer than % bytes', fenceguard.session_claims_bytes_max() using errcode = 'invalid_parameter_value';
  end if;
  for c in select * from fenceguard.read_claims(given::jsonb) loop
    if c.token is null then
      raise exception 'a claim in it has no token' using errcode = 'invalid_parameter_value';
    end if;
    perform fenceguard.require_claim(c.resource, c.token, c.holder, null);
    if c.sequence is not null then
      raise exception 'a session''s claim to % has a sequence, which counts single writes', quote_literal(c.resource)
        using errcode = 'invalid_parameter_value';
    end if;
    resource := c.resource;
    token := c.token;
    holder := c.holder;
    return next;
  end loop;
exception when data_exception then
  raise exception 'the setting fenceguard.session_claims cannot be used: %', sqlerrm
    using errcode = 'invalid_parameter_value',
      hint = 'It is a JSON array such as [{"resource": "accounts/1", "token": "34", "holder": "h"}]; in PGOPTIONS and '
        'options each space and each backslash of it has a backslash in front. Nothing was written.';
end $$;

-- No snapshot that this backend holds sees less, those of outer statements included. They are nowhere to be read; but
-- what is older than everything that the backend keeps visible is seen by all of them.
create or replace function fenceguard.oldest_snapshot() returns pg_snapshot
language sql stable set search_path = pg_catalog, pg_temp as $$
  -- Of the backend's number the lower half is told.
  select format('%1$s:%1$s:', n.next - ((n.next - a.backend_xmin::text::bigint) & 4294967295))::pg_snapshot
  from (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next) n, pg_stat_get_activity(pg_backend_pid()) a
$$;

-- Admits those of the session's claims that can be. statement: the snapshot of the statement that writes. is_nested: a
-- function, a trigger, a DO or the like runs it, so an outer statement may have an older one.
--
-- What it leaves in a setting only saves work and chooses words: the number of the transaction, and behind it the claims
-- once there is nothing more to be done for them. A forged one leads to a refusal.
create or replace function fenceguard.admit_session(statement pg_snapshot, is_nested boolean) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  given constant text := current_setting('fenceguard.session_claims');
  looked constant text := pg_current_xact_id()::text || E'\n';
  is_settled boolean := true;
  resources text[];
  tokens bigint[];
  holders text[];
  are_equal boolean[];
begin
  if current_setting('fenceguard.session_claims_seen', true) = looked || given then return; end if;
  if is_nested and fenceguard.is_read_committed() then statement := fenceguard.oldest_snapshot(); end if;
  -- In the order of admit_all(), and not in a loop over the rows, which is a cursor. A claim that equals a fence is one.
  begin
    select array_agg(c.resource order by fenceguard.lock_key(c.resource), c.resource),
           array_agg(c.token order by fenceguard.lock_key(c.resource), c.resource),
           array_agg(c.holder order by fenceguard.lock_key(c.resource), c.resource),
           -- No join: for one, the planner may read all fences.
           array_agg(coalesce((select f.token = c.token and f.holder = c.holder collate "C" from fenceguard.fences f
                               where f.resource = c.resource collate "C"), false)
                     order by fenceguard.lock_key(c.resource), c.resource)
    into resources, tokens, holders, are_equal
    from (select e ->> 'resource' as resource, (e ->> 'token')::bigint as token, coalesce(e ->> 'holder', '') as holder
          from jsonb_array_elements(case when octet_length(given) <= fenceguard.session_claims_bytes_max()
                                      then given::jsonb end) e) c;
  exception when data_exception then
    are_equal := null;
  end;
  if are_equal is null or false = any (are_equal) or cardinality(resources) > 1 or strpos(given, 'sequence') > 0 then
    perform fenceguard.read_session_claims();
  end if;
  for i in 1 .. cardinality(resources) loop
    if are_equal[i] or fenceguard.look(resources[i], tokens[i], holders[i], null) = 'admitted' then
      is_settled := fenceguard.rule_on(resources[i], tokens[i], holders[i], null, statement) <> 'advance' and is_settled;
    elsif fenceguard.look(resources[i], tokens[i], holders[i], null) = 'advance' then
      is_settled := false;
    end if;  -- else refused for good, and told by the rows. It holds no lock, which others would wait for in vain.
  end loop;
  perform set_config('fenceguard.session_claims_seen', case when is_settled then looked || given else looked end, true);
end $$;

-- The trigger, before each statement. It is stable, so that it runs with the snapshot of the statement. It has no path of
-- its own, because it runs at every write.
create or replace function fenceguard.admit_session_claims() returns trigger
language plpgsql stable security definer as $$
declare
  stack pg_catalog.text;
begin
  if coalesce(pg_catalog.current_setting('fenceguard.session_claims', true), '') operator(pg_catalog.=) '' then
    return null;
  end if;
  get diagnostics stack := pg_context;  -- a line for each function and statement that is under way
  perform fenceguard.admit_session(pg_catalog.pg_current_snapshot(),
                                   pg_catalog.strpos(stack, E'\n') operator(pg_catalog.>) 0);
  return null;
end $$;

-- The session's claim to this resource, or nulls.
create or replace function fenceguard.session_claim(resource text, out token bigint, out holder text)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  select c.token, c.holder into token, holder
  from fenceguard.read_session_claims() c where c.resource = session_claim.resource collate "C";
end $$;

-- For a row that no admission of this transaction covers: raises what became of the session's claim to its resource, if
-- there is one.
create or replace function fenceguard.refuse_session_claim(resource text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  claim record;
  verdict text;
begin
  select c.token, c.holder into claim from fenceguard.session_claim(resource) c;
  if claim.token is null then return; end if;
  verdict := fenceguard.look(resource, claim.token, claim.holder, null);
  if verdict in ('stale', 'conflict') then
    perform fenceguard.refuse(verdict, resource, claim.token, fenceguard.highest(resource));
  elsif verdict = 'advance' then
    raise exception 'the session''s claim to % is newer than its fence, and does not advance it', quote_literal(resource)
      using errcode = 'serialization_failure',
        hint = 'Call fenceguard.advance(resource, token, holder) in a transaction of its own before the program starts, '
          'as ''fenceguard exec --storage'' does. Nothing was written.';
  elsif starts_with(current_setting('fenceguard.session_claims_seen', true), pg_current_xact_id()::text || E'\n') then
    raise exception 'the fence of % may have been advanced after this statement, or one that called it, began',
      quote_literal(resource) using errcode = 'serialization_failure',
        hint = 'Nothing was written. Roll back, and repeat the transaction.';
  end if;
  perform fenceguard.count_refusal('missing', resource, null, fenceguard.highest(resource));
  raise exception 'a write to % without a claim', quote_literal(resource) using errcode = 'ZF003',
    detail = jsonb_build_object('verdict', 'missing', 'resource', resource, 'token', null,
                                'highest', fenceguard.highest(resource)::text)::text,
    hint = 'The session has a claim, and nothing admitted it: the table was protected by an older installation, or is '
      'written through a parent that is not protected. Call fenceguard.protect() again.';
end $$;
