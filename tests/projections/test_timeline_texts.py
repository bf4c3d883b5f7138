"""The timeline's table keeps no copy of a text that an event has, and no reader can tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, text

from eventstore import EventStore, RecordedEvent, new_id
from eventstore import events as e
from eventstore.events import Payload
from projections import Views
from projections.engine.folding import one_line
from projections.models.timeline import TIMELINE
from projections.upkeep import compare
from tests.projections.support import expected, live_of, stored
from tests.scaled_settings import scaled_settings
from tests.unit.projections.history import apply, fold

pytestmark = pytest.mark.exhaustive_when("postgresql")

LONG = "It was a dark and stormy night; the rain fell in torrents. " * 20
ODD = {
    "lines": f"\n\n{LONG}\n",
    "quotes": f'"\\"{LONG}\\udata \\u0000 /\t\b',
    "control": f"\x1b[1m{LONG}\x7f",
    "other planes": f"😀 雨 {LONG}",
    "as long as its preview": LONG[:200],
    "one longer": LONG[:201],
    "NUL": f"{LONG}\x00",
    "lone surrogate": f"\udc00{LONG}",
    "escape character": f"\U0010fffe000041{LONG}",
}


def kept(store: EventStore, cid: UUID) -> list[str | None]:
    """Return the texts that the table itself has, in reading order."""
    table = live_of(store, TIMELINE).tables["timeline_items"]
    query = select(table.c.text).where(table.c.conversation_id == cid)
    with store.reading() as connection:
        rows = connection.execute(query.order_by(table.c.version, table.c.part))
        return list(rows.scalars())


def told(views: Views, cid: UUID, **asked: Any) -> list[str | None]:
    """Return the texts of the timeline."""
    return [item.text for item in views.timeline(cid, **asked)]


def talk(words: str) -> list[Payload]:
    """Return a conversation in which every item says the same."""
    call = e.ToolCallRequest(name="look", arguments_text="{}", arguments={})
    parts = (e.ReasoningPart(text=words), e.TextPart(text=words))
    return [
        e.UserMessage.text(words),
        e.AssistantMessage(parts=parts, tool_calls=(call,)),
        e.ToolResult(call_id="2.0", content=words),
        e.SystemInstruction(text=words),
        e.Notebook(text=words),
        e.Summary(text=words, versions=(e.VersionRange(first=1, last=2),)),
    ]


def test_what_events_say_is_not_copied(store: EventStore, views: Views, cid: UUID) -> None:
    """Messages, thoughts, results and the like are in the log once, and in the timeline whole."""
    store.append(cid, talk(LONG))
    assert [LONG] * 7 == told(views, cid)
    assert [None] * 7 == kept(store, cid)


def test_plain_sql_shows_text_and_preview(store: EventStore, views: Views, cid: UUID) -> None:
    """The stable view has both, whether or not the row has."""
    store.append(cid, [*talk(LONG), e.UserMessage.text("short")])
    views.timeline(cid)
    with store.reading() as connection:
        rows = connection.execute(text("SELECT text, preview FROM timeline_items")).all()
    assert {(LONG, one_line(LONG)), ("short", "short")} == {tuple(row) for row in rows}


@pytest.mark.parametrize("words", ODD.values(), ids=ODD.keys())
def test_texts_come_back_as_they_were(
    store: EventStore, views: Views, cid: UUID, words: str
) -> None:
    """Whatever characters a text has, and wherever it is kept."""
    store.append(cid, talk(words))
    assert [(words, one_line(words))] * 7 == [(i.text, i.preview) for i in views.timeline(cid)]
    assert expected(store.read(cid), [TIMELINE]) == stored(store, cid, [TIMELINE])


@scaled_settings(12)
@given(words=st.lists(st.text(st.characters(exclude_categories=())), min_size=1, max_size=4))
def test_any_text_comes_back(store: EventStore, views: Views, words: list[str]) -> None:
    """Also in messages of several parts, of which one may be long."""
    cid = new_id()
    texts = [(word * 300)[:300] if number % 2 else word for number, word in enumerate(words)]
    said = e.AssistantMessage(parts=tuple(e.TextPart(text=t) for t in texts))
    store.append(cid, [said], allow_empty=True)
    assert ["".join(texts)] == told(views, cid)
    assert compare(store, ["timeline"]).ok


@pytest.mark.parametrize("odd", ["\x00", "\ud800"], ids=["NUL", "lone surrogate"])
def test_a_payload_that_sql_cannot_look_into(
    store: EventStore, views: Views, cid: UUID, odd: str
) -> None:
    """An odd character beside a plain text keeps PostgreSQL from it: the row has a copy."""
    store.append(cid, [e.UserMessage.text(LONG, name=odd)])
    assert [LONG] == told(views, cid)
    assert [LONG] == kept(store, cid)


def test_a_payload_in_a_blob(views: Views, cid: UUID, database_url: str) -> None:
    """The row of an event that is only a stub has no text to be read."""
    with EventStore.open(database_url, blob_threshold=500) as store:
        store.append(cid, [e.UserMessage.text(LONG)])
    assert [LONG] == told(views, cid)
    assert [LONG] == kept(views.store, cid)


def test_a_streamed_text(store: EventStore, views: Views, cid: UUID) -> None:
    """It stands in the row until the message has come that says all of it."""
    store.append(cid, [e.AssistantChunk(llm_call_id="a", index=0, text=LONG)])
    assert ([LONG], [LONG]) == (told(views, cid), kept(store, cid))
    store.append(cid, [e.AssistantMessage.of(LONG, llm_call_id="a")])
    assert ([LONG], [None]) == (told(views, cid), kept(store, cid))


def test_a_result_that_replaces_a_stand_in(store: EventStore, views: Views, cid: UUID) -> None:
    """The item then shows the later event's text, or that there is none."""
    store.append(cid, [e.ToolResult(call_id="9.0", status="outcome_unknown", content=LONG)])
    assert [LONG] == told(views, cid)
    store.append(cid, [e.ToolResult(call_id="9.0", status="success")])
    assert [(None, None)] == [(item.text, item.preview) for item in views.timeline(cid)]


def test_the_past_has_its_texts(store: EventStore, views: Views, cid: UUID) -> None:
    """Where a conversation is folded in memory there are no events to be looked into."""
    store.append(cid, talk(LONG))
    assert [LONG] * 4 == told(views, cid, at=3)


def test_a_read_only_store_has_its_texts(
    store: EventStore, views: Views, cid: UUID, database_url: str
) -> None:
    """Those of stored rows, and those of what it folds in memory beside them."""
    store.append(cid, talk(LONG))
    views.timeline(cid)
    store.append(cid, [e.UserMessage.text(LONG[1:])])
    with EventStore.open(database_url, read_only=True) as replica:
        assert [*[LONG] * 7, LONG[1:]] == told(Views(replica), cid)


def test_an_erased_text_is_gone(store: EventStore, views: Views, cid: UUID) -> None:
    """Nothing is left of it once its event is erased; the others stay."""
    store.append(cid, talk(LONG))
    views.timeline(cid)
    store.erase(cid, reason="asked for", versions=[1, 3], derived=False)
    assert [LONG] * 5 == [words for words in told(views, cid) if words == LONG]
    assert LONG not in [item.text for item in views.timeline(cid) if item.version in (1, 3)]


def places(event: RecordedEvent) -> list[int | None]:
    """Return the versions that the items of an event name for their texts."""
    items = apply(fold(TIMELINE, [event])[1], TIMELINE)["timeline_items"].values()
    return [item["text_version"] for item in items]


def test_an_event_of_an_older_form(store: EventStore, cid: UUID) -> None:
    """What was upcast has its text elsewhere in the row, so that the timeline keeps a copy."""
    store.append(cid, [e.UserMessage.text(LONG)])
    [event] = store.read(cid)
    assert [1] == places(event)
    assert [None] == places(replace(event, schema_version=0))
