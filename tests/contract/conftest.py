"""Stores for the contract suite: SQLite and PostgreSQL, each through both kinds of store.

Each behaviour also holds for a store that seals what it writes (see `eventstore.security.sealing`).

Most behaviours concern one conversation; their tests share a database and make conversations of
their own (`store`). What concerns the whole store, or does harm, gets a database for itself
(`fresh`, with `plain` as a plain SQL client of the same database).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import make_url

from eventstore import DirectoryKeys, EventStore, new_id
from tests.conftest import Beginning
from tests.contract.facade import Access, opened
from tests.contract.plain import PlainClient
from tests.partitioned import upgrade
from tests.postgres import fresh_database

_KEYS = ("test_append.py", "test_keys.py", "test_large_payloads.py", "test_read.py")
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
        upgrade(url)
        yield url


@pytest.fixture
def beginning() -> Beginning:
    """Have databases begin with the schema, which the tests here do not ask about."""
    return "upgraded"


@pytest.fixture(scope="session")
def shared_sealed_sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """URL of the SQLite file that tests share whose stores have keys."""
    return f"sqlite:///{tmp_path_factory.mktemp('sealed') / 'store.db'}"


@pytest.fixture(scope="session")
def shared_sealed_postgres_url(postgres_server_url: str) -> Iterator[str]:
    """URL of the PostgreSQL database that tests share whose stores have keys.

    They are in a schema of their own, beside a product's tables of the same names.
    """
    with fresh_database(postgres_server_url) as url:
        with PlainClient(url) as client:
            client.execute(
                "CREATE TABLE events (id BIGINT); CREATE TABLE conversations (id BIGINT)"
            )
        own = make_url(url).update_query_dict({"schema": "the store's"})
        upgrade(own.render_as_string(hide_password=False))
        yield own.render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> DirectoryKeys:
    """Give the keys of stores that seal."""
    return DirectoryKeys(tmp_path_factory.mktemp("keys"), wrapping=bytes(range(32)))


@pytest.fixture(params=["sqlite", "postgresql", "sealed_sqlite", "sealed_postgres"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """URL of the shared database, for each backend one without keys and one with."""
    kind = {"postgresql": "postgres"}.get(request.param, request.param)
    return str(request.getfixturevalue(f"shared_{kind}_url"))


@pytest.fixture
def keys_of_shared(shared_url: str, request: pytest.FixtureRequest) -> DirectoryKeys | None:
    """Give the keys of the shared database, if its stores have any."""
    kind = request.node.callspec.params["shared_url"]
    return request.getfixturevalue("keys") if kind.startswith("sealed") else None


@pytest.fixture(params=["sync", "async"])
def access(request: pytest.FixtureRequest) -> Access:
    """Which kind of store the test goes through."""
    kind: Access = request.param
    return kind


@pytest.fixture(scope="session")
def open_stores() -> Iterator[Callable[..., EventStore]]:
    """Give a function that opens a store once, and returns the same to every test that asks."""
    with ExitStack() as stack:

        @cache
        def open_once(url: str, access: Access, keys: DirectoryKeys | None = None) -> EventStore:
            return stack.enter_context(opened(url, access, keys=keys, **HASTY))

        yield open_once


@pytest.fixture
def store(
    shared_url: str,
    access: Access,
    keys_of_shared: DirectoryKeys | None,
    open_stores: Callable[..., EventStore],
) -> EventStore:
    """Give a store on the shared database."""
    return open_stores(shared_url, access, keys_of_shared)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have what is sealed go through the asynchronous store in a few files alone.

    It calls the plain store in its threads and seals nothing of its own, so that all the other
    behaviours would be the plain store's with keys once more.
    """
    items[:] = [item for item in items if not _is_sealed_and_async(item) or item.path.name in _KEYS]


def _is_sealed_and_async(item: pytest.Item) -> bool:
    given = (
        item.callspec.params
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else {}
    )
    return str(given.get("shared_url")).startswith("sealed") and given.get("access") == "async"


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
