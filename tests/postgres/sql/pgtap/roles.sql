-- Who may do what: an application writes data and makes claims, and can neither read nor touch fences, nor take the
-- protection off; what runs with its owner's rights has a path of its own.
select * from no_plan();

create schema app authorization table_owner;
grant usage on schema app to application, stranger;
set role table_owner;
create table app.account (id bigint primary key, balance bigint not null default 0);
insert into app.account select i, 100 from generate_series(1, 3) i;
grant select, insert, update, delete on app.account to application;
select is(test.outcome($$ select fenceguard.protect('app.account', '''accounts/'' || id') $$), 'ok',
          'a role protects a table of its own, and needs no other right');
reset role;
select fenceguard.advance('accounts/1', 5, 'secret-holder') as set_up \gset

select format('select is(test.outcome(%L, ''application''), %L, %L)', sql, state, sql || ': ' || state) from (values
  -- What an application does.
  ('select fenceguard.admit(''accounts/1'', 5, ''secret-holder''); update app.account set balance = 1 where id = 1', 'ok'),
  ('select fenceguard.advance(''accounts/2'', 6, ''h'')', 'ok'), ('select fenceguard.try_advance(''accounts/2'', 6, ''h'')', 'ok'),
  ('select * from fenceguard.try_admit(''accounts/2'', 6, ''h'')', 'ok'),
  ('select fenceguard.admitted(''accounts/2'', 6, ''h'')', 'ok'),
  ('select * from fenceguard.admit_all(''[{"resource": "accounts/2", "token": 6, "holder": "h"}]'')', 'ok'),
  ('select * from fenceguard.acquire(''accounts/3'')', 'ok'), ('select fenceguard.renew(''accounts/3'', 1, ''h'')', 'ok'),
  ('select fenceguard.release(''accounts/3'', 1, ''h'')', 'ok'), ('select * from fenceguard.protected', 'ok'),
  -- What it does not.
  ('update app.account set balance = 2 where id = 1', 'ZF003'),
  ('select * from fenceguard.fences', '42501'), ('select * from fenceguard.fence', '42501'),
  ('select * from fenceguard.leases', '42501'), ('select * from fenceguard.lease', '42501'),
  ('select * from fenceguard.floor', '42501'), ('select * from fenceguard.rebases', '42501'),
  ('select * from fenceguard.lease_rows', '42501'), ('select * from fenceguard.token', '42501'),
  ('insert into fenceguard.fences (resource, token, holder) values (''x'', 1, '''')', '42501'),
  ('update fenceguard.fences set token = 1', '42501'), ('delete from fenceguard.fences', '42501'),
  ('truncate fenceguard.fences', '42501'), ('update fenceguard.floor set floor = 0', '42501'),
  ('delete from fenceguard.floor', '42501'), ('lock table fenceguard.fences in access exclusive mode', '42501'),
  ('update fenceguard.leases set expires_at = ''-infinity''', '42501'), ('delete from fenceguard.schema_version', '42501'),
  ('select nextval(''fenceguard.token'')', '42501'), ('select setval(''fenceguard.token'', 1)', '42501'),
  ('select fenceguard.revoke(''accounts/1'')', '42501'), ('select fenceguard.compact(100)', '42501'),
  ('select fenceguard.init(100)', '42501'), ('select fenceguard.rebase(''accounts/1'', 1)', '42501'),
  ('select fenceguard.raise(1000)', '42501'), ('update fenceguard.limits set jump_max = 0', '42501'),
  ('select * from fenceguard.limits', '42501'), ('select fenceguard.draw()', '42501'),
  ('select fenceguard.cut(''accounts/1'')', '42501'), ('select fenceguard.end_lease(''accounts/1'')', '42501'),
  ('select fenceguard.lowest_live()', '42501'), ('select fenceguard.look(''accounts/1'', 5, '''', null)', '42501'),
  ('select fenceguard.lock_holders(''accounts/1'')', '42501'), ('select fenceguard.cut_older(''accounts/1'', 9)', '42501'),
  ('select fenceguard.admit_alone(''accounts/1'', 9, ''x'', null)', '42501'),
  ('select fenceguard.lock_alone(''accounts/1'', 9, 8, null, null)', '42501'),
  ('select fenceguard.highest(''accounts/1'')', '42501'),
  ('select fenceguard.unprotect(''app.account'')', '42501'), ('select fenceguard.protect(''app.account'', ''id'')', '42501'),
  ('alter table app.account disable trigger all', '42501'), ('alter table app.account disable trigger user', '42501'),
  ('alter table app.account disable trigger fenceguard_rows', '42501'),
  ('drop trigger fenceguard_rows on app.account', '42501'), ('drop table app.account', '42501'),
  ('drop schema fenceguard cascade', '42501'), ('drop function fenceguard.check_row', '42501'),
  ('create or replace function fenceguard.check_row(resource text) returns boolean language sql as ''select true''', '42501'),
  ('create function fenceguard.check_row(varchar) returns boolean language sql as ''select true''', '42501'),
  ('alter function fenceguard.check_row(text) rename to other', '42501'),
  ('alter function fenceguard.check_row(text) owner to application', '42501'),
  ('create table fenceguard.mine (id integer)', '42501'), ('create view fenceguard.mine as select 1', '42501'),
  ('alter table app.account owner to application', '42501'), ('create table app.mine () inherits (app.account)', '42501'),
  ('truncate app.account', '42501'),
  ('comment on table fenceguard.fences is ''x''', '42501'), ('set session_replication_role = replica', '42501'),
  ('alter role application set session_replication_role = replica', '42501')
) x (sql, state)
\gexec

-- Every function of the protected table is safe, too.
select format('select is(test.outcome(%L, ''application''), ''42501'', %L)', sql, sql)
from (select p.oid::regprocedure as f from pg_proc p where p.proname like 'fenceguard\_%'
        and p.pronamespace = 'app'::regnamespace) x,
     lateral unnest(array[format('drop function %s', f), format('alter function %s rename to other', f)]) sql
\gexec

-- Who has no more than USAGE learns no holder from anything that can be called.
select is(test.outcome('select * from fenceguard.fence', 'stranger'), '42501', 'a stranger reads no fence');
select is(test.outcome('update app.account set balance = 0', 'stranger'), '42501', 'and writes no data');
select is(test.outcome($$ select fenceguard.admit('accounts/1', 5, 'guess') $$, 'stranger'), 'ZF002', 'a guess');
select unalike(test.refusal($$ select fenceguard.admit('accounts/1', 5, 'guess') $$, 'stranger')::text, '%secret-holder%',
               'tells nobody');
select is(test.value($$ select count(*) from pg_stats where schemaname = 'fenceguard' $$, 'stranger'), '0',
          'nor do statistics');

-- Whoever may look is granted it, and no more.
grant select on fenceguard.fence to stranger;
select is(test.outcome('select * from fenceguard.fence', 'stranger'), 'ok', 'the view can be granted');
select is(test.outcome('select * from fenceguard.fences', 'stranger'), '42501', 'without the table');

-- Every function, by what it may do.
select is_empty($$
  select p.oid::regprocedure from pg_proc p where p.pronamespace = 'fenceguard'::regnamespace and p.prosecdef
    and not coalesce(p.proconfig && array['search_path=pg_catalog, pg_temp'], false)
    and p.proname <> all (array['rule_on', 'equals_fence', 'admit', 'rule', 'require_admitted', 'try_admit', 'admitted',
      'confirm', 'check_row', 'admit_session_claims'])
$$, 'every SECURITY DEFINER function has a pinned search_path that ends in pg_temp, or is read by search_path_test.py');
select is_empty($$
  select p.oid::regprocedure from pg_proc p where p.pronamespace = 'fenceguard'::regnamespace and p.prosecdef
    and has_function_privilege('stranger', p.oid, 'execute')
    and p.proname <> all (array['admit', 'rule', 'require_admitted', 'require_noted', 'try_admit', 'admitted',
      'confirm', 'leave_notes', 'highest_seen', 'admit_all', 'rule_all', 'try_advance', 'advance', 'finish', 'check_row', 'acquire', 'renew', 'release',
      'prepare_row', 'hold_row', 'acquire_kept', 'took_effect', 'observe_row', 'forget_observations', 'admit_session_claims',
      'was_any_protected'])
$$, 'no other function runs with its owner''s rights for everybody');
select is_empty($$
  select p.oid::regprocedure from pg_proc p
  where p.pronamespace = 'fenceguard'::regnamespace and has_function_privilege('stranger', p.oid, 'execute')
    and p.proname = any (array['init', 'compact', 'revoke', 'rebase', 'raise', 'draw', 'cut', 'cut_older', 'end_lease',
      'lowest_live', 'look', 'highest', 'lock_holders', 'lock_lease', 'draw_above', 'admit_alone', 'lock_alone',
      'refuse_row', 'refuse_busy', 'hold_tags', 'end_backends', 'holders_of', 'lock_or_cut', 'lock_or_refuse',
      'revoke_present', 'close_fence', 'lift_counter', 'raise_far', 'lower_counter', 'jump_bound', 'require_plausible', 'cut_lease_row', 'lock_lease_row', 'end_present_lease'])
$$, 'what changes or shows fences is not for everybody');
select is_empty($$
  select c.oid::regclass from pg_class c where c.relnamespace = 'fenceguard'::regnamespace and c.relkind in ('r', 'v', 'S')
    and c.relname <> 'protected'
    and (has_table_privilege('stranger', c.oid, 'insert, update, delete, truncate, references, trigger')
         or (c.relname <> 'fence' and has_table_privilege('stranger', c.oid, 'select')))
$$, 'no table is for everybody');
select is_empty($$ select from pg_namespace n where n.nspname = 'fenceguard' and has_schema_privilege('stranger', n.oid, 'create') $$,
                'nor may anybody create in the schema');
select is_empty($$
  select p.oid::regprocedure from pg_proc p where p.pronamespace = 'fenceguard'::regnamespace and p.proparallel <> 'u'
$$, 'none of them runs in a parallel worker, which could not take locks');

-- An administrator narrows it down.
revoke usage on schema fenceguard from public;
select is(test.outcome($$ select fenceguard.admit('accounts/1', 5, 'secret-holder') $$, 'application'), '42501',
          'without USAGE nobody makes a claim');
select isnt(test.outcome('update app.account set balance = 0', 'application'), 'ok', 'nor writes a protected row');
grant usage on schema fenceguard to application;
select is(test.outcome($$ select fenceguard.admit('accounts/1', 5, 'secret-holder') $$, 'application'), 'ok', 'with it he does');

-- A table that a superuser protected is its owner's all the same.
grant usage on schema fenceguard to table_owner;
create table app.theirs (id integer);
alter table app.theirs owner to table_owner;
select fenceguard.protect('app.theirs', $$ 't/' || id $$) as set_up \gset
select is(test.outcome($$ select fenceguard.unprotect('app.theirs') $$, 'table_owner'), 'ok',
          'its owner takes off what an administrator put on');
select * from finish();
