"""Sections as text, and the one among them that shows the agent's screen (document 004)."""

from __future__ import annotations

from collections.abc import Sequence

from eventstore.events.values import Section, Sections

__all__ = ["LIVE_SCREEN", "to_plain_text", "with_live_section", "without_live_screen"]

LIVE_SCREEN = "[LiveScreen]"
"""The title of the section that holds the screen."""


def to_plain_text(sections: Sequence[Section]) -> str:
    r"""Return sections as one text, under their titles; one alone, and the screen, have none.

    >>> to_plain_text([Section(key="Task", text="Sort."), Section(text="Fast.")])
    '# Task\nSort.\n\nFast.'
    """
    if len(sections) == 1:
        return sections[0].text
    return "\n\n".join(
        f"# {each.key}\n{each.text}" if each.key not in ("", LIVE_SCREEN) else each.text
        for each in sections
    )


def without_live_screen(sections: Sequence[Section]) -> tuple[tuple[Section, ...], str | None]:
    """Return sections without the screen, and the screen; None if there is none."""
    screens = [each.text for each in sections if each.key == LIVE_SCREEN]
    rest = tuple(each for each in sections if each.key != LIVE_SCREEN)
    return rest, screens[-1] if screens else None


def with_live_section(sections: Sections, key: str, text: str) -> Sections:
    """Return sections that have this one among the live ones, in the place of one of its title."""
    section = Section(key=key, text=text)
    if all(each.key != key for each in sections.live):
        return sections.model_copy(update={"live": (*sections.live, section)})
    live = tuple(section if each.key == key else each for each in sections.live)
    return sections.model_copy(update={"live": live})
