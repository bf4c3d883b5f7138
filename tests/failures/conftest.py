"""Databases for the tests of PostgreSQL in trouble: one that has the schema, emptied after each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from eventstore import EventStore
from eventstore.leases import Keeper
from tests.contract.emptied import EmptiedDatabase
from tests.failures.injected import Faults


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


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def struck_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, upgraded_file: Path
) -> Iterator[str]:
    """URL of a database with the schema that all tests of a module share."""
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("struck") / "store.db"
        shutil.copy(upgraded_file, path)
        yield f"sqlite:///{path}"
        return
    emptied: EmptiedDatabase = request.getfixturevalue("emptied")
    yield emptied.url()
    emptied.empty()


@pytest.fixture(scope="module")
def faults() -> Iterator[Faults]:
    """Give the errors that this process's drivers may be told to raise."""
    # Leases are renewed by a thread, whose statements no test has counted.
    with Faults().installed() as faults, patch.object(Keeper, "renew", lambda _: None):
        yield faults


@pytest.fixture(scope="module")
def struck(struck_url: str, faults: Faults) -> Iterator[EventStore]:
    """Give the store that all tests of a module share."""
    with EventStore.open(struck_url, synchronous="NORMAL") as store:
        yield store
