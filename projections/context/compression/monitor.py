"""How full a request is, and when a history is compressed.

The two shares are those of document 000 (4.3): above the trigger, compression reduces the history
to the target, which leaves room for the next turns. Pure functions of sizes.
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
    """The share of the budget above which a history is compressed, and the share to reach.

    If the fixed part of a request (system part, tools, task) takes more than a quarter of the
    budget, the shares apply as if it took a quarter: the room left for the history is divided in
    the same proportions. Otherwise a large system part would leave no room between the two.

    Attributes:
        trigger: The share above which the history is compressed.
        target: The share to which it is compressed when all of it is planned anew.
        frozen: The share of the history's room up to which the result of earlier steps is kept, and
            only what came since is compressed; 0 to plan everything anew each time.

    Raises:
        InvalidSettings: Not ``0 < target < trigger <= 1``, or ``frozen`` is not a share.
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
        """Return the tokens above which a request is compressed, never more than the budget.

        Args:
            fixed: The tokens that every request contains.
            budget: The most tokens of a request.
        """
        return _share_of(self.trigger, fixed, budget)

    def target_tokens(self, fixed: int, budget: int) -> int:
        """Return the tokens to reach by compression: at least the fixed part, if it fits."""
        return _share_of(self.target, fixed, budget)


@dataclass(frozen=True, slots=True)
class ContextUsage:
    """How much of its budget a request takes.

    Attributes:
        used: The tokens of the request.
        budget: The most tokens of a request.
        percent: The used share of the budget, to one decimal; above 100 if it does not fit.
        remaining: The tokens left; 0 if it does not fit.
        status: ``normal``; ``warning``: compression is near; ``compressing``: the history exceeds
            its budget or its trigger, and is sent with less detail.
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
        used: The tokens of the request.
        budget: The most tokens of a request.
        fixed: The part of ``used`` that every request contains.
        thresholds: When to compress; None for the defaults.
        warn_tokens: The tokens from which the status is a warning; None for seven eighths of the
            trigger.
        compressed: Whether the request has already been compressed.
    """
    trigger = (thresholds or Thresholds()).trigger_tokens(fixed, budget)
    warning = trigger * 7 // 8 if warn_tokens is None else warn_tokens
    status: Status = "warning" if used >= warning else "normal"
    if compressed or used > trigger:
        status = "compressing"
    percent = round(100 * used / budget, 1) if budget > 0 else 100.0
    return ContextUsage(used, budget, percent, max(budget - used, 0), status)


@lru_cache(maxsize=1024)  # Equal for requests with the same fixed part.
def _share_of(share: float, fixed: int, budget: int) -> int:
    exact = exactly(share)
    as_if = fixed + (exact - _QUARTER) / (1 - _QUARTER) * (budget - fixed)
    tokens: Fraction = max(exact * budget, as_if, Fraction(fixed))
    return min(budget, int(tokens))


@lru_cache(maxsize=64)
def exactly(share: float) -> Fraction:
    """Return the exact decimal fraction of a share: the float 0.8 is slightly off."""
    return Fraction(str(share))
