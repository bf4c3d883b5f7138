"""How full a request is, and when a history is compressed.

Trigger and target are the shares of document 000 (4.3): above the trigger, a history is compressed
down to the target, which leaves room for some turns. Pure functions of sizes.
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
    """The share of the budget above which a history is compressed, and the share it is cut to.

    If the fixed part of a request (system part, tools, task) takes more than a quarter of the
    budget, the remaining room for the history is divided as if the fixed part took exactly a
    quarter. Otherwise a large system part would leave no room between the two shares.

    Attributes:
        trigger: Above this share, the history is compressed.
        target: The share to compress to when the whole history is planned.
        frozen: The most of the history's room, as a share, that the result of earlier steps may
            take to be left unchanged, so that only newer messages are compressed; with 0, the whole
            history is planned every time.

    Raises:
        InvalidSettings: Not ``0 < target < trigger <= 1``, or ``frozen`` is not between 0 and 1.
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
        """Return the number of tokens above which a request is compressed, at most the budget.

        Args:
            fixed: Tokens of the fixed part.
            budget: Token limit of the request.
        """
        return _share_of(self.trigger, fixed, budget)

    def target_tokens(self, fixed: int, budget: int) -> int:
        """Return the number of tokens to compress to: at least the fixed part, if that fits."""
        return _share_of(self.target, fixed, budget)


@dataclass(frozen=True, slots=True)
class ContextUsage:
    """How much of its budget a request uses.

    Attributes:
        used: Tokens of the request.
        budget: Token limit of the request.
        percent: Percentage used, to one decimal; above 100 if the request does not fit.
        remaining: Tokens left; 0 if the request does not fit.
        status: ``normal``; ``warning``: compression is near; ``compressing``: the history is over
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
    """Return how much of its budget a request uses.

    Args:
        used: Tokens of the request.
        budget: Token limit of the request.
        fixed: Tokens of the fixed part, included in ``used``.
        thresholds: When to compress; None for the defaults.
        warn_tokens: Number of tokens from which the status is ``warning``; None for seven eighths
            of the trigger.
        compressed: Whether the request has already been compressed.
    """
    trigger = (thresholds or Thresholds()).trigger_tokens(fixed, budget)
    warning = trigger * 7 // 8 if warn_tokens is None else warn_tokens
    status: Status = "warning" if used >= warning else "normal"
    if compressed or used > trigger:
        status = "compressing"
    percent = round(100 * used / budget, 1) if budget > 0 else 100.0
    return ContextUsage(used, budget, percent, max(budget - used, 0), status)


@lru_cache(maxsize=1024)  # Requests with the same fixed part have the same share.
def _share_of(share: float, fixed: int, budget: int) -> int:
    exact = exactly(share)
    as_if = fixed + (exact - _QUARTER) / (1 - _QUARTER) * (budget - fixed)
    tokens: Fraction = max(exact * budget, as_if, Fraction(fixed))
    return min(budget, int(tokens))


@lru_cache(maxsize=64)
def exactly(share: float) -> Fraction:
    """Return a share exactly as it is written: the float 0.8 is slightly more or less."""
    return Fraction(str(share))
