-- What an operator sees and does: refusals that are counted though they roll back, comments, and the way out.
select * from no_plan();

create function test.refusals() returns text language sql as $$
  select string_agg(concat_ws(' ', r.relation, r.verdict, r.refusals), ', ' order by r.relation::text nulls first, r.verdict)
  from fenceguard.refusals r where r.refusals > 0
$$;
create table account (id integer primary key);
create table other (id integer primary key) partition by range (id);
create table other_low partition of other for values from (0) to (10);
select fenceguard.protect('account', $$ 'accounts/' || id $$) as set_up \gset
select fenceguard.protect('other', $$ 'others/' || id $$) as set_up \gset
select is(test.refusals(), null, 'nothing was refused yet');
select fenceguard.advance('accounts/1', 5, 'h') as set_up \gset

-- Each way once; what is raised is rolled back by outcome().
select is(test.outcome(sql), state, sql) from (values
  ($$ select fenceguard.admit('accounts/1', 4, 'h') $$, 'ZF001'),
  ($$ select fenceguard.admit('accounts/1', 5, 'x') $$, 'ZF002'),
  ($$ select fenceguard.admit('accounts/1', null) $$, 'ZF003'),
  ($$ select fenceguard.advance('accounts/1', 4, 'h') $$, 'ZF001'),
  ($$ select fenceguard.admitted('accounts/1', 4, 'h') $$, 'ZF001'),
  ($$ select fenceguard.admit_all('[{"resource": "accounts/1", "token": 4, "holder": "h"}]') $$, 'ZF001'),
  ($$ select fenceguard.require_admitted('accounts/1', 4, 'h') $$, 'ZF001')) x (sql, state);
select is(test.refusals(), 'conflict 1, missing 1, stale 5', 'what was raised is counted, once each');
select is(verdict, 'stale', 'a row') from fenceguard.rule('accounts/1', 4, 'h');
select is(verdict, 'stale', 'a row') from fenceguard.try_advance('accounts/1', 4, 'h');
select is(verdict, 'stale', 'a row') from fenceguard.rule_all('[{"resource": "accounts/1", "token": 4, "holder": "h"}]');
select is(verdict, 'conflict', 'a row') from fenceguard.try_admit('accounts/1', 5, 'x');
select is(test.refusals(), 'conflict 2, missing 1, stale 8', 'and so is what is answered as a row');
select is(test.outcome($$ select fenceguard.admit('accounts/1', 5, 'h'), fenceguard.try_advance('accounts/2', 1, 'h') $$),
          'ok', 'what is admitted');
select is(test.outcome($$ select * from fenceguard.try_admit('accounts/1', 9, 'h') $$), 'ok', 'or must be advanced');
select is(test.refusals(), 'conflict 2, missing 1, stale 8', 'is not counted');

-- At protected tables.
select is(test.outcome('insert into account values (1)', 'application'), '42501', 'no right, no refusal');
grant insert on account, other to application;
select is(test.outcome('insert into account values (7)', 'application'), 'ZF003', 'a row without a claim');
select is(test.outcome('insert into account values (7)', 'application'), 'ZF003', 'twice');
select is(test.outcome('insert into other values (7)', 'application'), 'ZF003', 'and in a partition');
select is(test.refusals(), 'conflict 2, missing 1, stale 8, account missing 2, other missing 1',
          'are counted with their tables');
select is(test.outcome($$ set local transaction_read_only = on; select fenceguard.admit('accounts/1', 4, 'h') $$), 'ZF001',
          'where nothing may be written a refusal is one all the same');
select is(test.outcome('select * from fenceguard.refusals', 'application'), '42501', 'the counts are not for everybody');
select is(test.outcome($$ select nextval('fenceguard.refused_stale') $$, 'application'), '42501', 'nor are the counters');
select fenceguard.unprotect('other') as set_up \gset
select is((select count(*) from pg_class where relname like 'fenceguard\_refused%'), 3::bigint, 'counters go with the protection');

-- Whoever looks at the schema is told what is what.
select is_empty($$
  select p.oid::regprocedure from pg_proc p where p.pronamespace = 'fenceguard'::regnamespace
    and p.proname = any (array['admit', 'admit_all', 'admitted', 'try_admit', 'rule', 'advance', 'try_advance', 'revoke',
      'cut', 'compact', 'init', 'rebase', 'acquire', 'renew', 'release', 'protect', 'unprotect', 'uninstall', 'version'])
    and obj_description(p.oid, 'pg_proc') is null
$$, 'every function that the documentation names has a comment');

-- The way out.
select is(test.outcome('select fenceguard.uninstall()', 'application'), '42501', 'not for everybody');
select is(test.outcome('select fenceguard.uninstall()'), 'ok', 'the schema goes');
select is(to_regnamespace('fenceguard')::text, null, 'all of it');
select is((select count(*) from pg_event_trigger), 0::bigint, 'the event trigger too');
select is((select count(*) from pg_class where relname like 'fenceguard%'), 0::bigint, 'no counter stays');
select is((select count(*) from pg_proc where proname like 'fenceguard%'), 0::bigint, 'no function');
select is(test.outcome('insert into account values (7); insert into other values (7)'), 'ok',
          'and the tables that were protected can be written');
select * from finish();
