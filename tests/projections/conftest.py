"""A store on a database of the test's own, its views, and an id nobody has used.

A test that asks for ``views``, or for ``installed``, begins with the tables of all projections; any
other with the schema alone. Both are copied, which is quicker than making them each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from projections import Views
from tests.conftest import Beginning


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
def beginning(request: pytest.FixtureRequest) -> Beginning:
    """Have a database begin with what the test asks for."""
    return "installed" if "installed" in request.fixturenames else "upgraded"
