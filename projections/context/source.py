"""Where the builder gets its rows from: a protocol, so that building needs no database.

An implementation over SQL reads the newest rows in pages and single rows by kind; it never reads
what no window can hold. `ListRowSource` serves the rows of a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from projections.context.rows import ContextRow

__all__ = ["Head", "ListRowSource", "RowSource"]

_RENDERED_FIRST = ("system", "notebook")


@dataclass(frozen=True, slots=True)
class Head:
    """What every request begins with; of each kind only rows whose ``hidden`` is None.

    ``summarised_by`` does not matter here: these outlive a summary. When several system rows
    qualify (there is one at most, but for erased histories), they come in order of version.
    """

    system: tuple[ContextRow, ...] = ()
    notebook: ContextRow | None = None
    first_user: ContextRow | None = None


class RowSource(Protocol):
    """The rows of one conversation, as of one version."""

    def head(self) -> Head:
        """Return the system part, and the oldest user row that is not hidden."""

    def latest_user(self) -> ContextRow | None:
        """Return the newest user row that is not hidden, whether summarised or not."""

    def newest(self, page: int) -> Iterator[ContextRow]:
        """Yield the visible rows in descending order of (version, part), read in pages of ``page``.

        Left out are the kinds ``system`` and ``notebook``, and rows that a summary stands for.
        """


class ListRowSource:
    """The rows of a list, in any order."""

    def __init__(self, rows: Iterable[ContextRow]) -> None:
        shown = (row for row in rows if row.hidden is None)
        self._rows = sorted(shown, key=lambda row: row.key)

    def head(self) -> Head:
        """Return the system part, and the oldest user row that is not hidden."""
        notebooks = self._of_kind("notebook")
        return Head(
            system=tuple(self._of_kind("system")),
            notebook=notebooks[-1] if notebooks else None,
            first_user=next(iter(self._of_kind("user")), None),
        )

    def latest_user(self) -> ContextRow | None:
        """Return the newest user row that is not hidden, whether summarised or not."""
        return next(reversed(self._of_kind("user")), None)

    def newest(self, page: int) -> Iterator[ContextRow]:
        """Yield the visible rows in descending order; a list needs no pages."""
        return (
            row for row in reversed(self._rows) if row.visible and row.kind not in _RENDERED_FIRST
        )

    def _of_kind(self, kind: str) -> list[ContextRow]:
        return [row for row in self._rows if row.kind == kind]
