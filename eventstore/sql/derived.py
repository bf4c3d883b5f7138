"""The tables that were made beside the log's: those of every generation, and shared ones.

A generation's tables are named in the registry ``projections``. What belongs to no generation, such
as counts of tokens, is named in ``shared_tables`` by whoever makes it. So erasing and rights reach
all of them in a process that has never loaded their makers.
"""

from __future__ import annotations

import json

from sqlalchemy import Connection, inspect, select

from eventstore.sql.schema import metadata_for

__all__ = ["derived_tables"]


def derived_tables(connection: Connection) -> list[str]:
    """Return the names of these tables, shared ones last, in the order of their registration."""
    tables = metadata_for(connection.dialect.name).tables
    registered = connection.execute(select(tables["projections"].c.tables)).scalars().all()
    shared = tables["shared_tables"].c
    names = connection.execute(select(shared.name).order_by(shared.place)).scalars().all()
    there = inspect(connection)
    return [
        *(name for each in registered for name in json.loads(each)),
        *(name for name in names if there.has_table(name)),
    ]
