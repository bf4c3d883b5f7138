"""Where a step fell: the history is trimmed at once and far, then left alone, not at every turn.

Between two steps the messages before stay byte-identical, so that the provider's prompt cache
hits. A step falls behind the group with which the request passes its trigger; from there the
history counts as its target, whatever it came to. So the steps follow from sizes alone, and can be
told from any place where one fell: there is one at every `interval` groups in a history that is
over the trigger, so nobody has to look further back.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["interval", "last_step"]

_LEAST = 64
_TOKENS = 64


def interval(max_tokens: int) -> int:
    """Return after how many groups a step falls in any case: a power of two, by the budget."""
    groups = _LEAST
    while groups * _TOKENS < max_tokens:
        groups *= 2
    return groups


def last_step(sizes: Iterable[int], *, before: int, room: int, kept: int) -> int:
    """Return how many of the groups stand before the last step; 0 if none fell among them.

    Args:
        sizes: Tokens of the groups from the start, or from the place of a step, oldest first.
        before: Tokens that count for what stands before them.
        room: Tokens of the groups up to which no step falls.
        kept: Tokens that count for all that stands before a step.
    """
    total, step = before, 0
    for number, size in enumerate(sizes, start=1):
        total += size
        if total > room:
            total, step = kept, number
    return step
