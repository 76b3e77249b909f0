-- The claims of a session at tables with partitions and children, at observed ones, and with COPY.
select * from no_plan();

create schema app authorization table_owner;
grant usage on schema app to application;
set role table_owner;
alter default privileges in schema app grant all on tables to application;
create table app.event (tenant text, day date, note text) partition by range (day);
create table app.event_1 partition of app.event for values from ('2026-01-01') to ('2026-02-01');
create table app.event_2 partition of app.event for values from ('2026-02-01') to ('2026-03-01');
insert into app.event values ('a', '2026-01-05', ''), ('a', '2026-02-05', '');
select fenceguard.protect('app.event', $$ 'tenants/' || tenant $$) as set_up \gset
create table app.event_3 partition of app.event for values from ('2026-03-01') to ('2026-04-01');
select fenceguard.protect('app.event', $$ 'tenants/' || tenant $$) as set_up \gset
create table app.base (id bigint, note text);
create table app.child () inherits (app.base);
select fenceguard.protect('app.child', $$ 'tenants/a' || left(id::text, 0) $$) as set_up \gset
insert into app.base values (1, '');
create table app.seen (tenant text, note text);
insert into app.seen values ('a', ''), ('b', '');
select fenceguard.protect('app.seen', $$ 'tenants/' || tenant $$, mode => 'observe') as set_up \gset
reset role;
select fenceguard.advance('tenants/a', 10, 'h'), fenceguard.advance('tenants/b', 10, 'h') \g /dev/null
create function test.with_claim(sql text) returns text language sql as $$
  select test.outcome('set local fenceguard.session_claims = ''[{"resource": "tenants/a", "token": 10, "holder": "h"}]''; '
                      || sql, 'application')
$$;

select is(test.with_claim(sql), 'ok', sql) from unnest(array[
  $$ update app.event set note = 'x' $$, $$ update app.event_1 set note = 'x' $$,
  $$ insert into app.event values ('a', '2026-03-05') $$, $$ insert into app.event_3 values ('a', '2026-03-06') $$,
  $$ update app.event set day = '2026-02-06' where day = '2026-01-05' $$, $$ delete from app.event_2 $$,
  $$ insert into app.child values (1) $$, $$ update app.child set note = 'x' $$]) sql;
select is(test.with_claim($$ insert into app.event values ('b', '2026-03-05') $$), 'ZF003', 'without a claim to it');
select is(test.with_claim('update app.base set note = 1'), 'ZF003', 'through a parent that is not protected');
select matches(test.refusal($$ set local fenceguard.session_claims = '[{"resource": "tenants/a", "token": 10, "holder": "h"}]';
  update app.base set note = 1 $$, 'application') ->> 'hint', 'through a parent', 'which is told');

select is((select count(*) from pg_trigger where tgrelid = 'app.seen'::regclass and tgname = 'fenceguard_session'), 0::bigint,
          'an observed table admits nothing');
select is(test.with_claim($$ update app.seen set note = 'x' $$), 'ok', 'and lets through');
select results_eq($$ select verdict, last_resource from fenceguard.observed $$, $$ values ('missing', 'tenants/b') $$,
          'what the claims of the session would not have covered is counted');
select is(test.outcome($$ set local fenceguard.session_claims = '[{"resource": "tenants/a", "token": 9, "holder": "h"}]';
  update app.seen set note = 'x' where tenant = 'a' $$, 'application'), 'ok', 'a stale one');
select is((select count(*) from fenceguard.observed where verdict = 'stale'), 1::bigint, 'is counted as such');

set fenceguard.session_claims = '[{"resource": "tenants/a", "token": 10, "holder": "h"}]';
set role application;
copy app.event from stdin;
a	2026-03-07	copied
\.
reset role;
select is((select count(*) from app.event where note = 'copied'), 1::bigint, 'COPY');

select * from finish();
