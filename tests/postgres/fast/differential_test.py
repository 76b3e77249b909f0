"""Plain SQL and the extension in C give the same answers: random steps of two sessions, the same in a database of either."""

import random
import unittest

from postgres_server import Server, SqlError

SCRIPTS = 80
STEPS = 45
SET_UP = """
create table account (id bigint primary key, balance bigint not null);
create table guarded (id bigint primary key, balance bigint not null);
insert into account select i, 0 from generate_series(1, 3) i;
insert into guarded select i, 0 from generate_series(1, 3) i;
select fenceguard.protect('guarded', $$ 'accounts/' || id $$);
"""
SETTINGS = "set fenceguard.drain = '20 ms'; set fenceguard.cut = off; set lock_timeout = '2 s'"
STATE = """
select resource, token, holder, sequence, closed, below_floor from fenceguard.fences order by 1;
select floor from fenceguard.floor; select * from account order by 1; select * from guarded order by 1"""
CLAIMED = {
    "select fenceguard.admit({c})": 4,
    "select * from fenceguard.rule({c})": 2,
    "select fenceguard.admit({c}, {number})": 2,
    "select fenceguard.confirm({c})": 2,
    "select fenceguard.confirm({c})\\; update account set balance = balance + 1 where id = {id}": 2,
    "update account set balance = balance + 1 where id = {id} and fenceguard.admitted({c})": 5,
    "update guarded set balance = balance + 1 where id = {id} and fenceguard.admitted({c})": 6,
    "update guarded set balance = balance + 1 where (select fenceguard.admitted({c}))": 1,
    "with g as materialized (select * from fenceguard.try_admit({c})) update guarded set balance = balance + 1 from g "
    "where g.verdict = 'admitted' and id = {id}": 3,
    "select * from fenceguard.try_admit({c}, {number})": 1,
    "select fenceguard.require_admitted({c})": 2,
    "select fenceguard.require_noted({c})": 2,
    "select fenceguard.took_effect({c}, {number})": 1,
    "select verdict, highest from fenceguard.admit_all(jsonb_build_array(jsonb_build_object('resource', 'accounts/{id}', "
    "'token', {token}, 'holder', '{holder}'), jsonb_build_object('resource', 'accounts/9', 'token', 1)))": 1,
    "do $$ begin begin perform fenceguard.admit({c}); perform 1 / {zero}; exception when division_by_zero then null; end; "
    "update guarded set balance = balance + 1 where id = {id}; end $$": 2,
    "select fenceguard.advance({c})": 2,
}
PLAIN = {
    "begin": 7, "begin isolation level repeatable read": 1, "begin read only": 1, "commit": 4, "rollback": 2,
    "savepoint a": 3, "savepoint b": 2, "rollback to a": 3, "rollback to b": 1, "release a": 2,
    "update guarded set balance = balance + 1 where id = {id}": 5,
    "update guarded set id = id + 10 where id = {id}": 1,
    "update guarded set balance = balance + 1": 1,
    "insert into guarded values ({id} + 3, 0) on conflict do nothing": 1,
    "delete from guarded where id = {id} + 3": 1,
    "select fenceguard.revoke('accounts/{id}')": 1,
    "declare c cursor for select balance from account": 1, "fetch c": 1, "close c": 1,
    "declare h cursor with hold for select id from guarded": 1,
}
OTHERS = {
    "select fenceguard.advance({c})": 6, "select fenceguard.revoke('accounts/{id}')": 2,
    "select fenceguard.compact({token})": 1, "select fenceguard.init({token} - 1)": 1,
    "update account set balance = balance + 100 where id = {id} and fenceguard.admitted({c})": 1,
    "select fenceguard.rebase('accounts/{id}', {token} + 1)": 1,
}


def chosen(generator, steps, token):
    text = generator.choices(list(steps), list(steps.values()))[0]
    number = generator.randint(1, 3)
    at = max(1, token + generator.choice((-1, 0, 0, 0, 0, 1)))
    holder = generator.choice("aaab")
    return text.format(c=f"'accounts/{number}', {at}, '{holder}'", id=number, token=at, holder=holder,
                       number=generator.randint(1, 3), zero=generator.randint(0, 1))


class Differential(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server({"fsync": "off"})
        cls.addClassCleanup(cls.server.remove)
        cls.templates = []
        for is_plain in (True, False):
            name = cls.server.create_database()
            cls.server.install(name, plain=is_plain)
            cls.server.psql(SET_UP, name)
            cls.templates.append(name)

    def answer(self, session, sql):
        """What it says, or its state and, of a refusal, what it names."""
        try:
            return session.run(sql)
        except SqlError as error:
            return error.sqlstate, error.detail if error.sqlstate.startswith("ZF") else error.message

    def test_plain_sql_and_the_extension_answer_the_same(self):
        answers = {}
        for seed in range(SCRIPTS):
            generator = random.Random(seed)
            databases = []
            for template in self.templates:
                databases.append(f"d{seed}_{template}")
                self.server.psql(f"create database {databases[-1]} template {template}")
            with self.server.session(databases[0]) as plain, self.server.session(databases[1]) as fast, \
                    self.server.session(databases[0]) as plain_other, self.server.session(databases[1]) as fast_other:
                for session in (plain, fast, plain_other, fast_other):
                    session.run(SETTINGS)
                done = []
                for step in range(STEPS):
                    token = 1 + step // 15
                    pair, steps = (((plain_other, fast_other), OTHERS) if generator.random() < 0.15 else
                                   ((plain, fast), PLAIN if generator.random() < 0.5 else CLAIMED))
                    sql = chosen(generator, steps, token)
                    one, two = (self.answer(session, sql) for session in pair)
                    done.append(f"{'other: ' if steps is OTHERS else ''}{sql}   -- {one}")
                    self.assertEqual(one, two, f"seed {seed}\n" + "\n".join(done))
                    kind = one[0] if isinstance(one, tuple) else "ok"
                    answers[kind] = answers.get(kind, 0) + 1
                    if kind == "25P02":
                        for session in pair:
                            session.run("rollback")
                for session in (plain, fast):
                    session.run("rollback")
                self.assertEqual(plain.run(STATE), fast.run(STATE), f"seed {seed}\n" + "\n".join(done))
            for name in databases:
                self.server.psql(f"drop database {name}")
        # The steps meet what they are meant to.
        for kind, least in (("ok", 500), ("ZF001", 50), ("ZF002", 10), ("ZF003", 50), ("40001", 20), ("55P03", 5)):
            self.assertGreaterEqual(answers.get(kind, 0), least, answers)


if __name__ == "__main__":
    unittest.main()
