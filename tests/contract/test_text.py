"""Text: whatever a model or a tool produced comes back as it was, on both databases."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from eventstore import EventStore, Meta, NewEvent
from eventstore.errors import ConversationNotFound, InvalidEvent
from eventstore.events import AssistantMessage, ToolCall, ToolResult, UnknownEvent, UserMessage
from eventstore.events.records import EventData
from tests.contract.facade import say, texts

TEXTS = {
    "empty": "",
    "nul": "a\0b",
    "lone high surrogate": "a\ud800b",
    "lone low surrogate": "\udfff",
    "surrogates in the wrong order": "\udc00\ud800",
    "nul and surrogate": "\0\ud800\0",
    "emoji": "🙂 \U0010fffd",
    "noncharacters": "\uffff\ufffe\U0010ffff\U0010fffe",
    "escape character with digits": "\U0010fffe000041",
    "what looks like an escape": "\\u0000 \\ud800 %s :name ? $1",
    "quotes": "'\"`\\ \r\n\t\x01\x7f",
    "replacement character": "\ufffd",
    "replacement characters": "\ufffd" * 4,
    "combining": "e\u0301 \u202e",
}

every_text = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)


@every_text
def test_payload(store: EventStore, cid: UUID, text: str) -> None:
    """Text in fields, lists, keys and raw objects is kept losslessly."""
    events: list[EventData] = [
        UserMessage.text(text, name=text, raw={text: [text, {text: None}]}),
        AssistantMessage.of(text, raw=text),
        ToolCall(call_id=text, name=text, arguments={text: text}),
        ToolResult(call_id=text, content=text, error=text, raw=[text]),
        UnknownEvent("future", 1, {text: text}),
    ]

    done = store.append(cid, events, allow_empty=True)

    assert events == [event.data for event in store.read(cid)]
    assert events == [event.data for event in done.events]
    assert store.verify(cid).ok


@every_text
def test_key_alone(store: EventStore, cid: UUID, text: str) -> None:
    """Also where no other text of the payload gives the character away."""
    event = ToolCall(call_id="1.0", name="f", arguments={text: {text: 1}})

    store.append(cid, [event])

    assert [event] == [recorded.data for recorded in store.read(cid)]


@every_text
def test_payload_in_a_blob(store: EventStore, cid: UUID, text: str) -> None:
    """Over the threshold as well."""
    large = text + "x" * 40_000 + text

    store.append(cid, [*say(large), ToolResult(call_id="1.0", content=large)])

    message, result = store.read(cid)
    assert [large] == texts([message])
    assert isinstance(result.data, ToolResult)
    assert result.data.blob is not None
    content = store.blob(cid, result.data.blob.digest)
    assert large == content.decode("utf-8", "surrogatepass")
    assert store.verify(cid).ok


@every_text
def test_meta(store: EventStore, cid: UUID, text: str) -> None:
    """Metadata is text from outside too."""
    meta = Meta(session_id=text, run_id=text, workflow_id=text, agent_id=text, actor=text)

    store.append(cid, [NewEvent(say("hello")[0], meta=meta)])

    assert [meta] == [event.meta for event in store.read(cid)]
    assert store.verify(cid).ok


@every_text
def test_tenant_and_user(store: EventStore, cid: UUID, text: str) -> None:
    """Owners are kept, compared and searched as they were given; one without a name is refused."""
    if not text:
        with pytest.raises(InvalidEvent):
            store.append(cid, say("hello"), tenant_id=text, user_id=text)
        return
    store.append(cid, say("hello"), tenant_id=text, user_id=text)
    store.append(cid, say("again"), tenant_id=text, user_id=text)

    info = store.get(cid)

    assert (text, text) == (info.tenant_id, info.user_id)
    assert cid in {found.conversation_id for found in store.list(tenant_id=text, user_id=text)}


@every_text
def test_erasure_reason(store: EventStore, cid: UUID, text: str) -> None:
    """The receipt keeps the words of who asked."""
    store.append(cid, say("hello"))

    reason = store.erase(cid, reason=f"because {text}", requested_by=text).reason

    assert f"because {text}" == reason
    assert store.verify(cid).ok


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", ["raw", "config", "list", "unknown"])
def test_numbers_that_are_no_json(store: EventStore, cid: UUID, number: float, place: str) -> None:
    """NaN and infinities are refused in words, together with the good event before them."""
    events: dict[str, EventData] = {
        "raw": UserMessage.text("x", raw=number),
        "config": ToolCall(call_id="1.0", name="f", arguments={"deep": {"x": number}}),
        "list": AssistantMessage.of("x", raw={"logprobs": [0.5, number]}),
        "unknown": UnknownEvent("future", 1, [number]),
    }

    with pytest.raises(InvalidEvent, match=r"not JSON|not a JSON|as JSON"):
        store.append(cid, [*say("good"), events[place]])
    with pytest.raises(ConversationNotFound):
        store.get(cid)


def test_words_for_numbers_are_text(store: EventStore, cid: UUID) -> None:
    """NaN and Infinity may be talked about."""
    store.append(cid, say("NaN, Infinity and -Infinity"))

    assert ["NaN, Infinity and -Infinity"] == texts(store.read(cid))


def test_what_json_cannot_express(store: EventStore, cid: UUID) -> None:
    """An object of Python in a raw field is refused, and nothing is written."""
    with pytest.raises(InvalidEvent, match="cannot be written as JSON"):
        store.append(cid, [UserMessage.text("x", raw={"socket": object()})])
    assert [] == list(store.read(cid))


def test_json_that_is_nested_without_end(store: EventStore, cid: UUID) -> None:
    """Depth beyond what readers can take is refused, not a crash."""
    nested: Any = None
    for _ in range(100_000):
        nested = [nested]

    with pytest.raises(InvalidEvent):
        store.append(cid, [UnknownEvent("future", 1, nested)])
    assert [] == list(store.read(cid))


def test_unknown_fields_are_refused_at_once() -> None:
    """A typing error in a field's name does not become a fact."""
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        UserMessage(parts=(), txt="hello")  # type: ignore[call-arg]
