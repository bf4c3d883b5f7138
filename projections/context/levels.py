"""A row's lower levels of detail: computed when a request first needs them, then cached in the row.

A fold computes none, since no request ever needs them for most rows. Lower levels are a pure
function of the row: about 0.25 ms each, which is less than it costs to store and to find them.

The product's own text for a level (document 004, ``sections``) takes precedence over a computed
one. A row has no level that is not shorter than the level above it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from eventstore.blobs import alias_of
from eventstore.ids import call_id
from projections.context.compression.facts import Fact
from projections.context.compression.lasting import facts_to_keep
from projections.context.compression.shortening import Preview, ends, is_short, shorten
from projections.context.counting import ENCODING
from projections.context.limits import content_chars
from projections.context.rows import ContextRow, counted
from projections.tokens import Count, Tokenizer, count_message, counts, tokenizer_for

__all__ = ["Lower", "ends_of", "lower", "prepare", "prepare_new"]

_TOKENIZER = tokenizer_for(ENCODING)


class Lower(NamedTuple):
    """A row's lower levels of detail.

    Attributes:
        shortened: The shortened message; None if there is no shorter form.
        tokens: The shortened message's tokens, counted like the row's own.
        facts: The message's facts for a digest.
    """

    shortened: dict[str, Any] | None = None
    tokens: int | None = None
    facts: tuple[Fact, ...] = ()


_NONE = Lower()


def lower(row: ContextRow) -> Lower:
    """Return the lower levels of a row, computed once and cached in the row."""
    found: Lower | None = row.noted
    if found is None:
        found = _made(row, _shorter(row), counts.count) if _has_levels(row) else _NONE
        row.note("noted", found)
    return found


def ends_of(row: ContextRow, most_bytes: int) -> ContextRow:
    """Return a row with the two ends of its text and arguments; the same row if that is not less.

    It is what a group is sent as if no other form of it fits; see `shortening.ends`.
    """
    if not _has_levels(row) or row.kind == "error":
        return row
    if row.ends is None:
        row.note("ends", {})
    if most_bytes not in row.ends:
        row.ends[most_bytes] = _ends_of(row, most_bytes)
    made: ContextRow = row.ends[most_bytes]
    return made


def _ends_of(row: ContextRow, most_bytes: int) -> ContextRow:
    came = row.came or row
    message = ends(came.message, most_bytes, _preview(came))
    if message is None:
        return row
    count = counts.count(message, _TOKENIZER)
    if count.tokens >= row.tokens:
        return row
    made = row.with_(**counted(message, count, ENCODING), native=None)
    made.note("noted", _NONE)
    return made


def prepare(rows: Iterable[ContextRow]) -> None:
    """Compute the lower levels of many rows, with one query for their token counts."""
    lacking = [row for row in rows if row.noted is None]
    made = [(row, _shorter(row)) for row in lacking if _has_levels(row)]
    counts.recall([shorter for row, shorter in made if shorter and not row.fresh], _TOKENIZER)
    for row, shorter in made:
        row.note("noted", _made(row, shorter, partial(counts.count, new=row.fresh)))


def prepare_new(rows: Iterable[ContextRow]) -> None:
    """Compute the lower levels of rows that this process has folded, before a step needs them."""
    for row in rows:
        if row.fresh and row.noted is None and _has_levels(row):
            row.note("noted", _made(row, _shorter(row), count_message))


def _has_levels(row: ContextRow) -> bool:
    if row.kind == "tool":
        return row.result is not None  # A row without it is a placeholder.
    return row.kind in ("user", "assistant", "error")


def _shorter(row: ContextRow) -> dict[str, Any] | None:
    """Return the shortened message, or None if it has more characters; counts no tokens."""
    message, given = row.message, row.given or {}
    if row.kind == "error":
        return _with_content(message, given.get("shortened"))
    if "shortened" in given:
        shorter = _with_content(message, given["shortened"])
    elif row.table and is_short(row.table.message["content"], message["content"]):
        shorter = row.table.message
    else:
        shorter = shorten(message, _preview(row))
    if shorter is None or content_chars(shorter) > content_chars(message):
        return None
    return shorter


def _preview(row: ContextRow) -> Preview | None:
    if row.result is None:
        return None
    preview = Preview(**row.result)
    if preview.path is None:
        alias = alias_of(call_id(row.version, row.part - 1), str(row.message["content"]))
        preview = preview._replace(path=alias)
    return preview


def _made(
    row: ContextRow,
    shorter: dict[str, Any] | None,
    count: Callable[[dict[str, Any], Tokenizer], Count],
) -> Lower:
    table = row.table or None
    if shorter is None:
        tokens = None
    elif table is not None and table.message == shorter:
        tokens = table.tokens  # Already counted: most shortened results are the table itself.
    else:
        tokens = count(shorter, _TOKENIZER).tokens
    if tokens is None or tokens >= row.tokens:
        shorter = tokens = None
    if row.kind == "error":
        return Lower(shorter, tokens)
    message = {"role": row.role, **row.message}
    return Lower(shorter, tokens, facts_to_keep((message,), (shorter or row.message,)))


def _with_content(message: Mapping[str, Any], content: str | None) -> dict[str, Any] | None:
    return None if content is None else {**message, "content": content}
