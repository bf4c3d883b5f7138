"""The one way in which a schema comes into being: opening, the command line and tests use it.

Migrations run in one transaction under a lock, so that any number of processes may open a new
database at once: the first upgrades, the others wait and find it done.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from eventstore.errors import SchemaOutdated, SchemaTooNew, StoreUnavailable
from eventstore.masking import masked
from eventstore.sql.engines import begin_write
from eventstore.sql.failures import translated

__all__ = [
    "current_revision",
    "known_revisions",
    "require_current",
    "schema_lock",
    "schema_stays",
    "upgrade",
]

_LOCK = 0x6576656E74  # "event" in ASCII: the advisory lock's number on PostgreSQL


@contextmanager
def schema_lock(engine: Engine, *, patience_ms: int | None = None) -> Iterator[Connection]:
    """Yield a connection in a transaction that no other schema change runs beside.

    With ``patience_ms`` it waits no longer for a lock.

    Raises:
        StoreUnavailable: The database cannot be reached or written, or went away in the block.
    """
    url = masked(engine.url)
    with translated(url), begin_write(engine, patience_ms=patience_ms) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        yield connection


def schema_stays(connection: Connection) -> None:
    """Keep every table from being dropped until the caller's transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock_shared(:key)"), {"key": _LOCK})


def known_revisions() -> tuple[str, ...]:
    """Return the revisions that this code has, oldest first."""
    revisions: tuple[str, ...] = vars(_migrations())["REVISIONS"]
    return revisions


def current_revision(connection: Connection) -> str | None:
    """Return the revision that the database is at, or None if it was never upgraded."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def upgrade(engine: Engine) -> str:
    """Bring the schema up to date and return its revision; does nothing if it is.

    One transaction: a failed upgrade leaves the schema as it was.

    Raises:
        SchemaTooNew: The database was upgraded by a newer version of this package.
        StoreUnavailable: The database cannot be reached or written.
    """
    url = masked(engine.url)
    with translated(url):
        with engine.connect() as connection:
            current = _is_current(connection, url)
        if engine.dialect.name == "sqlite":
            _use_write_ahead_log(engine)
        if current:
            return known_revisions()[-1]
        with schema_lock(engine) as connection:
            if not _is_current(connection, url):
                _run_alembic(connection)
    return known_revisions()[-1]


def require_current(engine: Engine) -> None:
    """Raise unless the schema is exactly the one that this code knows.

    Raises:
        SchemaOutdated: It is older.
        SchemaTooNew: It is newer.
    """
    url = masked(engine.url)
    with translated(url), engine.connect() as connection:
        if not _is_current(connection, url):
            raise SchemaOutdated(url, "the schema is outdated: run `eventstore db upgrade`")


def _is_current(connection: Connection, url: str) -> bool:
    revision = current_revision(connection)
    if revision is not None and revision not in known_revisions():
        raise SchemaTooNew(
            url,
            f"the schema is at revision {revision}, which this version does not know: "
            "upgrade the package",
        )
    return revision == known_revisions()[-1]


def _use_write_ahead_log(engine: Engine) -> None:
    """Set the journal mode, which the file remembers; not possible within a transaction."""
    pooled = engine.raw_connection()
    try:
        pooled.cursor().execute("PRAGMA journal_mode=WAL").fetchall()
    finally:
        pooled.close()


def _run_alembic(connection: Connection) -> None:
    # Imported here: it takes a tenth of a second, and most openings find the schema current.
    from alembic import command
    from alembic.config import Config

    spec = importlib.util.find_spec("migrations")
    if spec is None or spec.origin is None:  # pragma: no cover - a broken installation
        raise StoreUnavailable(masked(connection.engine.url), "the migrations are not installed")
    config = Config()
    config.set_main_option("script_location", str(Path(spec.origin).parent))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _migrations() -> object:
    return importlib.import_module("migrations")
