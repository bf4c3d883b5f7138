"""Making projections usable on a store: tables, registry rows, stable views, once per version."""

from __future__ import annotations

from eventstore import EventStore
from eventstore.sql.migrate import schema_lock
from projections.catalogue import PROJECTIONS
from projections.generations import find_live, install

__all__ = ["install_all"]


def install_all(store: EventStore) -> None:
    """Give every projection a live generation for this code's version, if it has none.

    One transaction under the schema lock; nothing is written when all are there.
    """
    with store.reading() as connection:
        missing = [known for known in PROJECTIONS if find_live(connection, known) is None]
    if missing and not store.read_only:
        with schema_lock(store.engine) as connection:
            install(connection, missing)
