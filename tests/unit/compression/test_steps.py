"""How far the history is read back for its steps follows from the budget."""

from __future__ import annotations

import pytest

from projections.context.compression.strategy import interval


@pytest.mark.parametrize(
    ("budget", "groups"), [(0, 64), (4_096, 64), (4_097, 128), (128_000, 2_048)]
)
def test_the_interval_is_a_power_of_two_by_the_budget(budget: int, groups: int) -> None:
    """At least 64 groups, and so many that the budget has 64 tokens for each."""
    assert groups == interval(budget)
