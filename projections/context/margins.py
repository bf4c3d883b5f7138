"""What a request's budget leaves free: the margin of an estimate, and what a shorter task saves."""

from __future__ import annotations

import math
from dataclasses import replace

from projections.context.compression.monitor import exactly
from projections.context.plans import Budget, Group
from projections.errors import BudgetInfeasible

__all__ = ["OVERHEAD", "beside_shorter", "infeasible", "within_margin"]


OVERHEAD = "tools and request overhead"
"""What a request has besides messages, for errors."""


def within_margin(limit: int, margin: float) -> int:
    """Return how many tokens may be counted so that a limit holds if the count is too low.

    >>> within_margin(8_000, 0.25), within_margin(8_000, 0.0)
    (6400, 8000)
    """
    return int(limit / (1 + exactly(margin))) if margin else limit


def infeasible(error: BudgetInfeasible, limit: int | None, margin: float) -> BudgetInfeasible:
    """Return the error as it is told of the whole limit: with the margin among the sizes.

    One that speaks of messages or characters stays as it is, as does one without a margin.
    """
    if limit is None or not margin or OVERHEAD not in error.mandatory:
        return error
    counted = sum(error.mandatory.values())
    free = math.ceil(counted * (1 + exactly(margin))) - counted
    return BudgetInfeasible(limit, {**error.mandatory, "margin of the count": free})


def beside_shorter(task: Group, newest: Group, budget: Budget, refusal: BudgetInfeasible) -> Budget:
    """Return the budget of a request whose first user message is sent in its shorter form.

    Without steps, of what this saves the newest group alone has room: a budget that just holds the
    message whole has none for others, and a larger budget never keeps less. If it is over half of
    the budget, others do get the room, or most of the budget would be left unused.

    Args:
        task: In its shorter form.
        newest: The newest group.
        budget: The limits.
        refusal: Of the request with the whole message.
    """
    limit = budget.max_tokens
    if limit is None or budget.thresholds is not None or OVERHEAD not in refusal.mandatory:
        return budget
    whole = task.tokens if task.whole is None else task.whole.tokens
    if 2 * whole > limit:
        return budget
    held = sum(refusal.mandatory.values()) - whole + task.tokens
    held += 0 if newest.kind == "user" else newest.tokens
    return replace(budget, max_tokens=min(limit, held))
