"""Databases for the tests of PostgreSQL in trouble: one that has the schema, emptied after each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.contract.emptied import EmptiedDatabase


@pytest.fixture(scope="session")
def emptied(postgres_server_url: str, upgraded_database: str) -> Iterator[EmptiedDatabase]:
    """Give the PostgreSQL database that tests have for themselves, one after the other."""
    with closing(EmptiedDatabase(postgres_server_url, upgraded_database)) as found:
        yield found


@pytest.fixture
def postgres_url(emptied: EmptiedDatabase) -> Iterator[str]:
    """URL of a PostgreSQL database with the schema alone that belongs to this test."""
    yield emptied.url()
    emptied.empty()
