"""Questions in SQL from a page: read-only, within three seconds, and at most 500 rows.

`eventstore.database.run_query` refuses whatever is not a query. Only a request that no owner limits
may ask, because SQL does not know owners.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from sqlalchemy.exc import SQLAlchemyError

from agent_eventstore.server.viewer import rich_text
from eventstore import EventStore
from eventstore.database import run_query

__all__ = ["MOST_ROWS", "QUESTIONS", "SqlAnswer", "query"]

MOST_ROWS = 500
_LONGEST = 20_000
_SECONDS = 3.0
_CELL = 400

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
        names, rows = run_query(store, statement, limit=MOST_ROWS + 1, timeout_s=_SECONDS)
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
