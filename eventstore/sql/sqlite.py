"""Transactions on SQLite: how one begins, at which sync level, and whose turn it is to write."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any

from eventstore.sql.at_hand import TURN_S, AtHand
from eventstore.sql.dialect import DriverConnection

__all__ = ["OnSqlite", "begin"]


class OnSqlite:
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
            turn_s = TURN_S if patience is None else min(TURN_S, patience / 1000)
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
