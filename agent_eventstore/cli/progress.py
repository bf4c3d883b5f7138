"""Progress bars on stderr, with rate and time left; where nobody looks, they stay away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

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

from agent_eventstore.cli.console import stderr

__all__ = ["Meter", "progress_bar"]


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
