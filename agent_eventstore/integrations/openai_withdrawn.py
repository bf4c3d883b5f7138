"""Which versions of a session are withdrawn, as is learnt while it is read from its end: pure."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Withdrawn"]

_SMALL = 64


class Withdrawn:
    """What is said of ranges of versions; what is said first holds."""

    def __init__(self) -> None:
        self._single: dict[int, bool] = {}
        self._large: list[tuple[int, int, bool]] = []
        self._passed: list[tuple[int, int]] = []

    def add(self, ranges: Iterable[dict[str, int]], said: bool, *, all_below: bool = False) -> None:
        """Say it of ranges; with ``all_below``, nothing within them is to be read at all."""
        for each in ranges:
            first, last = each["first"], each["last"]
            if all_below:
                self._passed.append((first, last))
            if last - first < _SMALL:
                for version in range(first, last + 1):
                    if self.says(version) is None:
                        self._single[version] = said
            else:
                self._large.append((first, last, said))

    def says(self, version: int) -> bool | None:
        """Return what was said of a version first; None if nothing was."""
        if (said := self._single.get(version)) is not None:
            return said
        for first, last, said in self._large:
            if first <= version <= last:
                return said
        return None

    def below(self, version: int) -> int:
        """Return the version before which to read on; what holds only dead items is passed by."""
        return min([version, *(first for first, last in self._passed if last >= version - 1)])
