"""The content of a message in ChatGPT's export, by its type: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_eventstore.formats.json_fields import object_in, text_at
from eventstore.events import ContentPart, FilePart, OtherPart, ReasoningPart, TextPart
from projections.engine.folding import spoken

__all__ = ["FINISHED", "parts_of", "slim", "text_in"]

FINISHED = {"stop": "stop", "max_tokens": "length", "interrupted": "interrupted"}
"""Finish reasons, with the names of OpenAI's API where it has one."""

_TEXTS = {
    "code": ("text",),
    "execution_output": ("text",),
    "computer_output": ("text",),
    "system_error": ("name", "text"),
    "tether_quote": ("title", "url", "text"),
    "tether_browsing_display": ("result", "summary"),
    "sonic_webpage": ("title", "url", "text"),
    "user_editable_context": ("user_profile", "user_instructions"),
    "model_editable_context": ("model_set_context",),
}
"""For each type of content, the fields whose texts are used."""

_FILES = ("image_asset_pointer", "audio_asset_pointer", "video_container_asset_pointer")


def parts_of(content: Mapping[str, Any]) -> tuple[ContentPart, ...]:
    """Return the parts of a message's content; an empty list if it has none."""
    kind = text_at(content, "content_type")
    listed = content.get("parts")
    if kind in ("text", "multimodal_text") and isinstance(listed, list):
        return tuple(part for each in listed if (part := _part(each)) is not None)
    if kind == "thoughts" and isinstance(told := content.get("thoughts"), list):
        return tuple(_thought(each) for each in told)
    if kind in _TEXTS:
        said = [text for key in _TEXTS[kind] if (text := text_at(content, key))]
        return (TextPart(text="\n".join(said)),) if said else ()
    return (_other(content),) if content else ()


def text_in(parts: Sequence[ContentPart], *, alone: bool = False) -> Any:
    """Return the text of parts; with ``alone``, None if they hold anything else too."""
    if alone and not all(isinstance(part, TextPart) for part in parts):
        return None
    return spoken(parts)


def slim(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without the text that its event holds."""
    content = object_in(message, "content")
    parts = content.get("parts")
    if isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], str):
        return {**message, "content": {**content, "parts": None}}
    if _TEXTS.get(text_at(content, "content_type") or "") == ("text",) and text_at(content, "text"):
        return {**message, "content": {**content, "text": None}}
    return dict(message)


def _part(value: Any) -> ContentPart | None:
    if isinstance(value, str):
        return TextPart(text=value) if value else None
    kind = text_at(value, "content_type")
    if kind == "audio_transcription" and (text := text_at(value, "text")) is not None:
        return TextPart(text=text)
    if kind in _FILES and (path := text_at(value, "asset_pointer")) is not None:
        return FilePart(path=path)
    return None if value is None else _other(value)


def _thought(value: Any) -> ContentPart:
    said = [text for key in ("summary", "content") if (text := text_at(value, key))]
    return ReasoningPart(text="\n".join(said)) if said else _other(value)


def _other(value: Any) -> OtherPart:
    """Return uninterpreted content, with its type where `LeftOut` counts it."""
    kind = text_at(value, "content_type")
    return OtherPart(raw=value if kind is None else {"type": kind, **value})
