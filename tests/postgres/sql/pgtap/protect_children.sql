-- Protected tables that have children: partitions and inheritance, those that exist and those that come later.
select * from no_plan();

create schema app authorization table_owner;
grant usage on schema app to application;
set role table_owner;
alter default privileges in schema app grant all on tables to application;
create table app.event (tenant text, day date, note text) partition by range (day);
create table app.event_1 partition of app.event for values from ('2026-01-01') to ('2026-02-01');
create table app.event_2 partition of app.event for values from ('2026-02-01') to ('2026-03-01')
  partition by list (tenant);
create table app.event_2_a partition of app.event_2 for values in ('a');
insert into app.event values ('a', '2026-01-05', ''), ('a', '2026-02-05', '');
select fenceguard.protect('app.event', $$ 'tenants/' || tenant || '/' || extract(month from day) $$) as set_up \gset
create table app.event_3 partition of app.event for values from ('2026-03-01') to ('2026-04-01');
create table app.event_4 (tenant text, day date, note text);
insert into app.event_4 values ('a', '2026-04-05', '');
alter table app.event attach partition app.event_4 for values from ('2026-04-01') to ('2026-05-01');
reset role;
-- Statement triggers are not copied to partitions that come later. Where no event trigger sees to it, their parent
-- refuses to be written until protect() was run again.
select is(test.outcome('update app.event set note = ''x''', 'application'),
          case when test.has_event_trigger() then 'ZF003' else '55000' end, 'partitions that came later');
select is(test.outcome($$ select fenceguard.protect('app.event', '''tenants/'' || tenant || ''/'' '
                            '|| extract(month from day)') $$, 'table_owner'), 'ok', 'protect() again');
select fenceguard.advance(format('tenants/a/%s', i), 10, 'h') as set_up from generate_series(1, 4) i \g /dev/null

create function test.app(sql text) returns text language sql as $$ select test.outcome(sql, 'application') $$;
create function test.under(months int[], sql text) returns text language sql as $$
  select test.outcome((select string_agg(format('select fenceguard.admit(%L, 10, ''h'');', 'tenants/a/' || i), '')
                       from unnest(months) i) || sql, 'application')
$$;

select format('select is(test.app(%L), ''ZF003'', %L)', sql, 'without a claim: ' || sql) from unnest(array[
  $$ insert into app.event values ('a', '2026-01-06') $$, $$ insert into app.event_1 values ('a', '2026-01-06') $$,
  $$ insert into app.event values ('a', '2026-02-06') $$, $$ insert into app.event_2_a values ('a', '2026-02-06') $$,
  $$ insert into app.event values ('a', '2026-03-06') $$, $$ insert into app.event_3 values ('a', '2026-03-06') $$,
  $$ insert into app.event_4 values ('a', '2026-04-06') $$,
  $$ update app.event set note = 'x' $$, $$ update app.event_1 set note = 'x' $$,
  $$ update app.event_2_a set note = 'x' $$, $$ update app.event_4 set note = 'x' $$,
  $$ delete from app.event $$, $$ delete from app.event_2 $$, $$ delete from app.event_4 $$,
  $$ update app.event set day = '2026-02-06' where day = '2026-01-05' $$,
  $$ truncate app.event $$, $$ truncate app.event_1 $$, $$ truncate app.event_2_a $$, $$ truncate app.event_2 $$]) sql
\gexec
select format('select is(test.app(%L), ''ZF003'', %L)', sql, 'without a claim: ' || sql)
from unnest(array[$$ truncate app.event_3 $$, $$ truncate app.event_4 $$]) sql
\gexec

select is(test.under(array[1], $$ update app.event set note = 'x' where day = '2026-01-05' $$), 'ok', 'under its claim');
select is(test.under(array[4], $$ update app.event_4 set note = 'x' $$), 'ok', 'in a partition that was attached later');
select is(test.under(array[1], $$ update app.event set day = '2026-02-06' where day = '2026-01-05' $$), 'ZF003',
          'a row that moves to another partition needs the claim to where it goes');
select is(test.under(array[2], $$ update app.event set day = '2026-02-06' where day = '2026-01-05' $$), 'ZF003',
          'and to where it comes from');
select is(test.under(array[1, 2], $$ update app.event set day = '2026-02-06' where day = '2026-01-05' $$), 'ok',
          'with both it moves');
select results_eq('select day::text, note from app.event order by day', $$ values ('2026-02-05', ''), ('2026-02-06', 'x'),
  ('2026-04-05', 'x') $$, 'nothing else was written');
select is(test.outcome($$ select fenceguard.protect('app.event_1', '''x/'' || note') $$, 'table_owner'), '42809',
          'a partition is protected with its parent, and not by itself');
select is(test.outcome($$ select fenceguard.unprotect('app.event_1') $$, 'table_owner'), '42809', 'nor unprotected');
select is(test.outcome($$ alter table app.event detach partition app.event_1 $$, 'table_owner'), 'ok',
          'a partition that is detached');
select is((select count(*) from pg_trigger where tgrelid = 'app.event_1'::regclass and tgname = 'fenceguard_rows'),
          0::bigint, 'is a table of its own then');
select is(test.outcome($$ select fenceguard.unprotect('app.event') $$, 'table_owner'), 'ok', 'the owner takes it off');
select is(test.app($$ insert into app.event values ('a', '2026-03-06') $$), 'ok', 'from all of them');
select is(test.app($$ truncate app.event_2_a $$), 'ok', 'TRUNCATE as well');
select is((select count(*) from pg_proc where proname like 'fenceguard\_%' and pronamespace = 'app'::regnamespace),
          0::bigint, 'and leaves no function behind');

-- By statements: only what has no relatives, nor gets any.
select is(test.outcome($$ select fenceguard.protect('app.event', 'tenant', per_statement => true) $$, 'table_owner'),
          '42809', 'no table with partitions');
select is(test.outcome($$ select fenceguard.protect('app.event_2_a', 'tenant', per_statement => true) $$, 'table_owner'),
          '42809', 'no partition');
set role table_owner;
create table app.lone (id bigint, note text);
create table app.other (id bigint, note text);
insert into app.lone values (1, '');
grant all on app.lone, app.other to application;
select fenceguard.protect('app.lone', $$ 'lone/' || id $$, per_statement => true) as set_up \gset
reset role;
select is(test.app('update app.lone set note = 1'), 'ZF003', 'a table that stands alone');
select is(test.outcome(sql, 'table_owner'), case when test.has_event_trigger() then '42809' else 'ok' end, sql)
from unnest(array['create table app.below () inherits (app.lone)', 'alter table app.lone inherit app.other']) sql;
select is(is_always, test.has_event_trigger(), 'what has relatives all the same is told')
from fenceguard.protected where relation = 'app.lone'::regclass;
select is(test.app('update app.lone set note = 1'), case when test.has_event_trigger() then 'ZF003' else '55000' end,
          'and fails where a child is not judged');

-- Inheritance.
set role table_owner;
create table app.base (id bigint, note text);
create table app.child (extra text) inherits (app.base);
create table app.grandchild (more text) inherits (app.child);
insert into app.child values (1, ''), (2, '');
insert into app.grandchild values (3, '');
select fenceguard.protect('app.base', $$ 'base/' || id $$) as set_up \gset
reset role;
select fenceguard.advance(format('base/%s', i), 10, 'h') as set_up from generate_series(1, 4) i \g /dev/null
select format('select is(test.app(%L), ''ZF003'', %L)', sql, 'without a claim: ' || sql) from unnest(array[
  'insert into app.base values (4)', 'insert into app.child values (4)', 'insert into app.grandchild values (4)',
  'update app.base set note = ''x''', 'update app.child set note = ''x''', 'delete from app.grandchild',
  'truncate app.child', 'truncate app.base', 'truncate only app.base']) sql
\gexec
select is(test.outcome($$ select fenceguard.admit('base/3', 10, 'h'); update app.base set note = 'x' where id = 3 $$,
                       'application'), 'ok', 'a row of a grandchild, through the parent, under its claim');

-- Children that come later: judged where an event trigger could be installed, and refused elsewhere.
set role table_owner;
create table app.later (extra text) inherits (app.base);
create table app.joined (id bigint, note text);
alter table app.joined inherit app.base;
reset role;
select is(test.app(sql), case when test.has_event_trigger() then 'ZF003' else '55000' end, 'children that came later: '
          || sql)
from unnest(array['update app.base set note = ''y'' where id = 3', 'delete from app.base']) sql;
select is(test.outcome($$ select fenceguard.admit('base/3', 10, 'h'); update app.base set note = 'y' where id = 3 $$,
                       'application'), case when test.has_event_trigger() then 'ok' else '55000' end,
          'also under the claim');
select is(test.app(sql), 'ZF003', 'directly: ' || sql)
from unnest(array['insert into app.later values (4)', 'insert into app.joined values (4)', 'truncate app.later',
                  'truncate app.joined']) sql
where test.has_event_trigger();
select is(test.outcome($$ select fenceguard.protect('app.base', '''base/'' || id') $$, 'table_owner'), 'ok',
          'protect() again covers them');
select format('select is(test.app(%L), ''ZF003'', %L)', sql, 'covered: ' || sql)
from unnest(array['insert into app.later values (4)', 'insert into app.joined values (4)', 'truncate app.later',
                  'update app.base set note = ''z'' where id = 3']) sql
\gexec
select is(test.outcome($$ select fenceguard.admit('base/3', 10, 'h'); update app.base set note = 'z' where id = 3 $$,
                       'application'), 'ok', 'and their parent is written again');

-- A child that is made on a way round the event trigger: in CREATE SCHEMA, or as a foreign table.
select is(test.outcome($$ create schema round_the_corner authorization table_owner create table hidden () inherits (app.base) $$), 'ok',
          'a child that is made with its schema');
grant usage on schema round_the_corner to application;
grant all on round_the_corner.hidden to application;
select is(test.app('insert into round_the_corner.hidden values (4)'), 'ZF003', 'is judged as well')
where test.has_event_trigger();
select isnt(test.app('update app.base set note = ''y'' where id = 3'), 'ok', 'or its parent refuses');

-- Who calls a trigger of his own as ours is called has it copied to nobody's table; nor is a function that protect() made
-- copied to the table of another owner, who would run it.
create schema theirs authorization stranger;
grant usage on schema theirs to table_owner, application;
set role stranger;
create table theirs.bait (id bigint);
create function theirs.trap() returns trigger language plpgsql as $$ begin raise 'trapped' using errcode = 'TRAP1'; end $$;
create trigger fenceguard_rows after insert or update or delete on theirs.bait for each row execute function theirs.trap('id');
create table theirs.claimed (id bigint);
select fenceguard.protect('theirs.claimed', 'id::text') as set_up \gset
reset role;
select is(test.outcome('create table app.caught () inherits (theirs.bait)'), 'ok', 'a child of a table with a trap')
where test.has_event_trigger();
select is(test.outcome('insert into app.caught values (1)'), 'ok', 'has no trap') where test.has_event_trigger();
select is(test.outcome('create table app.foreign_child () inherits (theirs.claimed)'), '55000',
          'a child of another owner is not made') where test.has_event_trigger();
select is(test.outcome('create table theirs.own_child () inherits (theirs.claimed)', 'stranger'), 'ok', 'one of the same is');
select is(test.outcome('insert into theirs.own_child values (1)', 'stranger'), 'ZF003', 'and is judged')
where test.has_event_trigger();
select * from finish();
