"""A store on distributed PostgreSQL (Citus): its tables are spread over servers by conversation.

The conversation is the unit of placement: what belongs to one is on one server, in shards that move
together, so that a statement that names a conversation runs on that server alone. The few tables
without a conversation are on every server. Everything goes through the coordinator.

Triggers run where the rows are, and see the names of shards (``events_102077``). They find the
shard of another table that holds the same conversation by Citus's own metadata.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg
from sqlalchemy import Connection, text

from eventstore.errors import NotWritable
from eventstore.sql.backend import CHOSEN, backend_named, backend_of

__all__ = [
    "DISTRIBUTED",
    "FIRST",
    "HAS_CITUS",
    "IS_DISTRIBUTED",
    "ONE_CONNECTION",
    "ON_COORDINATOR",
    "distribute_new",
    "find_backend",
    "place",
    "run_ddl",
]

FIRST = "conversations"
ON_COORDINATOR = frozenset({"projection_workers"})
"""Tables that are only ever read by themselves, and change all the time."""

DISTRIBUTED = "citus"
"""The name of the backend, which is not the one of SQLAlchemy's dialect."""
ONE_CONNECTION = (
    "SET LOCAL citus.multi_shard_modify_mode = 'sequential'",
    "SET LOCAL citus.enable_unsafe_triggers = on",
)
"""The first statements of a transaction that makes tables: it uses one connection to each server,
so that a table's triggers find their functions, which Citus makes in another way than tables."""

HAS_CITUS = "SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL"
IS_DISTRIBUTED = """
    SELECT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = to_regclass('conversations')
        AND partmethod = 'h'), (SELECT groupid FROM pg_dist_local_group)
"""
_PLACED = text(
    """
    SELECT relkind = 'v' OR EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = pg_class.oid)
    FROM pg_class WHERE oid = to_regclass(:t)
    """
)
_OWNED = text(
    """
    SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass(:t)
        AND attname = 'conversation_id' AND NOT attisdropped)
    """
)
_FILLED = text(
    """
    SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(:t)
        AND tgname = :t || '_filled')
    """
)

_FILL = """
CREATE OR REPLACE FUNCTION {table}_beside() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SELECT tenant_id, user_id FROM %s WHERE conversation_id = $1',
        eventstore_alongside(format('%I.conversations', TG_TABLE_SCHEMA), new.conversation_id))
        INTO new.tenant_id, new.user_id USING new.conversation_id;
    RETURN new;
END
$$
"""


def find_backend(connection: psycopg.Connection[Any], dialect: Any, url: str) -> None:
    """Give an engine's dialect the backend for a distributed store if the connection leads to one.

    Raises:
        NotWritable: The connection leads to a worker, through which order would be lost.
    """
    found = connection.execute(HAS_CITUS).fetchone()
    if found is None or not found[0]:
        connection.commit()
        return
    [is_spread, group] = connection.execute(IS_DISTRIBUTED).fetchone() or (False, 0)
    connection.commit()
    if is_spread and group:
        raise NotWritable(url, "this server is a worker: a store is opened through its coordinator")
    setattr(dialect, CHOSEN, backend_named(DISTRIBUTED) if is_spread else None)


def distribute_new(connection: Connection, names: Iterable[str]) -> None:
    """Spread new tables like the store's others, in the caller's transaction."""
    if backend_of(connection).is_distributed:
        for name in names:
            place(connection, name)


def place(connection: Connection, name: str) -> None:
    """Spread a table, unless it is already, in the caller's transaction.

    By conversation, beside the others; a table without that is on every server.
    """
    if name in ON_COORDINATOR or connection.execute(_PLACED, {"t": name}).scalar_one():
        return
    if not connection.execute(_OWNED, {"t": name}).scalar_one():
        run_ddl(connection, f"SELECT create_reference_table('{name}')")
        return
    if connection.execute(_FILLED, {"t": name}).scalar_one():
        run_ddl(connection, _FILL.format(table=name))
    beside = "" if name == FIRST else f", colocate_with => '{FIRST}'"
    run_ddl(connection, f"SELECT create_distributed_table('{name}', 'conversation_id'{beside})")


def run_ddl(connection: Connection, statement: str) -> None:
    """Run a statement as it is written, in the caller's transaction."""
    connection.exec_driver_sql(statement.replace("%", "%%"))
