"""Erasing and purging a conversation with many forks: in pieces, and truthful between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, event

from eventstore import EventStore
from eventstore.errors import OwnerMismatch, WrongExpectedVersion
from eventstore.events import Erasure, NewEvent, Summary, UserMessage
from eventstore.events.values import VersionRange
from eventstore.ids import new_id
from projections.views import Views
from tests.contract.plain import PlainClient

CANARY = "CANARY-of-the-forked"


class KilledError(Exception):
    """Stands for the end of a process between two transactions."""


def summary() -> NewEvent:
    """Return a copy of the first message, which only its text and its versions tell."""
    first = VersionRange(first=1, last=1)
    return NewEvent(Summary(text=f"about {CANARY}", versions=(first,), strategy="s"))


def forked(store: EventStore, count: int, *, copies: bool = True) -> tuple[UUID, list[UUID]]:
    """Return a conversation and its forks, the last of which is a fork of a fork."""
    cid = new_id()
    store.append(cid, [UserMessage.text(f"{CANARY} first")], user_id="ada")
    own = [summary()] if copies else [NewEvent(UserMessage.text("own"))]
    forks = [store.fork(cid, events=own).conversation_id for _ in range(count - 1)]
    forks.append(store.fork(forks[0], events=own).conversation_id)
    return cid, forks


def has_canary(url: str) -> bool:
    """Whether a table holds the text."""
    with PlainClient(url) as client:
        return CANARY.encode() in client.dump()


@pytest.fixture
def store(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventStore]:
    """Give a store that erases and purges two forks at once."""
    monkeypatch.setattr("eventstore.erasure.erase.FORKS_AT_ONCE", 2)
    monkeypatch.setattr("eventstore.erasure.purge.FORKS_AT_ONCE", 2)
    with EventStore.open(database_url) as opened:
        yield opened


def before_each(
    store: EventStore, monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]
) -> list[int]:
    """Call a function before each write transaction; return the list of the calls."""
    writing, calls = store.writing, list[int]()

    @contextmanager
    def watched(**asked: Any) -> Iterator[Connection]:
        calls.append(len(calls))
        act(calls[-1])
        with writing(**asked) as connection:
            yield connection

    monkeypatch.setattr(store, "writing", watched)
    return calls


def stop_at(place: int) -> Callable[[int], None]:
    """Return a function that ends the process before a transaction."""

    def act(at: int) -> None:
        if at == place:
            raise KilledError

    return act


@pytest.mark.parametrize("deleting", ["erase", "purge", "erase_user"])
def test_another_writer_gets_its_turn_between_pieces(
    database_url: str, store: EventStore, monkeypatch: pytest.MonkeyPatch, deleting: str
) -> None:
    """All forks were erased in one transaction, and SQLite's other writers were locked out."""
    cid, forks = forked(store, 7)
    other = new_id()
    with EventStore.open(database_url, busy_timeout_ms=50) as writer:
        calls = before_each(
            store, monkeypatch, lambda at: void(writer.append(other, [UserMessage.text(f"{at}")]))
        )
        if deleting == "erase":
            assert tuple(sorted(forks)) == store.erase(cid, reason="asked").forks
        elif deleting == "purge":
            assert {*forks} == {*store.purge(cid, reason="asked", forks=True).forks}
        else:
            done = store.erase_user("ada", reason="asked")
            assert {cid, *forks} == {*done.conversations}

    assert len(calls) >= 5
    assert len(calls) == store.get(other).version
    assert not has_canary(database_url)
    assert store.verify().ok


def void(_: object) -> None:
    """Drop a result."""


@pytest.mark.parametrize("place", range(5))
def test_an_erasure_that_is_killed_between_pieces_is_completed_by_the_next(
    database_url: str, store: EventStore, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """Until all is gone the conversation has no receipt, and its text finds the other copies."""
    cid, forks = forked(store, 7)
    with monkeypatch.context() as killing:
        before_each(store, killing, stop_at(place))
        with pytest.raises(KilledError):
            store.erase(cid, reason="asked")

    assert has_canary(database_url)
    assert [UserMessage.type] == [each.type for each in store.read(cid)]
    assert store.verify().ok

    receipt = store.erase(cid, reason="asked")

    assert ((1,), tuple(sorted(forks))) == (receipt.versions, receipt.forks)
    assert not has_canary(database_url)
    assert store.verify().ok
    erased = [
        version
        for fork in forks
        for each in store.read(fork)
        if isinstance(each.data, Erasure)
        for version in each.data.versions
    ]
    # Each copy is in one receipt: version 3 of the forks, and version 4 of the fork of a fork.
    assert [3] * 6 + [5] == sorted(erased)


@pytest.mark.parametrize("place", [1, 2, 4])
def test_what_is_written_between_pieces_is_erased_too(
    database_url: str, store: EventStore, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """A fork gains a copy, another is created, and a view is folded again in the meantime."""
    cid, forks = forked(store, 7)
    views = Views(store)
    with EventStore.open(database_url) as writer:

        def write(at: int) -> None:
            if at == place:
                writer.append(forks[-1], [summary()])
                writer.append(forks[0], [summary()])
                writer.fork(cid, events=[summary()])
            for fork in forks:
                Views(writer).timeline(fork)

        before_each(store, monkeypatch, write)
        receipt = store.erase(cid, reason="asked")
    monkeypatch.undo()

    assert 8 == len(receipt.forks)
    assert not has_canary(database_url)
    for fork in receipt.forks:
        assert CANARY not in str(views.timeline(fork))
    assert not has_canary(database_url)
    assert store.verify().ok


def test_a_view_that_another_store_folded_between_pieces_is_not_kept(
    database_url: str, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process had read the shared text before it was erased, and remembers where it was."""
    cid, forks = forked(store, 5)
    with EventStore.open(database_url) as other:
        views = Views(other)
        before_each(store, monkeypatch, lambda _: void([views.timeline(each) for each in forks]))
        store.erase(cid, reason="asked")
        assert all(CANARY not in str(views.timeline(each)) for each in forks)


@pytest.mark.parametrize("place", range(4))
def test_a_purge_that_is_killed_between_pieces_is_completed_by_the_next(
    database_url: str, store: EventStore, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """The conversation goes last; what is gone is counted by the forks' receipts."""
    cid, _ = forked(store, 7)
    with monkeypatch.context() as killing:
        before_each(store, killing, stop_at(place))
        with pytest.raises(KilledError):
            store.purge(cid, reason="asked", forks=True)

    assert store.get(cid).version == 1
    assert store.verify().ok

    receipt = store.purge(cid, reason="asked", forks=True)

    assert 7 - 2 * place == len(receipt.forks)
    assert 1 + 2 * (7 - 2 * place) == receipt.event_count
    assert not has_canary(database_url)
    assert store.verify().ok
    with PlainClient(database_url) as client:
        assert [(8, 15)] == client.execute("SELECT count(*), sum(event_count) FROM purges")
        assert [(0,)] == client.execute("SELECT count(*) FROM conversations")


def test_a_purge_of_anothers_fork_deletes_nothing(store: EventStore) -> None:
    """It is refused before the first piece."""
    cid, forks = forked(store, 6)
    store.fork(cid, new_user_id="bob")
    before = store.verify().events

    with pytest.raises(OwnerMismatch):
        store.purge(cid, reason="asked", forks=True, user_id="ada")

    assert before == store.verify().events
    assert len(forks) == 6


def test_what_cannot_be_erased_is_refused_before_the_first_piece(store: EventStore) -> None:
    """The forks keep their copies."""
    cid, forks = forked(store, 6)

    with pytest.raises(WrongExpectedVersion):
        store._erase_for(cid, lambda _: [], reason="x", versions=None, expected_version=9)

    assert not any(each.erased for fork in forks for each in store.read(fork))


@pytest.mark.parametrize("deleting", ["erase", "purge"])
def test_projected_rows_are_deleted_for_many_forks_at_once(
    store: EventStore, monkeypatch: pytest.MonkeyPatch, deleting: str
) -> None:
    """Each fork's rows were deleted by themselves, from thirty tables."""
    monkeypatch.setattr("eventstore.erasure.purge.FORKS_AT_ONCE", 50)
    counts = []
    for forks in (3, 12):
        cid, _ = forked(store, forks, copies=False)
        Views(store).timeline(cid)
        statements: list[str] = []

        def note(*args: Any, into: list[str] = statements) -> None:
            into.append(args[2])

        event.listen(store.engine, "before_cursor_execute", note)
        if deleting == "erase":
            store.erase(cid, reason="asked")
        else:
            store.purge(cid, reason="asked", forks=True)
        event.remove(store.engine, "before_cursor_execute", note)
        counts.append(sum("timeline" in each and "DELETE" in each for each in statements))
    assert counts[0] == counts[1] > 0
