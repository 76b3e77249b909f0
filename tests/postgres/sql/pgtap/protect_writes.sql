-- Protected tables: every command that writes a row is judged, for the old and the new resource, and what is refused
-- leaves no trace. What is to be a transaction of its own is run by \gexec.
select * from no_plan();

create schema app authorization table_owner;
grant usage on schema app to application;
set role table_owner;
create table app.account (id bigint primary key, balance bigint not null default 0);
insert into app.account select i, 100 from generate_series(1, 6) i;
grant all on app.account to application;
select fenceguard.protect('app.account', $$ 'accounts/' || id $$) as set_up \gset
reset role;
select fenceguard.advance('accounts/' || i, 10 + i, 'h' || i) as set_up from generate_series(1, 9) i \g /dev/null

-- What the application does under the claims to these accounts.
create function test.under(accounts bigint[], sql text) returns text language sql as $$
  select test.outcome((select string_agg(format('select fenceguard.admit(%L, %s, %L);', 'accounts/' || i, 10 + i,
                                                'h' || i), '') from unnest(accounts) i) || sql, 'application')
$$;
create function test.without_claim(sql text) returns text language sql as $$ select test.outcome(sql, 'application') $$;

select is(test.without_claim(sql), 'ZF003', 'without a claim: ' || sql)
from unnest(array[
  'insert into app.account values (7)',
  'update app.account set balance = 1 where id = 1',
  'update app.account set balance = balance where id = 1',
  'delete from app.account where id = 1',
  'insert into app.account values (1, 5) on conflict (id) do update set balance = 5',
  'insert into app.account values (7, 5) on conflict (id) do update set balance = 5',
  'insert into app.account values (7, 5) on conflict do nothing',
  'merge into app.account a using (values (1, 5)) v (id, b) on a.id = v.id when matched then update set balance = b',
  'merge into app.account a using (values (7, 5)) v (id, b) on a.id = v.id when not matched then insert values (id, b)',
  'merge into app.account a using (values (1, 5)) v (id, b) on a.id = v.id when matched then delete',
  'with w as (update app.account set balance = 1 where id = 1 returning *) select from w',
  'do $x$ begin update app.account set balance = 1 where id = 1; end $x$',
  'truncate app.account']) sql;
select is(test.without_claim($$ insert into app.account values (1) on conflict do nothing $$), 'ok',
          'what writes no row needs no claim');
select is(test.without_claim('update app.account set balance = 1 where id = 99'), 'ok', 'nor an update of no row');
select is(test.without_claim('select from app.account for update'), 'ok', 'nor a row that is only locked');

select format('select is(test.under(array[%s], %L), %L, %L)', account, sql, state,
              format('under the claim to %s: %s', account, sql))
from (values
  (1, 'update app.account set balance = 11 where id = 1', 'ok'),
  (1, 'update app.account set balance = 11 where id = 2', 'ZF003'),
  (1, 'update app.account set balance = 11', 'ZF003'),
  (7, 'insert into app.account values (7)', 'ok'),
  (1, 'insert into app.account values (8)', 'ZF003'),
  (1, 'insert into app.account values (8), (9)', 'ZF003'),
  (6, 'delete from app.account where id = 6', 'ok'),
  (1, 'delete from app.account where id in (1, 2)', 'ZF003'),
  (1, 'insert into app.account values (1, 12) on conflict (id) do update set balance = excluded.balance', 'ok'),
  (1, 'insert into app.account values (2, 12) on conflict (id) do update set balance = excluded.balance', 'ZF003'),
  (1, 'update app.account set id = 8 where id = 1', 'ZF003'),
  (8, 'update app.account set id = 8 where id = 1', 'ZF003'),
  (1, 'insert into app.account values (2, 12) on conflict (id) do update set id = 1', '23505'),
  (1, 'merge into app.account a using (values (1, 13), (2, 13)) v (id, b) on a.id = v.id '
      'when matched then update set balance = b', 'ZF003'),
  (1, 'merge into app.account a using (values (1, 13)) v (id, b) on a.id = v.id '
      'when matched then update set balance = b', 'ok'),
  (1, 'truncate app.account', 'ZF003')
) c (account, sql, state)
\gexec
select is(test.under(array[4, 8], 'update app.account set id = 8 where id = 4'), 'ok',
          'under the claims to both, a row changes its resource');
select results_eq('select id, balance from app.account order by id', $$ values
  (1::bigint, 13::bigint), (2, 100), (3, 100), (5, 100), (7, 0), (8, 100) $$, 'what was allowed happened, and nothing else');

-- A claim covers its transaction and no more.
begin;
select is(fenceguard.admit('accounts/1', 11, 'h1'), 'admitted', 'admitted');
select is(test.without_claim('update app.account set balance = 14 where id = 1'), 'ok', 'in the same transaction');
commit;
select is(test.without_claim('update app.account set balance = 15 where id = 1'), 'ZF003', 'not in the next one');
begin;
select fenceguard.admit('accounts/1', 11, 'h1') as set_up \gset
rollback;
select is(test.without_claim('update app.account set balance = 15 where id = 1'), 'ZF003', 'nor after a rollback');
begin;
savepoint s;
select fenceguard.admit('accounts/1', 11, 'h1') as set_up \gset
rollback to s;
select is(test.without_claim('update app.account set balance = 15 where id = 1'), 'ZF003',
          'nor after the savepoint that it was made in was rolled back');
savepoint s;
select fenceguard.admit('accounts/1', 11, 'h1') as set_up \gset
release s;
select is(test.without_claim('update app.account set balance = 15 where id = 1'), 'ok', 'released, it stays');
rollback;

-- The ways to claim: all of them cover rows.
select format('select is(test.outcome(%L, ''application''), ''ok'', %L)',
              format('select %s; update app.account set balance = balance + 1 where id = 1', claim), claim || ' covers rows')
from unnest(array[$$ fenceguard.admit('accounts/1', 11, 'h1') $$, $$ fenceguard.advance('accounts/1', 11, 'h1') $$,
                  $$ fenceguard.try_admit('accounts/1', 11, 'h1') $$, $$ fenceguard.admitted('accounts/1', 11, 'h1') $$,
                  $$ fenceguard.admit('accounts/1', 11, 'h1', 7) $$,
                  $$ fenceguard.rule('accounts/1', 11, 'h1') $$,
                  $$ fenceguard.admit_all('[{"resource": "accounts/1", "token": 11, "holder": "h1"}]') $$]) claim
\gexec
select is(test.outcome('update app.account set balance = balance + 1 where id = 1 '
                       'and fenceguard.admitted(''accounts/1'', 11, ''h1'')', 'application'), 'ok', 'in one statement');
select is(test.outcome('with g as materialized (select * from fenceguard.try_admit(''accounts/1'', 11, ''h1'')) update '
                       'app.account set balance = balance + 1 from g where verdict = ''admitted'' and id = 1',
                       'application'), 'ok', 'and with its verdict as a row');
select is(test.outcome($$ select fenceguard.admit('accounts/1', 11, 'h1', 8); select fenceguard.try_admit('accounts/1',
  11, 'h1', 8); update app.account set balance = -1 where id = 1 $$, 'application'), 'ok', 'a duplicate takes back no claim');

-- Foreign keys write other tables' rows.
set role table_owner;
create table app.owner (id bigint primary key);
insert into app.owner values (1), (2), (3), (4);
create table app.card (number bigint primary key, owner bigint default 4 references app.owner on delete cascade
                       on update cascade);
insert into app.card values (10, 1), (20, 2), (30, 3);
grant all on app.owner, app.card to application;
select fenceguard.protect('app.card', $$ 'cards/' || owner $$) as set_up \gset
reset role;
select fenceguard.advance('cards/' || i, 1, 'h') as set_up from generate_series(1, 5) i \g /dev/null
select is(test.without_claim('delete from app.owner where id = 1'), 'ZF003', 'on delete cascade');
select is(test.without_claim('update app.owner set id = 5 where id = 1'), 'ZF003', 'on update cascade');
select is(test.outcome($$ select fenceguard.admit('cards/1', 1, 'h'); update app.owner set id = 5 where id = 1 $$,
                       'application'), 'ZF003', 'for the new resource as well');
select is(test.outcome($$ select fenceguard.admit('cards/1', 1, 'h'); delete from app.owner where id = 1 $$,
                       'application'), 'ok', 'a cascade under its claim');
select is(test.outcome($$ select fenceguard.admit('cards/2', 1, 'h'), fenceguard.admit('cards/5', 1, 'h');
                          update app.owner set id = 5 where id = 2 $$, 'application'), 'ok', 'under both');
alter table app.card drop constraint card_owner_fkey,
  add foreign key (owner) references app.owner on delete set default;
select is(test.without_claim('delete from app.owner where id = 3'), 'ZF003', 'on delete set default');
select is(test.outcome($$ select fenceguard.admit('cards/3', 1, 'h'); delete from app.owner where id = 3 $$,
                       'application'), 'ZF003', 'under one claim of two');
select is(test.outcome($$ select fenceguard.admit('cards/3', 1, 'h'), fenceguard.admit('cards/4', 1, 'h');
                          delete from app.owner where id = 3 $$, 'application'), 'ok', 'and under both');
select is(test.without_claim('truncate app.owner cascade'), 'ZF003', 'TRUNCATE ... CASCADE');
select results_eq('select number, owner from app.card order by 1', 'values (20::bigint, 5::bigint), (30, 4)',
                  'nothing else was written');

-- COPY, a view, a rule, a definer function, a prepared statement, a cursor.
set role table_owner;
create view app.rich as select * from app.account where balance > 50;
create function app.pay(of bigint) returns void language sql security definer as $$
  update app.account set balance = 0 where id = of $$;
grant all on app.rich to application;
reset role;
select is(test.without_claim(sql), 'ZF003', sql) from unnest(array[
  'update app.rich set balance = 60', 'insert into app.rich values (9, 60)', 'delete from app.rich',
  'select app.pay(1)',
  'do $x$ declare c cursor for select from app.account where id = 1 for update; begin open c; move c; '
    'update app.account set balance = 5 where current of c; end $x$']) sql;
select is(test.outcome($$ select fenceguard.admit('accounts/1', 11, 'h1'); select app.pay(1) $$, 'application'), 'ok',
          'a definer function under a claim');
prepare pay as update app.account set balance = 0 where id = 2;
select is(test.outcome('execute pay'), 'ZF003', 'a prepared statement');

-- Above READ COMMITTED the same.
begin isolation level repeatable read;
select is(test.without_claim('update app.account set balance = 0 where id = 2'), 'ZF003', 'REPEATABLE READ');
select is(test.under(array[2], 'update app.account set balance = 20 where id = 2'), 'ok', 'REPEATABLE READ under a claim');
commit;
begin isolation level serializable;
select is(test.without_claim('update app.account set balance = 0 where id = 2'), 'ZF003', 'SERIALIZABLE');
rollback;
begin isolation level serializable;
select is(test.under(array[2], 'update app.account set balance = 21 where id = 2'), 'ok', 'SERIALIZABLE under a claim');
commit;
select is(balance, 21::bigint, 'both wrote') from app.account where id = 2;

-- The fence moved on, or was closed, between the claim and the row.
begin;
select fenceguard.admit('accounts/2', 12, 'h2') as set_up \gset
select fenceguard.revoke('accounts/2') as set_up \gset
select is(test.without_claim('update app.account set balance = 0 where id = 2'), 'ZF001', 'revoked after the claim');
rollback;
begin;
select fenceguard.admit('accounts/2', 12, 'h2') as set_up \gset
select fenceguard.advance('accounts/2', 13, 'n') as set_up \gset
select is(test.without_claim('update app.account set balance = 22 where id = 2'), 'ok', 'its own newer claim covers it');
rollback;
-- COPY reads from this script; ON_ERROR_STOP would end it, so what failed is looked at afterwards.
\set ON_ERROR_STOP off
\set QUIET on
set role application;
copy app.account from stdin;
70	1
71	1
\.
begin;
select fenceguard.admit('accounts/9', 19, 'h9') as set_up \gset
copy app.account from stdin;
9	90
\.
commit;
reset role;
\set ON_ERROR_STOP on
select results_eq('select id, balance from app.account where id in (9, 70, 71)', 'values (9::bigint, 90::bigint)',
                  'COPY writes what its claim covers, and nothing else');
-- What logical replication applies fires the triggers of rows alone.
set role table_owner;
select format('alter table app.account disable trigger %I', tgname) from pg_trigger
where tgrelid = 'app.account'::regclass and tgname <> 'fenceguard_rows' and not tgisinternal \gexec
reset role;
select test.outcome($$ set local session_replication_role = replica;
  update app.account set balance = 1 where id = 1 $$) as said \gset
select case when test.has_event_trigger() then is(:'said'::text, 'ZF003', 'nor does logical replication write without a claim')
  else skip('only a superuser applies') end;
select * from finish();
