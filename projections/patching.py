"""Patches of many rows in memory: each costs what it matches, not what there is.

A conversation may be retracted or summarised thousands of times. A patch looks at the values of one
column, so the rows stand by those values; without, every patch would look at every row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from projections.base import Patch, ReadTable

__all__ = ["PatchedRows"]

Key = tuple[Any, ...]


class PatchedRows:
    """Rows of one table by key, and which of them have which value in the columns of patches."""

    def __init__(self, declared: ReadTable) -> None:
        self.rows: dict[Key, dict[str, Any]] = {}
        self._places = {name: place for place, name in enumerate(declared.key)}
        self._found: dict[str, dict[int, dict[Key, None]]] = {}

    def put(self, key: Key, values: Mapping[str, Any]) -> None:
        """Set columns of a row, which is made if it is not there."""
        self.rows.setdefault(key, {}).update(values)
        for column, found in self._found.items():
            place = self._places.get(column)
            value = values.get(column) if place is None else key[place]
            if value is not None:
                found.setdefault(value, {})[key] = None

    def patch(self, patch: Patch) -> list[Key]:
        """Set columns of the rows that match; return their keys."""
        keys = list(self._matching(patch))
        for key in keys:
            self.put(key, patch.values)
        return keys

    def _matching(self, patch: Patch) -> Iterator[Key]:
        column, first, last = patch.column, patch.first, patch.last
        place = self._places.get(column)
        found = self._found.get(column)
        if found is None:
            found = self._found[column] = {}
            for key, row in self.rows.items():
                value = row.get(column) if place is None else key[place]
                if value is not None:
                    found.setdefault(value, {})[key] = None
        few = last - first < len(found)
        values = (
            range(first, last + 1) if few else [each for each in found if first <= each <= last]
        )
        for value in values:
            held = found.get(value, {})
            # Rows that have another value by now are forgotten here, once.
            for key in [key for key in held if place is None and self.rows[key][column] != value]:
                del held[key]
            yield from held
