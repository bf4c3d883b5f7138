"""Which projections there are: one explicit tuple."""

from __future__ import annotations

from collections.abc import Iterable

from eventstore.errors import UnknownProjection
from projections.base import Projection
from projections.context import CONTEXT
from projections.directory import DIRECTORY
from projections.loose_ends import LOOSE_ENDS
from projections.runs import RUNS
from projections.timeline import TIMELINE
from projections.tool_calls import TOOL_CALLS
from projections.usage import USAGE

__all__ = ["PROJECTIONS", "named"]

PROJECTIONS: tuple[Projection, ...] = (
    DIRECTORY,
    TIMELINE,
    CONTEXT,
    USAGE,
    TOOL_CALLS,
    RUNS,
    LOOSE_ENDS,
)


def named(names: Iterable[str] | None = None) -> tuple[Projection, ...]:
    """Return the projections of these names, or all of them.

    Raises:
        UnknownProjection: One of the names is none.
    """
    known = {projection.name: projection for projection in PROJECTIONS}
    wanted = tuple(known if names is None else names) or tuple(known)
    for name in wanted:
        if name not in known:
            raise UnknownProjection(name, tuple(known))
    return tuple(known[name] for name in dict.fromkeys(wanted))
