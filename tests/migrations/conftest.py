"""Engines of the databases under test, closed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine, create_engine, make_url

from eventstore.sql.engines import open_engine


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """Give an engine on an empty database, configured as the store's own."""
    engine = open_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def inspected(database_url: str) -> Iterator[Connection]:
    """Give a connection as anybody else has it, to look at the schema once it is there."""
    engine = create_engine(database_url)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def upgraded(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """Give a connection to look at a schema that was upgraded once for all who only look."""
    if request.param == "sqlite":
        url = make_url(f"sqlite:///{request.getfixturevalue('upgraded_file')}")
    else:
        server = make_url(request.getfixturevalue("postgres_server_url"))
        name = request.getfixturevalue("upgraded_database")
        url = server.set(drivername="postgresql+psycopg", database=name)
    engine = create_engine(url)
    with engine.connect() as connection:
        yield connection
    engine.dispose()
