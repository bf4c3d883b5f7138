"""Creates and upgrades the schema; opening a store, the command line and tests all use it.

Migrations run in one transaction under a lock, so any number of processes can open a new database
at once: the first one upgrades, the others wait and find it done.
"""

from __future__ import annotations

import importlib.util
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, inspect, text

from eventstore.errors import InvalidUrl, NotWritable, SchemaOutdated, SchemaTooNew, TablesTaken
from eventstore.sql.backend import backend_of
from eventstore.sql.driver_errors import translated
from eventstore.sql.engines import begin_write
from eventstore.sql.schema import VIEWS, metadata_for
from eventstore.sql.sessions import ConnectionSettings, quoted
from eventstore.sql.waits import long_running
from eventstore.telemetry.log import masked

__all__ = [
    "ENCODINGS",
    "REVISIONS",
    "VERSION_TABLE",
    "create_schema",
    "current_revision",
    "require_current",
    "require_free",
    "revision_script",
    "schema_lock",
    "schema_stays",
    "upgrade",
]

REVISIONS = ("0001", "0002", "0003", "0004", "0005")
"""The revisions of this code, oldest first; with them, opening need not load Alembic."""

VERSION_TABLE = "eventstore_version"
"""This package's Alembic version table, separate from a product's own ``alembic_version``."""

ENCODINGS = frozenset(("UTF8", "SQL_ASCII", "UTF-8", "UTF-16le", "UTF-16be"))
"""Encodings of databases that can store every text; PostgreSQL's SQL_ASCII checks no byte."""

_AGAIN_S = 0.01


@contextmanager
def schema_lock(
    engine: Engine, *, durable: bool = True, patience_ms: int | None = None
) -> Iterator[Connection]:
    """Yield a connection in a transaction that excludes all other schema changes.

    With ``durable`` false a power cut may undo it, as a whole. ``patience_ms`` limits how long it
    waits for a lock; 0 means no limit on PostgreSQL. The statements may take any time.

    Raises:
        StoreUnavailable: The database cannot be reached or written, or went away in the block.
        NotWritable: The login may not change the schema: its owner must run
            ``eventstore db upgrade``.
    """
    url = masked(engine.url)
    transaction = begin_write(engine, durable=durable, patience_ms=patience_ms)
    try:
        with long_running(), translated(url), transaction as connection:
            for lock in backend_of(connection).lock_schema:
                connection.exec_driver_sql(lock)
            yield connection
    except NotWritable as error:
        if not isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            raise
        reason = f"{str(error.__cause__).splitlines()[0]}: the owner of the tables has to do this"
        what = "the owner creates what is missing with `eventstore db upgrade`"
        raise NotWritable(url, f"{reason}; {what}") from error.__cause__


def schema_stays(connection: Connection) -> None:
    """Keep every table from being dropped until the caller's transaction ends."""
    if keep := backend_of(connection).keep_schema:
        connection.exec_driver_sql(keep)


def current_revision(connection: Connection) -> str | None:
    """Return the revision that the database is at, or None if it was never upgraded."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 - a constant


def create_schema(connection: Connection) -> None:
    """Create the schema that the URL names if it does not exist, in the caller's transaction.

    Raises:
        NotWritable: It exists, but the login may not use it.
    """
    schema = ConnectionSettings.of(connection.engine.url).schema
    if schema is None:
        return
    found = connection.execute(text("SELECT to_regnamespace(:name)"), {"name": quoted(schema)})
    if found.scalar() is None:
        connection.exec_driver_sql(f"CREATE SCHEMA {quoted(schema).replace('%', '%%')}")
    elif connection.exec_driver_sql("SELECT current_schema()").scalar() is None:
        reason = (
            f"the login may not use the schema {schema!r}: its owner runs `eventstore db grant`"
        )
        raise NotWritable(masked(connection.engine.url), reason)


def require_free(connection: Connection, names: Collection[str]) -> None:
    """Raise if the database already has tables or views with these names.

    Raises:
        TablesTaken: It has some.
    """
    inspector = inspect(connection)
    there = {*inspector.get_table_names(), *inspector.get_view_names()}
    if taken := there.intersection(names):
        raise TablesTaken(masked(connection.engine.url), sorted(taken))


def _require_encoding(connection: Connection) -> None:
    """Raise if the database's encoding cannot store every text of a conversation."""
    encoding = connection.exec_driver_sql(backend_of(connection).encoding).scalar_one()
    if encoding not in ENCODINGS:
        reason = f"the database's encoding {encoding} lacks characters that models and users write"
        advice = "create a database with ENCODING 'UTF8' TEMPLATE template0"
        raise InvalidUrl(masked(connection.engine.url), f"{reason}: {advice}")


def upgrade(engine: Engine) -> str:
    """Upgrade the schema to the latest revision, if necessary, and return that revision.

    One transaction: a failed upgrade leaves the schema unchanged.

    Raises:
        SchemaTooNew: The database was upgraded by a newer version of this package.
        InvalidUrl: The database is new, and its encoding cannot store every text.
        TablesTaken: Tables of other software have the names of this package's tables.
        StoreUnavailable: The database cannot be reached or written.
    """
    url = masked(engine.url)
    with translated(url):
        with engine.connect() as connection:
            current = _is_current(connection, url)
        on_server = engine.dialect.name == "postgresql"
        if not on_server:
            _use_write_ahead_log(engine)
        if current:
            return REVISIONS[-1]
        # Another process may be upgrading; wait for it without a limit.
        with schema_lock(engine, patience_ms=0 if on_server else None) as connection:
            if not _is_current(connection, url):
                create_schema(connection)
                if current_revision(connection) is None:
                    _require_encoding(connection)
                    require_free(connection, {*metadata_for(engine.dialect.name).tables, *VIEWS})
                _run_alembic(connection)
    return REVISIONS[-1]


def require_current(engine: Engine) -> None:
    """Raise unless the schema is at the latest revision of this code.

    Raises:
        SchemaOutdated: It is older.
        SchemaTooNew: It is newer.
    """
    url = masked(engine.url)
    with translated(url), engine.connect() as connection:
        if not _is_current(connection, url):
            if current_revision(connection) is None:
                reason = "it has no event store: `eventstore db upgrade` creates one"
                raise SchemaOutdated(url, reason)
            raise SchemaOutdated(url, "the schema is outdated: run `eventstore db upgrade`")


def _is_current(connection: Connection, url: str) -> bool:
    revision = current_revision(connection)
    if revision is not None and revision not in REVISIONS:
        raise SchemaTooNew(
            url,
            f"the schema is at revision {revision}, which this version does not know: "
            "upgrade the package",
        )
    return revision == REVISIONS[-1]


def _use_write_ahead_log(engine: Engine) -> None:
    """Set the journal mode, which the file remembers; not possible within a transaction.

    SQLite itself does not wait if two connections set it at once.
    """
    with closing(engine.raw_connection()) as pooled:
        until = time.monotonic() + pooled.info["busy_timeout_ms"] / 1000
        while True:
            try:
                pooled.cursor().execute("PRAGMA journal_mode=WAL").fetchall()
                return
            except sqlite3.OperationalError as error:
                # Errors that the module sqlite3 raises by itself have no code.
                code = getattr(error, "sqlite_errorcode", 0)
                busy = code & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() >= until:
                    raise
            time.sleep(_AGAIN_S)


def _run_alembic(connection: Connection) -> None:
    # Imported here: the import takes a tenth of a second, and most schemas are current.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_scripts()))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@cache
def revision_script(revision: str) -> dict[str, Any]:
    """Return the names that a revision's script defines; nothing imports it by name."""
    [path] = _scripts().glob(f"versions/{revision}_*.py")
    spec = importlib.util.spec_from_file_location(f"_eventstore_revision_{revision}", path)
    assert spec is not None  # noqa: S101 - a file of Python
    assert spec.loader is not None  # noqa: S101 - as above
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


def _scripts() -> Path:
    """Return the migrations' directory: in the installed package, or next to it in a checkout."""
    package = Path(__file__).parents[1]
    for place in (package / "migrations", package.parent / "migrations"):
        if place.is_dir():
            return place
    missing = f"{package / 'migrations'}: the migrations are needed as files on the disk"
    raise FileNotFoundError(f"{missing}: configure your bundler to include this directory")
