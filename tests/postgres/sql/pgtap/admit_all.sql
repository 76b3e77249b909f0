-- Several claims in one call: all or none.
select * from no_plan();

select fenceguard.advance('a', 5, 'h'), fenceguard.advance('b', 6, 'h') \gset set_up_

select is(array_agg(x::text order by place), array['(b,admitted,6)', '(a,admitted,5)', '(c,admitted,9)'],
  'equal, newer and sequenced ones in one call, answered in the order of the claims')
from fenceguard.admit_all('[
    {"resource": "b", "token": "6", "holder": "h"}, {"resource": "a", "token": "5", "holder": "h"},
    {"resource": "c", "token": "9", "holder": "x", "sequence": "3"}]') with ordinality a (resource, verdict, highest, place),
  lateral (select a.resource, a.verdict, a.highest) x;
select is(test.fence('c'), '9 x 3 0', 'the newer one is on record with its sequence');

select is(test.outcome($$ select fenceguard.admit_all('[
    {"resource": "a", "token": "7", "holder": "n"}, {"resource": "b", "token": "5", "holder": "h"}]') $$), 'ZF001',
  'one of them stale: the call is refused');
select is(test.fence('a'), '5 h - 0', 'and no other fence moved');
select is(test.outcome($$ select fenceguard.admit_all('[
    {"resource": "a", "token": "7", "holder": "n"}, {"resource": "b", "token": "6", "holder": "n"}]') $$), 'ZF002',
  'one of them a conflict');
select is(test.fence('a'), '5 h - 0', 'no other fence moved');

select is(test.outcome($$ select fenceguard.admit_all('[
    {"resource": "a", "token": "8", "holder": "n"}, {"resource": "c", "token": "9", "holder": "x", "sequence": "3"}]')
  $$), 'ZF006', 'one of them a duplicate and one not: they were not one write');
select is(test.fence('a'), '5 h - 0', 'nothing is recorded for any');
select results_eq($$ select resource, verdict from fenceguard.admit_all('[{"resource": "c", "token": "9", "holder": "x",
  "sequence": "3"}]') $$, $$ values ('c', 'duplicate') $$, 'all of them duplicates: they took effect before');
select is(test.outcome($$ select fenceguard.admit_all('[{"resource": "c", "token": "9", "holder": "x", "sequence": "2"}]')
  $$), 'ZF001', 'overtaken by a later sequence');

-- All of them cover rows of a protected table.
create table account (id text primary key, balance bigint check (balance >= 0));
insert into account values ('a', 100), ('b', 0);
select fenceguard.protect('account', 'id') as set_up \gset
select is(test.outcome($$
  select fenceguard.admit_all('[{"resource": "a", "token": "5", "holder": "h"},
                                {"resource": "b", "token": "6", "holder": "h"}]');
  update account set balance = balance + case id when 'a' then -40 else 40 end $$), 'ok', 'a transfer between two');
select results_eq('select id, balance from account order by id', $$ values ('a', 60::bigint), ('b', 40::bigint) $$,
                  'took effect');
select is(test.outcome($$
  select fenceguard.admit_all('[{"resource": "a", "token": "5", "holder": "h"}]');
  update account set balance = balance + case id when 'a' then -40 else 40 end $$), 'ZF003', 'one claim is not two');
select is((select sum(balance) from account), 100::numeric, 'nothing was lost');

-- A thousand at once.
select is((select count(*) from fenceguard.admit_all(
    (select jsonb_agg(jsonb_build_object('resource', 'many/' || i, 'token', i::text)) from generate_series(1, 1000) i))
  where verdict = 'admitted'), 1000::bigint, 'a thousand claims');
-- Each note is looked for among some of the others, not among all of them.
begin;
select fenceguard.admit_all((select jsonb_agg(jsonb_build_object('resource', 'many/' || i, 'token', i::text))
                             from generate_series(1, 1000) i)) as set_up \g /dev/null
select cmp_ok((select max(length(current_setting('fenceguard.claims_' || i, true))) from generate_series(0, 63) i), '<', 6000,
              'the notes of a thousand claims are not in one place') where not test.is_fast();
select is((select count(*) from generate_series(1, 1000) i, fenceguard.fences f
           where f.resource = 'many/' || i and fenceguard.is_noted(f)), 1000::bigint, 'and all of them are there');
commit;
select * from finish();
