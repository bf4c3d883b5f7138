"""Whatever is done to a store, in whatever order: it holds what a list in memory would hold."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sqlalchemy import Connection, text

from eventstore import ANY, NO_STREAM, EventStore, NewEvent, new_id
from eventstore import events as e
from eventstore.errors import BlobNotFound, ConversationNotFound, EventStoreError, InvalidEvent
from eventstore.sql.append_requests import Append, Appended, Expected
from tests.feed_wait import wait_for_feed
from tests.properties.machines import explore
from tests.properties.store_attempts import CHANGES, OWNERS, PLACES, WISHES, Change, Wish
from tests.properties.store_model import THRESHOLD, Attempt, Model

STORES = st.integers(0, 1)


class Machine(RuleBasedStateMachine):
    """Two stores on one database, so that what either remembers of a stream may be out of date."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.stores = [self._opened(), self._opened()]
        self.cids = sorted(new_id() for _ in range(3))
        self.ids = [new_id() for _ in range(16)]
        self.done: list[Attempt] = []
        # Places in the feed, each with what was read since the first; earlier examples wrote what
        # lies before it.
        end = None
        while page := wait_for_feed(self.stores[0]).read_all(after=end):
            end = page.cursor
        self.cursors: list[tuple[str | None, list[tuple[UUID, int]]]] = [(end, [])]

    def teardown(self) -> None:
        """Close the stores."""
        for store in self.stores:
            store.close()

    @rule(store=STORES, wishes=st.lists(WISHES, min_size=1, max_size=3))
    def append(self, store: int, wishes: list[Wish]) -> None:
        """Append, rightly or wrongly."""
        for wish in wishes:
            attempt = self._attempt(wish)
            self._check(attempt, _try(self.stores[store], attempt))

    @rule(store=STORES, number=st.integers(0, 50), change=CHANGES, anywhere=st.booleans())
    def repeat(self, store: int, number: int, change: Change, anywhere: bool) -> None:
        """Append again what was appended before: as it was, in part, or changed."""
        if self.done:
            attempt = self._changed(self.done[number % len(self.done)], change)
            attempt = replace(attempt, expected=ANY) if anywhere else attempt
            self._check(attempt, _try(self.stores[store], attempt))

    @rule(store=STORES, wishes=st.lists(WISHES, min_size=1, max_size=4))
    def append_group(self, store: int, wishes: list[Wish]) -> None:
        """Append several requests together, some of which may refuse each other."""
        attempts = [self._attempt(wish) for wish in wishes]
        requests = [_request(self.stores[store], attempt) for attempt in attempts]
        outcomes = self.stores[store]._append_group(requests)
        for attempt, outcome in zip(attempts, outcomes, strict=True):
            self._check(attempt, outcome)

    @rule(store=STORES, wishes=st.lists(WISHES, min_size=1, max_size=2), commit=st.booleans())
    def append_within(self, store: int, wishes: list[Wish], commit: bool) -> None:
        """Append in a transaction of the caller's; if it is rolled back, nothing has happened."""
        with suppress(_RolledBack), self.stores[store].writing() as connection:
            for wish in wishes:
                attempt = self._attempt(wish)
                outcome = _try(self.stores[store], attempt, connection)
                if commit:
                    self._check(attempt, outcome)
            if not commit:
                raise _RolledBack

    @rule(store=STORES, place=PLACES)
    def refuse(self, store: int, place: int) -> None:
        """What is not an append at all writes nothing."""
        twice = NewEvent(e.UserMessage.text("x"), self.ids[0])
        for events in ([], [twice, twice]):
            with pytest.raises(InvalidEvent):
                self.stores[store].append(self.cids[place], events)

    @rule(store=STORES, place=PLACES)
    def fence(self, store: int, place: int) -> None:
        """Raise a stream's writer epoch."""
        stream = self.model.streams.get(self.cids[place])
        if stream is None:
            with pytest.raises(ConversationNotFound):
                self.stores[store].raise_writer_epoch(self.cids[place])
        else:
            last, stream.epoch = (
                stream.epoch,
                self.stores[store].raise_writer_epoch(self.cids[place]),
            )
            assert last >> 32 == (stream.epoch >> 32) - 1

    @rule(store=STORES, place=PLACES, versions=st.none() | st.sets(st.integers(1, 9), max_size=4))
    def erase(self, store: int, place: int, versions: set[int] | None) -> None:
        """Erase a stream's payloads, or some of them."""
        cid, chosen = self.cids[place], self.stores[store]
        stream = self.model.streams.get(cid)
        if stream is None:
            with pytest.raises(ConversationNotFound):
                chosen.erase(cid, reason="asked for", versions=versions)
            return
        if max(versions or {0}) > stream.version:
            with pytest.raises(InvalidEvent):
                chosen.erase(cid, reason="asked for", versions=versions)
            return
        receipt = chosen.erase(cid, reason="asked for", versions=versions)
        gone, digests = self.model.erase(cid, versions)
        assert (gone, len(digests)) == (receipt.versions, receipt.blob_count)
        *bill, event = chosen.read(cid, after=stream.version)
        assert isinstance(event.data, e.Erasure)
        assert all(isinstance(each.data, e.RetainedUsage) for each in bill)
        assert (gone, receipt.version) == (event.data.versions, event.version)
        stream.events += [*bill, event]
        for digest in digests:
            with pytest.raises(BlobNotFound):
                chosen.blob(cid, digest)

    @rule(
        place=PLACES,
        after=st.integers(0, 9),
        before=st.none() | st.integers(0, 9),
        backward=st.booleans(),
        limit=st.none() | st.integers(0, 5),
    )
    def read(
        self, place: int, after: int, before: int | None, backward: bool, limit: int | None
    ) -> None:
        """Read a range of a stream, in either direction."""
        stream = self.model.streams.get(self.cids[place])
        wanted = [
            event
            for event in (stream.events if stream else ())
            if event.version > after and (before is None or event.version < before)
        ]
        found = self.stores[0].read(
            self.cids[place], after=after, before=before, backward=backward, limit=limit
        )
        assert (wanted[::-1] if backward else wanted)[:limit] == list(found)

    @rule(number=st.integers(0, 50), size=st.integers(1, 7))
    def follow(self, number: int, size: int) -> None:
        """Read the feed on from any place that it was read to: every event once, none missing."""
        cursor, before = self.cursors[number % len(self.cursors)]
        seen, store = list(before), wait_for_feed(self.stores[0])
        while page := store.read_all(after=cursor, limit=size):
            for event in page:
                stream = self.model.streams[event.conversation_id]
                assert stream.events[event.version - 1] == event
                seen.append((event.conversation_id, event.version))
            cursor = page.cursor
            self.cursors.append((cursor, list(seen)))
        for cid, stream in self.model.streams.items():
            assert list(range(1, stream.version + 1)) == [v for c, v in seen if c == cid]

    @rule(owner=OWNERS, limit=st.integers(1, 4), after=st.none() | PLACES)
    def look_up(self, owner: tuple[str | None, str | None], limit: int, after: int | None) -> None:
        """List the streams of an owner, a page at a time."""
        tenant, user = owner
        # Those of earlier examples have lower ids.
        start = UUID(int=self.cids[0].int - 1) if after is None else self.cids[after]
        wanted = [
            cid
            for cid, stream in sorted(self.model.streams.items())
            if cid > start and tenant in (None, stream.tenant_id) and user in (None, stream.user_id)
        ]
        found = self.stores[0].list(tenant_id=tenant, user_id=user, after=start, limit=limit)
        assert wanted[:limit] == [info.conversation_id for info in found]

    @rule(store=STORES)
    def reopen(self, store: int) -> None:
        """Close a store and open it again."""
        self.stores[store].close()
        self.stores[store] = self._opened()

    @invariant()
    def every_stream_is_as_in_the_model(self) -> None:
        """Events, head, owner, blobs and chain of each stream are what they should be."""
        for number, cid in enumerate(self.cids):
            store, stream = self.stores[number % 2], self.model.streams.get(cid)
            assert (stream.events if stream else []) == list(store.read(cid))
            if stream is None:
                with pytest.raises(ConversationNotFound):
                    store.get(cid)
                continue
            info = store.get(cid)
            assert (stream.version, stream.epoch) == (info.version, info.writer_epoch)
            assert stream.events[-1].recorded_at == info.last_active_at
            assert (stream.tenant_id, stream.user_id) == (info.tenant_id, info.user_id)
            parent = (info.parent_conversation_id, info.parent_version)
            assert (stream.parent or (None, None)) == parent
            assert dict(stream.blobs.values()) == _blobs(store, cid)
            assert store.verify(cid).ok

    def _opened(self) -> EventStore:
        return EventStore.open(self.url, synchronous="NORMAL", blob_threshold=THRESHOLD)

    def _attempt(self, wish: Wish) -> Attempt:
        stream = self.model.streams.get(cid := self.cids[wish.place])
        version, epoch = (stream.version, stream.epoch) if stream else (0, 0)
        expected: dict[str, Expected | int] = {
            "any": ANY,
            "none": NO_STREAM,
            "exact": version,
            "late": version + 1,
        }
        ids = [self.ids[(wish.first_id + n) % 16] for n in range(len(wish.events))]
        return Attempt(
            cid,
            tuple(
                NewEvent(data, event_id if named else None, meta)
                for event_id, (data, meta, named) in zip(ids, wish.events, strict=True)
            ),
            expected.get(wish.expected, max(version - 1, 0)),
            *wish.owner,
            parent=(self.cids[0], 1) if wish.forked else None,
            writer_epoch=None if wish.epoch is None else epoch - (wish.epoch == "old"),
        )

    def _changed(self, attempt: Attempt, change: Change) -> Attempt:
        events: Sequence[NewEvent] = attempt.events
        more = (*events, NewEvent(e.UserMessage.text("more")))
        found = {
            "beginning": events[: len(events) // 2 + 1],
            "end": events[len(events) // 2 :],
            "reversed": events[::-1],
            "more": more,
        }
        other = self.cids[(self.cids.index(attempt.stream) + (change == "elsewhere")) % 3]
        return replace(attempt, stream=other, events=tuple(found.get(change, events)))

    def _check(self, attempt: Attempt, outcome: Appended | Exception) -> None:
        """Compare what came of an append with what the model says, and have it take that in."""
        wanted = self.model.outcome(attempt)
        if isinstance(wanted, int):
            assert isinstance(outcome, Appended), repr(outcome)
            self.model.take(attempt, wanted, outcome.events)
            self.done.append(attempt)
            assert outcome.events[-1].version == outcome.version
        else:
            assert wanted is type(outcome), repr(outcome)


class _RolledBack(Exception):
    """What a caller raises who has decided otherwise."""


def _request(store: EventStore, attempt: Attempt) -> Append:
    return store._request(
        attempt.stream,
        attempt.events,
        attempt.expected,
        None,
        attempt.tenant_id,
        attempt.user_id,
        attempt.parent,
        attempt.writer_epoch,
    )


def _try(
    store: EventStore, attempt: Attempt, connection: Connection | None = None
) -> Appended | Exception:
    try:
        return store.append(
            attempt.stream,
            attempt.events,
            expected_version=attempt.expected,
            tenant_id=attempt.tenant_id,
            user_id=attempt.user_id,
            parent=attempt.parent,
            writer_epoch=attempt.writer_epoch,
            connection=connection,
        )
    except EventStoreError as error:
        return error


def _blobs(store: EventStore, cid: UUID) -> dict[str, bytes]:
    """Return all blobs that the store keeps of a conversation."""
    query = text("SELECT digest FROM blobs WHERE CAST(conversation_id AS TEXT) = :cid")
    with store.reading() as connection:
        digests = connection.execute(query, {"cid": str(cid)}).scalars().all()
    return {digest: store.blob(cid, digest) for digest in digests}


def test_a_store_is_a_list_of_events_for_each_stream(database_url: str) -> None:
    """Any appends, right and wrong, repeated, grouped, fenced, rolled back, erased, read in parts.

    With ``LONG_MACHINES=100`` in the environment it looks at a hundred times as many.
    """
    explore(Machine, examples=5, steps=30, url=database_url)
