"""What rows keep for their makers: of recorded streams, of DeepSeek, of tools; and the registry."""

from __future__ import annotations

from typing import Any

import pytest

from eventstore.events import (
    AssistantMessage,
    ImagePart,
    ReasoningPart,
    Retraction,
    TextPart,
    ToolResult,
    UserMessage,
    VersionRange,
)
from projections.providers.request_formats import FORMATS, format_named
from tests.checkers import CHECKERS
from tests.unit.context.log import Log
from tests.unit.context.wires import CLAUDE, DEEPSEEK, GPT, call, responded, thinking, written
from tests.unit.streams.recorded import NAMES, chunks_of, fed

HI = UserMessage.text("hi")


def deepseek() -> AssistantMessage:
    """Return an answer with reasoning that its maker wants back."""
    parts = (ReasoningPart(text="hm"), TextPart(text="yes"))
    return AssistantMessage(parts=parts, tool_calls=(call(),), invocation=DEEPSEEK)


def test_deepseek_gets_its_reasoning_back() -> None:
    """It refuses a request that goes on after tool calls without."""
    rows = Log([HI, deepseek()]).rows()
    messages = FORMATS["openai_chat"](rows, provider="deepseek").messages
    assert messages[1]["reasoning_content"] == "hm"


@pytest.mark.parametrize("provider", [None, "openai", "moonshot"])
def test_nobody_else_gets_deepseeks_reasoning(provider: str | None) -> None:
    """OpenAI's format has no such field, and other models did not think it."""
    assert (
        "reasoning_content"
        not in written("openai_chat", HI, deepseek(), provider=provider).messages[1]
    )


def test_plain_messages_keep_nothing_beside_them() -> None:
    """Most rows need no second copy."""
    message = AssistantMessage.of("yes", tool_calls=(call(),), invocation=GPT)
    row = Log([message]).row(1)
    assert (row.native, row.native_tokens) == (None, 0)


def test_thinking_is_tagged_with_its_maker_and_counted() -> None:
    """Calls in it are places, since their ids are settled by a request."""
    row = Log([thinking(call())]).row(1)
    assert row.native == {
        "specification": "anthropic_messages",
        "provider": "anthropic",
        "model": "claude",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "signed"},
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "call": 0},
        ],
    }
    assert row.native_tokens == 1


def test_what_cannot_be_sent_unmodified_is_not_kept() -> None:
    """Half a surrogate pair cannot go over the wire, and a signature covers every byte."""
    parts = (ReasoningPart(text="\ud83d", signature="signed"),)
    message = thinking().model_copy(update={"parts": parts})
    assert Log([message]).row(1).native is None


def test_a_withdrawn_result_takes_its_status_and_images_along() -> None:
    """Nothing of it may be shown again."""
    image = (ImagePart(url="https://x/y.png"),)
    log = Log([AssistantMessage(tool_calls=(call(),))])
    log.add(ToolResult(call_id="1.0", status="failed", content=image))
    assert log.row(1, 1).native_tokens > 0
    log.add(Retraction(versions=(VersionRange(first=2, last=2),)))
    assert (log.row(1, 1).native, log.row(1, 1).native_tokens) == (None, 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", CHECKERS)
def test_recorded_streams_go_on_with_any_provider(name: str, target: str) -> None:
    """What each provider really sent, in the format of each."""
    written(target, HI, fed(chunks_of(name)).message(), HI)


def test_recorded_thinking_goes_back_as_it_came() -> None:
    """Text and signature of the stream, put together again."""
    chunks = chunks_of("anthropic-thinking")
    deltas = [chunk["delta"] for chunk in chunks if chunk["type"] == "content_block_delta"]
    thought = "".join(delta.get("thinking", "") for delta in deltas)
    signature = "".join(delta.get("signature", "") for delta in deltas)
    wire = written("anthropic_messages", HI, fed(chunks).message(), HI)
    expected = {"type": "thinking", "thinking": thought, "signature": signature}
    assert wire.messages[1]["content"][0] == {**expected}


def test_recorded_phases_go_back() -> None:
    """Dropping them makes newer models worse."""
    message = fed(chunks_of("openai-responses-phase")).message()
    sent = written("openai_responses", HI, message, HI).messages
    phases = [item["phase"] for item in message.raw["output"] if "phase" in item]
    assert phases
    assert phases == [item["phase"] for item in sent if "phase" in item]


def test_the_neutral_form() -> None:
    """Every key is always there; calls are paired by the store's own ids."""
    asked = AssistantMessage(tool_calls=(call(arguments="{broken"),))
    rows = Log([HI, asked, ToolResult(call_id="2.0", status="failed", content="no")]).rows()
    empty: dict[str, Any] = {"name": None, "parts": [], "calls": [], "results": [], "native": None}
    text = {"type": "text", "text": "TOOL_FAILED\nThe tool ran and failed.\nno"}
    assert list(FORMATS["neutral"](rows).messages) == [
        {
            **empty,
            "role": "user",
            "kind": "user",
            "versions": [1],
            "parts": [{"type": "text", "text": "hi"}],
        },
        {
            **empty,
            "role": "assistant",
            "kind": "assistant",
            "versions": [2],
            "calls": [
                {
                    "id": "2.0",
                    "provider_id": "id",
                    "name": "f",
                    "arguments": None,
                    "arguments_text": "{broken",
                }
            ],
        },
        {
            **empty,
            "role": "tool",
            "kind": "tool",
            "versions": [2, 3],
            "results": [
                {
                    "call_id": "2.0",
                    "status": "failed",
                    "sealed": False,
                    "parts": [text],
                    "versions": [2, 3],
                    "full_alias": None,
                }
            ],
        },
    ]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "shell_call_output", "call_id": {"a": 1}, "output": []},
        {"type": "program", "id": "p", "call_id": ["x"], "code": "", "fingerprint": "f"},
        {
            "type": "mcp_call",
            "id": "m",
            "arguments": "{}",
            "name": "f",
            "server_label": "s",
            "approval_request_id": {},
        },
        {
            "type": "mcp_approval_request",
            "id": [],
            "arguments": "{}",
            "name": "f",
            "server_label": "s",
        },
        {
            "type": "custom_tool_call",
            "call_id": "id",
            "name": "f",
            "input": "{}",
            "caller": {"caller_id": ["x"]},
        },
    ],
    ids=lambda item: str(item["type"]),
)
def test_an_id_of_openais_that_is_no_text_breaks_no_request(item: dict[str, Any]) -> None:
    """A server can send anything; these raised TypeError in every later request."""
    calls = [call()] if item["type"] == "custom_tool_call" else []
    answer = responded(item, text="x", calls=calls)
    result = [ToolResult(call_id="2.0", content="y") for _ in calls]

    written("openai_responses", UserMessage.text("Hi"), answer, *result, provider="openai")


def test_an_id_of_anthropics_that_is_no_text_breaks_no_request() -> None:
    """A server can send anything; these raised TypeError in every later request."""
    content = [
        {"type": "server_tool_use", "id": {}, "name": "web_search", "input": {}},
        {"type": "server_tool_use", "id": "a", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": ["a"], "content": []},
        {"type": "web_search_tool_result", "tool_use_id": "a", "content": []},
        {"type": "text", "text": "x"},
    ]
    answer = AssistantMessage(
        parts=(TextPart(text="x"),), invocation=CLAUDE, raw={"content": content}
    )

    wire = written("anthropic_messages", UserMessage.text("Hi"), answer, provider="anthropic")

    said = wire.messages[1]["content"]
    assert [content[1], content[3], content[4]] == [said[1], said[3], said[4]]
    assert ["[web_search]", "[result]"] == [said[0]["text"], said[2]["text"]]


@pytest.mark.parametrize("kind", [None, 5, [], {"a": 1}])
@pytest.mark.parametrize("key", ["content", "output"])
def test_a_type_that_is_no_text_does_not_harm_the_conversation(key: str, kind: Any) -> None:
    """Such an entry of a raw answer raised TypeError in the fold, so that nothing could be read."""
    parts = (TextPart(text="x"),)
    made = CLAUDE if key == "content" else GPT
    raw = {key: [{"type": kind, "text": "q"}, {"type": "reasoning", "id": "r", "summary": []}]}
    answer = AssistantMessage(parts=parts, invocation=made, raw=raw)

    for name in ("anthropic_messages", "openai_responses", "openai_chat"):
        written(name, HI, answer, provider=made.provider)


@pytest.mark.parametrize("field", ["id", "namespace", "status", "phase"])
def test_an_optional_field_of_openais_that_is_no_text_is_left_out(field: str) -> None:
    """The endpoint refuses it, and the conversation would end there."""
    item: dict[str, Any]
    if field == "namespace":
        item = {"type": "custom_tool_call", "call_id": "id", "name": "f", "input": "{}"}
        said, calls, results = "", [call()], [ToolResult(call_id="2.0", content="y")]
    else:
        text = [{"type": "output_text", "text": "x"}]
        whole = {"id": "m", "status": "completed", "phase": "commentary"}
        item = {"type": "message", "role": "assistant", "content": text, **whole}
        said, calls, results = "x", [], []
    thought = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"}
    answer = responded(thought, {**item, field: 5}, text=said, calls=calls)

    wire = written("openai_responses", HI, answer, *results, provider="openai")

    assert "reasoning" == wire.messages[1]["type"]
    assert all(5 not in each.values() for each in wire.messages)


@pytest.mark.parametrize("content", [5, [], [{"type": "x"}], [{"type": "output_text", "text": 5}]])
def test_a_final_event_that_garbles_a_message_does_not_hide_it(content: Any) -> None:
    """The message went back without its text, although the stream had it."""
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    thought = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"}
    answer = responded(thought, {**item, "content": content}, text="It is sunny.")

    wire = written("openai_responses", HI, answer, provider="openai")

    assert "It is sunny." == wire.messages[1]["content"]


def test_blocks_of_anthropics_are_paired_by_their_types() -> None:
    """A call with a stray field stays with its result; a result that names no use is words."""
    content: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "thinking", "thinking": 5, "signature": "s"},
        {"type": "server_tool_use", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "content": []},
        {"type": "text", "text": 5},
        {"type": "tool_use", "id": "id", "name": "f", "input": {}},
    ]
    raw = {"content": [*content[:5], content[5] | {"tool_use_id": "id"}]}
    answer = AssistantMessage(invocation=CLAUDE, raw=raw, tool_calls=(call(),))
    rows = Log([HI, answer, ToolResult(call_id="2.0", content="y")]).rows()

    said = format_named("anthropic_messages")(rows, provider="anthropic").messages[1]["content"]

    told = [{"type": "text", "text": text} for text in ("[web_search]", "[result]")]
    assert [content[0], *told, content[5]] == said


def test_a_call_of_anthropics_without_an_id_breaks_no_request() -> None:
    """It raised KeyError in the fold, so that nothing of the conversation could be read."""
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "tool_use"}]
    calls = (call().model_copy(update={"provider_id": None}),)
    answer = AssistantMessage(invocation=CLAUDE, raw={"content": blocks}, tool_calls=calls)
    result = ToolResult(call_id="2.0", content="y")

    wire = written("anthropic_messages", HI, answer, result, provider="anthropic")

    assert ["thinking", "tool_use"] == [block["type"] for block in wire.messages[1]["content"]]


def test_an_unknown_format_names_the_choices() -> None:
    """A wrong name is the caller's to mend."""
    with pytest.raises(
        ValueError, match="openai_chat, openai_responses, anthropic_messages, neutral"
    ):
        format_named("gemini")
