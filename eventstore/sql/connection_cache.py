"""A store's connections at hand: taken from the pool for the hot paths, and kept for a while.

Measured: taking a connection from the pool and wrapping it is half of an append's cost outside the
database.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from copy import copy
from typing import Any, Unpack
from weakref import WeakSet

from sqlalchemy import Engine, event
from sqlalchemy.pool import QueuePool

from eventstore.processes import at_fork
from eventstore.security.sealing import OPTION, Keyring
from eventstore.sql.backend import Backend, DriverConnection, TransactionOptions, backend_of
from eventstore.sql.pools import is_closed
from eventstore.sql.row_security import OWNER
from eventstore.sql.sessions import USER, ConnectionSettings, Opened

__all__ = ["TURN_S", "ConnectionCache"]

TURN_S = 1.0
"""How long a thread waits for its turn to write to SQLite, in seconds."""


class ConnectionCache:
    """A store's connections for `transaction`: taken from the pool, and kept for a while.

    Safe to share between threads. A server connection that was idle for longer than a second, or
    that has received anything, returns to the pool, which tests it before using it again.

    Settings and isolation are the same as through SQLAlchemy, without its connection object.
    """

    def __init__(self, engine: Engine, keep: int) -> None:
        self.engine = engine
        self.keys: Keyring | None = engine.get_execution_options().get(OPTION)
        self.speaks_for: Sequence[str] = engine.get_execution_options().get(OWNER, ())
        """The first statements of each transaction: they name the owner whose rows it may see."""
        self.patience_ms = ConnectionSettings.of(engine.url).patience_ms
        self._keep = keep
        self._idle: deque[tuple[Any, float]] = deque()
        self._opened = Opened(engine)
        self._renew()
        # One of the engine's connections was found broken, so let the pool test all of them.
        event.listen(engine, "invalidate", lambda *_: self.close())
        at_fork(self._before_fork, self._after_fork, self._in_child)

    @property
    def backend(self) -> Backend:
        """The engine's backend, which its first connection may have changed."""
        return backend_of(self.engine)

    def _renew(self) -> None:
        self.turn = threading.RLock()
        """Held by the thread that writes to SQLite."""
        self.here = _Here()
        """``inside`` holds this thread's open SQLite transactions."""
        self._has_turn = False

    def within(self, engine: Engine) -> ConnectionCache:
        """Return the same connections for a variant of the engine with its own options."""
        made = copy(self)
        made.engine, made.speaks_for = engine, engine.get_execution_options().get(OWNER, ())
        return made

    def transaction(
        self, **options: Unpack[TransactionOptions]
    ) -> AbstractContextManager[DriverConnection]:
        """Return a context manager for a connection in a transaction, committed at its end."""
        return self.backend.transaction(self, **options)

    def statement(
        self, *, patience_ms: int | None = None
    ) -> AbstractContextManager[DriverConnection]:
        """Return a durable `transaction` for a single statement that writes."""
        return self.backend.statement(self, patience_ms=patience_ms)

    def take(self) -> Any:
        """Return a pooled connection."""
        while self._idle:
            try:
                pooled, since = self._idle.pop()
            except IndexError:  # another thread took it
                break
            if self._opened.is_parents:
                self._in_child()
            elif time.monotonic() - since < self.backend.fresh_s and self._is_silent(pooled):
                self._opened.check()
                pooled.info[USER] = threading.get_ident()
                return pooled
            else:
                pooled.close()
        return self.engine.raw_connection()

    def _is_silent(self, pooled: Any) -> bool:
        try:
            return self.backend.is_silent(pooled.driver_connection)
        except Exception:  # of a driver, whose connection is closed
            return False

    def put_back(self, pooled: Any) -> None:
        """Keep a connection that has no transaction open, or return it to the pool."""
        if len(self._idle) < self._keep:
            self._idle.append((pooled, time.monotonic()))
            if is_closed(self.engine.pool):  # nothing else would close this connection
                self.close()
        else:
            pooled.close()

    def close(self) -> None:
        """Return every connection to the pool."""
        while self._idle:
            self._idle.pop()[0].close()

    def _before_fork(self) -> None:
        """Close SQLite's file before a fork; other threads get a second to finish with it."""
        if not self._opened.on_file:
            return
        until = time.monotonic() + (0.0 if self.here.inside else TURN_S)
        self._has_turn = self.turn.acquire(timeout=max(0.0, until - time.monotonic()))
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
        had_turn, self._has_turn = self._has_turn, False
        if had_turn:
            self.turn.release()

    def _in_child(self) -> None:
        self._renew()
        self._opened.in_child()
        self._idle.clear()  # Variants of this object share it.


class _Here(threading.local):
    """The state of a thread: ``inside`` holds its open SQLite transactions."""

    def __init__(self) -> None:
        self.inside: WeakSet[object] = WeakSet()
