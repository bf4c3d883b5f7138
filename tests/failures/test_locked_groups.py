"""A group of appends that meets SQLite's write lock: it waits for it once, whoever is in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from eventstore import ANY, AsyncEventStore, EventStore, new_id
from eventstore.errors import DatabaseBusy
from eventstore.sql.append_requests import Append
from tests.contract.facade import say, texts

N = 10


@contextmanager
def attempts(store: EventStore) -> Iterator[list[str]]:
    """Give the list of attempts at the write lock that the store's connections make meanwhile."""
    made: list[str] = []

    def note(statement: str) -> None:
        if statement.startswith("BEGIN IMMEDIATE"):
            made.append(statement)

    def watch(raw: Any, _: object) -> None:
        raw.set_trace_callback(note)

    event.listen(store.engine, "connect", watch)
    store.close()  # those that are open are not watched
    yield made
    event.remove(store.engine, "connect", watch)
    store.close()


def requests(store: EventStore, known: int, unknown: int) -> list[Append]:
    """Return appends to conversations whose heads the store remembers, and to new ones."""
    ids = [new_id() for _ in range(known + unknown)]
    for conversation_id in ids[:known]:
        store.append(conversation_id, say("first"))
    return [store._request(each, say("more"), ANY, None, None, None, None, None) for each in ids]


@pytest.fixture
def store(sqlite_url: str) -> Iterator[EventStore]:
    """Give a store that waits for a millisecond."""
    with EventStore.open(sqlite_url, busy_timeout_ms=1) as store:
        yield store


@pytest.mark.parametrize(("known", "unknown"), [(N, 0), (0, N), (N, N), (1, 0), (0, 1)])
def test_a_group_waits_once(store: EventStore, sqlite_url: str, known: int, unknown: int) -> None:
    """It waited for the remembered heads, for the rest, and for each append again: 30 s each."""
    group = requests(store, known, unknown)

    with EventStore.open(sqlite_url) as other, attempts(store) as made, other.writing():
        outcomes = store._append_group(group)

    assert [DatabaseBusy] * len(group) == [type(each) for each in outcomes]
    assert 1 == len(made)
    done = store._append_group(group)
    assert [2] * known + [1] * unknown == [each.version for each in done]  # type: ignore[union-attr]


def test_tasks_that_append_together_wait_once(sqlite_url: str) -> None:
    """Each task of a group commit is told; nothing of theirs is there."""
    ids = [new_id() for _ in range(N)]

    async def main(other: EventStore) -> tuple[list[Any], int]:
        async with await AsyncEventStore.open(sqlite_url, busy_timeout_ms=1) as store:
            with attempts(store.store) as made, other.writing():
                appends = (store.append(each, say("x")) for each in ids)
                outcomes = await asyncio.gather(*appends, return_exceptions=True)
            return outcomes, len(made)

    with EventStore.open(sqlite_url) as other:
        outcomes, made = asyncio.run(main(other))
        assert {DatabaseBusy} == {type(each) for each in outcomes}
        # The first task's append may have begun before the others had theirs ready.
        assert made <= 2
        assert [] == [text for each in ids for text in texts(other.read(each))]


def test_a_task_that_does_not_wait_beside_one_that_does(sqlite_url: str) -> None:
    """It waited as long as the group that it was in, or that had begun before it."""
    first, second = new_id(), new_id()

    async def main(other: EventStore) -> None:
        async with await AsyncEventStore.open(sqlite_url, busy_timeout_ms=4_000) as store:
            with other.writing():
                waiting = asyncio.create_task(store.append(first, say("1")))
                with pytest.raises(DatabaseBusy):
                    await store.append(second, say("1"), wait=False)
                assert not waiting.done()
            assert 1 == (await waiting).version
            assert 1 == (await store.append(second, say("1"), wait=False)).version

    with EventStore.open(sqlite_url) as other:
        asyncio.run(main(other))
