"""Short transactions on the driver's connection, for the paths that every turn takes.

Same pool, same settings and same isolation as `eventstore.sql.engines`, without SQLAlchemy's
connection object: how each database does it is in `eventstore.sql.sqlite` and
`eventstore.sql.postgresql`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from psycopg import IsolationLevel

from eventstore.sql.at_hand import AtHand
from eventstore.sql.dialect import DriverConnection
from eventstore.sql.postgresql import PIPELINES, OnPostgresql, settings
from eventstore.sql.sqlite import OnSqlite

__all__ = ["statement", "transaction"]


def transaction(
    at_hand: AtHand,
    *,
    write: bool,
    durable: bool = True,
    snapshot: bool = False,
    pipelined: bool = False,
    patience_ms: int | None = None,
) -> AbstractContextManager[DriverConnection]:
    """Return a context manager: a connection in a transaction, committed at the block's end.

    Args:
        at_hand: The store's connections.
        write: Hold SQLite's write lock from the first moment.
        durable: Whether the commit waits for the disk; without, a power cut may undo it as a whole.
        snapshot: Whether all queries see the database as it was at the first.
        pipelined: Whether PostgreSQL is sent a statement together with the next one whose rows are
            fetched, or with the commit; it fails there. Saves a round trip for each.
        patience_ms: How long to wait for a lock at most, if less long than the store does.
    """
    if at_hand.dialect.is_sqlite:
        return OnSqlite(at_hand, "IMMEDIATE" if write else "DEFERRED", durable, patience_ms)
    return OnPostgresql(
        at_hand,
        isolation=IsolationLevel.REPEATABLE_READ if snapshot else None,
        pipelined=pipelined and PIPELINES,
        settings=settings(
            durable=durable or not write, patience_ms=patience_ms, brief=write and durable
        ),
        # Each query sees what is committed in any case: BEGIN and COMMIT are saved.
        autocommit=not (write or snapshot or patience_ms),
    )


def statement(
    at_hand: AtHand, *, patience_ms: int | None = None
) -> AbstractContextManager[DriverConnection]:
    """Return a durable `transaction` for a single statement that writes.

    On PostgreSQL it is its own transaction, which saves the round trips of BEGIN and COMMIT; then
    ``patience_ms`` is for SQLite alone.
    """
    if at_hand.dialect.is_sqlite:
        return OnSqlite(at_hand, "IMMEDIATE", True, patience_ms)
    return OnPostgresql(at_hand, autocommit=True)
