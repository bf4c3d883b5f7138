"""Transcripts that others write nearly as OpenAI does: what is in them is understood, or told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import Views
from agent_eventstore.transcripts import export_openai, export_ui_messages, load
from eventstore import EventStore
from eventstore.events import (
    TextPart,
    UserMessage,
)
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, only, payloads


def _uninterpreted(path: Path, tmp_path: Path) -> dict[str, int]:
    with EventStore.open(f"sqlite:///{tmp_path}/store.db") as store:
        return dict(load(store, [only(path, force=True)]).left_out.uninterpreted)


def test_a_message_without_anything_said_is_told(write: Write, tmp_path: Path) -> None:
    """Fields of other names are no empty message."""
    messages = [
        {"role": "user", "parts": "hi"},
        {"role": "model", "reply": "hello"},
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


@pytest.mark.parametrize("key", ["arguments", "args"])
def test_calls_that_name_their_function_by_a_text(write: Write, key: str) -> None:
    """Inspect and AgentDojo have the name where OpenAI has an object; no call loses its name."""
    call = {"id": "c1", "type": "function", "function": "bash", key: {"cmd": "ls"}}
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "function": "bash", "content": "a.txt"},
    ]
    said: list[Any] = payloads(only(write(messages)))
    assert [("bash", {"cmd": "ls"})] == [(c.name, c.arguments) for c in said[1].tool_calls]
    assert ("3.0", "success", "a.txt") == (said[2].call_id, said[2].status, said[2].content)


@pytest.mark.parametrize("error", ["no such file", {"type": "timeout", "message": "no such file"}])
def test_a_result_that_tells_its_error_beside_its_content(
    write: Write, tmp_path: Path, error: object
) -> None:
    """Inspect does; the call has failed, models are told why, and an export is as it was."""
    call = {"id": "c1", "type": "function", "function": "bash", "arguments": {}}
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "", "error": error},
    ]
    with EventStore.open(f"sqlite:///{tmp_path}/store.db") as store:
        (cid,) = load(store, [only(write(messages))]).ids
        views = Views(store)
        (row,) = views.tool_calls(conversation_id=cid)
        assert ("bash", "failed", "no such file") == (row.name, row.status, row.error)
        assert "no such file" in str(views.context(cid).messages[-1]["content"])
        assert messages == export_openai(store, cid)


@pytest.mark.parametrize(
    ("part", "thought"),
    [
        ({"type": "reasoning", "reasoning": "hm"}, "hm"),
        ({"type": "reasoning", "reasoning": "c2VhbGVk", "redacted": True, "summary": "in short"},
         "in short"),
        ({"type": "reasoning", "reasoning": "c2VhbGVk", "redacted": True}, ""),
        ({"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, "hm"),
    ],
)  # fmt: skip
def test_thoughts_among_the_parts_of_an_answer(
    write: Write, tmp_path: Path, part: dict[str, Any], thought: str
) -> None:
    """Inspect and Mistral have them there; what is sealed is no thought's text."""
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": [part, {"type": "text", "text": "!"}]},
    ]
    answer: Any = payloads(only(write(messages)))[1]
    assert [("reasoning", thought), ("text", "!")] == [(p.kind, p.text) for p in answer.parts]
    assert {} == _uninterpreted(write(messages), tmp_path)


def test_calls_beside_thoughts_among_the_parts(write: Write) -> None:
    """Mistral's answers have blocks of thought and OpenAI's calls: none of them is lost."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": [thought], "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "1"},
    ]
    said: list[Any] = payloads(only(write(messages)))
    assert ["f"] == [each.name for each in said[1].tool_calls]
    assert [("reasoning", "hm")] == [(part.kind, part.text) for part in said[1].parts]
    assert "3.0" == said[2].call_id


def test_texts_of_agentdojo(write: Write, tmp_path: Path) -> None:
    """Its text parts have their text under ``content``."""
    messages = [{"role": "user", "content": [{"type": "text", "content": "Pay the bill."}]}]
    (asked,) = payloads(only(write(messages)))
    assert isinstance(asked, UserMessage)
    assert (TextPart(text="Pay the bill."),) == asked.parts
    with EventStore.open(f"sqlite:///{tmp_path}/store.db") as store:
        (cid,) = load(store, [only(write(messages))]).ids
        assert messages == export_openai(store, cid)


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
    assert "format cannot be detected" in failures[0]


def test_speakers_of_a_dialogue(write_lines: Write) -> None:
    """LoCoMo calls the sender ``speaker``."""
    lines = ({"speaker": "user", "text": "Hi"}, {"speaker": "Caroline", "text": "Hello!"})
    asked, answer = payloads(only(write_lines(*lines)))
    assert ["user_message", "assistant_message"] == [asked.type, answer.type]


class TestUIMessages:
    """Parts of other versions."""

    @pytest.mark.parametrize(
        ("ended", "told"),
        [
            ({"state": "output-available", "output": [{"title": "Oslo", "url": "https://o.no"}]},
             "[result: Oslo]"),
            ({"state": "output-error", "errorText": "too many uses"}, "[failed: too many uses]"),
            ({"state": "input-available"}, "[web_search: Oslo?]"),
        ],
    )  # fmt: skip
    def test_a_tool_that_the_provider_ran_is_no_call_of_ours(
        self, write: Write, tmp_path: Path, ended: dict[str, Any], told: str
    ) -> None:
        """Models are told of it in words, no audit has it, and an export gives it back."""
        part = {
            "type": "tool-web_search",
            "toolCallId": "srvtoolu_1",
            "input": {"query": "Oslo?"},
            "providerExecuted": True,
            **ended,
        }
        messages = [
            {"id": "u", "role": "user", "parts": [{"type": "text", "text": "?"}]},
            {
                "id": "a",
                "role": "assistant",
                "parts": [{"type": "step-start"}, part, {"type": "text", "text": "Oslo."}],
            },
        ]
        with EventStore.open(f"sqlite:///{tmp_path}/ui.db") as store:
            (cid,) = load(store, [only(write(messages))]).ids
            views = Views(store)
            assert [] == views.tool_calls(conversation_id=cid)
            _, answer = views.context(cid).messages
            assert "tool_calls" not in answer
            assert "[web_search: Oslo?]" in str(answer)
            assert told in str(answer)
            assert "Oslo." in str(answer)
            assert messages == export_ui_messages(store, cid)

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
