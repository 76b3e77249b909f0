-- What an administrator does to fences: revoke, compact, init, rebase; and the floor.
select * from no_plan();

-- revoke
select fenceguard.advance('a', 5, 'h') as set_up \gset
select is(fenceguard.revoke('a'), true, 'a fence is closed');
select is(test.fence('a'), '5 h - 1', 'with its token');
select is(test.outcome($$ select fenceguard.admit('a', 5, 'h') $$), 'ZF001', 'its holder is stale from now on');
select is(test.outcome($$ select fenceguard.admit('a', 5, 'x') $$), 'ZF001', 'and nobody else learns that it was his');
select is(test.outcome($$ select fenceguard.admit('a', 6, 'n') $$), 'ok', 'the next higher token opens it');
select is(test.fence('a'), '6 n - 0', 'again');
select is(fenceguard.revoke('never seen'), false, 'there is nothing to close where nothing was seen');
select is(test.fence('never seen'), null, 'and nothing is recorded');
select is(fenceguard.revoke('named', 9, 'n'), true, 'a lease that did not advance yet is cut off when it is named');
select is(test.outcome($$ select fenceguard.admit('named', 9, 'n') $$), 'ZF001', 'it is stale');
select is(test.outcome($$ select fenceguard.admit('named', 10, 'm') $$), 'ok', 'its successor is not');
select is(fenceguard.revoke('named', 9, 'n'), false, 'revoking an older one by its token');
select is(test.fence('named'), '10 m - 0', 'leaves the newer one alone');
select is(fenceguard.revoke('named', 10), true, 'its own token closes it');
select is(test.fence('named'), '10 m - 1', 'and its holder stays on record');
select is(fenceguard.revoke_present('named', 7, 'x'), true, 'whoever is there is revoked where no token is meant');
select fenceguard.raise(3) as set_up \gset
select is(verdict, 'granted', 'a lease is taken') from fenceguard.acquire('newer', '1 hour', 'l');
select fenceguard.revoke('newer', token - 1, 'o') as set_up from fenceguard.leases where resource = 'newer' \gset
select is((select count(*) from fenceguard.lease where resource = 'newer'), 1::bigint,
          'a revoke that names an older token leaves a newer lease');
select is(test.outcome(format('select fenceguard.advance(%L, %s, ''l'')', 'newer', token)), 'ok', 'and lets it advance')
from fenceguard.lease where resource = 'newer';
select is(verdict, 'granted', 'a lease is taken') from fenceguard.acquire('leased', '1 hour', 'l');
select is(fenceguard.revoke('leased'), true, 'its lock is revoked');
select is((select count(*) from fenceguard.lease where resource = 'leased'), 0::bigint, 'the lease is over');
select is((select closed from fenceguard.fence where resource = 'leased'), true, 'and cannot advance any more');
select is(test.outcome(format('select fenceguard.advance(%L, %s, ''l'')', 'leased', token)), 'ZF001', 'it is stale')
from fenceguard.fence where resource = 'leased';
select is(verdict, 'granted', 'the next one gets the lock') from fenceguard.acquire('leased', '1 hour', 'm');
select is(test.outcome(format('select fenceguard.advance(%L, %s, ''m'')', 'leased', token)), 'ok', 'and its fence')
from fenceguard.lease where resource = 'leased';

-- compact
select is(test.outcome('select fenceguard.compact()'), '55000',
          'not without a number, where tokens did not come from the counter here');
delete from fenceguard.fences;
delete from fenceguard.leases;
select fenceguard.advance('c/' || i, 100 + i, 'h') as set_up from generate_series(1, 5) i \g /dev/null
select results_eq('select dropped, floor from fenceguard.compact(104)', 'values (3::bigint, 103::bigint)',
                  'records below the lowest live token are folded into the floor');
select is((select count(*) from fenceguard.fences), 2::bigint, 'the others stay');
select is(test.outcome(format('select fenceguard.admit(%L, %s, ''h'')', 'c/' || i, t)), state,
          format('afterwards c/%s with %s', i, t))
from (values (1, 101, 'ZF001'), (3, 103, 'ZF001'), (3, 104, 'ok'), (4, 104, 'ok'), (5, 104, 'ZF001'), (5, 105, 'ok'),
             (9, 103, 'ZF001')) x (i, t, state);
select results_eq('select dropped, floor from fenceguard.compact(50)', 'values (0::bigint, 103::bigint)',
                  'a lower number folds nothing, and the floor never falls');
select is(test.outcome('update fenceguard.floor set floor = -1'), '23514', 'a floor is not negative');
-- With the counter of acquire().
delete from fenceguard.fences;
update fenceguard.floor set floor = 0;
select setval('fenceguard.token', 1000) as set_up \gset
create temp table grants as
  select i, (fenceguard.acquire('k/' || i, '1 hour', 'h' || i)).token from generate_series(1, 3) i;
select fenceguard.advance('k/' || i, token, 'h' || i) as set_up from grants \g /dev/null
select fenceguard.release('k/1', token, 'h1') as set_up from grants where i = 1 \gset
select is(fenceguard.lowest_live(), (select token from grants where i = 2), 'the lowest that is held');
select results_eq('select dropped, floor from fenceguard.compact()',
                  'select 1::bigint, token from grants where i = 1', 'what was released is folded');
select is(test.outcome(format('select fenceguard.admit(%L, %s, %L)', 'k/' || i, token, 'h' || i)),
          case i when 1 then 'ZF001' else 'ok' end, 'holder ' || i) from grants;

-- init
select is(fenceguard.init(5000), 5000::bigint, 'the floor is raised');
select is(fenceguard.init(), 5000::bigint, 'repeated without a number it stays');
select is(fenceguard.init(7), 5000::bigint, 'it is never lowered');
select is(test.outcome('select fenceguard.init(-1)'), '22023', 'no negative floor');
select is(test.outcome('select fenceguard.init(null)'), '22023', 'no null either');
select is(test.outcome(format('select fenceguard.admit(%L, %s, %L)', 'k/' || i, token, 'h' || i)), 'ZF001',
          'records below the floor are stale') from grants where i = 2;
select is(test.outcome(format('select fenceguard.admitted(%L, %s, %L)', 'k/' || i, token, 'h' || i)), 'ZF001',
          'also in one statement') from grants where i = 2;
select results_eq($$ select verdict, highest from fenceguard.try_admit('k/2', 5001, 'n') $$,
                  $$ values ('advance', 5000::bigint) $$, 'the highest is that of the floor');
select is(test.outcome($$ select fenceguard.admit('k/2', 5001, 'n') $$), 'ok', 'above it all is as ever');
delete from fenceguard.floor;
select is(test.outcome($$ select fenceguard.admit('nothing', 1) $$), '55000', 'without a floor there is no licence');
select is(test.outcome($$ select fenceguard.admit('k/2', 5002, 'n') $$), '55000', 'nor for an advance');
select is(fenceguard.init(6000), 6000::bigint, 'until init() makes one');
select is(test.outcome($$ select fenceguard.admit('nothing', 6000) $$), 'ZF001', 'which holds');
select is(test.outcome($$ select fenceguard.admit('k/2', 5001, 'n') $$), 'ZF001', 'for records from before as well');

-- rebase
select fenceguard.advance('b', 9223372036854775807, 'absurd') as set_up \gset
select is(test.outcome($$ select fenceguard.rebase('b', 7000, 'somebody') $$), 'ok', 'a fence is set by hand');
select is(test.fence('b'), '7000  - 1', 'closed, so that nobody claims that very number');
select results_eq($$ select resource, token_from, token_to, done_by from fenceguard.rebases $$,
                  $$ values ('b'::text collate "C", 9223372036854775807, 7000::bigint, 'somebody') $$,
                  'with a record of who did it');
select is(test.outcome($$ select fenceguard.admit('b', 7001, 'n') $$), 'ok', 'and the next token is admitted');
select is(test.outcome($$ select fenceguard.rebase('b', 6000) $$), 'ok', 'at the floor');
select is(test.outcome($$ select fenceguard.admit('b', 6000, '') $$), 'ZF001', 'it is closed as well');

-- A record carries its time, for people.
select ok(updated_at > now() - interval '1 minute', 'when it was moved') from fenceguard.fence where resource = 'b';
select columns_are('fenceguard', 'fence', array['resource', 'token', 'holder', 'sequence', 'closed', 'updated_at']);
select * from finish();
