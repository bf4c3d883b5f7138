"""An engine on the connections of another engine: a store that shares its product's pool.

Each connection belongs to the product: it is checked out of the product's pool for one transaction
and returned unchanged. On PostgreSQL the settings that correctness depends on apply to the
transaction only, as behind a pooler; on SQLite they are set at checkout and restored afterwards.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

import psycopg
from psycopg.rows import tuple_row
from sqlalchemy import Engine, event
from sqlalchemy.pool import NullPool, PoolProxiedConnection, SingletonThreadPool, StaticPool

from eventstore.errors import InvalidUrl
from eventstore.sql.distributed import find_backend
from eventstore.sql.driver_errors import translated
from eventstore.sql.engines import (
    BUSY_TIMEOUT_MS,
    SYNCHRONOUS,
    Synchronous,
    begin_with_options,
    begin_with_settings,
    renew_epoch,
)
from eventstore.sql.postgresql import EACH
from eventstore.sql.sessions import ConnectionSettings
from eventstore.sql.urls import parse
from eventstore.sql.waits import limit_waits, unlimit_waits
from eventstore.telemetry.log import masked

__all__ = ["borrow"]

_ON_POSTGRESQL = {
    "autocommit": False,
    "isolation_level": psycopg.IsolationLevel.READ_COMMITTED,
    "deferrable": None,
    "row_factory": tuple_row,
    "cursor_factory": psycopg.Cursor,
}
_ON_SQLITE = {"isolation_level": None, "row_factory": None, "text_factory": str}
_PRAGMAS = {
    "foreign_keys": 1,
    "fullfsync": 1,
    "checkpoint_fullfsync": 1,
    "secure_delete": 1,
    "synchronous": None,
    "busy_timeout": None,
}
"""The pragmas of a store's connections; each transaction sets those that are None."""


def borrow(
    product: Engine,
    *,
    schema: str | None = None,
    synchronous: Synchronous = "FULL",
    busy_timeout_ms: int = 30_000,
    read_only: bool = False,
) -> Engine:
    """Return an engine that uses a product's connections; disposing of it closes none of them.

    Args:
        product: The product's engine, with the driver psycopg or pysqlite.
        schema: See `open_engine`.
        synchronous: See `open_engine`.
        busy_timeout_ms: See `open_engine`.
        read_only: Refuse to write.

    Raises:
        InvalidUrl: The engine's driver or pool cannot be shared.
    """
    if product.dialect.is_async or product.driver not in ("psycopg", "pysqlite"):
        reason = f"its driver is {product.dialect.driver}: make the engine with psycopg or pysqlite"
        raise InvalidUrl(masked(product.url), reason)
    if isinstance(product.pool, StaticPool | SingletonThreadPool):
        reason = "its pool gives one connection to several users at once and cannot be shared"
        raise InvalidUrl(masked(product.url), reason)
    url = parse(product.url, schema)
    session = ConnectionSettings.of(url)
    loan = _Loan(product, read_only, session.silence_s())
    dialect = type(product.dialect)(dbapi=product.dialect.dbapi)  # type: ignore[call-arg]
    # Closing a connection of this engine returns it to the product's pool.
    dialect.do_close = dialect.do_terminate = loan.give_back  # type: ignore[assignment,method-assign]
    engine = Engine(NullPool(loan.take, dialect=dialect), dialect, url, hide_parameters=True)
    if product.dialect.name == "sqlite":
        options = {SYNCHRONOUS: synchronous, BUSY_TIMEOUT_MS: busy_timeout_ms}
        engine.update_execution_options(**options)
        event.listen(engine, "begin", begin_with_options)
    else:
        event.listen(engine, "begin", begin_with_settings)
    first = session.each()

    @event.listens_for(engine, "connect")
    def configure(connection: Any, record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            record.info.update(synchronous=synchronous, busy_timeout_ms=busy_timeout_ms)
            return
        record.info[EACH] = first
        info = loan.info(connection)
        if info.get(_LOOKED) != str(url):
            connection.execute(first)
            find_backend(connection, dialect, masked(url))
            renew_epoch(connection)
            info[_LOOKED] = str(url)

    with translated(masked(url)), engine.connect() as connection:
        dialect.initialize(connection)
    return engine


_LOOKED = "eventstore_epoch_of"


class _Loan:
    """The connections checked out of a product's pool, each with its original settings."""

    def __init__(self, product: Engine, read_only: bool, silence_s: float) -> None:
        self._product = product
        self._silence_s = silence_s
        self._pragmas = {**_PRAGMAS, "query_only": int(read_only)}
        self._on_postgresql = {**_ON_POSTGRESQL, "read_only": read_only or None}
        self._taken: dict[int, tuple[PoolProxiedConnection, dict[str, Any], dict[str, Any]]] = {}

    def take(self) -> Any:
        """Return a driver's connection with the settings that a store needs."""
        pooled = self._product.raw_connection()
        raw: Any = pooled.dbapi_connection
        try:
            is_sqlite = isinstance(raw, sqlite3.Connection)
            wanted = _ON_SQLITE if is_sqlite else self._on_postgresql
            before = {name: getattr(raw, name) for name in wanted}
            _set(raw, wanted)
            pragmas = _read_pragmas(raw, self._pragmas) if is_sqlite else {}
            self._taken[id(raw)] = pooled, before, pragmas
            if not is_sqlite:
                limit_waits(raw, self._silence_s)
            _set_pragmas(raw, self._pragmas if is_sqlite else {})
        except BaseException:
            self._taken.pop(id(raw), None)
            pooled.invalidate()
            raise
        return raw

    def info(self, raw: Any) -> dict[Any, Any]:
        """Return the dictionary that the product's pool keeps for a connection while it is open."""
        return self._taken[id(raw)][0].info

    def give_back(self, raw: Any) -> None:
        """Restore a connection and return it to the product's pool; discard a broken one."""
        pooled, before, pragmas = self._taken.pop(id(raw))
        try:
            raw.rollback()
            unlimit_waits(raw)
            _set_pragmas(raw, pragmas)
            _set(raw, before)
        except (psycopg.Error, sqlite3.Error):
            pooled.invalidate()
        else:
            pooled.close()


def _set(raw: Any, wanted: Mapping[str, Any]) -> None:
    for name, value in wanted.items():
        if getattr(raw, name) != value:
            setattr(raw, name, value)


def _read_pragmas(raw: sqlite3.Connection, names: Iterable[str]) -> dict[str, Any]:
    return {name: raw.execute(f"PRAGMA {name}").fetchone()[0] for name in names}


def _set_pragmas(raw: sqlite3.Connection, wanted: Mapping[str, Any]) -> None:
    for name, value in wanted.items():
        if value is not None:
            raw.execute(f"PRAGMA {name}={value}")
