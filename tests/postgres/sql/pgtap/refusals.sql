-- What a client is told when its claim is refused: SQLSTATE, DETAIL as JSON with numbers as strings, HINT in words; never
-- the present holder.
select * from no_plan();

select fenceguard.advance('r', 9007199254740993, 'the-present-holder') as set_up \gset
create table account (id text primary key, balance bigint);
insert into account values ('r', 100);

select unnest(array[
  is(r -> 'state', to_jsonb(state), way || ': SQLSTATE ' || state),
  is(r -> 'detail', detail, way || ': DETAIL'),
  isnt(r ->> 'hint', '', way || ': a HINT'),
  unalike(r::text, '%the-present-holder%', way || ': the present holder is not named')
])
from (values
  ('stale', 'ZF001', '(''r'', 9007199254740992, ''other'')',
   '{"verdict": "stale", "resource": "r", "token": "9007199254740992", "highest": "9007199254740993"}'::jsonb),
  ('conflict', 'ZF002', '(''r'', 9007199254740993, ''other'')',
   '{"verdict": "conflict", "resource": "r", "token": "9007199254740993", "highest": "9007199254740993"}'),
  ('missing', 'ZF003', '(''r'', null, ''other'')',
   '{"verdict": "missing", "resource": "r", "token": null, "highest": null}')
) c (kind, state, claim, detail), unnest(array['admit', 'advance', 'admitted']) call,
lateral (select kind || ' by ' || call as way, test.refusal(format('select fenceguard.%s%s', call, claim)) as r) x;

select unnest(array[
  is(r -> 'state', '"ZF001"', 'stale by admit_all'),
  is(r -> 'detail', '{"verdict": "stale", "resource": "r", "token": "7", "highest": "9007199254740993"}'::jsonb,
     'stale by admit_all: DETAIL')
])
from test.refusal($$ select fenceguard.admit_all('[{"resource": "r", "token": 7}]') $$) r;

select results_eq($$ select verdict, highest from fenceguard.try_admit('r', 7, 'x') $$,
                  $$ values ('stale', 9007199254740993) $$, 'try_admit answers a refusal as a row');
select results_eq($$ select verdict, highest from fenceguard.try_admit('r', 9007199254740993, 'x') $$,
                  $$ values ('conflict', 9007199254740993) $$, 'and a conflict');
select results_eq($$ select verdict, highest from fenceguard.try_admit('r', 9007199254740994, 'x') $$,
                  $$ values ('advance', 9007199254740993) $$, 'and a claim that is newer');
select results_eq($$ select verdict, highest from fenceguard.try_admit('new', 5, 'x') $$,
                  $$ values ('advance', 0::bigint) $$, 'also where there is no record yet');
select results_eq($$ select verdict, highest from fenceguard.try_advance('r', 7, 'x') $$,
                  $$ values ('stale', 9007199254740993) $$, 'try_advance, too');
select is(r::text, '(admitted,9007199254740995)', 'and an advance with its new highest')
from fenceguard.try_advance('r', 9007199254740995, 'y') r;
select unnest(array[
  is(r ->> 'state', '40001', 'admitted() cannot advance: 40001'),
  alike(r ->> 'hint', '%fenceguard.advance(%', 'and says what to do')
])
from test.refusal($$ select fenceguard.admitted('r', 9007199254740996, 'x') $$) r;

-- A wrong jump is told apart from a stale claim.
select is(test.outcome($$ select fenceguard.try_advance('r', 9007199254740995 + 11, 'x', jump_max => 10) $$), 'ZF004',
          'an implausible token');
select is(test.outcome($$ select fenceguard.try_advance('r', 9007199254740995 + 10, 'x', jump_max => 10) $$), 'ok',
          'a plausible one');
select is(test.outcome($$ select fenceguard.try_advance('other', 9007199254741005 + 11, 'x', jump_max => 10) $$), 'ZF004',
          'above the highest of the database, not of the resource');
select is(test.fence('other'), null, 'which moved nothing');

-- Protected rows.
select fenceguard.protect('account', 'id') as set_up \gset
select unnest(array[
  is(r -> 'state', '"ZF003"', 'a row without a claim: ZF003'),
  is(r -> 'detail', '{"verdict": "missing", "resource": "r", "token": null, "highest": "9007199254741005"}'::jsonb,
     'DETAIL'),
  alike(r ->> 'hint', '%fenceguard.admit(%', 'HINT')
])
from test.refusal($$ update account set balance = 1 $$) r;
select unnest(array[
  is(r -> 'state', '"ZF001"', 'a row under a claim that is stale by now: ZF001'),
  is(r -> 'detail' ->> 'token', '9007199254740992', 'DETAIL names the claim'),
  unalike(r::text, '%"y"%', 'and no holder')
])
from test.refusal($$ select test.note('r', 9007199254740992, 'other'); update account set balance = 1 $$) r;
select is(r -> 'state', '"ZF002"', 'a row under somebody else''s number: ZF002')
from test.refusal($$ select test.note('r', 9007199254741005, 'other'); update account set balance = 1 $$) r;
select is(balance, 100::bigint, 'nothing was written') from account;
-- A resource that needs quoting does not break its JSON.
select fenceguard.admit('"\''%s$', 2) as set_up \gset
select is(r -> 'detail' ->> 'resource', '"\''%s$', 'a resource with quotes and a percent sign comes back as it is')
from test.refusal($$ select fenceguard.admit('"\''%s$', 1) $$) r;

-- A claim that was admitted does not speak for another one in its transaction.
select fenceguard.advance('two', 7, 'h') as set_up \gset
select format('select is(test.outcome(%L), %L, %L)', format($$ select fenceguard.admit('two', 7, 'h'); %s $$,
              format(call, claim)), state, 'beside a claim that was admitted: ' || format(call, claim))
from (values ('''two'', 6, ''g''', 'ZF001'), ('''two'', 7, ''x''', 'ZF002'), ('''two'', 7, ''h''', 'ok')) c (claim, state),
     unnest(array['select fenceguard.admit(%s)', 'select fenceguard.admitted(%s)', 'select fenceguard.advance(%s)',
                  'do $x$ begin perform fenceguard.refuse(verdict, ''two'', 1, 2) from fenceguard.try_admit(%s) '
                  'where verdict <> ''admitted''; end $x$', 'do $x$ begin perform fenceguard.refuse(verdict, ''two'', '
                  '1, 2) from fenceguard.rule(%s) where verdict <> ''admitted''; end $x$']) call
\gexec
select * from finish();
