"""The figures as tables: on the terminal, and as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from rich.console import Console
from rich.table import Table

from benchmarks.results import HEADINGS, Work

__all__ = ["markdown", "print_work"]

_HOW_TO_READ = (
    "The candidates of a benchmark take turns, unless its note says otherwise. The first is the "
    "floor, or the one that the others are compared with. A ratio compares the time per event if "
    "events are counted; lower is better. A p99 needs at least 20 times."
)


def print_work(console: Console, done: Work) -> None:
    """Print a work as a table."""
    table = Table(
        title=done.name,
        title_justify="left",
        caption=done.note,
        caption_justify="left",
        min_width=60,
    )
    for number, heading in enumerate(HEADINGS[1:]):
        table.add_column(heading, justify="right" if 0 < number < 5 else "left")
    for line in done.lines:
        table.add_row(*line.cells)
    console.print(table)


def markdown(about: Iterable[str], done: Sequence[Work]) -> str:
    """Return a page of Markdown: how it was measured, one table, and the notes."""
    wanted = [line for each in done for line in each.lines if line.target]
    reached = sum(line.reached.startswith("yes") for line in wanted)
    notes: dict[str, list[str]] = {}
    for each in done:
        notes.setdefault(each.note, []).append(each.name)
    rows = chain.from_iterable(
        (
            _row((each.name if place == 0 else "", *line.cells))
            for place, line in enumerate(each.lines)
        )
        for each in done
    )
    page = [
        "# Benchmarks",
        "",
        *(f"- {sentence}" for sentence in about),
        f"- {reached} of {len(wanted)} targets reached.",
        "",
        _HOW_TO_READ,
        "",
        _row(HEADINGS),
        _row(("---", "---", *("---:",) * 4, "---", "---")),
        *rows,
        "",
        "## Notes",
        "",
        *(f"- **{', '.join(names)}**: {note}" for note, names in notes.items() if note),
    ]
    return "\n".join(page) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
