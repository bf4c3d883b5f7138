"""Stores for the contract suite: SQLite and PostgreSQL, each through both kinds of store.

Most behaviours concern one conversation; their tests share a database and make conversations of
their own (`store`). What concerns the whole store, or does harm, gets a database for itself
(`fresh`, with `plain` as a plain SQL client of the same database).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from tests.contract.emptied import EmptiedDatabase
from tests.contract.facade import Access, opened
from tests.contract.plain import PlainClient
from tests.postgres import fresh_database

HASTY: dict[str, Any] = {"synchronous": "NORMAL"}
"""Options of stores whose tests are not about the disk."""


@pytest.fixture(scope="session")
def shared_sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """URL of the SQLite file that the contract suite shares."""
    return f"sqlite:///{tmp_path_factory.mktemp('contract') / 'store.db'}"


@pytest.fixture(scope="session")
def shared_postgres_url(postgres_server_url: str) -> Iterator[str]:
    """URL of the PostgreSQL database that the contract suite shares."""
    with fresh_database(postgres_server_url) as url:
        yield url


@pytest.fixture(scope="session")
def begin_upgraded() -> bool:
    """Have databases begin with the schema, which the tests here do not ask about."""
    return True


@pytest.fixture(scope="session")
def emptied(postgres_server_url: str, upgraded_database: str) -> Iterator[EmptiedDatabase]:
    """Give the PostgreSQL database that tests have for themselves, one after the other."""
    with closing(EmptiedDatabase(postgres_server_url, upgraded_database)) as found:
        yield found


@pytest.fixture
def postgres_url(emptied: EmptiedDatabase) -> Iterator[str]:
    """URL of an empty PostgreSQL database that belongs to this test."""
    yield emptied.url()
    emptied.empty()


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """URL of the shared database, once for each backend."""
    fixture = {"sqlite": "shared_sqlite_url", "postgresql": "shared_postgres_url"}
    return str(request.getfixturevalue(fixture[request.param]))


@pytest.fixture(params=["sync", "async"])
def access(request: pytest.FixtureRequest) -> Access:
    """Which kind of store the test goes through."""
    kind: Access = request.param
    return kind


@pytest.fixture(scope="session")
def open_stores() -> Iterator[Callable[[str, Access], EventStore]]:
    """Give a function that opens a store once, and returns the same to every test that asks."""
    with ExitStack() as stack:
        yield cache(lambda url, access: stack.enter_context(opened(url, access, **HASTY)))


@pytest.fixture
def store(
    shared_url: str, access: Access, open_stores: Callable[[str, Access], EventStore]
) -> EventStore:
    """Give a store on the shared database."""
    return open_stores(shared_url, access)


@pytest.fixture
def fresh(database_url: str, access: Access) -> Iterator[EventStore]:
    """Give a store on a database of the test's own."""
    with opened(database_url, access, migrate=False, **HASTY) as store:
        yield store


@pytest.fixture
def plain(database_url: str) -> Iterator[PlainClient]:
    """Give a plain SQL client of the database of `fresh`."""
    with PlainClient(database_url) as client:
        yield client


@pytest.fixture
def cid() -> UUID:
    """Give the id of a conversation that does not exist yet."""
    return new_id()
