"""The worker, with the projections of this package where none are named."""

from __future__ import annotations

import threading
from collections.abc import Callable

from eventstore import EventStore
from projections.catalogue import PROJECTIONS, ProjectionSet
from projections.engine import rounds

__all__ = ["run"]


def run(
    store: EventStore,
    *,
    projections: ProjectionSet = PROJECTIONS,
    once: bool = False,
    poll_interval_s: float = 0.02,
    stop: threading.Event | None = None,
    on_round: Callable[[int], None] | None = None,
) -> int:
    """Catch up whatever is behind, again and again; return how many conversations were.

    While nothing happens it asks one short query at each interval, however many conversations
    there are. A conversation that cannot be folded is set aside, and tried again when it gains
    events or a worker starts. While the database is away or busy, the worker waits, for longer
    each time, up to ten seconds. While it runs, it has OpenTelemetry's gauges of the lag read.

    Args:
        store: The store to follow.
        projections: Which are kept warm: with the product's own, if it has any.
        once: Return when nothing is behind any more.
        poll_interval_s: How long to wait before the next look when nothing has happened, in
            seconds; after a round that took longer, as long as that. On SQLite it also waits
            after rounds that had something to do, three times as long as they took, half a second
            at most, and within a round after each transaction: whoever goes on and on there keeps
            all others from writing.
        stop: Return soon after this is set, also in the midst of a round.
        on_round: Called after each round with the number of conversations caught up; 0 for one
            that failed.

    Raises:
        StoreUnavailable: The database cannot be written; with ``once`` also if it is away or busy.
        KeyUnavailable: There are sealed conversations, and no keys; with ``once`` also if their
            provider is away.
    """
    return rounds.run(
        store,
        projections=projections,
        once=once,
        poll_interval_s=poll_interval_s,
        stop=stop,
        on_round=on_round,
    )
