"""Budgets for models whose tokens can only be estimated: the margin of the count is kept free."""

from __future__ import annotations

import math
from fractions import Fraction

from projections.errors import BudgetInfeasible

__all__ = ["OVERHEAD", "infeasible", "within_margin"]


OVERHEAD = "tools and request overhead"
"""What a request has besides messages, for errors."""


def within_margin(limit: int, margin: float) -> int:
    """Return how many tokens may be counted so that a limit holds if the count is too low.

    >>> within_margin(8_000, 0.25), within_margin(8_000, 0.0)
    (6400, 8000)
    """
    return int(limit / (1 + Fraction(str(margin))))


def infeasible(error: BudgetInfeasible, limit: int | None, margin: float) -> BudgetInfeasible:
    """Return the error as it is told of the whole limit: with the margin among the sizes.

    One that speaks of messages or characters stays as it is, as does one without a margin.
    """
    if limit is None or not margin or OVERHEAD not in error.mandatory:
        return error
    counted = sum(error.mandatory.values())
    free = math.ceil(counted * (1 + Fraction(str(margin)))) - counted
    return BudgetInfeasible(limit, {**error.mandatory, "margin of the count": free})
