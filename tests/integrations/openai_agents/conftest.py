"""Stores for the adapters: SQLite and PostgreSQL; each test has sessions of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventstore import EventStore
from projections import Views
from tests.postgres import fresh_database


@pytest.fixture(scope="session")
def sqlite_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventStore]:
    """Give a store on SQLite with the tables of all views."""
    path = tmp_path_factory.mktemp("integrations") / "store.db"
    with EventStore.open(f"sqlite:///{path}", synchronous="NORMAL") as opened:
        Views(opened)
        yield opened


@pytest.fixture(scope="session")
def postgres_store(postgres_server_url: str) -> Iterator[EventStore]:
    """Give a store on PostgreSQL with the tables of all views."""
    with fresh_database(postgres_server_url) as url, EventStore.open(url) as opened:
        Views(opened)
        yield opened


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> EventStore:
    """Give a store, once for each backend."""
    name = {"sqlite": "sqlite_store", "postgresql": "postgres_store"}[request.param]
    found: EventStore = request.getfixturevalue(name)
    return found
