"""Databases for every test, and the settings of Hypothesis.

With pytest-xdist the controller starts the one PostgreSQL of the run, hands its URL to the workers,
and stops it when they are done; without, it starts at the first test that asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.postgres import PostgresServer, SharedPostgres, fresh_database

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

# The same examples in every run: a failure is about the change at hand. For a search use
# `--hypothesis-profile search`.
settings.register_profile("default", derandomize=True, deadline=None, database=None)
settings.register_profile("search", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile("default")

SHARED = pytest.StashKey[SharedPostgres]()


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the run's PostgreSQL, in the one process that owns it."""
    if not hasattr(config, "workerinput"):
        config.stash[SHARED] = SharedPostgres()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker where PostgreSQL is, or why it is nowhere."""
    node.workerinput["postgres"] = node.config.stash[SHARED].address()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the run's PostgreSQL after the last worker."""
    if SHARED in config.stash:
        config.stash[SHARED].close()


@pytest.fixture(scope="session")
def postgres_server_url(pytestconfig: pytest.Config) -> str:
    """URL of the run's PostgreSQL server; without one the test fails, and never skips."""
    if hasattr(pytestconfig, "workerinput"):
        url, problem = pytestconfig.workerinput["postgres"]
    else:
        url, problem = pytestconfig.stash[SHARED].address()
    if problem:
        pytest.fail(problem, pytrace=False)
    return str(url)


@pytest.fixture
def postgres_url(postgres_server_url: str) -> Iterator[str]:
    """URL of an empty PostgreSQL database that belongs to this test."""
    with fresh_database(postgres_server_url) as url:
        yield url


@pytest.fixture
def private_postgres() -> Iterator[PostgresServer]:
    """Give a PostgreSQL server that belongs to this test, to be stopped and crashed at will."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """URL of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of an empty database that belongs to this test, once for each backend."""
    fixture = {"sqlite": "sqlite_url", "postgresql": "postgres_url"}[request.param]
    return str(request.getfixturevalue(fixture))
