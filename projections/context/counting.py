"""Token counts in the rows of the context: a fold gives the message, the engine counts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from projections.engine.projection import Counter
from projections.tokens import tokenizer_for

__all__ = ["ENCODING", "CountedMessages"]

ENCODING = "o200k_base"
"""The encoding in which the tokens of rows are counted."""

_TOKENIZER = tokenizer_for(ENCODING)
_ENCRYPTED = frozenset({"data", "encrypted_content", "encrypted_stdout"})
_COUNTED_IN_MESSAGE = frozenset(
    {"text", "tool_use", "message", "words", "function_call", "custom_tool_call"}
)
_WEIGHTLESS = frozenset({"call", "id", "signature", "status", "type"})
_IMAGE = ("result", "image_generation_call")  # image bytes, whose length is not their token count


@dataclass(frozen=True, slots=True)
class CountedMessages:
    """Fills in the tokens of a row's message, and those that its ``native`` adds to a request."""

    def fill(self, values: dict[str, Any], counter: Counter) -> None:
        """Set the counts for the row's columns."""
        message = values.get("message")
        if message is None:
            return
        count = counter.count(message, _TOKENIZER)
        values["tokens"] = count.tokens
        values["tokens_exact"] = count.exact
        values["tokens_margin"] = count.margin
        values["encoding"] = ENCODING
        native = values.get("native")
        values["native_tokens"] = 0 if native is None else _native_tokens(native, counter)


def _native_tokens(native: Mapping[str, Any], counter: Counter) -> int:
    """Return the tokens that a row's ``native`` adds to a request.

    Plain text is counted, and images as in a user message. Encrypted content, which only its
    provider can count, is estimated from its bytes.
    """
    blocks = native.get("content", ())
    if "specification" not in native:
        if not blocks:
            return 0
        return counter.count({"role": "user", "content": blocks}, _TOKENIZER).tokens
    texts, opaque = [native.get("reasoning_content") or ""], [0]
    for block in blocks:
        if block.get("type") not in _COUNTED_IN_MESSAGE:
            _weigh(block, texts, opaque)
    text = "\n".join(filter(None, texts))
    counted = counter.count_text(text, _TOKENIZER).tokens if text else 0
    return counted + opaque[0] * 3 // 16


def _weigh(value: Any, texts: list[str], opaque: list[int], key: str = "") -> None:
    """Collect the texts of a block, and add up the size of its encrypted content."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in _WEIGHTLESS and (name, value.get("type")) != _IMAGE:
                _weigh(inner, texts, opaque, name)
    elif isinstance(value, list):
        for inner in value:
            _weigh(inner, texts, opaque, key)
    elif isinstance(value, str) and key in _ENCRYPTED:
        opaque[0] += len(value)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        texts.append(str(value))
