"""Messages of Anthropic's API: content blocks to answers, tool calls and results.

They are in the same files as OpenAI's messages, in arrays or under ``messages``. One message may
contain a person's text and the results of several tools: it then becomes several events, and the
first keeps the message, so that an export of messages restores it. Other formats are written from
the events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_eventstore.transcripts.claude_code import block_of, call_of, parts_of, result_of, text_in
from agent_eventstore.transcripts.json_fields import text_at
from agent_eventstore.transcripts.model_messages import blocks_of_message
from agent_eventstore.transcripts.openai_wire import payload_of
from agent_eventstore.transcripts.transcript import Calls
from eventstore.events import AssistantMessage, Invocation, ToolResult, UserMessage
from eventstore.events.base import Payload
from eventstore.events.records import EventData
from projections.providers.bedrock.blocks import blocks_of
from projections.providers.gemini.contents import message_in, text_of_parts
from projections.providers.usage import anthropic_usage

__all__ = ["ORIGINAL", "instructions_in", "payloads_of"]

ORIGINAL = "anthropic_message"
"""The key in ``raw`` of the original message; null in further events of the same message."""

_MADE = frozenset({"thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use"})
"""Blocks that Anthropic creates, and accepts from nobody else."""

_OWN = _MADE | {"tool_use", "tool_result"}
_MAKER = Invocation(provider="anthropic", specification="anthropic_messages")
_WITH_SOURCE = frozenset({"image", "document"})


def payloads_of(message: dict[str, Any], version: int, calls: Calls) -> list[EventData]:
    """Return the payloads of a message, the first of which is at ``version``."""
    contents = message_in(message)
    if (sdk := blocks_of_message(message)) is not None:
        by, blocks = sdk
        is_answer = by == "assistant"
        return _with_original(
            message,
            [_answer(message, blocks, None)] if is_answer else _user_payloads(blocks, calls),
        )
    content, role = (contents or message).get("content"), (contents or message).get("role")
    converse = blocks_of(content) if contents is None else content
    content = content if converse is None else converse
    if role not in ("user", "assistant") or not isinstance(content, list):
        return [payload_of(message, version, calls)]
    if message.get("tool_calls"):  # OpenAI's, next to blocks in Mistral's form
        return [payload_of(message, version, calls)]
    if converse is None and not any(_is_own(block) for block in content):
        return [payload_of(message, version, calls)]
    maker = _MAKER if contents is None else None
    found = (
        [_answer(message, content, maker)]
        if role == "assistant"
        else _user_payloads(content, calls)
    )
    return _with_original(message, found)


def _with_original(message: dict[str, Any], found: Sequence[Payload]) -> list[EventData]:
    """Return payloads of which the first has the message, so that an export restores it."""
    originals = [{ORIGINAL: message}, *({ORIGINAL: None} for _ in found[1:])]
    return [
        data.model_copy(update={"raw": raw}) for data, raw in zip(found, originals, strict=True)
    ]


def instructions_in(request: Mapping[str, Any]) -> str | None:
    """Return the instructions that a request has next to its messages, for any provider."""
    instructions = request.get("instructions")
    gemini = request.get("systemInstruction", request.get("system_instruction"))
    named = instructions if isinstance(instructions, str) else text_of_parts(gemini)
    return text_in(request.get("system")) or named or None


def _is_own(block: Any) -> bool:
    kind = block_of(block)
    return kind in _OWN or (kind in _WITH_SOURCE and isinstance(block.get("source"), dict))


def _answer(
    message: Mapping[str, Any], content: list[Any], maker: Invocation | None
) -> AssistantMessage:
    blocks = [(block, call_of(block)) for block in content]
    usage, reason = message.get("usage"), message.get("stop_reason")
    made = any(block_of(block) in _MADE for block, _ in blocks)
    return AssistantMessage(
        invocation=maker if made else None,
        parts=parts_of([block for block, call in blocks if call is None]) or (),
        tool_calls=tuple(call for _, call in blocks if call is not None),
        usage=anthropic_usage(usage) if isinstance(usage, dict) else None,
        finish_reason=reason if isinstance(reason, str) else None,
    )


def _user_payloads(content: list[Any], calls: Calls) -> list[UserMessage | ToolResult]:
    found: list[UserMessage | ToolResult] = []
    rest = []
    for block in content:
        if block_of(block) == "tool_result":
            result = result_of(block, None)
            name = text_at(block, "name")  # as Gemini has it, possibly without an id
            call = calls.answer(result.provider_id, name)
            found.append(result.model_copy(update={"call_id": call, "name": name}))
        else:
            rest.append(block)
    return [*found, UserMessage(parts=parts_of(rest) or ())] if rest or not found else found
