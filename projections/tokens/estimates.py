"""Tokens of what a model wrote, where its provider reported none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from projections.errors import EncodingNotBundled
from projections.tokens.text import Count, Tokenizer, tokenizer_for

__all__ = ["EstimatedColumn", "Written", "estimated_tokens"]

_MODEL = "o200k_base"  # Whose tokens are counted where those of the model are not known.


class Written(NamedTuple):
    """Texts of which the tokens are to be counted, and the model that wrote them."""

    pieces: Sequence[str]
    model: str | None


class _Texts(Protocol):
    def count_text(self, text: str, tokenizer: Tokenizer) -> Count: ...


@dataclass(frozen=True, slots=True)
class EstimatedColumn:
    """Replaces what was written, in the column of this name, by its tokens."""

    name: str

    def fill(self, values: dict[str, Any], counter: _Texts) -> None:
        """Count what a fold has put there."""
        written = values.get(self.name)
        if isinstance(written, Written):
            tokenizer = _tokenizer(written.model)
            counts = (counter.count_text(each, tokenizer) for each in written.pieces if each)
            values[self.name] = sum(count.tokens for count in counts)


def estimated_tokens(pieces: Iterable[str], model: str | None) -> int:
    """Return the tokens of texts by this project's count; of an unknown model, by another's."""
    tokenizer = _tokenizer(model)
    return sum(tokenizer.count(piece).tokens for piece in pieces if piece)


def _tokenizer(model: str | None) -> Tokenizer:
    try:
        return tokenizer_for(model or _MODEL)
    except EncodingNotBundled:
        return tokenizer_for(_MODEL)
