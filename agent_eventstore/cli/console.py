"""The two consoles, and how texts, numbers and tables look on them.

Results go to stdout; logs, progress and notes to stderr. Text is never interpreted as markup.
Consoles are created when needed, because a program that calls a command may have replaced the
streams.

Foreign text is made harmless (see `harmless`). All tables have the same frame, and colours for
statuses.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from typing import Any, NoReturn

import click
from rich.box import Box
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from agent_eventstore.cli.harmless import escaped, shown
from agent_eventstore.documents import event_document, plain
from agent_eventstore.transcripts.project import json_text

__all__ = [
    "ROLES",
    "Meter",
    "call",
    "cell",
    "cost",
    "count",
    "duration",
    "event_document",
    "fixed",
    "flexible",
    "grid",
    "moment",
    "note",
    "number",
    "place",
    "plural",
    "print_document",
    "progress_bar",
    "say",
    "status_cell",
    "stderr",
    "stdout",
    "wrapped",
    "write_json",
]


# Only the header is underlined; columns are two cells apart.
_FRAME = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")

_STYLES = {
    **dict.fromkeys(("success", "complete", "completed", "ok", "kept", "full"), "green"),
    **dict.fromkeys(("failed", "error", "destroyed", "timeout", "network", "provider"), "red"),
    **dict.fromkeys(("cancelled", "interrupted", "outcome_unknown"), "yellow"),
    **dict.fromkeys(("aborted", "max_steps"), "yellow"),
    **dict.fromkeys(("running", "streaming", "pending", "requested", "started", "active"), "cyan"),
    **dict.fromkeys(("withdrawn", "skipped", "denied", "not_started", "dropped"), "magenta"),
}


ROLES = {"user": "bold", "assistant": "cyan", "tool": "dim", "system": "magenta"}
"""The style of each role of a message."""


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Raise, so that the program decides how to end, instead of exiting here."""
        raise BrokenPipeError(32, "the pipe is closed")


def stdout() -> Console:
    """Return a console on stdout, as wide as the terminal, or 80 columns without one."""
    return _Console(highlight=False, markup=False, emoji=False)


def stderr() -> Console:
    """Return a console on stderr."""
    return _Console(stderr=True, highlight=False, markup=False, emoji=False)


def say(text: str, style: str = "") -> None:
    """Print a sentence of a result on stdout, unwrapped."""
    stdout().print(Text(shown(text), style=style), soft_wrap=True)


def note(text: str, style: str = "dim") -> None:
    """Print a message that is not part of the result on stderr, unwrapped."""
    stderr().print(Text(shown(text), style=style), soft_wrap=True)


def count(number: int | None) -> str:
    """Return a number with separators; empty for None."""
    return "" if number is None else f"{number:,}"


def plural(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "event"), plural(1200, "event")
    ('1 event', '1,200 events')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(milliseconds: float | None) -> str:
    """Return a duration in a suitable unit; empty for None.

    >>> duration(12), duration(1234), duration(61_000)
    ('12 ms', '1.2 s', '1:01 min')
    """
    if milliseconds is None:
        return ""
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02} min"


def cost(dollars: float | None) -> str:
    """Return an amount of US dollars, with four decimals if it is small; empty for None."""
    if dollars is None:
        return ""
    return f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:.4f}"


def moment(value: datetime | None) -> str:
    """Return a time in UTC, to the minute; empty for None."""
    return "" if value is None else f"{value:%Y-%m-%d %H:%M}"


def place(turn: int | None, step: int | None) -> str:
    """Return a turn, with its step if there is one; empty outside any turn."""
    if turn is None:
        return ""
    return str(turn) if step is None else f"{turn}.{step}"


def call(name: str | None, arguments: Any) -> str:
    """Return a tool call in the notation of code."""
    if isinstance(arguments, dict):
        inside = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    else:
        inside = "" if arguments is None else str(arguments)
    return f"{name or '?'}({inside})"


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
    """Return a column that never wraps, and ends in an ellipsis beyond ``width`` cells."""
    return Column(header, no_wrap=True, overflow="ellipsis", max_width=width)


def number(header: str) -> Column:
    """Return a column of numbers."""
    return Column(header, justify="right", no_wrap=True)


def flexible(header: str, *, fold: bool = False) -> Column:
    """Return a column that takes the remaining width.

    Longer text ends in an ellipsis, or wraps with ``fold``.
    """
    return Column(header, no_wrap=not fold, overflow="fold" if fold else "ellipsis", ratio=1)


def wrapped(header: str) -> Column:
    """Return a column as wide as its texts, which wrap if the table gets too wide."""
    return Column(header, overflow="fold")


def cell(text: object | None, style: str = "") -> Text:
    """Return a cell with a literal text; empty for None."""
    return Text("" if text is None else shown(str(text)), style=style)


def status_cell(status: str | None) -> Text:
    """Return a cell for a status, in the status's colour."""
    return cell(status, _STYLES.get(status or "", ""))


def print_document(value: Any) -> None:
    """Write a value to stdout as JSON, in UTF-8 regardless of the locale."""
    write_json(json_text(value, plain))


def write_json(text: str) -> None:
    """Write JSON text, or lines of it, to stdout."""
    click.echo((escaped(text) if sys.stdout.isatty() else text).encode(), nl=False)


class _Rate(ProgressColumn):
    """The number of events done, and the rate per second."""

    def render(self, task: Task) -> Text:
        events = int(task.fields["events"])
        seconds = task.elapsed or 0.0
        rate = f"{events / seconds:,.0f}/s" if seconds and events else ""
        return Text(f"{events:,} events {rate}".rstrip(), style="dim")


class Meter:
    """A progress bar being filled."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def update(self, done: float, total: float, events: int | None = None) -> None:
        """Show the progress.

        Args:
            done: The amount done, in any unit.
            total: The total amount, in the same unit.
            events: Events done so far; by default ``done`` counts events.
        """
        shown = int(done) if events is None else events
        self._progress.update(self._task, completed=done, total=total, events=shown)


@contextmanager
def progress_bar(what: str, *, console: Console | None = None) -> Iterator[Meter]:
    """Show a progress bar during the block.

    Args:
        what: A word for the work.
        console: Where to show the bar and leave it; by default it is shown on stderr, if that is a
            terminal, and removed at the end.
    """
    shown = console is not None or stderr().is_terminal
    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TaskProgressColumn("{task.percentage:>3.0f}%", markup=False),
        _Rate(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        console=console or stderr(),
        transient=console is None,
        disable=not shown,
    )
    # Rich before 14.1 prints an empty line at the end even for a bar that is not shown.
    with progress if shown else nullcontext():
        yield Meter(progress, progress.add_task(what, total=None, events=0))
