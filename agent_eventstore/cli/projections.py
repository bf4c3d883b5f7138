"""``eventstore projections``: status of the read models, rebuilding, and keeping them caught up.

With ``--projections`` these commands also fold a product's own projections.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import entry_points
from types import FrameType
from typing import Any, TypeVar

import click

from agent_eventstore.cli import render
from agent_eventstore.cli.console import (
    cell,
    count,
    fixed,
    flexible,
    grid,
    number,
    plural,
    print_document,
    progress_bar,
    say,
    stdout,
)
from agent_eventstore.cli.harmless import one_line
from agent_eventstore.cli.options import Number, common, json_option
from agent_eventstore.cli.program import Failed, found_something
from agent_eventstore.cli.target import Target
from eventstore import EventStore
from eventstore.database import delayed_events
from projections import ProjectionSet, worker
from projections.errors import InvalidProjection
from projections.upkeep import DiffReport, FoldFailure, Projection, RebuildReport, compare, workers
from projections.upkeep import rebuild as rebuild_projections
from projections.upkeep import status as status_of

__all__ = ["ENTRY_POINTS", "compared", "projections", "projections_option", "rebuilt"]


ENTRY_POINTS = "eventstore.projections"
"""The entry point group: each entry is a projection, several of them, or a `ProjectionSet`."""

_TASKS = {"follow": "worker", "rebuild": "rebuild"}
_VARIABLE = "EVENTSTORE_PROJECTIONS"

Command = TypeVar("Command", bound=Callable[..., Any])


def projections_option(command: Command) -> Command:
    """Add the option to a command, which gets the `ProjectionSet` as ``projection_set``."""
    return click.option(
        "--projections",
        "projection_set",
        metavar="MODULE:NAME",
        multiple=True,
        envvar=_VARIABLE,
        callback=lambda _context, _option, places: _found(places),
        help="A product's own projections, in addition to those of entry points; the variable may "
        f"name several, separated by spaces.  [env var: {_VARIABLE}]",
    )(command)


def _found(places: tuple[str, ...]) -> ProjectionSet:
    own: dict[str, Projection] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            loaded = entry.load()
        except Exception as error:
            raise Failed(f"the entry point {entry.name} = {entry.value}: {error}") from error
        own.update({each.name: each for each in _own(loaded, entry.value)})
    for place in places:
        own.update({each.name: each for each in _own(_imported(place), place)})
    try:
        return ProjectionSet(own.values())
    except InvalidProjection as error:
        raise Failed(str(error)) from error


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    if not module or not name:
        raise Failed(f"--projections takes MODULE:NAME, not {place!r}")
    # Like python -m: a product's modules are often in the current directory.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise Failed(f"--projections {place}: {problem}") from error


def _own(found: Any, place: str) -> Iterator[Projection]:
    """Yield the named projections; of a set, those that are not this package's."""
    if isinstance(found, ProjectionSet):
        yield from found.own
    elif isinstance(found, list | tuple):
        for each in found:
            yield from _own(each, place)
    elif all(hasattr(found, name) for name in ("name", "version", "tables", "initial", "fold")):
        yield found
    else:
        raise Failed(f"{place} is not a projection: it is {type(found).__name__}")


@click.group()
def projections() -> None:
    """Inspect, rebuild and follow the read models."""


@projections.command("status")
@projections_option
@json_option
@common
def status(target: Target, projection_set: ProjectionSet, as_json: bool) -> None:
    """Show the status of each projection.

    Shows its version, its generation, how many conversations are behind, by how many events, and
    for how long. Being behind is not a fault: a read catches up the conversation it needs. Below
    are the conversations that cannot be folded, the workers and rebuilds that run, on any machine,
    and what holds the feed back.
    """
    with target.open() as store:
        found, alive = status_of(store, projection_set), workers(store)
        with store.reading() as connection:
            feed = delayed_events(connection)
    if as_json:
        print_document({"held_back": feed, "projections": found, "workers": alive})
        return
    stdout().print(render.status_table(found))
    _show_set_aside([failure for each in found for failure in each.set_aside])
    for each in alive:
        place = f"process {each.process_id} on {one_line(each.host)}"
        say(f"{_TASKS[each.task]}: {place}, share {each.share} of {each.shares}")
    if feed.events:
        say(f"feed: {feed.description}", "yellow")


@projections.command("rebuild")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--workers",
    metavar="N",
    type=Number(min=1, max=64),
    default=1,
    show_default=True,
    help="The number of folding processes.",
)
@click.option(
    "--skip-broken",
    is_flag=True,
    help="Set aside conversations that cannot be folded, and continue.",
)
@click.option(
    "--join",
    is_flag=True,
    help="Help with a rebuild that runs elsewhere, or was interrupted; begin none.",
)
@click.option("--diff", is_flag=True, help="Compare with a fresh fold, without changing anything.")
@projections_option
@json_option
@common
def rebuild(
    target: Target,
    projection_set: ProjectionSet,
    names: tuple[str, ...],
    workers: int,
    skip_broken: bool,
    join: bool,
    diff: bool,
    as_json: bool,
) -> None:
    """Fold all events again into new tables, and make these live.

    Reads continue meanwhile. An interrupted rebuild continues where it stopped, and with --join
    other machines fold a part of it. With --diff, the
    rows that differ are listed, and the exit status is 1 if there are any. It is also 1 if
    --skip-broken has set a conversation aside.
    """
    projection_set.named(names)
    if join and diff:
        raise Failed("--join helps with a rebuild, --diff does not rebuild: choose one")
    with target.open() if diff else target.open_to_write() as store:
        if diff:
            _show_differences(store, projection_set, names, as_json=as_json)
            return
        with progress_bar("rebuilding") as meter:
            report = rebuild_projections(
                store,
                names or None,
                projections=projection_set,
                workers=workers,
                skip_broken=skip_broken,
                join=join,
                on_progress=meter.update,
            )
    if as_json:
        print_document(report)
    elif not report.projections:
        say("no rebuild to join")
    else:
        say(rebuilt(report))
        _show_set_aside(report.set_aside)
    if report.set_aside:
        found_something()


def _show_set_aside(failures: Sequence[FoldFailure]) -> None:
    if failures:
        table = grid(
            fixed("set aside"),
            number("at version"),
            fixed("projection"),
            flexible("why", fold=True),
        )
        for each in failures:
            why = cell(one_line(each.error), "red")
            conversation = cell(each.conversation_id)
            table.add_row(conversation, cell(count(each.version)), cell(each.projection), why)
        stdout().print(table)


def _show_differences(
    store: EventStore, projection_set: ProjectionSet, names: tuple[str, ...], *, as_json: bool
) -> None:
    with progress_bar("comparing") as meter:
        report = compare(store, names or None, projections=projection_set, on_progress=meter.update)
    if as_json:
        print_document({"ok": report.ok, **asdict(report)})
    else:
        if not report.ok:
            stdout().print(render.differences_table(report.differences))
        say(compared(report), "green" if report.ok else "red")
    if not report.ok:
        found_something()


def rebuilt(report: RebuildReport) -> str:
    """Return a sentence about a rebuild."""
    done = f"{plural(report.conversations, 'conversation')}, {plural(report.events, 'event')}"
    rate = f" ({report.events / report.seconds:,.0f} events/s)" if report.events else ""
    return f"rebuilt {', '.join(report.projections)}: {done} in {report.seconds:.2f} s{rate}"


def compared(report: DiffReport) -> str:
    """Return a sentence about a comparison."""
    seen = f"{plural(report.conversations, 'conversation')}, {plural(report.rows, 'row')} compared"
    if report.ok:
        return f"{seen}: no difference"
    return f"{seen}: {plural(len(report.differences), 'difference')}"


@projections.command("run")
@click.option("--once", is_flag=True, help="Exit when nothing is behind.")
@projections_option
@common
def run(target: Target, projection_set: ProjectionSet, once: bool) -> None:
    """Keep every projection caught up, until stopped.

    Several workers may run, also on several machines: they divide the conversations among them, and
    the share of one that died goes to the others after ten seconds.
    """
    stop = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    with target.open_to_write() as store:
        before = signal.signal(signal.SIGTERM, end)
        try:
            caught_up = worker.run(store, projections=projection_set, once=once, stop=stop)
        finally:
            signal.signal(signal.SIGTERM, before)
    say(f"caught up {plural(caught_up, 'conversation')}")
