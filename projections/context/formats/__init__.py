"""Writes one history in any provider's format, at any turn, whichever models produced it.

``FORMATS`` maps the ``specification`` strings of events to formats. Each format is a pure function
of the chosen rows: ``FORMATS[name](rows, provider=...) -> Wire``. To add one, write a module with a
function ``wire`` and add a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from projections.context.formats import anthropic, chat, neutral, openai_responses
from projections.context.formats.base import Additions, Format, Wire
from projections.context.formats.chat import openai_chat

__all__ = ["FORMATS", "Format", "Wire", "format_named", "openai_chat", "writer_of"]

FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "openai_chat": chat.wire,
        "openai_responses": openai_responses.wire,
        "anthropic_messages": anthropic.wire,
        "neutral": neutral.wire,
    }
)
"""The formats by the name that events hold as ``specification``."""


def format_named(name: str) -> Format:
    """Return the format with this name.

    Raises:
        ValueError: The format does not exist; the message lists the existing ones.
    """
    try:
        return FORMATS[name]
    except KeyError:
        known = ", ".join(FORMATS)
        raise ValueError(f"no format {name!r}; the formats are {known}") from None


def writer_of(name: str, provider: str | None, system_notes: bool) -> tuple[Format, Additions]:
    """Return a format for this provider, and the most that it may add to the rows' texts.

    Args:
        name: The format.
        provider: The provider that will be called.
        system_notes: Whether only the first message may be a system message.

    Raises:
        ValueError: The format does not exist.
    """
    written = format_named(name)
    if name == "openai_chat" and (system_notes or provider in chat.FILL_IN_TEMPLATES):
        return chat.wire_with_notes, chat.ADDITIONS
    return written, _ADDITIONS.get(name, Additions())


_ADDITIONS = {"anthropic_messages": anthropic.ADDITIONS}
