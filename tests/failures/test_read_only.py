"""A database that this process may only read, without having been told so: the error says why."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from eventstore import EventStore, new_id
from eventstore.errors import NotWritable
from projections import Views, worker
from projections.upkeep import rebuild
from tests.contract.facade import say, texts
from tests.failures.forking import forked
from tests.projections.support import converse


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store that may write, with its views installed."""
    with EventStore.open(database_url) as store:
        Views(store)
        yield store


@pytest.fixture
def refusing(store: EventStore, database_url: str) -> Iterator[EventStore]:
    """Give a store on the same database, which refuses to write for it."""
    url = make_url(database_url)
    if url.get_backend_name() == "sqlite":
        url = url.set(database=f"file:{url.database}", query={"mode": "ro", "uri": "true"})
    else:
        options = {"options": "-c default_transaction_read_only=on"}
        url = url.update_query_dict(options)
    with EventStore.open(url, migrate=False) as refusing:
        yield refusing


def test_appends_are_refused(store: EventStore, refusing: EventStore) -> None:
    """So are erasure and fencing; what is there is read and verified."""
    store.append(cid := new_id(), say("1"))

    with pytest.raises(NotWritable, match=r"read-only|reading only"):
        refusing.append(cid, say("2"))
    with pytest.raises(NotWritable):
        refusing.erase(cid, reason="test")
    with pytest.raises(NotWritable):
        refusing.raise_writer_epoch(cid)
    assert ["1"] == texts(refusing.read(cid))
    assert refusing.verify().ok


def test_views_that_are_current(store: EventStore, refusing: EventStore) -> None:
    """They are read."""
    cid = converse(store, 1)

    assert Views(store).timeline(cid) == Views(refusing).timeline(cid)


def test_views_that_are_behind(store: EventStore, refusing: EventStore, database_url: str) -> None:
    """What cannot be kept is refused; a store that was opened for reading folds it in memory."""
    cid = converse(store, 1)
    with pytest.raises(NotWritable, match="read_only=True"):
        Views(refusing).timeline(cid)
    with EventStore.open(database_url, read_only=True) as reader:
        seen = Views(reader).timeline(cid)

    assert seen == Views(store).timeline(cid)


def test_worker_and_rebuild(store: EventStore, refusing: EventStore) -> None:
    """Both end with the same error, and change nothing."""
    converse(store, 1)
    with pytest.raises(NotWritable):
        worker.run(refusing, once=True)
    with pytest.raises(NotWritable):
        rebuild(refusing)


def test_unwritable_directory() -> None:
    """A backup on a read-only mount is read; SQLite alone says that it cannot open the file."""
    with tempfile.TemporaryDirectory() as place:
        url = f"sqlite:///{place}/store.db"
        with EventStore.open(url) as store:
            cid = converse(store, 1)
            said = [event.version for event in store.read(cid)]
        os.chmod(f"{place}/store.db", 0o444)
        os.chmod(place, 0o555)  # noqa: S103

        def read() -> list[object]:
            if os.getuid() == 0:  # who may write everywhere
                os.setuid(65534)
            with EventStore.open(url, read_only=True) as reader:
                assert reader.verify().ok
                seen = len(Views(reader).timeline(cid))
                return [[event.version for event in reader.read(cid)], seen > 0]

        found = forked(read)
        os.chmod(place, 0o755)  # noqa: S103

    assert [said, True] == found


def test_the_url_of_a_store_that_only_reads(tmp_path: Path) -> None:
    """Errors and logs showed SQLite's own URI instead of the URL that was given."""
    url = f"sqlite:///{tmp_path}/of 100%3F#.db"
    with EventStore.open(url) as store:
        store.append(cid := new_id(), say("hello"))
    with EventStore.open(url, read_only=True) as reader:
        assert store.url == reader.url
        assert ["hello"] == texts(reader.read(cid))
        with pytest.raises(NotWritable, match=re.escape(store.url)):
            reader.append(cid, say("more"))
