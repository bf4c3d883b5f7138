"""Token counts of the context rows: the fold sets the message, the engine counts its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from projections.engine.projection import Counter
from projections.tokens import tokenizer_for

__all__ = ["ENCODING", "CountedMessages"]

ENCODING = "o200k_base"
"""The encoding with which the tokens of rows are counted."""

_TOKENIZER = tokenizer_for(ENCODING)
_ENCRYPTED = frozenset({"data", "encrypted_content", "encrypted_stdout"})
_COUNTED_IN_MESSAGE = frozenset(
    {"text", "tool_use", "message", "words", "function_call", "custom_tool_call"}
)
_WEIGHTLESS = frozenset({"call", "id", "signature", "status", "type"})
_IMAGE = ("result", "image_generation_call")  # image bytes, whose length says nothing about tokens


@dataclass(frozen=True, slots=True)
class CountedMessages:
    """Fills in the tokens of a row's message, and those that its ``native`` adds to a request."""

    def fill(self, values: dict[str, Any], counter: Counter) -> None:
        """Set the count columns in ``values``; do nothing if they hold no message."""
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

    Plain text is counted, and images like a user message. Encrypted content is estimated at four
    bytes a token, since only its provider can count it.
    """
    blocks = native.get("content", ())
    if "specification" not in native:
        if not blocks:
            return 0
        return counter.count({"role": "user", "content": blocks}, _TOKENIZER).tokens
    # A request has either the blocks or the fields, each the same thoughts.
    fields = [entry["fields"] for entry in native.get("chat", ())]
    return max(
        _weight(native.get("reasoning_content"), blocks, counter), _weight(None, fields, counter)
    )


def _weight(content: str | None, blocks: Sequence[Mapping[str, Any]], counter: Counter) -> int:
    texts, opaque = [content or ""], [0]
    for block in blocks:
        if block.get("type") not in _COUNTED_IN_MESSAGE:
            _weigh(block, texts, opaque)
    text = "\n".join(filter(None, texts))
    counted = counter.count_text(text, _TOKENIZER).tokens if text else 0
    return counted + opaque[0] * 3 // 16


def _weigh(value: Any, texts: list[str], opaque: list[int], key: str = "") -> None:
    """Add the plain texts of a block to ``texts``, and the size of encrypted ones to ``opaque``."""
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
