"""How a connection to PostgreSQL waits for its server: never for a full buffer, never in silence.

Every wait of the driver passes through here. Two things are added to it:

- While bytes of a request are unsent, or the server sends something that was not requested, both
  directions are served. The driver itself waits only to read once it has handed over a pipeline's
  last statement, even if the socket's buffer could not take it all: the server waits for the rest
  of the statement, the client for its answer, and both hold their locks for ever.
- A server that neither takes nor sends a byte for the connection's limit is given up: the
  statement is cancelled, the connection closed, and `NoAnswer` raised. In a block of `long_running`
  that is logged, because some statements, such as building an index, take hours; only after a
  whole day the connection is given up.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any

import psycopg
from psycopg import capabilities
from psycopg.waiting import Ready, Wait

from eventstore.telemetry.log import get_logger

__all__ = ["NoAnswer", "limit_waits", "long_running", "unlimit_waits"]

_CANCEL_S = 5.0
_LONG_S = 86_400.0
_MOST_SHOWN = 80  # characters of a statement
_READ, _WRITE, _BOTH = int(Wait.R), int(Wait.W), int(Wait.RW)
_READABLE, _WRITABLE = int(Ready.R), int(Ready.W)
_ENDS = {"_commit_gen": "COMMIT", "_rollback_gen": "ROLLBACK"}

_long: ContextVar[bool] = ContextVar("eventstore_long_running", default=False)

_logger = get_logger(__name__)


class NoAnswer(psycopg.OperationalError):
    """The server neither took nor sent a byte within the limit; the connection is closed."""


@contextmanager
def long_running() -> Iterator[None]:
    """Give statements in the block a day, and log once per limit that they wait for the server.

    For changes of the schema, for statistics, and for rewriting tables.
    """
    token = _long.set(True)
    try:
        yield
    finally:
        _long.reset(token)


def limit_waits(connection: Any, limit_s: float) -> None:
    """Have a connection of the driver wait as this module says, at most this long in silence."""
    if not hasattr(connection, "silence_s"):
        kind: Any = type(connection)
        connection.__class__ = _watched(kind)
    connection.silence_s = limit_s
    connection.cursor_factory = _Cursor


def unlimit_waits(connection: Any) -> None:
    """Undo `limit_waits`, except for the cursor factory."""
    if hasattr(connection, "silence_s"):
        del connection.silence_s
        vars(connection).pop("statement", None)
        connection.__class__ = type(connection).__base__


class _Cursor(psycopg.Cursor[Any]):
    """A cursor that leaves word of its statement, for the message of `NoAnswer`."""

    def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
        self.connection.__dict__["statement"] = query
        return super().execute(query, *arguments, **options)

    def executemany(self, query: Any, *arguments: Any, **options: Any) -> None:
        self.connection.__dict__["statement"] = query
        super().executemany(query, *arguments, **options)

    def copy(self, statement: Any, *arguments: Any, **options: Any) -> Any:
        self.connection.__dict__["statement"] = statement
        return super().copy(statement, *arguments, **options)


@cache
def _watched(kind: type[Any]) -> type[Any]:
    """Return a driver's class of connections with waits that end."""
    # Its only base, because Python changes the class of an object to one of the same layout.
    base: Any = kind

    class Connection(base):  # type: ignore[misc]
        gave_up = ""

        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
            if self.gave_up:  # A rollback must not hide why there is nothing to roll back.
                raise NoAnswer(self.gave_up)
            return super().wait(_watching(self, gen), *arguments, **options)

    return Connection


def _watching(connection: Any, gen: Generator[int, int, Any]) -> Generator[int, int, Any]:
    """Run one of the driver's generators, which yield what they wait for, and get what is ready."""
    pgconn, since, limit_s = connection.pgconn, 0.0, connection.silence_s
    try:
        wanted = next(gen)
        while True:
            unsent = wanted == _READ and _is_unsent(pgconn)
            ready = yield (_BOTH if unsent or wanted == _WRITE else wanted)
            if not ready:
                now = time.monotonic()
                since = since or now
                if now - since >= limit_s:
                    _give_up(connection, gen, now - since)
                    limit_s += connection.silence_s
            else:
                since, limit_s = 0.0, connection.silence_s
                if wanted == _READ:
                    ready &= _READABLE  # What is writable is sent above.
                elif wanted == _WRITE and ready & _READABLE:
                    ready = _WRITABLE if _is_lost_on_reading(pgconn) else ready & _WRITABLE
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value


def _give_up(connection: Any, gen: Generator[int, int, Any], waited_s: float) -> None:
    """Close the connection and raise; for a day only log it, in a block of `long_running`."""
    doing = _described(gen, getattr(connection, "statement", ""))
    if _long.get() and waited_s < _LONG_S:
        _logger.warning("still_waiting_for_server", waited_s=round(waited_s), statement=doing)
        return
    connection.gave_up = f"no answer for {waited_s:.0f} s (response_timeout) to {doing}"
    error = NoAnswer(connection.gave_up)
    if capabilities.has_cancel_safe():  # The older way to cancel waits without a limit.
        with suppress(psycopg.Error):
            connection.cancel_safe(timeout=_CANCEL_S)
    connection.close()
    with suppress(Exception):  # Whatever it does to clean up, the connection is closed.
        gen.throw(error)
    raise error


def _is_lost_on_reading(pgconn: Any) -> bool:
    """Take what the server sends, so that it goes on reading; return whether it is gone."""
    try:
        pgconn.consume_input()
    except psycopg.OperationalError:
        return True  # Its socket stays readable; `gen` tries to write, and says why it cannot.
    return bool(pgconn.status == psycopg.pq.ConnStatus.BAD)


def _is_unsent(pgconn: Any) -> bool:
    """Whether bytes are left that the socket did not take now."""
    try:
        return bool(pgconn.flush())
    except psycopg.OperationalError:
        return False  # The connection is lost, and reading tells why.


def _described(gen: Any, statement: Any) -> str:
    """Return what waits, without the literals of a statement, which may be part of a payload."""
    text = statement.decode("utf-8", "replace") if isinstance(statement, bytes) else str(statement)
    shown = " ".join(text.partition("'")[0].split())
    if len(shown) > _MOST_SHOWN or "'" in text:
        shown = f"{shown[:_MOST_SHOWN]}..."
    end = _ENDS.get(getattr(gen, "__name__", ""))
    return f"{end}, after {shown!r}" if end else repr(shown)
