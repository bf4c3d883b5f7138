"""Partitions of large tables on PostgreSQL, by a hash of the conversation's id.

A statement that names a conversation touches one partition, whose indexes are as small as those of
a store of its size; vacuuming, and rewriting after an erasure, goes partition by partition.
Columns, keys, indexes, triggers, rights and policies are those of the whole table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, text

from eventstore.errors import NotWritable
from eventstore.sql.backend import backend_of
from eventstore.sql.distributed import run_ddl
from eventstore.sql.row_security import secure_new
from eventstore.telemetry.log import masked

__all__ = ["MOST_PARTITIONS", "PARTITIONED", "partition"]

PARTITIONED = ("events", "blobs")
"""The tables of the log that grow with every message."""

MOST_PARTITIONS = 1_024

_LEAST_VERSION = 17_00_00  # the first whose partitioned tables have identity columns
_PARTS = text(
    "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = to_regclass(:name)"
)
_KEYS = text(
    """
    SELECT quote_ident(conname), pg_get_constraintdef(oid) FROM pg_constraint
    WHERE conrelid = to_regclass(:name) AND contype IN ('p', 'u') ORDER BY contype, conname
    """
)
_INDEXES = text(
    """
    SELECT quote_ident(relname), replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ')
    FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE indrelid = to_regclass(:name)
        AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
    ORDER BY relname
    """
)
_TRIGGERS = text(
    """
    SELECT quote_ident(tgname), pg_get_triggerdef(oid), tgenabled, tgtype & 1 FROM pg_trigger
    WHERE tgrelid = to_regclass(:name) AND NOT tgisinternal ORDER BY tgname
    """
)
_WITHOUT_STATISTICS = text(
    """
    SELECT quote_ident(attname) FROM pg_attribute
    WHERE attrelid = to_regclass(:name) AND attnum > 0 AND attstattarget = 0
    """
)
_COLUMNS = text(
    """
    SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum),
        max(attname) FILTER (WHERE attidentity <> '')
    FROM pg_attribute WHERE attrelid = to_regclass(:name) AND attnum > 0 AND NOT attisdropped
    """
)
_RIGHTS = text(
    """
    SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
        string_agg(privilege_type, ', '), quote_ident(pg_get_userbyid(relowner))
    FROM pg_class, aclexplode(coalesce(relacl, acldefault('r', relowner)))
    WHERE oid = to_regclass(:name) GROUP BY 1, 3
    """
)
_VIEWS = text(
    """
    WITH RECURSIVE reading (oid, depth) AS (
        SELECT to_regclass(:name)::oid, 0
        UNION SELECT ev_class, depth + 1
        FROM reading JOIN pg_depend ON refclassid = 'pg_class'::regclass AND refobjid = reading.oid
        JOIN pg_rewrite ON classid = 'pg_rewrite'::regclass AND pg_rewrite.oid = objid
        WHERE ev_class <> reading.oid
    )
    SELECT c.oid::regclass::text AS name, pg_get_viewdef(c.oid) AS query,
        array_to_string(c.reloptions, ', ') AS options,
        c.relkind = 'v' AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid) AS is_plain
    FROM reading JOIN pg_class AS c ON c.oid = reading.oid
    WHERE depth > 0 GROUP BY c.oid ORDER BY max(depth)
    """
)
_WHOLE = "{}_before"


def partition(connection: Connection, count: int) -> None:
    """Divide the tables into partitions, or make them whole again, in the caller's transaction.

    Copies all rows; nobody else can read or write meanwhile. Call it under the schema lock.

    Args:
        connection: In a transaction of the tables' owner.
        count: How many partitions each table gets; 0 makes it whole.

    Raises:
        NotWritable: The database is SQLite, or PostgreSQL before version 17; or something of the
            product's depends on a table that is no plain view, such as a materialized view.
    """
    url = masked(connection.engine.url)
    if not backend_of(connection).has_partitions:
        reason = "SQLite has no partitions, and a distributed store has shards instead"
        raise NotWritable(url, reason)
    version = connection.execute(text("SHOW server_version_num")).scalar_one()
    if int(version) < _LEAST_VERSION:
        raise NotWritable(url, "partitions need PostgreSQL 17 or later, for the events' positions")
    for name in PARTITIONED:
        _divide(connection, name, count)


def _divide(connection: Connection, name: str, count: int) -> None:
    """Replace a table by one with the same rows and definition, divided as requested."""
    before = _WHOLE.format(name)
    run_ddl(connection, f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")

    def found(query: Any) -> Sequence[Any]:
        return connection.execute(query, {"name": name}).all()

    keys, indexes, triggers = found(_KEYS), found(_INDEXES), found(_TRIGGERS)
    silent, rights = [each for (each,) in found(_WITHOUT_STATISTICS)], found(_RIGHTS)
    [(columns, identity)] = found(_COLUMNS)
    views = [
        (each, connection.execute(_RIGHTS, {"name": each.name}).all()) for each in found(_VIEWS)
    ]
    for view, _ in reversed(views):
        if not view.is_plain:
            reason = f"{view.name} reads {name}, and is no plain view: drop it, and create it again"
            raise NotWritable(masked(connection.engine.url), reason)
        run_ddl(connection, f"DROP VIEW {view.name}")
    if identity is not None:
        sequence = text("SELECT nextval(pg_get_serial_sequence(:name, :column))")
        following = connection.execute(sequence, {"name": name, "column": identity}).scalar_one()
    for (part,) in found(_PARTS):
        run_ddl(connection, f"ALTER TABLE {part} RENAME TO {_old(part)}")
    run_ddl(connection, f"ALTER TABLE {name} RENAME TO {before}")
    for key, _ in keys:
        run_ddl(connection, f"ALTER TABLE {before} RENAME CONSTRAINT {key} TO {_old(key)}")
    for index, _ in indexes:
        run_ddl(connection, f"ALTER INDEX {index} RENAME TO {_old(index)}")
    like = "INCLUDING DEFAULTS INCLUDING IDENTITY INCLUDING STORAGE INCLUDING COMPRESSION"
    divided = "PARTITION BY HASH (conversation_id)" if count else ""
    run_ddl(connection, f"CREATE TABLE {name} (LIKE {before} {like}) {divided}")
    parts = [f"{name}_p{number:04}" for number in range(count)]
    for number, part in enumerate(parts):
        bounds = f"FOR VALUES WITH (MODULUS {count}, REMAINDER {number})"
        run_ddl(connection, f"CREATE TABLE {part} PARTITION OF {name} {bounds}")
    run_ddl(
        connection,
        f"INSERT INTO {name} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {before}",  # noqa: S608 - names
    )
    run_ddl(connection, f"DROP TABLE {before}")
    for key, definition in keys:
        run_ddl(connection, f"ALTER TABLE {name} ADD CONSTRAINT {key} {definition}")
    for _, definition in indexes:
        run_ddl(connection, definition)
    if identity is not None:
        run_ddl(connection, f'ALTER TABLE {name} ALTER "{identity}" RESTART WITH {following}')
    for column in silent:
        run_ddl(connection, f"ALTER TABLE {name} ALTER COLUMN {column} SET STATISTICS 0")
    for trigger, definition, enabled, for_each_row in triggers:
        run_ddl(connection, definition)
        # A statement's trigger of the whole table does not fire for a statement on a partition.
        places = [name, *parts]
        for part in () if for_each_row else parts:
            run_ddl(connection, definition.replace(f".{name} ", f".{part} "))
        for place in places if enabled == "A" else ():
            run_ddl(connection, f"ALTER TABLE {place} ENABLE ALWAYS TRIGGER {trigger}")
    _give(connection, [name, *parts], rights)
    secure_new(connection, [name])
    for view, of_view in views:
        options = f"WITH ({view.options})" if view.options else ""
        run_ddl(connection, f"CREATE VIEW {view.name} {options} AS {view.query}")
        _give(connection, [view.name], of_view)
    run_ddl(connection, f"ANALYZE {name}")


def _give(connection: Connection, names: Sequence[str], rights: Sequence[Any]) -> None:
    """Give a table, whose partitions follow it, or a view its owner and the rights of others."""
    for grantee, some, owner in rights:
        for each in names:
            run_ddl(connection, f"ALTER TABLE {each} OWNER TO {owner}")
        run_ddl(connection, f"GRANT {some} ON {names[0]} TO {grantee}")


def _old(name: str) -> str:
    return f'"{name.strip(chr(34))}_before"'
