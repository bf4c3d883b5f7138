"""Engines of the databases under test, closed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine, create_engine

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
