"""Recorders for the tests of what they promise: of both kinds, on both databases; and a provider.

Each test makes a conversation of its own, so all share a database and, for each kind, a store. What
concerns all conversations has a database for itself (`alone`), which begins with the tables of all
views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import httpx2
import pytest
from openai import OpenAI

from agent_eventstore.clients import client_requests, record
from agent_eventstore.conversation import Conversation
from eventstore import EventStore
from tests.conftest import Beginning
from tests.integration.products import TLS
from tests.integration.recording import Access, Recorder, recorder
from tests.integration.replay_server import ReplayServer
from tests.postgres import fresh_database


@pytest.fixture(scope="session")
def recorded_sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """URL of the SQLite file that the recorder's tests share."""
    return f"sqlite:///{tmp_path_factory.mktemp('recorder') / 'store.db'}"


@pytest.fixture(scope="session")
def recorded_postgres_url(postgres_server_url: str) -> Iterator[str]:
    """URL of the PostgreSQL database that the recorder's tests share."""
    with fresh_database(postgres_server_url) as url:
        yield url


@pytest.fixture(scope="session")
def open_recorders() -> Iterator[Callable[[str, Access], Recorder]]:
    """Give a function that opens a recorder once, and returns the same to every test that asks."""
    with ExitStack() as stack:
        yield cache(
            lambda url, access: stack.enter_context(
                recorder(url, access, synchronous="NORMAL", pool_size=4)
            )
        )


@pytest.fixture(scope="session")
def open_store() -> Iterator[Callable[[str], EventStore]]:
    """Give a function that opens a store once, and returns the same to every test that asks."""
    with ExitStack() as stack:
        yield cache(lambda url: stack.enter_context(EventStore.open(url, synchronous="NORMAL")))


@pytest.fixture(params=["sqlite", "postgresql"])
def recorded_url(request: pytest.FixtureRequest) -> str:
    """URL of the shared database, once for each backend."""
    fixture = {"sqlite": "recorded_sqlite_url", "postgresql": "recorded_postgres_url"}
    return str(request.getfixturevalue(fixture[request.param]))


@pytest.fixture(params=["sync", "async"])
def recording(
    request: pytest.FixtureRequest,
    recorded_url: str,
    open_recorders: Callable[[str, Access], Recorder],
) -> Recorder:
    """Give a recorder of either kind, on either database."""
    return open_recorders(recorded_url, request.param)


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventStore]:
    """Give the store of the tests of wrapped clients; each has a conversation of its own."""
    path = tmp_path_factory.mktemp("clients") / "store.db"
    with EventStore.open(f"sqlite:///{path}", synchronous="NORMAL") as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test be told of calls that are not recorded, wherever they are made."""
    monkeypatch.setattr(client_requests, "_reported", set())


@pytest.fixture
def server() -> Iterator[ReplayServer]:
    """Give a provider that answers what it is told to."""
    with ReplayServer() as running:
        yield running


@pytest.fixture
def common(recorded_url: str, open_store: Callable[[str], EventStore]) -> EventStore:
    """Give a store on the shared database, once for each backend."""
    return open_store(recorded_url)


@pytest.fixture
def alone(database_url: str) -> Iterator[EventStore]:
    """Give a store on a database of the test's own, once for each backend."""
    with EventStore.open(database_url, migrate=False, synchronous="NORMAL") as opened:
        yield opened


@pytest.fixture
def beginning() -> Beginning:
    """Have databases begin with the tables of all views, which no test here asks about."""
    return "installed"


@pytest.fixture
def conversation(shared_store: EventStore) -> Conversation:
    """Give a conversation."""
    return Conversation.start(shared_store)


@pytest.fixture
def client(server: ReplayServer) -> Iterator[OpenAI]:
    """Give a recorded client of OpenAI's."""
    http = httpx2.Client(verify=TLS)
    own = OpenAI(base_url=server.url, api_key="test", max_retries=0, http_client=http)
    with record(own) as wrapped:
        yield wrapped
