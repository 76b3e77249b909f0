-- The rule, and how a refusal is counted and told. Nothing here writes anything else.

-- Judges a claim against what is on record (nulls: no record) and the floor. The twin of judge() in guard/judge.cpp;
-- both answer the shared table of cases, tests/judge_cases.tsv.
create or replace function fenceguard.judge(
  record_token bigint, record_holder text, record_sequence bigint, record_closed boolean, floor bigint,
  token bigint, holder text, sequence bigint) returns text
language sql immutable as $$
  select case
    when token = record_token and record_token >= floor then
      case
        when record_closed then 'stale'
        when holder <> record_holder then 'conflict'
        when sequence is null or record_sequence is null or sequence > record_sequence then 'admitted'
        when sequence = record_sequence then 'duplicate'
        else 'stale'
      end
    when token > greatest(record_token, floor) then 'admitted'
    else 'stale'
  end
$$;

-- Raises for what is no claim at all. Asked where a claim is refused or would leave a trace; a claim that equals a
-- record was asked when the record was made.
create or replace function fenceguard.require_claim(resource text, token bigint, holder text, sequence bigint)
returns void language plpgsql as $$
begin
  perform fenceguard.require_resource(resource);
  if token is null then
    perform fenceguard.refuse('missing', resource, token, null);
  end if;
  if token < 1 then
    raise exception 'a token is a number from 1 to 9223372036854775807, and this is %', token
      using errcode = 'invalid_parameter_value', hint = 'Pass the token that came with the lease.';
  end if;
  if holder is null or octet_length(holder) > 128 or holder ~ E'[^\\u0021-\\u007e]' then
    raise exception 'a holder is up to 128 bytes of visible ASCII without spaces'
      using errcode = 'invalid_parameter_value', hint = 'Pass the holder that came with the lease.';
  end if;
  if sequence < 0 then
    raise exception 'a sequence is a number from 0 to 9223372036854775807, and this is %', sequence
      using errcode = 'invalid_parameter_value';
  end if;
end $$;

create or replace function fenceguard.require_resource(resource text) returns void
language plpgsql as $$
declare
  objection text;
begin
  objection := case
    when resource is null then 'a resource is missing: it is null'
    when resource = '' or octet_length(resource) > 512 then 'a resource has a name of 1 to 512 bytes'
    when resource ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' then 'a resource''s name has no control characters'
    when resource ~ '(^|/)(/|$)'
      then 'a resource has no empty segment: no slash at either end, no two in a row'
    when resource ~ '(^|/)[.]{1,2}(/|$)' then 'a resource has no dot segment (''.'' or ''..'')'
  end;
  if objection is not null then
    raise exception '%', objection using errcode = 'invalid_parameter_value';
  end if;
end $$;

-- A refusal rolls its transaction back, and what a table counts with it. A sequence does not go back. After a crash of
-- the server it may have jumped, by up to 32.
create sequence if not exists fenceguard.refused_stale as bigint no cycle;
create sequence if not exists fenceguard.refused_conflict as bigint no cycle;
create sequence if not exists fenceguard.refused_missing as bigint no cycle;

-- Counts a refusal where it was: at a protected table, or where the claim was made. And a line in the server's log.
create or replace function fenceguard.count_refusal(verdict text, resource text, token bigint, highest bigint)
returns void language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
declare
  stack text;
  counter oid;
begin
  if verdict not in ('stale', 'conflict', 'missing') then return; end if;
  get diagnostics stack = pg_context;
  -- Of the table whose check function called, if one did. A caller that fakes that name only makes a count wrong.
  select case when count(*) = 1 then min(c.oid) end into counter from pg_class c
  where c.relname = 'fenceguard_refused_' || verdict || '_' || substring(stack from 'fenceguard_check_([0-9a-f]{16})\(')
    and case when c.relkind = 'S' then has_sequence_privilege(c.oid, 'usage') end;
  raise log 'fenceguard refused a claim as %: resource %, token %, highest %, role %', verdict,
    coalesce(quote_literal(resource), '-'), coalesce(token::text, '-'), coalesce(highest::text, '-'), session_user;
  if current_setting('transaction_read_only') = 'off' then
    begin
      perform nextval(coalesce(counter, to_regclass('fenceguard.refused_' || verdict)));
    exception when others then
      null;  -- to count decides nothing
    end;
  end if;
end $$;

-- The same, for what answers a refusal as a row: that of try_admit().
create or replace function fenceguard.tell_refusal(verdict text, resource text, token bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  highest constant bigint := case verdict when 'conflict' then token else fenceguard.highest(resource) end;
begin
  perform fenceguard.count_refusal(verdict, resource, token, highest);
  return highest;
end $$;

-- Raises ZF001 (stale), ZF002 (conflict) or ZF003 (missing). Never names the present holder: token and holder together
-- are a claim. Numbers are strings in the JSON, because they exceed 2^53.
create or replace function fenceguard.refuse(verdict text, resource text, token bigint, highest bigint)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform fenceguard.count_refusal(verdict, resource collate "C", token, highest);
  perform fenceguard.raise_refusal(verdict, resource collate "C", token, highest);
end $$;

create or replace function fenceguard.raise_refusal(verdict text, resource text, token bigint, highest bigint)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception using
    errcode = case verdict when 'stale' then 'ZF001' when 'conflict' then 'ZF002' else 'ZF003' end,
    message = case verdict
      when 'stale' then format('the claim to %s is stale', quote_literal(resource))
      when 'conflict' then format('another holder uses the same token for %s', quote_literal(resource))
      else format('a write to %s without a claim', quote_literal(resource))
    end,
    detail = jsonb_build_object('verdict', verdict, 'resource', resource, 'token', token::text,
                                'highest', highest::text)::text,
    hint = case verdict
      when 'stale' then 'A newer token was seen, or this one was closed. The lock was lost: roll back, take it '
        'again, and start over from the read.'
      when 'conflict' then 'The token source issued one number twice. Roll back, take the lock again, and look after '
        'the source.'
      else 'Call fenceguard.admit(resource, token, holder) in this transaction first, after the last savepoint that '
        'was rolled back. A program that fenceguard exec started has its claim in PGOPTIONS, unless it connects with options '
        'of its own.' || case when fenceguard.leaves_notes() then ''
        else ' The triggers of this table came from elsewhere: call fenceguard.leave_notes() once.' end
    end;
end $$;

-- The higher of record and floor.
create or replace function fenceguard.highest(resource text) returns bigint
language sql stable as $$
  select greatest((select f.token from fenceguard.fences f where f.resource = highest.resource),
                  (select o.floor from fenceguard.floor o))
$$;

-- Whether each statement sees what was committed before it began. PostgreSQL takes READ UNCOMMITTED for the same.
create or replace function fenceguard.is_read_committed() returns boolean
language sql stable as $$
  select current_setting('transaction_isolation') in ('read committed', 'read uncommitted')
$$;
