"""Steps follow from sizes alone, and can be told from any place where one fell."""

from __future__ import annotations

import pytest

from projections.context.compression.strategy import interval, last_step


@pytest.mark.parametrize(
    ("budget", "groups"), [(0, 64), (4_096, 64), (4_097, 128), (128_000, 2_048)]
)
def test_the_interval_is_a_power_of_two_by_the_budget(budget: int, groups: int) -> None:
    """At least 64 groups, and so many that the budget has 64 tokens for each."""
    assert groups == interval(budget)


def test_no_step_falls_up_to_the_room() -> None:
    """What fills it exactly is not over it."""
    assert 0 == last_step([10, 10, 10], before=70, room=100, kept=40)


def test_a_step_falls_behind_the_group_that_passes_the_room() -> None:
    """From there on the history counts as what is kept."""
    assert 2 == last_step([60, 60, 50], before=0, room=100, kept=40)
    assert 4 == last_step([60, 60, 50, 20], before=0, room=100, kept=40)


def test_a_group_larger_than_the_room_is_a_step_of_its_own() -> None:
    """Also right behind another step."""
    assert 2 == last_step([200, 200], before=0, room=100, kept=40)


def test_from_the_place_of_a_step_the_rest_is_the_same() -> None:
    """Nobody has to look further back than to the last one."""
    sizes = [30, 80, 20, 45, 90, 10, 33, 70]
    steps = [last_step(sizes[:end], before=0, room=100, kept=40) for end in range(9)]
    for place in {step for step in steps if step}:
        later = last_step(sizes[place:], before=40, room=100, kept=40)
        assert steps[-1] == (place + later if later else place)
