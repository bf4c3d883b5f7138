"""The SUMMARY class of system messages: recognised by its heading, which is kept apart.

A system message that begins with ``SUMMARY`` or ``CONVERSATION_SUMMARY`` stands for what came
before (document 000, 4.3). messages[] gives every summary a heading of its own, so the payload has
the text below it; the heading stands in ``raw["heading"]``, for export.
"""

from __future__ import annotations

import re
from typing import Any

from eventstore.events import Summary
from projections.context.prompts import summary as headed

__all__ = ["heading_in", "summary_in", "text_with_heading"]

_HEADING = re.compile(r"\s*(?:CONVERSATION_)?SUMMARY(?![A-Za-z0-9_])[ \t]*[:\uff1a]?\s*")
_USUAL = headed("")
_KEY = "heading"


def summary_in(text: str) -> Summary | None:
    """Return the summary that a system message is, or None if it is none."""
    found = _HEADING.match(text)
    if found is None:
        return None
    text = text[found.end() :]
    return Summary(text=text, versions=(), strategy="imported", raw={_KEY: found[0]})


def text_with_heading(data: Summary, otherwise: str = _USUAL) -> str:
    """Return a summary's text below the heading that it came with, or another one."""
    return str(heading_in(data.raw).get(_KEY, otherwise)) + data.text


def heading_in(raw: Any) -> dict[str, Any]:
    """Return the part of a payload's ``raw`` that tells the heading."""
    return {_KEY: raw[_KEY]} if isinstance(raw, dict) and isinstance(raw.get(_KEY), str) else {}
