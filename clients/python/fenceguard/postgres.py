"""The fence in the caller's own PostgreSQL transaction, where the schema is installed (fenceguard sql postgres).

    with transaction(connection, lease):                  # psycopg, 3 or 2; SQLAlchemy; Django
        connection.execute("update accounts set balance = 70 where id = 42")

Fence and data stand or fall with that transaction's commit. No driver is imported here: a connection is what has a
cursor, and an error what has a SQLSTATE, itself or in what caused it. What each SQLSTATE means is in the table 'In a
transaction of PostgreSQL' of clients/README.md.
"""

import contextlib
import json
import re
import traceback

from . import outcomes

ADMIT = "select fenceguard.admit(%s::text, %s::bigint, %s::text, %s::bigint)"
KINDS = {"ZF001": (outcomes.Stale, "stale"), "ZF002": (outcomes.Conflict, "conflict"),
         "ZF003": (outcomes.Rejected, "missing"), "ZF004": (outcomes.Rejected, "implausible"),
         "22023": (outcomes.Rejected, "malformed"), "55P03": (outcomes.Unavailable, "unavailable")}
UNPROVEN = re.compile("40003|08...|25P04|57P..|58...|XX...")  # of an answer to COMMIT: these do not prove a rollback
ENDED_BY_SERVER = re.compile("57P..|25P0[34]")
LOST_KINDS = {"OperationalError", "InterfaceError", "PendingRollbackError"}  # without a SQLSTATE, such as psycopg's
LOST_WORDS = re.compile("terminating connection|server closed the connection|connection (already |is )?(closed|lost)")
ENDED = "the session ended inside the transaction, before COMMIT: nothing was committed"
# Of a libpq connection: in no transaction; at a statement, in one, in one that can only be rolled back.
IDLE, ACTIVE, IN_TRANSACTION, IN_ERROR = range(4)


@contextlib.contextmanager
def transaction(connection, lease, sequence=None):
    """A block in a transaction of its own: begun, the claim admitted, committed at the end of the block, and rolled back
    after an error. Gives 'admitted', or 'duplicate' where a write of this sequence took effect before: then nothing is to
    be written. The block is not to end the transaction itself: what it had committed would be called Stale.

    What ends the session before COMMIT was sent (the next holder's drain, an administrator, the network) is Stale with the
    problem 'session-ended': nothing was committed, and run() takes the lock again. Unknown: COMMIT was sent, and its answer
    did not come; or a hook that runs with the commit (on_commit of Django, events of SQLAlchemy) failed with an error of
    the database or of this client. Other errors pass through, but for what refusals() maps.

    connection: of psycopg or psycopg2, a Connection or Session of SQLAlchemy, django.db.connection.
    """
    own = _own_transaction(connection)
    own.begin()
    try:
        verdict = admit(connection, lease, sequence)
        yield verdict
        own.prepare()
    except BaseException as error:
        outcome = _outcome_inside(error, _is_over(connection), lease)
        with contextlib.suppress(Exception):  # of a session that has ended
            own.roll_back(error)
        if outcome is None:
            raise
        raise outcome from _cause(error)
    with _replicated(connection), _committing(own):
        own.commit()


@contextlib.asynccontextmanager
async def transaction_async(connection, lease, sequence=None):
    """The same for psycopg's AsyncConnection."""
    own = _Plain(connection)
    if connection.autocommit:
        await connection.execute("begin")
    try:
        verdict = await admit_async(connection, lease, sequence)
        yield verdict
        own.prepare()
    except BaseException as error:
        outcome = _outcome_inside(error, _is_over(connection), lease)
        with contextlib.suppress(Exception):
            await connection.rollback()
        if outcome is None:
            raise
        raise outcome from error
    with _replicated(connection), _committing(own):
        await connection.commit()


def admit(connection, lease, sequence=None):
    """Admits the claim of a lease in the transaction that is open, before its first savepoint: 'admitted', or
    'duplicate' where a write of this sequence took effect before. Raises Stale or Conflict, after which the
    transaction can only be rolled back.

    connection: of psycopg or psycopg2, a Connection or Session of SQLAlchemy, django.db.connection. Not a pool, and not
    an Engine, which take any connection for each statement.
    """
    if hasattr(connection, "get_bind"):
        connection = connection.connection()  # of a Session
    if not hasattr(connection, "exec_driver_sql") and not hasattr(connection, "cursor"):
        raise TypeError(f"admit() takes the connection whose transaction is open, not a {type(connection).__name__}")
    with _inside(connection, lease):
        if hasattr(connection, "exec_driver_sql"):
            verdict = connection.exec_driver_sql(ADMIT, _claim(lease, sequence)).scalar()
        else:
            with connection.cursor() as cursor:
                cursor.execute(ADMIT, _claim(lease, sequence))
                verdict = cursor.fetchone()[0]
    _require_transaction(connection)
    return verdict


async def admit_async(connection, lease, sequence=None):
    """The same for psycopg's AsyncConnection."""
    with _inside(connection, lease):
        cursor = await connection.execute(ADMIT, _claim(lease, sequence))
        verdict = (await cursor.fetchone())[0]
    _require_transaction(connection)
    return verdict


@contextlib.contextmanager
def refusals():
    """Raises what the schema refuses, such as a write to a protected row, as the client's own Stale, Conflict,
    Rejected (missing, implausible, malformed) or Unavailable. The end of the session (57P01) is Unknown, for the block may
    hold the COMMIT; transaction() tells the two apart. Every other error passes through. Hooks that run after the commit
    do not belong into the block: what refuses one of them would be taken for a refusal of the block."""
    try:
        yield
    except Exception as error:
        outcome = outcome_of(error)
        if outcome is None:
            raise
        raise outcome from _cause(error)


def outcome_of(error):
    """The outcome that an error of the database stands for, or None. It may be one of COMMIT."""
    if isinstance(error, outcomes.FenceguardError):
        return None  # judged already, and its cause is not to be judged again
    cause = _cause(error)
    state = _sqlstate(cause)
    if state.startswith("57P0") or state == "25P04" if state else LOST_WORDS.search(str(cause)) and _names(cause) & LOST_KINDS:
        return outcomes.Unknown(f"the session ended: {_sentence(cause)}", problem="session-ended")
    if state == "25P03":  # it is judged before the next statement runs
        return outcomes.Stale(f"{ENDED} ({_sentence(cause)})", problem="session-ended")
    kind, verdict = KINDS.get(state, (None, None))
    if kind is None:
        return None
    try:
        detail = json.loads(cause.diag.message_detail or "{}")
    except ValueError:
        detail = {}
    numbers = {name: int(detail[name]) for name in ("token", "highest") if detail.get(name)}
    return kind(_sentence(cause), resource=detail.get("resource"), problem=verdict, **numbers)


@contextlib.contextmanager
def _inside(connection, lease):
    """For the admission, a statement in the transaction before its COMMIT."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "hide_parameters"):
            error.hide_parameters = True  # of SQLAlchemy, whose text would show the claim
        outcome = _outcome_inside(error, _is_over(connection), lease)
        if outcome is None:
            raise
        raise outcome from _cause(error)


def _outcome_inside(error, is_over, lease):
    """The outcome of an error before COMMIT was sent, or None. is_over: the session has ended."""
    if isinstance(error, outcomes.FenceguardError) or not isinstance(error, Exception):
        return None
    cause = _cause(error)
    state = _sqlstate(cause)
    is_lost = state.startswith("08") if state else _names(cause) & LOST_KINDS
    if state and ENDED_BY_SERVER.fullmatch(state) or is_over and is_lost:
        return outcomes.Stale(f"{ENDED} ({_sentence(cause)})", resource=lease.resource, token=lease.token, problem="session-ended")
    return outcome_of(error)


@contextlib.contextmanager
def _committing(own):
    """Libraries run hooks of the caller's inside their commit, before and after COMMIT. What those fail with says nothing of
    this transaction."""
    try:
        yield
    except Exception as error:
        is_ours = isinstance(error, outcomes.FenceguardError)
        cause = error if is_ours else _cause(error)
        state = _sqlstate(cause)
        if not is_ours and not state and not _names(cause) & {"Error", "SQLAlchemyError"}:
            raise
        if own.is_committed:
            raise outcomes.Unknown(f"committed, and a hook after it failed: {_sentence(cause)}", problem="after-commit") from cause
        if is_ours or not state or UNPROVEN.fullmatch(state) or not own.is_answer:
            raise outcomes.Unknown(f"commit: {_sentence(cause)}") from cause
        outcome = outcome_of(error)
        if outcome is None:
            raise
        raise outcome from cause


@contextlib.contextmanager
def _replicated(connection):
    """Around COMMIT: Unknown where the wait for the synchronous standby was cancelled. PostgreSQL answers success then, with
    a warning whose words depend on the locale and whose source does not. Only a connection of psycopg 3 itself is listened
    to, and client_min_messages can hide it."""
    if not hasattr(connection, "add_notice_handler"):
        yield
        return
    warnings = []

    def listen(diagnostic):
        if diagnostic.source_function == "SyncRepWaitForLSN":
            warnings.append(diagnostic.message_primary)

    connection.add_notice_handler(listen)
    try:
        yield
    finally:
        connection.remove_notice_handler(listen)
    if warnings:
        raise outcomes.Unknown(f"commit: {warnings[0]}: a failover may lose it", problem="not-replicated")


def _own_transaction(connection):
    if hasattr(connection, "exec_driver_sql") or hasattr(connection, "get_bind"):
        return _SqlAlchemy(connection)
    if hasattr(connection, "in_atomic_block"):
        return _Django(connection)
    if not hasattr(connection, "cursor"):
        raise TypeError(f"transaction() takes a connection, not a {type(connection).__name__}")
    return _Plain(connection)


class _Plain:
    """Of psycopg or psycopg2, which begin one by themselves, or not at all."""

    # Of an error inside commit(): it came after COMMIT; it is the server's answer to COMMIT, as these drivers run no hooks.
    is_committed, is_answer = False, True

    def __init__(self, connection):
        self._connection = connection

    def begin(self):
        self._is_explicit = self._connection.autocommit
        if self._is_explicit:
            self._execute("begin")

    def prepare(self):
        _require_committable(self._connection)

    def commit(self):
        self._execute("commit") if self._is_explicit else self._connection.commit()

    def roll_back(self, _):
        self._execute("rollback") if self._is_explicit else self._connection.rollback()

    def _execute(self, statement):
        with self._connection.cursor() as cursor:
            cursor.execute(statement)


class _SqlAlchemy:
    """Of a Connection or a Session."""

    is_committed = is_answer = False

    def __init__(self, connection):
        self._connection = connection
        bind = getattr(connection, "bind", None)  # a Session joins what is open on its Connection, and does not commit it
        if connection.in_transaction() or hasattr(bind, "in_transaction") and bind.in_transaction():
            raise RuntimeError("a transaction is open already: transaction() begins and ends its own")

    def begin(self):
        self._transaction = self._connection.begin()

    def prepare(self):
        connection = self._connection
        if hasattr(connection, "flush"):
            connection.flush()  # of a Session: statements before COMMIT
            connection = connection.connection()
        self._driver, self._root = _driver_connection(connection), connection.get_transaction()
        _require_committable(self._driver)

    def commit(self):
        try:
            self._transaction.commit()
        except BaseException as error:
            self._roll_back_unsent(error)
            raise

    def _roll_back_unsent(self, error):
        # A Session's after_commit runs when the connection's transaction is over, and its connection may serve another by
        # then. What comes out of the connection's transaction is an answer to COMMIT, or of a hook that kept it from being
        # sent: then the transaction is open still.
        if any(frame.f_locals.get("self") is self._root for frame, _ in traceback.walk_tb(error.__traceback__)):
            self.is_answer = self._driver.info.transaction_status not in (ACTIVE, IN_TRANSACTION, IN_ERROR)
            if not self.is_answer:
                with contextlib.suppress(Exception):
                    self._driver.rollback()
        with contextlib.suppress(Exception):
            self._transaction.rollback()

    def roll_back(self, _):
        self._transaction.rollback()


class _Django:
    is_committed, is_answer = False, True

    def __init__(self, connection):
        if connection.in_atomic_block or not connection.get_autocommit():  # without which atomic() does not commit
            raise RuntimeError("a transaction is open already: transaction() begins and ends its own atomic() block")
        from django.db import transaction as django_transaction
        self._connection, self._block = connection, django_transaction.atomic(using=connection.alias)

    def begin(self):
        self._block.__enter__()
        self._connection.on_commit(self._note_commit)  # the first, so that it runs before every hook that fails

    def _note_commit(self):
        self.is_committed = True

    def prepare(self):
        if self._connection.needs_rollback:  # atomic() would roll back and say nothing
            raise outcomes.Rejected("a statement had failed: it was rolled back", problem="aborted")
        _require_committable(self._connection.connection)

    def commit(self):
        self._block.__exit__(None, None, None)

    def roll_back(self, error):
        self._block.__exit__(type(error), error, error.__traceback__)


def _require_committable(driver):
    """Fails where COMMIT would not commit: PostgreSQL answers it with ROLLBACK, and drivers do not tell."""
    if driver is None or driver.closed:
        raise outcomes.Stale(ENDED, problem="session-ended")
    status = driver.info.transaction_status
    if status == IN_ERROR:
        raise outcomes.Rejected("a statement had failed: it was rolled back", problem="aborted")
    if status == IDLE:
        raise outcomes.Unknown("the block ended its transaction itself", problem="aborted")


def _cause(error):
    """The driver's error, of which SQLAlchemy's and Django's are made."""
    return error if _sqlstate(error) else getattr(error, "orig", None) or error.__cause__ or error


def _names(error):
    """Of its classes: those of DB-API are in every driver."""
    return {kind.__name__ for kind in type(error).__mro__}


def _sentence(error):
    return str(error).partition("\n")[0]


def _sqlstate(error):
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def _claim(lease, sequence):
    return lease.resource, lease.token, lease.holder, sequence


def _driver_connection(connection):
    """That of psycopg or psycopg2; None where it was lost."""
    if hasattr(connection, "exec_driver_sql"):
        return None if connection.invalidated else connection.connection.driver_connection  # of SQLAlchemy
    return connection if hasattr(connection, "info") else connection.connection  # of Django


def _is_over(connection):
    """Whether its session has ended, as far as the driver knows."""
    try:
        if hasattr(connection, "get_bind"):
            connection = connection.connection()  # of a Session
        driver = _driver_connection(connection)
    except Exception:  # of a Session that lost it
        return True
    return driver is None or bool(driver.closed)


def _require_transaction(connection):
    """An admission that was a transaction of its own guards nothing."""
    status = getattr(getattr(_driver_connection(connection), "info", None), "transaction_status", None)
    if status == IDLE:
        raise RuntimeError("admit() belongs into the transaction that writes, and none is open: autocommit is on")
