"""Connections to PostgreSQL that engines of one process leave to each other.

Nearly every test has an engine of its own. To connect, and to plan its first statements in a new
process of the server, took half of the server's time. What an engine closes is emptied of all that
the session has, and the next engine that asks for a connection of the same kind finds it new. That
goes for databases that many tests share (`share`); all others are connected to as ever.
"""

from __future__ import annotations

import os
import select
from collections import defaultdict, deque
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from eventstore import EventStore

__all__ = ["close_left", "disconnect", "share", "share_connections"]

_MOST = 8
"""Connections that are kept of one kind."""

_shared: set[str] = set()
_left: defaultdict[Any, deque[Any]] = defaultdict(deque)
_connect: Any = PGDialect_psycopg.connect
_close: Any = PGDialect_psycopg.do_close
_ended = pq.PGconn.connect_start(b"")
_ended.finish()


def disconnect(store: EventStore) -> None:
    """Close a store's connections; it keeps those that it opens later.

    A store that is closed, and used all the same, connects for each transaction.
    """
    store.close()
    pool: Any = store.engine.pool
    pool.closed = False


def share(database: str) -> None:
    """Have engines leave their connections to this database to each other."""
    _shared.add(database)


def close_left(database: str | None = None) -> None:
    """Close what nobody uses, of one database that is shared no more, or of all."""
    _shared.discard(str(database))
    for kind in [each for each in _left if database in (None, _database(each))]:
        for left in _left.pop(kind):
            left.finish()


def share_connections() -> None:
    """Begin with that, for all engines of this process."""
    replaced = {"connect": _connected, "do_close": _leave, "do_terminate": _close}
    for name, method in replaced.items():
        setattr(PGDialect_psycopg, name, method)
    os.register_at_fork(after_in_child=_let_go)


def _connected(dialect: Any, *arguments: Any, **options: Any) -> Any:
    if arguments or dialect.is_async or options.get("dbname") not in _shared:
        return _connect(dialect, *arguments, **options)
    context = options.pop("context", None)
    environment = tuple(item for item in os.environ.items() if item[0].startswith("PG"))
    kind = (*sorted(options.items()), *sorted(environment))
    connection: Any = _found(kind) or psycopg.connect(**options)
    if context is not None:
        connection._adapters = AdaptersMap(context.adapters)
    connection._kind = kind
    return connection


def _found(kind: Any) -> Any:
    """Return a connection that another engine has left, unless the server has ended it."""
    while _left[kind]:
        try:
            left = _left[kind].pop()
        except IndexError:  # another thread was faster
            break
        said = select.poll()
        said.register(left.socket, select.POLLIN)
        if not said.poll(0):
            return psycopg.Connection(left)
        left.finish()
    return None


def _leave(dialect: Any, connection: Any) -> None:
    """Close a connection, whose session goes on for another engine if it is in order."""
    kind = getattr(connection, "_kind", None)
    if kind is None or connection.closed:
        _close(dialect, connection)
        return
    session = connection.pgconn
    if (
        _database(kind) not in _shared
        or len(_left[kind]) >= _MOST
        or session.transaction_status != pq.TransactionStatus.IDLE
        or session.pipeline_status != pq.PipelineStatus.OFF
        or session.exec_(b"DISCARD ALL").status != pq.ExecStatus.COMMAND_OK
    ):
        _close(dialect, connection)
        return
    connection.pgconn, connection._closed = _ended, True
    _left[kind].append(session)


def _let_go() -> None:
    """Leave the parent's sessions alone: what a child closes says so to the server."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for kind in list(_left):
        for left in _left.pop(kind):
            os.dup2(nowhere, left.socket)
    os.close(nowhere)


def _database(kind: Any) -> str:
    return str(dict(kind).get("dbname"))
