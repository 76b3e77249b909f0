"""fenceguard.postgres in transactions of psycopg, SQLAlchemy and Django (these two over psycopg2), against a PostgreSQL
of its own. The leases are granted by 'fenceguard serve' in front of it."""

import asyncio
import contextlib
import itertools
import tempfile
import threading
import traceback
import unittest

import django.conf
import django.db
import django.db.transaction
import psycopg
import sqlalchemy
import sqlalchemy.orm

import fenceguard
import fenceguard.postgres
import postgres_server
import support
from fenceguard.postgres import admit, admit_async, refusals, transaction, transaction_async


def setUpModule():
    global SERVER
    SERVER = postgres_server.Server()
    unittest.addModuleCleanup(SERVER.remove)


class Case(unittest.TestCase):
    """A database and a guard per flavour, an account per test."""

    @classmethod
    def setUpClass(cls):
        cls.database = SERVER.create_database(install=True)
        cls.url = SERVER.url(cls.database)
        SERVER.psql("create table account (id bigint primary key, balance bigint not null);"
                    f"alter database {cls.database} set fenceguard.drain = '60 s'", cls.database)
        cls.numbers = itertools.count(1)
        folder = tempfile.TemporaryDirectory(prefix="fenceguard-")
        cls.addClassCleanup(folder.cleanup)
        cls.guard = support.Server(folder.name, ["--control", "127.0.0.1:0", "--storage", cls.url], listen=False)
        cls.addClassCleanup(cls.guard.kill)

    def setUp(self):
        self.id = next(self.numbers)
        self.resource = f"accounts/{self.id}"
        self.ask(f"insert into account values ({self.id}, 100)")
        self.client = fenceguard.Client(control=self.guard.url)
        self.addCleanup(self.client.close)

    def ask(self, sql):
        return SERVER.psql(sql, self.database)

    def lease(self, **options):
        return self.client.acquire(self.resource, **{"ttl": 60, **options})

    def pair(self):
        """A lease that ran out, and the one that was granted after it."""
        return self.lease(ttl=0.05, renew=False), self.lease()

    def balance(self):
        return int(self.ask(f"select balance from account where id = {self.id}"))

    def fence(self):
        return int(self.ask("select coalesce(max(token), 0) from fenceguard.fence "
                            f"where resource = '{self.resource}'"))

    def close_later(self, connection):
        self.addCleanup(connection.close)
        return connection


class Helper:
    """What holds with every library. A flavour says how a transaction is begun (transaction(), which gives what
    admit() takes), what runs a statement, and what commits each statement by itself (autocommit())."""

    def write(self, handle, balance):
        self.execute(handle, f"update account set balance = {balance} where id = {self.id}")

    def test_fence_and_data_are_committed_together(self):
        with self.lease_in_block() as lease, self.transaction() as handle:
            self.assertEqual(admit(handle, lease), "admitted")
            self.write(handle, 130)
            self.assertEqual(self.balance(), 100)
        self.assertEqual((self.balance(), self.fence()), (130, lease.token))

    @contextlib.contextmanager
    def lease_in_block(self):
        with self.client.fenced(self.resource, ttl=60) as lease:
            yield lease

    def test_a_stale_claim_is_refused_and_nothing_is_written(self):
        old, new = self.pair()
        with self.assertRaises(fenceguard.Stale) as caught, self.transaction() as handle:
            admit(handle, old)
            self.write(handle, 150)
        self.assertEqual((caught.exception.token, caught.exception.highest), (old.token, new.token))
        self.assertEqual(caught.exception.resource, self.resource)
        self.assertEqual(self.balance(), 100)
        with self.transaction() as handle:
            admit(handle, new)
            self.write(handle, 130)
        self.assertEqual(self.balance(), 130)

    def test_a_second_holder_of_a_number_is_in_conflict(self):
        lease = self.lease()
        with self.assertRaises(fenceguard.Conflict), self.transaction() as handle:
            admit(handle, self.client.adopt(self.resource, lease.token, "another"))

    def test_a_rollback_takes_the_fence_back(self):
        claim = self.client.adopt(self.resource, 2**53 + 1, "h")
        with self.assertRaises(ZeroDivisionError), self.transaction() as handle:
            self.assertEqual(admit(handle, claim), "admitted")
            self.write(handle, 130)
            raise ZeroDivisionError
        self.assertEqual((self.balance(), self.fence()), (100, 0))

    def test_a_sequence_is_recorded_with_the_data(self):
        lease = self.lease()
        for verdict in ("admitted", "duplicate"):
            with self.transaction() as handle:
                self.assertEqual(admit(handle, lease, sequence=7), verdict)
        with self.assertRaises(fenceguard.Stale), self.transaction() as handle:
            admit(handle, lease, sequence=6)

    def test_next_holder_reads_what_the_open_transaction_wrote(self):
        old, granted = self.lease(ttl=0.05, renew=False), []
        with self.transaction() as handle:
            admit(handle, old)
            waiting = threading.Thread(target=lambda: granted.append((self.lease(), self.balance())))
            waiting.start()
            support.wait_until(lambda: self.ask("select count(*) from pg_stat_activity where wait_event_type = 'Lock'")
                               != "0", what="an advance that waits")
            self.write(handle, 130)
        waiting.join()
        self.assertEqual(granted[0][1], 130)

    def test_a_write_to_a_protected_row_without_a_claim_is_rejected(self):
        self.ask("select fenceguard.protect('account', $$ 'accounts/' || id $$)")
        self.addCleanup(self.ask, "select fenceguard.unprotect('account')")
        with self.assertRaises(fenceguard.Rejected) as caught, refusals(), self.transaction() as handle:
            self.write(handle, 130)
        self.assertEqual(caught.exception.problem, "missing")

    def test_other_errors_pass_through(self):
        with self.assertRaises(Exception) as caught, refusals(), self.transaction() as handle:
            self.execute(handle, "select no_such_thing")
        self.assertNotIsInstance(caught.exception, fenceguard.FenceguardError)

    def terminate(self, handle):
        self.ask(f"select pg_terminate_backend({self.backend(handle)}, 30000)")

    def expect_cut_off(self, caught):
        self.assertEqual(caught.exception.problem, "session-ended")
        self.assertIn("nothing was committed", str(caught.exception))
        self.assertNotIn(self.granted.holder, "".join(traceback.format_exception(caught.exception)))
        self.assertEqual(self.balance(), 100)

    def test_session_that_was_ended_in_its_transaction_is_stale(self):
        """A holder that stopped inside its transaction is cut off by the next: what it hears on waking."""
        self.granted = self.lease()
        with self.assertRaises(fenceguard.Stale) as caught, self.fresh() as handle, transaction(handle, self.granted):
            self.terminate(handle)
            self.write(handle, 150)
        self.assertEqual(caught.exception.token, self.granted.token)
        self.expect_cut_off(caught)
        with self.assertRaises(fenceguard.Stale) as caught, self.fresh() as handle, transaction(handle, self.granted):
            self.terminate(handle)
            with contextlib.suppress(Exception):
                self.write(handle, 150)
            self.write(handle, 150)  # the driver itself has closed the connection
        self.expect_cut_off(caught)
        with self.assertRaises(fenceguard.Unknown) as caught, self.fresh() as handle, transaction(handle, self.granted):
            self.write(handle, 150)
            self.terminate(handle)  # which COMMIT is the first to hear
        self.assertEqual(self.balance(), 100)
        with self.assertRaises(fenceguard.Stale) as caught, self.fresh() as handle, transaction(handle, self.granted):
            self.execute(handle, "set local idle_in_transaction_session_timeout = '1 ms'")
            backend = self.backend(handle)
            support.wait_until(lambda: self.ask(f"select count(*) from pg_stat_activity where pid = {backend}") == "0",
                               what="the limit's end of the session")
            self.write(handle, 150)
        self.expect_cut_off(caught)
        with self.assertRaises(ZeroDivisionError), self.fresh() as handle, transaction(handle, self.granted):
            self.write(handle, 150)
            self.terminate(handle)
            raise ZeroDivisionError
        with self.assertRaises(fenceguard.Unknown), refusals(), self.transaction() as handle:
            admit(handle, self.granted)
            self.terminate(handle)
            self.write(handle, 150)

    def test_run_takes_the_lock_again_after_its_session_was_ended(self):
        tokens = []

        def add(lease):
            tokens.append(lease.token)
            with self.fresh() as handle, transaction(handle, lease) as verdict:
                self.assertEqual(verdict, "admitted")
                if len(tokens) == 1:
                    self.terminate(handle)
                self.write(handle, 130)
        self.client.run(self.resource, add, ttl=60)
        self.assertEqual((len(tokens), self.balance(), self.fence()), (2, 130, tokens[1]))

    def test_a_commit_that_would_be_a_rollback_is_rejected(self):
        with self.assertRaises(fenceguard.Rejected) as caught, self.fresh() as handle, transaction(handle, self.lease()):
            self.write(handle, 150)
            with contextlib.suppress(Exception):
                self.execute(handle, "select no_such_thing")
        self.assertEqual((caught.exception.problem, self.balance()), ("aborted", 100))

    def refuse_at_commit(self, state):
        self.ask("create or replace function refuse() returns trigger language plpgsql as "
                 f"$$ begin raise exception 'no' using errcode = '{state}'; end $$; "
                 "drop trigger if exists refuse on account; "
                 "create constraint trigger refuse after update on account deferrable initially deferred "
                 "for each row execute function refuse()")
        self.addCleanup(self.ask, "drop trigger if exists refuse on account")

    def test_what_a_commit_itself_refuses_passes_through(self):
        self.refuse_at_commit("23514")
        with self.assertRaises(Exception) as caught, self.fresh() as handle, transaction(handle, self.lease()):
            self.write(handle, 150)
        self.assertNotIsInstance(caught.exception, fenceguard.FenceguardError)
        self.assertEqual(self.balance(), 100)

    def once_committed(self, commits):
        """run() with a hook after COMMIT that fails: with what run() repeats, and with what says nothing was committed."""
        for failure in (fenceguard.Stale("of another lock"), self.refused("ZF001"), self.refused("55P03"),
                        self.refused("40001")):
            def fail(*_):
                raise failure
            before, bodies = self.balance(), []

            def add(lease):
                bodies.append(lease.token)
                commits(lease, fail)
            with self.subTest(failure=failure):
                with self.assertRaises(fenceguard.Unknown), refusals():
                    self.client.run(self.resource, add, ttl=60)
                self.assertEqual((len(bodies), self.balance()), (1, before + 30))

    def refused(self, state):
        """A driver's error, by a session of its own."""
        with contextlib.closing(psycopg.connect(self.url)) as other:
            try:
                other.execute(f"do $$ begin raise exception 'no' using errcode = '{state}'; end $$")
            except psycopg.Error as error:
                return error

    def add(self, handle):
        self.execute(handle, f"update account set balance = balance + 30 where id = {self.id}")

    def test_an_open_transaction_is_not_taken_over(self):
        if type(self) is Psycopg:
            return  # a statement before it has begun it
        with self.assertRaisesRegex(RuntimeError, "open already"), self.transaction() as handle, \
                transaction(handle, self.lease()):
            self.fail("it was taken over")

    def test_a_transaction_of_its_own_is_told(self):
        with self.autocommit() as handle, self.assertRaisesRegex(RuntimeError, "autocommit"):
            admit(handle, self.lease())


class Standby(Case):
    """The server waits for a standby which is not there, and the wait of each COMMIT is cancelled."""

    def test_commit_whose_wait_was_cancelled_is_unknown(self):
        lease = self.lease(renew=False)
        connection = self.close_later(psycopg.connect(self.url))
        for autocommit in (False, True):
            connection.autocommit = autocommit
            with SERVER.cancelled_standby_waits(), self.assertRaises(fenceguard.Unknown) as caught, transaction(connection, lease):
                connection.execute(f"update account set balance = 70 where id = {self.id}")
            self.assertEqual(caught.exception.problem, "not-replicated")
        self.assertEqual(self.balance(), 70)

    def test_asynchronous_commit_whose_wait_was_cancelled_is_unknown(self):
        async def write(lease):
            async with await psycopg.AsyncConnection.connect(self.url) as connection:
                async with transaction_async(connection, lease):
                    await connection.execute(f"update account set balance = 70 where id = {self.id}")

        lease = self.lease(renew=False)
        with SERVER.cancelled_standby_waits(), self.assertRaises(fenceguard.Unknown) as caught:
            asyncio.run(write(lease))
        self.assertEqual(caught.exception.problem, "not-replicated")


class Psycopg(Helper, Case):
    def connect(self, **options):
        return self.close_later(psycopg.connect(self.url, **options))

    @contextlib.contextmanager
    def transaction(self):
        connection = self.connect()
        with connection.transaction():
            yield connection

    @contextlib.contextmanager
    def autocommit(self):
        yield self.connect(autocommit=True)

    def fresh(self):
        return contextlib.closing(self.connect())

    def backend(self, handle):
        return handle.info.backend_pid

    def execute(self, handle, sql):
        handle.execute(sql)

    def test_autocommit_and_asyncio(self):
        self.granted = self.lease()
        with transaction(self.connect(autocommit=True), self.granted) as verdict:
            self.assertEqual(verdict, "admitted")

        async def write(is_ended):
            async with await psycopg.AsyncConnection.connect(self.url) as connection:
                async with transaction_async(connection, self.granted):
                    await connection.execute(f"update account set balance = 130 where id = {self.id}")
                    if is_ended:
                        self.terminate(connection)
                        await connection.execute("select 1")
        with self.assertRaises(fenceguard.Stale) as caught:
            asyncio.run(write(True))
        self.expect_cut_off(caught)
        asyncio.run(write(False))
        self.assertEqual(self.balance(), 130)

    def test_a_pool_is_refused(self):
        lease = self.lease()
        for function in (admit, lambda pool, lease: transaction(pool, lease).__enter__()):
            with self.assertRaisesRegex(TypeError, "takes"):
                function(object(), lease)

    def test_a_transaction_begun_by_itself_is_one(self):
        lease = self.lease()
        with self.connect() as connection:
            admit(connection, lease)
            self.write(connection, 130)
        self.assertEqual(self.balance(), 130)

    def test_a_run_that_was_overtaken_rolls_back_and_starts_over(self):
        """The first lease is overtaken in the database between its grant and its write."""
        tokens = []

        def add(lease):
            tokens.append(lease.token)
            with self.connect() as connection:
                if len(tokens) == 1:
                    self.ask(f"select fenceguard.advance('{self.resource}', {lease.token + 1}, 'another')")
                connection.execute(f"update account set balance = balance + 30 where id = {self.id}")
                admit(connection, lease)

        self.client.run(self.resource, add, ttl=60)
        self.assertEqual((len(tokens), self.balance()), (2, 130))
        self.assertGreater(tokens[1], tokens[0] + 1)

    def test_asyncio(self):
        old, new = self.pair()

        async def write(claim):
            async with await psycopg.AsyncConnection.connect(self.url) as connection:
                verdict = await admit_async(connection, claim)
                await connection.execute(f"update account set balance = 130 where id = {self.id}")
                return verdict
        self.assertEqual(asyncio.run(write(new)), "admitted")
        self.assertEqual(self.balance(), 130)
        with self.assertRaises(fenceguard.Stale):
            asyncio.run(write(old))


class SqlAlchemy(Helper, Case):
    def engine(self, **options):
        engine = sqlalchemy.create_engine(self.url.replace("postgres://", "postgresql+psycopg2://"), future=True,
                                          **options)
        self.addCleanup(engine.dispose)
        return engine

    @contextlib.contextmanager
    def transaction(self):
        with self.engine().begin() as connection:
            yield connection

    @contextlib.contextmanager
    def autocommit(self):
        with self.engine(isolation_level="AUTOCOMMIT").connect() as connection:
            yield connection

    def fresh(self):
        return self.engine().connect()

    def backend(self, handle):
        return handle.connection.driver_connection.info.backend_pid

    def execute(self, handle, sql):
        handle.execute(sqlalchemy.text(sql))

    def test_a_session_in_a_transaction_of_its_own(self):
        self.granted = self.lease()
        with sqlalchemy.orm.Session(self.engine()) as session:
            with transaction(session, self.granted):
                self.write(session, 130)
            self.assertEqual(self.balance(), 130)
            with self.assertRaises(fenceguard.Stale) as caught, transaction(session, self.granted):
                self.terminate(session.connection())
                self.write(session, 150)
            self.assertEqual(caught.exception.problem, "session-ended")
        with self.assertRaisesRegex(TypeError, "Engine"):
            admit(self.engine(), self.granted)

    def test_a_session(self):
        old, new = self.pair()
        with sqlalchemy.orm.Session(self.engine()) as session, session.begin():
            self.assertEqual(admit(session, new), "admitted")
            self.write(session, 130)
        self.assertEqual(self.balance(), 130)
        with self.assertRaises(fenceguard.Stale), sqlalchemy.orm.Session(self.engine()) as session:
            admit(session, old)
        with self.assertRaises(RuntimeError), \
                sqlalchemy.orm.Session(self.engine(isolation_level="AUTOCOMMIT")) as session:
            admit(session, new)


    def test_failing_hook_after_the_commit_is_not_repeated(self):
        for of_class in (False, True):
            def commits(lease, fail):
                kind = type("Banking", (sqlalchemy.orm.Session,), {})
                with kind(self.engine()) as session:
                    sqlalchemy.event.listen(kind if of_class else session, "after_commit", fail)
                    with transaction(session, lease):
                        self.add(session)
            self.once_committed(commits)

    def test_failing_hook_before_the_commit_commits_nothing(self):
        lease = self.lease()
        for failure, seen in ((fenceguard.Stale("of another lock"), fenceguard.Unknown),
                              (self.refused("ZF001"), fenceguard.Unknown), (ZeroDivisionError(), ZeroDivisionError)):
            def fail(*_):
                raise failure
            engine = self.engine(pool_size=1, max_overflow=0)
            with engine.connect() as connection:
                sqlalchemy.event.listen(connection, "commit", fail)
                with self.assertRaises(seen), transaction(connection, lease):
                    self.add(connection)
                sqlalchemy.event.remove(connection, "commit", fail)
                connection.execute(sqlalchemy.text("select 1"))
                connection.commit()
            with sqlalchemy.orm.Session(engine) as session:
                sqlalchemy.event.listen(session, "before_commit", fail)
                with self.assertRaises(seen), transaction(session, lease):
                    self.add(session)
                sqlalchemy.event.remove(session, "before_commit", fail)
                session.commit()
        self.assertEqual(self.balance(), 100)

    def test_what_the_commit_of_a_session_refuses_passes_through(self):
        lease = self.lease()
        self.refuse_at_commit("ZF001")
        with sqlalchemy.orm.Session(self.engine()) as session:
            with self.assertRaises(fenceguard.Stale), transaction(session, lease):
                self.add(session)
            self.refuse_at_commit("40001")
            with self.assertRaises(sqlalchemy.exc.DBAPIError), transaction(session, lease):
                self.add(session)
        self.assertEqual(self.balance(), 100)

    def test_a_session_joined_to_an_open_transaction_is_refused(self):
        with self.engine().begin() as connection, sqlalchemy.orm.Session(connection) as session, \
                self.assertRaisesRegex(RuntimeError, "open already"), transaction(session, self.lease()):
            self.fail("it would not have been committed")


class Django(Helper, Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        django.conf.settings.configure(DATABASES={"default": {
            "ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": str(SERVER.port),
            "USER": "postgres", "NAME": cls.database}})
        cls.addClassCleanup(django.db.connections.close_all)

    @contextlib.contextmanager
    def transaction(self):
        with django.db.transaction.atomic():
            yield django.db.connection

    @contextlib.contextmanager
    def fresh(self):
        django.db.connection.ensure_connection()
        yield django.db.connection

    def backend(self, handle):
        return handle.connection.info.backend_pid

    @contextlib.contextmanager
    def autocommit(self):
        yield django.db.connection

    def execute(self, handle, sql):
        with handle.cursor() as cursor:
            cursor.execute(sql)

    def test_failing_hook_after_the_commit_is_not_repeated(self):
        def commits(lease, fail):
            with self.fresh() as handle, transaction(handle, lease):
                self.add(handle)
                django.db.transaction.on_commit(fail)
        self.once_committed(commits)
        with self.assertRaises(ZeroDivisionError), self.fresh() as handle, transaction(handle, self.lease()):
            django.db.transaction.on_commit(lambda: 1 / 0)

    def test_without_autocommit_atomic_would_not_commit(self):
        with self.fresh() as handle:
            handle.set_autocommit(False)
            self.addCleanup(handle.set_autocommit, True)
            self.addCleanup(handle.rollback)
            with self.assertRaisesRegex(RuntimeError, "open already"), transaction(handle, self.lease()):
                self.fail("it would not have been committed")


if __name__ == "__main__":
    unittest.main()
