"""Progress on stderr, and the ``--json`` side of every command: one JSON document on stdout.

Progress bars show rate and time left; where nobody looks, they stay away.

In JSON, names are those of the library's own classes. Times are ISO 8601 in UTC, ids whole, digests
in hex. On a terminal, characters that could steer it or be overlooked are written as JSON's
escapes; a file or a pipe gets them as they are. Either has the same value.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

import click
from pydantic import BaseModel
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
from rich.text import Text

from agent_eventstore.cli.console import escaped, stderr
from eventstore.errors import EventStoreError
from eventstore.events import RecordedEvent
from eventstore.events.codec import encode

__all__ = ["Meter", "event_document", "print_document", "progress_bar", "write_json"]


def print_document(value: Any) -> None:
    """Write a value to stdout as JSON, in UTF-8 whatever the locale."""
    text = json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, indent=2)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Lone surrogates have no UTF-8; as escapes they are kept.
        text = json.dumps(value, default=_plain, allow_nan=False, indent=2)
    write_json(f"{text}\n")


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
