"""A turn's read goes straight to what is new, where the store itself has just appended it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from eventstore import EventStore
from eventstore import events as e
from projections import Views, reading
from projections.context import CONTEXT
from projections.context.state import Active, read_active
from projections.engine import heads
from projections.engine.catch_up import CatchUp
from projections.engine.follower import catch_up_behind
from projections.upkeep import rebuild
from tests.projections.support import converse, expected, live_of, stored

pytestmark = pytest.mark.exhaustive_when("postgresql")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """Give the conversations of which it was asked whether something is new."""
    asked: list[UUID] = []
    real = heads.statuses

    def counted(*args: object) -> object:
        asked.append(args[2])  # type: ignore[arg-type]
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(heads, "statuses", counted)
    return asked


@pytest.fixture
def saving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every read save what it has folded."""
    monkeypatch.setattr(reading, "MOST_UNSAVED", 1)


def ask(store: EventStore, views: Views, cid: UUID, word: str) -> list[str]:
    """Append a question, and return what a request says last."""
    store.append(cid, [e.UserMessage.text(word)])
    return [message["content"] for message in views.context(cid, max_tokens=300).messages[-1:]]


def test_a_turn_does_not_ask_whether_something_is_new(
    store: EventStore, views: Views, looks: list[UUID]
) -> None:
    """The first request looks, and so does one of a conversation that is all in the tables."""
    cid = converse(store, 3)
    assert ["one"] == ask(store, views, cid, "one")
    assert [cid] == looks
    assert ["two"] == ask(store, views, cid, "two")
    assert [cid] == looks
    views.context(cid, max_tokens=300)
    assert [cid] == looks
    catch_up_behind(store, [CONTEXT])
    views.context(cid, max_tokens=300)
    views.context(cid, max_tokens=300)
    assert [cid, cid] == looks
    assert expected(store.read(cid), [CONTEXT]) == stored(store, cid, [CONTEXT])


def test_a_hundred_conversations_are_remembered(
    store: EventStore, views: Views, looks: list[UUID]
) -> None:
    """A process that serves many at a time goes straight to what is new in each of them."""
    cids = [converse(store, 1) for _ in range(100)]
    for cid in cids:
        views.context(cid)
    looks.clear()
    assert ["again"] * 100 == [ask(store, views, cid, "again")[0] for cid in cids]
    assert [] == looks


@contextmanager
def begun(store: EventStore) -> Iterator[list[str]]:
    """Give how each of the store's own transactions is begun."""
    kinds: list[str] = []
    real = store._driver_transaction

    def noting(**asked: Any) -> Any:
        kinds.append("writes" if asked.get("write") else "reads")
        return real(**asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_driver_transaction", noting)
        yield kinds


@pytest.mark.usefixtures("saving")
def test_a_turn_reads_in_one_transaction_and_saves_in_another(
    store: EventStore, views: Views, cid: UUID
) -> None:
    """It is answered where it is folded; the counts of its tables are saved with its rows."""
    call = e.ToolCallRequest(name="look", arguments_text="{}")
    table = json.dumps([{"number": n, "status": "delivered"} for n in range(9)], indent=1)
    store.append(cid, [e.UserMessage.text("begin")])
    views.context(cid, max_tokens=500)
    store.append(cid, [e.AssistantMessage.of(None, tool_calls=(call,))])
    store.append(cid, [e.ToolResult(call_id="2.0", content=table)])
    with begun(store) as kinds:
        answer = views.context(cid, max_tokens=500)
    assert ["reads", "writes"] == kinds
    assert '{"columns":["number","status"]' in answer.messages[-1]["content"]
    assert answer.document == Views(store).context(cid, max_tokens=500).document
    assert expected(store.read(cid), [CONTEXT]) == stored(store, cid, [CONTEXT])


def test_what_a_turn_withdraws_is_read_once_it_is_saved(
    store: EventStore, views: Views, cid: UUID
) -> None:
    """A change of older rows is not only new rows: then the tables are asked as they are."""
    store.append(cid, [e.UserMessage.text("one"), e.UserMessage.text("two")])
    views.context(cid, max_tokens=500)
    store.append(cid, [e.Retraction(versions=(e.VersionRange(first=2, last=2),))])
    with begun(store) as kinds:
        answer = views.context(cid, max_tokens=500)
    assert ["reads", "writes", "reads"] == kinds
    assert ["one"] == [message["content"] for message in answer.messages]


@pytest.mark.usefixtures("saving")
def test_others_who_save_first_are_read(
    store: EventStore, views: Views, cid: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where somebody else has folded meanwhile, it is read again, with what they have saved."""
    store.append(cid, [e.UserMessage.text("one")])
    views.context(cid, max_tokens=500)
    store.append(cid, [e.UserMessage.text("two")])
    save = CatchUp.save

    def interfered(catching_up: CatchUp, connection: Any) -> None:
        if catching_up.ahead is not None and catching_up.version == 2:
            stand_elsewhere(catching_up)
        save(catching_up, connection)

    monkeypatch.setattr(CatchUp, "save", interfered)
    assert ["one", "two"] == [
        message["content"] for message in views.context(cid, max_tokens=500).messages
    ]
    assert expected(store.read(cid), [CONTEXT]) == stored(store, cid, [CONTEXT])


def stand_elsewhere(catching_up: CatchUp) -> None:
    """Have a catch-up find that its head has moved, the first time that it looks."""
    catching_up.found_at, catching_up.version = [(0, None)], 0


def test_what_others_append_is_found_by_looking(store: EventStore, views: Views) -> None:
    """What a store remembers of its own appends is not all that there is."""
    cid = converse(store, 1)
    views.context(cid)
    with EventStore.open(store.engine.url) as other:
        other.append(cid, [e.UserMessage.text("from elsewhere")])
    assert "from elsewhere" == views.context(cid).messages[-1]["content"]


def test_what_is_active_is_asked_once(
    store: EventStore, views: Views, cid: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New rows alone do not change it; a switch does, and so does one that others have saved."""
    asked: list[UUID] = []

    def counted(*args: Any) -> Active:
        asked.append(args[2])
        return read_active(*args)

    monkeypatch.setattr("projections.context_reading.read_active", counted)

    def mode() -> str:
        said: list[str] = [each["content"] for each in views.context(cid, mode="active").messages]
        return next(each.split()[3] for each in said if each.startswith("MODE"))

    store.append(cid, [e.ConversationStart(mode="chat"), e.UserMessage.text("one")])
    assert "chat" == mode()
    asked.clear()
    store.append(cid, [e.UserMessage.text("two")])
    assert "chat" == mode()
    assert [] == asked
    store.append(cid, [e.ModeSwitch(mode="agent"), e.UserMessage.text("three")])
    assert "agent" == mode()
    with EventStore.open(store.engine.url) as other:
        other.append(cid, [e.ModeSwitch(mode="chat")])
        Views(other).context(cid)
    store.append(cid, [e.UserMessage.text("four")])
    assert "chat" == mode()


def test_a_turn_after_a_cut_over_is_read_from_the_new_tables(
    store: EventStore, views: Views
) -> None:
    """The tables that were read last are gone: then it looks."""
    cid = converse(store, 3)
    ask(store, views, cid, "one")
    rebuild(store, [CONTEXT.name])
    assert ["two"] == ask(store, views, cid, "two")
    assert 2 == live_of(store, CONTEXT).number
    assert expected(store.read(cid), [CONTEXT]) == stored(store, cid, [CONTEXT])


def test_a_turn_whose_head_was_lost_is_folded_anew(store: EventStore, views: Views) -> None:
    """What a process remembers of a head is no more than a reason not to look."""
    cid = converse(store, 3)
    ask(store, views, cid, "one")
    forget(store, cid)
    assert ["two"] == ask(store, views, cid, "two")
    assert expected(store.read(cid), [CONTEXT]) == stored(store, cid, [CONTEXT])


def forget(store: EventStore, cid: UUID) -> None:
    """Take away all that is stored of a conversation's messages[] view."""
    tables = ("projection_heads", f"context_messages_g{live_of(store, CONTEXT).number}")
    with store.writing() as connection:
        for table in tables:
            gone = text(f"DELETE FROM {table} WHERE conversation_id = :owner")
            connection.execute(gone, {"owner": str(cid)})
