"""Sections as text, as document 004 has them."""

from __future__ import annotations

import pytest

from eventstore.events import Section, Sections
from eventstore.events.content import (
    LIVE_SCREEN,
    to_plain_text,
    with_live_section,
    without_live_screen,
)

TASK, SCREEN = Section(key="Task", text="Sort."), Section(key=LIVE_SCREEN, text="# [Live Screen]")


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        ((), ""),
        ((TASK,), "Sort."),
        ((TASK, Section(text="Fast.")), "# Task\nSort.\n\nFast."),
        ((TASK, SCREEN), "# Task\nSort.\n\n# [Live Screen]"),
    ],
)
def test_sections_are_a_text(sections: tuple[Section, ...], text: str) -> None:
    """One alone has no heading, nor has the screen."""
    assert text == to_plain_text(sections)


def test_the_screen_is_told_apart() -> None:
    """What is left stays as it is."""
    assert ((TASK,), SCREEN.text) == without_live_screen((TASK, SCREEN))
    assert ((TASK,), None) == without_live_screen((TASK,))


def test_a_live_section_takes_the_place_of_one_of_its_title() -> None:
    """Of the live ones alone."""
    first = with_live_section(Sections(live=(TASK,), summary=(TASK,)), LIVE_SCREEN, "one")
    second = with_live_section(first, LIVE_SCREEN, "two")
    assert (TASK, Section(key=LIVE_SCREEN, text="two")) == second.live
    assert (TASK,) == second.summary
