"""Exclude this package's tables from a product's own Alembic revisions.

::

    # migrations/env.py of the product, which shares its database with the store
    from agent_eventstore.autogenerate import include_object

    context.configure(connection=connection, target_metadata=mine, include_object=include_object)

Without it, ``alembic revision --autogenerate`` would drop every table that the product's metadata
does not declare.
"""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Table
from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.types import NullType

from eventstore.database import VERSION_TABLE, Xid8, metadata_for
from projections.catalogue import SHARED_TABLES

__all__ = ["include_object"]

# Alembic reflects tables before it asks, and SQLAlchemy warns about types that it does not know.
ischema_names.setdefault("xid8", Xid8)
ischema_names.setdefault("vector", NullType)

_OWN = {VERSION_TABLE, *SHARED_TABLES}
_LOG = {**metadata_for("postgresql").tables, **metadata_for("sqlite").tables}
_GENERATION = re.compile(r".+_g\d+")
_PARTITION = re.compile(r"_p\d{4}$")
_INDEXES = (
    re.compile(r".+_g\d+_beside(_[a-z]+)?"),
    re.compile(r"search_(terms|postings)(_[a-z]+)?"),
)
"""Names of the tables of SQLite's full-text indexes."""


def include_object(
    found: Any, name: str | None, kind: str, reflected: bool, compare_to: Any
) -> bool:
    """Return whether Alembic's autogenerate compares an object: False for this package's tables.

    Objects that the product's metadata declares are always compared. If you have your own
    ``include_object``, call this function from it.
    """
    if kind != "table" or not reflected or compare_to is not None:
        return True
    if name in _OWN or (name is not None and any(own.fullmatch(name) for own in _INDEXES)):
        return False
    return not (isinstance(found, Table) and (_is_log(found) or _is_generation(found)))


def _is_log(table: Table) -> bool:
    """Whether a table is one of the log's, and not just one of the same name in another schema."""
    declared = _LOG.get(_PARTITION.sub("", table.name))
    return declared is not None and {*table.columns.keys()} >= {*declared.columns.keys()}


def _is_generation(table: Table) -> bool:
    """Whether a table holds a projection's rows, by its name and the name of its primary key."""
    return bool(_GENERATION.fullmatch(table.name)) and table.primary_key.name == f"pk_{table.name}"
