"""How full a request is, and from what point on it is made smaller."""

from __future__ import annotations

import pytest

from projections.context.compression import ContextUsage, Thresholds, usage_of
from projections.errors import InvalidSettings


@pytest.mark.parametrize(
    ("fixed", "trigger", "target"),
    [
        (0, 800, 500),
        (250, 800, 500),
        (400, 840, 600),
        (700, 920, 800),
        (1_000, 1_000, 1_000),
        (2_000, 1_000, 1_000),
    ],
)
def test_a_large_fixed_part_counts_as_a_quarter(fixed: int, trigger: int, target: int) -> None:
    """Up to a quarter the plain share holds; from there what is left is divided alike."""
    thresholds = Thresholds(0.8, 0.5)

    assert thresholds.trigger_tokens(fixed, 1_000) == trigger
    assert thresholds.target_tokens(fixed, 1_000) == target


def test_a_target_below_a_quarter_leaves_room_for_the_fixed_part() -> None:
    """Nothing smaller could be sent."""
    assert Thresholds(trigger=0.8, target=0.1).target_tokens(600, 1_000) == 600


def test_shares_are_taken_as_they_are_written() -> None:
    """The float 0.29 is a little less than 29 %, and 29 of 100 tokens were 28."""
    assert Thresholds(trigger=0.58, target=0.29).target_tokens(0, 100) == 29


@pytest.mark.parametrize(
    ("trigger", "target"),
    [(0.5, 0.5), (0.4, 0.5), (0.0, 0.5), (1.1, 0.5), (0.8, 0.0), (0.8, -1.0), (float("nan"), 0.5)],
)
def test_contradictory_thresholds_are_refused(trigger: float, target: float) -> None:
    """The target must be below the trigger, and both must be shares."""
    with pytest.raises(InvalidSettings, match=r"trigger|target"):
        Thresholds(trigger=trigger, target=target)


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        (0, ContextUsage(0, 1_000, 0.0, 1_000, "normal")),
        (699, ContextUsage(699, 1_000, 69.9, 301, "normal")),
        (700, ContextUsage(700, 1_000, 70.0, 300, "warning")),
        (800, ContextUsage(800, 1_000, 80.0, 200, "warning")),
        (801, ContextUsage(801, 1_000, 80.1, 199, "compressing")),
        (1_200, ContextUsage(1_200, 1_000, 120.0, 0, "compressing")),
    ],
)
def test_usage_by_what_is_used(used: int, expected: ContextUsage) -> None:
    """A warning comes before the trigger, compressing above it."""
    assert usage_of(used, 1_000, thresholds=Thresholds(0.8, 0.5)) == expected


def test_a_compressed_request_says_so_however_small_it_is() -> None:
    """The status tells of the history, not only of what is left of it."""
    assert usage_of(10, 1_000, compressed=True).status == "compressing"


def test_the_warning_can_be_set() -> None:
    """Document 001's warn_prompt_tokens."""
    assert usage_of(10, 1_000, warn_tokens=10).status == "warning"


def test_a_budget_of_nothing_is_full() -> None:
    """There is no share of nothing."""
    assert usage_of(0, 0).percent == 100.0
