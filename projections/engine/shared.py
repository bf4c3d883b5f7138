"""Tables that no generation owns, as those of token counts and of search: each is registered."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, insert, select

from eventstore.sql.rights import share_rights
from eventstore.sql.schema import metadata_for
from eventstore.sql.traces import without_statistics

__all__ = ["register"]


def register(connection: Connection, names: Sequence[str]) -> None:
    """Name tables that were just made to whoever erases; give others the rights that they have.

    An erasure deletes rows from them in this order. In the caller's transaction, under the schema
    lock.
    """
    table = metadata_for(connection.dialect.name).tables["shared_tables"]
    known = {*connection.execute(select(table.c.name)).scalars()}
    last = connection.execute(select(func.coalesce(func.max(table.c.place), 0))).scalar_one()
    new = [name for name in names if name not in known]
    for place, name in enumerate(new, last + 1):
        connection.execute(insert(table).values(name=name, place=place))
    without_statistics(connection, names)
    share_rights(connection, names)
