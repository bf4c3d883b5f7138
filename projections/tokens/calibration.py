"""How far the estimates of a model's prompt tokens were from the provider's reported tokens.

A request records the tokens counted before it was sent, its answer the tokens billed. The log
therefore shows how accurate the counts for a model are. This module only produces figures for
people and reports: the content of a request must depend only on its own conversation, and never on
the cost of others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, Table, or_, select

from projections.tokens import Count

__all__ = ["Calibration", "calibrate", "calibration_of"]

LimitTo = Callable[[Select[Any], Any], Select[Any]]

_FLOOR = 0.02  # providers add framing that a count cannot foresee
_DOUBT = 0.3  # uncertainty after a single call; it shrinks with their number
_MOST_CALLS = 1_000


@dataclass(frozen=True, slots=True)
class Calibration:
    """How a model's reported usage compares with the estimates for it.

    Attributes:
        model: The requested model name.
        calls: Number of model calls whose estimated and reported tokens are both known.
        factor: Reported tokens per estimated token; 1.0 without calls.
        margin: Largest expected error of a count times the factor, as a fraction; 0.0 without
            calls, in which case the count's own margin applies.
    """

    model: str
    calls: int
    factor: float
    margin: float

    def apply(self, count: Count) -> Count:
        """Return the count that this model's provider is likely to report.

        Without calls the count is unchanged, as is an exact count that the reports confirm.

        >>> Calibration("claude", 40, 1.25, 0.05).apply(Count(100, exact=False, margin=0.5))
        Count(tokens=125, exact=False, margin=0.05)
        """
        if not self.calls or (count.exact and abs(self.factor - 1.0) <= self.margin):
            return count
        return Count(round(count.tokens * self.factor), exact=False, margin=self.margin)


def calibrate(model: str, calls: Iterable[tuple[int, int]]) -> Calibration:
    """Return the calibration from calls, each given as estimated and reported prompt tokens.

    The factor is the ratio of the sums. The margin is the 95th percentile of the single calls'
    deviations from it, at least 2 %, plus 30 % divided by the number of calls. Calls without tokens
    are ignored.
    """
    known = [(estimated, reported) for estimated, reported in calls if estimated and reported]
    if not known:
        return Calibration(model, 0, 1.0, 0.0)
    factor = sum(reported for _, reported in known) / sum(estimated for estimated, _ in known)
    off = sorted(abs(reported / (estimated * factor) - 1.0) for estimated, reported in known)
    spread = off[math.ceil(0.95 * len(off)) - 1]
    margin = min(1.0, max(_FLOOR, spread) + _DOUBT / len(known))
    return Calibration(model, len(known), factor, margin)


def calibration_of(
    connection: Connection,
    table: Table,
    model: str,
    conversation_id: UUID | None = None,
    limit_to: LimitTo | None = None,
) -> Calibration:
    """Return the calibration of a model by its newest 1,000 calls, in the caller's transaction.

    Args:
        connection: The connection to read from.
        table: A generation's ``usage_by_call``.
        model: The model's name; calls answered by a dated version of it count too.
        conversation_id: Only this conversation's calls.
        limit_to: Adds a condition to the query; called with the query and its conversation column.
    """
    query = (
        select(table.c.estimated_prompt_tokens, table.c.prompt_tokens)
        .where(
            table.c.estimated_prompt_tokens > 0,
            table.c.prompt_tokens > 0,
            # gpt-4o-2024-08-06 answers for gpt-4o, but gpt-4o-mini is a different model.
            or_(table.c.model == model, table.c.model.startswith(f"{model}-2", autoescape=True)),
        )
        .order_by(
            table.c.day.desc(),
            table.c.started_at.desc(),
            table.c.conversation_id,
            table.c.version.desc(),
        )
        .limit(_MOST_CALLS)
    )
    if conversation_id is not None:
        query = query.where(table.c.conversation_id == conversation_id)
    if limit_to is not None:
        query = limit_to(query, table.c.conversation_id)
    return calibrate(model, ((row[0], row[1]) for row in connection.execute(query)))
