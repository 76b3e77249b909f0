"""What a role can do with a search_path of its own: nothing. Each function of ours has a path of its own, or names everything
in full. One test reads that in the catalogue, another lays a trap for every name that PostgreSQL has.
"""

import hashlib
import json
import re
import unittest

from postgres_server import FAST, SqlError
from sessions import ServerTest

# Words that a '(' may follow, because they are the language's own.
KEYWORDS = {"and", "any", "array", "as", "begin", "coalesce", "declare", "elsif", "else", "exists", "from", "if", "lateral",
            "not", "or", "perform", "return", "select", "then", "using", "values", "when", "where", "operator"}
# What uses an operator that it does not name.
HIDDEN = {"between", "ilike", "in", "like", "nullif", "similar", "distinct"}
TOKEN = re.compile(r"""(?P<text>[eE]?'(?:[^'\\]|''|\\.)*')|(?P<word>(?:"[^"]*"|[a-zA-Z_%][\w$]*)(?:\s*\.\s*(?:"[^"]*"|[a-zA-Z_]\w*|\*))*)
    |(?P<number>\d+)|(?P<sign>:=|=>|::|[-+*/<>=~!@\#%^&|`?]+|[()\[\],;.])""", re.VERBOSE)
OURS = ("pg_catalog.", "fenceguard.")


def unqualified(source):
    """What in a function's text is looked up with the path of whoever calls it."""
    text = re.sub(r"--[^\n]*", "", source)
    tokens = [(found.lastgroup, re.sub(r"\s", "", found.group()).lower()) for found in TOKEN.finditer(text)]
    tokens = [("end", "")] + [token for token in tokens if token[0] != "number"] + [("end", "")] * 2
    declared = re.search(r"\bdeclare\b(.*?)\bbegin\b", text, re.DOTALL | re.IGNORECASE)
    for line in (declared.group(1).split(";") if declared else []):
        found = re.match(r"\s*\w+\s+(?:constant\s+)?([\w.]+)", line)
        if found and not found[1].startswith(OURS):
            yield f"type {found[1]}"
    for before, (kind, token), after in zip(tokens, tokens[1:], tokens[2:]):
        if kind == "word" and after[1] == "(" and token not in KEYWORDS and not token.startswith(OURS) \
                and ".fenceguard_resource_" not in token:
            yield f"function {token}" if token not in HIDDEN else f"operator of {token}"
        elif kind == "word" and token in HIDDEN and (token != "in" or after[1] == "("):
            yield f"operator of {token}"
        elif token == "case" and after[1] != "when":
            yield "operator of a simple case"
        elif token in ("from", "join", "update", "into") and after[0] == "word" and "." in after[1] \
                and not after[1].startswith(OURS):
            yield f"relation {after[1]}"
        elif token in ("::", "collate") and not after[1].startswith(OURS):
            yield f"{token} {after[1]}"
        elif token == "operator" and after[1] != "(":
            yield "operator"
        elif kind == "sign" and re.fullmatch(r"[-+*/<>=~!@#%^&|`?]+", token) and token != "=>":
            if token != "=" or before[1] not in ("errcode", "hint", "detail", "message"):
                yield f"operator {token}"


class Catalogue(ServerTest):
    @staticmethod
    def found_in(source):
        return list(unqualified(re.sub(r"operator\s*\(\s*pg_catalog\.[^\w\s()]+\)", " , ", source)))

    def test_the_reader_finds_what_it_looks_for(self):
        for source, finding in {
                "begin return f(1); end": "function f", "begin return pg_catalog.f(1) = 2; end": "operator =",
                "begin x := a operator(evil.=) b; end": "operator =", "begin return a::text; end": ":: text",
                "begin return a collate \"C\" ; end": 'collate "c"', "declare x text; begin end": "type text",
                "declare x constant bigint := 1; begin end": "type bigint", "begin return a in (1, 2); end": "operator of in",
                "begin return case a when 1 then 2 end; end": "operator of a simple case",
                "begin return a like 'x'; end": "operator of like", "begin return a || 'x'; end": "operator ||",
                "begin return a is not distinct from b; end": "operator of distinct",
                "begin perform from evil.t; end": "relation evil.t", "begin return nullif(a, b); end": "operator of nullif",
                "begin if - a then end if; end": "operator -"}.items():
            with self.subTest(source):
                self.assertIn(finding, self.found_in(source))
        self.assertEqual(self.found_in("""declare x constant pg_catalog.text := pg_catalog.f('a = b'); -- f(1) = 2
            begin if x operator(pg_catalog.=) 'y' and not fenceguard.g(a => 1) then
              raise exception 'no %', x using errcode = 'ZF001', hint = 'x'; end if;
              select f.t::pg_catalog.int8 into x from fenceguard.fences f where f.r operator(pg_catalog.=) x collate pg_catalog."C";
            end"""), [])

    def test_public_functions_have_a_search_path_or_qualified_names(self):
        rows = self.sql("""
            select json_agg(json_build_object('name', p.proname, 'source', p.prosrc, 'is_bound', p.prosqlbody is not null,
                'path', (select c from unnest(p.proconfig) c where c like 'search_path=%'),
                'is_open', has_function_privilege('public', p.oid, 'execute')
                           or p.prorettype in ('trigger'::regtype, 'event_trigger'::regtype)))
            from pg_proc p where p.pronamespace = 'fenceguard'::regnamespace or p.proname ~ '^fenceguard_'""")
        functions = json.loads(rows)
        self.assertEqual({f["path"] for f in functions if f["path"]}, {"search_path=pg_catalog, pg_temp"})
        open_ones = {f["name"] for f in functions if f["is_open"] and not f["path"]}
        self.assertIn("check_row", open_ones)
        looked_at = set()
        while open_ones - looked_at:
            for f in functions:
                if f["name"] not in open_ones or f["path"]:
                    continue
                looked_at.add(f["name"])
                if f["is_bound"]:
                    continue
                self.assertEqual(self.found_in(f["source"]), [], f["name"])
                # What it calls runs with the same path.
                open_ones |= set(re.findall(r"fenceguard\.(\w+)\s*\(", f["source"])) & {g["name"] for g in functions}
            looked_at |= {name for name in open_ones if all(f["path"] for f in functions if f["name"] == name)}


# Everything that PostgreSQL has under a name, made once more in a schema of the attacker's, so that it fails if it is used.
# Not what is created by the trap itself.
TRAPS = """
create schema evil;
grant all on schema evil to public;
create function evil.sprung() returns boolean language plpgsql as $$
begin raise exception 'trapped' using errcode = 'TRAP1'; end $$;
do $do$
declare
  made record;
  sign text;
begin
  for made in
    select distinct on (p.proname, oidvectortypes(p.proargtypes)) p.proname, format_type(p.prorettype, null) as result,
      oidvectortypes(p.proargtypes) as arguments
    from pg_catalog.pg_proc p
    where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f' and not p.proretset and p.provariadic = 0
      and not p.proargtypes::oid[] && (select array_agg(t.oid) from pg_type t where t.typtype = 'p')
      and (select t.typtype from pg_type t where t.oid = p.prorettype) <> 'p'
  loop
    execute format('create function evil.%I(%s) returns %s language plpgsql as $f$ begin perform evil.sprung(); return null; '
                   'end $f$', made.proname, made.arguments, made.result);
  end loop;
  for made in
    select o.oprname, o.oprleft::regtype as l, o.oprright::regtype as r, o.oprresult::regtype as result,
      'trap_' || o.oid as name
    from pg_catalog.pg_operator o
    where o.oprnamespace = 'pg_catalog'::regnamespace and o.oprleft <> 0 and o.oprname <> '=>'
      and not exists (select from pg_type t where t.oid in (o.oprleft, o.oprright, o.oprresult) and t.typtype = 'p')
  loop
    execute format('create function evil.%I(%s, %s) returns %s language plpgsql as $f$ begin perform evil.sprung(); '
                   'return null; end $f$', made.name, made.l, made.r, made.result);
    execute format('create operator evil.%s (leftarg = %s, rightarg = %s, function = evil.%I)', made.oprname, made.l, made.r, made.name);
  end loop;
  -- Operators and functions that fit what is called better than PostgreSQL's own.
  foreach sign in array array['||', '=', '<>', '<', '>', '<=', '>='] loop
    for made in select sign as name, l, r from unnest(array['text', 'bigint', 'integer', 'boolean', 'name', 'xid8', 'bytea']) l,
               unnest(array['text', 'bigint', 'integer', 'boolean', 'name', 'xid8', 'bytea']) r loop
      begin
        execute format('create function evil.%I(%s, %s) returns boolean language plpgsql as $f$ begin return evil.sprung(); '
                       'end $f$', 'fit_' || md5(made.name || made.l || made.r), made.l, made.r);
        execute format('create operator evil.%s (leftarg = %s, rightarg = %s, function = evil.%I)', made.name, made.l, made.r,
                       'fit_' || md5(made.name || made.l || made.r));
      exception when duplicate_function then null;
      end;
    end loop;
  end loop;
  for made in select t.typname from pg_type t where t.typnamespace = 'pg_catalog'::regnamespace and t.typtype = 'b'
             and t.typelem = 0 and t.typname !~ '^(pg_|_)' loop
    execute format('create domain evil.%I as pg_catalog.%1$I check (evil.sprung())', made.typname);
  end loop;
end $do$;
create collation evil."C" (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
create schema only_a_collation;
grant usage on schema only_a_collation to public;
create collation only_a_collation."C" (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
create collation evil.nd (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
"""


class Traps(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.psql("create role attacker login", cls.installed)
        cls.server.psql(TRAPS + "create table named (name text); select fenceguard.protect('named', $$ 'accounts/' || name $$);"
                        "insert into fenceguard.fences (resource, token, holder) values ('x', 1, 'x');"
                        "grant all on named, guarded, account to attacker", cls.installed)

    def test_the_trap_works(self):
        for sql in ("select pg_catalog.int8 '1' = pg_catalog.int8 '1'", "select lower('X'::pg_catalog.text)",
                    "select 'x'::pg_catalog.text || 1::pg_catalog.int8", "select 'x'::text"):
            self.assert_fails("TRAP1", self.sql, "set search_path = evil, pg_catalog; " + sql, "attacker")

    CALLS = ("fenceguard.admit({r}, {t}, {h})", "fenceguard.rule({r}, {t}, {h})", "fenceguard.advance({r}, {t}, {h})",
             "fenceguard.try_advance({r}, {t}, {h})", "fenceguard.admitted({r}, {t}, {h})",
             "fenceguard.require_admitted({r}, {t}, {h})", "fenceguard.try_admit({r}, {t}, {h})",
             "fenceguard.confirm({r}, {t}, {h})")

    def test_every_function_is_deaf_to_the_callers_path(self):
        setting = "set search_path = evil, pg_catalog, public; "
        text, number = "'{}'::pg_catalog.text", "{}::pg_catalog.int8"
        for resource in ("accounts/1", "accounts/42"):
            self.sql(f"select fenceguard.advance('{resource}', 34, 'a')")
        attacker = self.session("attacker")
        attacker.run(setting)
        self.leave_notes(False)
        for call in self.CALLS:
            with self.subTest(call, notes=False):
                attacker.run("select " + call.format(r=text.format("accounts/1"), t=number.format(34), h=text.format("a")))
        self.leave_notes(True)
        for call in self.CALLS:
            for token, holder, refused in ((34, "a", ()), (33, "a", ("ZF001",)), (34, "b", ("ZF002",))):
                with self.subTest(call, token=token, holder=holder):
                    sql = "begin; select " + call.format(r=text.format("accounts/1"), t=number.format(token),
                                                         h=text.format(holder))
                    if not refused:
                        attacker.run(sql + "; update guarded set balance = balance where id operator(pg_catalog.=) 1; commit")
                    elif "try" in call or ".rule(" in call:
                        self.assertRegex(attacker.run(sql + "; commit"), "stale" if token == 33 else "conflict")
                    else:
                        self.assert_fails(refused, attacker.run, sql)
                        attacker.run("rollback")
                    self.assert_fails(("ZF003",), attacker.run,
                                      "update guarded set balance = 666 where id operator(pg_catalog.=) 1")
        for sql in ("fenceguard.admit_all(pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object("
                    "'resource', 'accounts/1', 'token', 34, 'holder', 'a')))",
                    f"fenceguard.took_effect({text.format('accounts/1')}, {number.format(34)}, {text.format('a')}, "
                    f"{number.format(1)})", f"fenceguard.highest_seen({text.format('accounts/1')})",
                    f"fenceguard.acquire({text.format('lock')})", "fenceguard.version()",
                    f"fenceguard.renew({text.format('lock')}, {number.format(1)}, {text.format('a')})",
                    f"fenceguard.release({text.format('lock')}, {number.format(1)}, {text.format('a')})",
                    f"fenceguard.prepare_row({text.format('lock')})", f"fenceguard.keeper({text.format('lock')})",
                    f"fenceguard.lease_lock_key({text.format('lock')})",
                    f"fenceguard.hold_row({text.format('lock')}, false)", f"fenceguard.check_row({text.format('accounts/42')}) "
                    f"from fenceguard.admit({text.format('accounts/42')}, {number.format(34)}, {text.format('a')})",
                    f"fenceguard.require_noted({text.format('accounts/42')}, {number.format(34)}, {text.format('a')}) "
                    f"from fenceguard.admit({text.format('accounts/42')}, {number.format(34)}, {text.format('a')})",
                    "fenceguard.rule_all(pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object("
                    "'resource', 'accounts/1', 'token', 34, 'holder', 'a')))",
                    f"fenceguard.admit({text.format('accounts/1')}, {number.format(34)}, {text.format('a')}, {number.format(9)})",
                    f"fenceguard.try_admit({text.format('accounts/1')}, {number.format(34)}, {text.format('a')}, "
                    f"{number.format(10)})"):
            with self.subTest(sql):
                attacker.run("select " + sql)
        # What a sidecar hands over and says.
        claim = '{"resource":"accounts/1","token":"34","holder":"a"}'
        for handed in (f"{'0' * 32}[{claim}]", f"{'0' * 32}[{claim},{claim.replace('/1', '/42')}]"):
            attacker.run(f"set fenceguard.relayed_claims = '{handed}'")
            seal = hashlib.sha256(handed.encode()).hexdigest()
            for sql, answer in ((f"fenceguard.relayed_claims('{seal}')", '"accounts/1"'), (f"fenceguard.confirm_relayed('{seal}')", ""),
                                (f"fenceguard.advance_relayed('{seal}', 0, 0)", "(admitted,34)")):
                with self.subTest(sql):
                    self.assertIn(answer, attacker.run("select " + sql))
                    attacker.run("set fenceguard.relayed_claims = 'other'")
                    self.assert_fails("ZF003", attacker.run, "select " + sql)
                    attacker.run(f"set fenceguard.relayed_claims = '{handed}'")
        attacker.run("begin isolation level repeatable read; select fenceguard.admit('accounts/1'::pg_catalog.text, "
                     "34::pg_catalog.int8, 'a'::pg_catalog.text); update guarded set balance = balance where id "
                     "operator(pg_catalog.=) 1; commit")
        owner = self.session()
        owner.run("create table if not exists made (id text); " + setting)
        for sql in ("fenceguard.advance('accounts/1'::pg_catalog.text, 35::pg_catalog.int8)",
                    "fenceguard.finish('accounts/1'::pg_catalog.text, 35::pg_catalog.int8)",
                    "fenceguard.revoke('accounts/1'::pg_catalog.text)", "fenceguard.cut('accounts/1'::pg_catalog.text)",
                    "fenceguard.init(1::pg_catalog.int8)", "fenceguard.compact(1::pg_catalog.int8)",
                    "fenceguard.rebase('accounts/1'::pg_catalog.text, 40::pg_catalog.int8)", "fenceguard.draw()",
                    "fenceguard.raise(100::pg_catalog.int8)", "fenceguard.lowest_live()",
                    "fenceguard.end_lease('lock'::pg_catalog.text)", "fenceguard.protect('public.made', 'id')",
                    "fenceguard.is_protected('public.made'::pg_catalog.regclass)",
                    "fenceguard.is_judged('public.made'::pg_catalog.regclass)", "fenceguard.has_event_trigger()",
                    "fenceguard.has_relatives('public.made'::pg_catalog.regclass)",
                    "fenceguard.children('public.made'::pg_catalog.regclass)", "fenceguard.unprotect('public.made')"):
            with self.subTest(sql):
                owner.run("select " + sql)
        owner.run("create table public.child () inherits (public.guarded); drop table public.child")

    def test_so_is_the_trigger_that_admits_the_claims_of_a_session(self):
        self.sql("select fenceguard.advance('accounts/1', 34, 'a'), fenceguard.advance('ACCOUNTS/X', 34, 'a')")
        attacker = self.session("attacker")
        given = '[{{"resource": "{}", "token": "{}", "holder": "{}"}}]'
        write = "update public.guarded set balance = balance where id operator(pg_catalog.=) 1"
        for path in ("evil, pg_catalog, public", "only_a_collation, pg_catalog, public"):
            for resource, token, holder, sql, state in (
                    ("accounts/1", 34, "a", write, None), ("accounts/1", 33, "a", write, "ZF001"),
                    ("accounts/1", 34, "b", write, "ZF002"), ("accounts/1", 35, "b", write, "40001"),
                    ("ACCOUNTS/1", 34, "a", write, "ZF003"), ("ACCOUNTS/X", 34, "a", "insert into public.named values ('x')",
                                                              "ZF003"),
                    ("accounts//", 34, "a", write, "22023")):
                with self.subTest(path=path, resource=resource, token=token, holder=holder):
                    attacker.run(f"set search_path = {path}; set fenceguard.session_claims = "
                                 f"'{given.format(resource, token, holder)}'")
                    for begin in ("begin", "begin isolation level repeatable read"):
                        sql_ = f"{begin}; {sql}; commit"
                        if state is None:
                            attacker.run(sql_)
                        else:
                            self.assert_fails(state, attacker.run, sql_)
                            attacker.run("rollback")

    def test_every_public_function_is_in_the_list_above(self):
        with open(__file__, encoding="utf-8") as file:
            called = set(re.findall(r"fenceguard\.(\w+)\(", file.read()))
        open_ones = set(self.sql("select distinct proname from pg_proc where pronamespace = 'fenceguard'::regnamespace and "
                                 "has_function_privilege('public', oid, 'execute')").split())
        # What protect() and unprotect() call, what triggers call, what raises; and what needs a second session.
        self.assertEqual(open_ones - called, {
            "attach_triggers", "bind_expression", "drop_triggers", "give_to_owner", "protect_by", "require_protectable",
            "settings_for", "protect_children", "refuse_truncate", "require_protected_children", "refuse", "acquire_kept",
            "make_refusal_counters", "drop_refusal_counters", "leave_notes", "refuse_relatives", "lock_tree", "was_any_protected",
            "row_trigger_call",
            "text_settings", "observe_row", "end_observed_statement", "observing_body", "mode_of",
            "forget_observations", "admit_session_claims"} | ({"check_rows", "check_rows_in_settings"} if FAST else set()))

    def test_no_row_is_written_without_a_claim_to_its_own_resource(self):
        """A collation to which ACCOUNTS/X and accounts/x are one, under the name of PostgreSQL's own, or with the claim."""
        self.sql("select fenceguard.advance('accounts/x', 34, 'a'), fenceguard.advance('ACCOUNTS/X', 34, 'a')")
        for path in ("evil, pg_catalog, public", "only_a_collation, pg_catalog, public", "pg_catalog, public"):
            for claim in ("'ACCOUNTS/X'::pg_catalog.text", "'ACCOUNTS/X'::pg_catalog.text collate evil.nd",
                          "'ACCOUNTS/X'::pg_catalog.text collate evil.\"C\""):
                for call in self.CALLS:
                    with self.subTest(call, path=path, claim=claim):
                        session = self.session("attacker")
                        session.run(f"set search_path = {path}; begin; savepoint s")
                        try:
                            session.run("select " + call.format(r=claim, t="34::pg_catalog.int8", h="'a'::pg_catalog.text"))
                        except Exception as error:
                            self.assertNotEqual(getattr(error, "sqlstate", None), "TRAP1", error)
                            session.run("rollback to s")
                        self.assert_fails("ZF003", session.run, "insert into public.named values ('x')")
                        session.close()

    def test_no_other_holder_is_taken_for_the_present_one(self):
        self.sql("select fenceguard.advance('accounts/x', 34, 'a')")
        for call in self.CALLS:
            for collation in ("evil.nd", "evil.\"C\""):
                with self.subTest(call, collation=collation):
                    session = self.session("attacker")
                    session.run("set search_path = evil, pg_catalog; begin; savepoint s")
                    try:
                        answer = session.run("select " + call.format(
                            r="'accounts/x'::pg_catalog.text", t="34::pg_catalog.int8",
                            h=f"'A'::pg_catalog.text collate {collation}"))
                        self.assertIn("conflict", answer)
                    except Exception as error:
                        if isinstance(error, AssertionError):
                            raise
                        self.assertIn(getattr(error, "sqlstate", None), ("ZF002", "42P22", "42P21", "0A000"), error)
                        session.run("rollback to s")
                    self.assert_fails("ZF003", session.run, "insert into public.named values ('x')")
                    session.close()


class Collations(ServerTest):
    CALLS = (
        "admit({r}, 35, {h})", "admit({r}, 34, {h})", "admit({r}, 34, {h}, 7)", "admit({r}, 33, {h})", "admit({r}, 34, 'o')",
        "admit({r} || '/', 35, {h})", "rule({r}, 35, {h})", "rule({r}, 34, {h})", "rule({r}, 33, {h})",
        "try_admit({r}, 34, {h})", "try_admit({r}, 34, {h}, 7)", "try_admit({r}, 35, {h})", "try_admit({r}, 33, {h})",
        "admitted({r}, 34, {h})", "admitted({r}, 33, {h})", "admitted({r}, 35, {h})", "require_admitted({r}, 34, {h})",
        "require_admitted({r}, 35, {h})", "require_admitted({r}, 33, {h})", "took_effect({r}, 34, {h}, 7)",
        "require_noted({r}, 34, {h})", "require_noted({r}, 34, {h}), fenceguard.admit({r}, 34, {h})", "check_row({r})",
        "check_row({r}), fenceguard.admit({r}, 34, {h})", "highest_seen({r})", "advance({r}, 35, {h})",
        "advance({r}, 33, {h})", "try_advance({r}, 35, {h})", "try_advance({r}, 33, {h})", "revoke({r})",
        "revoke({r}, 34, {h})", "finish({r}, 34, {h})", "finish({r}, 33, {h})", "revoke_present({r}, 35, {h})", "cut({r}, 34)", "rebase({r}, 40, {h})",
        "acquire({r}, '1 hour', {h})", "acquire({r} || '/', '1 hour', {h})", "renew({r}, 1, {h})", "release({r}, 1, {h})",
        "end_lease({r})", "prepare_row({r})", "keeper({r})", "lease_lock_key({r})",
        "hold_row({r}, false), fenceguard.hold_row({r}, true), fenceguard.prepare_row({r})",
        "acquire_kept({r}, {h}, 'advisory', pg_backend_pid()), fenceguard.end_lease({r}), "
        "fenceguard.pg_advisory_xact_lock(fenceguard.lease_lock_key({r}))",
        "refuse('stale', {r}, 34, 35)")

    def test_a_text_is_taken_as_it_is_whatever_its_column_collates(self):
        """To one 'H' and 'h' are one, and with it nothing is searched for. Two that differ are not to be compared.
        A list of calls is run from its end."""
        self.sql("""
            create collation nd (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
            create collation german (provider = icu, locale = 'de');
            create table claims (plain_r text, plain_h text, nd_r text collate nd, nd_h text collate nd,
                                 german_h text collate german);
            insert into claims values ('accounts/1', 'h', 'accounts/1', 'h', 'h');
            select setval('fenceguard.token', 1, false), fenceguard.advance('accounts/1', 34, 'h');
            select fenceguard.acquire('accounts/1', '1 hour', 'h'), fenceguard.prepare_row('accounts/1')""")
        session = self.session()

        def answers(call, r, h):
            session.run("begin")
            try:
                return [session.run(f"select fenceguard.{one.format(r=r, h=h)} from claims".replace("fenceguard.pg_", "pg_"))
                        for one in reversed(call.split(", fenceguard."))]
            except SqlError as error:
                return error.sqlstate, error.message
            finally:
                session.run("rollback; select setval('fenceguard.token', 1)")

        for call in self.CALLS:
            expected = answers(call, "plain_r", "plain_h")
            for r, h in (("nd_r", "nd_h"), ("nd_r", "german_h"), ("nd_r", "plain_h"), ("plain_r", "nd_h"),
                         ("nd_r collate nd", "nd_h")):
                with self.subTest(call, r=r, h=h):
                    self.assertEqual(answers(call, r, h), expected)


if __name__ == "__main__":
    unittest.main()
