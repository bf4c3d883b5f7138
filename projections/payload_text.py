"""The text of payloads: what people and models read of parts, sections and results."""

from __future__ import annotations

from collections.abc import Iterable

from eventstore.events import (
    ContentPart,
    FilePart,
    ImagePart,
    OtherPart,
    ReasoningPart,
    RefusalPart,
    Sections,
    TextPart,
    ToolResult,
)
from projections.provider_actions import mention

__all__ = ["SEALS", "answer_text", "result_text", "sections_text", "spoken", "text_of"]

SEALS = frozenset({"not_started", "outcome_unknown"})
"""Statuses of stand-ins for a result; a later real result replaces them."""


def text_of(parts: Iterable[ContentPart], *, joint: str = "\n") -> str:
    """Return parts as text, with short placeholders for images, files and other content."""
    return joint.join([part.text if type(part) is TextPart else _part_text(part) for part in parts])


def spoken(parts: Iterable[ContentPart], *, joint: str = "\n") -> str:
    """Return the text parts; all other parts, including reasoning, are skipped."""
    return joint.join(part.text for part in parts if isinstance(part, TextPart))


def answer_text(parts: Iterable[ContentPart]) -> str:
    """Return the text of an answer, without its reasoning.

    If the answer has no text, describe the actions of the provider's own tools instead.
    """
    visible = [part for part in parts if type(part) is not ReasoningPart]
    spoken = text_of([part for part in visible if type(part) is not OtherPart], joint="")
    acts = [] if spoken else [mention(part.raw) for part in visible if type(part) is OtherPart]
    return spoken or "\n".join(filter(None, acts))


def _part_text(part: ContentPart) -> str:
    match part:
        case TextPart() | ReasoningPart() | RefusalPart():
            return part.text
        case ImagePart():
            return "[image]"
        case FilePart():
            return f"[file: {part.name or part.path or part.file_id or 'unnamed'}]"
        case OtherPart():
            return "[other content]"


def sections_text(sections: Sections | None) -> str:
    """Return the most detailed level of sections as text; empty if there are none."""
    return "\n\n".join(section.text for section in sections.live) if sections else ""


def result_text(result: ToolResult) -> str | None:
    """Return a result's content as text; for a result in a blob, the preview."""
    if isinstance(result.content, str):
        return result.content
    if result.content is not None:
        return text_of(result.content)
    return result.preview if result.preview is not None else sections_text(result.sections) or None
