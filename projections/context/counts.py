"""The tokens of stored rows for a model: the row's own count, or one kept beside the rows.

Rows carry the count of one encoding. For another one the counts are kept in ``token_counts``: what
is active there (see `projections.token_counts`) answers for many rows in one query, and what it
does not know is counted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from eventstore.tokens import Count, Tokenizer
from projections import token_counts
from projections.context.rows import ContextRow

__all__ = ["added", "ahead", "composed", "of", "total"]


def of(rows: Sequence[ContextRow], tokenizer: Tokenizer) -> list[Count]:
    """Return the tokens of each row's message within a request, in the same order."""
    others = [row.message for row in rows if row.encoding != tokenizer.name]
    counted = iter(token_counts.count_all(others, tokenizer))
    return [
        tokenizer.widen(row.count) if row.encoding == tokenizer.name else next(counted)
        for row in rows
    ]


def added(rows: Sequence[ContextRow], tokenizer: Tokenizer, start: Count) -> Count:
    """Return ``start`` and the tokens of the rows' messages together."""
    name = tokenizer.name if tokenizer.exact else None
    others, exact = [], 0
    for row in rows:
        if row.encoding == name and row.tokens_exact:
            exact += row.tokens
        else:
            others.append(row)
    return sum(of(others, tokenizer), start + Count(exact))


def total(rows: Sequence[ContextRow], tokenizer: Tokenizer) -> int:
    """Return the tokens of the rows' messages together."""
    tokens = 0
    for row in rows:
        if row.encoding != tokenizer.name:
            return sum(count.tokens for count in of(rows, tokenizer))
        tokens += row.tokens
    return tokens


def composed(text: str, tokenizer: Tokenizer) -> Count:
    """Return the tokens of a system message that is made for requests; remembered, not stored.

    The same text goes into request after request: the system part, the digest of a step.
    """
    return tokenizer.widen(_composed(text, tokenizer.plain))


@lru_cache(maxsize=512)
def _composed(text: str, tokenizer: Tokenizer) -> Count:
    return token_counts.count({"role": "system", "content": text}, tokenizer)


def ahead(rows: Iterable[ContextRow], tokenizer: Tokenizer, page: int) -> Iterator[ContextRow]:
    """Yield the rows, having looked for the counts of a page of them in one query.

    Counts nothing: a row that nobody asks about costs no tokenizing.
    """
    source = iter(rows)
    while some := list(islice(source, page)):
        token_counts.recall(
            [row.message for row in some if row.encoding != tokenizer.name], tokenizer
        )
        yield from some
