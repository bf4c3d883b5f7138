"""Transcripts that others write nearly as OpenAI does: what is in them is understood, or told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_eventstore.formats import export_openai, export_ui_messages, load
from eventstore import EventStore
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, only, payloads


def _uninterpreted(path: Path, tmp_path: Path) -> dict[str, int]:
    with EventStore.open(f"sqlite:///{tmp_path}/store.db") as store:
        return dict(load(store, [only(path)]).left_out.uninterpreted)


def test_a_message_without_anything_said_is_told(write: Write, tmp_path: Path) -> None:
    """Contents of Gemini's, or a field of another name, are no empty message."""
    messages = [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"text": "hello"}]},
        {"role": "user", "text": "bye"},
    ]
    told = {"message of role user": 2, "message of role model": 1}
    assert told == _uninterpreted(write(messages), tmp_path)


def test_an_empty_content_is_a_message(write: Write, tmp_path: Path) -> None:
    """Null and empty contents are what was said: nothing."""
    messages = [
        {"role": "user", "content": None},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": []},
    ]
    assert {} == _uninterpreted(write(messages), tmp_path)


def test_a_result_that_answers_nothing_is_told(write: Write, tmp_path: Path) -> None:
    """No request can hold it: it is in the log, the timeline and an export alone."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "tool", "tool_call_id": "c1", "content": "too early"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "in time"},
        {"role": "tool", "tool_call_id": "c9", "content": "of nothing"},
    ]
    told = {"result without a call before it": 2}
    assert told == _uninterpreted(write(messages), tmp_path)


def test_calls_without_a_function_around_them(write: Write) -> None:
    """tau2-bench has name and arguments in the call, and the call's id as the result's own."""
    call = {"id": "c1", "name": "find", "arguments": {"id": 1}, "requestor": "assistant"}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"id": "m9", "role": "tool", "content": "by its place"},
        {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "c2"}]},
        {"id": "c2", "role": "tool", "content": "second", "requestor": "assistant"},
        {"id": "c1", "role": "tool", "content": "first", "requestor": "assistant"},
    ]
    said: list[Any] = payloads(only(write(messages)))
    assert [("find", {"id": 1})] == [(c.name, c.arguments) for c in said[1].tool_calls]
    assert ["3.0", "5.1", "5.0"] == [said[place].call_id for place in (2, 4, 5)]


def test_reasoning_of_routers_is_reasoning(write: Write) -> None:
    """OpenRouter and vLLM call it ``reasoning``."""
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "!", "reasoning": "hm"},
    ]
    answer: Any = payloads(only(write(messages)))[1]
    assert [("reasoning", "hm"), ("text", "!")] == [(p.kind, p.text) for p in answer.parts]


@pytest.mark.parametrize("holder", ["history", "messages"])
def test_trajectories_of_swe_agent(write: Write, tmp_path: Path, holder: str) -> None:
    """Its messages stand under ``history``, beside steps that say the same again."""
    messages = [
        {"role": "system", "content": "You fix.", "agent": "primary"},
        {"role": "user", "content": "It breaks.", "agent": "primary"},
        {"role": "assistant", "content": "I look.", "thought": "I look.", "action": "ls"},
    ]
    file = {"trajectory": [{"action": "ls", "observation": "a"}], holder: messages, "info": {}}
    with EventStore.open(f"sqlite:///{tmp_path}/store.db") as store:
        (cid,) = load(store, [only(write(file))]).ids
        assert messages == export_openai(store, cid)


def test_a_history_of_something_else_is_no_conversation(write: Write) -> None:
    """The word means other things elsewhere."""
    transcripts, failures = found(write({"history": [{"epoch": 1}], "input": ["a"]}))
    assert ([], 1) == (transcripts, len(failures))
    assert "tells no format" in failures[0]


def test_speakers_of_a_dialogue(write_lines: Write) -> None:
    """LoCoMo calls the sender ``speaker``."""
    lines = ({"speaker": "user", "text": "Hi"}, {"speaker": "Caroline", "text": "Hello!"})
    asked, answer = payloads(only(write_lines(*lines)))
    assert ["user_message", "assistant_message"] == [asked.type, answer.type]


class TestUIMessages:
    """Parts of other versions."""

    OLD: tuple[dict[str, Any], ...] = (
        {"id": "1", "role": "user", "content": "?", "parts": [{"type": "text", "text": "?"}]},
        {
            "id": "2",
            "role": "assistant",
            "content": "Sunny.",
            "parts": [
                {"type": "step-start"},
                {"type": "reasoning", "reasoning": "hm", "details": []},
                {
                    "type": "tool-invocation",
                    "toolInvocation": {
                        "toolCallId": "c1",
                        "toolName": "weather",
                        "args": {"city": "Rome"},
                        "state": "result",
                        "result": {"t": 30},
                    },
                },
                {"type": "text", "text": "Sunny."},
            ],
        },
    )

    def test_tools_of_version_4_are_calls(self, write: Write, tmp_path: Path) -> None:
        """They are named for their tool, not for the type of their part."""
        with EventStore.open(f"sqlite:///{tmp_path}/store.db") as store:
            (cid,) = load(store, [only(write(list(self.OLD)))]).ids
            events: list[Any] = list(store.read(cid))
            assert list(self.OLD) == export_ui_messages(store, cid)
        answer, result = (event.data for event in events[2:])
        assert [("weather", {"city": "Rome"}, "c1")] == [
            (call.name, call.arguments, call.provider_id) for call in answer.tool_calls
        ]
        assert ["reasoning", "text"] == [part.kind for part in answer.parts]
        assert '{"t":30}' == result.content

    def test_parts_that_nobody_knows_are_told(self, write: Write, tmp_path: Path) -> None:
        """A model is told nothing of them, so the import says how many there are."""
        parts = [{"type": "text", "text": "a"}, {"type": "hologram"}, {"type": "data-x", "data": 1}]
        messages = [{"id": "1", "role": "user", "parts": parts}]
        assert {"part of type hologram": 1} == _uninterpreted(write(messages), tmp_path)
