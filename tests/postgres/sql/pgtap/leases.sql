-- The token source: leases by the server's clock. Contention is in interleaving_test.py.
select * from no_plan();

create function test.acquire(resource text, ttl interval, holder text) returns text language sql as $$
  select concat_ws(' ', a.verdict, a.token, a.granted_to, a.is_new) from fenceguard.acquire(resource, ttl, holder) a
$$;
-- The test's clock: a lease that expired.
create function test.expire(of text) returns void language sql as $$
  update fenceguard.leases set expires_at = clock_timestamp() - interval '1 ms' where resource = of
$$;

select is(test.acquire('r', '10 min', 'a'), 'granted 1 a t', 'a free lock is granted with the first number');
select is(test.acquire('r', '10 min', 'b'), 'held', 'somebody else is told that it is held');
select ok(retry_after between interval '8 min' and interval '10 min', 'and for how long at most')
from fenceguard.acquire('r', '1 s', 'b');
select is(test.acquire('r', '10 min', 'a'), 'granted 1 a f', 'the same holder again: the same token, nothing new');
select is(test.acquire('r', '20 ms', 'a'), 'granted 1 a f', 'also with a shorter time');
select ok(remaining > interval '5 min', 'which does not shorten the lease') from fenceguard.lease where resource = 'r';
select is(test.acquire('s', '10 min', 'a'), 'granted 2 a t', 'one counter for all resources');
select alike(test.acquire('t', '10 min', null), 'granted 3 ________________________________ t',
             'a holder of 128 random bits if none is given');

select is(fenceguard.renew('r', 1, 'a', '1 hour'), true, 'it is renewed');
select ok(remaining > interval '50 min', 'to so much from now') from fenceguard.lease where resource = 'r';
select is(fenceguard.renew('r', 1, 'b'), false, 'not by another holder');
select is(fenceguard.renew('r', 2, 'a'), false, 'nor under another token');
select is(fenceguard.renew('nothing', 1, 'a'), false, 'nor where there is none');
select is(fenceguard.release('r', 1, 'b'), false, 'another holder does not free it');
select is(fenceguard.release('r', 2, 'a'), false, 'nor another token');
select is(fenceguard.release('r', 1, 'a'), true, 'its holder does');
select is(fenceguard.release('r', 1, 'a'), false, 'once');
select is(fenceguard.renew('r', 1, 'a'), false, 'a late renewal does not steal it back');
select is(test.acquire('r', '10 min', 'a'), 'granted 4 a t', 'taken again it has a new token, also for the same holder');

select test.expire('r') as set_up \gset
select is(fenceguard.renew('r', 4, 'a'), false, 'what expired is not renewed');
select is(fenceguard.release('r', 4, 'a'), false, 'nor released');
select is((select count(*) from fenceguard.lease where resource = 'r'), 0::bigint, 'nor looked at');
select is(test.acquire('r', '10 min', 'a'), 'granted 5 a t', 'the same holder gets a new token after expiry');
select test.expire('r') as set_up \gset
select is(test.acquire('r', '10 min', 'b'), 'granted 6 b t', 'and so does the next one');
select is(fenceguard.release('r', 5, 'a'), false, 'a late release does not free somebody else''s');
select is(fenceguard.end_lease('r'), true, 'an administrator ends it');
select is(fenceguard.end_lease('r'), false, 'once');
select is(test.acquire('r', '10 min', 'c'), 'granted 7 c t', 'and it is free');

select is(fenceguard.draw(), 8::bigint, 'a number is drawn without a grant');
select is(test.acquire('u', '10 min', 'a'), 'granted 9 a t', 'and not issued again');
select is(test.outcome('select fenceguard.raise(100)'), 'ok', 'the counter is lifted');
select is(test.acquire('v', '10 min', 'a'), 'granted 101 a t', 'above the mark');
select is(test.outcome('select fenceguard.raise(50)'), 'ok', 'a lower mark');
select is(test.acquire('w', '10 min', 'a'), 'granted 102 a t', 'lowers nothing');
select is(test.outcome('select fenceguard.raise(102)'), 'ok', 'the very number');
select is(fenceguard.draw(), 103::bigint, 'changes nothing either');
select is(test.outcome(format('select fenceguard.raise(%s)', mark)), '22023', 'no mark: ' || mark)
from unnest(array['0', '-1', 'null']) mark;
select is(test.acquire('r', '10 min', 'c'), 'granted 7 c f', 'whoever holds a lock keeps its token through all this');
select is(fenceguard.lowest_live(), 2::bigint, 'the lowest that is held');
update fenceguard.leases set expires_at = '-infinity';
select is(fenceguard.lowest_live(), 104::bigint, 'nothing is held: the next that will be drawn');

-- A counter that somebody set back is noticed.
select setval('fenceguard.token', 3) as set_up \gset
select unnest(array[
  is(r ->> 'state', '55000', 'a number that is not above the last one of this resource is not granted'),
  alike(r ->> 'hint', '%fenceguard.raise(%', 'and the remedy is named')
])
from test.refusal($$ select fenceguard.acquire('w', '1 s', 'x') $$) r;
select fenceguard.raise(102) as set_up \gset
select alike(test.acquire('w', '10 min', 'a'), 'granted 1__ a t', 'which helps');
-- The end of all numbers.
select is(test.outcome('select fenceguard.raise(9223372036854775806)'), 'ZF004', 'they are not skipped by the way');
select fenceguard.raise_far(9223372036854775806) as set_up \gset
select is(test.acquire('end', '10 min', 'a'), 'granted 9223372036854775807 a t', 'the last number of all');
select is(test.outcome($$ select fenceguard.acquire('end2', '1 s', 'x') $$), '2200H', 'the counter does not begin again');
select is(fenceguard.lowest_live() > 0, true, 'and can still be looked at');

select is(test.outcome(format('select fenceguard.acquire(''ttl'', %s)', quote_nullable(ttl))), '22023', 'no time to live: '
  || coalesce(ttl, 'null')) from unnest(array['9 ms', '0', '-1 s', '25 hours', null]) ttl;
select is(test.outcome(format('select fenceguard.renew(''r'', 1, ''a'', %s)', quote_nullable(ttl))), '22023',
  'nor for a renewal: ' || coalesce(ttl, 'null')) from unnest(array['9 ms', '0', '25 hours', null]) ttl;
select is(test.outcome($$ select fenceguard.acquire('ttl', '1 s', 'a b') $$), '22023', 'no such holder');

-- Leases that live by a connection: the keeper here is this backend.
select setval('fenceguard.token', 200) as set_up \gset
select is(test.outcome($$ select fenceguard.prepare_row('k'); select fenceguard.prepare_row('k') $$), 'ok',
          'the row to lock is made once');
select fenceguard.hold_row('k', false) as held \gset
select is(:'held'::text, 't', 'and locked');
select pg_advisory_lock(fenceguard.lease_lock_key('adv')) as set_up \gset
select results_eq($$ select verdict, token from fenceguard.acquire_kept('adv', 'a', 'advisory', pg_backend_pid()) $$,
                  $$ values ('granted', 201::bigint) $$, 'a token for a lock of this session');
select is(kept_by || ' ' || (keeper_pid = pg_backend_pid()), 'advisory true', 'its keeper is on record')
from fenceguard.leases where resource = 'adv';
select is(test.outcome('select * from fenceguard.lease'), 'ok', 'people can look at leases that end with a connection');
select is(test.outcome('select fenceguard.lowest_live()'), 'ok', 'and they count as live');
select is(test.outcome($$ select fenceguard.revoke('nothing here') $$), 'ok', 'and others can be revoked');
select is(test.outcome($$ select fenceguard.acquire_kept('adv', 'a', 'nonsense', pg_backend_pid()) $$), '23514',
          'kept in no known way');
select is(test.outcome($$ select fenceguard.acquire_kept('x', 'a', 'advisory', pg_backend_pid()) $$), '55000',
          'nor by a connection that does not hold its lock');
select pg_advisory_unlock(fenceguard.lease_lock_key('adv')) as set_up \gset
select is(fenceguard.release('adv', 201, 'a'), true, 'it is released');
select alike(test.acquire('adv', '10 min', 'b'), 'granted 20_ b t', 'and then anybody''s');
select pg_advisory_lock(fenceguard.lease_lock_key('adv')) as set_up \gset
select results_eq($$ select verdict, token from fenceguard.acquire_kept('adv', 'a', 'advisory', pg_backend_pid()) $$,
                  $$ values ('held', null::bigint) $$, 'who has it by time is not driven out by a session');
select * from finish();
