"""Whatever is imported comes back as it was, through the store's encoding."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent_eventstore.transcripts import read_transcripts
from agent_eventstore.transcripts.openai_wire import message_of, payload_of, restored
from agent_eventstore.transcripts.session_import import original_payload
from agent_eventstore.transcripts.transcript import Calls, Transcript, canonical
from eventstore.events import AssistantMessage
from eventstore.events.codec import decode, encode
from eventstore.events.records import EventData

texts = st.text(st.characters(), max_size=8) | st.sampled_from(["", "\x00", "\ud800", '{"a": 1}'])
SYSTEM_TEXTS = (
    "SUMMARY",
    "SUMMARY: short",
    "CONVERSATION_SUMMARY\n\n short",
    " SUMMARY of it",
    "SUMMARIZE it",
    "so\n\nLLM_ERROR\n- kind: timeout\n- attempt: 1\n- message: slow",
    "LLM_ERROR\n- kind: dream\n- attempt: 0\n- message: ",
)
keys = texts | st.sampled_from(["type", "content"])
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
parts = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "refusal", "image_url", "file", "input_audio"])},
    optional={"text": values, "refusal": values, "image_url": values, "file": values},
)
functions = st.fixed_dictionaries(
    {}, optional={"name": texts | values, "arguments": texts | values}
)
tool_calls = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["a", "b"]) | values,
        "type": st.just("function") | values,
        "function": functions | values,
        "custom": values,
    },
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"])
        | values,
        "content": texts
        | st.sampled_from(SYSTEM_TEXTS)
        | st.lists(parts | values, max_size=3)
        | values,
        "name": texts | values,
        "tool_calls": st.lists(tool_calls | values, max_size=3) | values,
        "tool_call_id": st.sampled_from(["a", "b"]) | values,
        "function_call": functions | values,
        "refusal": texts | values,
        "reasoning_content": texts | values,
        "odd": values,
        "partType": st.just("chart") | values,
        "isCollapsed": values,
        "widget": st.just({"a": "x" * 40_000}) | values,
        "status": st.sampled_from(["failed", "ok"]) | values,
        "summarises": st.lists(st.sampled_from(["a", "b"]) | values, max_size=3) | values,
        "id": st.sampled_from(["a", "b"]) | values,
    },
)
session_lines = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            "session_start turn_start assistant action observation final turn_end session_end "
            "llm_error user_message system_instruction retraction mystery".split()
        ),
        "session_id": st.just("s"),
    },
    optional={
        "ts": st.just("2024-05-10T12:00:00Z") | values,
        "turn": st.integers(-1, 3) | values,
        "step": st.integers(-1, 2) | values,
        "content": texts | values,
        "role": values,
        "meta": st.fixed_dictionaries(
            {},
            optional={
                "tool": st.sampled_from(["x", "y"]) | values,
                "input": texts | values,
                "tokens": st.dictionaries(st.sampled_from(["prompt", "total"]), values) | values,
                "status": st.sampled_from(["ok", "failed"]) | values,
                "call_id": st.sampled_from(["1.0", "3.1"]) | values,
                "version": st.integers(0, 9) | values,
                "message": messages | values,
                "data": values,
                "event": values,
            },
        )
        | values,
    },
)


def _stored(data: EventData) -> EventData:
    return decode(data.type, data.schema_version, encode(data))


def _read(text: str, format_name: str) -> Transcript:
    with tempfile.NamedTemporaryFile() as file:
        path = Path(file.name)
        path.write_text(text, "utf-8")
        (transcript,) = read_transcripts(path, format_name, force=True)
    assert isinstance(transcript, Transcript)
    return transcript


@given(messages)
def test_a_message_comes_back_as_it_was(message: dict[str, Any]) -> None:
    """Every field, its kind, and texts to the byte survive import, storage and export."""
    data = payload_of(message, 2, Calls())
    assert canonical(message) == canonical(message_of(_stored(data), 2))


@given(st.lists(messages, max_size=4))
def test_a_conversation_comes_back_as_it_was(conversation: list[dict[str, Any]]) -> None:
    """Each message is one event, in order, and reading again derives the same ids."""
    text = json.dumps({"messages": conversation})
    transcript = _read(text, "openai")
    events = transcript.events[1:]
    exported = [message_of(_stored(event.data), v) for v, event in enumerate(events, 2)]
    assert canonical(conversation) == canonical(exported)
    assert transcript.events == _read(text, "openai").events


@given(st.lists(messages, min_size=1, max_size=4))
def test_a_projects_messages_are_never_refused(conversation: list[dict[str, Any]]) -> None:
    """Whatever a field holds, each message is one event that keeps it as it came."""
    transcript = _read(json.dumps(conversation), "messages-json")
    stored = [_stored(event.data) for event in transcript.events]
    assert [event.data for event in transcript.events] == stored
    assert len(conversation) + 1 == len(stored)
    original_payload: list[Any] = [getattr(data, "raw", None) for data in stored[1:]]
    got = [
        restored(raw.get("project_message", raw.get("openai_message")), data)
        for raw, data in zip(original_payload, stored[1:], strict=True)
    ]
    assert canonical(conversation) == canonical(got)


@given(st.lists(messages, min_size=1, max_size=4))
def test_chat_lines_are_never_refused(conversation: list[dict[str, Any]]) -> None:
    """Whatever a field holds, each line is one event that the store can keep."""
    transcript = _read("\n".join(json.dumps(line) for line in conversation), "messages-jsonl")
    stored = [_stored(event.data) for event in transcript.events]
    assert [event.data for event in transcript.events] == stored
    assert len(conversation) + 1 == len(stored)


@given(st.lists(session_lines, min_size=1, max_size=6))
def test_session_lines_are_kept_as_they_were(lines: list[dict[str, Any]]) -> None:
    """Every line but those of actions and of events by their own type stands in one event."""
    transcript = _read("\n".join(json.dumps(line) for line in lines), "session-jsonl")
    wanted = [line for line in lines if line["type"] not in ("action", "retraction")]
    pairs = [
        (data, original_payload(data)[1]) for e in transcript.events for data in [_stored(e.data)]
    ]
    got = [restored(line, data) for data, line in pairs if line is not None]
    got = [line for line in got if line["type"] not in ("action", "retraction")]
    assert canonical(wanted) == canonical(got)


@given(st.lists(session_lines, min_size=1, max_size=6))
def test_tool_calls_of_sessions_belong_to_messages(lines: list[dict[str, Any]]) -> None:
    """The call id of every execution names a call of an assistant message before it."""
    transcript = _read("\n".join(json.dumps(line) for line in lines), "session-jsonl")
    asked: set[str] = set()
    for version, event in enumerate(transcript.events, start=1):
        if isinstance(event.data, AssistantMessage):
            asked |= {f"{version}.{index}" for index in range(len(event.data.tool_calls))}
        elif event.data.type == "tool_call":
            assert getattr(event.data, "call_id", None) in asked
