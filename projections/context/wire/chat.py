"""Rows as messages of OpenAI's chat completions, and of the many servers that speak the same.

Rules: OpenAI's API reference, "Create chat completion" (2025). Rows hold messages in this format
already; what is settled here is the ids. ``reasoning_content`` goes back only to providers that ask
for it, with messages of their own: DeepSeek's guide "Thinking Mode" (2026) has it sent with every
later request once tools were called, and ignores it otherwise; Moonshot's guide to Kimi's thinking
models (2025) wants it kept in the context. OpenAI knows no such field.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy

from projections.context.rows import ContextRow
from projections.context.wire.base import Json, Wire, native_for
from projections.context.wire.ids import OPENAI_CHAT, call_ids
from projections.context.wire.native import WANT_REASONING_BACK

__all__ = ["SPECIFICATION", "openai_chat", "wire"]

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
