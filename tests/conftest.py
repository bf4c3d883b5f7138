"""Databases for every test, and the settings of Hypothesis.

With pytest-xdist the controller starts the one PostgreSQL of the run, hands its URL to the workers,
and stops it when they are done; without, it starts at the first test that asks for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from sqlalchemy import make_url

from eventstore import EventStore
from tests.postgres import PostgresServer, SharedPostgres, fresh_database

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

# The same examples in every run: a failure is about the change at hand. Few of them, so that the
# whole suite stays under five minutes on two cores; for a search use `--hypothesis-profile search`.
settings.register_profile(
    "default", derandomize=True, deadline=None, database=None, max_examples=50
)
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


@pytest.fixture(scope="session")
def begin_upgraded() -> bool:
    """Whether databases begin with the schema: copying it is quicker than making it each time."""
    return False


@pytest.fixture(scope="session")
def upgraded_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of a SQLite file with the schema and nothing in it, to be copied."""
    path = tmp_path_factory.mktemp("upgraded") / "store.db"
    EventStore.open(f"sqlite:///{path}").close()
    return path


@pytest.fixture(scope="session")
def upgraded_database(postgres_server_url: str) -> Iterator[str]:
    """Name of a PostgreSQL database with the schema and nothing in it, to be copied."""
    with fresh_database(postgres_server_url) as url:
        EventStore.open(url).close()
        yield str(make_url(url).database)


@pytest.fixture
def postgres_url(
    postgres_server_url: str, begin_upgraded: bool, request: pytest.FixtureRequest
) -> Iterator[str]:
    """URL of an empty PostgreSQL database that belongs to this test."""
    copied = request.getfixturevalue("upgraded_database") if begin_upgraded else "template0"
    with fresh_database(postgres_server_url, template=copied) as url:
        yield url


@pytest.fixture
def private_postgres() -> Iterator[PostgresServer]:
    """Give a PostgreSQL server that belongs to this test, to be stopped and crashed at will."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def sqlite_url(tmp_path: Path, begin_upgraded: bool, request: pytest.FixtureRequest) -> str:
    """URL of a SQLite file that does not exist yet, or that has the schema alone."""
    if begin_upgraded:
        shutil.copy(request.getfixturevalue("upgraded_file"), tmp_path / "store.db")
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of an empty database that belongs to this test, once for each backend."""
    fixture = {"sqlite": "sqlite_url", "postgresql": "postgres_url"}[request.param]
    return str(request.getfixturevalue(fixture))
