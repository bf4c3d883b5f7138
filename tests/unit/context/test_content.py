"""Payloads become messages that a provider accepts, and lose nothing that text can carry."""

from __future__ import annotations

from typing import Any

import pytest

from eventstore.events import (
    AssistantMessage,
    BlobRef,
    ContentPart,
    FilePart,
    ImagePart,
    LlmError,
    OtherPart,
    PartialToolCall,
    ReasoningPart,
    RefusalPart,
    Section,
    Sections,
    TextPart,
    ToolCallRequest,
    ToolResult,
    UserMessage,
)
from projections.context import payload_messages


def test_a_single_text_is_a_plain_string() -> None:
    """The commonest message has the simplest form."""
    assert payload_messages.user(UserMessage.text("hi")) == {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            ImagePart(url="https://x/y.png", detail="low"),
            {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
        ),
        (
            ImagePart(url="https://x/y.png", detail="sharp"),
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        ),
        (FilePart(file_id="file-1"), {"type": "file", "file": {"file_id": "file-1"}}),
        (
            FilePart(name="a.pdf", url="data:application/pdf;base64,JVBERi0="),
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
            },
        ),
        (FilePart(path="docs/a.md"), {"type": "text", "text": "[file: docs/a.md]"}),
        (
            OtherPart(
                raw={"type": "input_audio", "input_audio": {"data": "AAA=", "format": "wav"}}
            ),
            {"type": "input_audio", "input_audio": {"data": "AAA=", "format": "wav"}},
        ),
        (OtherPart(raw={"type": "video"}), {"type": "text", "text": '{"type": "video"}'}),
        (
            OtherPart(raw={"type": "image_url", "image_url": "x"}),
            {"type": "text", "text": '{"type": "image_url", "image_url": "x"}'},
        ),
    ],
)
def test_user_parts_take_the_providers_form(part: ContentPart, expected: dict[str, Any]) -> None:
    """What the format knows is sent as such; anything else is told in text."""
    message = payload_messages.user(UserMessage(parts=(part, TextPart(text="and"))))
    assert message["content"] == [expected, {"type": "text", "text": "and"}]


def test_a_user_message_without_parts_shows_its_live_sections() -> None:
    """Sections stand in where there are no parts."""
    sections = Sections(live=(Section(key="Goal", text="win"), Section(text="soon")))
    message = payload_messages.user(UserMessage(parts=(), sections=sections))
    assert message["content"] == "# Goal\nwin\n\nsoon"


def test_names_are_made_acceptable() -> None:
    """A name with other characters would have the request refused."""
    assert payload_messages.user(UserMessage.text("hi", name="Ann Lee"))["name"] == "Ann_Lee"


def test_half_a_surrogate_pair_is_replaced() -> None:
    """No HTTP client can send a lone surrogate."""
    assert payload_messages.user(UserMessage.text("a\ud800b"))["content"] == "a\ufffdb"


def test_an_empty_answer_is_an_empty_text() -> None:
    """Null content is only valid beside tool calls."""
    assert payload_messages.assistant(AssistantMessage()) == {"role": "assistant", "content": ""}


def test_calls_without_words_have_null_content() -> None:
    """What the provider sent as null goes back as null, arguments to the byte."""
    call = ToolCallRequest(name="look up", arguments_text='{ "a":1}', provider_id="x")
    assert payload_messages.assistant(AssistantMessage(tool_calls=(call,))) == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "x",
                "type": "function",
                "function": {"name": "look_up", "arguments": '{ "a":1}'},
            }
        ],
    }


def test_a_nameless_call_without_arguments_is_still_a_call() -> None:
    """Empty names and arguments get the smallest valid form."""
    call = ToolCallRequest(name="", arguments_text="")
    message = payload_messages.assistant(AssistantMessage(tool_calls=(call,)))
    assert message["tool_calls"][0]["function"] == {"name": "unnamed_tool", "arguments": "{}"}


def test_reasoning_stays_home_and_refusals_keep_their_field() -> None:
    """The chat format has no place for reasoning, and one of its own for refusals."""
    parts = (ReasoningPart(text="hm"), RefusalPart(text="no"))
    expected = {"role": "assistant", "content": "", "refusal": "no"}
    assert payload_messages.assistant(AssistantMessage(parts=parts)) == expected


def test_images_of_tools_are_mentioned_without_their_data() -> None:
    """Only text may stand in a tool message."""
    parts = (TextPart(text="see"), ImagePart(url="data:image/png;base64,AAAA"))
    message = payload_messages.tool(ToolResult(call_id="1.0", content=parts))
    assert message["content"] == "see\n[image]"


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"content": "42"}, "42"),
        ({"content": ""}, "TOOL_SUCCEEDED\nThe tool ran and returned no output."),
        ({}, "TOOL_SUCCEEDED\nThe tool ran and returned no output."),
        ({"status": "failed", "content": "Error: no such file"}, "Error: no such file"),
        ({"status": "failed", "content": "5"}, "TOOL_FAILED\nThe tool ran and failed.\n5"),
        ({"status": "failed", "error": "boom"}, "TOOL_FAILED\nThe tool ran and failed.\nboom"),
        ({"status": "denied", "content": "The user refused."}, "The user refused."),
    ],
)
def test_a_status_is_said_in_words(result: dict[str, Any], expected: str) -> None:
    """The model learns what became of a call, once."""
    assert payload_messages.tool(ToolResult(call_id="1.0", **result))["content"] == expected


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("denied", "not permitted"),
        ("skipped", "skipped"),
        ("not_started", "safe to call"),
        ("outcome_unknown", "check before"),
    ],
)
def test_a_status_without_content_says_what_to_make_of_it(status: Any, word: str) -> None:
    """A call that did not run, or may have, is told truthfully."""
    assert word in payload_messages.tool(ToolResult(call_id="1.0", status=status))["content"]


def test_a_long_result_is_a_preview_with_the_path_of_the_whole() -> None:
    """The model can ask for the rest."""
    result = ToolResult(
        call_id="1.0",
        blob=BlobRef(digest="d", size_bytes=9000),
        preview="line 1",
        alias="@state/logs/1.0.json",
    )
    assert payload_messages.tool(result, "build")["content"] == (
        "TOOL_RESULT_PREVIEW of 9000 bytes\n- tool: build\n- status: success\n"
        "line 1\nFull output: @state/logs/1.0.json"
    )


def test_a_failed_call_keeps_its_partial_text_before_the_error() -> None:
    """The next call can go on from where the stream broke."""
    error = LlmError(
        kind="network",
        message="reset",
        attempt=2,
        partial_text="The ans",
        partial_tool_calls=(PartialToolCall(index=0, name="search"),),
    )
    assert payload_messages.error(error)["content"] == (
        "The ans\n\nLLM_ERROR\n- kind: network\n- attempt: 2\n- message: reset\n"
        "- tool calls left unfinished, never executed: search"
    )
