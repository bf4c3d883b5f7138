"""Making projections usable on a store: tables, registry rows, stable views, once per version."""

from __future__ import annotations

from weakref import WeakSet

from sqlalchemy import Engine

from eventstore import EventStore
from eventstore.sql.migrate import schema_lock
from projections import token_counts
from projections.catalogue import PROJECTIONS
from projections.generations import find_live, install

__all__ = ["install_all"]

# Where the table of token counts has been seen: it is never dropped, and an idle worker asks often.
_COUNTED: WeakSet[Engine] = WeakSet()


def install_all(store: EventStore) -> None:
    """Give every projection a live generation for this code's version, and all the token counts.

    One transaction under the schema lock; nothing is written when all are there.
    """
    with store.reading() as connection:
        missing = [known for known in PROJECTIONS if find_live(connection, known) is None]
        counted = store.engine in _COUNTED or token_counts.is_there(connection)
    if (missing or not counted) and not store.read_only:
        with schema_lock(store.engine) as connection:
            token_counts.create(connection)
            install(connection, missing)
            counted = True
    if counted:
        _COUNTED.add(store.engine)
