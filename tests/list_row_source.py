"""Rows of a list, for requests that are built without a database."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from projections.context import ContextRow
from projections.context.compression.search import Embedding
from projections.context.search_tables import search_in_memory
from projections.context.source import RENDERED_FIRST, ContextHead, head_of, pending


class ListRowSource:
    """The rows of a list, in any order."""

    def __init__(self, rows: Iterable[ContextRow], *, excluded: bool = False) -> None:
        """Take rows; ``excluded`` shows those that were kept out of the context."""
        hidden = (None, "excluded") if excluded else (None,)
        shown = (row for row in rows if row.hidden in hidden)
        self._rows = sorted(shown, key=lambda row: row.key)

    def head(self) -> ContextHead:
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

    def lasting(self, before: int, limit: int) -> list[ContextRow]:
        """Return the newest visible rows before a version that leave something behind."""
        rows = self.newest(len(self._rows))
        return [row for row in rows if row.lasting is not None and row.lasting < before][:limit]

    def rows_around(self, versions: Sequence[int]) -> list[ContextRow]:
        """Return the rows at these versions, and those of the versions next to each, both sides."""
        rows = list(self.newest(len(self._rows)))
        places = sorted({row.version for row in rows})
        wanted = {
            places[each]
            for place in (bisect_left(places, version) for version in versions)
            for each in range(max(place - 1, 0), min(place + 2, len(places)))
        }
        return [row for row in rows if row.version in wanted]

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
