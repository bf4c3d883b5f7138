"""Messages of Gemini's and of Bedrock's Converse: parts without a type are what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import Views
from agent_eventstore.transcripts import export_openai, load
from eventstore import EventStore
from eventstore.events import (
    AssistantMessage,
    FilePart,
    ImagePart,
    OtherPart,
    TextPart,
    ToolResult,
    UnknownEvent,
    UserMessage,
)
from tests.checkers import check_openai_messages
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import only, payloads


@pytest.mark.parametrize("snake", [False, True])
def test_contents_of_gemini(write: Write, tmp_path: Path, snake: bool) -> None:
    """Texts, thoughts, calls and their results, which may have no id, are read."""
    call, response, instruction = (
        ("function_call", "function_response", "system_instruction")
        if snake
        else ("functionCall", "functionResponse", "systemInstruction")
    )
    contents = [
        {"role": "user", "parts": [{"text": "How warm is it?"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Two calls.", "thought": True},
                {"text": "I look."},
                {call: {"name": "city", "args": {}}},
                {call: {"name": "weather", "args": {"city": "Oslo"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {response: {"name": "weather", "response": {"error": "no such city"}}},
                {response: {"name": "city", "response": {"result": "Oslo"}}},
            ],
        },
        {"role": "model", "parts": [{"text": "I do not know."}]},
    ]
    file = {instruction: {"parts": [{"text": "Be short."}]}, "contents": contents}
    transcript = only(write(file))
    asked, answer, failed, given, last = payloads(transcript)
    assert isinstance(asked, UserMessage)
    assert isinstance(answer, AssistantMessage)
    assert isinstance(failed, ToolResult)
    assert isinstance(given, ToolResult)
    assert isinstance(last, AssistantMessage)
    assert ["reasoning", "text"] == [part.kind for part in answer.parts]
    assert [("city", {}), ("weather", {"city": "Oslo"})] == [
        (each.name, each.arguments) for each in answer.tool_calls
    ]
    assert [("3.1", "failed", "no such city"), ("3.0", "success", "Oslo")] == [
        (each.call_id, each.status, each.content) for each in (failed, given)
    ]
    with EventStore.open(f"sqlite:///{tmp_path}/store.db") as store:
        report = load(store, [transcript])
        assert not report.left_out.uninterpreted
        (cid,) = report.ids
        messages = Views(store).context(cid).messages
        assert "Be short." == messages[0]["content"]
        assert [] == check_openai_messages(messages)
        assert contents == export_openai(store, cid)


def test_files_of_gemini(write: Write) -> None:
    """Pictures and files stand in their parts, or are named."""
    parts: list[dict[str, Any]] = [
        {"inlineData": {"mimeType": "image/png", "data": "aQ=="}},
        {"file_data": {"mime_type": "image/png", "file_uri": "https://example.com/a.png"}},
        {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://bucket/b"}},
        {"videoMetadata": {"fps": 1}},
    ]
    (asked,) = payloads(only(write([{"role": "user", "parts": parts}])))
    assert isinstance(asked, UserMessage)
    assert (
        ImagePart(url="data:image/png;base64,aQ==", media_type="image/png"),
        ImagePart(url="https://example.com/a.png", media_type="image/png"),
        FilePart(url="gs://bucket/b", media_type="video/mp4"),
        OtherPart(raw=parts[3]),
    ) == asked.parts


def test_contents_of_converse(write: Write, tmp_path: Path) -> None:
    """Bedrock's and Strands' blocks have no type; calls, results, thoughts and texts are read."""
    use = {"toolUseId": "t1", "name": "add", "input": {"a": 1}}
    failed = {"toolUseId": "t1", "status": "error", "content": [{"text": "no"}, {"json": {"n": 1}}]}
    messages = [
        {"role": "user", "content": [{"text": "add"}, {"cachePoint": {"type": "default"}}]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
                {"text": "I add."},
                {"toolUse": use},
            ],
        },
        {"role": "user", "content": [{"toolResult": failed}]},
        {"role": "assistant", "content": [{"text": "It failed."}]},
    ]
    asked, answer, result, last = payloads(only(write(messages)))
    assert isinstance(asked, UserMessage)
    assert isinstance(answer, AssistantMessage)
    assert isinstance(result, ToolResult)
    assert isinstance(last, AssistantMessage)
    assert (TextPart(text="add"),) == asked.parts
    assert ["reasoning", "text"] == [part.kind for part in answer.parts]
    assert [("add", {"a": 1}, "t1")] == [
        (call.name, call.arguments, call.provider_id) for call in answer.tool_calls
    ]
    assert ("3.0", "failed") == (result.call_id, result.status)
    assert (TextPart(text="no"), TextPart(text='{"n":1}')) == result.content
    with EventStore.open(f"sqlite:///{tmp_path}/store.db") as store:
        report = load(store, [only(write(messages))])
        assert not report.left_out.uninterpreted
        assert messages == export_openai(store, report.ids[0])


def test_files_of_converse(write: Write) -> None:
    """Pictures and documents have their bytes with them; what is guarded is text."""
    blocks = [
        {"image": {"format": "png", "source": {"bytes": "aQ=="}}},
        {"document": {"format": "pdf", "name": "terms", "source": {"bytes": "aQ=="}}},
        {"guardContent": {"text": {"text": "Is it so?", "qualifiers": ["query"]}}},
    ]
    (asked,) = payloads(only(write([{"role": "user", "content": blocks}])))
    assert isinstance(asked, UserMessage)
    pdf = "application/pdf"
    assert (
        ImagePart(url="data:image/png;base64,aQ==", media_type="image/png"),
        FilePart(name="terms", url=f"data:{pdf};base64,aQ==", media_type=pdf),
        TextPart(text="Is it so?"),
    ) == asked.parts


@pytest.mark.parametrize("content", [{"role": ["user"], "parts": [{"text": "a"}]}, {"parts": []}])
def test_contents_that_say_nothing(write: Write, content: dict[str, Any]) -> None:
    """A content of no part, and one whose role is no text, hide nothing of the others."""
    said = {"role": "user", "parts": [{"text": "hello"}]}
    first, second = payloads(only(write({"contents": [said, content]}), "openai"))
    assert isinstance(first, UserMessage)
    assert (TextPart(text="hello"),) == first.parts
    assert isinstance(second, UserMessage | UnknownEvent)


@pytest.mark.parametrize(
    ("beside", "cached", "model"),
    [
        ({"usage": {"prompt_tokens": 9, "completion_tokens": 4}, "model": "m"}, None, "m"),
        (
            {"extra": {"response": {"usage": {"input_tokens": 9, "output_tokens": 4}}}},
            None,
            None,
        ),
        (
            {
                "metrics": {"inputTokens": 9, "outputTokens": 4, "cacheReadTokens": 5},
                "modelInfo": {"id": "m"},
            },
            5,
            "m",
        ),
        ({"metrics": ["x"], "extra": {"response": "r"}, "usage": 3}, 0, None),
    ],
)
def test_tokens_beside_a_message(
    write: Write, beside: dict[str, Any], cached: int | None, model: str | None
) -> None:
    """What stands beside an answer tells its tokens and its model, as agents keep them."""
    asked = {"role": "user", "content": "hello"}
    _, answer = payloads(only(write([asked, {"role": "assistant", "content": "hi", **beside}])))
    assert isinstance(answer, AssistantMessage)
    usage = answer.usage
    told = usage and (usage.prompt_tokens, usage.completion_tokens, usage.cached_prompt_tokens)
    assert (None if cached == 0 else (9, 4, cached)) == told
    assert model == (answer.invocation.model if answer.invocation else None)
