"""Waiting until the feed hands out what was committed.

PostgreSQL hands an event out once every transaction that began before its own has ended, in
whatever database of the server: another test's, or an autovacuum's. So what a test has committed
may be a moment away from the feed, and from the cursors that follow it.
"""

from __future__ import annotations

import time

from sqlalchemy import text

from eventstore import EventStore

__all__ = ["wait_for_feed"]

_DELAYED = text(
    """
    SELECT count(*) FROM events
    WHERE epoch = (SELECT max(epoch) FROM store_epochs)
    AND tx_id >= pg_snapshot_xmin(pg_current_snapshot())
    """
)
_TIMEOUT_S = 10.0


def wait_for_feed(store: EventStore) -> EventStore:
    """Return the store once its feed holds every committed event, after 10 seconds at most.

    Events that the feed holds stay there; an open transaction that has written delays the rest.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    while store.engine.dialect.name == "postgresql":
        with store.reading() as connection:
            delayed = connection.execute(_DELAYED).scalar_one()
        if not delayed:
            break
        assert time.monotonic() < deadline, f"{delayed} events are still held back"
        # Leaves the processor to the transaction that is awaited.
        time.sleep(0.002)
    return store
