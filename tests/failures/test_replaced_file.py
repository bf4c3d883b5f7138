"""SQLite's file is deleted or replaced under an open store: noticed, and nothing is lost in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventstore import EventStore, new_id
from eventstore.errors import DatabaseReplaced
from projections import Views
from tests.contract.facade import say, texts

CID = new_id()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the file's path."""
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[EventStore]:
    """Give a store with one event."""
    with EventStore.open(f"sqlite:///{path}") as store:
        store.append(CID, say("1"))
        yield store


def refused(store: EventStore) -> bool:
    """Whether reads, writes and views of every kind are refused."""
    attempts: list[Callable[[], object]] = [
        lambda: store.append(CID, say("2")),
        lambda: store.append(new_id(), say("2")),
        lambda: list(store.read(CID)),
        lambda: store.get(CID),
        lambda: store.erase(CID, reason="test"),
        lambda: Views(store).timeline(CID),
    ]
    for attempt in attempts:
        with pytest.raises(DatabaseReplaced, match="open it again"):
            attempt()
    return True


def test_deleted(store: EventStore, path: Path) -> None:
    """What is appended to a file without a name would be gone with the process."""
    path.unlink()

    assert refused(store)
    assert not path.exists()


def test_deleted_with_all_connections_closed(store: EventStore, path: Path) -> None:
    """SQLite would make a new, empty file."""
    store.close()
    path.unlink()

    assert refused(store)
    assert not path.exists()


def test_replaced(store: EventStore, path: Path, tmp_path: Path) -> None:
    """The store was opened on what is no longer there; another one finds the restored file."""
    with EventStore.open(f"sqlite:///{tmp_path / 'backup.db'}") as other:
        other.append(CID, say("restored"))
    shutil.copy(tmp_path / "backup.db", tmp_path / "copy.db")
    os.replace(tmp_path / "copy.db", path)

    assert refused(store)
    store.close()
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    with EventStore.open(f"sqlite:///{path}") as again:
        assert ["restored"] == texts(again.read(CID))
