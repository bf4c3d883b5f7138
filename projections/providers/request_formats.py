"""One history in the format of any provider, at any turn, whichever models produced it.

``FORMATS`` maps the string that events hold as ``specification`` to a format. Each format is a pure
function of the selected rows: ``FORMATS[name](rows, provider=...) -> Wire``. To add one, write a
module with a function ``wire``, and list it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from projections.providers import neutral
from projections.providers.anthropic import write as anthropic
from projections.providers.openai_chat import write as openai_chat_format
from projections.providers.openai_chat.write import openai_chat
from projections.providers.openai_responses import write as openai_responses
from projections.providers.request_base import Additions, Format, Wire

__all__ = ["FORMATS", "Format", "Wire", "format_named", "openai_chat", "writer_of"]

FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "openai_chat": openai_chat_format.wire,
        "openai_responses": openai_responses.wire,
        "anthropic_messages": anthropic.wire,
        "neutral": neutral.wire,
    }
)
"""Every format, by the name that events hold as ``specification``."""


def format_named(name: str) -> Format:
    """Return the format of a name.

    Raises:
        ValueError: No format has this name; the message lists the names.
    """
    try:
        return FORMATS[name]
    except KeyError:
        known = ", ".join(FORMATS)
        raise ValueError(f"unknown format {name!r}: choose from {known}") from None


def writer_of(name: str, provider: str | None, system_notes: bool) -> tuple[Format, Additions]:
    """Return the format that this provider accepts, and the most that it adds to the rows' texts.

    Args:
        name: The name of the format.
        provider: The provider that will be called.
        system_notes: Whether only the first message may be a system message.

    Raises:
        ValueError: No format has this name.
    """
    written = format_named(name)
    if name == "openai_chat" and (system_notes or provider in openai_chat_format.FILL_IN_TEMPLATES):
        return openai_chat_format.wire_with_notes, openai_chat_format.ADDITIONS
    return written, _ADDITIONS.get(name, Additions())


_ADDITIONS = {"anthropic_messages": anthropic.ADDITIONS}
