-- Installs or upgrades the schema fenceguard, in one transaction: psql DATABASE -f install.sql
\set ON_ERROR_STOP on
\set QUIET on
begin;
set local client_min_messages = warning;
\ir 001_fences.sql
\ir 002_rule.sql
\ir 003_locks.sql
\ir 004_admit.sql
\ir 004a_session_claims.sql
\ir 005_advance.sql
\ir 006_leases.sql
\ir 007_protect.sql
\ir 007a_operation.sql
\ir 007b_observe.sql
\ir 008_grants.sql
commit;
do $$ begin raise notice 'fenceguard: schema version % is installed', fenceguard.version(); end $$;
\set QUIET off
