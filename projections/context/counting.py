"""The counts of tokens in a row of the context: a fold gives the message, the engine counts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from projections.engine.projection import Counter
from projections.tokens import tokenizer_for

__all__ = ["ENCODING", "CountedMessages"]

ENCODING = "o200k_base"
"""What the tokens of rows are counted with."""

_TOKENIZER = tokenizer_for(ENCODING)
_ENCRYPTED = ("data", "encrypted_content")


@dataclass(frozen=True, slots=True)
class CountedMessages:
    """Fills the tokens of a row's message, and those that its ``native`` adds to a request."""

    def fill(self, values: dict[str, Any], counter: Counter) -> None:
        """Set the counts of what these columns hold."""
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
    """Return the tokens that it adds to a request.

    Plain text is counted, images as the message of a user would be. What is encrypted is estimated
    at four bytes a token; nobody but its maker can count it.
    """
    blocks = native.get("content", ())
    if "specification" not in native:
        if not blocks:
            return 0
        return counter.count({"role": "user", "content": blocks}, _TOKENIZER).tokens
    opaque = [block.get(key) for block in blocks for key in _ENCRYPTED]
    size = sum(len(value) for value in opaque if isinstance(value, str))
    text = _plain_text(native)
    counted = counter.count_text(text, _TOKENIZER).tokens if text else 0
    return counted + size * 3 // 16


def _plain_text(native: Mapping[str, Any]) -> str:
    texts: list[Any] = [native.get("reasoning_content")]
    for block in native.get("content", ()):
        texts.append(block.get("thinking"))
        if block.get("type") == "reasoning":
            said = [*(block.get("summary") or ()), *(block.get("content") or ())]
            texts += [part.get("text") for part in said if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str) and text)
