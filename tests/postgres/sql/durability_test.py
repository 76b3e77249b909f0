"""What was acknowledged survives a crash, whatever the session said about synchronous_commit."""

import unittest

from sessions import BALANCES, ServerTest


class Durability(ServerTest):
    """A crash right after the commit was acknowledged. The WAL writer sleeps, so what was not flushed is lost."""

    settings = {"wal_writer_delay": "10s", "synchronous_commit": "off", "bgwriter_delay": "10s", "autovacuum": "off"}

    def crash_after(self, sql):
        """Answers what the statements said, the last of which commits."""
        self.server.psql("checkpoint")
        session = self.server.session(self.dbname)
        answer = session.run(sql)
        self.server.stop("immediate")
        session.close()
        self.server.start()
        return answer

    def test_without_it_a_commit_is_lost(self):
        """The control: on this server an asynchronous commit does not survive, unless the WAL writer woke meanwhile."""
        balances = []
        while len(balances) < 5 and "100 100" not in balances:
            self.setUp()
            self.crash_after("update account set balance = 7 where id = 1")
            balances.append(self.sql(BALANCES))
        self.assertIn("100 100", balances)

    def test_acknowledged_advance_is_durable_in_any_session(self):
        for number, sql in enumerate((
                "select fenceguard.advance('accounts/1', 34, 'a')", "select fenceguard.admit('accounts/1', 34, 'a')",
                "select fenceguard.admit('accounts/1', 34, 'a', 7)",
                "select fenceguard.admit_all('[{\"resource\": \"accounts/1\", \"token\": 34}]')",
                "begin; select fenceguard.admit('accounts/1', 34, 'a'); set local synchronous_commit = off; commit",
                "begin; select fenceguard.admit('accounts/1', 34, 'a'); set local synchronous_commit = local; commit",
                "begin; set local synchronous_commit = on; select fenceguard.admit('accounts/1', 34, 'a'); "
                "set local synchronous_commit = off; commit",
                "begin; select fenceguard.admit('accounts/1', 34, 'a'); set synchronous_commit = off; commit",
                "begin; set local session_replication_role = replica; select fenceguard.admit('accounts/1', 34, 'a'); "
                "set local synchronous_commit = off; commit",
                "begin; savepoint s; select fenceguard.admit('accounts/1', 34, 'a'); release s; savepoint t; "
                "set local synchronous_commit = off; commit",
                "begin; set constraints all immediate; select fenceguard.admit('accounts/1', 34, 'a'); "
                "set local synchronous_commit = off; commit",
                "begin; select fenceguard.admit('accounts/1', 34, 'a'); set constraints all immediate; "
                "set local synchronous_commit = off; commit",
                "begin; select fenceguard.admit('accounts/1', 34, 'a'); prepare transaction 'p'; commit prepared 'p'")):
            with self.subTest(sql):
                self.setUp()
                self.crash_after(sql)
                self.assertEqual(self.sql("select token from fenceguard.fence where resource = 'accounts/1'"), "34")

    def test_a_write_that_was_said_to_be_a_duplicate_survives(self):
        """The first one's commit was asynchronous."""
        for again in ("select fenceguard.admit('accounts/1', 34, 'a', 7)",
                      "select verdict from fenceguard.try_admit('accounts/1', 34, 'a', 7)",
                      "select verdict from fenceguard.rule('accounts/1', 34, 'a', 7)",
                      "select verdict from fenceguard.admit_all('[{\"resource\": \"accounts/1\", \"token\": 34, "
                      "\"holder\": \"a\", \"sequence\": 7}]')"):
            with self.subTest(again):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 34, 'a')")
                said = self.crash_after("begin; select fenceguard.admit('accounts/1', 34, 'a', 7); "
                                        f"update account set balance = 7 where id = 1; commit; {again}")
                self.assertEqual(said, "admitted\nduplicate")
                self.assertEqual(self.sql(BALANCES), "7 100")

    def test_no_setting_disables_the_trigger(self):
        """Neither by firing it too early, however often, nor by a setting."""
        hidden = "execute 'set const' || 'raints all immediate'; "
        for what, sql in {
                "twice in a function": f"do $$ begin {hidden}{hidden}perform set_config('synchronous_commit', 'off', true); "
                                       "end $$",
                "many times": f"do $$ begin for i in 1..50 loop {hidden}end loop; "
                              "perform set_config('synchronous_commit', 'off', true); end $$",
                "plain statements": "set constraints all immediate; " * 30 + "set local synchronous_commit = off",
                "by name": "set constraints fenceguard.durable_look immediate; set constraints fenceguard.durable_look "
                           "immediate; set constraints all immediate; set local synchronous_commit = off",
                "deferred and back": "set constraints all deferred; set constraints all immediate; set constraints all "
                                     "deferred; set constraints all immediate; set local synchronous_commit = off",
                "a setting": "set local fenceguard.looked = 99; set constraints all immediate; "
                             "set local synchronous_commit = off",
                "savepoints": "savepoint s; set constraints all immediate; rollback to s; savepoint t; set constraints "
                              "all immediate; release t; set constraints all immediate; set local synchronous_commit = off",
        }.items():
            for act, look in (("fenceguard.admit('accounts/1', 34, 'a')", "select token = 34 from fenceguard.fence"),
                              ("fenceguard.acquire('accounts/1', '1 hour', 'h')", "select holder = 'h' from fenceguard.lease"),
                              ("fenceguard.init(1000)", "select floor = 1000 from fenceguard.floor")):
                with self.subTest(f"{act}: {what}"):
                    self.setUp()
                    self.crash_after(f"begin; set local fenceguard.looked = 99; select {act}; {sql}; commit"
                                     if what == "a setting" else f"begin; select {act}; {sql}; commit")
                    self.assertEqual(self.sql(look), "t")

    def test_nothing_of_it_stays_and_nothing_is_searched_for(self):
        """Rows come and go in commit_looks. Under an old snapshot they stay there for a while."""
        session = self.session()
        scans = "select seq_scan + coalesce(idx_scan, 0) from pg_stat_user_tables where relname = 'commit_looks'"
        before = self.sql(scans)
        for number in range(1, 20):
            session.run(f"select fenceguard.advance('accounts/1', {number}, 'a')")
        session.run("select pg_stat_force_next_flush()")
        session.run("select 1")
        self.assertEqual(self.sql(scans), before)
        self.assertEqual(self.sql("select count(*) from fenceguard.commit_looks"), "0")

    def test_so_do_a_revoke_the_floor_and_a_rebase(self):
        for sql, look in (
                ("select fenceguard.revoke('accounts/1')", "select closed from fenceguard.fence"),
                ("begin; select fenceguard.revoke('accounts/1'); set local synchronous_commit = off; commit",
                 "select closed from fenceguard.fence"),
                ("select fenceguard.init(1000)", "select floor = 1000 from fenceguard.floor"),
                ("delete from fenceguard.floor; select fenceguard.init(1000)", "select floor = 1000 from fenceguard.floor"),
                ("select fenceguard.compact(40)", "select floor = 33 from fenceguard.floor"),
                ("select fenceguard.rebase('accounts/1', 30)", "select token = 30 from fenceguard.fence")):
            with self.subTest(sql):
                self.setUp()
                self.sql("select fenceguard.advance('accounts/1', 33, 'a')")
                self.crash_after(sql)
                self.assertEqual(self.sql(look), "t")

    def test_no_token_is_issued_twice(self):
        for take in ("select (fenceguard.acquire('accounts/1', '1 hour')).token", "select fenceguard.draw()",
                     "select pg_advisory_lock(fenceguard.lease_lock_key('accounts/1')) \\g /dev/null\n"
                     "select (fenceguard.acquire_kept('accounts/1', 'h', 'advisory', pg_backend_pid())).token",
                     "begin; select (fenceguard.acquire('accounts/1', '1 hour')).token; set local synchronous_commit = off;"
                     "commit",
                     "begin; set constraints all immediate; select (fenceguard.acquire('accounts/1', '1 hour')).token; "
                     "set local synchronous_commit = off; commit",
                     "begin; set constraints all immediate; select fenceguard.draw(); set local synchronous_commit = off; "
                     "commit"):
            with self.subTest(take):
                self.setUp()
                tokens = []
                for round in range(3):
                    tokens.append(int(self.crash_after(take.replace("accounts/1", f"accounts/{round}"))))
                tokens.append(int(self.sql("select fenceguard.draw()")))
                self.assertEqual(tokens, sorted(set(tokens)))

    def test_a_grant_that_was_acknowledged_is_still_held(self):
        token = self.crash_after("select (fenceguard.acquire('accounts/1', '1 hour', 'h')).token")
        self.assertEqual(self.sql("select token, holder from fenceguard.lease"), f"{token}|h")

    def test_a_counter_that_was_lifted_stays_up(self):
        for mark, sql in ((500_000, "select fenceguard.raise(500000)"),
                          (600_000, "begin; select fenceguard.raise(600000); set local synchronous_commit = off; commit")):
            self.crash_after(sql)
            self.assertEqual(self.sql("select fenceguard.draw()"), str(mark + 1))

if __name__ == "__main__":
    unittest.main()
