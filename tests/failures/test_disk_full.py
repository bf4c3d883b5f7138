"""A full disk: SQLite's files may grow no more, by the system's limit or by the database's own.

The limit holds for this process, which lifts it again; Python ignores the signal that goes with it.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import event

from eventstore import AsyncEventStore, EventStore, new_id
from eventstore.errors import NotWritable
from projections import Views
from projections.engine import rebuild
from projections.models.timeline import TIMELINE
from projections.upkeep import rebuild as rebuild_all
from projections.upkeep import status
from tests.contract.facade import say, texts
from tests.projections.support import converse, expected, stored

Limit = Callable[[EventStore], AbstractContextManager[None]]


@contextmanager
def no_file_grows(store: EventStore) -> Iterator[None]:
    """Let no file of this process grow beyond the larger one of the store's two files."""
    path = Path(str(store.engine.url.database))
    log = path.with_name(f"{path.name}-wal")
    size = max(each.stat().st_size for each in (path, log) if each.exists())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def no_page_is_free(store: EventStore) -> Iterator[None]:
    """Have SQLite itself report that the disk is full, a few pages from here."""
    with store.reading() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one() + 5

    def limit(connection: object, _record: object, _proxy: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}")  # type: ignore[attr-defined]

    store.close()
    event.listen(store.engine, "checkout", limit)
    try:
        yield
    finally:
        event.remove(store.engine, "checkout", limit)
        store.close()


NAMES = ["timeline", "context"]
LIMITS = pytest.mark.parametrize("limit", [no_file_grows, no_page_is_free])


@pytest.fixture
def store(sqlite_url: str) -> Iterator[EventStore]:
    """Give a store whose views have been installed."""
    with EventStore.open(sqlite_url, pool_size=1) as store:
        Views(store)
        yield store


def fill(store: EventStore, cid: UUID) -> list[str]:
    """Append until it is refused; return what was acknowledged."""
    acknowledged: list[str] = []
    for number in range(2_000):
        batch = [f"{number}.{place} {'x' * 2_000}" for place in range(3)]
        try:
            store.append(cid, say(*batch))
        except NotWritable:
            return acknowledged
        acknowledged += batch
    raise AssertionError("the disk was never full")


@LIMITS
def test_appends_on_a_full_disk(store: EventStore, limit: Limit) -> None:
    """What was acknowledged is kept and verified, what failed left nothing; space lets it go on."""
    store.append(cid := new_id(), say("first"))
    with limit(store):
        acknowledged = ["first", *fill(store, cid)]
        assert acknowledged == texts(store.read(cid))
        assert store.verify().ok
        with pytest.raises(NotWritable):
            store.append(new_id(), say("y" * 30_000))

    assert len(acknowledged) + 1 == store.append(cid, say("there is room again")).version
    assert [*acknowledged, "there is room again"] == texts(store.read(cid))
    assert store.verify().ok


@LIMITS
def test_group_commit_on_a_full_disk(store: EventStore, limit: Limit) -> None:
    """Of many tasks each is told for itself whether its events are there."""
    cids = [new_id() for _ in range(60)]

    async def append_all() -> list[object]:
        twin = AsyncEventStore(store)
        appends = [twin.append(cid, say("x" * 4_000)) for cid in cids]
        return list(await asyncio.gather(*appends, return_exceptions=True))

    with limit(store):
        fill(store, new_id())
        outcomes = asyncio.run(append_all())

    refused = [cid for cid, done in zip(cids, outcomes, strict=True) if isinstance(done, Exception)]
    assert {NotWritable} == {type(done) for done in outcomes if isinstance(done, Exception)}
    assert set(cids) - set(refused) == {cid for cid in cids if list(store.read(cid))}
    assert store.verify().ok


@LIMITS
def test_views_on_a_full_disk(store: EventStore, limit: Limit) -> None:
    """What is caught up is read; the rest cannot be kept, and is read through a read-only store."""
    views = Views(store)
    warm, cold = converse(store, 1), converse(store, 40)
    known = views.timeline(warm)
    with limit(store):
        fill(store, new_id())
        assert known == views.timeline(warm)
        with pytest.raises(NotWritable):
            views.timeline(cold)
        with EventStore.open(store.engine.url, read_only=True) as reader:
            seen = Views(reader).timeline(cold)

    assert seen == views.timeline(cold)
    assert expected(store.read(cold), [TIMELINE]) == stored(store, cold, [TIMELINE])


@LIMITS
def test_rebuild_on_a_full_disk(
    store: EventStore, limit: Limit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is cut over, the old tables are read, and the same generation is finished later."""
    monkeypatch.setattr(rebuild, "_PAGE_EVENTS", 1)
    views = Views(store)
    cids = [converse(store, 12) for _ in range(6)]
    known = [views.timeline(cid) for cid in cids]
    pages: list[int] = []
    filled: list[str] = []

    with ExitStack() as full:

        def progress(events: int, _total: int) -> None:
            pages.append(events)
            if len(pages) == 2:
                full.enter_context(limit(store))
                filled.extend(fill(store, new_id()))

        with pytest.raises(NotWritable):
            rebuild_all(store, NAMES, on_progress=progress)
        assert known == [views.timeline(cid) for cid in cids]
        begun = {each.building for each in status(store) if each.name in NAMES}

    report = rebuild_all(store, NAMES)
    # All but the two that were done, and the one that filled the disk, if it is there at all.
    assert len(cids) - 2 + bool(filled) == report.conversations
    assert begun == {each.generation for each in status(store) if each.name in NAMES}
    assert known == [views.timeline(cid) for cid in cids]
