"""Stores that the crash tests share: each test has conversations of its own.

No test here is about the disk, since a killed process loses nothing that the operating system has:
so SQLite syncs seldom, and PostgreSQL does not wait for its log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from eventstore import EventStore
from projections import Views
from tests.crash.places import Place
from tests.crash.processes import Agents, agents
from tests.postgres import fresh_database


@pytest.fixture(scope="session")
def shared_sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """URL of the SQLite file that the crash tests share."""
    return f"sqlite:///{tmp_path_factory.mktemp('crash') / 'store.db'}"


@pytest.fixture(scope="session")
def shared_postgres_url(postgres_server_url: str) -> Iterator[str]:
    """URL of the PostgreSQL database that the crash tests share."""
    with fresh_database(postgres_server_url) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """URL of the shared database, once for each backend."""
    fixture = {"sqlite": "shared_sqlite_url", "postgresql": "shared_postgres_url"}
    return str(request.getfixturevalue(fixture[request.param]))


@pytest.fixture(scope="session")
def open_store() -> Iterator[Callable[[str], EventStore]]:
    """Give a function that opens a store once, and returns the same to every test that asks."""
    with ExitStack() as stack:
        yield cache(
            lambda url: stack.enter_context(EventStore.open(url, synchronous="NORMAL", pool_size=2))
        )


@pytest.fixture(scope="session")
def forking() -> Iterator[Agents]:
    """Give the server of the agents' processes."""
    with agents() as found:
        yield found


@pytest.fixture(scope="session")
def find_place(
    open_store: Callable[[str], EventStore],
    forking: Agents,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Place]:
    """Give a function that returns the place of a database, the same to every test that asks."""

    def make(url: str) -> Place:
        store = open_store(url)
        folder: Path = tmp_path_factory.mktemp("agents")
        return Place(url, store, Views(store), forking, folder)

    return cache(make)


@pytest.fixture
def place(shared_url: str, find_place: Callable[[str], Place]) -> Place:
    """Give a database with its schema, and a server of agents."""
    return find_place(shared_url)
