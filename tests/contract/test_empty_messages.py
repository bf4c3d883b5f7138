"""A message without content is no well-formed event, unless it is another system's record."""

from __future__ import annotations

from uuid import UUID

import pytest

from eventstore import EventStore
from eventstore.errors import ConversationNotFound, InvalidEvent
from eventstore.events import (
    AssistantMessage,
    ImagePart,
    ReasoningPart,
    Section,
    Sections,
    TextPart,
    ToolCallRequest,
    ToolResult,
    UserMessage,
)
from eventstore.events.records import EventData

BLANK = TextPart(text="")
EMPTY: dict[str, EventData] = {
    "message without parts": UserMessage(parts=()),
    "message of an empty text": UserMessage.text(""),
    "message of two empty texts": UserMessage(parts=(BLANK, BLANK)),
    "message without a section": UserMessage(parts=(), sections=Sections(live=())),
    "message of an empty section": UserMessage(
        parts=(), sections=Sections(live=(Section(text=""),))
    ),
    "message with nothing but a name": UserMessage(parts=(), name="ada"),
    "answer without parts": AssistantMessage(),
    "answer of an empty text": AssistantMessage.of(""),
    "answer of empty reasoning": AssistantMessage(parts=(ReasoningPart(text=""), BLANK)),
}
NOT_EMPTY: dict[str, EventData] = {
    "message of a section": UserMessage(parts=(), sections=Sections(live=(Section(text="hi"),))),
    "message of an image": UserMessage(parts=(ImagePart(url="https://example.org/a.png"),)),
    "message of whitespace": UserMessage.text(" "),
    "answer of a call": AssistantMessage(
        tool_calls=(ToolCallRequest(name="search", arguments_text="{}"),)
    ),
    "answer of reasoning": AssistantMessage(parts=(ReasoningPart(text="hm"),)),
    "answer that a provider ended without content": AssistantMessage(finish_reason="stop"),
    "result without output": ToolResult(call_id="1.0", content=""),
    "result that is only a status": ToolResult(call_id="1.0"),
}


@pytest.mark.parametrize("event", EMPTY.values(), ids=EMPTY)
def test_an_empty_message_is_refused(store: EventStore, cid: UUID, event: EventData) -> None:
    """Nothing of the append is stored; the error says which event, and what it needs."""
    with pytest.raises(InvalidEvent, match=r"event 1 of the append: .* is empty; it needs") as said:
        store.append(cid, [UserMessage.text("hi"), event])
    assert 1 == said.value.index
    with pytest.raises(ConversationNotFound):
        store.get(cid)


@pytest.mark.parametrize("event", NOT_EMPTY.values(), ids=NOT_EMPTY)
def test_a_message_with_any_content_is_stored(
    store: EventStore, cid: UUID, event: EventData
) -> None:
    """So is a result, whose status is an outcome already."""
    assert 1 == store.append(cid, [event]).version


@pytest.mark.parametrize("event", EMPTY.values(), ids=EMPTY)
def test_a_record_of_another_system_may_be_empty(
    store: EventStore, cid: UUID, event: EventData
) -> None:
    """An import keeps what the other system holds."""
    done = store.append(cid, [event], allow_empty=True)
    assert [event] == [each.data for each in store.read(cid)] == [e.data for e in done.events]
