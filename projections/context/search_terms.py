"""What of a group of messages is searched: its text, its words, and a fingerprint of both.

The words are those of `projections.compression.memory_search`, so that a search in the database
scores as one in memory does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from projections.compression.memory_search import terms
from projections.context.budget import groups_of
from projections.context.rows import ContextRow
from projections.context.search_memory import item_to_search

__all__ = ["VERSION", "Document", "documents", "fingerprint", "indexed_terms"]

VERSION = 1
"""Raised when terms change, so that every conversation is indexed anew."""

_LONGEST = 128  # bytes of a term; PostgreSQL refuses those above 2046
_BEGINNING = 24


@dataclass(frozen=True, slots=True)
class Document:
    """A group of messages as it is searched.

    Attributes:
        key: Version and part of its first row.
        text: All that its messages say, as `Item.text`.
        unsettled: Whether it may still change without a retraction or a summary: it waits for a
            tool's result, or is a failure that a retry may make up for.
    """

    key: tuple[int, int]
    text: str
    unsettled: bool

    @classmethod
    def of(cls, rows: Sequence[ContextRow]) -> Document:
        """Return the document of a group's rows."""
        first = rows[0]
        waits = first.kind == "error" or any(row.sealed for row in rows)
        return cls(first.key, item_to_search(rows).text, waits)


def documents(rows: Iterable[ContextRow]) -> Iterator[Document]:
    """Yield the documents of rows in descending order, newest first."""
    return (Document.of(group) for group in groups_of(rows))


def fingerprint(conversation_id: UUID, text: str) -> bytes:
    """Return 16 bytes that stand for a text; those of another conversation's differ."""
    return hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), digest_size=16, key=conversation_id.bytes
    ).digest()


def indexed_terms(text: str) -> Iterator[str]:
    """Yield the terms of a text as they are stored: long ones by their beginning and a digest."""
    for term in terms(text):
        if len(term) * 4 <= _LONGEST or len(encoded := term.encode()) <= _LONGEST:
            yield term
        else:
            digest = hashlib.blake2b(encoded, digest_size=8).hexdigest()
            yield f"{term[:_BEGINNING]}~{digest}"
