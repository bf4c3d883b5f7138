"""Installing projections in a store: tables, registry rows, stable views, once per version."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from weakref import WeakSet

from sqlalchemy import Connection, Engine, func, insert, inspect, select

from eventstore import EventStore
from eventstore.database import (
    backend_of,
    metadata_for,
    require_free,
    schema_lock,
    share_rights,
    without_statistics,
)
from projections.engine import set_aside
from projections.engine.generations import find_all_live, install, registered
from projections.engine.projection import Projection
from projections.tokens import counts

__all__ = ["install_all", "register"]

# Engines on which the shared tables were found. They are never dropped, and an idle worker checks
# often.
_SHARED: WeakSet[Engine] = WeakSet()
_PATIENCE_MS = 60_000


def install_all(store: EventStore, projections: Sequence[Projection]) -> None:
    """Create a live generation for this code's version of each projection, and the shared tables.

    Uses one transaction under the schema lock; writes nothing if everything exists.

    Raises:
        TablesTaken: The product already has tables or views with the names of a projection's.
    """
    with store.reading() as connection:
        missing, is_shared = _missing(store, connection, projections)
    if (missing or not is_shared) and not store.read_only:
        with schema_lock(store.engine, patience_ms=_patience_ms(store)) as connection:
            # Another process may have created them while this one waited for the lock.
            missing, is_shared = _missing(store, connection, projections)
            if missing or not is_shared:
                _install(connection, missing)
                is_shared = True
    if is_shared:
        _SHARED.add(store.engine)


def _missing(
    store: EventStore, connection: Connection, projections: Sequence[Projection]
) -> tuple[list[Projection], bool]:
    """Return the projections without a live generation, and whether the shared tables exist."""
    live = find_all_live(connection, projections)
    return [each for each, found in zip(projections, live, strict=True) if found is None], (
        store.engine in _SHARED or (counts.is_there(connection) and set_aside.is_there(connection))
    )


def _patience_ms(store: EventStore) -> int | None:
    """Return how long to wait for the schema lock, unless the URL has a limit of its own.

    All processes of a product create its tables at once when it is started for the first time.
    """
    waits = not backend_of(store.engine).locks_all
    return _PATIENCE_MS if waits and store.session.lock_timeout_ms is None else None


def _install(connection: Connection, missing: Sequence[Projection]) -> None:
    counts.create(connection)
    set_aside.create(connection)
    register(connection, (counts.TABLE.name, set_aside.TABLE.name))
    known = {row["name"] for row in registered(connection)}
    new = [each for each in missing if each.name not in known]
    names = {table.name for each in new for table in each.tables}
    require_free(connection, names - _restored(connection, names))
    install(connection, missing)


def _restored(connection: Connection, names: Collection[str]) -> set[str]:
    """Return which names are a projection's views, restored by a dump without the registry rows."""
    inspector = inspect(connection)
    tables = {table.rpartition("_g")[0] for table in inspector.get_table_names()}
    return {*names} & {*inspector.get_view_names()} & tables


def register(connection: Connection, names: Sequence[str]) -> None:
    """Register newly created tables for erasure, and grant others the same rights as elsewhere.

    An erasure deletes rows from them in this order. Runs in the caller's transaction, under the
    schema lock.
    """
    table = metadata_for(connection.dialect.name).tables["shared_tables"]
    known = {*connection.execute(select(table.c.name)).scalars()}
    last = connection.execute(select(func.coalesce(func.max(table.c.place), 0))).scalar_one()
    new = [name for name in names if name not in known]
    for place, name in enumerate(new, last + 1):
        connection.execute(insert(table).values(name=name, place=place))
    without_statistics(connection, names)
    share_rights(connection, names)
