-- Names and types that are hard to quote; keys that are composite or null; what cannot be protected.
select * from no_plan();

-- Every table here has its resource in one column of an unusual name.
create function test.protects(relation text, field text) returns setof text language plpgsql as $$
declare
  what constant text := format('%s (%s): ', left(relation, 30), left(field, 30));
begin
  execute format('create table %s (%s text, other integer)', relation, field);
  return next is(test.outcome(format('select fenceguard.protect(%L, %L)', relation, '''n/'' || ' || field)), 'ok',
                 what || 'is protected');
  return next is(test.outcome(format('insert into %s values (''r'', 1)', relation)), 'ZF003', what || 'judged');
  return next is(test.outcome(format('select fenceguard.admit(''n/r'', 1); insert into %s values (''r'', 1);'
                                     'update %1$s set other = 2; delete from %1$s', relation)), 'ok', what || 'admitted');
  return next is(test.outcome(format('truncate %s', relation)), 'ZF003', what || 'TRUNCATE');
  return next is(test.outcome(format('select fenceguard.protect(%L, %L)', relation, 'upper(' || field || ')')), 'ok',
                 what || 'is protected again');
  return next is((select count(*) from pg_trigger where tgrelid = relation::regclass and tgname = 'fenceguard_rows'),
                 1::bigint, what || 'with one trigger');
  return next is(test.outcome(format('insert into %s values (''r'', 1)', relation)), 'ZF003', what || 'still judged');
  return next is(test.outcome(format('select fenceguard.unprotect(%L)', relation)), 'ok', what || 'unprotected');
  return next is(test.outcome(format('insert into %s values (''r'', 1)', relation)), 'ok', what || 'free');
  execute format('drop table %s', relation);
end $$;

create schema "A ""schema""";
select format('select test.protects(%L, %L)', relation, field) from (values
  ('plain', 'id'), ('"Upper"', '"Id"'), ('"with space"', '"a column"'), ('"quo""ted"', '"quo""ted"'), ('"it''s"', '"it''s"'),
  ('"select"', '"from"'), ('"table"', '"user"'), ('"order"', '"group"'), ('"A ""schema""".t', 'id'),
  ('t', 'new'), ('t', 'old'), ('t', 'resource'), ('t', 'token'), ('t', 'tg_op'), ('t', 'before'), ('t', 'after'),
  ('t', 'holder'), ('t', 'relation'), ('t', 'highest'), ('t', 'verdict'), ('new', 'old'), ('old', 'new'),
  ('resource', 'resource'), ('t', '"NEW"'), ('t', '"a.b"'), ('t', '"a,b"'), ('t', '"a(b)"'), ('t', '"$1"'), ('t', '"%s"'),
  ('t', '"%I"'), ('t', '"a\b"'), ('t', '"$row$"'), ('t', '"$check$"'), ('t', '"$$"'), ('t', '"ümläut"'), ('t', '"漢字"'),
  ('t', '"as resource"'), ('t', '" AS resource FROM ONLY "'), ('t', '"--"'), ('t', '"/*"'), ('t', '"a;b"'), ('t', '"by"'), ('t', '"if"'), ('t', '"begin"'), ('t', '"strict"'), ('begin', 'loop'),
  (repeat('t', 63), repeat('c', 63)), ('"' || repeat('T', 63) || '"', '"' || repeat('é', 31) || '"')
) n (relation, field)
\gexec

-- Expressions: what they use, and how often.
create function test.resource_of(relation text, expression text, row_values text) returns text language plpgsql as $$
begin
  execute format('select fenceguard.protect(%L, %L)', relation, expression);
  execute format('insert into %s values %s', relation, row_values);
  return 'not judged';
exception when sqlstate 'ZF003' then
  declare d text; begin get stacked diagnostics d = pg_exception_detail; return d::jsonb ->> 'resource'; end;
          when others then return sqlstate || ' ' || sqlerrm;
end $$;
create type test.mood as enum ('fine', 'so so');
create domain test.number as bigint check (value > 0);
create type test.address as (street text, "No" integer);
create table kinds (
  s smallint, i integer, b bigint, n numeric(10, 2), f double precision, t text, v varchar(10), c char(5), u uuid,
  d date, ts timestamp, tz timestamptz, iv interval, by bytea, bo boolean, j jsonb, a integer[], e test.mood,
  dm test.number, ad test.address, m money, g integer generated always as (i * 2) stored, r int4range, ip inet);
select format('select is(test.resource_of(''kinds'', %L, %L), %L, %L)', expression,
  $$ (1, 2, 3, 4.5, 0.1, 'text', 'varchar', 'ch', '00000000-0000-0000-0000-000000000001', '2026-02-03',
      '2026-02-03 04:05', '2026-02-03 04:05+00', '1 day 02:03', '\xdead', true, '{"k": ["v"]}', '{5,6}', 'so so', 7,
      row('road', 8), 9, default, '[1,3)', '10.0.0.1') $$, resource, 'a resource from ' || expression)
from (values ('s', '1'), ('i', '2'), ('b::text', '3'), ('n', '4.50'), ('f', '0.1'), ('t', 'text'), ('v', 'varchar'),
             ('''c'' || c || ''.''', 'cch.'), ('u', '00000000-0000-0000-0000-000000000001'), ('d', '2026-02-03'),
             ('ts', '2026-02-03 04:05:00'), ('tz', '2026-02-03 04:05:00+00'), ('iv', '1 day 02:03:00'),
             ('by', '\xdead'), ('bo', 'true'), ('j', '{"k": ["v"]}'), ('j -> ''k'' ->> 0', 'v'), ('a', '{5,6}'),
             ('a[2]', '6'), ('e', 'so so'), ('dm', '7'), ('(ad).street', 'road'), ('(ad)."No"', '8'), ('g', '4'),
             ('r', '[1,3)'), ('ip', '10.0.0.1/32'), ('host(ip)', '10.0.0.1'), ('format(''%s/%s'', i, b)', '2/3'),
             ('concat_ws(''/'', t, v, i, null)', 'text/varchar/2'), ('i || ''/'' || i', '2/2'),
             ('case when bo then ''yes/'' || i else t end', 'yes/2'), ('coalesce(nullif(t, ''text''), v)', 'varchar'),
             ('md5(t)', md5('text')), ('to_char(d, ''YYYY/MM'')', '2026/02'), ('''x'' -- a comment' || E'\n || i', 'x2'),
             ('i /* comment */', '2'), ('kinds.i', '42P01')
) k (expression, resource)
where expression <> 'kinds.i'
\gexec
select is(test.outcome($$ set local quote_all_identifiers = on; select fenceguard.protect('kinds', 't || i') $$), 'ok',
          'with quote_all_identifiers');
select is(test.outcome($$ set local standard_conforming_strings = off; select fenceguard.protect('kinds', 't || i') $$),
          'ok', 'without standard_conforming_strings');
select is(test.outcome($$ set local search_path = ''; select fenceguard.protect('public.kinds', 't || i') $$), 'ok',
          'with an empty search_path');

-- Keys.
create table composite (tenant text, id integer, balance integer, primary key (tenant, id));
select fenceguard.protect('composite', $$ tenant || '/' || id $$) as set_up \gset
select fenceguard.advance('a/1', 1) as set_up \gset
select is(test.outcome($$ select fenceguard.admit('a/1', 1); insert into composite values ('a', 1) $$), 'ok',
          'a composite key');
select is(test.outcome($$ select fenceguard.admit('a/1', 1); insert into composite values ('a', 2) $$), 'ZF003',
          'each of its columns counts');
select is(test.outcome($$ select fenceguard.admit('a/1', 1); update composite set tenant = 'b' $$), 'ZF003', 'when it changes');
create table nullable (id integer, note text);
insert into nullable values (null, 'from before');
select fenceguard.protect('nullable', $$ 'null/' || id $$) as set_up \gset
select is(test.outcome(sql), '22004', 'no claim covers a row whose resource is null: ' || sql)
from unnest(array['insert into nullable values (null)', 'update nullable set note = ''x''', 'delete from nullable']) sql;
select isnt(test.outcome('update nullable set id = 1'), 'ok', 'not even to give it one');
select fenceguard.advance('null/1', 1) as set_up \gset
select is(test.outcome('select fenceguard.admit(''null/1'', 1); insert into nullable values (1)'), 'ok', 'others are');
select is(test.outcome('select fenceguard.admit(''null/1'', 1); update nullable set id = null where id = 1'), '22004',
          'nor may it become null');
-- Resources that are none.
create table free_text (r text);
select fenceguard.protect('free_text', 'r') as set_up \gset
select is(test.outcome(format('insert into free_text values (%L)', r)), '22023', 'a row with no resource''s name')
from unnest(array['', '/', 'a/', '..', E'a\nb', E'a\tb', repeat('x', 513)]) r;
-- A forged note can hold no row that would need a line feed in its name.
select is(test.outcome($$ select set_config('fenceguard.claims', E'\na\nb\t1\t\n', true);
                          insert into free_text values (E'a\nb') $$), '22023', 'whatever is noted');

-- What cannot be protected, or not like this.
create view a_view as select * from kinds;
create materialized view a_materialized_view as select 1 as id;
create temp table a_temporary_table (id integer);
create sequence a_sequence;
create unlogged table an_unlogged_table (id integer);
select is(r ->> 'state', state, format('protect(%s, %s)', relation, expression))
from (values
  ('''kinds''', 'null', '22023'), ('''kinds''', '''''', '22023'), ('''kinds''', ''' ''', '22023'),
  ('''kinds''', '''missing''', '42703'), ('''kinds''', '''"I"''', '42703'), ('''kinds''', '''1''', '22023'),
  ('''kinds''', '''''''constant''''''', '22023'), ('''kinds''', '''i +''', '42601'), ('''kinds''', '''i + t''', '42883'),
  ('''kinds''', '''(select i)''', '22023'), ('''kinds''', '''(select max(tenant) from composite) || i''', '22023'),
  ('''kinds''', '''exists (select from composite where id = i)''', '22023'),
  ('''kinds''', '''max(i)''', '22023'), ('''kinds''', '''i) from composite --''', '42601'),
  ('''kinds''', '''i), (1''', '42601'), ('''kinds''', '''generate_series(1, i)''', '22023'),
  ('''kinds''', '''i; drop table kinds''', '42601'), ('''kinds''', '''row(i, t) = row(1, t)''', 'ok'),
  ('''nowhere''', '''id''', '42P01'), ('null', '''id''', '42809'), ('0', '''id''', '42809'),
  ('''a_view''', '''i''', '42809'), ('''a_materialized_view''', '''id''', '42809'), ('''a_sequence''', '''last_value''', '42809'),
  ('''a_temporary_table''', '''id''', '42809'), ('''an_unlogged_table''', '''id''', 'ok'),
  ('''pg_class''', '''relname''', '42809'), ('''fenceguard.fences''', '''resource''', '42809')
) p (relation, expression, state), lateral test.refusal(format('select fenceguard.protect(%s, %s)', relation, expression)) r;
select is(test.outcome($$ select fenceguard.unprotect('a_view') $$), '42809', 'unprotect(a view)');
select is(test.outcome($$ select fenceguard.unprotect('composite'); select fenceguard.unprotect('composite') $$), 'ok',
          'unprotect() of what is not protected');
select is((select count(*) from pg_class where relname like 'fenceguard\_%' and relkind = 'v'), 0::bigint,
          'no view is left behind');

-- A column that the resource is made of is renamed, dropped, or gets another type: no row is written unjudged.
create table changing (a text, b text);
select fenceguard.protect('changing', $$ 'c/' || a $$) as set_up \gset
alter table changing rename column a to z;
select isnt(test.outcome($$ insert into changing values ('x') $$), 'ok', 'after its column was renamed');
select is(test.outcome($$ select fenceguard.protect('changing', 'z') $$), 'ok', 'until it is protected again');
select is(test.outcome($$ insert into changing values ('x') $$), 'ZF003', 'then it is judged');
alter table changing alter column z type varchar(20);
select isnt(test.outcome($$ insert into changing values ('x') $$), 'ok', 'after its type was changed');
alter table changing rename to changed;
select isnt(test.outcome($$ insert into changed values ('x') $$), 'ok', 'after the table was renamed');
alter table changed drop column z;
select isnt(test.outcome($$ insert into changed values ('x') $$), 'ok', 'after its column was dropped');
create schema elsewhere;
create table moving (a text);
select fenceguard.protect('moving', 'a') as set_up \gset
alter table moving set schema elsewhere;
select is(test.outcome($$ insert into elsewhere.moving values ('x') $$), 'ZF003', 'after it moved to another schema');
select is(test.outcome($$ select fenceguard.protect('elsewhere.moving', 'a') $$), 'ok', 'where it is protected again');
-- A table that is dropped.
select is(test.outcome('drop table composite'), 'ok', 'a protected table is dropped like any other');
select * from finish();
