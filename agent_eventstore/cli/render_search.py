"""What a search has found, as a table for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from agent_eventstore.cli.console import cell, fixed, flexible, grid, number, one_line
from projections import SearchHit

__all__ = ["search_table"]

_ID_CELLS = 36


def search_table(hits: Sequence[SearchHit]) -> Table:
    """Return the messages, each under its conversation's id, which stands whole, to be copied."""
    found = flexible("conversation and message")
    found.min_width = _ID_CELLS
    table = grid(found, fixed("role"), number("#"))
    for hit in hits:
        title = cell(one_line(hit.title or "(untitled)"), "bold")
        shown = Text("\n").join((title, cell(hit.conversation_id, "dim"), _marked(hit)))
        table.add_row(shown, cell(hit.role), cell(hit.version))
    return table


def _marked(hit: SearchHit) -> Text:
    parts, end = [], 0
    for first, last in hit.marks:
        parts += [cell(one_line(hit.snippet[end:first])), cell(hit.snippet[first:last], "bold red")]
        end = last
    return Text(" ").join([part for part in [*parts, cell(one_line(hit.snippet[end:]))] if part])
