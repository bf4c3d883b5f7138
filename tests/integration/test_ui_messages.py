"""Messages of the AI SDK in the log, and the log as messages, on both databases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from agent_eventstore import Conversation
from agent_eventstore.transcripts import detect, export_ui_messages, load, read_transcripts
from eventstore import EventStore
from eventstore import events as e
from projections import Views
from tests.integration.claude_sessions import example

pytestmark = pytest.mark.exhaustive_when("postgresql")

CHAT: list[dict[str, Any]] = [
    {"id": "m0", "role": "system", "parts": [{"type": "text", "text": "Be brief."}]},
    {
        "id": "m1",
        "role": "user",
        "metadata": {"createdAt": 1_763_800_000_000},
        "parts": [
            {"type": "text", "text": "How warm is it?"},
            {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA=="},
        ],
    },
    {
        "id": "m2",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "text": "I ask.", "state": "done"},
            {
                "type": "tool-weather",
                "toolCallId": "call_1",
                "state": "output-available",
                "input": {"city": "Oslo"},
                "output": {"degrees": 18},
            },
            {
                "type": "dynamic-tool",
                "toolName": "search",
                "toolCallId": "call_2",
                "state": "output-error",
                "input": {"q": "Oslo"},
                "errorText": "no network",
            },
            {"type": "step-start"},
            {"type": "text", "text": "18 degrees.", "state": "done"},
            {"type": "source-url", "sourceId": "s", "url": "https://example.com"},
            {"type": "data-map", "id": "d", "data": {"zoom": 3}},
        ],
    },
]


@pytest.fixture
def store(alone: EventStore) -> EventStore:
    """Give an empty store."""
    return alone


def _import(store: EventStore, tmp_path: Path, content: Any) -> UUID:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(content), "utf-8")
    assert "ui-messages" == detect(path)
    report = load(store, read_transcripts(path), strict=True)
    assert 0 == load(store, read_transcripts(path)).events_added
    return report.ids[0]


@pytest.mark.parametrize("content", [CHAT, {"id": "chat-1", "messages": CHAT}])
def test_a_chat_comes_back_as_it_was(store: EventStore, tmp_path: Path, content: Any) -> None:
    """As an array, or in an object with an id."""
    assert CHAT == export_ui_messages(store, _import(store, tmp_path, content))


def test_the_views_of_it(store: EventStore, tmp_path: Path) -> None:
    """Answers by step, tools with their results, messages[] without what only users see."""
    cid = _import(store, tmp_path, CHAT)
    views = Views(store)
    assert {("weather", "success"), ("search", "failed")} == {
        (call.name, call.status) for call in views.tool_calls(conversation_id=cid)
    }
    assert ["user", "reasoning", "tool", "tool", "assistant"] == [
        item.kind for item in views.timeline(cid) if item.kind not in ("conversation", "system")
    ]
    sent = json.dumps(views.context(cid, format="openai_chat").messages)
    assert "18 degrees." in sent
    assert "zoom" not in sent
    assert store.verify().ok


def test_a_chat_that_has_grown_adds_its_tail(store: EventStore, tmp_path: Path) -> None:
    """The id of the first message tells the chat."""
    cid = _import(store, tmp_path, CHAT)
    more = [*CHAT, {"id": "m3", "role": "user", "parts": [{"type": "text", "text": "Thanks."}]}]
    assert cid == _import(store, tmp_path, more)
    assert more == export_ui_messages(store, cid)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([CHAT[0], {"id": "x", "role": "user"}], "message 2 is not an object with a list of parts"),
        ([CHAT[0], 7], "message 2 is not an object with a list of parts"),
        ({"messages": []}, "there are no messages"),
    ],
)
def test_broken_chats_are_left_out(
    store: EventStore, tmp_path: Path, content: Any, reason: str
) -> None:
    """A transcript with a hole would tell another story."""
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(content), "utf-8")
    report = load(store, read_transcripts(path, "ui-messages"))
    assert [reason] == [failure.reason for failure in report.failures]
    assert [] == list(store.list())


def _wish(number: int) -> dict[str, Any]:
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    return {"index": number, "id": "call_1", "type": "function", "function": function}


def test_a_recorded_turn_is_one_message(store: EventStore) -> None:
    """Its answers are steps, and ids that a provider used twice are told apart."""
    with Conversation.start(store) as conversation:
        with conversation.turn("How warm is it?") as turn:
            with turn.llm_call() as call:
                message = {"role": "assistant", "tool_calls": [_wish(0), _wish(1)]}
                choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
                call.response({"object": "chat.completion", "choices": [choice]})
            for number, wanted in enumerate(call.tool_calls):
                with turn.tool(wanted) as tool:
                    tool.result({"degrees": 18 + number})
            with turn.llm_call() as call:
                call.delta("18 degrees.")
        asked, answered = export_ui_messages(store, conversation.id)
    assert [{"type": "text", "text": "How warm is it?"}] == asked["parts"]
    assert f"{conversation.id}/turn-1" == answered["id"]
    kinds = ["step-start", "tool-weather", "tool-weather", "step-start", "text"]
    assert kinds == [part["type"] for part in answered["parts"]]
    first, second = answered["parts"][1:3]
    assert ("call_1", {"degrees": 18}) == (first["toolCallId"], first["output"])
    assert second["toolCallId"] != "call_1"


def test_what_was_edited_is_not_shown(store: EventStore) -> None:
    """Only the active branch is given, and no answer that still goes on."""
    with Conversation.start(store) as conversation:
        with conversation.turn("one") as turn:
            with turn.llm_call() as call:
                call.delta("first")
        version = next(e.version for e in store.read(conversation.id) if e.type == "user_message")
        with conversation.edit(version, "two") as turn:
            with turn.llm_call() as call:
                call.delta("second")
            (asked,) = export_ui_messages(store, conversation.id)
        both = export_ui_messages(store, conversation.id)
    assert "two" == asked["parts"][0]["text"]
    assert ["two", "second"] == [message["parts"][-1]["text"] for message in both]


def test_a_session_of_a_coding_agent_is_a_chat(store: EventStore, tmp_path: Path) -> None:
    """Without what its program put in the user's place, and what another branch said."""
    report = load(store, read_transcripts(example().write(tmp_path / "a")))
    messages = export_ui_messages(store, report.ids[0])
    assert ["Why does the test fail?", "Mend it well.", "Thanks. What now?"] == [
        each["parts"][0]["text"] for each in messages if each["role"] == "user"
    ]
    assert len(messages) == len({each["id"] for each in messages})


SIGNED: dict[str, Any] = {
    "anthropic_messages": ({}, {"anthropic": {"signature": "c2VhbA=="}}),
    "openai_responses": (
        {"type": "reasoning", "id": "rs_1"},
        {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "c2VhbA=="}},
    ),
    "gemini_generate_content": ({}, {"google": {"thoughtSignature": "c2VhbA=="}}),
    "bedrock_converse": ({}, {"bedrock": {"signature": "c2VhbA=="}}),
    "openai_chat": ({}, None),
}


@pytest.mark.parametrize("specification", SIGNED)
def test_reasoning_is_signed_in_its_providers_name(store: EventStore, specification: str) -> None:
    """A seal goes back only to who made it: it was told as Anthropic's, whoever had answered."""
    raw, wanted = SIGNED[specification]
    thought = e.ReasoningPart(text="I ask.", signature="c2VhbA==", raw=raw or None)
    made = e.Invocation(specification=specification)
    payloads = [e.UserMessage.text("hi"), e.AssistantMessage(parts=(thought,), invocation=made)]
    store.append(conversation := uuid4(), payloads)
    [part] = [p for p in export_ui_messages(store, conversation)[-1]["parts"] if "text" in p]
    assert wanted == part.get("providerMetadata")
