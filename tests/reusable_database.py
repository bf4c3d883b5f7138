"""One PostgreSQL database for many tests, reset after each: making one costs a tenth of a second.

A test may do with it what it likes. What it has added is dropped. If the schema, the rights or the
settings are then not what they were, or somebody still holds its tables, the database is thrown
away, and the next test gets a new one.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from tests.connected import close_left, share
from tests.postgres import fresh_database

__all__ = ["ReusableDatabase"]

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
_LOCKED = """
    SELECT relation::regclass::text FROM pg_locks
    WHERE relation IS NOT NULL AND pid <> pg_backend_pid()
"""
_DISARMED = """
    SELECT tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal AND tgenabled = 'D'
"""
_RELATIONS = """
    SELECT pg_class.oid, relname, kind
    FROM pg_class JOIN (VALUES (1, 'r', 'TABLE'), (2, 'v', 'VIEW'), (3, 'S', 'SEQUENCE'),
        (4, 'i', 'INDEX')) AS kinds (place, letter, kind) ON letter = relkind::text
    WHERE relnamespace = 'public'::regnamespace ORDER BY place
"""
_FUNCTIONS = """
    SELECT oid, oid::regprocedure::text, 'FUNCTION'
    FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND NOT EXISTS (
        SELECT FROM pg_depend WHERE objid = pg_proc.oid AND deptype = 'e')
"""
_EXTENSIONS = "SELECT oid, extname, 'EXTENSION' FROM pg_extension"
_SEQUENCES = """
    SELECT setval(oid, 1, false)
    FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'S'
"""


class ReusableDatabase:
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
        """Return the database's SQLAlchemy URL; nobody but this test uses it until `reset`."""
        if self._url is None:
            self._make()
        assert self._url is not None
        return self._url

    def reset(self) -> None:
        """Put everything back to what the template has, or throw the database away."""
        try:
            with self._connection.transaction():
                self._connection.execute(f"SET LOCAL lock_timeout = {_LOCK_TIMEOUT_MS}")
                unchanged = self._is_as_made() or (self._drop_added() and self._is_as_made())
                if unchanged:
                    self._delete()
                    self._insert_template_rows()
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
        self._made = {oid for oid, *_ in self._objects()}
        tables = self._rows(_TABLES)
        self._deletions = {name: _deletion(name, triggers) for name, triggers in tables}
        filled = (_filled(name) for name, _ in tables)
        self._touched = sql.SQL(" UNION ").join([sql.SQL(_LOCKED), sql.SQL(_DISARMED), *filled])
        self._template_rows = {
            name: rows
            for name, _ in tables
            if (rows := self._rows(_format("SELECT json_agg(t)::text FROM {0} t", name))[0][0])
        }
        share(str(make_url(url).database))
        self._url = url

    def _is_as_made(self) -> bool:
        return self._schema == self._rows(_SCHEMA)

    def _drop_added(self) -> bool:
        """Drop what the template has not, and all that needs it; return whether there was any."""
        added = [each for each in self._objects() if each[0] not in self._made]
        for _, name, kind in added:
            named = sql.SQL(name) if kind == "FUNCTION" else sql.Identifier(name)
            drop = sql.SQL("DROP {} IF EXISTS {} CASCADE").format(sql.SQL(kind), named)
            self._connection.execute(drop)
        return bool(added)

    def _objects(self) -> list[tuple[int, LiteralString, LiteralString]]:
        """Return oid, name and kind of what may be dropped, in the order of dropping."""
        ours = [*self._rows(_EXTENSIONS), *self._rows(_RELATIONS), *self._rows(_FUNCTIONS)]
        return [(oid, name, kind) for oid, name, kind in ours]

    def _delete(self) -> None:
        """Delete what there is, also what a session that holds a table may have yet to commit.

        All others are left alone: whoever uses a table that was altered has to plan anew.
        """
        touched = {name for (name,) in self._rows(self._touched)}
        wanted = [found for name, found in self._deletions.items() if name in touched]
        if wanted:
            self._connection.execute(sql.SQL(";").join(wanted))

    def _insert_template_rows(self) -> None:
        fill = "INSERT INTO {0} SELECT * FROM json_populate_recordset(NULL::{0}, %s::json)"
        for name, rows in self._template_rows.items():
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


def _filled(table: str) -> sql.Composed:
    """Return a query for the table's name, if it has rows."""
    query = sql.SQL("SELECT {} WHERE EXISTS (SELECT FROM {})")
    return query.format(sql.Literal(table), sql.Identifier(table))


def _format(statement: LiteralString, name: str) -> sql.Composed:
    return sql.SQL(statement).format(sql.Identifier(name))
