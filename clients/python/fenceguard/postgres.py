"""The fence in the caller's own PostgreSQL transaction, where the schema is installed (fenceguard sql postgres).

    with connection.transaction():                        # psycopg, 3 or 2; SQLAlchemy; Django
        admit(connection, lease)
        connection.execute("update accounts set balance = 70 where id = 42")

Fence and data stand or fall with that transaction's commit. No driver is imported here: a connection is what has a
cursor, and an error what has a SQLSTATE, itself or in what caused it.
"""

import contextlib
import json

from . import outcomes

ADMIT = "select fenceguard.admit(%s::text, %s::bigint, %s::text, %s::bigint)"
KINDS = {"ZF001": (outcomes.Stale, "stale"), "ZF002": (outcomes.Conflict, "conflict"),
         "ZF003": (outcomes.Rejected, "missing"), "ZF004": (outcomes.Rejected, "implausible"),
         "55P03": (outcomes.Unavailable, "unavailable")}
IDLE = 0  # of a libpq connection: in no transaction


def admit(connection, lease, sequence=None):
    """Admits the claim of a lease in the transaction that is open, before its first savepoint: 'admitted', or
    'duplicate' where a write of this sequence took effect before. Raises Stale or Conflict, after which the
    transaction can only be rolled back.

    connection: of psycopg or psycopg2, a Connection or Session of SQLAlchemy, django.db.connection.
    """
    if hasattr(connection, "get_bind"):
        connection = connection.connection()  # of a Session
    with refusals():
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
    with refusals():
        cursor = await connection.execute(ADMIT, _claim(lease, sequence))
        verdict = (await cursor.fetchone())[0]
    _require_transaction(connection)
    return verdict


@contextlib.contextmanager
def refusals():
    """Raises what the schema refuses, such as a write to a protected row, as the client's own Stale, Conflict,
    Rejected (missing, implausible) or Unavailable. Every other error passes through."""
    try:
        yield
    except Exception as error:
        outcome = outcome_of(error)
        if outcome is None:
            raise
        raise outcome from error


def outcome_of(error):
    """The outcome that an error of the database stands for, or None."""
    cause = error if _sqlstate(error) else getattr(error, "orig", None) or error.__cause__
    kind, verdict = KINDS.get(_sqlstate(cause), (None, None))
    if kind is None:
        return None
    try:
        detail = json.loads(cause.diag.message_detail or "{}")
    except ValueError:
        detail = {}
    numbers = {name: int(detail[name]) for name in ("token", "highest") if detail.get(name)}
    return kind(str(cause).partition("\n")[0], resource=detail.get("resource"), problem=verdict, **numbers)


def _sqlstate(error):
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def _claim(lease, sequence):
    return lease.resource, lease.token, lease.holder, sequence


def _require_transaction(connection):
    """An admission that was a transaction of its own guards nothing."""
    if hasattr(connection, "exec_driver_sql"):
        connection = connection.connection.driver_connection  # of SQLAlchemy
    elif not hasattr(connection, "info"):
        connection = connection.connection  # of Django
    if getattr(getattr(connection, "info", None), "transaction_status", None) == IDLE:
        raise RuntimeError("admit() belongs into the transaction that writes, and none is open: autocommit is on")
