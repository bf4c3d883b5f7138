"""Questions in SQL from a page: read-only, within three seconds, and at most 500 rows.

The connection is not one of the store's. On SQLite the file is opened in the mode ``ro``, with an
authorizer that allows nothing but reading; on PostgreSQL the transaction is READ ONLY with a
statement timeout, and always rolled back. Only a request that no owner limits may ask, because SQL
does not know owners.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from agent_eventstore.server.viewer import rich_text
from eventstore import EventStore

__all__ = ["MOST_ROWS", "QUESTIONS", "SqlAnswer", "query"]

MOST_ROWS = 500
_LONGEST = 20_000
_SECONDS = 3.0
_CELL = 400
_ALLOWED = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_REFUSED_FUNCTIONS = frozenset(
    {"load_extension", "writefile", "readfile", "edit", "fts3_tokenizer"}
)

QUESTIONS = (
    (
        "Which tools failed, and how often?",
        """SELECT name, count(*) AS calls,
       sum(CASE WHEN status IN ('failed', 'outcome_unknown') THEN 1 ELSE 0 END) AS failed
FROM tool_calls GROUP BY name ORDER BY failed DESC, name""",
    ),
    (
        "Which calls may have run, or not?",
        """SELECT conversation_id, name, arguments_text, requested_at
FROM tool_calls WHERE status = 'outcome_unknown' ORDER BY requested_at DESC""",
    ),
    (
        "What did each day cost?",
        """SELECT day, model, count(*) AS calls, sum(total_tokens) AS tokens,
       sum(cost_usd) AS dollars
FROM usage_by_call WHERE model IS NOT NULL GROUP BY day, model ORDER BY day DESC, model""",
    ),
    (
        "Which results were the largest?",
        """SELECT name, result_size_chars, conversation_id, call_id
FROM tool_calls WHERE result_size_chars IS NOT NULL ORDER BY result_size_chars DESC LIMIT 20""",
    ),
)
"""The questions that the page offers."""


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """What a query returned; ``problem`` is empty if it succeeded."""

    names: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    more: bool = False
    milliseconds: float = 0.0
    problem: str = ""


def query(store: EventStore, statement: str) -> SqlAnswer:
    """Return the answer to a query, or the problem in the database's words."""
    if len(statement) > _LONGEST:
        return SqlAnswer(problem=f"the query is longer than {_LONGEST:,} characters")
    started = time.monotonic()
    try:
        if store.engine.dialect.name == "sqlite":
            names, rows = _sqlite(store, statement)
        else:
            names, rows = _postgresql(store, statement)
    except (sqlite3.Error, sqlite3.Warning, psycopg.Error, SQLAlchemyError, ValueError) as error:
        cause = getattr(error, "orig", None) or error
        words = str(cause).strip() or type(cause).__name__
        if words == "interrupted":
            words = f"it took longer than {_SECONDS:g} seconds"
        return SqlAnswer(problem=words.splitlines()[0])
    shown = [[_cell(value) for value in row] for row in rows[:MOST_ROWS]]
    took = 1_000 * (time.monotonic() - started)
    return SqlAnswer([str(name) for name in names], shown, len(rows) > MOST_ROWS, took)


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"x'{value[:40].hex()}'" + ("…" if len(value) > 40 else "")
    return rich_text.first_line(value, _CELL)


def _sqlite(store: EventStore, statement: str) -> tuple[Sequence[str], list[Any]]:
    path = store.engine.url.database
    if not path or path == ":memory:" or path.startswith("file:"):
        raise ValueError("a database in memory cannot be queried from here")
    address = f"{Path(path).resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=_SECONDS)) as connection:
        connection.execute("PRAGMA query_only = ON")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000_000)
        end = time.monotonic() + _SECONDS
        connection.set_progress_handler(lambda: int(time.monotonic() > end), 10_000)
        connection.set_authorizer(_authorized)
        cursor = connection.execute(statement)
        rows = cursor.fetchmany(MOST_ROWS + 1)
        return [column[0] for column in cursor.description or ()], rows


def _authorized(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _REFUSED_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _postgresql(store: EventStore, statement: str) -> tuple[Sequence[str], list[Any]]:
    with store.engine.connect() as connection:
        transaction = connection.begin()
        try:
            connection.execute(text("SET TRANSACTION READ ONLY"))
            connection.execute(text(f"SET LOCAL statement_timeout = {int(1_000 * _SECONDS)}"))
            with closing(connection.connection.cursor()) as cursor:
                # Only a query can be declared. In the binary format a text is one statement, so
                # that none can follow that ends the transaction.
                declared = f"DECLARE viewer_answer NO SCROLL CURSOR FOR {statement}"
                cursor.execute(declared.encode(), binary=True)  # type: ignore[call-arg]
                cursor.execute(f"FETCH {MOST_ROWS + 1} FROM viewer_answer")
                return [column[0] for column in cursor.description or ()], list(cursor.fetchall())
        finally:
            transaction.rollback()
