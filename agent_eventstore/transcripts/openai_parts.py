"""The ``content`` of a message in OpenAI's wire format, as parts, and parts as ``content``.

In addition to OpenAI's own parts this reads related ones: items of Responses, AgentDojo's texts,
and thoughts in answers. An unknown part is kept verbatim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eventstore.events import (
    ContentPart,
    FilePart,
    ImagePart,
    OtherPart,
    ReasoningPart,
    RefusalPart,
    TextPart,
)
from projections.payload_text import spoken
from projections.providers.content_blocks import content_part

__all__ = ["known", "parts_by", "parts_of", "text_of", "thought_in", "wire_content", "wire_parts"]


def parts_of(content: Any) -> tuple[ContentPart, ...]:
    """Return the parts of a message's ``content``: a text, a list of parts, or something else."""
    if isinstance(content, list):
        content = [each for each in content if each is not None]
    return parts_by(_part, content)


def parts_by(part: Callable[[Any], ContentPart], content: Any) -> tuple[ContentPart, ...]:
    """Return the parts of a content in which each item of a list is a ``part``; a text is one."""
    if isinstance(content, str):
        return (TextPart(text=content),)
    if not isinstance(content, list):
        return () if content is None else (OtherPart(raw=content),)
    return tuple(map(part, content))


def thought_in(item: Any) -> ReasoningPart | None:
    """Return the thought in a part of an answer, or the summary of an encrypted one.

    Inspect and Mistral use this form.
    """
    if not isinstance(item, dict) or item.get("type") not in ("reasoning", "thinking"):
        return None
    sealed = item.get("redacted") is True
    for key in ("summary",) if sealed else ("reasoning", "thinking", "text"):
        thought = item.get(key)
        if isinstance(thought, str | list) and (text := text_of(thought)):
            return ReasoningPart(text=text)
    return ReasoningPart(text="") if sealed else None


def wire_content(parts: Sequence[ContentPart]) -> str | list[Any] | None:
    """Return ``content`` for parts: null for none, a text for a single text, otherwise a list."""
    if not parts:
        return None
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return wire_parts(parts)


def wire_parts(parts: Sequence[ContentPart]) -> list[Any]:
    """Return parts as OpenAI's list."""
    return [_wire(part) for part in parts]


def text_of(content: Any) -> str:
    """Return the text in a message's ``content``, without other parts."""
    return spoken(parts_of(content))


def _part(item: Any) -> ContentPart:
    return content_part(item) or OtherPart(raw=item)


def _wire(part: ContentPart) -> Any:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            image = {"url": part.url, "detail": part.detail}
            return {"type": "image_url", "image_url": known(image)}
        case FilePart():
            name = part.name or part.path
            file = {"filename": name, "file_id": part.file_id, "file_data": part.url}
            return {"type": "file", "file": known(file)}
        case RefusalPart():
            return {"type": "refusal", "refusal": part.text}
        case ReasoningPart():
            return {"type": "reasoning", "text": part.text}
        case OtherPart():
            return part.raw


def known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {key: value for key, value in fields.items() if value is not None}
