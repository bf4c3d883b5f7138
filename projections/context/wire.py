"""Rows become the messages of one request in OpenAI's chat format.

Providers do not make call ids unique, and a request must not use one twice: here each call gets an
id that is unique within the request, and its result the same one. A provider's own id is kept where
that is possible, so that what was sent once is sent again to the byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from projections.context.rows import ContextRow

__all__ = ["openai_chat"]

# 40 is what OpenAI's chat endpoint accepts: beyond, it answers "string_above_max_length".
_PROVIDER_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")


def openai_chat(rows: Iterable[ContextRow]) -> tuple[dict[str, Any], ...]:
    """Return the messages of the rows, in the rows' order.

    Each assistant row must be followed by the rows of its results, in the order of its calls; the
    rows' own messages are not altered.
    """
    used: set[str] = set()
    ids: list[str] = []
    messages: list[dict[str, Any]] = []
    for row in rows:
        message = dict(row.message)
        if row.kind == "tool":
            message = {"role": "tool", "tool_call_id": ids[row.part - 1], **message}
        elif "tool_calls" in message:
            calls = message["tool_calls"]
            ids = [
                _unused(call["id"], row.version, index, used) for index, call in enumerate(calls)
            ]
            message["tool_calls"] = [
                {**call, "id": wire_id} for call, wire_id in zip(calls, ids, strict=True)
            ]
        messages.append(message)
    return tuple(messages)


def _unused(provider_id: str, version: int, index: int, used: set[str]) -> str:
    if _PROVIDER_ID.fullmatch(provider_id) and provider_id not in used:
        used.add(provider_id)
        return provider_id
    chosen = own = f"call_{version}_{index}"
    number = 1
    while chosen in used:
        number += 1
        chosen = f"{own}_{number}"
    used.add(chosen)
    return chosen
