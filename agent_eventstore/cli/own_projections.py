"""``--projections``: a product's own projections, for the commands that fold."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any, TypeVar

import click

from agent_eventstore.cli.program import Failed
from eventstore.errors import InvalidProjection
from projections import ProjectionSet
from projections.base import Projection

__all__ = ["ENTRY_POINTS", "projections_option"]

ENTRY_POINTS = "eventstore.projections"
"""The group of entry points: each names a projection, several of them, or a `ProjectionSet`."""

Command = TypeVar("Command", bound=Callable[..., Any])


def projections_option(command: Command) -> Command:
    """Give a command the option, and hand it the `ProjectionSet` as ``projection_set``."""
    return click.option(
        "--projections",
        "projection_set",
        metavar="MODULE:NAME",
        multiple=True,
        callback=lambda _context, _option, places: _found(places),
        help="A product's own projections, beside those of installed packages' entry points.",
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
    # As python -m does: a product's modules lie where its commands are given.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise Failed(f"--projections {place}: {said}") from error


def _own(found: Any, place: str) -> Iterator[Projection]:
    """Yield what was named: of a set, what it has beside this package's."""
    if isinstance(found, ProjectionSet):
        yield from found.own
    elif isinstance(found, list | tuple):
        for each in found:
            yield from _own(each, place)
    elif all(hasattr(found, name) for name in ("name", "version", "tables", "initial", "fold")):
        yield found
    else:
        raise Failed(f"{place} is no projection: it is {type(found).__name__}")
