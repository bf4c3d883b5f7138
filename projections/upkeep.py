"""Rebuild, compare and status; by default for this package's projections.

The engine folds whatever projections it is given, and knows none by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from eventstore import EventStore
from projections.catalogue import PROJECTIONS, ProjectionSet
from projections.engine import diff, lag
from projections.engine import rebuild as rebuilding
from projections.engine.diff import Difference, DiffReport
from projections.engine.generations import find_live
from projections.engine.lag import ProjectionStatus
from projections.engine.members import WorkerStatus, workers_of
from projections.engine.projection import Projection
from projections.engine.rebuild import RebuildReport
from projections.engine.set_aside import FoldFailure, noted
from projections.engine.setup import install_all

__all__ = [
    "DiffReport",
    "Difference",
    "FoldFailure",
    "Projection",
    "ProjectionStatus",
    "RebuildReport",
    "WorkerStatus",
    "compare",
    "find_live",
    "install_all",
    "noted",
    "rebuild",
    "status",
    "workers",
]


def rebuild(
    store: EventStore,
    names: Iterable[str] | None = None,
    *,
    projections: ProjectionSet = PROJECTIONS,
    workers: int = 1,
    skip_broken: bool = False,
    join: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> RebuildReport:
    """Fold all events from scratch into new tables, and make those tables live.

    Args:
        store: The store; an in-memory store is rebuilt by this process alone.
        names: The names of the projections, or one name; all by default.
        projections: The available projections, including the product's own, if any.
        workers: Number of processes that fold, including this one. A product's own projections
            are pickled for the others, so their classes must be importable.
        skip_broken: Set aside conversations that cannot be folded, and continue. The report lists
            them, and they stay noted until they are caught up.
        join: Help with the rebuild that another process, on any machine, has begun and not ended;
            begin none. The report's ``projections`` are empty if there is none.
        on_progress: Called with the number of events folded so far and the total.

    Raises:
        UnknownProjection: No projection has one of the names.
        ProjectionFailed: A fold raised, or an event cannot be read. The live generation stays
            unchanged; the next rebuild resumes where this one stopped.
    """
    return rebuilding.rebuild(
        store,
        names,
        projections=projections,
        workers=workers,
        skip_broken=skip_broken,
        join=join,
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
    """Compare the projections' live tables with a fresh fold of all events.

    Each conversation is read in its own snapshot transaction and folded in memory.

    Args:
        store: The store.
        names: The names of the projections, or one name; all by default.
        projections: The available projections, including the product's own, if any.
        conversations: Compare only these, for example in one of several processes that share the
            work; rows of conversations that do not exist are then not searched for.
        on_progress: Called with the number of events folded so far and the total, as far as it is
            known.

    Raises:
        UnknownProjection: No projection has one of the names.
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
    """Return the status of every projection, read in one snapshot.

    The cost grows with the number of conversations and with the events since the live generations'
    cursors.
    """
    return lag.status(store, projections)


def workers(store: EventStore) -> tuple[WorkerStatus, ...]:
    """Return the workers and rebuilds that are alive, on any machine, and their shares."""
    with store.reading() as connection:
        return workers_of(connection)
