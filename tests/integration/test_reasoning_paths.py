"""A maker's reasoning goes back to it with equal bytes, by whichever path it came, and to no other.

Each path that an answer can come by is a row of one table: recorded live, raw, imported, or from
the history of a framework. `tests.integrations` has the frameworks' own paths beyond these.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import EventStore, Views
from agent_eventstore.integrations.langchain import EventStoreChatMessageHistory
from agent_eventstore.transcripts import load, read_transcripts
from eventstore.events import AssistantMessage, ToolResult, UserMessage
from projections.providers import read_response
from tests.checkers import CHECKERS
from tests.unit.context.log import Log
from tests.unit.importers import test_openhands_sdk as sdk

Json = dict[str, Any]

SIGNATURE = "c2ln/+=="
THINKING = {"type": "thinking", "thinking": "why", "signature": SIGNATURE}
REDACTED = {"type": "redacted_thinking", "data": SIGNATURE}
SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SIGNATURE}
DETAILS = [
    {"type": "reasoning.text", "text": "why", "signature": SIGNATURE, "index": 0},
    {"type": "reasoning.encrypted", "data": SIGNATURE, "id": "rs_1", "index": 1},
]
CALL: Json = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
GOOGLE = {"extra_content": {"google": {"thought_signature": SIGNATURE}}}
LITELLM = {"provider_specific_fields": {"thought_signature": SIGNATURE}}
ITEM = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
USE = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
FORMAT = {
    **dict.fromkeys(("anthropic", "bedrock"), "anthropic_messages"),
    "openai": "openai_responses",
}
EVERYBODY = ("anthropic", "openai", "google", "openrouter", "litellm", "deepseek", "mistral")

Send = Callable[[str], list[Json]]


def live(response: Json, provider: str | None = None) -> Send:
    """Return how an answer that was recorded live is sent."""
    return sent(read_response(response, provider=provider).message())


def sent(answer: AssistantMessage) -> Send:
    """Return how an answer with one call is sent to a provider."""
    log = Log([UserMessage.text("q"), answer, ToolResult(call_id="2.0", content="r")])

    def send(provider: str) -> list[Json]:
        view = log.view(format=FORMAT.get(provider, "openai_chat"), provider=provider)
        return [dict(message) for message in view.messages]

    return send


def imported(content: Any, name: str, format: str) -> Send:
    """Return how a transcript is sent once it has been imported."""

    def send(provider: str) -> list[Json]:
        folder = Path(_folder[0])
        path = folder / name
        lines = [json.dumps(each) for each in content] if name.endswith("l") else None
        path.write_text("\n".join(lines) if lines else json.dumps(content))
        with EventStore.open(f"sqlite:///{folder}/{provider}.db") as store:
            load(store, read_transcripts(path, format))
            (found,) = Views(store).conversations()
            kind = FORMAT.get(provider, "openai_chat")
            view = Views(store).context(found.conversation_id, format=kind, provider=provider)
            return [dict(message) for message in view.messages]

    return send


_folder = [""]


def messages(message: Json) -> list[Json]:
    """Return a conversation of the chat API around an answer with one call."""
    ends = [
        {"role": "tool", "tool_call_id": "c1", "content": "r"},
        {"role": "user", "content": "n"},
    ]
    return [{"role": "user", "content": "q"}, {"role": "assistant", **message}, *ends]


def completion(message: Json) -> Json:
    """Return a chat completion."""
    choice = {
        "index": 0,
        "finish_reason": "tool_calls",
        "message": {"role": "assistant", **message},
    }
    return {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice]}


def ui(part: Json, **call: Any) -> list[Json]:
    """Return UI messages of the AI SDK around a part and a call."""
    tool = {"type": "tool-f", "toolCallId": "c1", "state": "output-available", "input": {}}
    parts = [{"type": "step-start"}, part, {**tool, "output": "r", **call}, {"type": "step-start"}]
    end = {"type": "text", "text": "fin", "state": "done"}
    return [
        {"id": "1", "role": "user", "parts": [{"type": "text", "text": "q"}]},
        {"id": "2", "role": "assistant", "parts": [*parts, end]},
        {"id": "3", "role": "user", "parts": [{"type": "text", "text": "n"}]},
    ]


def langchain(content: Any, provider: str, **more: Any) -> Send:
    """Return how a history of LangChain's is sent."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    calls = [{"name": "f", "args": {}, "id": "c1"}]
    made = {"model_provider": provider}
    answer = AIMessage(content=content, tool_calls=calls, response_metadata=made, **more)

    def send(provider: str) -> list[Json]:
        with EventStore.open(f"sqlite:///{_folder[0]}/{provider}.db") as store:
            history = EventStoreChatMessageHistory(store, "k")
            history.add_messages([HumanMessage("q"), answer, ToolMessage("r", tool_call_id="c1")])
            kind = FORMAT.get(provider, "openai_chat")
            return [
                dict(m) for m in Views(store).context("k", format=kind, provider=provider).messages
            ]

    return send


def codex(*payloads: Json) -> list[Json]:
    """Return a rollout of Codex."""
    meta = {"id": "0199a213-81c0-7800-8aa1-bbab2a035a53", "cwd": "/w", "timestamp": STAMP}
    listed = [("session_meta", meta), *(("response_item", each) for each in payloads)]
    return [{"timestamp": STAMP, "type": kind, "payload": each} for kind, each in listed]


STAMP = "2026-01-01T00:00:00.000Z"
ASK = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "r"}
CLAUDE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "stop_reason": "tool_use",
}
CONVERSE = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "why", "signature": SIGNATURE}}},
                {"toolUse": {"toolUseId": "c1", "name": "f", "input": {}}},
            ],
        }
    },
    "stopReason": "tool_use",
}
GEMINI = {
    "candidates": [
        {
            "content": {
                "parts": [
                    {
                        "functionCall": {"id": "c1", "name": "f", "args": {}},
                        "thoughtSignature": SIGNATURE,
                    }
                ]
            },
            "finishReason": "STOP",
        }
    ]
}
EXTRA = "__gemini_function_call_thought_signatures__"

PATHS: list[tuple[str, Send, dict[str, Any]]] = [
    # The name of the path, how it is sent, and for each provider that gets it, what must be sent.
    ("anthropic live", live({**CLAUDE, "content": [THINKING, USE]}), {"anthropic": THINKING}),
    ("anthropic redacted", live({**CLAUDE, "content": [REDACTED, USE]}), {"anthropic": REDACTED}),
    ("bedrock live", live(CONVERSE), {"anthropic": THINKING, "bedrock": THINKING}),
    (
        "openai live",
        live(
            {
                "object": "response",
                "status": "completed",
                "model": "gpt-5",
                "output": [SEALED, ITEM],
            }
        ),
        {"openai": SEALED},
    ),
    ("gemini live", live(GEMINI), {"google": GOOGLE}),
    (
        "gemini chat live",
        live(completion({"content": None, "tool_calls": [{**CALL, **GOOGLE}]}), "google"),
        {"google": GOOGLE},
    ),
    (
        "openrouter live",
        live(
            completion({"content": "", "reasoning_details": DETAILS, "tool_calls": [CALL]}),
            "openrouter",
        ),
        {"openrouter": {"reasoning_details": DETAILS}},
    ),
    (
        "litellm live",
        live(
            completion({"content": "", "thinking_blocks": [THINKING], "tool_calls": [CALL]}),
            "litellm",
        ),
        {"litellm": {"thinking_blocks": [THINKING]}, "anthropic": THINKING},
    ),
    (
        "litellm gemini live",
        live(completion({"content": None, "tool_calls": [{**CALL, **LITELLM}]}), "litellm"),
        {"litellm": LITELLM, "google": GOOGLE},
    ),
    (
        "deepseek live",
        live(
            completion({"content": "", "reasoning_content": "why", "tool_calls": [CALL]}),
            "deepseek",
        ),
        {"deepseek": {"reasoning_content": "why"}},
    ),
    (
        "openrouter imported",
        imported(
            messages({"content": "", "reasoning_details": DETAILS, "tool_calls": [CALL]}),
            "m.json",
            "openai",
        ),
        {"openrouter": {"reasoning_details": DETAILS}},
    ),
    (
        "litellm imported",
        imported(
            messages({"content": "", "thinking_blocks": [THINKING], "tool_calls": [CALL]}),
            "m.json",
            "openai",
        ),
        {"litellm": {"thinking_blocks": [THINKING]}, "anthropic": THINKING},
    ),
    (
        "gemini chat imported",
        imported(
            messages({"content": None, "tool_calls": [{**CALL, **GOOGLE}]}), "m.json", "openai"
        ),
        {"google": GOOGLE},
    ),
    (
        "litellm gemini imported",
        imported(
            messages({"content": None, "tool_calls": [{**CALL, **LITELLM}]}), "m.json", "openai"
        ),
        {"litellm": LITELLM, "google": GOOGLE},
    ),
    (
        "deepseek imported",
        imported(
            messages({"content": "", "reasoning_content": "why", "tool_calls": [CALL]}),
            "m.json",
            "openai",
        ),
        {"deepseek": {"reasoning_content": "why"}},
    ),
    (
        "responses imported",
        imported([{"role": "user", "content": "q"}, SEALED, ITEM, OUTPUT], "m.json", "openai"),
        {"openai": SEALED},
    ),
    (
        "codex",
        imported(codex(ASK, {**SEALED, "content": None}, ITEM, OUTPUT), "c.jsonl", "codex"),
        {"openai": SEALED},
    ),
    (
        "ui anthropic",
        imported(
            ui(
                {
                    "type": "reasoning",
                    "text": "why",
                    "providerMetadata": {"anthropic": {"signature": SIGNATURE}},
                }
            ),
            "u.json",
            "ui-messages",
        ),
        {"anthropic": THINKING},
    ),
    (
        "ui anthropic redacted",
        imported(
            ui(
                {
                    "type": "reasoning",
                    "text": "",
                    "providerMetadata": {"anthropic": {"redactedData": SIGNATURE}},
                }
            ),
            "u.json",
            "ui-messages",
        ),
        {"anthropic": REDACTED},
    ),
    (
        "ui openai",
        imported(
            ui(
                {
                    "type": "reasoning",
                    "text": "",
                    "providerMetadata": {
                        "openai": {"itemId": "rs_1", "reasoningEncryptedContent": SIGNATURE}
                    },
                }
            ),
            "u.json",
            "ui-messages",
        ),
        {"openai": SEALED},
    ),
    (
        "ui google",
        imported(
            ui(
                {"type": "text", "text": "t"},
                callProviderMetadata={"google": {"thoughtSignature": SIGNATURE}},
            ),
            "u.json",
            "ui-messages",
        ),
        {"google": GOOGLE},
    ),
    ("langchain anthropic", langchain([THINKING, USE], "anthropic"), {"anthropic": THINKING}),
    (
        "langchain anthropic redacted",
        langchain([REDACTED, USE], "anthropic"),
        {"anthropic": REDACTED},
    ),
    ("langchain openai", langchain([SEALED, ITEM], "openai"), {"openai": SEALED}),
    (
        "langchain openai beside",
        langchain("", "openai", additional_kwargs={"reasoning": SEALED}),
        {"openai": SEALED},
    ),
    (
        "langchain bedrock",
        langchain(
            [
                {
                    "type": "reasoning_content",
                    "reasoning_content": {"text": "why", "signature": SIGNATURE},
                }
            ],
            "bedrock_converse",
        ),
        {"anthropic": THINKING},
    ),
    (
        "langchain google",
        langchain("", "google_genai", additional_kwargs={EXTRA: {"c1": SIGNATURE}}),
        {"google": GOOGLE},
    ),
    (
        "langchain openrouter",
        langchain("", "openrouter", additional_kwargs={"reasoning_details": DETAILS}),
        {"openrouter": {"reasoning_details": DETAILS}},
    ),
]


def pi(*blocks: Json, api: str) -> Send:
    """Return how a session of pi's is sent."""
    call = {"type": "toolCall", "id": "c1", "name": "f", "arguments": {}}
    content = [{**call, **block} if "type" not in block else block for block in blocks]
    content += [] if any("type" not in block for block in blocks) else [call]
    session = {"type": "session", "version": 3, "id": "s", "timestamp": STAMP, "cwd": "/w"}
    said: list[Json] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": content, "api": api, "provider": api.split("-")[0]},
        {"role": "toolResult", "toolCallId": "c1", "toolName": "f", "content": []},
    ]
    lines = [
        {"type": "message", "id": str(n), "timestamp": STAMP, "message": each}
        for n, each in enumerate(said)
    ]
    return imported([session, *lines], "p.jsonl", "pi")


def openhands(**fields: Any) -> Send:
    """Return how a trajectory of OpenHands' SDK is sent."""
    told = {"role": "user", "content": [sdk.text("q")]}
    events = [
        sdk.event(2, "MessageEvent", "user", llm_message=told, extended_content=[]),
        sdk.action(3, "r1", "terminal", "{}", **fields),
        sdk.observed(4, 3, content=[sdk.text("r")], is_error=False),
    ]
    return imported(events, "h.json", "openhands")


def gemini(*parts: Json) -> Send:
    """Return how contents of Gemini's are sent."""
    result = {"functionResponse": {"id": "c1", "name": "f", "response": {"r": 1}}}
    listed = [("user", [{"text": "q"}]), ("model", [*parts]), ("user", [result])]
    contents = [{"role": role, "parts": told} for role, told in listed]
    return imported({"contents": contents}, "g.json", "openai")


ASKED = {"functionCall": {"id": "c1", "name": "f", "args": {}}}
SIGNED = {"type": "thinking", "thinking": "why", "thinkingSignature": SIGNATURE}
PATHS += [
    ("pi anthropic", pi(SIGNED, api="anthropic-messages"), {"anthropic": THINKING}),
    (
        "pi responses",
        pi({**SIGNED, "thinkingSignature": json.dumps(SEALED)}, api="openai-responses"),
        {"openai": SEALED},
    ),
    ("pi google", pi(SIGNED, api="google-generative-ai"), {"google": GOOGLE}),
    (
        "pi google call",
        pi({"thoughtSignature": SIGNATURE}, api="google-generative-ai"),
        {"google": GOOGLE},
    ),
    ("openhands", openhands(thinking_blocks=[THINKING]), {"anthropic": THINKING}),
    ("openhands redacted", openhands(thinking_blocks=[REDACTED]), {"anthropic": REDACTED}),
    ("openhands responses", openhands(responses_reasoning_item=SEALED), {"openai": SEALED}),
    ("gemini call imported", gemini({**ASKED, "thoughtSignature": SIGNATURE}), {"google": GOOGLE}),
    (
        "gemini text imported",
        gemini({"text": "t", "thoughtSignature": SIGNATURE}, ASKED),
        {"google": GOOGLE},
    ),
    (
        "gemini thought imported",
        gemini({"text": "t", "thought": True, "thoughtSignature": SIGNATURE}, ASKED),
        {"google": GOOGLE},
    ),
]


@pytest.mark.parametrize("provider", EVERYBODY)
@pytest.mark.parametrize(
    ("send", "wanted"), [row[1:] for row in PATHS], ids=[row[0] for row in PATHS]
)
def test_reasoning_goes_back_to_its_maker_and_to_no_other(
    send: Send, wanted: dict[str, Any], provider: str, tmp_path: Path
) -> None:
    """With equal bytes; anyone else gets neither the item nor its signature."""
    _folder[0] = str(tmp_path)
    found = send(provider)
    if provider in wanted:
        assert wanted[provider].items() <= _holder(found, wanted[provider]).items()
    else:
        assert SIGNATURE not in json.dumps(found)
        assert not any(
            key in message
            for message in found
            for key in ("reasoning_content", "reasoning_details")
        )
    if FORMAT.get(provider) == "anthropic_messages":
        assert CHECKERS["anthropic_messages"]({"messages": found}) == []


def _holder(value: Any, wanted: Json) -> Json:
    """Return the first object within a value that has all wanted fields; else an empty one."""
    if isinstance(value, dict):
        if wanted.items() <= value.items():
            return value
        value = list(value.values())
    found = (_holder(each, wanted) for each in value) if isinstance(value, list) else ()
    return next(filter(None, found), {})
