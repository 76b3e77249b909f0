-- What is a claim at all: resource, token, holder and sequence as design.md names them. The same names as in
-- tests/guard/resource_test.cpp, as far as a text of PostgreSQL can hold them.
select * from no_plan();

select is(test.outcome(format('select fenceguard.admit(%L, 1)', name)), 'ok', 'a resource: ' || left(name, 20))
from unnest(array['a', 'accounts/42', 'a/b/c/d', 'with space', '...', 'a/...', '.hidden', 'a..b', '%2e%2e', 'café',
                  '漢字', '😀', U&'\+10FFFF', U&'\E000', U&'\D7FF', U&'\00A0', U&'\2028', '\', '?query', '#', '''', '"',
                  '$1', '%s', repeat('x', 512), repeat('é', 256)]) name;

select is(test.outcome(format('select fenceguard.%s', format(call, quote_nullable(name)))), '22023',
          'no resource for ' || format(call, left(quote_nullable(name), 20)))
from unnest(array['', repeat('x', 513), repeat('é', 256) || 'x', '/', '//', '/a', 'a/', 'a//b', '.', '..', 'a/.', 'a/..',
                  './a', '../a', 'a/./b', 'a/../b', E'a\nb', E'\r', E'\t', E'\x1b[2J', E'\x7f', U&'\0080', U&'\009F',
                  E'a\n', E'\na', null]) name,
     unnest(array['admit(%s, 1)', 'advance(%s, 1)', 'admit_all(jsonb_build_array(jsonb_build_object(''resource'', '
                  '%s::text, ''token'', 1)))', 'acquire(%s)', 'revoke(%s)', 'rebase(%s, 1)', 'try_advance(%s, 1)']) call;

-- Ways that rule on rows of any name: a claim that is none is refused, whatever the SQLSTATE is of a missing resource.
select isnt(test.outcome(format('select * from fenceguard.%s', format(call, quote_nullable(name)))), 'ok',
            'no resource for ' || format(call, left(quote_nullable(name), 20)))
from unnest(array['', 'a/', '..', E'a\nb', E'a\tb', null]) name,
     unnest(array['try_admit(%s, 1)', 'admitted(%s, 1)', 'check_row(%s)', 'prepare_row(%s)',
                  'acquire_kept(%s, ''h'', ''row'', 1)']) call;

select is(test.outcome(format('select fenceguard.admit(''t/%s'', %1$s)', token)), 'ok', 'a token: ' || token)
from unnest(array['1', '2147483647', '2147483648', '4294967295', '4294967296', '9007199254740991', '9007199254740992',
                  '9007199254740993', '9223372036854775806', '9223372036854775807']) token;
select is(test.fence('t/9007199254740993'), '9007199254740993  - 0', 'every digit is kept');
select is(test.outcome(format('select fenceguard.%s', format(call, token))), state, format(call, token))
from (values ('0', '22023'), ('-1', '22023'), ('-9223372036854775808', '22023'), ('9223372036854775808', '22003'),
             ('null', 'ZF003'), ('1.5', '42883'), ('''x''', '22P02')) t (token, state),
     unnest(array['admit(''t'', %s)', 'advance(''t'', %s)', 'try_admit(''t'', %s)', 'admitted(''t'', %s)']) call
-- A number that bigint cannot hold is a numeric, for which there is no function.
where token <> '9223372036854775808';
select is(test.outcome('select fenceguard.admit(''t'', 9223372036854775808)'), '42883', 'a token has 63 bits');

select is(test.outcome(format('select fenceguard.admit(''h'', 1, %L)', holder)), case when ok then 'ok' else '22023' end,
          'holder ' || coalesce(quote_literal(left(holder, 20)), 'null'))
from (values ('!~-_:/', true), ('other', false)) x (holder, ok) where ok;
select is(test.outcome(format('select fenceguard.%s', format(call, quote_nullable(holder)))), '22023',
          'no holder in ' || format(call, coalesce(quote_literal(left(holder, 20)), 'null')))
from unnest(array[repeat('h', 129), 'a b', ' ', E'a\n', E'a\t', E'\x7f', 'é', null]) holder,
     unnest(array['admit(''h2'', 1, %s)', 'advance(''h2'', 1, %s)', 'try_admit(''h2'', 1, %s)',
                  'admitted(''h2'', 1, %s)', 'admit(''h2'', 1, %s, 7)', 'revoke(''h2'', 1, %s)']) call;
select is(test.outcome(format('select fenceguard.admit(''h3'', 1, %L)', repeat('h', 128))), 'ok', 'a holder of 128 bytes');
select is(test.outcome('select fenceguard.admit(''h4'', 1); select fenceguard.admit(''h4'', 1, '''')'), 'ok',
          'a holder that is left out is the empty one');
select is(test.outcome('select fenceguard.admit(''h4'', 1, ''x'')'), 'ZF002', 'which is a holder like any other');

select is(test.outcome(format('select fenceguard.admit(''s/%s'', 1, '''', %1$s)', sequence)), 'ok',
          'a sequence: ' || sequence)
from unnest(array['0', '1', '9007199254740993', '9223372036854775807']) sequence;
select is(test.outcome('select fenceguard.admit(''s'', 1, '''', -1)'), '22023', 'no sequence below 0');

select is((select count(*) from fenceguard.fences where resource in ('t', 'h2', 's')), 0::bigint,
          'what is no claim left nothing behind');

-- admit_all reads JSON.
select is(test.outcome(format('select fenceguard.admit_all(%L)', claims)), state, 'admit_all of ' || coalesce(claims, 'null'))
from (values
  (null, '22023'), ('null', '22023'), ('[]', '22023'), ('{}', '22023'), ('"x"', '22023'), ('1', '22023'),
  ('[1]', '22023'), ('[null]', '22023'), ('[{}]', '22023'), ('[{"resource": "x"}]', 'ZF003'),
  ('[{"resource": "x", "token": "0"}]', '22023'), ('[{"resource": "x", "token": "1x"}]', '22P02'),
  ('[{"resource": "x", "token": 1.5}]', '22P02'), ('[{"resource": "x", "token": "9223372036854775808"}]', '22003'),
  ('[{"resource": "x", "token": "1", "sequence": "-1"}]', '22023'),
  ('[{"resource": "x", "token": "1", "holder": "a b"}]', '22023'),
  ('[{"resource": "x", "token": "1"}, {"resource": "x", "token": "1"}]', '22023'),
  ('[{"resource": "json", "token": 9007199254740993}]', 'ok'), ('[{"resource": "json2", "token": "7"}]', 'ok')
) c (claims, state);
select is(test.fence('json'), '9007199254740993  - 0', 'a number in JSON keeps every digit, too');
select is(test.fence('x'), null, 'and nothing else was recorded');
select * from finish();
