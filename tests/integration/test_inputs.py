"""What products hand in, in the shapes they have it in: it works, or says what is wanted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from eventstore import new_id
from eventstore.errors import InvalidEvent
from eventstore.events import FilePart, ImagePart, Notebook, OtherPart, TextPart
from tests.integration.recording import Recorder, ask, ask_for_tool, data_of

BASE64 = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
PNG = "data:image/png;base64,AAAA"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("hi", TextPart(text="hi")),
        (TextPart(text="hi"), TextPart(text="hi")),
        ({"kind": "text", "text": "hi"}, TextPart(text="hi")),
        ({"type": "text", "text": "hi"}, TextPart(text="hi")),
        ({"type": "input_text", "text": "hi"}, TextPart(text="hi")),
        ({"type": "image_url", "image_url": {"url": PNG}}, ImagePart(url=PNG)),
        ({"type": "input_image", "image_url": PNG}, ImagePart(url=PNG)),
        (
            {
                "type": "image",
                "source": BASE64,
            },
            ImagePart(url=PNG, media_type=BASE64["media_type"]),
        ),
        ({"type": "image", "source": {"type": "url", "url": PNG}}, ImagePart(url=PNG)),
        ({"type": "file", "file": {"file_id": "f1"}}, FilePart(file_id="f1")),
        ({"type": "input_audio", "input_audio": {}}, None),
    ],
    ids=repr,
)
def test_parts_as_a_provider_has_them(recording: Recorder, part: Any, expected: Any) -> None:
    """They are the same parts as ours; one without a name here is kept as it came."""
    conversation = recording.start()
    with conversation.turn([part]) as turn:
        ask(turn)

    (message,) = data_of(recording.store, conversation, "user_message")
    assert (expected or OtherPart(raw=part),) == message.parts


@pytest.mark.parametrize(
    "said", [42, None, b"hi", {"role": "user", "content": "hi"}, [42], [{"text": "hi"}]], ids=repr
)
def test_input_that_is_none(recording: Recorder, said: Any) -> None:
    """It is refused where it is handed in, with what is wanted, and uses up no number."""
    conversation = recording.start()
    with pytest.raises(InvalidEvent, match="pass text, a UserMessage, or a list of parts"):
        conversation.turn(said)

    assert 1 == conversation.turn("hi").number


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ({"temperature": 18, "wind": "böig"}, '{"temperature": 18, "wind": "böig"}'),
        ([], "[]"),
        ([{"type": "metro"}, 2], '[{"type": "metro"}, 2]'),
        (18.5, "18.5"),
        (True, "true"),
        ({"at": datetime(2026, 11, 22, tzinfo=UTC)}, '{"at": "2026-11-22T00:00:00Z"}'),
        ([{"type": "text", "text": "hi"}], (TextPart(text="hi"),)),
        (TextPart(text="hi"), (TextPart(text="hi"),)),
    ],
    ids=repr,
)
def test_result_that_is_a_value(recording: Recorder, result: Any, content: Any) -> None:
    """A dictionary becomes JSON, a list of parts stays one."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        with turn.tool(ask_for_tool(turn)) as tool:
            tool.result(result)

    (found,) = data_of(recording.store, conversation, "tool_result")
    assert ("success", content) == (found.status, found.content)


def test_result_that_json_cannot_hold(recording: Recorder) -> None:
    """The product is told so, and the model that the tool failed."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        refused = pytest.raises(InvalidEvent, match="a tool's result cannot be object")
        with refused, turn.tool(ask_for_tool(turn)) as tool:
            tool.result(object())

    (found,) = data_of(recording.store, conversation, "tool_result")
    assert "failed" == found.status


@pytest.mark.parametrize("call", ["search", {"id": "call_1"}, None], ids=repr)
def test_tool_that_the_model_did_not_ask_for(recording: Recorder, call: Any) -> None:
    """A name is not a call; what is one is said."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        for use in (turn.tool, lambda each: turn.skip(each, "no")):
            with pytest.raises(TypeError, match=r"tool call: pass one of call\.tool_calls"):
                use(call)


def test_messages_in_place_of_a_request(recording: Recorder) -> None:
    """They are told from what `context` returns, and where they go is said."""
    with recording.start() as conversation, conversation.turn("hello") as turn:
        messages: Any = [{"role": "user", "content": "hi"}]
        with pytest.raises(TypeError, match="pass your own messages as prompt="):
            turn.llm_call(messages)


def test_one_event_is_appended(recording: Recorder) -> None:
    """A list is not needed for one; what is not an event is named."""
    stream = new_id()
    assert 1 == recording.store.append(stream, Notebook(text="x")).version
    wrong: Any
    for wrong in (42, "x", None):
        with pytest.raises(InvalidEvent, match="neither an event nor a list of events"):
            recording.store.append(stream, wrong)


def test_owner_that_is_a_number(recording: Recorder) -> None:
    """The ids of tenants and users are text, wherever they are handed in."""
    number: Any = 42
    uses: list[Any] = [
        lambda: recording.start(user_id=number),
        lambda: recording.start(tenant_id=number),
        lambda: recording.store.list(user_id=number),
        lambda: recording.start().views.conversations(user_id=number),
        lambda: recording.start().views.usage(user_id=number),
    ]
    for use in uses:
        with pytest.raises(InvalidEvent, match=r"_id must be text: pass '42', not 42"):
            use()
