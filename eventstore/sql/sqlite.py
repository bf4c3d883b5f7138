"""SQLite: its SQL, its values and its transactions (sync levels, and turns of writing threads)."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Connection, Engine

from eventstore.errors import ErrorType, Traceback
from eventstore.events.base import utc_now
from eventstore.sql.backend import (
    EVENT_COLUMNS,
    READABLE_TIME,
    AnyConnection,
    Backend,
    Bound,
    Columns,
    DriverConnection,
    FeedOrder,
    Pooled,
    Rows,
    TransactionOptions,
    cursor,
)
from eventstore.sql.connection_cache import TURN_S
from eventstore.sql.steps import AppendStep
from eventstore.sql.types import text_to_id, text_to_time, time_to_text

__all__ = ["SQLITE", "begin"]

# PostgreSQL's casts and row locks, which SQLite does not need: a lock there covers the whole file.
_CAST = re.compile(r"::[a-z0-9]+(?:\[\])?")
_ANY = re.compile(r"= ANY\((:[a-z_]+)\)")
_LOCKS = re.compile(r" FOR (?:UPDATE|SHARE)\b")


_LONGEST_VALUE = 50_000_000
_READS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_UNSAFE_FUNCTIONS = frozenset({"load_extension", "writefile", "readfile", "edit", "fts3_tokenizer"})


def _sql(statement: str) -> str:
    adapted = statement.replace(READABLE_TIME, "recorded_at")
    adapted = _LOCKS.sub("", _CAST.sub("", adapted)).replace("IS NOT DISTINCT FROM", "IS")
    return _ANY.sub(r"IN (SELECT value FROM json_each(\1))", adapted)


_TABLE_AND_TRIGGERS = """
    SELECT type, name FROM sqlite_master WHERE tbl_name = ? AND type IN ('table', 'trigger')
    ORDER BY type DESC
    """
_ROWS_TOGETHER = 20  # per statement; stays below every SQLite build's limit on variables
_HEAD = """
    UPDATE conversations SET version = ?, chain = ?, last_active_at = ?
    WHERE conversation_id = ? AND version = ? AND chain = ? AND writer_epoch = ?
    """
# FAIL, here and in the trigger: with ABORT, SQLite copies each page that a statement with a trigger
# changes, so that it can undo this statement alone; a refused row has changed none.
_EVENTS = """
    INSERT OR FAIL INTO events (conversation_id, version, event_id, type, schema_version,
        recorded_at, data, meta, salt, data_digest, chain)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    """
_MATCHING = """
    SELECT count(*) FROM json_each(?) AS wanted JOIN events
        ON conversation_id = json_extract(wanted.value, '$[0]')
        AND version = json_extract(wanted.value, '$[1]')
        AND hex(chain) = json_extract(wanted.value, '$[2]')
    """
# One writer at a time: positions are assigned in the order of commits.
_FEED = FeedOrder(
    prefix="s2",
    place=("position",),
    new_place=MappingProxyType({}),
    page=_sql(f"SELECT {EVENT_COLUMNS}, position FROM events WHERE position >= :position ")  # noqa: S608 - constants
    + "ORDER BY position LIMIT :page_size",
    end="SELECT position, chain FROM events ORDER BY position DESC LIMIT 1",
    behind="SELECT conversation_id, position, chain, 1 FROM events WHERE position > :position "
    "ORDER BY position LIMIT :page_size",
    at="SELECT position, chain FROM events WHERE position = :position",
    gained="SELECT DISTINCT conversation_id FROM events WHERE position > :position",
    newest="SELECT max(position), NULL FROM events",
    lag="SELECT 0, NULL",
    holder="SELECT NULL WHERE 0",
    follows="SELECT 0",
)


class _Sqlite(Backend):
    name = "sqlite"
    mark = "?"
    locks_all = True
    secures_rows = False
    has_standbys = False
    has_partitions = False
    for_update = ""
    json_object = "json_object"
    snapshot = MappingProxyType(dict[str, str]())
    table_exists = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = :name"
    clock_s = "unixepoch()"
    analyse = ()
    encoding = "PRAGMA encoding"
    lock_schema = ()
    keep_schema = ""
    drop_beside = "DROP TABLE IF EXISTS {}"
    fresh_s = math.inf
    feed = _FEED
    from_id = staticmethod(str)
    to_id = staticmethod(text_to_id)
    from_time = staticmethod(time_to_text)
    to_time = staticmethod(text_to_time)
    from_digest = to_digest = staticmethod(bytes)
    array = staticmethod(json.dumps)

    def sql(self, statement: str) -> str:
        return _sql(statement)

    def as_stored(self, column: str) -> str:
        return f"CAST({column} AS BLOB)"  # An altered value may no longer be text.

    def reading(self, connection: AnyConnection) -> Any:
        return cursor(connection)

    def transaction(self, at_hand: Pooled, **options: Unpack[TransactionOptions]) -> _Transaction:
        write = options.get("write", False)
        # A reader commits nothing, so the connection's sync level does not matter.
        durable = options.get("durable", True) if write else None
        mode = "IMMEDIATE" if write else "DEFERRED"
        return _Transaction(at_hand, mode, durable, options.get("patience_ms"))

    def settings(self, *, durable: bool, patience_ms: int | None, usual_ms: int) -> Sequence[str]:
        return ()  # `begin` has applied them.

    def now(self, connection: AnyConnection) -> datetime:
        return utc_now()

    def statement(self, at_hand: Pooled, *, patience_ms: int | None = None) -> _Transaction:
        return _Transaction(at_hand, "IMMEDIATE", True, patience_ms)

    def advance(self, cur: Any, steps: Sequence[AppendStep], *, wait: bool = True) -> None:
        rows: list[tuple[Any, ...]] = []
        taken: list[AppendStep] = []
        now = time_to_text(steps[0].now)
        for step in steps:
            known, head = step.known, step.head
            cur.execute(
                _HEAD,
                (
                    head.version,
                    head.chain,
                    now,
                    head.stream,
                    known.version,
                    known.chain,
                    known.epoch,
                ),
            )
            if cur.rowcount == 1:
                rows += _rows(step, now)
                taken.append(step)
        if not rows:
            return
        if len(rows) > 1:
            cur.executemany(_EVENTS, rows[:-1])
        last = cur.execute(_EVENTS, rows[-1]).lastrowid  # not set by `executemany`
        # There is one writer, so positions have no gap up to the last row.
        position = last - len(rows) + 1
        for step in taken:
            step.positions = range(position, position + len(step.events))
            position += len(step.events)

    def pin(self, connection: AnyConnection, conversation_id: UUID) -> None:
        """Nothing to do: it cannot move."""

    def is_locked(self, cur: Any, conversation_id: UUID) -> bool:
        return False

    def lock(
        self, connection: AnyConnection, table: str, keys: Sequence[str], *, exclusive: bool
    ) -> None:
        """Nothing to do: there is one writer at a time."""

    def count_matching(self, cur: Any, places: Sequence[tuple[Any, int, bytes | None]]) -> int:
        hexed = [
            [stream, version, (chain or b"").hex().upper()] for stream, version, chain in places
        ]
        return int(cur.execute(_MATCHING, [json.dumps(hexed)]).fetchone()[0])

    def insert(
        self, table: str, columns: Columns, rows: Rows, *, otherwise: str = "DO NOTHING"
    ) -> Bound:
        return Bound(f"{_insert(table, columns)} ON CONFLICT {otherwise}", rows)

    def load(
        self, cur: Any, table: str, columns: Columns, rows: Rows, *, triggers: bool = False
    ) -> None:
        whole = 0
        if triggers:
            # A statement that fires a trigger copies each page that it changes to a separate file,
            # so that it can be undone by itself.
            whole = len(rows) // _ROWS_TOGETHER * _ROWS_TOGETHER
            for start in range(0, whole, _ROWS_TOGETHER):
                some = chain.from_iterable(rows[start : start + _ROWS_TOGETHER])
                cur.execute(_insert(table, columns, _ROWS_TOGETHER), list(some))
        cur.executemany(_insert(table, columns), rows[whole:])

    def query(
        self, engine: Engine, statement: str, *, limit: int, timeout_s: float
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run it in the mode ``ro``, with an authorizer that allows nothing but reading."""
        path = engine.url.database
        if not path or path == ":memory:" or path.startswith("file:"):
            raise ValueError("a database in memory cannot be queried from here")
        address = f"{Path(path).resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=timeout_s)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
            end = time.monotonic() + timeout_s
            connection.set_progress_handler(lambda: int(time.monotonic() > end), 10_000)
            connection.set_authorizer(_only_reads)
            found = connection.execute(statement)
            rows = found.fetchmany(limit)
            return [column[0] for column in found.description or ()], rows

    def empty(self, connection: Connection, table: str) -> None:
        # Within a transaction, a drop first copies each page to a separate file, so that it can be
        # undone by itself; without triggers, deleting all rows does not.
        for kind, name in connection.exec_driver_sql(_TABLE_AND_TRIGGERS, (table,)).all():
            removing = "DELETE FROM" if kind == "table" else "DROP TRIGGER"
            connection.exec_driver_sql(f'{removing} "{name}"')

    def point_view(self, connection: Connection, name: str, query: str) -> None:
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {query}")

    def fills(self, table: str, columns: Sequence[str], query: str) -> Sequence[str]:
        fill = f"UPDATE {table} SET ({', '.join(columns)}) = ({query}) WHERE rowid = new.rowid"  # noqa: S608 - names
        return (f"CREATE TRIGGER {table}_filled AFTER INSERT ON {table} BEGIN {fill}; END",)


def _only_reads(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _UNSAFE_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY


def _insert(table: str, columns: Columns, count: int = 1) -> str:
    names, marks = ", ".join(f'"{name}"' for name in columns), ", ".join("?" * len(columns))
    rows = ", ".join([f"({marks})"] * count)
    return f'INSERT INTO "{table}" ({names}) VALUES {rows}'  # noqa: S608 - names of columns


def _rows(step: AppendStep, now: str) -> list[tuple[Any, ...]]:
    stream = step.known.stream
    return [
        (
            stream,
            version,
            event.id_text,
            event.data.type,
            event.data.schema_version,
            now,
            event.text,
            event.meta_text,
            event.salt,
            event.digest,
            chain,
        )
        for version, (event, chain) in enumerate(
            zip(step.events, step.chains, strict=True), start=step.known.version + 1
        )
    ]


SQLITE = _Sqlite()


class _Transaction:
    """A transaction on SQLite, where every query sees one state of the database anyway.

    The writing threads of one store take turns with the store's own lock: SQLite would have each of
    them sleep and retry, up to 0.1 s at a time, and the first awake would win. If a thread's turn
    does not come within a second, SQLite's lock decides after all.
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
        self, at_hand: Pooled, mode: str, durable: bool | None, patience_ms: int | None = None
    ) -> None:
        self._at_hand = at_hand
        self._mode = mode
        self._durable = durable
        self._patience_ms = patience_ms
        self._has_turn = False
        self._pooled: Any = None

    def __enter__(self) -> DriverConnection:
        """Take a connection and begin; an interruption at any point leaves nothing behind."""
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
        return DriverConnection(pooled.dbapi_connection, at_hand.backend, at_hand.keys)

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """Commit; on an error, return the connection to the pool, which rolls back."""
        try:
            if error is None:
                self._pooled.dbapi_connection.commit()
                pooled, self._pooled = self._pooled, None
                self._at_hand.put_back(pooled)
        finally:
            self._give_up()

    def __del__(self) -> None:
        """Clean up if `__exit__` was interrupted before it began."""
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
            # An interruption may have come before `_has_turn` was set; or the parent had the turn.
            with suppress(RuntimeError):
                turn.release()
            self._has_turn = False


def begin(pooled: Any, mode: str, *, durable: bool | None, patience_ms: int | None = None) -> None:
    """Begin a transaction on SQLite, at the sync level that its durability requires.

    With ``durable`` None, for transactions that write nothing, the level stays as it is. It waits
    for the lock as long as the store does, or for ``patience_ms`` if that is shorter.
    """
    info, connection = pooled.info, pooled.dbapi_connection
    # SQLAlchemy's transactions always set it, even if they begin by reading: they may write later.
    if durable is not None:
        level = info["synchronous"] if durable else "NORMAL"
        if info.get("current") != level:
            info["current"] = None
            connection.execute(f"PRAGMA synchronous={level}")
            info["current"] = level
    usual = info["busy_timeout_ms"]
    timeout = usual if patience_ms is None else min(patience_ms, usual)
    if info.get("timeout", usual) != timeout:
        info["timeout"] = None  # Unknown if the next statement is interrupted.
        connection.execute(f"PRAGMA busy_timeout={timeout}")
        info["timeout"] = timeout
    connection.execute("BEGIN IMMEDIATE" if mode == "IMMEDIATE" else f"BEGIN {mode}")
