"""A store on a database of the test's own, its views, and an id nobody has used."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from projections import Views


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store on an empty database, once for each backend."""
    with EventStore.open(database_url) as store:
        yield store


@pytest.fixture
def views(store: EventStore) -> Views:
    """Give the views of the store."""
    return Views(store)


@pytest.fixture
def cid() -> UUID:
    """Give the id of a conversation that does not exist yet."""
    return new_id()


@pytest.fixture(scope="session")
def begin_upgraded() -> bool:
    """Have databases begin with the schema, which the tests here do not ask about."""
    return True
