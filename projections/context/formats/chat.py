"""Rows as messages of OpenAI's chat completions, with what providers need back verbatim.

What a provider needs back verbatim, and OpenAI's chat format cannot carry.

Of assistant messages: Anthropic's thinking with its signatures (and the order of all blocks around
it), OpenAI's reasoning items with what is encrypted in them, ``phase`` of its messages, DeepSeek's
``reasoning_content``; tagged with who made it. The tool calls in it are places (``{"call": 0}``):
ids, names and arguments stay with the message, since ids are only settled by a request. Of tool
results, whoever made them: the status, and images and files as chat parts.

Rows as messages of OpenAI's chat completions, and of the many servers that speak the same.

Rules: OpenAI's API reference, "Create chat completion" (2025). Rows hold messages in this format
already; what is settled here is the ids. ``reasoning_content`` goes back only to providers that ask
for it, with messages of their own: DeepSeek's guide "Thinking Mode" (2026) has it sent with every
later request once tools were called, and ignores it otherwise; Moonshot's guide to Kimi's thinking
models (2025) wants it kept in the context. OpenAI knows no such field.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy

from eventstore.events import (
    AssistantMessage,
    FilePart,
    ImagePart,
    ReasoningPart,
    TextPart,
    ToolCallRequest,
    ToolResult,
)
from projections.context import content
from projections.context.formats.base import OPENAI_CHAT, Json, Wire, call_ids, native_for
from projections.context.rows import ContextRow

__all__ = [
    "SPECIFICATION",
    "WANT_REASONING_BACK",
    "of_assistant",
    "of_tool",
    "openai_chat",
    "wire",
]


WANT_REASONING_BACK = frozenset({"deepseek", "moonshot", "moonshotai"})

_THOUGHT = ("thinking", "redacted_thinking")
_CALL_ITEMS = ("function_call", "custom_tool_call")
_IN_MESSAGE = ("arguments", "input", "name")
_ENCRYPTED = ("data", "encrypted_content")


def of_assistant(payload: AssistantMessage) -> Json | None:
    """Return what the maker of a message wants back, or None if the message itself is enough."""
    made = payload.invocation
    if made is None:
        return None
    held: Json | None = None
    if made.specification == "anthropic_messages":
        held = _anthropic(payload)
    elif made.specification == "openai_responses":
        held = _responses(payload)
    elif made.specification == "openai_chat" and made.provider in WANT_REASONING_BACK:
        thought = "".join(p.text for p in payload.parts if isinstance(p, ReasoningPart))
        held = {"reasoning_content": thought} if thought else None
    # A signature holds for the very bytes: what UTF-8 cannot carry cannot be sent back.
    if held is None or content.scrub(held) != held:
        return None
    maker = {"provider": made.provider, "model": made.model}
    return {"specification": made.specification, **content.scrub(maker), **held}


def of_tool(payload: ToolResult) -> Json | None:
    """Return the status of a result that is no plain success, and its parts if some are no text."""
    held: Json = {} if payload.status == "success" else {"status": payload.status}
    parts = payload.content
    if not isinstance(parts, str | None) and any(
        isinstance(part, ImagePart | FilePart) for part in parts
    ):
        held["content"] = content.user_parts(parts)
    return held or None


def _anthropic(payload: AssistantMessage) -> Json | None:
    raw = payload.raw.get("content") if isinstance(payload.raw, dict) else None
    blocks = raw if isinstance(raw, list) else _blocks(payload)
    if blocks is None or not all(isinstance(block, dict) for block in blocks):
        return None
    blocks = [block for block in blocks if _is_sendable(block)]
    placed = _placed(blocks, ("tool_use",), "id", payload.tool_calls)
    plain = all(block.get("type") in ("text", "tool_use") for block in blocks)
    return None if plain or placed is None else {"content": placed}


def _blocks(payload: AssistantMessage) -> list[Json] | None:
    """Return the blocks that parts and calls stand for, or None if they do not tell them all."""
    found: list[Json] = []
    for part in payload.parts:
        if isinstance(part, ReasoningPart):
            signed = {"type": "thinking", "thinking": part.text, "signature": part.signature}
            found.append(part.raw or signed)
        elif isinstance(part, TextPart):
            found.append({"type": "text", "text": part.text})
        else:
            return None
    calls = payload.tool_calls
    return found + [
        {**(call.raw or {}), "type": "tool_use", "id": call.provider_id} for call in calls
    ]


def _is_sendable(block: Json) -> bool:
    """Whether Anthropic takes the block back: thoughts need a signature, texts need text."""
    match block.get("type"):
        case "thinking":
            return bool(block.get("signature"))
        case "text":
            return bool(str(block.get("text") or "").strip())
    return True


def _responses(payload: AssistantMessage) -> Json | None:
    raw = payload.raw.get("output") if isinstance(payload.raw, dict) else None
    if not isinstance(raw, list) or not all(isinstance(item, dict) for item in raw):
        return None
    # Servers say null for what is absent, and refuse some of it when it is sent back.
    items = [{key: value for key, value in item.items() if value is not None} for item in raw]
    wanted = any(
        item.get("encrypted_content") or item.get("phase") or item.get("type") == "custom_tool_call"
        for item in items
    )
    placed = _placed(items, _CALL_ITEMS, "call_id", payload.tool_calls) if wanted else None
    return None if placed is None else {"content": [_without_logprobs(item) for item in placed]}


def _without_logprobs(item: Json) -> Json:
    parts = item.get("content")
    if item.get("type") != "message" or not isinstance(parts, list):
        return item
    lean = [{k: v for k, v in p.items() if k != "logprobs"} for p in parts if isinstance(p, dict)]
    return {**item, "content": lean}


def _placed(
    blocks: Sequence[Json], kinds: Sequence[str], id_field: str, calls: Sequence[ToolCallRequest]
) -> list[Json] | None:
    """Return the blocks with places for calls, or None unless they are exactly the calls.

    Blocks need not stand in the order of the calls, and ids may repeat: the first call with the
    id that no block has taken yet is meant.
    """
    free = dict(enumerate(calls))
    placed: list[Json] = []
    for block in blocks:
        if block.get("type") not in kinds:
            placed.append(block)
            continue
        wire_id = block.get(id_field)
        index = next((i for i, call in free.items() if call.provider_id == wire_id), None)
        if index is None:
            return None
        del free[index]
        rest = {k: v for k, v in block.items() if k != id_field and k not in _IN_MESSAGE}
        placed.append({**rest, "call": index})
    return None if free else placed


SPECIFICATION = "openai_chat"


def openai_chat(rows: Iterable[ContextRow], *, provider: str | None = None) -> tuple[Json, ...]:
    """Return the messages of the rows, in the rows' order; the rows themselves are not altered."""
    held = tuple(rows)
    return tuple(
        _message(row, ids, provider)
        for row, ids in zip(held, call_ids(held, OPENAI_CHAT), strict=True)
    )


def wire(rows: Iterable[ContextRow], *, provider: str | None = None) -> Wire:
    """Return the rows in this format; the system part stays among the messages."""
    return Wire(SPECIFICATION, openai_chat(rows, provider=provider))


def _message(row: ContextRow, ids: tuple[str, ...], provider: str | None) -> Json:
    if row.kind == "tool":
        return {"role": "tool", "tool_call_id": ids[0], **row.message}
    # The row may be used again: what the caller does to the message must not reach it.
    message = dict(row.message)
    if not isinstance(message["content"], str):
        message["content"] = deepcopy(message["content"])
    if "tool_calls" in message:
        calls = message["tool_calls"]
        message["tool_calls"] = [
            {**call, "id": wire_id, "function": dict(call["function"])}
            for call, wire_id in zip(calls, ids, strict=True)
        ]
    native = native_for(row, SPECIFICATION, provider)
    if native and provider in WANT_REASONING_BACK:
        message["reasoning_content"] = native["reasoning_content"]
    return message
