"""Stores for the products; each run has a conversation of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_eventstore.clients import client_requests
from eventstore import EventStore
from projections import Views
from tests.integration.replay_server import ReplayServer


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventStore]:
    """Give a store with the tables of all views."""
    path = tmp_path_factory.mktemp("products") / "store.db"
    with EventStore.open(f"sqlite:///{path}", synchronous="OFF") as opened:
        Views(opened)
        yield opened


@pytest.fixture
def server() -> Iterator[ReplayServer]:
    """Give a provider that answers what it is told to."""
    with ReplayServer() as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test be told of calls that are not recorded, wherever they are made."""
    monkeypatch.setattr(client_requests, "_reported", set())
