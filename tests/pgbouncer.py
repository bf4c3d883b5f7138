"""PgBouncer for the tests: a pooler of its own before a PostgreSQL server, in transaction mode.

The program is the system's (Debian's package `pgbouncer`); it refuses to run as root, so that root
runs it as user `nobody`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
import pytest
from sqlalchemy import URL, make_url

from tests.postgres import give_to_nobody

__all__ = ["HAS_PGBOUNCER", "PgBouncer", "needs_pgbouncer"]

_PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
HAS_PGBOUNCER = _PROGRAM is not None
"""Whether the program is installed."""
needs_pgbouncer = pytest.mark.skipif(
    not HAS_PGBOUNCER, reason="the program pgbouncer is not installed"
)
_PORT = 6432
_STARTS_S = 10.0


class PgBouncer:
    """A pooler in a temporary directory, reached through a Unix socket; a context manager.

    Args:
        server_url: The server that it stands in front of.
        pool_size: How many connections to the server it shares among its clients.
    """

    def __init__(self, server_url: str, *, pool_size: int = 2) -> None:
        self._server = make_url(server_url)
        self._pool_size = pool_size
        self._directory = Path(tempfile.mkdtemp(prefix="eventstore-pooler-"))
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, server_url: str) -> URL:
        """Return the URL of a database of the server that leads through the pooler."""
        place = {"host": str(self._directory), "port": str(_PORT)}
        url = make_url(server_url).set(host=None, port=None, password=None)
        return url.update_query_dict(place)

    def __enter__(self) -> Self:
        """Start it, and wait until it answers."""
        server, directory = self._server, self._directory
        host = server.query.get("host") or server.host
        (directory / "users").write_text(f'"{server.username}" "{server.password or ""}"\n')
        (directory / "pgbouncer.ini").write_text(
            f"""
[databases]
* = host={host} port={server.port or 5432}
[pgbouncer]
unix_socket_dir = {directory}
listen_addr =
listen_port = {_PORT}
auth_type = trust
auth_file = {directory}/users
pool_mode = transaction
default_pool_size = {self._pool_size}
max_client_conn = 100
logfile = {directory}/log
"""
        )
        command = [str(_PROGRAM), str(directory / "pgbouncer.ini")]
        if os.geteuid() == 0:
            give_to_nobody(directory)
            command[1:1] = ["-u", "nobody"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, **quiet)  # type: ignore[call-overload]
        try:
            self._wait()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _wait(self) -> None:
        address = self.url(self._server.render_as_string(hide_password=False))
        conninfo = address.set(drivername="postgresql").render_as_string(hide_password=False)
        until = time.monotonic() + _STARTS_S
        while True:
            try:
                psycopg.connect(conninfo, connect_timeout=2).close()
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
            else:
                return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it, and delete its directory."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
