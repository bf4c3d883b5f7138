"""Context rows keep no copy of a text that an event has, and no request can tell."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, text

from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.events import Payload
from eventstore.sql.types import json_out
from projections import Views
from projections.context.fold import CONTEXT
from projections.upkeep import compare
from tests.projections.support import everything, expected, live_of, stored
from tests.scaled_settings import scaled_settings

pytestmark = pytest.mark.exhaustive_when("postgresql")

LONG = "It was a dark and stormy night; the rain fell in torrents. " * 20
ODD = {
    "lines": f"\n\n{LONG}\n",
    "quotes": f'"\\"{LONG}\\udata \\u0000 /\t\b',
    "control": f"\x1b[1m{LONG}\x7f",
    "other planes": f"😀 雨 {LONG}",
    "short": LONG[:500],
    "just long": LONG[:501],
    "NUL": f"{LONG}\x00",
    "lone surrogate": f"\udc00{LONG}",
    "escape character": f"\U0010fffe000041{LONG}",
}
CALL = e.ToolCallRequest(name="look", arguments_text="{}", arguments={})


def copies(store: EventStore, cid: UUID) -> list[bool]:
    """Return of each row whether the table itself has its message, in order."""
    table = live_of(store, CONTEXT).tables["context_messages"]
    query = select(table.c.message).where(table.c.conversation_id == cid)
    with store.reading() as connection:
        rows = connection.execute(query.order_by(table.c.version, table.c.part)).scalars()
        return [message is not None for message in rows]


def sent(views: Views, cid: UUID, **asked: Any) -> list[str]:
    """Return the messages of a request, each as the bytes that go out."""
    return [json.dumps(message) for message in views.context(cid, **asked).messages]


def talk(words: str) -> list[Payload]:
    """Return a conversation in which everybody says the same."""
    return [
        e.SystemInstruction(text=words),
        e.UserMessage.text(words),
        e.AssistantMessage(tool_calls=(CALL,)),
        e.ToolResult(call_id="3.0", content=words),
        e.AssistantMessage(parts=(e.ReasoningPart(text="well"), e.TextPart(text=words))),
    ]


def test_what_events_say_is_not_copied(store: EventStore, views: Views, cid: UUID) -> None:
    """The text of a message is in the log once, and in the request whole."""
    store.append(cid, talk(LONG))
    messages = views.context(cid).messages
    assert [LONG, LONG, None, LONG, LONG] == [message["content"] for message in messages]
    assert [False, False, True, False, False] == copies(store, cid)
    assert LONG not in str(everything(store)["context_messages_g1"])


def test_short_texts_are_copied(store: EventStore, views: Views, cid: UUID) -> None:
    """A request holds many of them, and looking each up would cost more than it saves."""
    store.append(cid, [e.UserMessage.text(LONG[:500]), e.AssistantMessage.of(LONG[:501])])
    views.context(cid)
    assert [True, False] == copies(store, cid)


@pytest.mark.parametrize(
    "payload",
    [
        e.UserMessage.text(LONG, name="Ann"),
        e.UserMessage(parts=(e.TextPart(text=LONG), e.TextPart(text="and so on"))),
        e.AssistantMessage.of(LONG, tool_calls=(CALL,)),
        e.AssistantMessage(parts=(e.TextPart(text=LONG), e.RefusalPart(text="no"))),
        e.Notebook(text=LONG),
    ],
    ids=["named", "of two parts", "with calls", "with a refusal", "told of"],
)
def test_what_is_more_than_one_text_is_kept(
    store: EventStore, views: Views, cid: UUID, payload: Payload
) -> None:
    """A message that says more than its event's text stands in the row."""
    store.append(cid, [e.UserMessage.text("hello"), payload])
    assert sent(views, cid, at=2) == sent(views, cid)
    assert all(copies(store, cid))


@pytest.mark.parametrize("words", ODD.values(), ids=ODD.keys())
def test_requests_are_the_same_bytes(
    store: EventStore, views: Views, cid: UUID, words: str
) -> None:
    """As those made in memory, where the rows are whole, whatever characters a text has."""
    store.append(cid, talk(words))
    assert sent(views, cid, at=5) == sent(views, cid)
    assert expected(store.read(cid), [CONTEXT]) == stored(store, cid, [CONTEXT])


@scaled_settings(12)
@given(word=st.text(st.characters(exclude_categories=()), min_size=1))
def test_any_text_comes_back(store: EventStore, views: Views, word: str) -> None:
    """The same bytes as in memory, and no difference to a fold from the first event."""
    cid = new_id()
    store.append(cid, talk((word * 600)[:600]))
    assert sent(views, cid, at=5) == sent(views, cid)
    assert compare(store, ["context"]).ok


def test_plain_sql_shows_the_message(store: EventStore, views: Views, cid: UUID) -> None:
    """The stable view has it whole, whether or not the row has."""
    store.append(cid, [e.UserMessage.text(LONG), e.AssistantMessage.of("short")])
    views.context(cid)
    with store.reading() as connection:
        rows = connection.execute(
            text("SELECT CAST(message AS text) FROM context_messages ORDER BY version")
        ).scalars()
        found = [json_out(row) for row in rows]
    assert [
        {"role": "user", "content": LONG},
        {"role": "assistant", "content": "short"},
    ] == found


def test_a_payload_in_a_blob(views: Views, cid: UUID, database_url: str) -> None:
    """The row of an event that is only a stub has its message itself."""
    with EventStore.open(database_url, blob_threshold=500) as store:
        store.append(cid, [e.UserMessage.text(LONG)])
    assert sent(views, cid, at=1) == sent(views, cid)
    assert [True] == copies(views.store, cid)


def test_a_result_that_is_withdrawn(store: EventStore, views: Views, cid: UUID) -> None:
    """The row then says so, and quotes nothing; also where it was stored before."""
    store.append(cid, talk(LONG))
    views.context(cid)
    store.append(cid, [e.Retraction(versions=(e.VersionRange(first=4, last=4),))])
    assert sent(views, cid, at=6) == sent(views, cid)
    assert [LONG] * 3 == [m["content"] for m in views.context(cid).messages if LONG in str(m)]


def test_a_result_that_replaces_a_stand_in(store: EventStore, views: Views, cid: UUID) -> None:
    """The row of the call, written before, quotes the event that came later."""
    store.append(cid, talk(LONG)[:3])
    views.context(cid)
    store.append(cid, [e.ToolResult(call_id="3.0", content=LONG[1:])])
    assert LONG[1:] == views.context(cid).messages[-1]["content"]
    assert [False, False, True, False] == copies(store, cid)


def test_a_read_only_store(store: EventStore, views: Views, cid: UUID, database_url: str) -> None:
    """It has the messages of stored rows, and those that it folds in memory beside them."""
    store.append(cid, talk(LONG))
    views.context(cid)
    store.append(cid, [e.UserMessage.text(LONG[1:])])
    with EventStore.open(database_url, read_only=True) as replica:
        assert sent(views, cid, at=6) == sent(Views(replica), cid)


def test_an_erased_text_is_gone(store: EventStore, views: Views, cid: UUID) -> None:
    """Also from the rows that a process has kept; the others stay."""
    store.append(cid, talk(LONG))
    views.context(cid)
    store.erase(cid, reason="asked for", versions=[2, 4])
    assert 2 == sum(LONG == message["content"] for message in views.context(cid).messages)
    assert sent(views, cid, at=6) == sent(views, cid)
