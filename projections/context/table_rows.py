"""Results of tools as compact tables, from the first request that contains them.

A table loses nothing (see `projections.context.compression.table_text`) and is the same in every
request, so that prompt caches keep working. It is a pure function of the row: computed when a
request first reads the row, cached in it, and counted once like every message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from projections.context.compression.table_text import table_text
from projections.context.counting import ENCODING
from projections.context.rows import ContextRow, counted
from projections.tokens import counts, tokenizer_for

__all__ = ["note_tables", "tabled_rows"]

_TOKENIZER = tokenizer_for(ENCODING)
_PRODUCTS = frozenset({"tool_use", "function_call", "custom_tool_call"})


def tabled_rows(rows: tuple[ContextRow, ...]) -> tuple[ContextRow, ...]:
    """Return the rows of a group with results as tables; the same tuple if there are none.

    Results of calls that the provider defines stay unchanged.
    """
    if len(rows) == 1:
        return rows
    note_tables(rows[1:])
    if not any([row.table for row in rows]) or _is_formal(rows[0]):  # noqa: C419 - no generator
        return rows
    return tuple([row.table or row for row in rows])


def note_tables(rows: Iterable[ContextRow]) -> None:
    """Set the table of each result; look up all counts that may be stored in one query."""
    made: list[tuple[ContextRow, dict[str, object]]] = []
    for row in rows:
        if row.kind == "tool" and row.table is None:
            row.note("table", False)
            if (message := _message(row)) is not None:
                made.append((row, message))
    if not made:
        return
    if len(made) > 1 and (stored := [message for row, message in made if not row.fresh]):
        counts.recall(stored, _TOKENIZER)
    for row, message in made:
        count = counts.count(message, _TOKENIZER, new=row.fresh)
        if count.tokens < row.tokens:
            table = row.with_(**counted(message, count, ENCODING))
            table.note("table", False)
            table.note("came", row)
            row.note("table", table)


def _message(row: ContextRow) -> dict[str, object] | None:
    """Return the message with its result as a table, or None if it has no table."""
    if row.result is None or row.encoding != ENCODING:
        return None
    text = row.message.get("content")
    if not isinstance(text, str) or _blocks(row):
        return None
    table = table_text(text)
    return None if table is None else {**row.message, "content": table}


def _is_formal(row: ContextRow) -> bool:
    """Whether an answer contains a call that the provider defines, with its own result format."""
    return any("call" in each and each.get("type") not in _PRODUCTS for each in _blocks(row))


def _blocks(row: ContextRow) -> Sequence[dict[str, object]]:
    """Return the provider-specific blocks of a message, or () if there are none."""
    native: object = row.native
    blocks = native.get("content") if isinstance(native, dict) else None
    return blocks if isinstance(blocks, list) else ()
