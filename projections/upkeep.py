"""Rebuild, comparison and standing, with the projections of this package where none are named.

The engine folds whatever it is handed, and knows no projection by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from eventstore import EventStore
from projections.catalogue import PROJECTIONS, ProjectionSet
from projections.engine import diff, lag
from projections.engine import rebuild as rebuilding
from projections.engine.projection import Projection

__all__ = ["compare", "rebuild", "status"]


def rebuild(
    store: EventStore,
    names: Iterable[str] | None = None,
    *,
    projections: ProjectionSet = PROJECTIONS,
    workers: int = 1,
    skip_broken: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> rebuilding.RebuildReport:
    """Fold all events anew into new tables and make them the live ones.

    Args:
        store: The store; an in-memory one is rebuilt by this process alone.
        names: The projections, or the name of one; all of them by default.
        projections: Which there are: with the product's own, if it has any.
        workers: Processes that fold, this one among them. A product's own projections are pickled
            for the others: their classes must be importable.
        skip_broken: Set aside what cannot be folded, and go on; it is in the report, and noted
            until it has been caught up.
        on_progress: Called with the events folded so far and those to be folded in all.

    Raises:
        UnknownProjection: A name is not a projection's.
        ProjectionFailed: A fold raised, or an event cannot be read. The live generation stays as
            it is, and the rebuild can be started again where it stopped.
    """
    return rebuilding.rebuild(
        store,
        names,
        projections=projections,
        workers=workers,
        skip_broken=skip_broken,
        on_progress=on_progress,
    )


def compare(
    store: EventStore,
    names: Iterable[str] | None = None,
    *,
    projections: ProjectionSet = PROJECTIONS,
    conversations: Iterable[UUID] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> diff.DiffReport:
    """Compare the live tables of projections with a fresh fold of all events.

    Each conversation is read in one transaction with a snapshot of its own, and folded in memory.

    Args:
        store: The store.
        names: The projections, or the name of one; all of them by default.
        projections: Which there are: with the product's own, if it has any.
        conversations: Compare these alone, as one of several processes that share the work; rows
            of conversations that do not exist are then not looked for.
        on_progress: Called with the events folded so far and those to be folded in all, as far
            as they are known.

    Raises:
        UnknownProjection: A name is not a projection's.
        ProjectionFailed: A fold raised.
    """
    return diff.compare(
        store,
        names,
        projections=projections,
        conversations=conversations,
        on_progress=on_progress,
    )


def status(
    store: EventStore, projections: Sequence[Projection] = PROJECTIONS
) -> list[lag.ProjectionStatus]:
    """Return the standing of every projection, read in one snapshot.

    Costs what there are conversations, and what has happened since the live generations' cursors.
    """
    return lag.status(store, projections)
