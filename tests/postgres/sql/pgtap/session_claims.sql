-- The claims of a session: who can use them, on which tables, at which level, and what takes them back.
select * from no_plan();

create schema app authorization table_owner;
grant usage on schema app to application, stranger;
set role table_owner;
create table app.account (id bigint primary key, balance bigint not null default 0);
insert into app.account select i, 100 from generate_series(1, 6) i;
grant all on app.account to application;
select fenceguard.protect('app.account', $$ 'accounts/' || id $$) as set_up \gset
reset role;
select fenceguard.advance('accounts/' || i, 10, 'h') as set_up from generate_series(1, 6) i \g /dev/null

create function test.claim(variadic ids bigint[]) returns text language sql as $$
  select jsonb_agg(jsonb_build_object('resource', 'accounts/' || i, 'token', '10', 'holder', 'h'))::text from unnest(ids) i
$$;
create function test.with_claims(claims text, sql text, role text default 'application') returns text language sql as $$
  select test.outcome(format('set local fenceguard.session_claims = %L; %s; set local fenceguard.session_claims = %L',
                             claims, sql, ''), role)
$$;

select format('select is(test.with_claims(%L, %L), %L, %L)', test.claim(1, 2), sql, state, 'claims to 1 and 2: ' || sql)
from (values
  ('update app.account set balance = 1 where id = 1', 'ok'),
  ('update app.account set balance = 1 where id in (1, 2)', 'ok'),
  ('update app.account set balance = 1 where id = 3', 'ZF003'),
  ('update app.account set balance = 1', 'ZF003'),
  ('update app.account set id = 9 where id = 1', 'ZF003'),
  ('insert into app.account values (1, 5) on conflict (id) do update set balance = 5', 'ok'),
  ('delete from app.account where id = 2', 'ok'), ('insert into app.account values (2, 7)', 'ok'),
  ('merge into app.account a using (values (1, 5)) v (id, b) on a.id = v.id when matched then update set balance = b', 'ok'),
  ('with w as (update app.account set balance = 2 where id = 1 returning *) update app.account set balance = 3 '
   'where id = 2', 'ok'),
  ('do $x$ begin update app.account set balance = 4 where id = 1; end $x$', 'ok'),
  ('do $x$ begin begin update app.account set balance = 4 where id = 1; perform 1 / 0; exception when others then null; '
   'end; update app.account set balance = 6 where id in (1, 2); end $x$', 'ok'),
  ('select fenceguard.admit(''accounts/3'', 10, ''h''); update app.account set balance = 1 where id in (1, 3)', 'ok'),
  ('truncate app.account', 'ZF003'),
  ('select fenceguard.require_noted(''accounts/1'', 10, ''h'')', 'ZF003')) x (sql, state)
\gexec

select is(test.with_claims('[{"resource": "accounts/1", "token": "9", "holder": "h"}]',
                           'update app.account set balance = 1 where id = 1'), 'ZF001', 'stale');
select is(test.with_claims('[{"resource": "accounts/1", "token": "9", "holder": "h"}]',
                           'update app.account set balance = 1 where id = 2'), 'ZF003', 'of another resource');
select is(test.with_claims('[{"resource": "accounts/1", "token": "10", "holder": "x"}]',
                           'update app.account set balance = 1 where id = 1'), 'ZF002', 'conflict');
select is(test.with_claims('[{"resource": "accounts/1", "token": "11", "holder": "x"}]',
                           'update app.account set balance = 1 where id = 1'), '40001', 'newer than its fence');
select is((select token from fenceguard.fences where resource = 'accounts/1'), 10::bigint, 'and advances nothing');
select is(test.with_claims('nonsense', 'update app.account set balance = 1 where id = 1'), '22023', 'no claim at all');
select is(test.with_claims('nonsense', 'update app.account set balance = 1 where id = 99'), '22023',
          'it is told before the first row');
select is(test.with_claims('', 'update app.account set balance = 1 where id = 1'), 'ZF003', 'an empty setting is none');
select is(test.with_claims(test.claim(1), 'update app.account set balance = 1 where id = 1', 'stranger'), '42501',
          'a claim gives no right to the table');
select results_eq($$ select verdict, refusals > 0 from fenceguard.refusals where relation = 'app.account'::regclass
  order by 1 $$, $$ values ('conflict', true), ('missing', true), ('stale', true) $$, 'refusals are counted at the table');
select unalike(test.refusal($$ set local fenceguard.session_claims = '[{"resource": "accounts/1", "token": "9", "holder": "x"}]';
  update app.account set balance = 1 where id = 1 $$)::text, '%"h"%', 'and do not tell the present holder');
select fenceguard.revoke('accounts/6') as set_up \g /dev/null
select is(test.with_claims(test.claim(6), 'update app.account set balance = 1 where id = 6'), 'ZF001', 'a closed fence');

-- At each level; in a transaction of its own, because a level is chosen first.
select format($t$
  begin isolation level %1$s;
  set local fenceguard.session_claims = %2$L;
  set local role application;
  savepoint s;
  update app.account set balance = 20 where id = 1;
  rollback to s;
  update app.account set balance = 21 where id = 1;
  reset role;
  commit
$t$, level, test.claim(1)) from unnest(array['read uncommitted', 'read committed', 'repeatable read', 'serializable']) level
\gexec
select is(balance, 21::bigint, 'at each level') from app.account where id = 1;

-- The triggers.
select is((select count(*) from pg_trigger where tgrelid = 'app.account'::regclass and tgname = 'fenceguard_session'
           and tgenabled = 'A'), 1::bigint, 'it fires always');
select is(is_always, true, 'and does not count for that') from fenceguard.protected where relation = 'app.account'::regclass;
set role table_owner;
select fenceguard.protect('app.account', $$ 'accounts/' || id $$) as set_up \gset
reset role;
select is(test.with_claims(test.claim(1), 'update app.account set balance = 1 where id = 1'), 'ok', 'protect() again');
select is(test.outcome($$ select fenceguard.unprotect('app.account') $$, 'table_owner'), 'ok', 'unprotect()');
select is((select count(*) from pg_trigger where tgrelid = 'app.account'::regclass), 0::bigint, 'leaves none of them');

select * from finish();
