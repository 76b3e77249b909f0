-- What pg_dump saves of the extension: the fences, the leases, and the numbers that must not go back.
do $$
declare
  kept regclass;
begin
  for kept in select c.oid from pg_catalog.pg_class c
              where c.relnamespace = 'fenceguard'::regnamespace and (c.relkind = 'S'
                or (c.relkind = 'r' and c.relname not in ('schema_version', 'commit_looks'))) loop
    perform pg_catalog.pg_extension_config_dump(kept, '');
  end loop;
end $$;
