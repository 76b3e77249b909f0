"""The rule in SQL: every line of the shared table, by the calls that a client makes; and what is no claim."""

import os
import unittest

import pymysql

from sessions import CONNECTION_KILLED, IMPOSSIBLE_IN_A_TRANSACTION, READ_ONLY_TRANSACTION, ServerTest

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "judge_cases.tsv")
HIGHEST = 2**63 - 1


def cases():
    with open(CASES, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip() and not line.startswith("#"):
                yield number, [None if word == "-" else word for word in line.rstrip("\n").split("\t")]


class Rule(ServerTest):
    def test_each_line_of_the_table_is_answered_by_advance_and_admit(self):
        client = self.session()
        floors = {}
        for number, line in cases():
            floors.setdefault(int(line[4]), []).append((number, line))
        self.assertGreater(sum(map(len, floors.values())), 150)
        for floor, of_floor in sorted(floors.items()):
            self.setUp()
            client = self.session()
            self.sql("update namespace set floor_token = %s", (floor,))
            for number, (token, holder, sequence, closed, _, *_rest) in of_floor:
                if token is not None:
                    self.put(f"case/{number}", token, holder, sequence, int(closed))
            for number, line in of_floor:
                self.check(client, f"case/{number}", line)

    def check(self, client, resource, line):
        token, holder, sequence, verdict, *after = line[5:]
        client.run("start transaction")
        answer = client.run("call try_admit(%s, %s, %s, %s)", (resource, token, holder, sequence))[0][0]
        if answer == "advance":
            client.run("rollback")
            self.assertEqual(client.run("call try_advance(%s, %s, %s, null, null)", (resource, token, holder))[0][:2],
                             ("admitted", int(token)), resource)
            client.run("start transaction")
            answer = client.run("call try_admit(%s, %s, %s, %s)", (resource, token, holder, sequence))[0][0]
        client.run("commit")
        self.assertEqual(answer, verdict, resource)
        expected = None if after[0] is None else (int(after[0]), after[1], None if after[2] is None else int(after[2]),
                                                  int(after[3]))
        self.assertEqual(self.fence(resource), expected, resource)

    def test_each_line_is_answered_by_an_advance_alone(self):
        self.sql("update limits set jump_max = 0")
        client = self.session()
        for number, line in cases():
            token, holder, sequence, closed, floor, new_token, new_holder, new_sequence, verdict = line[:9]
            if new_sequence is not None:
                continue
            self.sql("delete from fences")
            self.sql("update namespace set floor_token = %s", (floor,))
            if token is not None:
                self.put("r", token, holder, sequence, int(closed))
            answer = client.run("call try_advance('r', %s, %s, null, null)", (new_token, new_holder))[0]
            self.assertEqual(answer[0], verdict, number)
            self.assertEqual(answer[1], max(int(line[9] or 0), int(floor)), number)

    def test_a_holder_and_a_resource_are_bytes(self):
        client = self.session()
        for name in ("a", "A", "ä", "a ", "é", "e", "ss", "ß"):
            self.assertEqual(client.run("call try_advance(%s, 1, 'h', null, null)", (name,))[0][0], "admitted")
        self.assertEqual(self.sql("select count(*) from fences"), ((8,),))
        self.assertEqual(self.verdict(client, "call try_advance('a', 1, 'H', null, null)"), "conflict")
        with self.server.session(self.dbname) as latin:
            latin.run("set names latin1")
            latin.run("call advance('\xe4', 2, 'h')".encode("latin-1"))
        self.assertEqual(self.fence("ä")[0], 2)

    def test_what_is_no_claim_is_refused_by_name_and_moves_nothing(self):
        wrong = {"'', 1, ''": "1 to 512 bytes", "repeat('x', 513), 1, ''": "1 to 512 bytes",
                 "repeat('x', 500000), 1, ''": "1 to 512 bytes", "repeat('\u00e4', 257), 1, ''": "1 to 512 bytes",
                 "'a//b', 1, ''": "empty segment", "'/a', 1, ''": "empty segment", "'a/', 1, ''": "empty segment",
                 "'.', 1, ''": "dot segment", "'a/../b', 1, ''": "dot segment", "'a\\nb', 1, ''": "control",
                 "'a\\n', 1, ''": "control", "'a\\0b', 1, ''": "control", "'a\u0085', 1, ''": "control",
                 "null, 1, ''": "missing", "'a', null, ''": "missing", "'a', 0, ''": "a token is",
                 "'a', -1, ''": "a token is", "'a', 1.5, ''": "a token is", "'a', '12x', ''": "a token is",
                 "'a', '1\\n', ''": "a token is", "'a', '01', ''": "a token is", "'a', '', ''": "a token is",
                 "'a', 9223372036854775808, ''": "a token is", "'a', 1e300, ''": "a token is",
                 "'a', 99999999999999999999, ''": "a token is", "'a', 1, 'a b'": "a holder is",
                 "'a', 1, '\u00e4'": "a holder is", "'a', 1, repeat('h', 129)": "a holder is",
                 "'a', repeat('1', 500), ''": "a token is", "'a', 1, repeat('h', 5000)": "a holder is"}
        client = self.session()
        # Without strict mode a server cuts off what is too long for a parameter, and reads 12 in '12x'; with it, it fails.
        for mode in ("", "strict_all_tables"):
            client.run(f"set sql_mode = '{mode}'")
            for arguments, sentence in wrong.items():
                self.assertIn(sentence, self.assert_fails(client, f"call advance({arguments})", 1644), arguments)
                self.check_refused(client, f"{arguments}, null", sentence)
            for sequence in ("-1", "'x'", "9223372036854775808", "1.5", "repeat('1', 100)"):
                self.check_refused(client, f"'a', 1, '', {sequence}", "a sequence is")
        self.assertEqual(self.sql("select count(*) from fences"), ((0,),))
        self.sql("update limits set jump_max = 0")
        client.run("call advance(repeat('x', 512), 9223372036854775807, repeat('h', 128))")
        self.assertEqual(self.fence("x" * 512)[0], HIGHEST)

    def check_refused(self, client, arguments, sentence):
        client.run("start transaction")
        self.assertIn(sentence, self.assert_fails(client, f"call admit({arguments})", 1644), arguments)
        self.assert_fails(client, "update account set balance = 1 where id = 1", READ_ONLY_TRANSACTION)
        client.run("rollback")

    def test_token_beyond_the_bound_is_implausible(self):
        client = self.session()
        client.run("call advance('a', 50, 'h')")
        self.assertEqual(client.run("call try_advance('b', 151, 'h', null, 100)")[0][:2], ("implausible", 50))
        self.assertIsNone(self.fence("b"))
        self.assertEqual(client.run("call try_advance('b', 150, 'h', null, 100)")[0][0], "admitted")


class OwnTransaction(ServerTest):
    """A claim counts for a transaction that is open, and a refusal leaves none that could write."""

    def setUp(self):
        super().setUp()
        self.put("accounts/1", 34, "a")

    ADMIT = "call admit('accounts/1', {}, '{}', null)"
    WRITE = "update account set balance = 1 where id = 1"

    def test_claim_and_write_outside_a_transaction_are_refused(self):
        client = self.session()
        self.assertEqual(self.verdict(client, self.ADMIT.format(34, "a")), "outside")
        self.assert_fails(client, self.WRITE, READ_ONLY_TRANSACTION)
        client.run("commit")
        self.assertEqual(self.balance(), 100)
        client.run("start transaction")
        self.assertEqual(self.verdict(client, self.ADMIT.format(34, "a")), "admitted")
        client.run(self.WRITE)
        client.run("commit")
        self.assertEqual(self.balance(), 1)

    def test_without_autocommit_a_claim_begins_the_transaction(self):
        client = self.session()
        client.run("set autocommit = 0")
        self.assertEqual(self.verdict(client, self.ADMIT.format(34, "a")), "admitted")
        other = self.session()
        other.run("set innodb_lock_wait_timeout = 1")
        self.assert_fails(other, "select * from fences where resource = 'accounts/1' for update")
        client.run(self.WRITE)
        client.run("rollback")
        self.assertEqual(self.balance(), 100)

    def test_without_autocommit_a_statement_ends_its_transaction(self):
        client = self.session()
        client.run("set autocommit = 0")
        for call in ("acquire('r', 60000, 'h')", "renew('r', 1, 'h', 60000)", "release_lease('r', 1, 'h')", "end_lease('r')",
                     "acquire_named('n', 60000, 'h')", "release_named('n')", "draw()", "raise_counter(9)", "lowest_live()",
                     "advance('accounts/1', 35, 'b')", "try_advance('accounts/1', 34, 'a', null, null)", "init(1)",
                     "start_admitted('accounts/1', 36, 'c', null, null, null)", "commit_admitted()",
                     "start_admitted('accounts/1', 36, 'c', 1, null, null)", "commit_admitted()",
                     "start_admitted('accounts/1', 35, 'b', null, null, null)", "compact(5)",
                     "revoke_fence('accounts/1', null, null)", "finish('accounts/1', 36, 'c')", "rebase('accounts/1', 50, 'ann')"):
            rows = client.run(f"call {call}")
            if call.startswith("start_admitted"):
                self.assertEqual(rows[0][0], "stale" if "35" in call else "admitted")
            if "35, 'b', null, null, null" in call:
                client.run("rollback")
        self.assertEqual(self.fence("accounts/1"), (50, "", None, 1))

    def test_after_any_refusal_a_continuing_client_writes_nothing(self):
        for token, holder, verdict in ((33, "a", "stale"), (34, "b", "conflict"), (35, "b", "advance"),
                                       ("null", "a", "missing"), (0, "a", 1644)):
            for call in (self.ADMIT, self.ADMIT.replace("admit", "try_admit")):
                client = self.session()
                client.run("start transaction")
                client.run("update account set balance = 2 where id = 2")
                self.assertEqual(self.verdict(client, call.format(token, holder)), verdict)
                self.assert_fails(client, self.WRITE, READ_ONLY_TRANSACTION)
                self.assertEqual(client.run("select balance from account where id = 1"), ((100,),))
                client.run("commit")
                client.run("update account set balance = 3 where id = 3")
                self.assertEqual((self.balance(1), self.balance(2), self.balance(3)), (100, 100, 3))

    def test_implicit_commit_ends_a_refusal_but_rows_stay_refused(self):
        """As docs/mariadb says: a refusal is an error, and no lock of the session."""
        self.sql("create table guarded (id bigint primary key, balance bigint) engine = innodb")
        self.addCleanup(self.sql, "drop table guarded")
        self.sql("insert into guarded values (1, 100)")
        for (statement,) in self.sql(f"call protect('{self.dbname}', 'guarded', 'CONCAT(''accounts/'', ROW.id)')"):
            self.sql(statement)
        for balance, commits in enumerate(("commit", "start transaction", "analyze table account", "flush tables",
                                           "create table if not exists account (i int)", "lock tables account write, guarded write"), 1):
            client = self.session()
            client.run("start transaction")
            self.assertEqual(self.verdict(client, self.ADMIT.format(33, "a")), "stale")
            client.run(commits)
            client.run(f"update account set balance = {balance} where id = 1")
            self.assertEqual(self.verdict(client, "update guarded set balance = 1"), "missing", commits)
            client.run("commit")
            client.close()
            self.assertEqual(self.balance(), balance, commits)

    def test_refusal_that_cannot_roll_back_ends_the_session(self):
        """In an XA transaction, and within a stored function, where the error may be handled besides."""
        self.sql("create or replace function confirmed(token bigint) returns int begin declare continue handler for sqlexception "
                 f"begin end; call confirm('accounts/1', token, 'a'); {self.WRITE}; return 1; end")
        self.addCleanup(self.sql, "drop function confirmed")
        calls = [(True, self.ADMIT), (True, self.ADMIT.replace("admit", "try_admit")),
                 (True, "call confirm('accounts/1', {}, '{}')"), (False, "select confirmed({})")]
        for number, (is_xa, call) in enumerate(calls):
            for token, balance in ((33, 100), (34, 1)):
                client = self.session()
                client.run(f"xa start '{number}.{token}'" if is_xa else "start transaction")
                if token == 34:
                    for sql in (call.format(token, "a"), self.WRITE):
                        client.run(sql)
                    for sql in (f"xa end '{number}.34'", f"xa commit '{number}.34' one phase") if is_xa else ("commit",):
                        client.run(sql)
                else:
                    self.assert_fails(client, call.format(token, "a"), CONNECTION_KILLED)
                    with self.assertRaises(pymysql.Error):
                        client.run(self.WRITE)
                self.assertEqual(self.balance(), balance, call)
            self.sql("update account set balance = 100")

    def test_what_is_a_transaction_of_its_own_does_not_end_another(self):
        for call in ("advance('accounts/1', 35, 'b')", "revoke_fence('accounts/1', null, null)", "init(5)", "compact(5)",
                     "rebase('accounts/1', 50, 'ann')", "finish('accounts/1', 34, 'a')"):
            client = self.session()
            client.run("start transaction")
            client.run("update account set balance = 2 where id = 2")
            self.assert_fails(client, f"call {call}", IMPOSSIBLE_IN_A_TRANSACTION)
            client.run("rollback")
            self.assertEqual(self.balance(2), 100)
            self.assertEqual(self.fence("accounts/1"), (34, "a", None, 0))

    def test_commit_belongs_to_the_transaction_that_was_judged(self):
        begin = "call start_admitted('accounts/1', 34, 'a', null, null, null)"
        for end in ("commit", "rollback", "start transaction", "set autocommit = 1", "create table if not exists t (i int)"):
            client = self.session()
            self.assertEqual(self.verdict(client, begin), "admitted")
            if end == "set autocommit = 1":
                client.run("commit")
            client.run(end)
            self.assertEqual(self.verdict(client, "call commit_admitted()"), "outside", end)
        client = self.session()
        client.run(begin)
        client.run(self.WRITE)
        client.run("call commit_admitted()")
        self.assertEqual(self.balance(), 1)

    def test_a_message_fits_in_what_mysql_keeps(self):
        self.put("r", HIGHEST, "a")
        client = self.session()
        client.run("start transaction")
        message = self.assert_fails(client, f"call admit('r', {HIGHEST}, 'b', null)", 1644)
        self.assertEqual(message, f'{{"verdict":"conflict","token":"{HIGHEST}","highest":"{HIGHEST}"}}')
        self.assertLess(len(message), 128)


class Administration(ServerTest):
    def test_revoke_closes_and_cuts_off_an_unadvanced_lease(self):
        client = self.session()
        client.run("call revoke_fence('a', null, null)")
        self.assertIsNone(self.fence("a"))
        client.run("call advance('a', 5, 'h')")
        client.run("call revoke_fence('a', null, null)")
        self.assertEqual(self.verdict(client, "call try_advance('a', 5, 'h', null, null)"), "stale")
        self.assertEqual(self.verdict(client, "call try_advance('a', 6, 'h', null, null)"), "admitted")
        client.run("call revoke_fence('a', 8, 'new')")
        self.assertEqual(self.fence("a"), (8, "new", None, 1))
        client.run("call revoke_fence('a', 6, 'h')")
        self.assertEqual(self.fence("a"), (8, "new", None, 1))

    def test_a_holder_that_is_over_closes_its_own_fence_alone(self):
        client = self.session()
        client.run("call advance('a', 5, 'h')")
        for claim in ("'a', 5, 'other'", "'a', 6, 'h'", "'a', 4, 'h'", "'b', 5, 'h'"):
            client.run(f"call finish({claim})")
            self.assertEqual(self.fence("a"), (5, "h", None, 0), claim)
        client.run("call finish('a', 5, 'h')")
        self.assertEqual(self.fence("a"), (5, "h", None, 2))
        self.assertEqual(self.verdict(client, "call try_advance('a', 6, 'h', null, null)"), "admitted")

    def test_compaction_raises_the_floor_and_readmits_nothing_below(self):
        client = self.session()
        for name, token in (("a", 5), ("b", 7), ("c", 9)):
            client.run(f"call advance('{name}', {token}, 'h')")
        self.assertEqual(client.run("call compact(8)"), ((2, 7),))
        self.assertEqual(self.verdict(client, "call try_advance('a', 7, 'h', null, null)"), "stale")
        self.assertEqual(self.verdict(client, "call try_advance('a', 8, 'h', null, null)"), "admitted")
        self.assertEqual(client.run("call compact(1)"), ((0, 7),))

    def test_a_floor_above_a_record_counts_for_writers_too(self):
        client = self.session()
        client.run("call advance('a', 5, 'h')")
        self.assertEqual(client.run("call init(20)"), ((20,),))
        self.assertEqual(client.run("call init(3)"), ((20,),))
        client.run("start transaction")
        self.assertEqual(client.run("call try_admit('a', 5, 'h', null)"), (("stale", 20),))

    def test_a_rebase_is_closed_and_leaves_a_record(self):
        client = self.session()
        client.run("call advance('a', 5, 'h')")
        client.run("call rebase('a', 3, 'ann')")
        self.assertEqual(self.fence("a"), (3, "", None, 1))
        self.assertEqual(self.sql("select resource, token_from, token_to, done_by from rebases"), ((b"a", 5, 3, "ann"),))

    def test_without_a_floor_every_claim_is_refused_until_init(self):
        client = self.session()
        client.run("call advance('a', 5, 'h')")
        self.sql("delete from namespace")
        self.assertIn("no floor", self.assert_fails(client, "call advance('b', 6, 'h')", 1644))
        client.run("start transaction")
        self.assertIn("no floor", self.assert_fails(client, "call admit('a', 5, 'h', null)", 1644))
        client.run("rollback")
        self.assertEqual(client.run("call init(5)"), ((5,),))
        self.assertEqual(self.verdict(client, "call try_advance('b', 5, 'h', null, null)"), "stale")

    def test_installing_again_changes_nothing(self):
        client = self.session()
        client.run("call advance('a', 5, 'h')")
        client.run("call init(3)")
        self.server.install(self.dbname)
        self.assertEqual(self.fence("a"), (5, "h", None, 0))
        self.assertEqual(self.sql("select floor_token from namespace"), ((3,),))

    def test_server_that_may_lose_commits_raises_nothing(self):
        client = self.session()
        client.run("call advance('a', 5, 'h')")
        for name, bad, good in (("innodb_flush_log_at_trx_commit", 2, 1), ("innodb_flush_log_at_trx_commit", 0, 1),
                                ("read_only", 1, 0)):
            self.sql(f"set global {name} = {bad}")
            try:
                for call in ("advance('a', 6, 'h')", "init(50)", "compact(50)", "revoke_fence('a', null, null)"):
                    self.assertRegex(self.assert_fails(client, f"call {call}", 1644), "read_only|durable")
                if name == "read_only":
                    client.run("start transaction")
                    self.assertIn("read_only", self.assert_fails(client, "call admit('a', 5, 'h', 1)", 1644))
                    client.run("rollback")
            finally:
                self.sql(f"set global {name} = {good}")
        self.assertEqual(self.fence("a"), (5, "h", None, 0))


if __name__ == "__main__":
    unittest.main()
