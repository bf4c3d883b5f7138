"""The two consoles, and how texts, numbers and tables look on them.

Results go to stdout; logs, progress and notes to stderr. Text is never read as markup, whoever
wrote it. Consoles are made when they are needed, because whoever calls a command from a program may
have replaced the streams.

Other people's text is made harmless: control characters could move the cursor, change colours or
turn the direction of writing, and invisible ones could hide what stands there, so each is shown as
its escape. Every table has one frame, and colours that tell how something ended.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any, NoReturn

import click
from pydantic import BaseModel
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

from agent_eventstore.formats.project import json_text
from eventstore.errors import EventStoreError
from eventstore.events import RecordedEvent
from eventstore.events.codec import encode

__all__ = [
    "Meter",
    "StderrHandler",
    "call",
    "cell",
    "cost",
    "count",
    "duration",
    "escaped",
    "event_document",
    "fixed",
    "flexible",
    "grid",
    "moment",
    "note",
    "number",
    "one_line",
    "place",
    "plural",
    "print_document",
    "progress_bar",
    "say",
    "shown",
    "status_cell",
    "stderr",
    "stdout",
    "wrapped",
    "write_json",
]


_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)

# Only the header is underlined; neighbours stand two cells apart.
_FRAME = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")

_STYLES = {
    **dict.fromkeys(("success", "complete", "completed", "ok", "kept", "full"), "green"),
    **dict.fromkeys(("failed", "error", "destroyed", "timeout", "network", "provider"), "red"),
    **dict.fromkeys(("cancelled", "interrupted", "outcome_unknown"), "yellow"),
    **dict.fromkeys(("aborted", "max_steps"), "yellow"),
    **dict.fromkeys(("running", "streaming", "pending", "requested", "started", "active"), "cyan"),
    **dict.fromkeys(("withdrawn", "skipped", "denied", "not_started", "dropped"), "magenta"),
}


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Let the program decide how it ends, instead of exiting here."""
        raise BrokenPipeError(32, "the pipe is closed")


def stdout() -> Console:
    """Return a console on stdout, as wide as the terminal, or 80 columns without one."""
    return _Console(highlight=False, markup=False, emoji=False)


def stderr() -> Console:
    """Return a console on stderr."""
    return _Console(stderr=True, highlight=False, markup=False, emoji=False)


def say(text: str, style: str = "") -> None:
    """Print a sentence of a result on stdout, unbroken however long."""
    stdout().print(Text(shown(text), style=style), soft_wrap=True)


def note(text: str, style: str = "dim") -> None:
    """Tell the user something beside the result, on stderr, unbroken however long."""
    stderr().print(Text(shown(text), style=style), soft_wrap=True)


class StderrHandler(logging.Handler):
    """Log records as lines on stderr that do not tear a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        note(f"{record.levelname.lower()} {record.name} {self.format(record)}")


def shown(text: str) -> str:
    """Return a text with its control characters as escapes; line breaks stay."""
    text = text.replace("\r\n", "\n").expandtabs(4)
    return _HARMFUL.sub(lambda found: ascii(found[0])[1:-1], text)


def escaped(document: str) -> str:
    """Return JSON text, or lines of it, that is harmless and has the same value."""
    # Such characters stand within texts only, where JSON has an escape for each.
    return _HARMFUL.sub(_as_json_escape, document)


def _as_json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def one_line(text: str, limit: int = 400) -> str:
    """Return the start of a text on one line, harmless, in about ``limit`` characters."""
    start = " ".join(text.lstrip()[: 4 * limit].split())
    return shown(start if len(start) <= limit else f"{start[:limit]}…")


def count(number: int | None) -> str:
    """Return a number with separators; nothing for None."""
    return "" if number is None else f"{number:,}"


def plural(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "event"), plural(1200, "event")
    ('1 event', '1,200 events')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(milliseconds: float | None) -> str:
    """Return a duration in the unit that suits it; nothing for None.

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
    """Return an amount of US dollars, with the places that a small one needs."""
    if dollars is None:
        return ""
    return f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:.4f}"


def moment(value: datetime | None) -> str:
    """Return a time in UTC, to the minute; nothing for None."""
    return "" if value is None else f"{value:%Y-%m-%d %H:%M}"


def place(turn: int | None, step: int | None) -> str:
    """Return a turn, with its step if there is one; nothing outside of any turn."""
    if turn is None:
        return ""
    return str(turn) if step is None else f"{turn}.{step}"


def call(name: str | None, arguments: Any) -> str:
    """Return a tool call as it would be written in code."""
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


def print_document(value: Any) -> None:
    """Write a value to stdout as JSON, in UTF-8 whatever the locale."""
    write_json(json_text(value, _plain))


def write_json(text: str) -> None:
    """Write JSON text, or lines of it, to stdout."""
    click.echo((escaped(text) if sys.stdout.isatty() else text).encode(), nl=False)


def event_document(event: RecordedEvent) -> dict[str, Any]:
    """Return an event with its whole envelope; ``data`` is None once it was erased."""
    document = _plain(event)
    del document["quotable"]  # of the row that it was read from
    if not event.inherited:
        del document["inherited"]
    document["data"] = None if event.data is None else json.loads(encode(event.data))
    document["meta"] = event.meta.model_dump(mode="json", exclude_none=True)
    return {**document, "occurred_at": event.occurred_at, "erased": event.erased}


def _plain(value: Any) -> Any:
    """Return what JSON can express for a value; those inside follow by themselves."""
    match value:
        case datetime():
            return value.isoformat()
        case bytes():
            return value.hex()
        case BaseModel():
            return value.model_dump(mode="json", exclude_none=True)
        case EventStoreError():
            return {"error": type(value).__name__, "message": str(value)}
        case Mapping() | set() | frozenset():
            return dict(value) if isinstance(value, Mapping) else sorted(value)
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return str(value)


class _Rate(ProgressColumn):
    """How many events were done, and how many a second."""

    def render(self, task: Task) -> Text:
        events = int(task.fields["events"])
        seconds = task.elapsed or 0.0
        rate = f"{events / seconds:,.0f}/s" if seconds and events else ""
        return Text(f"{events:,} events {rate}".rstrip(), style="dim")


class Meter:
    """A progress bar that is being filled."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def update(self, done: float, total: float, events: int | None = None) -> None:
        """Show how far things are.

        Args:
            done: How much is done, in any unit.
            total: How much there is, in the same unit.
            events: Events done so far; ``done`` if it counts these.
        """
        shown = int(done) if events is None else events
        self._progress.update(self._task, completed=done, total=total, events=shown)


@contextmanager
def progress_bar(what: str, *, console: Console | None = None) -> Iterator[Meter]:
    """Show a progress bar during the block.

    Args:
        what: A word for what is being done.
        console: Where to show it and leave it; by default on stderr while it lasts, if that is a
            terminal.
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
    # Rich before 14.1 ends with an empty line even a bar that is not shown.
    with progress if shown else nullcontext():
        yield Meter(progress, progress.add_task(what, total=None, events=0))
