"""A connection that is cut: before the server sees what it is asked, or before its answer.

In the second case a commit is durable, and the client cannot know. A proxy does the cutting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from agent_eventstore.conversation import Conversation
from eventstore import NO_STREAM, AsyncEventStore, EventStore, NewEvent, new_id
from eventstore.errors import CannotConnect
from projections import Views, worker
from projections.models.timeline import TIMELINE
from projections.upkeep import rebuild
from tests.contract.facade import say, texts
from tests.failures.proxy import Place, Proxy
from tests.postgres import fresh_database
from tests.projections.support import converse, expected, stored

PLACES = pytest.mark.parametrize("place", ["before", "after"])


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    """Give a proxy before this test's database."""
    with Proxy(postgres_url) as proxy:
        yield proxy


@pytest.fixture
def store(proxy: Proxy) -> Iterator[EventStore]:
    """Give a store that reaches its database through the proxy."""
    with EventStore.open(proxy.url) as store:
        yield store


@pytest.fixture
def direct(postgres_url: str) -> Iterator[EventStore]:
    """Give a store on the same database, past the proxy."""
    with EventStore.open(postgres_url) as store:
        yield store


def named(*words: str) -> list[NewEvent]:
    """Return messages with ids of their own."""
    return [NewEvent(message, event_id=new_id()) for message in say(*words)]


@PLACES
@pytest.mark.parametrize("first", [True, False], ids=["new", "known"])
def test_append(
    store: EventStore, direct: EventStore, proxy: Proxy, place: Place, first: bool
) -> None:
    """Cut anywhere and repeated with the same ids and expectation, it is there once."""
    was_there: list[bool] = []
    before = [] if first else ["0"]
    for skip in range(20):
        cid, events, cuts = new_id(), named("1", "2"), proxy.cuts
        if not first:
            store.append(cid, say("0"))
        version = NO_STREAM if first else 1
        proxy.cut(place, skip=skip)
        try:
            done = store.append(cid, events, expected_version=version)
        except CannotConnect:
            was_there.append(texts(direct.read(cid)) != before)
            done = store.append(cid, events, expected_version=version)
        proxy.spare()
        assert [*before, "1", "2"] == texts(direct.read(cid))
        assert list(done.events) == list(direct.read(cid, after=len(before)))
        assert direct.verify(cid).ok
        if cuts == proxy.cuts:
            break

    assert [False] * (len(was_there) - 1) + [place == "after"] == was_there


@PLACES
@pytest.mark.parametrize("chosen", [True, False], ids=["own ids", "no ids"])
def test_group(
    store: EventStore, direct: EventStore, proxy: Proxy, place: Place, chosen: bool
) -> None:
    """Cut anywhere, every task is told that this is not known, or that its events are there.

    Which tasks make up a group is a matter of moments: a sweep may miss the answer to a commit.
    """
    expected = {("Appended", True), ("CannotConnect", False)}
    if place == "after":
        expected.add(("CannotConnect", True))
    seen: set[tuple[str, bool]] = set()
    for _ in range(5):
        seen |= sweep_group(store, direct, proxy, place, own_ids=chosen)
        if seen >= expected:
            break
    assert expected == seen


def sweep_group(
    store: EventStore, direct: EventStore, proxy: Proxy, place: Place, *, own_ids: bool
) -> set[tuple[str, bool]]:
    """Cut at each place of four tasks' appends; return what they are told, and what is there."""
    outcomes: list[set[tuple[str, bool]]] = []
    for skip in range(60):
        cids, cuts = [new_id() for _ in range(4)], proxy.cuts
        events = [named("1") if own_ids else say("1") for _ in cids]
        proxy.cut(place, skip=skip)
        told = asyncio.run(append_together(store, cids, events))
        proxy.spare()
        there = [bool(texts(direct.read(cid))) for cid in cids]
        outcomes.append(
            {(type(each).__name__, is_there) for each, is_there in zip(told, there, strict=True)}
        )
        if cuts == proxy.cuts:
            break

    assert {("Appended", True)} == outcomes[-1]
    return set().union(*outcomes)


async def append_together(store: EventStore, cids: list[UUID], events: list[Any]) -> list[object]:
    """Append to each conversation in a task of its own; all but the first make up a group."""
    twin = AsyncEventStore(store, threads=1)
    appends = (twin.append(*each, expected_version=0) for each in zip(cids, events, strict=True))
    return list(await asyncio.gather(*appends, return_exceptions=True))


@PLACES
def test_group_repeated(store: EventStore, direct: EventStore, proxy: Proxy, place: Place) -> None:
    """The same appends with the same ids are there once, each with the first result."""
    cids = [new_id() for _ in range(8)]
    events = [named("1", "2") for _ in cids]

    async def append_until_done(twin: AsyncEventStore, index: int) -> int:
        while True:
            try:
                return (await twin.append(cids[index], events[index], expected_version=0)).version
            except CannotConnect:
                continue

    async def append_all() -> list[int]:
        twin = AsyncEventStore(store, threads=1)
        proxy.cut(place, "COMMIT", skip=1)
        return await asyncio.gather(*(append_until_done(twin, index) for index in range(len(cids))))

    assert [2] * len(cids) == asyncio.run(append_all())
    assert 1 == proxy.cuts
    assert [["1", "2"]] * len(cids) == [texts(direct.read(cid)) for cid in cids]


@PLACES
def test_commit_of_a_catch_up(
    store: EventStore, direct: EventStore, proxy: Proxy, place: Place
) -> None:
    """The reader is told; the next read is right, also where the rows were there already."""
    views, cid = Views(store), converse(store, 2)
    views.timeline(cid)
    store.append(cid, say("more"))
    proxy.cut(place, "COMMIT", skip=1)  # The first one ends the look whether anything is behind.
    with pytest.raises(CannotConnect):
        views.timeline(cid)

    views.timeline(cid)
    assert 1 == proxy.cuts
    assert expected(direct.read(cid), [TIMELINE]) == stored(direct, cid, [TIMELINE])


@PLACES
def test_commits_of_a_worker(
    store: EventStore, direct: EventStore, proxy: Proxy, place: Place
) -> None:
    """It ends with the error wherever it was cut; started again, it goes on."""
    Views(direct)
    cuts = 0
    while cuts == proxy.cuts:
        cids = [converse(direct, 1)]
        proxy.cut(place, "COMMIT", skip=2 * cuts)
        try:
            worker.run(store, once=True)
        except CannotConnect:
            cuts += 1
        else:
            break
    assert cuts > 2
    for cid in cids:
        assert expected(direct.read(cid)) == stored(direct, cid)


@PLACES
def test_every_commit_of_a_rebuild(
    store: EventStore, direct: EventStore, proxy: Proxy, place: Place
) -> None:
    """Cut wherever it commits, also where it registers and cuts over, it can be started again."""
    views = Views(direct)
    cids = [converse(direct, 1) for _ in range(2)]
    before = [views.timeline(cid) for cid in cids]
    cuts = 0
    while True:
        proxy.cut(place, "COMMIT", skip=cuts)
        try:
            rebuild(store, ["timeline"])
        except CannotConnect:
            cuts += 1
        else:
            break
        assert before == [views.timeline(cid) for cid in cids]
    proxy.spare()
    assert cuts > 5
    assert before == [views.timeline(cid) for cid in cids]
    for cid in cids:
        assert expected(direct.read(cid), [TIMELINE]) == stored(direct, cid, [TIMELINE])


@pytest.mark.parametrize("statement", ["pg_advisory_xact_lock", "CREATE TABLE", "COMMIT"])
@PLACES
def test_migration(postgres_server_url: str, place: Place, statement: str) -> None:
    """Opening a new database is cut while it makes the schema: all of it or nothing is there."""
    with fresh_database(postgres_server_url) as url, Proxy(url) as proxy:
        proxy.cut(place, statement)
        with pytest.raises(CannotConnect):
            EventStore.open(proxy.url)

        with EventStore.open(proxy.url) as store:
            assert 1 == store.append(new_id(), say("hello")).version


@PLACES
def test_connection_of_a_schema_change(
    store: EventStore, direct: EventStore, proxy: Proxy, place: Place
) -> None:
    """A rebuild that registers under the schema lock reports the lost connection as such."""
    Views(direct)
    proxy.cut(place, "pg_advisory_xact_lock")
    with pytest.raises(CannotConnect):
        rebuild(store, ["timeline"])

    assert ("timeline",) == rebuild(store, ["timeline"]).projections


@PLACES
def test_recorder(store: EventStore, proxy: Proxy, place: Place) -> None:
    """Cut anywhere, it repeats: the product notices nothing, and every event is there once."""
    kinds: list[list[str]] = []
    cuts = -1
    while cuts < proxy.cuts:
        cuts = proxy.cuts
        with Conversation.start(store) as conversation:
            proxy.cut(place, skip=len(kinds))
            with conversation.turn("hello") as turn, turn.llm_call() as call:
                call.feed({"choices": [{"index": 0, "delta": {"content": "hi"}}]})
                call.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            proxy.spare()
        kinds.append([event.type for event in store.read(conversation.id)])
        assert store.verify(conversation.id).ok

    assert proxy.cuts > 3
    assert [kinds[-1]] * len(kinds) == kinds


def test_all_connections_are_cut_at_once(
    store: EventStore, direct: EventStore, proxy: Proxy
) -> None:
    """No call takes a dead connection, however short ago it was used, but a new one."""
    cid = new_id()
    store.append(cid, say("1"))
    for each in [store._at_hand.take() for _ in range(3)]:
        store._at_hand.put_back(each)
    proxy.hang_up()

    assert 2 == store.append(cid, say("2")).version
    assert ["1", "2"] == texts(direct.read(cid))
