"""Reported usage says what an estimate is worth, and how sure that is."""

from __future__ import annotations

import pytest

from projections.tokens import Count
from projections.tokens.calibration import Calibration, calibrate

GUESS = Count(100, exact=False, margin=0.5)


def test_the_factor_is_the_ratio_of_the_sums() -> None:
    """Long requests weigh more than short ones, as they do in a bill."""
    assert 1.25 == calibrate("m", [(100, 100), (300, 400)]).factor


def test_calls_that_agree_leave_the_least_margin() -> None:
    """Many calls that are off by the same factor narrow the margin to 2 % and what few leave."""
    found = calibrate("m", [(100, 120)] * 100)
    assert pytest.approx((100, 1.2, 0.023)) == (found.calls, found.factor, found.margin)


def test_few_calls_leave_doubt() -> None:
    """One call says little, however well it agrees with itself."""
    assert pytest.approx(0.32) == calibrate("m", [(100, 120)]).margin


def test_the_margin_holds_for_nineteen_of_twenty_calls() -> None:
    """The largest deviation of twenty is left out, the second largest is not."""
    calls = [(1_000_000, 1_000_000)] * 18 + [(1_000, 1_500), (1_000, 3_000)]
    assert pytest.approx(0.5 + 0.3 / 20, abs=1e-3) == calibrate("m", calls).margin


def test_a_margin_above_one_says_nothing_more() -> None:
    """However wide the spread, a count is off by at most all of it."""
    assert 1.0 == calibrate("m", [(10, 1_000), (1_000, 10)]).margin


def test_calls_without_tokens_say_nothing() -> None:
    """Without a pair of figures there is no calibration."""
    nothing = Calibration("m", 0, 1.0, 0.0)
    assert nothing == calibrate("m", [(0, 5), (5, 0)]) == calibrate("m", [])


def test_a_guess_is_corrected_and_narrowed() -> None:
    """What a provider reported takes the place of the margin of its family."""
    corrected = Calibration("m", 40, 1.25, 0.05).apply(GUESS)
    assert Count(125, exact=False, margin=0.05) == corrected


def test_without_calls_a_count_keeps_its_own_margin() -> None:
    """What is not known is not made to look better."""
    assert GUESS == calibrate("m", []).apply(GUESS)


def test_an_exact_count_that_the_reports_confirm_stays() -> None:
    """A provider's framing does not make an exact count an estimate."""
    assert Count(100) == Calibration("m", 40, 1.01, 0.02).apply(Count(100))


def test_an_exact_count_that_the_reports_refute_is_an_estimate() -> None:
    """Exact is what the provider counts, and it has counted otherwise."""
    corrected = Calibration("m", 40, 1.5, 0.02).apply(Count(100))
    assert Count(150, exact=False, margin=0.02) == corrected
