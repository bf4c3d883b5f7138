"""PostgreSQL for the tests: a throw-away server, and fresh databases on it or on another."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg import sql
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from torture import server
from torture.server import PostgresUnavailable, StopMode, give_to_nobody

__all__ = [
    "OTHERWISE",
    "URL_VARIABLE",
    "PostgresServer",
    "PostgresUnavailable",
    "fill",
    "fresh_database",
    "give_to_nobody",
    "place_of_many_files",
]

URL_VARIABLE = "EVENTSTORE_TEST_POSTGRES_URL"
OTHERWISE = f"or name a server that there is by {URL_VARIABLE}"

MEMORY = Path("/dev/shm")  # noqa: S108 - a file system, in which names are made by mkdtemp
MEMORY_NEEDED = 2 * 2**30


class PostgresServer(server.PostgresServer):
    """A server of the torture kit's, and what tests do with one besides."""

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop the server as `stop` does, and start it again at the same URL."""
        self.stop(mode)
        self.start()

    def replace(self, dbname: str = "postgres") -> None:
        """Restore a dump of a database into a new cluster, which takes this one's place and URL."""
        dump = str(self.directory / "dump")
        address = ("-d", self.url(dbname).replace("+psycopg", ""))
        self._run("pg_dump", *address, "-Fc", "-f", dump)
        self.stop()
        shutil.rmtree(self._data)
        self.start()
        self._run("pg_restore", *address, "--exit-on-error", dump)

    def log_files(self) -> list[Path]:
        """Return the files of the write-ahead log."""
        return [path for path in (self._data / "pg_wal").iterdir() if path.is_file()]


def place_of_many_files() -> Path:
    """Return a new directory: in memory where the system offers 2 GB of it, otherwise on disk.

    A test's own database is 300 files. To make them took half of the server's time on ext4, which
    steps over the inodes of the files deleted lately, those of the tests before.
    """
    return Path(tempfile.mkdtemp(prefix="eventstore-pg-", dir=roomy_memory()))


def roomy_memory() -> Path | None:
    """Return a directory whose files are in memory, if the system has one with 2 GB to spare."""
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED
    return MEMORY if roomy and os.access(MEMORY, os.W_OK | os.X_OK) else None


def fill(given: PostgresServer, template: PostgresServer) -> None:
    """Give a server that has no data those of one that is never started.

    To make them costs half a second, as much as most tests that have a server for themselves.

    Raises:
        PostgresUnavailable: There is no PostgreSQL to make them with.
    """
    if not template._data.exists():
        template._initialise()
    shutil.copytree(template._data, given._data)
    given.password = template.password
    if os.geteuid() == 0:
        give_to_nobody(given.directory)


@contextmanager
def fresh_database(server_url: str, *, template: str = "template0") -> Iterator[str]:
    """Create a database of its own name, and drop it in the end, whoever is still connected.

    Args:
        server_url: any database of the server, `postgresql://` or `postgresql+psycopg://`.
        template: the database to copy, which nobody may be connected to; by default an empty one.

    Yields:
        The SQLAlchemy URL of the new database.

    Raises:
        PostgresUnavailable: there is no server at the URL, or it refuses.
    """
    name = f"test_{uuid4().hex}"
    # Copied as files, which takes a third of the time of the default where they are in memory.
    database = sql.Identifier(name)
    _execute(
        server_url,
        sql.SQL("CREATE DATABASE {} TEMPLATE {} ENCODING 'UTF8' STRATEGY FILE_COPY").format(
            database, sql.Identifier(template)
        ),
    )
    try:
        url = make_url(server_url).set(drivername="postgresql+psycopg", database=name)
        yield url.render_as_string(hide_password=False)
    finally:
        _execute(server_url, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(database))


def _execute(server_url: str, statement: sql.Composed) -> None:
    try:
        address = make_url(server_url).set(drivername="postgresql")
        conninfo = address.render_as_string(hide_password=False)
        with psycopg.connect(conninfo, autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement)
    except (ArgumentError, psycopg.Error) as error:
        unavailable = PostgresUnavailable(str(error))
        unavailable.add_note(OTHERWISE)
        raise unavailable from error
