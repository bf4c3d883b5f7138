"""The result of counting: how many tokens, and how far that number may be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Count:
    """A number of tokens, with the relative error that it may have.

    >>> Count(100) + Count(100, exact=False, margin=0.5)
    Count(tokens=200, exact=False, margin=0.25)
    >>> sum([Count(3), Count(4)], Count(0))
    Count(tokens=7, exact=True, margin=0.0)

    Attributes:
        tokens: The count, or the best estimate of it.
        exact: Whether the provider is known to count the same number.
        margin: Largest expected error as a fraction of ``tokens``; 0.0 when exact.
    """

    tokens: int
    exact: bool = True
    margin: float = 0.0

    def __add__(self, other: Count) -> Count:
        """Return the sum; its margin is that of the parts, weighted by their tokens."""
        if self.exact and other.exact:
            return Count(self.tokens + other.tokens)
        tokens = self.tokens + other.tokens
        if not tokens:
            return Count(0, exact=False, margin=max(self.margin, other.margin))
        margin = (self.tokens * self.margin + other.tokens * other.margin) / tokens
        return Count(tokens, exact=False, margin=margin)

    @property
    def at_most(self) -> int:
        """The largest number of tokens that the margin allows, for budgets that must hold."""
        return math.ceil(self.tokens * (1 + self.margin))

    def loosened(self, slack: int) -> Count:
        """Return the same count, which may now be off by ``slack`` more tokens either way."""
        if not slack:
            return self
        margin = self.margin + slack / max(self.tokens, 1)
        return Count(self.tokens, exact=False, margin=min(margin, 1.0))
