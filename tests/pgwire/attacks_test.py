"""Nothing of a stale client's is written, nor of one without a claim, whatever it sends: over both protocols.

The stale client holds token 1 and is connected before another advances the fence to 2. Each attack begins before that or
after, tries to write into 'entries', which no trigger protects, and what landed is read over a direct connection. Where
the take-over has to come in the middle, the client waits for an answer there and the test advances.
"""

import threading
import unittest

import raw_client
from raw_client import COPY_DONE, FLUSH, SYNC, RawClient, bind, copy_data, execute, parse, query, run
from sidecar_case import SidecarTest, claims_text
from waiting import wait_until

STALE = ("accounts/1", 1, "old")
WRITE = "insert into entries (who) values ('stale')"
LANDED = "select string_agg(who, ' ') from entries;"
FORGET = "delete from fenceguard.fences; truncate entries;"


class AttackCase(SidecarTest):
    def setUp(self):
        super().setUp()
        self.sidecar = self.start_sidecar()

    def connect(self, *claims, **parameters):
        client = RawClient(self.sidecar.data)
        self.addCleanup(client.close)
        words = {"user": "postgres", "database": self.database, **parameters}
        if claims:
            words["options"] = (parameters.get("options", "") + " " + claims_text(*claims)).strip()
        self.start = client.start(*words.items())
        return client

    def connect_stale(self, **parameters):
        client = self.connect(STALE, **parameters)
        self.assertEqual(self.start[-1], (b"Z", b"I"), self.start)
        return client

    def overtake(self):
        self.run_directly("select fenceguard.advance('accounts/1', 2, 'new')")

    def nothing_landed(self):
        self.assertNotIn("stale", self.entries() or "")

    def nothing_landed_and_all_is_forgotten(self):
        self.assertNotIn("stale", self.run_directly(LANDED + FORGET))


class StatementsTest(AttackCase):
    """What a client says after it was overtaken, in one message each or as statements of the extended protocol."""

    def attack(self, *flights, before=()):
        """Each flight is a list of statements. Sent by a client that was overtaken after 'before', and by one that never had
        a claim; as simple queries, as one query, as a pipeline, and each with a Sync of its own."""
        self.run_directly(FORGET)
        ways = {"simple": lambda client, flight: [client.ask(query(each)) for each in flight],
                "one message": lambda client, flight: client.ask(query(";".join(flight))),
                "extended": lambda client, flight: [client.ask(run(each) + SYNC) for each in flight],
                "pipeline": lambda client, flight: client.ask(b"".join(run(each) for each in flight) + SYNC)}
        for way, send in ways.items():
            for has_claim in (True, False):
                with self.subTest(way, has_claim=has_claim, flights=flights):
                    client = self.connect_stale() if has_claim else self.connect()
                    for each in before:
                        client.ask(query(each))
                    self.overtake()
                    for flight in flights:
                        send(client, flight)
                    client.close()
                    self.nothing_landed_and_all_is_forgotten()

    def test_plain_statements(self):
        self.attack([WRITE])
        self.attack(["begin read write", WRITE, "commit"])
        self.attack(["set transaction read write", WRITE])
        self.attack(["begin", "set transaction read write", "savepoint a", WRITE, "commit"])

    def test_commit_in_the_middle_of_a_message(self):
        self.attack(["select 1", "commit", "set transaction read write", WRITE])
        self.attack(["begin", "commit", "begin read write", WRITE, "commit"])
        self.attack(["rollback", "begin read write", WRITE, "commit"])

    def test_and_chain(self):
        self.attack(["begin read write", "commit and chain", WRITE, "commit"])
        self.attack(["begin read write", "rollback and chain", "set transaction read write", WRITE, "commit"])
        self.attack([WRITE, "commit"], before=["begin read write", "commit and chain"])

    def test_savepoints_and_rollbacks_to_them(self):
        self.attack(["begin read write", "savepoint a", "select 1/0", "rollback to a", WRITE, "commit"])
        self.attack(["begin read write", "savepoint a", "rollback to a", "set transaction read write", WRITE, "commit"])

    def test_procedures_and_do_that_commit(self):
        self.run_directly("create procedure writes() language plpgsql as $$ begin commit; set transaction read write; "
                          f"{WRITE}; commit; end $$")
        self.attack(["call writes()"])
        self.attack([f"do $$ begin commit; set transaction read write; {WRITE}; end $$"])
        self.attack([f"do $$ begin rollback; perform set_config('transaction_read_only', 'off', false); {WRITE}; end $$"])
        self.attack(["begin", "commit and no chain", "call writes()"])

    def test_settings(self):
        for setting in ("select set_config('transaction_read_only', 'off', false)", "set transaction_read_only = off",
                        "set session characteristics as transaction read write", "reset all", "discard all",
                        "select set_config('default_transaction_read_only', 'off', false)",
                        "set default_transaction_read_only = off", "reset default_transaction_read_only",
                        "set \"default_transaction_read_only\" to off", "set local default_transaction_read_only = off",
                        "set U&\"default_transaction_read_onl\\0079\" = off",
                        "update pg_settings set setting = 'off' where name = 'default_transaction_read_only'"):
            self.attack([setting, WRITE])
        self.attack(["select set_config('default_transaction_read_only', 'off', false)", "commit", WRITE])

    def test_isolation_levels_at_a_take_over(self):
        for level in ("read only", "isolation level repeatable read", "isolation level serializable, read write"):
            self.attack([WRITE, "commit"], before=[f"begin {level}"])
            self.attack([f"begin {level}", "set transaction read write", WRITE, "commit"])

    def test_cursors_held_over_commit(self):
        self.attack(["fetch all from c", WRITE], before=["begin", "declare c cursor with hold for select 1", "commit"])
        self.attack(["begin read write", "fetch all from c", "set transaction read write", WRITE, "commit"],
                    before=["begin", "declare c cursor with hold for select 1", "commit"])

    def test_prepare_transaction(self):
        self.attack(["begin read write", WRITE, "prepare transaction 'x'"])
        self.attack([WRITE, "prepare transaction 'x'", "commit prepared 'x'"])
        self.assertEqual(self.run_directly("select count(*) from pg_prepared_xacts"), "0")

    def test_texts_that_a_scanner_may_misread(self):
        for start in ("/* /* */ ; */", "--;\n", "\ufeff", "\v", "\u00a0", "select $$;$$;", "select $a$ $$;' $a$;", "select E'\\';';",
                      "select 'a\\';", "select \"a;\";", "select U&'\\0027;';", "select '/*';", ";;", "select 'a'\n';';"):
            self.attack([start + " commit", "set transaction read write", WRITE])
            self.attack([start + f" begin read write; {WRITE}; commit"])
        for text in ("select '", "/* /* */", "$a$", "E'\\'", "\"", "select 1; /*"):
            self.attack([text, "begin read write", WRITE, "commit"])

    def test_copy(self):
        self.overtake()
        for opening in ("copy entries (who) from stdin", "begin read write;copy entries (who) from stdin",
                        "set transaction read write;copy entries (who) from stdin"):
            for request in (query(opening), run(opening) + SYNC):
                client = self.connect()
                client.ask(query("begin read write"))
                client.ask(request + copy_data(b"stale\n") + COPY_DONE + SYNC)
                client.send(query("commit"))
                client.close()
        self.nothing_landed()

    def test_notify_of_a_stale_client_reaches_nobody(self):
        self.run_directly("create table heard (what text)")
        client = self.connect_stale()
        self.overtake()
        for request in (query("notify news, 'stale'"), run("notify news, 'stale'") + SYNC):
            self.assertEqual(raw_client.states(client.ask(request)), ["ZF001"])

    def test_large_objects_and_function_calls(self):
        client = self.connect_stale()
        self.overtake()
        for request in (query("select lo_create(4711)"), run("select lo_create(4712)") + SYNC):
            self.assertEqual(raw_client.states(client.ask(request)), ["ZF001"])
        call = raw_client.message(b"F", (715).to_bytes(4, "big") + b"\0\0\0\1\0\0\0\4\0\0\x12\x69\0\0")  # lo_create(4713)
        self.assertEqual(raw_client.states(client.ask(call)), ["0A000"])
        self.assertEqual(self.run_directly("select count(*) from pg_largeobject_metadata"), "0")

    def test_error_in_the_middle_of_a_pipeline(self):
        client = self.connect_stale()
        self.overtake()
        client.ask(run("begin read write") + run("select 1/0") + run(WRITE) + run("commit") + SYNC)
        client.ask(run("rollback") + run("set transaction read write") + run(WRITE) + SYNC)
        self.nothing_landed()


class MidFlightTest(AttackCase):
    """The take-over comes while a flight is under way: what the relay believes of the transaction has to be so."""

    def test_portal_of_commit_that_is_executed_after_sync(self):
        client = self.connect_stale()
        client.ask(query("begin"))
        client.ask(run("select 1") + SYNC)
        client.ask(parse("commit") + bind() + SYNC)
        client.send(execute() + FLUSH)
        client.until(b"C", b"E")
        self.overtake()
        client.ask(run("set transaction read write") + run(WRITE) + SYNC)
        self.nothing_landed()

    def test_name_of_a_statement_that_sql_gives_to_another(self):
        client = self.connect_stale()
        for text in ("set application_name = 'x'", "commit", "begin", "set transaction read write"):
            client.ask(parse(text, "s") + SYNC)
            client.ask(query("deallocate s"))
            client.ask(query(f"prepare s as {WRITE}"))
            with self.subTest(text):
                self.overtake()
                client.ask(run("set transaction read write") + bind("s") + execute() + SYNC)
                client.ask(query("begin read write"))
                client.ask(bind("s") + execute() + SYNC)
                client.ask(query("commit"))
                self.nothing_landed()
            self.run_directly("delete from fenceguard.fences; truncate entries")
            client = self.connect_stale()

    def test_chain_that_sql_executes_by_its_name(self):
        for wrap in ("execute s", "do $$ begin execute 'execute s'; end $$"):
            for is_simple in (True, False):
                with self.subTest(wrap, is_simple=is_simple):
                    client = self.connect_stale()
                    client.ask(parse("commit and chain", "s") + SYNC)
                    client.ask(query("begin read write"))
                    client.ask(query("select 1"))
                    client.ask(query(wrap) if is_simple else run(wrap) + SYNC)
                    # A transaction that is still the first one holds the take-over up until it ends.
                    taking = threading.Thread(target=self.overtake)
                    taking.start()
                    taking.join(1)
                    if taking.is_alive():
                        client.ask(query("rollback"))
                    taking.join()
                    client.ask(query(WRITE))
                    client.ask(query("commit"))
                    client.close()
                    self.nothing_landed()
                    self.run_directly("delete from fenceguard.fences")

    def committing_procedure(self):
        """Commits, waits until it has been overtaken, and writes."""
        self.run_directly("create procedure writes() language plpgsql as $$ begin commit; loop exit when (select token from "
                          "fenceguard.fences) >= 2; commit; end loop; commit; set transaction read write; "
                          f"{WRITE}; end $$")

    def overtaken_while(self, client, request):
        taking = threading.Thread(target=self.overtake)
        client.send(request)
        taking.start()
        answer = client.until(b"Z")
        taking.join()
        return answer

    def test_query_amid_a_flight_that_was_flushed(self):
        self.committing_procedure()
        client = self.connect_stale()
        client.send(run("select 1") + FLUSH)
        client.until(b"C", b"E")
        self.overtaken_while(client, query("call writes()"))
        self.nothing_landed()

    def test_call_behind_a_commit_and_no_chain(self):
        self.committing_procedure()
        client = self.connect_stale()
        client.ask(query("begin"))
        self.overtaken_while(client, run("commit and no chain") + run("call writes()") + SYNC)
        self.nothing_landed()

    def test_copy_done_before_the_copy_is_known(self):
        self.run_directly("create function waits() returns trigger language plpgsql as $$ begin "
                          "perform pg_advisory_xact_lock(1); return new; end $$; "
                          "create trigger waits before insert on entries for each row when (new.who = 'mine') "
                          "execute function waits()")
        # Writes only if it was overtaken: a transaction that was admitted cannot be.
        self.run_directly("create function writes_late() returns void language plpgsql as $$ begin for i in 1..100 loop "
                          f"if (select token from fenceguard.fences) >= 2 then {WRITE}; return; end if; "
                          "perform pg_sleep(0.01); end loop; end $$")
        direct = self.postgres.session(self.database)
        self.addCleanup(direct.close)
        direct.run("select pg_advisory_lock(1)")
        client = self.connect_stale()
        client.send(run("copy entries (who) from stdin") + copy_data(b"mine\n") + COPY_DONE + SYNC)
        client.until(b"G")
        client.send(COPY_DONE + run("set transaction read write") + run("select writes_late()") + SYNC)
        taking = threading.Thread(target=self.overtake)
        taking.start()
        direct.run("select pg_advisory_unlock(1)")
        client.until(b"Z")
        client.until(b"Z")
        taking.join()
        self.nothing_landed()

    def test_copy_data_in_front_of_what_the_relay_says_itself(self):
        """Half a CopyData, which the server ignores, would swallow the relay's ROLLBACK of a DO that failed; the server would
        read the end of it as a message, which the relay never saw, and which goes on in another CopyData."""
        client = self.connect_stale()
        pid = next(int.from_bytes(body[:4], "big") for kind, body in self.start if kind == b"K")
        client.send(run("do $$ begin raise 'x'; end $$") + SYNC + b"d" + (4 + 200).to_bytes(4, "big"))
        client.until(b"E")
        self.overtake()
        next_copy = b"d\1\1\1\1"
        own = "fenceguard admission"
        closed = raw_client.message(b"C", b"S" + raw_client.text(own))
        unseen = len(closed + raw_client.message(b"C", b"P\0") + run("ROLLBACK", own) + closed + SYNC)
        hidden = query(b"abort".ljust(unseen - 7) + b"/*" + next_copy + f"*/;begin read write;{WRITE};commit".encode())
        self.assertTrue(hidden[unseen:].startswith(next_copy))
        client.send(b"x" * (200 - unseen) + hidden)
        client.until(b"Z")
        client.send(raw_client.message(b"X"))
        client.close()
        wait_until(lambda: not self.postgres.is_connected(pid), what="an end of the client's backend")
        self.nothing_landed()


class RollbackToTest(AttackCase):
    """A ROLLBACK TO has the tag of a ROLLBACK, which ends what was admitted; what is behind one must not pass for the other."""

    REST = (query("set transaction read write"), query(WRITE), query("commit"),
            run("set transaction read write") + run(WRITE) + SYNC, query("begin read write"), run(WRITE) + SYNC, query("commit"))

    def overtake(self):
        """Without much waiting for what is open."""
        self.run_directly("select fenceguard.advance('accounts/1', 2, 'new', drain => '20ms')")

    def begin(self, level="read write"):
        """A block that was admitted, with a savepoint."""
        self.run_directly(FORGET)
        client = self.connect_stale()
        for text in (f"begin {level}", "select 1", "savepoint a"):
            self.assertEqual(raw_client.states(client.ask(query(text))), [])
        return client

    def test_what_looks_like_one_ends_the_transaction(self):
        for level in ("read write", "isolation level repeatable read", "isolation level serializable read only"):
            for flights in (
                    [query("rollback /* to a */")], [query("rollback -- to a\n")], [query("rollback to a; rollback")],
                    [query("rollback to a; savepoint b; rollback to b; select 1/0")],
                    [run("rollback to a") + run("rollback") + SYNC], [run("rollback to a") + run("commit and chain") + SYNC],
                    [run("select 1/0") + run("rollback to a") + run("rollback and chain") + SYNC, run("rollback to a") + SYNC],
                    [run("select 1/0") + run("rollback") + SYNC, execute() + SYNC, run("rollback to a") + execute() + SYNC],
                    [parse("rollback to a") + parse("rollback") + bind() + execute() + SYNC],
                    [parse("rollback to a") + bind() + parse("rollback") + SYNC, execute() + SYNC, bind() + execute() + SYNC],
                    [parse("rollback") + bind() + parse("rollback to a") + SYNC, execute() + bind() + execute() + SYNC],
                    [run("rollback to a", "s") + raw_client.message(b"C", b"Ss\0") + run("rollback", "s") + SYNC],
                    [run("rollback to a", "s") + SYNC, query("deallocate s"), parse("rollback", "s") + SYNC, query("execute s")],
                    [parse("rollback to a", "s") + SYNC, query("execute s; execute s"), run("commit") + SYNC],
                    [parse("rollback to a") + bind("", "p") + execute("p") + run("rollback") + SYNC],
                    [run("rollback to nosuch") + run("rollback") + SYNC, run("rollback") + SYNC]):
                with self.subTest(level, flights=flights):
                    client = self.begin(level)
                    for flight in flights:
                        client.ask(flight)
                    self.overtake()
                    for request in self.REST:
                        client.ask(request)
                    client.close()
                    self.nothing_landed()

    def test_admission_outlives_it(self):
        """No transaction of a newer token gets in between; nor is an admission in a savepoint asked for, which a transaction that
        only reads does not take above READ COMMITTED."""
        held = ("select count(*) from pg_locks where locktype = 'advisory' and mode = 'ShareLock' and granted and database = "
                "(select oid from pg_database where datname = current_database())")
        for level in ("read write", "read only", "isolation level repeatable read read only", "isolation level serializable",
                      "isolation level serializable read only"):
            for flights in ([query("rollback to a")], [run("rollback to a") + SYNC], [query("select 1/0"), query("rollback to a")],
                            [run("select 1/0") + SYNC, run("rollback to savepoint a") + run("select 2") + SYNC],
                            [query("rollback to a; savepoint b; rollback to b")], [run("rollback to a") * 2 + SYNC],
                            [parse("rollback to a", "s") + SYNC, (bind("s") + execute()) * 2 + SYNC],
                            # Not seen, and so admitted anew, in the savepoint.
                            *([[parse("rollback to a", "s") + SYNC, query("execute s")]] if "read only" not in level else [])):
                with self.subTest(level, flights=flights):
                    client = self.begin(level)
                    for flight in flights:
                        said = client.ask(flight)
                    self.assertEqual(raw_client.states(said), [])
                    for text in ("select 3", "savepoint c", "rollback to c", "rollback to a", "select 4"):
                        self.assertEqual(raw_client.states(client.ask(query(text))), [])
                    self.assertNotEqual(self.run_directly(held), "0")
                    self.assertEqual(raw_client.states(client.ask(query("commit"))), [])
                    client.close()


class HiddenTest(AttackCase):
    """Without a claim, by texts of which the relay might see less than the server."""

    def attack(self, data):
        client = self.connect()
        client.ask(data)
        wait_until(lambda: self.run_directly("select count(*) from pg_stat_activity where datname = current_database() and "
                                             "state = 'active' and pid <> pg_backend_pid()") == "0", what="an idle server")
        self.nothing_landed()

    def make_procedure(self, parameters):
        self.run_directly(f"create procedure writes({parameters}) language plpgsql as "
                          f"$$ begin commit; set transaction read write; {WRITE}; commit; end $$")

    def test_control_behind_many_comments(self):
        commit = "/**/" * 40
        commit += " " * (2046 - len(commit)) + "COMMIT" + " " * 3000
        self.attack(run(commit) + run("set transaction read write") + run(WRITE) + SYNC)
        self.make_procedure("")
        self.attack(query("/**/" * 40 + "--" + "x" * 4100 + "\ncall writes()"))

    def test_call_that_the_server_reads_otherwise(self):
        self.make_procedure("text")
        self.attack(run("set standard_conforming_strings = off") + run(r"call writes('\'; select ''x')") + SYNC)


class StartupTest(AttackCase):
    """What a client says as it connects."""

    def test_options_and_parameters_that_would_let_it_write(self):
        for parameters in ({"options": "-c default_transaction_read_only=off"}, {"options": "-cdefault_transaction_read_only=off"},
                           {"options": "--default-transaction-read-only=off"}, {"options": "--Default_Transaction_Read_only=off"},
                           {"options": "-c default\\_transaction_read_only=off"}, {"default_transaction_read_only": "off"},
                           {"DEFAULT_TRANSACTION_READ_ONLY": "off"}, {"transaction_read_only": "off"},
                           {"options": "-c transaction_read_only=off"}, {"standard_conforming_strings": "off"},
                           {"client_encoding": "SJIS"}, {"client_encoding": "gbk"}, {"replication": "true"},
                           {"replication": "database"}, {"session_authorization": "postgres"},
                           {"_pq_.option": "x"}, {"options": "-c session_replication_role=replica"}):
            with self.subTest(parameters):
                client = self.connect(**parameters)
                for request in (query(WRITE), query(f"begin;{WRITE};commit"), run(WRITE) + SYNC):
                    client.ask(request)
                stale = self.connect(STALE, **parameters)
                if self.start[-1][0] == b"Z":
                    self.overtake()
                    for request in (query(WRITE), query(f"begin read write;{WRITE};commit"), run(WRITE) + SYNC):
                        stale.ask(request)
                stale.close()
                self.nothing_landed()
                self.run_directly("delete from fenceguard.fences")

    def test_the_setting_of_a_role_or_a_database_changes_nothing(self):
        self.run_directly(f"alter database {self.database} set default_transaction_read_only = off")
        client = self.connect()
        for text in ("reset all", "discard all", "set session authorization default", WRITE):
            client.ask(query(text))
        self.nothing_landed()

    def test_claims_twice_or_malformed_are_not_let_in(self):
        for claims in ("[]x", "[{}]", "{}", "null", '[{"resource":"a","token":"1"},{"resource":"a","token":"2"}]',
                       '[{"resource":"a","token":"-1"}]', '[{"resource":"a","token":1e3}]', "[" * 5000, "x" * 9000):
            with self.subTest(claims[:60]):
                self.connect(**{"fenceguard.session_claims": claims})
                self.assertTrue(raw_client.has_ended(self.start))
                self.assertEqual(len(raw_client.states(self.start)), 1)

    def test_the_claims_that_are_handed_over_cannot_be_exchanged(self):
        """A client that knows of them, and says those of the new holder, is refused until it leaves them alone."""
        theirs = "0" * 32 + '[{"resource":"accounts/1","token":"2","holder":"new"}]'
        for change, is_whole in ((f"set fenceguard.relayed_claims = '{theirs}'", False), ("set fenceguard.relayed_claims = ''", False),
                                 (f"select set_config('fenceguard.relayed_claims', '{theirs}', false)", False),
                                 (f"begin; set local fenceguard.relayed_claims = '{theirs}'; {WRITE}; commit", True)):
            with self.subTest(change):
                client = self.connect_stale()
                self.assertEqual(raw_client.states(client.ask(query(change))), ["ZF003"] if is_whole else [])
                client.ask(query("rollback"))
                if not is_whole:
                    for request in (query(WRITE), run(WRITE) + SYNC):
                        self.assertEqual(raw_client.states(client.ask(request)), ["ZF003"])
                self.overtake()
                for request in (query(WRITE), run(WRITE) + SYNC):
                    self.assertEqual(raw_client.states(client.ask(request)), ["ZF001" if is_whole else "ZF003"])
                for forget in ("reset all", "discard all"):
                    client.ask(query(forget))
                    self.assertEqual(raw_client.states(client.ask(query(WRITE))), ["ZF001"])
                self.nothing_landed()
                self.run_directly("delete from fenceguard.fences")


class PublishedTest(SidecarTest):
    """What a session writes under stands nowhere where another one, or who reads the server's log, finds it. Its resource and
    its token do, once it was refused: what is refused opens nothing."""

    CLAIMS = (("hidden/resource", 987_654_321, "hidden-holder"), ("hidden/second", 987_654_322, "hidden-holder"))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.postgres.psql("alter system set log_statement = 'all'; alter system set log_min_duration_statement = 0; "
                          "alter system set log_parameter_max_length_on_error = -1; alter system set log_connections = on; "
                          "alter system set debug_print_parse = on; select pg_reload_conf()")

    def published(self):
        """What every session of the role sees of the others, and the log."""
        seen = self.run_directly("select string_agg(a::text, ' ') from pg_stat_activity a; select string_agg(l::text, ' ') from pg_locks l")
        return seen + self.postgres.log()

    def assertHidden(self, text):
        for part in ("hidden", "98765432"):
            at = text.find(part)
            self.assertEqual(at, -1, text[max(0, at - 200):at + 200])

    def test_no_claim_is_published(self):
        sidecar = self.start_sidecar()
        for claims in (self.CLAIMS[:1], self.CLAIMS):
            client = RawClient(sidecar.data)
            self.addCleanup(client.close)
            started = client.start(("user", "postgres"), ("database", self.database), ("options", claims_text(*claims)))
            self.assertEqual(started[-1], (b"Z", b"I"), started)
            self.assertHidden(self.published())
            for request in (query("insert into entries (who) values ('a')"), run("insert into entries (who) values ('a')") + SYNC,
                            query("selec"), run("select 1 / 0") + SYNC, query("begin"), query("declare c cursor for select 1"),
                            run("declare d cursor for select 1") + SYNC):
                heard = client.ask(request)
                self.assertHidden(self.published())
            self.assertEqual(raw_client.states(heard), [])
            for relation in ("pg_cursors", "pg_prepared_statements", "pg_stat_activity"):
                heard = client.ask(query(f"select c::text from {relation} c"))
                self.assertHidden(b"".join(body for _, body in heard).decode("latin-1"))
            client.send(query("select pg_sleep(600)"))
            wait_until(lambda: "pg_sleep(600)" in self.published(), what="a statement that is under way")
            self.assertHidden(self.published())
        self.assertEqual(self.entries(), "a a a a")

    def test_no_held_claim_is_published(self):
        sidecar = self.start_sidecar("--hold", "hidden/resource", "--hold-reconnect", "allow")
        client = RawClient(sidecar.data)
        self.addCleanup(client.close)
        self.assertEqual(client.start(("user", "postgres"), ("database", self.database))[-1], (b"Z", b"I"))
        for request in (run("select 1 / 0") + SYNC, query("insert into entries (who) values ('a')")):
            client.ask(request)
        holder = self.run_directly("select holder from fenceguard.fences where resource = 'hidden/resource'")
        self.assertEqual(len(holder), 32)
        seen = self.run_directly("select string_agg(a::text, ' ') from pg_stat_activity a")
        self.assertIn("confirm_relayed", seen)
        self.assertNotIn(holder, seen)


if __name__ == "__main__":
    unittest.main()
