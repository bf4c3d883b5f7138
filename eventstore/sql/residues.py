"""Traces of rows elsewhere in a database: planner statistics, and pages not yet reused.

PostgreSQL's ANALYZE copies values into a table that `pg_stats` shows, where erasure would not reach
them; so no statistics are collected for columns that hold content. Erased rows stay on disk until a
vacuum, and the bytes of their pages until the table is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing

import psycopg
from sqlalchemy import Connection, text
from sqlalchemy.exc import ProgrammingError

from eventstore.errors import NotWritable
from eventstore.sql.driver_errors import translated
from eventstore.sql.transactions import Transactions
from eventstore.sql.waits import long_running
from eventstore.telemetry.log import get_logger

__all__ = ["clear_statistics", "vacuum", "without_statistics"]

_log = get_logger("eventstore")
_CLEARS = 18  # the first PostgreSQL release that can delete the statistics of a column

# The excluded columns of `events` and `projection_heads` hold nothing that is erased.
_COLUMNS = """
    FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    LEFT JOIN pg_inherits AS part ON part.inhrelid = c.oid
    JOIN pg_class AS whole ON whole.oid = coalesce(part.inhparent, c.oid)
    WHERE whole.oid = ANY(
        SELECT to_regclass(quote_ident(name)) FROM unnest((:tables)::text[]) AS name)
    AND a.attnum > 0 AND NOT a.attisdropped
    AND format_type(a.atttypid, NULL) IN ('text', 'json', 'jsonb', 'bytea', 'tsvector', 'vector')
    AND (whole.relname, a.attname) NOT IN (('events', 'type'), ('projection_heads', 'projection'))
    """
_COLLECTED = text(
    f"SELECT c.relname, a.attname {_COLUMNS} AND a.attstattarget IS DISTINCT FROM 0"  # noqa: S608
)
_STATISTICS = text(
    f"""
    SELECT n.nspname, c.relname, a.attname {_COLUMNS} AND EXISTS (SELECT FROM pg_stats AS s
        WHERE s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = a.attname)
    """  # noqa: S608 - a constant of this module
)
# Qualified with the schema: behind a pooler, statements outside a transaction use the server's
# search_path.
_THERE = text(
    """
    SELECT format('%I.%I', n.nspname, c.relname)
    FROM unnest((:tables)::text[]) WITH ORDINALITY AS given (name, place)
    JOIN pg_class AS c ON c.oid = to_regclass(quote_ident(given.name))
    JOIN pg_namespace AS n ON n.oid = c.relnamespace ORDER BY given.place
    """
)
_HOLDS = text(
    """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND pid <> pg_backend_pid() AND age(backend_xmin) > age((:before)::text::xid)
    """
)


def without_statistics(connection: Connection, names: Iterable[str]) -> None:
    """Stop PostgreSQL from collecting values of text columns, in the caller's transaction."""
    if connection.dialect.name != "postgresql":
        return
    quote = connection.dialect.identifier_preparer.quote_identifier
    changes: dict[str, list[str]] = {}
    for table, column in connection.execute(_COLLECTED, {"tables": list(names)}).all():
        change = f"ALTER COLUMN {quote(column)} SET STATISTICS 0"
        changes.setdefault(table, []).append(change)
    for table, some in changes.items():
        connection.exec_driver_sql(f"ALTER TABLE {quote(table)} {', '.join(some)}")


def clear_statistics(connection: Connection, names: Sequence[str]) -> None:
    """Delete values that were collected before this was disabled, in the caller's transaction.

    Before PostgreSQL 18 the statistics are collected again, from the remaining rows; those of an
    empty table stay.
    """
    if connection.dialect.name != "postgresql":
        return
    found = connection.execute(_STATISTICS, {"tables": list(names)}).all()
    if not found:
        return
    try:
        with connection.begin_nested():
            for schema, table, column in found:
                _clear(connection, schema, table, column)
    except ProgrammingError as error:
        message = "planner statistics may hold erased texts: only the tables' owner can clear them"
        _log.warning(message, error=str(error.orig))


def _clear(connection: Connection, schema: str, table: str, column: str) -> None:
    if connection.dialect.server_version_info >= (_CLEARS,):  # type: ignore[operator]
        clear = text("SELECT pg_clear_attribute_stats(:schema, :table, :column, false)")
        connection.execute(clear, {"schema": schema, "table": table, "column": column})
        return
    quote = connection.dialect.identifier_preparer.quote_identifier
    of = f"ALTER TABLE {quote(table)} ALTER COLUMN {quote(column)} SET STATISTICS"
    for statement in (f"{of} 1", f"ANALYZE {quote(table)} ({quote(column)})", f"{of} 0"):
        connection.exec_driver_sql(statement)


def vacuum(transactions: Transactions, tables: Sequence[str]) -> None:
    """Rewrite tables and indexes without the erased data, each in a statement of its own.

    Raises:
        NotWritable: A table belongs to another role and was not rewritten; the others were.
    """
    engine = transactions.engine
    with long_running(), translated(transactions.url):
        if engine.dialect.name == "sqlite":
            with closing(engine.raw_connection()) as pooled:  # SQLAlchemy's own begin transactions
                pooled.cursor().execute("VACUUM")
        else:
            with engine.begin() as connection:
                there = connection.execute(_THERE, {"tables": list(tables)}).scalars().all()
            with engine.connect() as connection:
                alone = connection.execution_options(isolation_level="AUTOCOMMIT")
                _rewrite(alone, transactions.url, there)


def _rewrite(connection: Connection, url: str, tables: Sequence[str]) -> None:
    before = connection.exec_driver_sql("SELECT pg_current_xact_id()::xid::text").scalar()
    refused: list[str] = []
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)  # noqa: S101 - no other driver is supported

    def note(diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            refused.append(str(diagnostic.message_primary))

    driver.add_notice_handler(note)
    try:
        for name in tables:
            connection.exec_driver_sql(f"VACUUM (FULL) {name}")
    finally:
        driver.remove_notice_handler(note)
    if connection.execute(_HOLDS, {"before": before}).scalar():
        _log.warning("erased rows are still in the tables: an older transaction may read them")
    if refused:
        more = f" (and others, {len(refused)} in all)" if len(refused) > 1 else ""
        raise NotWritable(url, f"{refused[0]}{more}: the owner of the tables has to do this")
