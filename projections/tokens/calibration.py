"""How far the estimates of a model's prompt tokens were from what its provider reported.

A request records what was counted before it was sent, its answer what was billed; the log so tells
what a count of this model is worth. Only figures for people and reports come from here: what a
request holds must follow from its own conversation, and never from what others have cost.
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

_FLOOR = 0.02  # providers add framing that no count foresees
_DOUBT = 0.3  # what one call alone leaves open; it shrinks with their number
_MOST_CALLS = 1_000


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the reported usage of a model says about the estimates for it.

    Attributes:
        model: The name that was asked for.
        calls: Model calls whose estimate and report are both known.
        factor: Reported tokens for one estimated; 1.0 without calls.
        margin: Largest error to expect of a count times the factor, as a fraction; 0.0 without
            calls, where the count's own margin stands.
    """

    model: str
    calls: int
    factor: float
    margin: float

    def apply(self, count: Count) -> Count:
        """Return a count as this model's provider is likely to report it.

        Without calls the count stays as it is; so does an exact one that the reports confirm.

        >>> Calibration("claude", 40, 1.25, 0.05).apply(Count(100, exact=False, margin=0.5))
        Count(tokens=125, exact=False, margin=0.05)
        """
        if not self.calls or (count.exact and abs(self.factor - 1.0) <= self.margin):
            return count
        return Count(round(count.tokens * self.factor), exact=False, margin=self.margin)


def calibrate(model: str, calls: Iterable[tuple[int, int]]) -> Calibration:
    """Return what calls say, each given as its estimated and its reported prompt tokens.

    The factor is the ratio of the sums. The margin is the 95th percentile of what single calls
    deviate from it, at least 2 %, and 30 % more divided by the number of calls. Calls without
    tokens say nothing.
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
        connection: Where to read.
        table: A generation's ``usage_by_call``.
        model: Its name; calls that were answered by a dated version of it count as well.
        conversation_id: Only this conversation's calls.
        limit_to: Adds a condition to the query, given the column of conversations.
    """
    query = (
        select(table.c.estimated_prompt_tokens, table.c.prompt_tokens)
        .where(
            table.c.estimated_prompt_tokens > 0,
            table.c.prompt_tokens > 0,
            # gpt-4o is answered by gpt-4o-2024-08-06, but gpt-4o-mini is another model.
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
