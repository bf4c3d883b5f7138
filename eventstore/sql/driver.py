"""Short transactions on the driver's connection, for the paths that every turn takes.

Same pool, same settings and same isolation as `eventstore.sql.engines`, without SQLAlchemy's
connection object, and with a few connections kept at hand: measured, taking one from the pool and
wrapping it is half of what an append costs outside the database.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg import IsolationLevel, Pipeline
from sqlalchemy import Engine, event
from sqlalchemy.pool import QueuePool

from eventstore.forks import at_fork
from eventstore.sealing import OPTION, Keyring
from eventstore.sql.dialect import DriverConnection, dialect_named
from eventstore.sql.sessions import BRIEF, USER, Opened

__all__ = ["EACH", "AtHand", "begin", "statement", "transaction"]

EACH = "eventstore_each_transaction"
"""In a connection's ``info``: the statement that each transaction begins with, behind a pooler."""

_FRESH_S = 1.0
_TURN_S = 1.0
_PIPELINES = Pipeline.is_supported()


class AtHand:
    """A store's connections for `transaction`: taken from the pool, and kept for a while.

    Safe to share between threads. A connection of a server that has rested for longer than a
    second goes back to the pool, which tests it before it hands it out again.
    """

    def __init__(self, engine: Engine, keep: int) -> None:
        self.engine = engine
        self.dialect = dialect_named(engine.dialect.name)
        self.keys: Keyring | None = engine.get_execution_options().get(OPTION)
        self._keep = keep
        self._idle: deque[tuple[Any, float]] = deque()
        self._opened = Opened(engine)
        self._renew()
        event.listen(engine, "invalidate", self._doubt)
        at_fork(self._before_fork, self._after_fork, self._in_child)

    def _renew(self) -> None:
        self.turn = threading.RLock()
        """Held by the thread that writes to SQLite."""
        self.here = _Here()
        """``inside`` has the transactions that this thread is in, on SQLite."""
        self._held = False

    def take(self) -> Any:
        """Return a pooled connection."""
        while self._idle:
            try:
                pooled, since = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if self._opened.is_parents:
                self._in_child()
            elif self.dialect.is_sqlite or time.monotonic() - since < _FRESH_S:
                self._opened.check()
                pooled.info[USER] = threading.get_ident()
                return pooled
            else:
                pooled.close()
        return self.engine.raw_connection()

    def put_back(self, pooled: Any) -> None:
        """Keep a connection that has no transaction open, or return it to the pool."""
        if len(self._idle) < self._keep:
            self._idle.append((pooled, time.monotonic()))
        else:
            pooled.close()

    def _doubt(self, *_: Any) -> None:
        """Let the pool test every connection, since one of the engine's was found broken."""
        self.close()

    def close(self) -> None:
        """Return every connection to the pool."""
        while self._idle:
            self._idle.pop()[0].close()

    def _before_fork(self) -> None:
        """Leave SQLite's file closed for the child, for which other threads get a second."""
        if not self._opened.on_file:
            return
        until = time.monotonic() + (0.0 if self.here.inside else _TURN_S)
        self._held = self.turn.acquire(timeout=max(0.0, until - time.monotonic()))
        self.close()
        while self._is_used() and time.monotonic() < until:
            time.sleep(0.001)
            self.close()
        if not self._is_used():
            self.engine.dispose()

    def _is_used(self) -> bool:
        pool = self.engine.pool
        return isinstance(pool, QueuePool) and pool.checkedout() > 0

    def _after_fork(self) -> None:
        held, self._held = self._held, False
        if held:
            self.turn.release()

    def _in_child(self) -> None:
        self._renew()
        self._opened.in_child()
        self._idle = deque()


class _Here(threading.local):
    """What a thread is in: ``inside`` has its transactions on SQLite."""

    def __init__(self) -> None:
        self.inside: WeakSet[object] = WeakSet()


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
        return _OnSqlite(at_hand, "IMMEDIATE" if write else "DEFERRED", durable, patience_ms)
    return _OnPostgresql(
        at_hand,
        isolation=IsolationLevel.REPEATABLE_READ if snapshot else None,
        pipelined=pipelined and _PIPELINES,
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
        return _OnSqlite(at_hand, "IMMEDIATE", True, patience_ms)
    return _OnPostgresql(at_hand, autocommit=True)


class _OnSqlite:
    """A transaction on SQLite, where every query sees one state of the database anyway.

    Threads of one store that write take turns at a lock of its own: SQLite would have each sleep
    and try again, up to 0.1 s at a time, and whoever is awake goes first. It decides all the same
    where a turn does not come within a second.
    """

    __slots__ = (
        "__weakref__",
        "_at_hand",
        "_durable",
        "_has_turn",
        "_mode",
        "_patience_ms",
        "_pooled",
    )

    def __init__(
        self, at_hand: AtHand, mode: str, durable: bool, patience_ms: int | None = None
    ) -> None:
        self._at_hand = at_hand
        self._mode = mode
        self._durable = durable
        self._patience_ms = patience_ms
        self._has_turn = False
        self._pooled: Any = None

    def __enter__(self) -> DriverConnection:
        """Take a connection and begin; an interruption anywhere leaves nothing of that."""
        try:
            return self._begin()
        except BaseException:
            self._give_up()
            raise

    def _begin(self) -> DriverConnection:
        at_hand, patience = self._at_hand, self._patience_ms
        at_hand.here.inside.add(self)
        if self._mode == "IMMEDIATE":
            turn_s = _TURN_S if patience is None else min(_TURN_S, patience / 1000)
            self._has_turn = at_hand.turn.acquire(timeout=turn_s)
        pooled = self._pooled = at_hand.take()
        begin(pooled, self._mode, durable=self._durable, patience_ms=patience)
        return DriverConnection(pooled.dbapi_connection, at_hand.dialect, at_hand.keys)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit; on an error, give the connection to the pool, which rolls back."""
        try:
            if error is None:
                self._pooled.dbapi_connection.commit()
                pooled, self._pooled = self._pooled, None
                self._at_hand.put_back(pooled)
        finally:
            self._give_up()

    def __del__(self) -> None:
        """Leave nothing open, where `__exit__` was interrupted before it had begun."""
        if getattr(self, "_has_turn", False) or getattr(self, "_pooled", None) is not None:
            self._give_up()

    def _give_up(self) -> None:
        pooled, self._pooled = self._pooled, None
        try:
            if pooled is not None:
                pooled.close()
        finally:
            self._end_turn()

    def _end_turn(self) -> None:
        inside, turn = self._at_hand.here.inside, self._at_hand.turn
        inside.discard(self)
        if self._has_turn or (self._mode == "IMMEDIATE" and not inside):
            # Had, perhaps, when an interruption came before that was noted; or in the parent.
            with suppress(RuntimeError):
                turn.release()
            self._has_turn = False


class _OnPostgresql:
    """A transaction on PostgreSQL, whose driver begins it with the first statement."""

    __slots__ = (
        "_at_hand",
        "_autocommit",
        "_before",
        "_isolation",
        "_pipeline",
        "_pipelined",
        "_pooled",
        "_settings",
    )

    def __init__(
        self,
        at_hand: AtHand,
        *,
        isolation: IsolationLevel | None = None,
        pipelined: bool = False,
        settings: str = "",
        autocommit: bool = False,
    ) -> None:
        self._at_hand = at_hand
        self._isolation = isolation
        self._pipelined = pipelined
        self._settings = settings
        self._autocommit = autocommit
        self._before: IsolationLevel | None = None
        self._pipeline: AbstractContextManager[Pipeline] | None = None
        self._pooled: Any = None

    def __enter__(self) -> DriverConnection:
        """Take a connection, and set what is for this transaction alone."""
        try:
            return self._begin()
        except BaseException:
            self._give_up()
            raise

    def _begin(self) -> DriverConnection:
        self._pooled = self._at_hand.take()
        raw: psycopg.Connection[Any] = self._pooled.dbapi_connection
        if self._isolation is not None:
            self._before = raw.isolation_level
            raw.isolation_level = self._isolation
        first = self._pooled.info.get(EACH)
        if first is not None:
            # What the settings need is a transaction, and a pipeline is more than a pooler may do.
            self._autocommit = self._pipelined = False
            raw.execute(first)
        if self._pipelined:
            pipeline = raw.pipeline()
            pipeline.__enter__()  # Python leaves it, should the next line not be reached.
            self._pipeline = pipeline
        if self._settings:
            raw.execute(self._settings)
        if self._autocommit:
            raw.autocommit = True
        return DriverConnection(raw, self._at_hand.dialect, self._at_hand.keys)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, or roll back on an error."""
        if error is not None:
            self._give_up()
            return
        try:
            self._pooled.dbapi_connection.commit()
            self._end_pipeline()
            self._as_it_was(self._pooled.dbapi_connection)
        except BaseException:
            self._give_up()
            raise
        pooled, self._pooled = self._pooled, None
        self._at_hand.put_back(pooled)

    def _end_pipeline(self) -> None:
        if self._pipeline is not None:
            pipeline, self._pipeline = self._pipeline, None
            pipeline.__exit__(None, None, None)

    def _as_it_was(self, raw: psycopg.Connection[Any]) -> None:
        if self._isolation is not None:
            raw.rollback()
            raw.isolation_level = self._before
        if self._autocommit:
            raw.autocommit = False

    def _give_up(self) -> None:
        """Return the connection to the pool, which rolls back; a broken one is thrown away."""
        pooled = self._pooled
        if pooled is None:
            return
        with suppress(psycopg.Error):  # What had failed is known already.
            self._end_pipeline()
        self._pooled = None
        if pooled.dbapi_connection.broken:
            pooled.invalidate()
        else:
            self._as_it_was(pooled.dbapi_connection)
        pooled.close()


def settings(*, durable: bool = True, patience_ms: int | None = None, brief: bool = False) -> str:
    """Return the statement that makes PostgreSQL's transaction so; empty if none is needed.

    One that is ``brief`` runs statements alone, and is ended early should its process be stopped.
    """
    chosen = [] if durable else ["set_config('synchronous_commit', 'off', true)"]
    if brief:
        chosen.append(BRIEF)
    if patience_ms is not None:
        chosen.append(f"set_config('lock_timeout', '{patience_ms}', true)")
    return f"SELECT {', '.join(chosen)}" if chosen else ""


def begin(pooled: Any, mode: str, *, durable: bool, patience_ms: int | None = None) -> None:
    """Begin a transaction on SQLite, at the sync level that its durability asks for.

    It waits for the lock as long as the store does, or for ``patience_ms`` if that is shorter.
    """
    info, connection = pooled.info, pooled.dbapi_connection
    # Of each transaction, also of one that begins by reading: nobody knows what it will write.
    level = info["synchronous"] if durable else "NORMAL"
    if info.get("current") != level:
        info["current"] = None
        connection.execute(f"PRAGMA synchronous={level}")
        info["current"] = level
    usual = info["busy_timeout_ms"]
    timeout = usual if patience_ms is None else min(patience_ms, usual)
    if info.get("timeout", usual) != timeout:
        info["timeout"] = None  # Not known, if what follows is interrupted.
        connection.execute(f"PRAGMA busy_timeout={timeout}")
        info["timeout"] = timeout
    connection.execute("BEGIN IMMEDIATE" if mode == "IMMEDIATE" else f"BEGIN {mode}")
