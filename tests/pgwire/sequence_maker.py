"""Sequences of messages as clients of PostgreSQL send them, made by chance: what differential_test.py compares.

A sequence is a list of flights: what is sent at once, without waiting. They begin and end transactions, fail in the middle,
prepare, suspend portals, copy, and make tables; nothing in them depends on time, chance, process ids or OIDs.
"""

import random

import raw_client
from raw_client import COPY_DONE, FLUSH, SYNC, copy_data, message, query

# Before each sequence, in both databases.
TABLES = """
    set client_min_messages = warning;
    drop table if exists t, u, made, kept, taken cascade; drop materialized view if exists seen; drop view if exists shown;
    drop function if exists made_f(int); drop type if exists mood; drop sequence if exists counted; drop schema if exists other;
    create table t (id serial primary key, n int check (n < 1000), v text);
    create table u (id int primary key, t int references t deferrable initially deferred);
    insert into t (n, v) select i, 'row ' || i from generate_series(1, 5) i;
"""
# Once.
FUNCTIONS = """
    create function tells(text) returns text language plpgsql as $$ begin raise notice 'told: %', $1; raise warning 'warned'
        using hint = 'none', detail = $1; return $1; end $$;
    create function fails(int) returns int language plpgsql as $$ begin
        if $1 > 1 then raise exception 'failed at %', $1 using errcode = 'ZZ001', detail = 'so it is'; end if; return $1; end $$;
    create function catches() returns int language plpgsql as $$ begin
        begin insert into t (id) values (1); exception when unique_violation then return -1; end; return 1; end $$;
    create procedure adds(inout n int) language plpgsql as $$ begin insert into t (n, v) values (n, 'added'); n := n + 1; end $$;
    create procedure commits() language plpgsql as $$ begin insert into t (v) values ('a'); commit; end $$;
"""
# Everything that sequences may have changed, in one text.
STATE = """
    select string_agg(what, e'\\n' order by what collate "C") from (
        select format('%s %s %s', relkind, relname, (select string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', '
            order by attnum) from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped)) what
          from pg_class c where relnamespace = 'public'::regnamespace
        union all select format('%s: %s', relname, query_to_xml(format(case relkind when 'S' then
            'select last_value, is_called from public.%I' else 'select t::text from public.%I t order by 1' end, relname),
            false, false, '')) from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'm', 'v', 'S')
        union all select format('function %s %s', proname, prosrc) from pg_proc where pronamespace = 'public'::regnamespace
        union all select obj_description(to_regclass('t')) union all select nspname from pg_namespace where nspname = 'other') s
"""

READS = ("select * from t order by id", "select id, n from t order by id desc limit 3", "table u", "values (1, 'a'), (2, null)",
         "select i, repeat('x', i) from generate_series(1, 40) i", "select count(*), min(v) from t", "select", "select 1.5, null, ''",
         "select tells('x') from generate_series(1, 2)", "select catches()", "select repeat('long ', 20000)",
         "select E'\\\\x41'::bytea, array[1,2], row(1,'a'), '{\"a\": 1}'::jsonb, true", "explain (costs off) select * from t where id = 1",
         "with a as (insert into t (v) values ('with') returning id) select id > 0 from a", "select id from t for update",
         "select current_setting('application_name'), current_user, current_schemas(false)",
         "select name, from_sql from pg_prepared_statements order by name", "select lastval() > 0")
WRITES = ("insert into t (n, v) values (7, 'seven') returning id, v", "insert into t (v) select 'many' from generate_series(1, 3)",
          "update t set n = n + 1 where id < 3", "update t set v = v || '!' returning *", "delete from t where id = 4",
          "insert into t (id, v) values (1, 'x') on conflict (id) do update set v = excluded.v", "insert into u values (1, 1)",
          "insert into u values (2, 99)", "truncate u", "truncate t restart identity cascade", "select nextval('t_id_seq')",
          "merge into t using (values (1), (77)) s(i) on t.id = s.i when matched then update set v = 'merged' "
          "when not matched then insert (v) values ('new')")
FAILURES = ("insert into t (id) values (1)", "insert into t (n) values (5000)", "select 1 / 0", "select nosuch from t",
            "selec 1", "select 'äöü€𝄞', nosuch", "select fails(i) from generate_series(0, 3) i", "insert into u values (null, 1)",
            "select 'x'::int", "select * from\n  nowhere\n where 1", "select 1 from t where id = 'x'", "select f(1, 2)", "drop table nosuch",
            "update t set n = 1 / (id - 2)", "call nosuch()", "select tells('b'), 1 / (select 0)", "create table t (a int)",
            "insert into t values (1, 2, 3, 4)", "fetch from nosuch", "execute nosuch", "deallocate nosuch", "select )",
            "select sum(n) over (partition by 1 order by nosuch) from t", "set nosuch = 1", "show nosuch", "set work_mem = 'x'",
            "do $$ begin raise 'in do'; end $$", "do $$ begin syntax; end $$", "select U&'\\zz'", "release nosuch")
TRANSACTIONS = ("begin", "BEGIN;", "begin isolation level repeatable read", "begin isolation level serializable, read write",
                "begin read only", "start transaction", "start transaction isolation level serializable read only deferrable",
                "commit", "commit", "end", "rollback", "abort work", "commit and chain", "rollback and chain", "commit and no chain",
                "savepoint a", "savepoint b", "rollback to a", "rollback to savepoint b", "release a", "release savepoint b",
                "set transaction isolation level repeatable read", "set transaction read only", "set transaction read write",
                "set local transaction isolation level serializable", "set session characteristics as transaction isolation level "
                "repeatable read", "set constraints all immediate", "set constraints all deferred")
SETTINGS = ("set application_name = 'x y'", "set application_name to default", "show application_name", "reset application_name",
            "set local work_mem = '1MB'", "show work_mem", "reset all", "set datestyle = 'German'", "set time zone 'UTC'",
            "set client_min_messages = error", "set client_min_messages = notice", "set search_path = public, pg_catalog",
            "set bytea_output = escape", "set role none", "set session authorization default", "show transaction_isolation",
            "select set_config('application_name', 'from select', false)", "select set_config('work_mem', '2MB', true)",
            "set intervalstyle = 'iso_8601'", "show server_version", "set extra_float_digits = 0", "set names 'LATIN1'", "set names 'UTF8'")
CURSORS = ("declare c cursor for select * from t order by id", "declare c scroll cursor with hold for select id from t order by id",
           "declare d insensitive cursor for values (1), (2), (3)", "fetch 2 from c", "fetch all from c", "fetch backward 1 from c", "move 1 in d",
           "fetch next from d", "close c", "close all", "select name, is_holdable from pg_cursors where name in ('c', 'd') order by 1",
           "update t set v = 'at c' where current of c")
PREPARED = ("prepare s as select * from t where id = $1", "prepare s (int) as insert into t (n) values ($1) returning n", "execute s (2)",
            "explain (costs off) execute s (1)", "deallocate s", "deallocate all", "deallocate prepare s")
OTHERS = ("listen news", "notify news, 'hello'", "notify news", "select pg_notify('news', 'from select')", "unlisten *", "unlisten news",
          "select pg_listening_channels()", "call adds(3)", "call adds(5000)", "do $$ begin insert into t (v) values ('do'); end $$",
          "do $$ begin perform tells('do'); end $$", "do $$ begin perform fails(2); exception when others then raise notice 'caught'; end $$",
          "discard plans", "discard sequences", "discard temp", "discard all", "lock table t in share mode", "checkpoint")
CHANGES = ("create table made (a int primary key, b text default 'b')", "create table if not exists made (a int)", "drop table made",
           "drop table if exists made", "alter table made add c int default 3", "alter table t rename to taken", "alter table taken rename to t",
           "insert into made values (1) returning *", "create index on made (b)", "create view shown as select id, v from t",
           "drop view if exists shown", "create temp table kept (a int) on commit drop", "create temp table kept as select * from t",
           "create table kept as select id from t", "select id into made from t", "comment on table t is 'said'", "analyze t",
           "create function made_f(int) returns int language sql as $$ select $1; $$", "select made_f(2)", "drop function made_f(int)",
           "create function made_f(int) returns int language sql begin atomic select $1; select $1 + 1; end",
           "create type mood as enum ('sad', 'ok')", "select 'ok'::mood", "drop type mood", "create sequence counted", "create schema other",
           "create trigger tr before insert on t for each row execute function tells()", "grant select on t to public",
           "create materialized view seen as select count(*) from t", "refresh materialized view seen", "alter table u add check (id > 0)",
           "reindex table t", "cluster t using t_pkey", "drop table t cascade", "alter sequence t_id_seq restart with 50")
REFUSED = ("rollback prepared 'x'", "set default_transaction_read_only = off", "call commits()", "do $$ begin commit; end $$")
COPIES_IN = (("copy t (n, v) from stdin", [b"1\tone\n2\ttwo\n", b"3\tthree\n"]), ("copy t (v) from stdin", [b"half", b" a line\nnext\n"]),
             ("copy t (n) from stdin (format csv, header)", [b"n\n1\n", b"2\n"]), ("copy t (n) from stdin", [b"1\nno number\n", b"3\n"]),
             ("copy t (n) from stdin", []), ("copy u from stdin", [b"5\t99\n"]), ("copy t (v) from stdin", [b"x" * 70000 + b"\n"] * 2),
             ("copy nosuch from stdin", [b"1\n"]), ("copy t (n, v) from stdin with (freeze off)", [b"1\n"]),
             ("copy t (id, v) from stdin", [b"1\tagain\n"]))
COPIES_OUT = ("copy t to stdout", "copy (select * from t order by id) to stdout csv header", "copy (select 1 / 0) to stdout",
              "copy (select i from generate_series(1, 300) i) to stdout", "copy t (id) to stdout (format binary)")
POOLS = ((READS, 20), (WRITES, 20), (FAILURES, 9), (TRANSACTIONS, 26), (SETTINGS, 8), (CURSORS, 8), (PREPARED, 5), (OTHERS, 7), (CHANGES, 10),
         (COPIES_OUT, 3))
# What is parsed once with parameters, and values to bind; None is null.
WITH_PARAMETERS = (("select * from t where id = $1", ("2",)), ("select $1::text, $2::int + 1", ("ä", "4")), ("select $1::int", ("x",)),
                   ("insert into t (n, v) values ($1, $2) returning id", ("8", "bound")), ("insert into t (n) values ($1)", ("5000",)),
                   ("update t set v = $2 where id = $1", ("3", None)), ("select $1", ("untyped",)), ("select 1", ("one too many",)),
                   ("delete from t where id = any ($1::int[])", ("{1,2}",)), ("select $1::int, $2::int", ("1",)))


def bind(name="", portal="", values=(), is_binary=False):
    body = raw_client.text(portal) + raw_client.text(name) + b"\0\0" + len(values).to_bytes(2, "big")
    for value in values:
        data = None if value is None else value.encode()
        body += (b"\xff" * 4) if data is None else len(data).to_bytes(4, "big") + data
    return message(b"B", body + (b"\0\1\0\1" if is_binary else b"\0\0"))


def parse(sql, name="", types=()):
    return message(b"P", raw_client.text(name) + raw_client.text(sql) + len(types).to_bytes(2, "big") +
                   b"".join(number.to_bytes(4, "big") for number in types))


def named(kind, what, name):
    """Describe or Close of a statement or a portal."""
    return message(kind, what + raw_client.text(name))


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def sequence(self):
        flights = []
        for _ in range(self.random.randint(2, 9)):
            way = self.random.choices((self.queries, self.pipeline, self.several_syncs, self.copy_in, self.transaction, self.portals),
                                      (6, 6, 3, 2, 3, 3))[0]
            flights += way()
        return flights

    def statement(self):
        if self.random.random() < 0.004:
            return self.random.choice(REFUSED)
        (pool,) = self.random.choices([pool for pool, _ in POOLS], [weight for _, weight in POOLS])
        return self.adorned(self.random.choice(pool))

    def adorned(self, sql):
        chance = self.random.random()
        if chance < 0.03:
            return "/* ; commit; /* ü */ */ " + sql
        if chance < 0.06:
            return f"-- ; begin\n{sql} ;\n"
        if chance < 0.08:
            return sql.upper() if "'" not in sql and "$" not in sql else sql + "  "
        if chance < 0.09:
            return self.random.choice(("", ";", " -- nothing", "/**/", "select 'unterminated", "select 1; /* unterminated"))
        return sql

    def several(self):
        """A text of several statements; seldom with one that begins or ends a transaction, which is refused."""
        found = []
        while len(found) < self.random.randint(2, 4):
            sql = self.statement()
            if sql.strip(" ;").lower().startswith(("begin", "start", "commit", "end", "rollback", "abort", "vacuum")) and \
                    " to " not in sql and self.random.random() < 0.97:
                continue
            found.append(sql)
        return self.random.choice((";", "; ", ";\n", ";;")).join(found)

    def queries(self):
        count = self.random.choice((1, 1, 1, 1, 2, 4))
        return [b"".join(query(self.several() if self.random.random() < 0.25 else self.statement()) for _ in range(count))]

    def run(self):
        """One statement of the extended protocol, without Sync."""
        if self.random.random() < 0.15:
            sql, values = self.random.choice(WITH_PARAMETERS)
        else:
            sql, values = self.statement(), ()
            if self.random.random() < 0.03:
                sql = self.several()
        is_named = self.random.random() < 0.3
        name = self.random.choice(("one", "two", "ä")) if is_named else ""
        portal = self.random.choice(("p", "q")) if self.random.random() < 0.15 and sql.lower().startswith(("select", "insert", "fetch")) else ""
        parts = []
        if not is_named or self.random.random() < 0.6:
            if is_named and self.random.random() < 0.4:
                parts.append(named(b"C", b"S", name))
            parts.append(parse(sql, name, (25,) if values and self.random.random() < 0.1 else ()))
        if self.random.random() < 0.3:
            parts.append(named(b"D", b"S", name))
        parts.append(bind(name, portal, values, self.random.random() < 0.1))
        if self.random.random() < 0.5:
            parts.append(named(b"D", b"P", portal))
        rows = self.random.choice((0, 0, 0, 1, 2))
        parts += [raw_client.execute(portal, rows)] * (1 if not rows else self.random.randint(1, 3))
        if portal and self.random.random() < 0.5:
            parts.append(named(b"C", b"P", portal))
        if self.random.random() < 0.1:
            parts.insert(self.random.randrange(len(parts)), FLUSH)
        if self.random.random() < 0.03:
            parts.insert(self.random.randrange(len(parts)), self.random.choice(parts))
        if self.random.random() < 0.02:
            del parts[self.random.randrange(len(parts))]
        return b"".join(parts)

    def pipeline(self):
        return [b"".join(self.run() for _ in range(self.random.choice((1, 1, 1, 2, 3, 6)))) + SYNC]

    def several_syncs(self):
        return [b"".join(self.random.choice((self.pipeline, self.pipeline, self.queries))()[0] for _ in range(self.random.randint(2, 5)))]

    def transaction(self):
        """A whole one, as drivers make it: each statement waits for the one before, or none does."""
        begin, end = self.adorned(self.random.choice(TRANSACTIONS[:7])), self.adorned(self.random.choice(("commit", "rollback", "end")))
        texts = [begin, *(self.statement() for _ in range(self.random.randint(1, 5))), end]
        if self.random.random() < 0.15:
            return [query(self.random.choice((";", "; ", ";\n")).join(texts))]
        is_simple = self.random.random() < 0.5
        flights = [query(each) if is_simple else parse(each) + bind() + raw_client.execute() + SYNC for each in texts]
        if self.random.random() < 0.6:
            return flights
        if not is_simple and self.random.random() < 0.5:
            return [b"".join(flight[:-len(SYNC)] for flight in flights) + SYNC]
        return [b"".join(flights)]

    def portals(self):
        """Portals that are suspended, and read on in a later flight."""
        begin = parse("begin") + bind() + raw_client.execute()
        sql = self.random.choice(READS[:6] + COPIES_OUT[:1] + WRITES[:1])
        name = self.random.choice(("", "one"))
        first = named(b"C", b"S", name) + parse(sql, name)
        first += bind(name, "p") + named(b"D", b"P", "p") + raw_client.execute("p", 2) + SYNC
        later = [raw_client.execute("p", self.random.choice((0, 1, 3))) + SYNC for _ in range(self.random.randint(1, 3))]
        return [begin + (SYNC if self.random.random() < 0.5 else b"") + first, *later, self.queries()[0],
                query(self.random.choice(("commit", "rollback")))]

    def copy_in(self):
        sql, chunks = self.random.choice(COPIES_IN)
        data = b"".join(copy_data(chunk) for chunk in chunks)
        data += message(b"f", raw_client.text("no more")) if self.random.random() < 0.2 else COPY_DONE
        chance = self.random.random()
        if chance < 0.45:
            before = self.random.choice(("", "", "insert into t (v) values ('before'); ", "set local work_mem = '1MB'; "))
            after = self.random.choice(("", "", "; insert into t (v) values ('behind')", "; select 1 / 0"))
            return [query(before + sql + after) + data]
        start = (self.run() if chance < 0.6 else b"") + parse(sql) + bind() + raw_client.execute()
        if chance < 0.8:
            return [start + data + SYNC]
        return [start + SYNC + data + SYNC]
