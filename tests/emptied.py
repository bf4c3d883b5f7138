"""One PostgreSQL database for many tests, emptied after each: making one costs a tenth of a second.

A test may do with it what it likes. If its schema, its rights or its settings are not what they
were, or somebody still holds its tables, it is thrown away, and the next test gets a new one.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from tests.connected import close_left, share
from tests.postgres import fresh_database

__all__ = ["EmptiedDatabase"]

_LOCK_TIMEOUT_MS = 2_000
_SCHEMA = """
    SELECT 'column', relname, attname, atttypid::regtype::text, attnum, attnotnull
    FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
    WHERE relnamespace = 'public'::regnamespace AND attnum > 0 AND NOT attisdropped
    UNION ALL SELECT 'constraint', conrelid::regclass::text, conname, '', 0, convalidated
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT 'trigger', tgrelid::regclass::text, tgname, '', 0, tgisinternal
    FROM pg_trigger
    UNION ALL SELECT 'function', proname, md5(prosrc), '', 0, true
    FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT 'rights', relname, relacl::text, array_to_string(reloptions, ' '), 0, true
    FROM pg_class WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT 'schema', nspname, nspacl::text, '', 0, true
    FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp'
    UNION ALL SELECT 'settings', datname, array_to_string(setconfig, ' '), '', 0, true
    FROM pg_database LEFT JOIN pg_db_role_setting ON setdatabase = pg_database.oid
    WHERE datname = current_database()
    ORDER BY 1, 2, 3
"""
_TABLES = """
    SELECT relname, ARRAY(
        SELECT tgname::text FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal)
    FROM pg_class c WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
"""
_SEQUENCES = """
    SELECT setval(oid, 1, false)
    FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'S'
"""


class EmptiedDatabase:
    """A database that each test finds as its template is.

    A session stays connected to it.

    Args:
        server_url: Any database of the server.
        template: The database to copy.
    """

    def __init__(self, server_url: str, template: str) -> None:
        self._server_url, self._template = server_url, template
        self._stack = ExitStack()
        self._url: str | None = None

    def url(self) -> str:
        """Return the database's SQLAlchemy URL; nobody but this test uses it until `empty`."""
        if self._url is None:
            self._make()
        assert self._url is not None
        return self._url

    def empty(self) -> None:
        """Put everything back to what the template has, or throw the database away."""
        try:
            with self._connection.transaction():
                self._connection.execute(f"SET LOCAL lock_timeout = {_LOCK_TIMEOUT_MS}")
                unchanged = self._schema == self._rows(_SCHEMA)
                if unchanged:
                    self._connection.execute(self._deletions)
                    self._insert_kept()
        except psycopg.Error:
            unchanged = False
        if not unchanged:
            self.close()

    def close(self) -> None:
        """Drop the database."""
        if self._url is not None:
            close_left(make_url(self._url).database)
        self._url = None
        self._stack.close()

    def _make(self) -> None:
        url = self._stack.enter_context(fresh_database(self._server_url, template=self._template))
        conninfo = make_url(url).set(drivername="postgresql")
        self._connection = self._stack.enter_context(
            psycopg.connect(conninfo.render_as_string(hide_password=False), autocommit=True)
        )
        self._schema = self._rows(_SCHEMA)
        tables = self._rows(_TABLES)
        self._deletions = sql.SQL(";").join([_deletion(*table) for table in tables])
        self._kept = {
            name: rows
            for name, _ in tables
            if (rows := self._rows(_format("SELECT json_agg(t)::text FROM {0} t", name))[0][0])
        }
        share(str(make_url(url).database))
        self._url = url

    def _insert_kept(self) -> None:
        fill = "INSERT INTO {0} SELECT * FROM json_populate_recordset(NULL::{0}, %s::json)"
        for name, rows in self._kept.items():
            self._connection.execute(_format(fill, name), [rows])
        self._connection.execute(_SEQUENCES)

    def _rows(self, query: str | sql.Composed) -> list[tuple[Any, ...]]:
        return self._connection.execute(query).fetchall()


def _deletion(table: str, triggers: list[str]) -> sql.Composed:
    alter = _format("ALTER TABLE {0} ", table)
    steps = [
        *(alter + _format("DISABLE TRIGGER {0}", name) for name in triggers),
        _format("DELETE FROM {0}", table),
        *(alter + _format("ENABLE ALWAYS TRIGGER {0}", name) for name in triggers),
    ]
    return sql.SQL(";").join(steps)


def _format(statement: LiteralString, name: str) -> sql.Composed:
    return sql.SQL(statement).format(sql.Identifier(name))
