-- Privileges. Every role that can connect may make claims, take leases, and protect its own tables; only the installer
-- and the roles that were granted it may see or touch fences. To narrow it down:
--
--   revoke usage on schema fenceguard from public;
--   grant usage on schema fenceguard to my_application;

-- Whichever role installs: what this installation added belongs to the owner of the schema, with whose rights it runs.
do $$
declare
  owner constant oid := (select n.nspowner from pg_catalog.pg_namespace n where n.nspname = 'fenceguard');
  f regprocedure;
  c regclass;
begin
  for f in select p.oid from pg_catalog.pg_proc p
           where p.pronamespace = 'fenceguard'::regnamespace and p.proowner <> owner loop
    execute format('alter routine %s owner to %I', f, pg_get_userbyid(owner));
  end loop;
  for c in select k.oid from pg_catalog.pg_class k
           where k.relnamespace = 'fenceguard'::regnamespace and k.relkind in ('r', 'v', 'S') and k.relowner <> owner loop
    execute format('alter table %s owner to %I', c, pg_get_userbyid(owner));
  end loop;
end $$;

do $$
declare
  -- Only in a new installation: a privilege that an operator revoked later stays revoked.
  is_new constant boolean := not exists (select from fenceguard.schema_version);
  f regprocedure;
  role oid;
  what text;
  for_everybody constant text[] := array[
    'version', 'admit', 'rule', 'try_admit', 'admitted', 'confirm', 'relayed_claims', 'confirm_relayed', 'advance_relayed', 'admit_all', 'rule_all', 'leave_notes',
    'require_admitted', 'require_noted', 'took_effect', 'advance', 'try_advance', 'finish',
    'make_refusal_counters', 'drop_refusal_counters',
    'highest_seen', 'settings_for', 'give_to_owner',
    'refuse', 'check_row', 'check_rows', 'check_rows_in_settings', 'row_trigger_call', 'text_settings', 'acquire', 'renew', 'release', 'prepare_row',
    'hold_row', 'acquire_kept', 'lease_lock_key', 'keeper',
    'protect', 'protect_by', 'unprotect', 'attach_triggers', 'drop_triggers', 'require_protectable', 'bind_expression',
    'admit_session_claims', 'observe_row', 'end_observed_statement', 'observing_body', 'mode_of', 'forget_observations',
    'children', 'is_judged', 'is_protected', 'has_event_trigger', 'has_relatives', 'refuse_relatives', 'lock_tree',
    'was_any_protected',
    'refuse_truncate', 'require_protected_children', 'protect_children'];
  -- They name everything in full, operators and collations too.
  in_full constant text[] := array['version', 'admit', 'rule', 'try_admit', 'admitted', 'confirm', 'require_admitted',
    'relayed_claims', 'confirm_relayed', 'advance_relayed', 'check_row', 'check_rows', 'protect', 'admit_session_claims'];
begin
  revoke all on all tables in schema fenceguard from public;
  revoke all on all sequences in schema fenceguard from public;
  -- What the operator's default privileges gave away: other tables and functions were meant. What is in C has no old ones.
  for what, role in
    select format('all on %s %s', case k.relkind when 'S' then 'sequence' else 'table' end, k.oid::regclass), a.grantee
    from pg_catalog.pg_class k, lateral pg_catalog.aclexplode(k.relacl) a
    where k.relnamespace = 'fenceguard'::regnamespace and k.relkind in ('r', 'v', 'S') and is_new
      and a.grantee not in (k.relowner, 0)
    union
    select format('all on routine %s', p.oid::regprocedure), a.grantee
    from pg_catalog.pg_proc p, lateral pg_catalog.aclexplode(p.proacl) a
    where p.pronamespace = 'fenceguard'::regnamespace and p.proname <> all (for_everybody)
      and (is_new or p.prolang = (select l.oid from pg_catalog.pg_language l where l.lanname = 'c'))
      and a.grantee not in (p.proowner, 0)
    union
    select 'create on schema fenceguard', a.grantee
    from pg_catalog.pg_namespace n, lateral pg_catalog.aclexplode(n.nspacl) a
    where n.nspname = 'fenceguard' and is_new and a.grantee not in (n.nspowner, 0) and a.privilege_type = 'CREATE'
  loop
    execute format('revoke %s from %I', what, pg_get_userbyid(role));
  end loop;
  grant select on fenceguard.protected to public;
  for f in select p.oid from pg_catalog.pg_proc p
           where p.pronamespace = 'fenceguard'::regnamespace loop
    if (select p.proname from pg_catalog.pg_proc p where p.oid = f) <> all (for_everybody) then
      execute format('revoke all on function %s from public', f);
    else
      if is_new then execute format('grant execute on function %s to public', f); end if;
      -- Each caller has its own search_path.
      if (select p.proname <> all (in_full) and p.proconfig::text !~ 'search_path' is not false
          from pg_catalog.pg_proc p where p.oid = f) then
        execute format('alter function %s set search_path = pg_catalog, pg_temp', f);
      end if;
    end if;
  end loop;
  if is_new then grant usage on schema fenceguard to public; end if;
  -- A function that came later is for whom its elder is for.
  if not has_function_privilege('public', 'fenceguard.advance(text, bigint, text, interval, boolean)', 'execute') then
    revoke execute on function fenceguard.finish(text, bigint, text) from public;
  end if;
end $$;

-- Protected by an older version, which left notes always.
do $$ begin perform fenceguard.leave_notes(); end $$;

update fenceguard.schema_version set version = fenceguard.version();
insert into fenceguard.schema_version (version) values (fenceguard.version()) on conflict do nothing;

-- Where a publication has all tables, nothing can be deleted from one that has neither a key nor this identity. It locks
-- the table until the end, so it comes last, and first where it may have to wait: each advance writes to commit_looks.
do $do$
declare
  relation regclass;
begin
  foreach relation in array '{fenceguard.observations, fenceguard.commit_looks}'::regclass[] loop
    if (select c.relreplident from pg_catalog.pg_class c where c.oid = relation) <> 'f' then
      execute format('alter table %s replica identity full', relation);
    end if;
  end loop;
end $do$;
