"""Finding the items that answer an intent, among all of a conversation.

A strategy that retrieves is given items whose ``relevance`` is set. Where it comes from is a
`Search`: in memory over the items themselves, or in the database over the whole conversation
(`projections.context.search`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

__all__ = ["Search"]


@runtime_checkable
class Search(Protocol):
    """Scores the items of one conversation."""

    def scores(self, intent: str, limit: int) -> Mapping[tuple[int, int], float]:
        """Return the keys of the best items with their scores above 0.0, at most ``limit``.

        Deterministic, and of this conversation alone: no other conversation moves a score.
        """
