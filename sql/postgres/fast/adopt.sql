-- The schema may be there already, installed as plain SQL: then the extension takes it over as it is, fences and all. Only
-- that of a superuser: what another role put into its schema must not become a superuser's.
set local fenceguard.installer = 'extension';
do $$
declare
  owner constant name := (select pg_get_userbyid(n.nspowner) from pg_catalog.pg_namespace n where n.nspname = 'fenceguard');
  member text;
begin
  if owner is null then return; end if;
  if not (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = owner) then
    raise exception 'the schema fenceguard belongs to %, which is no superuser, and stays as it is', owner
      using errcode = 'insufficient_privilege',
        hint = 'Plain SQL does the same, slower. Or install the extension into a new database, and restore its data there.';
  end if;
  alter extension fenceguard add schema fenceguard;
  for member in
    select format('%s %s', case c.relkind when 'r' then 'table' when 'v' then 'view' else 'sequence' end, c.oid::regclass)
    from pg_catalog.pg_class c where c.relnamespace = 'fenceguard'::regnamespace and c.relkind in ('r', 'v', 'S')
    union all
    select format('routine %s', p.oid::regprocedure) from pg_catalog.pg_proc p
    where p.pronamespace = 'fenceguard'::regnamespace
  loop
    execute 'alter extension fenceguard add ' || member;
  end loop;
end $$;
