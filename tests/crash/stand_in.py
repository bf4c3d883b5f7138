"""A stand-in for a model: OpenAI's chat-completion chunks, as its SDK would yield them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["Wanted", "answer", "pieces_of", "text_of"]

Wanted = tuple[str, dict[str, Any]]
"""A tool call that the model asks for: the tool and its arguments."""

PROMPT_TOKENS, COMPLETION_TOKENS = 10, 5


def answer(
    pieces: Sequence[str] = (), calls: Sequence[Wanted] = (), *, finish: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield the chunks of an answer: text piece by piece, then calls with their arguments in two.

    Args:
        pieces: The text.
        calls: The tool calls; their arguments arrive interleaved.
        finish: Whether the provider says that the answer is complete, and what it cost.
    """
    yield _chunk({"role": "assistant", "content": ""})
    for piece in pieces:
        yield _chunk({"content": piece})
    texts = [json.dumps(arguments) for _, arguments in calls]
    for index, (name, _) in enumerate(calls):
        function = {"name": name, "arguments": ""}
        yield _chunk({"tool_calls": [_call(index, function, id=f"call_{index}", type="function")]})
    for half in (slice(0, 4), slice(4, None)):
        for index, text in enumerate(texts):
            yield _chunk({"tool_calls": [_call(index, {"arguments": text[half]})]})
    if finish:
        yield _chunk({}, finish_reason="tool_calls" if calls else "stop")
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": COMPLETION_TOKENS}
        total = {"total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS}
        yield {**_chunk({}), "choices": [], "usage": {**usage, **total}}


def text_of(chunk: dict[str, Any]) -> str:
    """Return the text that a chunk adds."""
    return "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])


def pieces_of(text: str, size: int) -> list[str]:
    """Cut a text into pieces of so many characters."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def _call(index: int, function: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"index": index, "function": function, **fields}


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-4o-2024-08-06",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }
