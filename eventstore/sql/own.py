"""Appending in a transaction of the caller's, which has to be one, and durable once committed.

A commit of SQLite's that does not wait for the disk can be undone by a power cut, and an append
outside any transaction would be written piece by piece, or never committed: both are refused.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, Engine

from eventstore.errors import UnsafeTransaction
from eventstore.masking import masked
from eventstore.sql.append import append
from eventstore.sql.dialect import cursor
from eventstore.sql.engines import SYNCHRONOUS
from eventstore.sql.failures import translated
from eventstore.sql.requests import Append, Appended

__all__ = ["append_within"]

_LEVELS = ("OFF", "NORMAL", "FULL", "EXTRA")
"""Of ``PRAGMA synchronous``, by number."""


def append_within(
    engine: Engine, connection: Connection, request: Append, now: datetime
) -> Appended:
    """Append in the transaction of a connection, as durable as the store's engine says.

    Raises:
        UnsafeTransaction: It is in no transaction, or in one whose commit would not be durable.
        EventStoreError: As `append` raises.
    """
    with translated(masked(engine.url)):
        if isinstance(connection, Connection):
            _require_durable(engine, connection)
        return append(connection, request, now)


def _require_durable(engine: Engine, connection: Connection) -> None:
    if not connection.in_transaction():
        raise UnsafeTransaction("the connection is in no transaction")
    if connection.dialect.name != "sqlite":
        return
    driver = connection.connection.dbapi_connection
    if driver is not None and not driver.in_transaction:
        raise UnsafeTransaction("the driver commits each statement by itself")
    run = cursor(connection)
    found = run.execute("PRAGMA synchronous").fetchone()[0]
    run.close()
    promised = engine.get_execution_options().get(SYNCHRONOUS, "FULL")
    if found < _LEVELS.index(promised):
        raise UnsafeTransaction(
            f"its commit would be made with synchronous={_LEVELS[found]}, and the store's are with "
            f"{promised}, to survive a power cut"
        )
