"""How every table looks: one frame, harmless text, colours that tell how something ended."""

from __future__ import annotations

from rich.box import Box
from rich.table import Column, Table
from rich.text import Text

from agent_eventstore.cli.text import shown

__all__ = ["cell", "fixed", "flexible", "grid", "number", "status_cell", "wrapped"]

# Only the header is underlined; neighbours stand two cells apart.
_FRAME = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")

_STYLES = {
    **dict.fromkeys(("success", "complete", "completed", "ok", "kept"), "green"),
    **dict.fromkeys(("failed", "error", "destroyed", "timeout", "network", "provider"), "red"),
    **dict.fromkeys(("cancelled", "interrupted", "outcome_unknown"), "yellow"),
    **dict.fromkeys(("aborted", "max_steps"), "yellow"),
    **dict.fromkeys(("running", "streaming", "pending", "requested", "started", "active"), "cyan"),
    **dict.fromkeys(("withdrawn", "skipped", "denied", "not_started", "dropped"), "magenta"),
}


def grid(*columns: Column) -> Table:
    """Return an empty table with these columns; as wide as the terminal if one is flexible."""
    return Table(
        *columns,
        box=_FRAME,
        expand=any(column.ratio for column in columns),
        header_style="bold",
        pad_edge=False,
        padding=(0, 1, 0, 0),
        show_edge=False,
    )


def fixed(header: str, width: int | None = None) -> Column:
    """Return a column that is never broken, and ends in an ellipsis beyond ``width`` cells."""
    return Column(header, no_wrap=True, overflow="ellipsis", max_width=width)


def number(header: str) -> Column:
    """Return a column of numbers."""
    return Column(header, justify="right", no_wrap=True)


def flexible(header: str, *, fold: bool = False) -> Column:
    """Return a column that takes what room there is.

    What is longer ends in an ellipsis, or with ``fold`` goes on below.
    """
    return Column(header, no_wrap=not fold, overflow="fold" if fold else "ellipsis", ratio=1)


def wrapped(header: str) -> Column:
    """Return a column as wide as its texts, which are broken where the table gets too wide."""
    return Column(header, overflow="fold")


def cell(text: object | None, style: str = "") -> Text:
    """Return a cell that shows a text as it is, and nothing for None."""
    return Text("" if text is None else shown(str(text)), style=style)


def status_cell(status: str | None) -> Text:
    """Return a cell for a status, in its colour."""
    return cell(status, _STYLES.get(status or "", ""))
