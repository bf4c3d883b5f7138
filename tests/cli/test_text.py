"""Texts made harmless, and numbers as people read them."""

from __future__ import annotations

import pytest

from agent_eventstore.cli import console, harmless


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("plain", "plain"),
        ("two\nlines", "two\nlines"),
        ("two\r\nlines", "two\nlines"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("over\rwritten", r"over\rwritten"),
        ("\u202eabc", r"\u202eabc"),
        ("\ud83d", r"\ud83d"),
        ("中文 👍🏽", "中文 👍🏽"),
    ],
)
def test_control_characters_are_escaped(given: str, expected: str) -> None:
    """What could steer a terminal is shown as its escape, everything else as it is."""
    assert expected == harmless.shown(given)


def test_one_line_is_short() -> None:
    """A text of many lines becomes the start of one."""
    assert "aaaa bb…" == harmless.one_line("aaaa\n\n  bbbb\ncccc", limit=7)


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (None, ""),
        (0, "0 ms"),
        (999, "999 ms"),
        (999.9, "1.0 s"),
        (59_949, "59.9 s"),
        (59_990, "1:00 min"),
        (3_600_000, "60:00 min"),
    ],
)
def test_durations_have_the_unit_that_suits(milliseconds: float | None, expected: str) -> None:
    """A duration is shown in milliseconds, seconds or minutes."""
    assert expected == console.duration(milliseconds)


@pytest.mark.parametrize(
    ("dollars", "expected"), [(None, ""), (0.00123, "$0.0012"), (1234.5, "$1,234.50")]
)
def test_costs_have_the_places_that_they_need(dollars: float | None, expected: str) -> None:
    """Small amounts are shown with four places."""
    assert expected == console.cost(dollars)
