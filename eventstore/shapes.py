"""Words for an answer in a shape that nobody knows: what was seen, and what to say instead."""

from __future__ import annotations

from typing import Any

__all__ = ["INSTEAD", "seen"]

INSTEAD = {
    "response": (
        "hand in the whole answer of OpenAI, Anthropic, Gemini, Ollama or Bedrock, as an object or "
        "a dict, and the chunks of a stream to call.feed(chunk) one by one; of any other SDK say "
        "call.text('...'), or call.message(text=..., tool_calls=..., usage=..., finish_reason=...)"
    ),
    "chunk": (
        "hand in the chunks of OpenAI, Anthropic, Gemini, Ollama or Bedrock one by one, as objects "
        "or dicts; of any other SDK say call.delta('...') for each piece of text"
    ),
    "tool call": "say {'name': ..., 'arguments': ..., 'id': ...}",
    "usage": "say {'prompt_tokens': ..., 'completion_tokens': ...}",
}
_NAMED = 8


def seen(value: Any) -> str:
    """Return the type of a value, and of a dictionary the names of its fields."""
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    if not issubclass(kind, dict):  # an object of a caller's may refuse to tell its class
        return name
    fields = [repr(key)[:40] for key in list(value)[:_NAMED]]
    return f"a dict with {', '.join(fields)}" if fields else "an empty dict"
