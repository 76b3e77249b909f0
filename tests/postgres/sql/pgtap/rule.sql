-- The rule: the shared table of cases, through judge() itself and through every way in which a claim meets real rows.
select * from no_plan();

-- Puts a case's record and floor in place, makes its claim in one way, and takes everything back. Answers
-- 'verdict | record afterwards', the latter as test.fence() says it.
create function test.rule_by(way text, c test.judge_cases) returns text language plpgsql as $$
declare
  verdict text;
  after text;
begin
  delete from fenceguard.fences;
  update fenceguard.floor set floor = c.floor;
  insert into fenceguard.fences (resource, token, holder, sequence, closed)
  select 'r', c.record_token, c.record_holder, c.record_sequence, c.record_closed where c.record_token is not null;
  begin
    case way
      when 'rule' then select r.verdict into verdict from fenceguard.rule('r', c.token, c.holder, c.sequence) r;
      when 'admit' then verdict := fenceguard.admit('r', c.token, c.holder, c.sequence);
      when 'advance' then verdict := fenceguard.advance('r', c.token, c.holder);
      when 'try_advance' then
        select r.verdict into verdict from fenceguard.try_advance('r', c.token, c.holder) r;
      when 'try_admit' then
        select r.verdict into verdict from fenceguard.try_admit('r', c.token, c.holder, c.sequence) r;
      when 'admitted' then
        verdict := case when fenceguard.admitted('r', c.token, c.holder, c.sequence) then 'admitted'
                        else 'duplicate' end;
      when 'confirm' then
        perform fenceguard.confirm('r', c.token, c.holder);
        verdict := 'admitted';
      when 'admit_all' then
        select r.verdict into verdict from fenceguard.admit_all(jsonb_build_array(jsonb_build_object(
          'resource', 'r', 'token', c.token::text, 'holder', c.holder, 'sequence', c.sequence::text))) r;
      when 'protected row' then
        -- A claim as it was noted when it was admitted; the fence may have moved on since then.
        perform test.note('r', c.token, c.holder);
        verdict := case when fenceguard.check_row('r') then 'admitted' end;
    end case;
  exception when sqlstate 'ZF001' then verdict := 'stale';
            when sqlstate 'ZF002' then verdict := 'conflict';
            when sqlstate 'ZF003' then verdict := 'missing';
            when serialization_failure then verdict := 'advance';
  end;
  after := test.fence('r');
  raise exception using errcode = 'TT001', message = verdict || ' | ' || coalesce(after, '-');
exception when sqlstate 'TT001' then
  return sqlerrm;
end $$;

create function test.expected(c test.judge_cases) returns text language sql as $$
  select c.verdict || ' | ' || coalesce(c.after_token || ' ' || c.after_holder || ' '
    || coalesce(c.after_sequence::text, '-') || ' ' || c.after_closed::integer, '-')
$$;

-- What a way says that never advances.
create function test.expected_without_advance(c test.judge_cases) returns text language sql as $$
  select case when c.verdict = 'admitted' and c.token > greatest(c.record_token, c.floor)
    then 'advance | ' || coalesce(c.record_token || ' ' || c.record_holder || ' '
           || coalesce(c.record_sequence::text, '-') || ' ' || c.record_closed::integer, '-')
    else test.expected(c) end
$$;

select cmp_ok((select count(*) from test.judge_cases), '>=', 169::bigint, 'the shared table of cases is there');

select is_empty($$
  select c.line, fenceguard.judge(c.record_token, c.record_holder, c.record_sequence, c.record_closed, c.floor, c.token,
                                  c.holder, c.sequence), c.verdict
  from test.judge_cases c
  where fenceguard.judge(c.record_token, c.record_holder, c.record_sequence, c.record_closed, c.floor, c.token,
                         c.holder, c.sequence) is distinct from c.verdict
$$, 'judge() answers every line of the shared table');

-- Into a table first: a test that looks at a query does so by a cursor, and under one no fence is advanced.
create temporary table ruled as
select way, c.line, c as judge_case, test.rule_by(way, c) as said
from test.judge_cases c, unnest(array['rule', 'admit', 'admit_all', 'advance', 'try_advance', 'try_admit', 'admitted',
                                      'confirm', 'protected row']) way
where c.sequence is null or way in ('rule', 'admit', 'admit_all', 'try_admit');

-- And once more as where a table is protected.
select is(fenceguard.leaves_notes(), false, 'a statement that judges its own claim leaves no note');
select fenceguard.leave_notes();
select is(fenceguard.leaves_notes(), false, 'whoever asks for it');
create table test.guarded (resource text);
select fenceguard.protect('test.guarded', 'resource');
select is(fenceguard.leaves_notes(), true, 'until a table is protected');
insert into ruled
select way || ', noted', c.line, c, test.rule_by(way, c)
from test.judge_cases c, unnest(array['try_admit', 'admitted', 'confirm']) way
where c.sequence is null or way = 'try_admit';

select is_empty(format($$
  select line, said, test.expected(judge_case) from ruled where way = %L and said is distinct from test.expected(judge_case)
$$, way), way || '() answers every line with real rows, and leaves the record that the table says')
from unnest(array['rule', 'admit', 'admit_all', 'advance', 'try_advance']) way;

select is_empty(format($$
  select line, said, test.expected_without_advance(judge_case) from ruled
  where way = %L and said is distinct from test.expected_without_advance(judge_case)
$$, way), way || '() answers every line, and says of a newer claim that it must advance first')
from unnest(array['try_admit', 'admitted', 'confirm', 'try_admit, noted', 'admitted, noted', 'confirm, noted']) way;

-- A noted claim is checked against the fence at each row: the same verdicts, except that what is newer than the fence was
-- never admitted.
select is_empty($$
  select line, said from ruled
  where way = 'protected row' and split_part(said, ' | ', 1)
        <> case when (judge_case).verdict = 'admitted'
                  and (judge_case).token > greatest((judge_case).record_token, (judge_case).floor) then 'missing'
                else (judge_case).verdict end
$$, 'a noted claim is ruled on at each row of a protected table');

select is((select count(*) from fenceguard.fences), 0::bigint, 'none of this stayed');
select is((select floor from fenceguard.floor), 0::bigint, 'and the floor is where it was');
select * from finish();
