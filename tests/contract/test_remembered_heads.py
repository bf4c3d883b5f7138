"""The short way to append: from remembered heads, many streams in one statement.

It has to do exactly what the plain way does. So the same groups of appends, drawn at random with
conflicts, repetitions, fenced writers, new streams and blobs among them, go both ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Any
from uuid import UUID

import pytest

from eventstore import ANY, NO_STREAM, AsyncEventStore, EventStore, NewEvent, new_id
from eventstore.errors import EventStoreError
from eventstore.events import Meta, RecordedEvent, UnknownEvent, UserMessage
from eventstore.events.base import utc_now
from eventstore.sql.append import AppendGroup, append
from eventstore.sql.append_requests import Append, Appended
from eventstore.sql.steps import Heads
from tests.contract.facade import say, texts

THRESHOLD = 400
STREAMS = 6


def plainly(store: EventStore, requests: Sequence[Append]) -> list[object]:
    """Append one after the other, each in a transaction that knows of no head."""
    outcomes: list[object] = []
    for request in requests:
        try:
            with store.writing() as connection:
                outcomes.append(append(connection, request, utc_now()))
        except EventStoreError as error:
            outcomes.append(error)
    return outcomes


class Script:
    """Random groups of appends; two of one seed differ in nothing but the streams' ids."""

    def __init__(self, store: EventStore, seed: int) -> None:
        self.streams = [new_id() for _ in range(STREAMS)]
        self._store = store
        self._random = Random(seed)  # noqa: S311 - a script, no secret
        self._versions = [0] * STREAMS
        self._used: list[list[list[NewEvent]]] = [[] for _ in range(STREAMS)]
        self._ids = Random(seed)  # noqa: S311 - a script, no secret

    def group(self) -> list[Append]:
        """Return the next group, some of it in vain."""
        return [self._append() for _ in range(self._random.randint(1, 12))]

    def _append(self) -> Append:
        random, stream = self._random, self._random.randrange(STREAMS)
        used = self._used[stream]
        repeated = bool(used) and random.random() < 0.15
        events = random.choice(used) if repeated else self._events()
        if repeated and random.random() < 0.3:
            events = [*events, *self._events()]  # there in part
        if not repeated:
            used.append(events)
        version = self._versions[stream]
        expected: Any = random.choice([ANY, ANY, ANY, version, version, NO_STREAM, version + 3])
        if not repeated and expected in (ANY, version):
            self._versions[stream] += len(events)
        return self._store._request(
            self.streams[stream],
            events,
            expected,
            Meta(session_id="s"),
            random.choice([None, None, "acme", "acme", "acme", "other"]),
            None,
            None,
            random.choice([None, None, None, 0, 0, 5]),
        )

    def _events(self) -> list[NewEvent]:
        count = self._random.choice([1, 1, 1, 2, 5])
        lengths = [self._random.choice([3, 30, 3 * THRESHOLD]) for _ in range(count)]
        return [
            NewEvent(UserMessage.text("x\x1e" * length), UUID(int=self._ids.getrandbits(128)))
            for length in lengths
        ]


def shown(outcome: object) -> object:
    """Return what must not differ between two ways, nor between two streams."""
    if isinstance(outcome, Appended):
        return outcome.version, [told(event) for event in outcome.events]
    assert isinstance(outcome, EventStoreError), outcome
    facts = {key: value for key, value in vars(outcome).items() if key != "conversation_id"}
    return type(outcome), facts


def told(event: RecordedEvent) -> tuple[object, ...]:
    """Return what a writer says with an event."""
    return event.version, event.event_id, event.type, event.data, event.meta


@pytest.mark.parametrize("seed", range(8))
def test_a_group_does_what_its_appends_do_one_by_one(shared_url: str, seed: int) -> None:
    """Outcomes and streams are the same, whichever of the appends took the short way."""
    with EventStore.open(shared_url, blob_threshold=THRESHOLD) as store:
        short, plain = Script(store, seed), Script(store, seed)
        for _ in range(6):
            outcomes = store._append_group(short.group())
            assert [*map(shown, plainly(store, plain.group()))] == [*map(shown, outcomes)]

        for one, other in zip(short.streams, plain.streams, strict=True):
            assert [told(e) for e in store.read(other)] == [told(e) for e in store.read(one)]
            assert not [*store.read(one)] or store.verify(one).ok


@pytest.mark.parametrize("seed", range(100, 104))
def test_tasks_do_what_their_appends_do_one_by_one(shared_url: str, seed: int) -> None:
    """The same through an event loop, where the groups are as they come."""

    async def together(store: AsyncEventStore, requests: Sequence[Append]) -> list[object]:
        appends = [
            store.append(
                request.conversation_id,
                [NewEvent(event.data, event.chosen, event.meta) for event in request.events],
                expected_version=request.expected,
                tenant_id=request.tenant_id,
                writer_epoch=request.writer_epoch,
            )
            for request in requests
        ]
        return list(await asyncio.gather(*appends, return_exceptions=True))

    async def main() -> None:
        with EventStore.open(shared_url, blob_threshold=1 << 20) as inner:
            tasks = AsyncEventStore(inner)
            short, plain = Script(inner, seed), Script(inner, seed)
            for _ in range(6):
                outcomes = await together(tasks, short.group())
                assert [*map(shown, plainly(inner, plain.group()))] == [*map(shown, outcomes)]
            await tasks.close()

    asyncio.run(main())


@pytest.fixture
def own(shared_url: str) -> Iterator[EventStore]:
    """Give a store whose requests a test makes itself."""
    with EventStore.open(shared_url) as store:
        yield store


def requested(store: EventStore, conversation_id: UUID, *words: str, **asked: Any) -> Append:
    """Return an append of messages."""
    wanted = {"expected_version": ANY, "meta": None, "tenant_id": None, "user_id": None}
    given = wanted | {"parent": None, "writer_epoch": None} | asked
    return store._request(conversation_id, say(*words), *given.values())


def remembered(store: EventStore, *streams: UUID) -> Heads:
    """Return the heads of streams that get their first event now."""
    heads = Heads()
    for stream in streams:
        with store.writing() as connection:
            append(connection, requested(store, stream, "first"), utc_now(), heads)
    return heads


def test_what_follows_from_remembered_heads_takes_the_short_way(own: EventStore) -> None:
    """Appends to two streams, and a second one to each, are one statement of the database."""
    one, two = new_id(), new_id()
    heads = remembered(own, one, two)
    requests = [requested(own, stream, "a", "b") for stream in (one, two, one, two)]

    with own.writing() as connection:
        outcomes = AppendGroup(requests, heads, utc_now()).write(connection)

    assert [3, 3, 5, 5] == [outcome.version for outcome in outcomes if outcome]
    assert [5, 5] == [heads[one.int].version, heads[two.int].version]
    for stream in (one, two):
        assert ["first", "a", "b", "a", "b"] == texts(own.read(stream))
        assert own.verify(stream).ok


@pytest.mark.parametrize("others", [0, 2])
def test_a_stream_that_has_moved_is_left_as_it_is(own: EventStore, others: int) -> None:
    """What somebody else has appended since makes the head a wrong guess; others go on."""
    moved, *still = (new_id() for _ in range(1 + others))
    heads = remembered(own, moved, *still)
    own.append(moved, say("meanwhile"))

    with own.writing() as connection:
        requests = [requested(own, stream, "a") for stream in (moved, *still)]
        outcomes = AppendGroup(requests, heads, utc_now()).write(connection)

    assert [True] + [False] * others == [outcome is None for outcome in outcomes]
    assert moved.int not in heads
    assert ["first", "meanwhile"] == texts(own.read(moved))
    assert [["first", "a"]] * others == [texts(own.read(stream)) for stream in still]


@pytest.mark.parametrize("others", [0, 2])
def test_a_writer_that_was_fenced_elsewhere_is_refused(own: EventStore, others: int) -> None:
    """A remembered epoch proves nothing: the database compares it with its own."""
    fenced, *still = (new_id() for _ in range(1 + others))
    heads = remembered(own, fenced, *still)
    own.raise_writer_epoch(fenced)

    with own.writing() as connection:
        requests = [requested(own, stream, "a", writer_epoch=0) for stream in (fenced, *still)]
        outcomes = AppendGroup(requests, heads, utc_now()).write(connection)

    assert [True] + [False] * others == [outcome is None for outcome in outcomes]
    assert ["first"] == texts(own.read(fenced))


def test_appends_of_a_stream_keep_their_order(own: EventStore, cid: UUID) -> None:
    """What comes after an append that must go the plain way goes behind it."""
    own.append(cid, say("first"))
    named = [NewEvent(UserMessage.text("again"), new_id())]
    requests = [
        requested(own, cid, "1"),
        requested(own, cid, "no", expected_version=9),
        own._request(cid, named, ANY, None, None, None, None, None),
        requested(own, cid, "3", expected_version=3),
    ]

    outcomes = own._append_group(requests)

    assert [2, None, 3, 4] == [getattr(outcome, "version", None) for outcome in outcomes]
    assert ["first", "1", "again", "3"] == texts(own.read(cid))


def test_positions_follow_versions(own: EventStore) -> None:
    """However many streams share a statement, the feed gives each one in order."""
    streams = [new_id() for _ in range(8)]
    words = [str(number) for number in range(60)]
    own._append_group([requested(own, stream, "first") for stream in streams])

    outcomes = own._append_group([requested(own, stream, *words) for stream in streams])

    for stream, outcome in zip(streams, outcomes, strict=True):
        assert isinstance(outcome, Appended)
        events = list(own.read(stream))
        assert outcome.events == tuple(events[1:])
        assert all(one.position < other.position for one, other in pairwise(events))


@pytest.mark.parametrize("kind", ['with "quotes"', "back\\slash", "{a,b}", "NULL", "a\x1eb", " x "])
def test_types_of_any_characters(own: EventStore, cid: UUID, kind: str) -> None:
    """No type is taken for part of an array's syntax, or for two."""
    strange = UnknownEvent(kind, 3, {"a": "\x1e"})
    own.append(cid, [*say("1"), strange, *say("2")])
    own.append(cid, [strange])

    assert ["user_message", kind, "user_message", kind] == [event.type for event in own.read(cid)]
    assert own.verify(cid).ok
