"""Dumps of LangChain's messages, as LangChain itself writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_to_dict,
)

from agent_eventstore.transcripts import detect
from agent_eventstore.transcripts.left_out import LeftOut
from eventstore import events as e
from tests.unit.importers.reading import found, only, payloads

PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
MESSAGES: list[BaseMessage] = [
    SystemMessage("Be brief."),
    HumanMessage([{"type": "text", "text": "How warm is it?"}, PICTURE], name="ada"),
    AIMessage(
        "I look.",
        tool_calls=[{"name": "weather", "args": {"city": "Oslo"}, "id": "c1"}],
        usage_metadata={"input_tokens": 30, "output_tokens": 4, "total_tokens": 34},
        response_metadata={"model_name": "gpt-5", "finish_reason": "tool_calls"},
    ),
    ToolMessage("no network", tool_call_id="c1", name="weather", status="error"),
    AIMessage("I do not know."),
]


def written(tmp_path: Path, content: Any, name: str = "dump") -> Path:
    """Return a file of JSON."""
    path = tmp_path / name
    path.write_text(json.dumps(content), "utf-8")
    return path


DUMPS = [messages_to_dict(MESSAGES), [dumpd(each) for each in MESSAGES]]


@pytest.mark.parametrize("dump", DUMPS)
@pytest.mark.parametrize("held", [False, True])
def test_messages_become_events(tmp_path: Path, dump: list[Any], held: bool) -> None:
    """As ``messages_to_dict`` and as ``dumpd`` have them, in an array or in an object."""
    path = written(tmp_path, {"id": "chat-1", "messages": dump} if held else dump)
    assert "langchain" == detect(path)
    told, asked, call, result, answer = payloads(only(path))
    assert isinstance(told, e.SystemInstruction)
    assert isinstance(asked, e.UserMessage)
    assert isinstance(call, e.AssistantMessage)
    assert isinstance(result, e.ToolResult)
    assert isinstance(answer, e.AssistantMessage)
    assert ("Be brief.", "ada") == (told.text, asked.name)
    assert ["text", "image"] == [part.kind for part in asked.parts]
    assert [("weather", {"city": "Oslo"})] == [(c.name, c.arguments) for c in call.tool_calls]
    assert call.usage is not None
    assert (30, 4, "tool_calls") == (
        call.usage.prompt_tokens,
        call.usage.completion_tokens,
        call.finish_reason,
    )
    assert ("4.0", "failed", "no network") == (result.call_id, result.status, result.content)
    assert e.TextPart(text="I do not know.") == answer.parts[0]


def test_lines(tmp_path: Path) -> None:
    """A message a line is one conversation."""
    path = tmp_path / "lines"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in DUMPS[0]), "utf-8")
    assert "langchain" == detect(path)
    assert 5 == len(payloads(only(path)))


@pytest.mark.parametrize("dump", DUMPS)
def test_every_message_is_kept(tmp_path: Path, dump: list[Any]) -> None:
    """But for the text that its event has."""
    for message, data in zip(dump, payloads(only(written(tmp_path, dump))), strict=True):
        kept = data.raw["langchain_message"]  # type: ignore[union-attr]
        holder = "kwargs" if "kwargs" in message else "data"
        content = kept[holder].pop("content")
        assert content in (None, message[holder]["content"])
        assert kept == {
            **message,
            holder: {key: value for key, value in message[holder].items() if key != "content"},
        }


def test_two_that_begin_alike_are_two(tmp_path: Path) -> None:
    """Messages without an id tell nothing apart: all of them do."""
    first = only(
        written(tmp_path, messages_to_dict([HumanMessage("hi"), AIMessage("hello")]), "first")
    )
    second = only(
        written(tmp_path, messages_to_dict([HumanMessage("hi"), AIMessage("yes?")]), "second")
    )
    assert first.origin != second.origin


def test_what_nobody_knows_is_kept_and_counted(tmp_path: Path) -> None:
    """Messages of other roles, and one that is not what LangChain would have written."""
    odd: list[Any] = [
        *messages_to_dict([ChatMessage("Night.", role="narrator")]),
        {"type": "ai", "data": {"content": 3, "tool_calls": ["f"]}},
    ]
    known = messages_to_dict([HumanMessage("hi")])
    data = payloads(only(written(tmp_path, [*known, *odd])))
    assert odd == [each.raw["langchain_message"] for each in data[1:]]  # type: ignore[union-attr]
    left = LeftOut()
    for each in data:
        left.note_event(each)
    assert {"message of type chat": 1, "message of type ai": 1} == left.uninterpreted


@pytest.mark.parametrize("bad", [3, {"type": "human"}, {"lc": 1, "id": ["a", "Runnable"]}])
def test_what_is_no_message_is_reported(tmp_path: Path, bad: Any) -> None:
    """A conversation with a hole would tell another story."""
    path = written(tmp_path, [*DUMPS[0], bad])
    transcripts, failures = found(path, "langchain")
    assert ([], ["1: message 6 has no type, or no data"]) == (transcripts, failures)


def test_a_field_named_text_is_not_the_text_of_a_message(tmp_path: Path) -> None:
    """It is kept with the message, and does not end the import."""
    data = {"content": "Be brief.", "text": "something else"}
    told = payloads(only(written(tmp_path, [{"type": "system", "data": data}])))[0]
    assert isinstance(told, e.SystemInstruction)
    assert "Be brief." == told.text
    kept = {"type": "system", "data": {**data, "content": None}}
    assert {"langchain_message": kept} == told.raw
