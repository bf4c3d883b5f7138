"""Messages of a kilobyte to 16 MB through everything that a store does: each ends, and is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.sizes import both_sockets, steps, text_of
from eventstore import EventStore
from tests.exhaustive import partly
from tests.failures.test_waits import ending
from tests.postgres import fresh_database

SIZES = [1_000_000, 1_000, 10_000, 100_000, 300_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000]


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    """Give the URLs of a server by way of both kinds of sockets."""
    with both_sockets() as ways:
        yield ways


@pytest.fixture(params=["SQLite", "Unix socket", "TCP"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Give the URL of a new database, by each way to one."""
    if request.param == "SQLite":
        yield f"sqlite:///{tmp_path / 'store.db'}"
        return
    with fresh_database(request.getfixturevalue("servers")[request.param]) as url:
        yield url


@pytest.mark.parametrize("size", partly(SIZES))
def test_a_message_of_any_size(url: str, size: int) -> None:
    """It is appended, read, folded, searched, rebuilt, exported and erased."""
    with EventStore.open(url) as store:
        for _, run in steps(store, text_of(size)):
            with ending(300):
                run()
