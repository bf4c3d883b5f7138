"""The plainest strategy: the newest groups as they are, nothing of what is older."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from projections.compression.items import Item
from projections.compression.strategy import Reduction

__all__ = ["SlidingWindow"]


class SlidingWindow:
    """Drops whole groups, oldest first; nothing is ever shortened."""

    name = "sliding_window"
    version = 1

    def reductions(self, items: Sequence[Item], intent: str) -> Iterable[Reduction]:
        """Return a drop for each item that is not mandatory; ``intent`` does not matter."""
        return [
            Reduction(
                index, "dropped", why=f"outside the window, {len(items) - index} from the end"
            )
            for index, item in enumerate(items)
            if not item.mandatory
        ]
