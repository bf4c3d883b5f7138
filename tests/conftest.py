"""Databases for every test, and the settings of Hypothesis.

Each process that runs tests has a PostgreSQL server of its own, started at the first test that
asks for it: what the feed hands out waits for every transaction of a server, also for those of
other tests. The controller of pytest-xdist makes the workers' directories and deletes them, with
whatever still runs in them, so that a worker that was killed leaves nothing behind.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import settings
from sqlalchemy import make_url

from agent_eventstore.current import _current
from eventstore import EventStore
from projections import Views
from tests.compiled import share_compiled_statements
from tests.connected import close_left, share_connections
from tests.distributed import CITUS, REFUSED, CitusDatabase, citus_databases
from tests.exhaustive import mark_exhaustive
from tests.fork_servers import start_by
from tests.partitioned import upgrade
from tests.postgres import (
    OTHERWISE,
    URL_VARIABLE,
    PostgresServer,
    PostgresUnavailable,
    fill,
    fresh_database,
    place_of_many_files,
    roomy_memory,
)
from tests.reusable_database import ReusableDatabase
from tests.shim import SETTINGS_ON_SHIM
from tests.warm import Programs
from tests.warm import programs as serving

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

# The same examples in every run: a failure is about the change at hand. `make test` takes a fifth
# of them (quick), `make test-exhaustive` all; for a search use `--hypothesis-profile search`.
settings.register_profile(
    "default", derandomize=True, deadline=None, database=None, max_examples=30
)
settings.register_profile("quick", settings.get_profile("default"), max_examples=6)
settings.register_profile("search", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile("default")

Beginning = Literal["nothing", "upgraded", "installed"]
"""Whether a database has the schema of events, and also the tables of all projections."""

SERVER = pytest.StashKey[PostgresServer]()
WORKERS = pytest.StashKey[list[PostgresServer]]()


def pytest_configure(config: pytest.Config) -> None:
    """Give this process a place for its PostgreSQL, which does not run yet, and one for files.

    Files of SQLite are in memory where there is room, as those of PostgreSQL are: no test depends
    on a disk, and to wait for it takes longer than most tests.

    Bytecode is kept, whatever the environment says of it: each worker imports all tests, and
    hundreds of tests start processes, which took a third longer where each compiles all modules.
    """
    share_compiled_statements()
    share_connections()
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if (memory := roomy_memory()) is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
    given = getattr(config, "workerinput", {}).get("postgres")
    place = Path(given) if given else place_of_many_files()
    config.stash[SERVER] = PostgresServer(SETTINGS_ON_SHIM, directory=place)
    config.stash[WORKERS] = []


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no cycles while tests are imported: what is made by that stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by their parameters, before those with the marker are left out."""
    mark_exhaustive(config, items)
    for item in items if CITUS is not None else ():
        if item.name.startswith(REFUSED):
            item.add_marker(pytest.mark.skip(reason="Citus has no such statement"))


def pytest_collection_finish() -> None:
    """Look for cycles seldom, and never among all the tests: that was a sixth of their time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Begin without a turn: one that an earlier test abandoned is current until it is collected."""
    _current.set(None)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Give a worker a place for its PostgreSQL."""
    server = PostgresServer(directory=place_of_many_files())
    node.config.stash[WORKERS].append(server)
    node.workerinput["postgres"] = str(server.directory)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Delete this process's PostgreSQL, and what its workers may have left of theirs."""
    close_left()
    with ExitStack() as stack:
        for server in (*config.stash.get(WORKERS, []), config.stash.get(SERVER, None)):
            if server is not None:
                stack.callback(server.close)


@pytest.fixture(scope="session")
def postgres_server_url(pytestconfig: pytest.Config) -> str:
    """URL of this process's PostgreSQL server; without one the test fails, and never skips."""
    if given := os.environ.get(URL_VARIABLE):
        return given
    server = pytestconfig.stash[SERVER]
    try:
        if server.pid is None:
            server.start()
    except PostgresUnavailable as error:
        pytest.fail(f"{error},\n{OTHERWISE}", pytrace=False)
    return server.url()


@pytest.fixture
def beginning() -> Beginning:
    """What databases begin with: copying that is quicker than making it each time."""
    return "nothing"


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
        upgrade(url)
        yield str(make_url(url).database)


@pytest.fixture(scope="session")
def installed_file(tmp_path_factory: pytest.TempPathFactory, upgraded_file: Path) -> Path:
    """Path of a SQLite file with the tables of all projections, to be copied."""
    path = tmp_path_factory.mktemp("installed") / "store.db"
    shutil.copy(upgraded_file, path)
    with EventStore.open(f"sqlite:///{path}") as store:
        Views(store)
    return path


@pytest.fixture(scope="session")
def installed_database(postgres_server_url: str, upgraded_database: str) -> Iterator[str]:
    """Name of a PostgreSQL database with the tables of all projections, to be copied."""
    with fresh_database(postgres_server_url, template=upgraded_database) as url:
        with EventStore.open(url) as store:
            Views(store)
        yield str(make_url(url).database)


@pytest.fixture(scope="session")
def reusable_databases(
    postgres_server_url: str, request: pytest.FixtureRequest
) -> Iterator[Callable[[Beginning], ReusableDatabase]]:
    """Give PostgreSQL databases that tests have for themselves, one after the other."""
    with ExitStack() as stack:

        @cache
        def find(beginning: Beginning) -> ReusableDatabase:
            template = request.getfixturevalue(f"{beginning}_database")
            return stack.enter_context(closing(ReusableDatabase(postgres_server_url, template)))

        yield find


@pytest.fixture(scope="session")
def programs() -> Iterator[Programs]:
    """Give a server that runs programs with the product imported already."""
    with serving() as found:
        yield found


@pytest.fixture(scope="session")
def fork_server(programs: Programs) -> None:
    """Have processes of `multiprocessing` forked with the product imported already."""
    start_by(programs)


@pytest.fixture(scope="session")
def spread_databases() -> Iterator[Callable[[bool], CitusDatabase]]:
    """Give databases on the distributed PostgreSQL that the environment names."""
    assert CITUS is not None
    with citus_databases(CITUS) as find:
        yield find


@pytest.fixture
def postgres_url(beginning: Beginning, request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a PostgreSQL database with what every test begins with, that belongs to this test."""
    if CITUS is not None:
        spread = request.getfixturevalue("spread_databases")(beginning == "installed")
        yield spread.url()
        spread.reset()
        return
    if beginning == "nothing":
        with fresh_database(request.getfixturevalue("postgres_server_url")) as url:
            yield url
        return
    database = request.getfixturevalue("reusable_databases")(beginning)
    yield database.url()
    database.reset()


@pytest.fixture
def installed_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a PostgreSQL database with the tables of all projections, which the test may ruin."""
    if CITUS is not None:
        with closing(CitusDatabase(CITUS, installed=True)) as spread:
            yield spread.url()
        return
    server, template = map(request.getfixturevalue, ("postgres_server_url", "installed_database"))
    with fresh_database(server, template=template) as url:
        yield url


@pytest.fixture
def fresh_postgres_url(postgres_server_url: str, upgraded_database: str) -> Iterator[str]:
    """URL of a PostgreSQL database with the schema, to which nobody else is connected."""
    with fresh_database(postgres_server_url, template=upgraded_database) as url:
        yield url


@pytest.fixture(scope="session")
def template_server() -> Iterator[PostgresServer]:
    """Give a PostgreSQL server that is never started, to be copied."""
    with closing(PostgresServer(directory=place_of_many_files())) as own:
        yield own


@pytest.fixture
def private_postgres(template_server: PostgresServer) -> Iterator[PostgresServer]:
    """Give a PostgreSQL server that belongs to this test, to be stopped and crashed at will."""
    with closing(PostgresServer(directory=place_of_many_files())) as server:
        fill(server, template_server)
        server.start()
        yield server


@pytest.fixture
def sqlite_url(tmp_path: Path, beginning: Beginning, request: pytest.FixtureRequest) -> str:
    """URL of a SQLite file that does not exist yet, or that holds what every test begins with."""
    if beginning != "nothing":
        shutil.copy(request.getfixturevalue(f"{beginning}_file"), tmp_path / "store.db")
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of an empty database that belongs to this test, once for each backend."""
    fixture = {"sqlite": "sqlite_url", "postgresql": "postgres_url"}[request.param]
    return str(request.getfixturevalue(fixture))
