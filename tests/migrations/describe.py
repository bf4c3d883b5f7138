"""What a database's schema is, in values that can be compared.

`described` reads a database and `declared` the metadata, into the same form; `fingerprint` is
everything that the database itself can tell, for comparing two databases.
"""

from __future__ import annotations

import warnings
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, MetaData, UniqueConstraint, inspect, text
from sqlalchemy.exc import SAWarning
from sqlalchemy.types import NullType

from eventstore.sql.migrate import VERSION_TABLE

Description = dict[str, dict[str, Any]]

_POSTGRESQL = {
    "columns": """
        SELECT table_name, column_name, data_type, is_nullable, column_default, is_identity,
            identity_generation FROM information_schema.columns WHERE table_schema = 'public'
        """,
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace
        """,
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "triggers": """
        SELECT tgname, pg_get_triggerdef(oid), tgenabled FROM pg_trigger WHERE NOT tgisinternal
        """,
    "functions": """
        SELECT proname, pg_get_functiondef(oid) FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace
        """,
    "views": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public'",
    "revision": "SELECT version_num FROM eventstore_version",
}
_SQLITE = {
    "schema": "SELECT type, name, tbl_name, sql FROM sqlite_master",
    "revision": "SELECT version_num FROM eventstore_version",
}


def described(connection: Connection) -> Description:
    """Return tables, columns, types, keys and indexes of a database."""
    inspector = inspect(connection)
    with warnings.catch_warnings():
        # SQLAlchemy knows nothing of PostgreSQL's xid8, and of no other type of ours.
        warnings.filterwarnings("ignore", "Did not recognize type 'xid8'", SAWarning)
        return {
            name: {
                "columns": {
                    column["name"]: (_type(connection, column["type"]), column["nullable"])
                    for column in inspector.get_columns(name)
                },
                "primary key": inspector.get_pk_constraint(name)["constrained_columns"],
                "unique": sorted(
                    unique["column_names"] for unique in inspector.get_unique_constraints(name)
                ),
                "indexes": sorted(
                    (str(index["name"]), [str(column) for column in index["column_names"]])
                    for index in inspector.get_indexes(name)
                    if "duplicates_constraint" not in index
                ),
            }
            for name in inspector.get_table_names()
            if name != "eventstore_version"
        }


def declared(connection: Connection, metadata: MetaData) -> Description:
    """Return the same of declared tables, with the types of the connection's database."""
    return {
        table.name: {
            "columns": {
                column.name: (_type(connection, column.type), column.nullable)
                for column in table.columns
            },
            "primary key": [column.name for column in table.primary_key.columns],
            "unique": sorted(
                [column.name for column in constraint.columns]
                for constraint in table.constraints
                if isinstance(constraint, UniqueConstraint)
            ),
            "indexes": sorted(
                (str(index.name), [column.name for column in index.columns])
                for index in table.indexes
            ),
        }
        for table in metadata.tables.values()
    }


def differences(connection: Connection, metadata: MetaData) -> list[Any]:
    """Return what Alembic would migrate to make the database equal to the metadata."""
    options = {"compare_type": True, "version_table": VERSION_TABLE}
    context = MigrationContext.configure(connection, opts=options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Did not recognize type 'xid8'", SAWarning)
        return list(compare_metadata(context, metadata))


def fingerprint(connection: Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Return all that the database's own catalogue says of the schema, triggers included."""
    queries = _SQLITE if connection.dialect.name == "sqlite" else _POSTGRESQL
    return {
        name: sorted((tuple(row) for row in connection.execute(text(query))), key=repr)
        for name, query in queries.items()
    }


def _type(connection: Connection, column_type: Any) -> str:
    if isinstance(column_type, NullType):
        return "XID8"
    return str(column_type.compile(connection.dialect))
