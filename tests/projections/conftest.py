"""A store on a database of the test's own, its views, and an id nobody has used.

A test that asks for ``views``, or for ``installed``, begins with the tables of all projections; any
other with the schema alone. Both are copied, which is quicker than making them each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import make_url

from eventstore import EventStore, new_id
from projections import Views
from tests.postgres import fresh_database


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store on an empty database, once for each backend."""
    with EventStore.open(database_url) as store:
        yield store


@pytest.fixture
def installed() -> None:
    """Ask for a database that begins with the tables of all projections."""


@pytest.fixture
def views(installed: None, store: EventStore) -> Views:
    """Give the views of the store."""
    return Views(store)


@pytest.fixture
def cid() -> UUID:
    """Give the id of a conversation that does not exist yet."""
    return new_id()


@pytest.fixture
def sqlite_template(request: pytest.FixtureRequest) -> Path:
    """Path of the file that a test's own is a copy of."""
    wanted = "installed_file" if "installed" in request.fixturenames else "upgraded_file"
    return Path(request.getfixturevalue(wanted))


@pytest.fixture
def postgres_template(request: pytest.FixtureRequest) -> str:
    """Name of the database that a test's own is a copy of."""
    wanted = "installed_database" if "installed" in request.fixturenames else "upgraded_database"
    return str(request.getfixturevalue(wanted))


@pytest.fixture(scope="session")
def installed_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of a SQLite file with the tables of all projections, to be copied."""
    path = tmp_path_factory.mktemp("installed") / "store.db"
    with EventStore.open(f"sqlite:///{path}") as store:
        Views(store)
    return path


@pytest.fixture(scope="session")
def installed_database(postgres_server_url: str) -> Iterator[str]:
    """Name of a PostgreSQL database with the tables of all projections, to be copied."""
    with fresh_database(postgres_server_url) as url:
        with EventStore.open(url) as store:
            Views(store)
        yield str(make_url(url).database)
