-- What a client sets and makes for itself does not get a row past the check: the claims setting, its search_path, formats,
-- functions and operators of its own, triggers, session_replication_role.
select * from no_plan();

create schema app authorization table_owner;
grant usage on schema app to application;
set role table_owner;
create table app.account (id bigint primary key, day date, at timestamptz, amount money, price double precision, raw bytea,
                          span interval, balance bigint);
insert into app.account select i, '2026-02-03', '2026-02-03 04:05+00', 6, 0.1, '\xde', '1 day', 100
from generate_series(1, 3) i;
grant all on app.account to application;
select fenceguard.protect('app.account', $$ 'accounts/' || id $$) as set_up \gset
reset role;
select fenceguard.advance('accounts/' || i, 10 + i, 'h' || i) as set_up from generate_series(1, 3) i \g /dev/null

-- A note without its seal is nothing, not even where the claim is right; nor is a seal of another transaction.
create function test.forged(claims text) returns text language sql as $$
  select test.outcome(format('set local %s = %L; update app.account set balance = balance where id = 1',
                             fenceguard.notes_name(fenceguard.lock_key('accounts/1')), claims), 'application')
$$;
-- What the extension answers does not even sound as if there had been one.
select is(test.forged(claims), case when test.is_fast() then 'ZF003' else state end, 'forged: ' || quote_literal(claims))
from (values
  (E'\naccounts/1\t11\th1\n', 'ZF003'), (E'\naccounts/1\t11\th1\t\n', 'ZF003'),
  (E'\naccounts/1\t11\th2\t\n', 'ZF002'), (E'\naccounts/1\t11\t\t\n', 'ZF002'), (E'\naccounts/1\t12\th1\t\n', 'ZF003'),
  (E'\naccounts/1\t9223372036854775807\th1\t\n', 'ZF003'), (E'\naccounts/1\t10\th1\t\n', 'ZF001'),
  ('', 'ZF003'), (E'\naccounts/%\t11\th1\t\n', 'ZF003'), (E'\naccounts/2\t11\th1\t\n', 'ZF003')
) f (claims, state);
select isnt(test.forged(claims), 'ok', 'nonsense: ' || quote_literal(claims))
from unnest(array['accounts/1', E'\naccounts/1\tx\th1\n', E'\naccounts/1\t99999999999999999999\th1\n', E'\naccounts/1\t-1\th1\n',
                  E'\naccounts/1\n', E'\naccounts/1\t\t\n', E'\n\t11\th1\n']) claims;
select fenceguard.notes_name(fenceguard.lock_key('accounts/1')) as notes \gset
begin;
select fenceguard.admit('accounts/1', 11, 'h1') as set_up \gset
select coalesce(current_setting(:'notes', true), 'none') as noted \gset
select is(test.forged(:'noted'), 'ok', 'a note of this transaction');
commit;
select is(test.forged(:'noted'), 'ZF003', 'is none of the next one');
select set_config(:'notes', :'noted', false) as set_up \gset
select is(test.outcome('update app.account set balance = 0 where id = 1', 'application'), 'ZF003', 'also where a session keeps it');
select is(test.outcome($$ select fenceguard.require_noted('accounts/1', 11, 'h1') $$), 'ZF003',
          'nor does it stand for an admission when a library commits');
select is(test.outcome($$ select fenceguard.admit('accounts/1', 11, 'h1'); select fenceguard.require_noted('accounts/1', 11, 'h1') $$),
          'ok', 'an admission does');
select is(test.outcome($$ select fenceguard.admit('accounts/1', 11, 'h1');
                          update app.account set balance = balance where id = 1 $$, 'application'),
          'ok', 'and what a session keeps is in nobody''s way');
select is(test.outcome(format($$ set local %s = %L; select fenceguard.admit('accounts/1', 11, 'h1');
                                 select fenceguard.require_noted('accounts/2', 12, 'h2') $$, :'notes', :'noted')), 'ZF003',
          'an admission to one resource is none to another');
begin;
savepoint s;
select fenceguard.admit('accounts/1', 11, 'h1') as set_up \gset
select coalesce(current_setting(:'notes', true), 'none') as noted \gset
rollback to s;
select is(test.outcome($$ select fenceguard.require_noted('accounts/1', 11, 'h1') $$), 'ZF003',
          'an admission that was rolled back is none');
commit;
select set_config(:'notes', '', false) as set_up \gset
set fenceguard.claims = E'\naccounts/1\t11\th1\n';
select is(test.outcome('update app.account set balance = 0 where id = 1', 'application'), 'ZF003', 'nor what older versions noted');
reset fenceguard.claims;
select fenceguard.advance('accounts/1', 21, 'n') as set_up \gset
select is(test.outcome($$ select fenceguard.admit('accounts/1', 11, 'h1') $$), 'ZF001', 'after it moved on, what was right is stale');

-- Whatever the claims setting says, whoever may not look learns nothing.
set role application;
select is(test.outcome('select * from fenceguard.fences'), '42501', 'fences are not to be read');
select is(test.outcome(format('select fenceguard.%s', call)), '42501', call || ' is not for everybody')
from unnest(array[$$note('\x00', 'accounts/1', 11, 'h1')$$, $$rule_on('accounts/1', 11, 'h1', null)$$,
                  $$equals_fence('accounts/1', 11, 'h1', null)$$, $$keep_note('fenceguard.claims_1', 'x', 'accounts/1')$$,
                  $$note_admitted('accounts/1')$$, $$noted_claim('accounts/1')$$,
                  $$admitted_slowly('accounts/1', 11, 'h1', null, null)$$, $$confirm_slowly('accounts/1', 11, 'h1')$$]
            || case when test.is_fast() then array[$$keep_claim('accounts/1', 11, 'h1')$$, $$kept_holder('accounts/1')$$,
                      $$kept_token('accounts/1')$$, $$is_claim_kept('accounts/1', 11, 'h1')$$,
                      $$rule_with_lock('accounts/1', 11, 'h1', null, null)$$, 'leave_extension()'] else '{}' end) call;
reset role;

-- A condition takes no sequence: it is asked once per row, and once more after a wait.
select is(test.outcome($$ update app.account set balance = 0 where fenceguard.admitted('accounts/2', 12, 'h2', 7) $$), '0A000',
          'a sequence in a condition');
select is(test.outcome($$ update app.account set balance = 0 where (select fenceguard.admitted('accounts/2', 12, 'h2', 7)) $$),
          '0A000', 'also in a sub-select');

-- Everything that a client can call its own.
create schema evil authorization application;
set role application;
create function evil.check_row(text) returns boolean language sql as 'select true';
create function evil.hashtextextended(text, bigint) returns bigint language sql as 'select 0::bigint';
create function evil.strpos(text, text) returns integer language sql as 'select 1';
create function evil.current_setting(text) returns text language sql as $$ select 'read committed'::text $$;
create function evil.current_setting(text, boolean) returns text language sql as $$ select 'x'::text $$;
create function evil.pg_advisory_xact_lock_shared(bigint) returns text language sql as $$ select 'x'::text $$;
create function evil.upper(text) returns text language sql as $$ select 'accounts/9'::text $$;
create function evil.always(text, text) returns boolean language sql as 'select true';
create function evil.joined(text, bigint) returns text language sql as $$ select 'accounts/9'::text $$;
create function evil.joined(text, text) returns text language sql as $$ select 'accounts/9'::text $$;
create operator evil.= (leftarg = text, rightarg = text, function = evil.always);
create operator evil.<> (leftarg = text, rightarg = text, function = evil.always);
create operator evil.|| (leftarg = text, rightarg = bigint, function = evil.joined);
create operator evil.|| (leftarg = text, rightarg = text, function = evil.joined);
create domain evil.text as pg_catalog.text check (value is not null);
create domain evil.bigint as pg_catalog.int8;
create view evil.fences as select 'accounts/1'::pg_catalog.text as resource, 1 as token;
reset role;

select format('select is(test.outcome(%L, ''application''), ''ZF003'', %L)',
              setting || '; update app.account set balance = balance where id = 2', setting)
from unnest(array['set local search_path = evil, pg_catalog, app', 'set local search_path = evil',
                  'set local search_path = pg_temp, evil, pg_catalog', 'set local datestyle = ''SQL, DMY''',
                  'set local row_security = off', 'set local quote_all_identifiers = on', 'set local check_function_bodies = off',
                  'set local enable_indexscan = off',
                  'set local plan_cache_mode = force_generic_plan', 'set local constraint_exclusion = on']) setting
\gexec
-- Whoever holds a claim is not refused because of them either, and one's own path changes no verdict.
select format('select is(test.outcome(%L, ''application''), ''ok'', %L)', setting
              || '; select fenceguard.admit(''accounts/2''::pg_catalog.text, 12::pg_catalog.int8, ''h2''::pg_catalog.text); '
                 'update app.account set balance = balance where id = 2', setting || ', with a claim')
from unnest(array['set local search_path = evil, pg_catalog, app', 'set local search_path = ''''',
                  'set local search_path = evil', 'set local quote_all_identifiers = on']) setting
\gexec
select format('select is(test.outcome(%L, ''application''), %L, %L)',
              'set local search_path = evil, pg_catalog, app; select fenceguard.admit(''accounts/2''::pg_catalog.text, '
              || token || '::pg_catalog.int8, ''' || holder || '''::pg_catalog.text)', state, 'evil path, ' || token || holder)
from (values (11, 'h2', 'ZF001'), (12, 'x', 'ZF002'), (12, 'h2', 'ok')) c (token, holder, state)
\gexec

-- A session that first calls the functions with a path of its own, so that they are compiled with it.
set role application;
set search_path = evil, pg_catalog;
select test.outcome('select fenceguard.check_row(''accounts/2''::pg_catalog.text)') as set_up \gset
select test.outcome('update app.account set balance = balance where id operator(pg_catalog.=) 2') as set_up \gset
reset search_path;
select is(test.outcome('update app.account set balance = balance where id = 2'), 'ZF003', 'after it was compiled elsewhere');
reset role;

-- Resources whose text depends on settings are the same for everybody.
create function test.resource_with(expression text, settings text) returns text language plpgsql as $$
begin
  perform fenceguard.protect('app.account', expression);
  execute settings;
  update app.account set balance = balance where id = 2;
  return 'not judged';
exception when sqlstate 'ZF003' then
  declare d text; begin get stacked diagnostics d = pg_exception_detail; return d::jsonb ->> 'resource'; end;
end $$;
select format('select is(test.resource_with(%L, %L), %L, %L)', expression, setting, resource, setting || ': ' || expression)
from (values
  ('day', 'set local datestyle = ''German''', '2026-02-03'), ('day', 'set local datestyle = ''SQL, DMY''', '2026-02-03'),
  ('at', 'set local timezone = ''Asia/Tokyo''', '2026-02-03 04:05:00+00'),
  ('at::date', 'set local timezone = ''Pacific/Honolulu''', '2026-02-03'),
  ('''d'' || to_char(at, ''DD HH24'')', 'set local timezone = ''Asia/Tokyo''', 'd03 04'),
  ('span', 'set local intervalstyle = ''iso_8601''', '1 day'), ('price', 'set local extra_float_digits = -15', '0.1'),
  ('raw', 'set local bytea_output = ''escape''', '\xde'), ('id || '':'' || day', 'set local datestyle = ''SQL''', '2:2026-02-03'),
  ('amount', 'set local lc_monetary = ''C.UTF-8''', '$6.00'), ('''x'' || (day::text)', 'set local datestyle = ''German''',
  'x2026-02-03'), ('format(''%s'', at)', 'set local timezone = ''Asia/Tokyo''', '2026-02-03 04:05:00+00'),
  ('concat(''a'', day)', 'set local datestyle = ''German''', 'a2026-02-03'),
  ('upper(''a'' || id)', 'set local search_path = evil, pg_catalog', 'A2'),
  ('''accounts/'' || id', 'set local search_path = evil, pg_catalog', 'accounts/2')
) e (expression, setting, resource)
\gexec

-- Triggers that change the row, or suppress it, come before the check; generated columns count as they are stored.
set role table_owner;
create table app.item (id integer, shadow text generated always as ('s/' || id) stored, note text);
create function app.change() returns trigger language plpgsql as $$
begin
  if new.note = 'move' then new.id := 2; end if;
  if new.note = 'drop' then return null; end if;
  return new;
end $$;
create trigger zzz before insert or update on app.item for each row execute function app.change();
create trigger aaa before insert or update on app.item for each row execute function app.change();
grant all on app.item to application;
select fenceguard.protect('app.item', 'shadow') as set_up \gset
reset role;
select fenceguard.advance('s/' || i, 1, 'h') as set_up from generate_series(1, 2) i \g /dev/null
select format('select is(test.outcome(%L, ''application''), %L, %L)', format('select fenceguard.admit(%L, 1, ''h''); '
              'insert into app.item values (1, default, %L)', 's/' || i, note), state, note || ' under ' || i)
from (values (1, 'plain', 'ok'), (2, 'plain', 'ZF003'), (1, 'move', 'ZF003'), (2, 'move', 'ok'), (2, 'drop', 'ok')) x (i, note, state)
\gexec
select results_eq('select id, shadow, note from app.item order by id', $$ values (1, 's/1', 'plain'), (2, 's/2', 'move') $$,
                  'what was stored was judged');

-- A replica's session still fires the check; only a superuser can set it.
select is(test.outcome('set local session_replication_role = replica; update app.item set note = ''r'''), 'ZF003',
          'session_replication_role = replica') where (select rolsuper from pg_roles where rolname = current_user);
select is(test.outcome('set local session_replication_role = replica; select fenceguard.admit(''s/1'', 1, ''h''); '
                       'update app.item set note = ''r'' where id = 1'), 'ok', 'which breaks no claim')
where (select rolsuper from pg_roles where rolname = current_user);
select is(test.outcome('set local session_replication_role = replica; select fenceguard.advance(''s/1'', 9, ''h'')'), 'ok',
          'nor an advance') where (select rolsuper from pg_roles where rolname = current_user);
select is(test.outcome('set local session_replication_role = replica', 'application'), '42501', 'and it is no client''s');
select is((select count(*) from pg_trigger where tgname like 'fenceguard\_%' and tgenabled <> 'A'), 0::bigint,
          'all triggers are ENABLE ALWAYS');
-- Functions that nobody may call by default privileges work all the same.
set role table_owner;
alter default privileges revoke execute on functions from public;
create table app.hardened (id integer);
grant all on app.hardened to application;
select fenceguard.protect('app.hardened', $$ 's/' || id $$) as set_up \gset
reset role;
select is(test.outcome($$ select fenceguard.admit('s/2', 1, 'h'); insert into app.hardened values (2) $$, 'application'),
          'ok', 'where functions are not for everybody by default');
set role table_owner;
alter default privileges grant execute on functions to public;
reset role;
select * from finish();
