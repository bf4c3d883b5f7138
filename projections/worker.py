"""The worker; by default it follows this package's projections."""

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
    """Keep catching up conversations that are behind; return how many were caught up.

    While the store is idle, the worker runs one short query at each interval, regardless of how
    many conversations there are. A conversation that cannot be folded is set aside; the worker
    retries it when it gains events or when a worker starts. While the database is unavailable or
    busy, the worker backs off, up to ten seconds. While it runs, it serves OpenTelemetry's lag
    gauges.

    Args:
        store: The store to follow.
        projections: The projections to keep warm, including the product's own, if any.
        once: Return once nothing is behind.
        poll_interval_s: Seconds to wait before the next poll when nothing has happened; after a
            round that took longer, as long as that round. On SQLite the worker also waits after
            each round that had work (three times the round's duration, at most half a second) and
            after each transaction within a round: without these pauses it would keep other
            processes from writing.
        stop: Return soon after this is set, even in the middle of a round.
        on_round: Called after each round with the number of conversations caught up; 0 for a
            round that failed.

    Raises:
        StoreUnavailable: The database cannot be written; with ``once`` also if it is unavailable
            or busy.
        KeyUnavailable: There are sealed conversations but no keys; with ``once`` also if the key
            provider is unavailable.
    """
    return rounds.run(
        store,
        projections=projections,
        once=once,
        poll_interval_s=poll_interval_s,
        stop=stop,
        on_round=on_round,
    )
