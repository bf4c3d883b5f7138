"""The worker: keeps every projection warm, so that reads find little or nothing to catch up.

Any number of workers may run, on any number of machines. Each conversation is folded under a lock
of its own, and who comes second finds nothing left to do, so no event is folded twice into a table.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from eventstore import EventStore
from eventstore.errors import DatabaseBusy
from eventstore.log import get_logger
from projections.catalogue import PROJECTIONS
from projections.following import catch_up_behind, retry_set_aside
from projections.generations import GenerationGone, gone
from projections.setup import install_all

__all__ = ["run"]

_log = get_logger("projections.worker")


def run(
    store: EventStore,
    *,
    once: bool = False,
    poll_interval_s: float = 0.2,
    stop: threading.Event | None = None,
    on_round: Callable[[int], None] | None = None,
) -> int:
    """Catch up whatever is behind, again and again; return how many conversations were.

    An idle round costs a few queries, however many conversations there are. A conversation that
    cannot be folded is set aside, and tried again when it gains events or a worker starts.

    Args:
        store: The store to follow.
        once: Return when nothing is behind any more.
        poll_interval_s: How long to wait after a round that found nothing, in seconds.
        stop: Return soon after this is set.
        on_round: Called after each round with the number of conversations caught up.
    """
    stop = stop or threading.Event()
    total, retried = 0, False
    while not stop.is_set():
        started = time.perf_counter()
        try:
            # Each round: a newer version's cut-over may have taken this version's tables away.
            install_all(store)
            with gone():
                if not retried:
                    retry_set_aside(store, PROJECTIONS)
                    retried = True
                count = catch_up_behind(store, PROJECTIONS)
        except GenerationGone:
            continue
        except DatabaseBusy:
            if once:
                raise
            count = 0
        total += count
        if count:
            duration_ms = round((time.perf_counter() - started) * 1000, 1)
            _log.info("caught up", conversations=count, duration_ms=duration_ms)
        if on_round is not None:
            on_round(count)
        if once and not count:
            break
        if not count:
            stop.wait(poll_interval_s)
    return total
