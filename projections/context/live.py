"""Sends only the newest input in full and all others as summaries, for strategies that need this.

An input written without levels has the same text at each level, as in document 004.
"""

from __future__ import annotations

from collections.abc import Callable

from projections.context.compression.strategy import Strategy
from projections.context.detail import shortened
from projections.context.rows import ContextRow
from projections.context.source import RowSource

__all__ = ["as_it_is", "dimmer"]

_INPUTS = ("user", "tool")
_PAGE = 64


def as_it_is(row: ContextRow) -> ContextRow:
    """Return the row unchanged."""
    return row


def dimmer(strategy: Strategy, source: RowSource) -> Callable[[ContextRow], ContextRow]:
    """Return a function that gives each row its initial detail; `as_it_is` for most strategies."""
    if not getattr(strategy, "live_only_newest", False):
        return as_it_is
    inputs = (row.key for row in source.newest(_PAGE) if row.kind in _INPUTS)
    newest = next(inputs, None)

    def dim(row: ContextRow) -> ContextRow:
        written = row.kind in _INPUTS and row.given is not None
        return shortened(row) if written and row.key != newest else row

    return dim
