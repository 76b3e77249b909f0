-- Who may do what. Everybody who can connect may make claims, take leases, and protect tables of his own; nobody but the
-- installer and those who were granted it may see or touch fences. To narrow it down:
--
--   revoke usage on schema fenceguard from public;
--   grant usage on schema fenceguard to my_application;

do $$
declare
  -- Once: whoever took something away later has decided.
  is_new constant boolean := not exists (select from fenceguard.schema_version);
  f regprocedure;
  for_everybody constant text[] := array[
    'version', 'admit', 'rule', 'rule_fully', 'equals_fence', 'note', 'note_last', 'try_admit', 'admitted',
    'admit_all', 'rule_all',
    'require_admitted', 'require_noted', 'took_effect', 'advance', 'try_advance', 'rule_on', 'rule_slowly',
    'highest_seen', 'settings_for', 'give_to_owner',
    'refuse_statement', 'refuse', 'check_row', 'check_row_slowly', 'acquire', 'renew', 'release', 'prepare_row',
    'hold_row', 'acquire_kept', 'lease_lock_key', 'keeper',
    'protect', 'unprotect', 'attach_triggers', 'drop_triggers', 'require_protectable', 'make_resource_function',
    'children', 'is_protected', 'refuse_truncate', 'require_protected_children', 'protect_children'];
begin
  revoke all on all tables in schema fenceguard from public;
  revoke all on all sequences in schema fenceguard from public;
  grant select on fenceguard.admissible, fenceguard.admissible_last, fenceguard.protected to public;
  for f in select p.oid from pg_catalog.pg_proc p
           where p.pronamespace = 'fenceguard'::regnamespace loop
    if (select p.proname from pg_catalog.pg_proc p where p.oid = f) <> all (for_everybody) then
      execute format('revoke all on function %s from public', f);
    elsif is_new then
      execute format('grant execute on function %s to public', f);
    end if;
  end loop;
  if is_new then grant usage on schema fenceguard to public; end if;
end $$;

insert into fenceguard.schema_version (version) values (fenceguard.version())
on conflict (only_row) do update set version = excluded.version;
