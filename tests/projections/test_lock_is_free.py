"""Between reading and writing: nothing is held while texts are folded, and what came then counts.

On SQLite everybody who writes waits for a lock that is held while a text is tokenized.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.erasure import erase, plan
from eventstore.erasure.erase import erasure_lock
from projections import Views, upkeep, worker
from projections import context_reading as reading
from projections.catalogue import PROJECTIONS
from projections.context import search_index
from projections.context_reading import bring_up
from projections.engine import catch_up, heads, tables
from projections.engine.catch_up import CatchUp
from projections.engine.folds import Fold
from projections.engine.follower import catch_up_behind
from projections.engine.generations import find_all_live, install
from projections.engine.tables import _Prepared
from projections.models.timeline import TIMELINE
from projections.tokens import counts
from tests.projections.support import converse, expected, live_of, stored
from tests.projections.toys import Marked
from tests.unit.projections.history import history

Catching = Callable[[EventStore, UUID], object]


@pytest.fixture
def other(store: EventStore) -> Iterator[EventStore]:
    """Give the same database, opened once more."""
    with EventStore.open(store.engine.url) as opened:
        yield opened


def appended_since(store: EventStore, cid: UUID) -> object:
    """Read a request that this store has appended to: it is not looked whether there is more."""
    views = Views(store)
    views.context(cid, max_tokens=500)
    store.append(cid, [e.UserMessage.text("and more")])
    return views.context(cid, max_tokens=500)


WAYS: dict[str, Catching] = {
    "timeline": lambda store, cid: Views(store).timeline(cid),
    "context": appended_since,
    "context in run mode": lambda store, cid: Views(store).context(cid, mode="run"),
    "worker": lambda store, _: worker.run(store, once=True),
    "rebuild": lambda store, _: upkeep.rebuild(store),
    "search": lambda store, cid: bring_up(store, cid),
}


@pytest.mark.parametrize("way", WAYS)
def test_locks_are_free_while_a_text_is_looked_at(
    store: EventStore, other: EventStore, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A worker's round over a megabyte kept all writers of SQLite waiting for 0.1 s.

    Nor are values converted, or words taken apart for the index, while a lock is held.
    """
    Views(store)
    cid, looks = converse(store, 2), []

    def free() -> None:
        looks.append(1)
        with other.writing(patience_ms=20) as connection:
            live = [each for each in find_all_live(connection, PROJECTIONS) if each is not None]
            heads.lock(connection, live, cid)

    for owner, name in (
        (Fold, "feed"),
        (counts, "count_message"),
        (reading, "build"),
        (_Prepared, "bind"),
        (tables, "bind_new"),
        (search_index, "indexed_terms"),
        (search_index, "fingerprint"),
    ):
        real = getattr(owner, name)

        def looked(*args: Any, real: Any = real, **options: Any) -> Any:
            free()
            return real(*args, **options)

        monkeypatch.setattr(owner, name, looked)
    WAYS[way](store, cid)
    assert looks


def test_a_rebuild_reads_in_no_transaction_while_it_folds(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's log begins anew only where nobody reads it: it grew to the size of the database."""
    emptied = []
    with EventStore.open(sqlite_url) as store, ExitStack() as stack:
        other = stack.enter_context(closing(sqlite3.connect(str(store.engine.url.database))))
        Views(store)
        converse(store, 2)
        real = Fold.feed

        def looked(self: Fold, events: Any) -> None:
            busy, _, left = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            emptied.append((busy, left))
            real(self, events)

        monkeypatch.setattr(Fold, "feed", looked)
        upkeep.rebuild(store)
    assert {(0, 0)} == set(emptied)


def test_a_broken_conversation_is_tried_without_a_lock(
    store: EventStore, other: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is set aside is folded up to where it breaks each time that it gains an event."""
    Views(store)
    toy = Marked()
    with store.writing() as connection:
        install(connection, [toy])
    cid, looks = new_id(), []
    store.append(cid, [e.UserMessage.text("fine"), e.UserMessage.text("poison")])
    real = Marked.fold

    def looked(self: Marked, state: Any, event: Any) -> Any:
        looks.append(1)
        with other.writing(patience_ms=20) as connection:
            heads.lock(connection, [live_of(store, toy)], cid)
        return real(self, state, event)

    monkeypatch.setattr(Marked, "fold", looked)
    assert 0 == catch_up_behind(store, [toy])
    assert looks


def between(monkeypatch: pytest.MonkeyPatch, come: Callable[[], object], times: int) -> list[int]:
    """Have somebody come after so many foldings; give the list of the places they came at."""
    came: list[int] = []
    busy: list[int] = []
    real = CatchUp.fold

    def fold(self: CatchUp, connection: Any, *how: Any, **given: Any) -> int:
        count = real(self, connection, *how, **given)
        if len(came) < times and not busy:
            came.append(self.version)
            busy.append(1)
            come()
            busy.clear()
        return count

    monkeypatch.setattr(CatchUp, "fold", fold)
    return came


@pytest.mark.parametrize("way", ["timeline", "worker"])
def test_somebody_else_has_folded_it_meanwhile(
    store: EventStore, other: EventStore, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Then it is folded from where that one came to, and no row is written twice."""
    views = Views(store)
    cid = converse(store, 2)

    def come() -> None:
        other.append(cid, [e.UserMessage.text("and more")])
        views.timeline(cid)

    between(monkeypatch, come, 1)
    WAYS[way](other, cid)
    assert expected(store.read(cid), [TIMELINE]) == stored(store, cid, [TIMELINE])


def test_others_always_come_first(
    store: EventStore, other: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some attempts it is folded under the lock: it comes to an end all the same."""
    Views(store)
    cid = converse(store, 2)
    second = Views(other)

    def come() -> None:
        other.append(cid, [e.UserMessage.text("and more")])
        second.timeline(cid)
        other.append(cid, [e.UserMessage.text("and so on")])

    came = between(monkeypatch, come, catch_up._ATTEMPTS)
    assert 1 == catch_up_behind(store, [TIMELINE])
    assert catch_up._ATTEMPTS == len(came)
    assert expected(store.read(cid), [TIMELINE]) == stored(store, cid, [TIMELINE])


@pytest.mark.parametrize("way", ["timeline", "context", "worker"])
def test_what_was_erased_meanwhile_is_not_written(
    store: EventStore, other: EventStore, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Neither rows nor token counts of it."""
    Views(store)
    cid = new_id()
    store.append(cid, [e.UserMessage.text("a secret")])
    between(monkeypatch, lambda: other.erase(cid, reason="asked for"), 1)
    WAYS[way](store, cid)
    catch_up_behind(store, PROJECTIONS)
    assert expected(store.read(cid)) == stored(store, cid)
    assert "secret" not in repr(stored(store, cid))


SECRET = "the secret number of the account is 42"


def test_an_erasure_looks_through_texts_without_a_lock(
    store: EventStore, other: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten megabytes of a conversation kept all writers of SQLite waiting for seconds."""
    cid, looks = new_id(), []
    store.append(cid, [e.UserMessage.text(SECRET), e.AssistantMessage.of(f"You said: {SECRET}")])
    real = plan.copies_of

    def looked(*args: Any) -> Any:
        looks.append(1)
        other.append(new_id(), [e.UserMessage.text("somebody else")])
        with other.writing(patience_ms=20) as connection:
            erasure_lock(connection, cid)
        return real(*args)

    monkeypatch.setattr(erase, "copies_of", looked)
    receipt = store.erase(cid, reason="asked for", versions=(each for each in [1]))
    assert ((1,), 1) == (receipt.versions, len(looks))
    assert [2] == [each.first for told in receipt.quoted_by for each in told.versions]


@pytest.mark.parametrize("times", [1, 9])
def test_what_is_said_while_an_erasure_looks_is_looked_at(
    store: EventStore, other: EventStore, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """It is looked again; in the end under the lock, so that the others cannot win for ever."""
    cid, looks = new_id(), []
    store.append(cid, [e.UserMessage.text(SECRET)])
    real = plan.copies_of

    def looked(*args: Any) -> Any:
        looks.append(1)
        found = real(*args)
        if len(looks) <= min(times, erase._ATTEMPTS):
            other.append(cid, [e.AssistantMessage.of(f"You said: {SECRET}")])
        return found

    monkeypatch.setattr(erase, "copies_of", looked)
    receipt = store.erase(cid, reason="asked for", versions=[1])
    came = min(times, erase._ATTEMPTS)
    assert came + 1 == len(looks)
    quoted = [(each.first, each.last) for told in receipt.quoted_by for each in told.versions]
    assert [(2, came + 1)] == quoted
    assert store.verify(cid).ok


def test_a_text_that_repeats_itself_is_looked_for_in_linear_time() -> None:
    """It begins at every place of what may hold it; compared at each, a megabyte took a minute."""
    said = e.UserMessage.text("a" * 300_000 + "b")
    held = e.AssistantMessage.of("a" * 600_000)
    events = history(said, held)
    assert {} == plan.quotations_of(events, {1})
    pieces = [e.AssistantChunk(llm_call_id="a", index=each, text="x") for each in range(3_000)]
    assert {} == plan.copies_of(history(*pieces), set(range(1, 3_001)))
