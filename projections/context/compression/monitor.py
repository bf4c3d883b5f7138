"""How full a request is, and from what point on a history is made smaller.

The two shares are those of document 000 (4.3): compression sets in above the trigger and goes down
to the target, so that there is room again for some turns. Pure functions of sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from projections.errors import InvalidSettings

__all__ = ["ContextUsage", "Status", "Thresholds", "exactly", "usage_of"]

Status = Literal["normal", "warning", "compressing"]

_QUARTER = Fraction(1, 4)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From what share of the budget on a history is made smaller, and to what share.

    Where the fixed part of a request (system part, tools, task) takes more than a quarter of the
    budget, the shares apply as if it took a quarter: what is left for the history is divided as it
    would be then. Otherwise a large system part would leave no room between the two.

    Attributes:
        trigger: Above it, the history is made smaller.
        target: To it, where all of the history is planned anew.
        frozen: Share of the history's room that may be taken by what stands from earlier steps: up
            to it, only what came since is made smaller; 0 for never.

    Raises:
        InvalidSettings: Not ``0 < target < trigger <= 1``, or ``frozen`` is no share.
    """

    trigger: float = 1.0
    target: float = 0.65
    frozen: float = 0.85

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be a share above 0 and up to 1, not {share!r}"
            for name, share in (("trigger", self.trigger), ("target", self.target))
            if not 0 < share <= 1
        ]
        if not problems and self.target >= self.trigger:
            problems = [f"target ({self.target}) must be less than trigger ({self.trigger})"]
        if not 0 <= self.frozen <= 1:
            problems.append(f"frozen must be a share from 0 to 1, not {self.frozen!r}")
        if problems:
            raise InvalidSettings(tuple(problems))

    def trigger_tokens(self, fixed: int, budget: int) -> int:
        """Return above how many tokens a request is made smaller; never more than the budget.

        Args:
            fixed: Tokens of what every request holds.
            budget: Tokens that a request may have.
        """
        return _share_of(self.trigger, fixed, budget)

    def target_tokens(self, fixed: int, budget: int) -> int:
        """Return to how many tokens it is made smaller: at least the fixed part, if that fits."""
        return _share_of(self.target, fixed, budget)


@dataclass(frozen=True, slots=True)
class ContextUsage:
    """How much of its budget a request takes.

    Attributes:
        used: Tokens of the request.
        budget: Tokens that it may have.
        percent: Used of the budget, to one decimal; above 100 where it does not fit.
        remaining: Tokens left; 0 where it does not fit.
        status: ``normal``; ``warning``: compression is near; ``compressing``: the history is too
            large for its budget or its trigger, and is sent with less detail.
    """

    used: int
    budget: int
    percent: float
    remaining: int
    status: Status


def usage_of(
    used: int,
    budget: int,
    *,
    fixed: int = 0,
    thresholds: Thresholds | None = None,
    warn_tokens: int | None = None,
    compressed: bool = False,
) -> ContextUsage:
    """Return how much of its budget a request takes.

    Args:
        used: Tokens of the request.
        budget: Tokens that it may have.
        fixed: Of the used, those of what every request holds.
        thresholds: When compression sets in; None: the defaults.
        warn_tokens: From how many tokens on it is a warning; None: from seven eighths of the
            trigger on.
        compressed: Whether the request has already been made smaller.
    """
    trigger = (thresholds or Thresholds()).trigger_tokens(fixed, budget)
    warning = trigger * 7 // 8 if warn_tokens is None else warn_tokens
    status: Status = "warning" if used >= warning else "normal"
    if compressed or used > trigger:
        status = "compressing"
    percent = round(100 * used / budget, 1) if budget > 0 else 100.0
    return ContextUsage(used, budget, percent, max(budget - used, 0), status)


@lru_cache(maxsize=1024)  # The same at every request whose fixed part is.
def _share_of(share: float, fixed: int, budget: int) -> int:
    exact = exactly(share)
    as_if = fixed + (exact - _QUARTER) / (1 - _QUARTER) * (budget - fixed)
    tokens: Fraction = max(exact * budget, as_if, Fraction(fixed))
    return min(budget, int(tokens))


@lru_cache(maxsize=64)
def exactly(share: float) -> Fraction:
    """Return a share as it is written: of 0.8, the float is a little more or less."""
    return Fraction(str(share))
