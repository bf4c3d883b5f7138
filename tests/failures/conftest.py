"""Databases for the tests of PostgreSQL in trouble: one that has the schema, reset after each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from eventstore import EventStore
from eventstore.leases import Keeper
from tests.conftest import Beginning
from tests.failures.injected import Faults
from tests.reusable_database import ReusableDatabase


@pytest.fixture
def beginning() -> Beginning:
    """Have databases begin with the tables of all projections, unless a test is about these."""
    return "installed"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def module_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, upgraded_file: Path
) -> Iterator[str]:
    """URL of a database with the schema that all tests of a module share."""
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("module") / "store.db"
        shutil.copy(upgraded_file, path)
        yield f"sqlite:///{path}"
        return
    database: ReusableDatabase = request.getfixturevalue("reusable_databases")("upgraded")
    yield database.url()
    database.reset()


@pytest.fixture(scope="module")
def faults() -> Iterator[Faults]:
    """Give the errors that this process's drivers may be told to raise."""
    # Leases are renewed by a thread, whose statements no test has counted.
    with Faults().installed() as faults, patch.object(Keeper, "renew", lambda _: None):
        yield faults


@pytest.fixture(scope="module")
def module_store(module_url: str, faults: Faults) -> Iterator[EventStore]:
    """Give the store that all tests of a module share."""
    with EventStore.open(module_url, synchronous="NORMAL") as store:
        yield store
