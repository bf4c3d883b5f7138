"""One history in the format of any provider, at any turn, whatever model said what.

``FORMATS`` names every format by the string that events hold as ``specification``. Each is a pure
function of the chosen rows: ``FORMATS[name](rows, provider=...) -> Wire``. A new one is a module
with a function ``wire``, and a line here.
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
"""Every format, by the name that events hold as ``specification``."""


def format_named(name: str) -> Format:
    """Return a format.

    Raises:
        ValueError: There is none of that name; the message names those that there are.
    """
    try:
        return FORMATS[name]
    except KeyError:
        known = ", ".join(FORMATS)
        raise ValueError(f"no format {name!r}; there are {known}") from None


def writer_of(name: str, provider: str | None, system_notes: bool) -> tuple[Format, Additions]:
    """Return a format as this provider takes it, and the most that it may add to the rows' texts.

    Args:
        name: The format.
        provider: Who will be asked.
        system_notes: Whether a system message may stand nowhere but first.

    Raises:
        ValueError: There is no format of that name.
    """
    written = format_named(name)
    if name == "openai_chat" and (system_notes or provider in chat.FILL_IN_TEMPLATES):
        return chat.wire_with_notes, chat.ADDITIONS
    return written, _ADDITIONS.get(name, Additions())


_ADDITIONS = {"anthropic_messages": anthropic.ADDITIONS}
