"""Where the builder gets its rows from: a protocol, so that building needs no database.

An implementation over SQL reads the newest rows in pages and single rows by kind; it never reads
what no window can hold. `ListRowSource` serves the rows of a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from projections.compression.vector_search import Embedding
from projections.context.rows import ContextRow
from projections.context.search_memory import search_in_memory

__all__ = ["RENDERED_FIRST", "Head", "ListRowSource", "RowSource", "head_of", "pending"]

RENDERED_FIRST = ("system", "notebook")
"""Kinds of rows that stand in front, wherever they were said; a summary does not hide them."""


@dataclass(frozen=True, slots=True)
class Head:
    """What every request begins with; of each kind only rows whose ``hidden`` is None.

    ``summarised_by`` does not matter here: these outlive a summary. Several system rows
    qualify where one continues another, and in erased histories; they come in order of version.
    ``summaries`` are those that no later summary stands for, in the order of their places.
    """

    system: tuple[ContextRow, ...] = ()
    notebook: ContextRow | None = None
    first_user: ContextRow | None = None
    summaries: tuple[ContextRow, ...] = ()


def head_of(apart: Sequence[ContextRow], users: Sequence[ContextRow]) -> Head:
    """Return the head: of visible rows of its kinds, and of user rows, in ascending order."""
    notebooks = [row for row in apart if row.kind == "notebook"]
    return Head(
        system=tuple(row for row in apart if row.kind == "system"),
        notebook=notebooks[-1] if notebooks else None,
        first_user=users[0] if users else None,
        summaries=tuple(row for row in apart if row.kind == "summary"),
    )


def pending(users: Sequence[ContextRow], error: ContextRow | None) -> ContextRow | None:
    """Return the newest error, if it is newer than the latest user message but one.

    Args:
        users: The two newest user rows, in either order; fewer if there are fewer.
        error: The newest error row.
    """
    before = min(users, key=lambda row: row.key).key if len(users) > 1 else (0, 0)
    return error if error is not None and error.key > before else None


class RowSource(Protocol):
    """The rows of one conversation, as of one version."""

    def head(self) -> Head:
        """Return the system part, the summaries, and the oldest user row that is not hidden."""

    def latest_user(self) -> ContextRow | None:
        """Return the newest user row that is not hidden, whether summarised or not."""

    def latest_error(self) -> ContextRow | None:
        """Return the newest visible error row, if it is newer than the latest user row but one."""

    def newest(self, page: int) -> Iterator[ContextRow]:
        """Yield the visible rows in descending order of (version, part), read in pages of ``page``.

        Left out are the kinds ``system`` and ``notebook``, and rows that a summary stands for.
        """

    def rows_at(self, versions: Sequence[int]) -> Sequence[ContextRow]:
        """Return the rows at these versions that `newest` yields, in the same order."""

    def search(
        self,
        intent: str,
        limit: int,
        *,
        until: tuple[int, int] | None = None,
        embedding: Embedding | None = None,
    ) -> Mapping[tuple[int, int], float]:
        """Return the places of the groups that answer an intent best, with their scores above 0.0.

        Args:
            intent: What is looked for: the text of a user message.
            limit: The most to return.
            until: As if what stands after this place had not been said yet.
            embedding: Finds by meaning too.
        """


class ListRowSource:
    """The rows of a list, in any order."""

    def __init__(self, rows: Iterable[ContextRow], *, excluded: bool = False) -> None:
        """Take rows; ``excluded`` shows those that were kept out of the context."""
        hidden = (None, "excluded") if excluded else (None,)
        shown = (row for row in rows if row.hidden in hidden)
        self._rows = sorted(shown, key=lambda row: row.key)

    def head(self) -> Head:
        """Return the system part, the summaries, and the oldest user row that is not hidden."""
        apart = [row for row in self._rows if row.kind in ("system", "notebook")]
        summaries = [row for row in self._of_kind("summary") if row.summarised_by is None]
        return head_of([*apart, *summaries], self._of_kind("user"))

    def latest_user(self) -> ContextRow | None:
        """Return the newest user row that is not hidden, whether summarised or not."""
        return next(reversed(self._of_kind("user")), None)

    def latest_error(self) -> ContextRow | None:
        """Return the newest visible error row, if it is newer than the latest user row but one."""
        errors = [row for row in self._of_kind("error") if row.summarised_by is None]
        return pending(self._of_kind("user")[-2:], errors[-1] if errors else None)

    def newest(self, page: int) -> Iterator[ContextRow]:
        """Yield the visible rows in descending order; a list needs no pages."""
        return (
            row
            for row in reversed(self._rows)
            if row.summarised_by is None and row.kind not in RENDERED_FIRST
        )

    def rows_at(self, versions: Sequence[int]) -> list[ContextRow]:
        """Return the rows at these versions that `newest` yields, in the same order."""
        wanted = set(versions)
        return [row for row in self.newest(len(self._rows)) if row.version in wanted]

    def search(
        self,
        intent: str,
        limit: int,
        *,
        until: tuple[int, int] | None = None,
        embedding: Embedding | None = None,
    ) -> Mapping[tuple[int, int], float]:
        """Return the places of the groups that answer an intent best, with their scores."""
        rows = self.newest(len(self._rows))
        return search_in_memory(rows, intent, limit, until=until, embedding=embedding)

    def _of_kind(self, kind: str) -> list[ContextRow]:
        return [row for row in self._rows if row.kind == kind]
