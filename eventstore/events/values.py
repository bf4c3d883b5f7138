"""Values that several payloads share: content parts, tool calls, token usage, levels of detail.

A field called ``raw`` keeps a provider's own object verbatim, so that nothing which a provider
or an importer knew is lost, even where this catalogue has no name for it.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from eventstore.events.base import JsonObject, Value
from eventstore.events.bounds import Count, Handle, Name, Ordinal, Size

__all__ = [
    "WIDGET_BYTES",
    "Artifact",
    "BlobRef",
    "ContentPart",
    "FilePart",
    "ImagePart",
    "Invocation",
    "LlmErrorKind",
    "Mention",
    "Mode",
    "OtherPart",
    "PartialToolCall",
    "ReasoningPart",
    "RefusalPart",
    "RunNode",
    "Section",
    "Sections",
    "TextPart",
    "TokenUsage",
    "ToolCallDelta",
    "ToolCallRequest",
    "ToolStatus",
    "Ui",
    "VersionRange",
]

Mode = Literal["chat", "agent", "run"]
ToolStatus = Literal["success", "failed", "skipped", "denied", "not_started", "outcome_unknown"]
LlmErrorKind = Literal[
    "timeout", "network", "rate_limit", "provider", "cancelled", "interrupted", "invalid"
]


class TextPart(Value):
    """Plain text."""

    kind: Literal["text"] = "text"
    text: str


class ImagePart(Value):
    """An image by URL (``https:`` or ``data:``)."""

    kind: Literal["image"] = "image"
    url: str
    detail: str | None = None
    media_type: str | None = None


class FilePart(Value):
    """A file by its path, its provider id or its data as a ``data:`` URL."""

    kind: Literal["file"] = "file"
    name: str | None = None
    path: str | None = None
    file_id: str | None = None
    url: str | None = None
    media_type: str | None = None


class ReasoningPart(Value):
    """What the model thought, with the signature that some providers demand back unchanged."""

    kind: Literal["reasoning"] = "reasoning"
    text: str
    signature: str | None = None
    raw: JsonObject | None = None


class RefusalPart(Value):
    """The model's own words for refusing."""

    kind: Literal["refusal"] = "refusal"
    text: str


class OtherPart(Value):
    """A content part that this catalogue has no name for, verbatim."""

    kind: Literal["other"] = "other"
    raw: Any = None


ContentPart = Annotated[
    TextPart | ImagePart | FilePart | ReasoningPart | RefusalPart | OtherPart,
    Field(discriminator="kind"),
]


class Mention(Value):
    """A participant that a user message names (``@reviewer``), and where it stands."""

    participant: Name
    text: str
    start: Count | None = None


class Section(Value):
    """A titled piece of text; an empty key means no title."""

    key: str = ""
    text: str


class Sections(Value):
    """The same content at three levels of detail, each an ordered list of sections.

    ``None`` means that the level was not written; an empty tuple, that it is empty.
    """

    live: tuple[Section, ...]
    summary: tuple[Section, ...] | None = None
    gist: tuple[Section, ...] | None = None


class BlobRef(Value):
    """Where a payload over the threshold is kept: SHA-256 of the bytes, and their count."""

    digest: Name
    size_bytes: Size
    media_type: str = "text/plain"


class Invocation(Value):
    """Which model was called: the provider, the API specification it speaks, the model."""

    provider: Name | None = None
    specification: Name | None = None
    model: Name | None = None


class TokenUsage(Value):
    """Token counts; ``reported`` by the provider, otherwise estimated by the writer.

    ``prompt_tokens`` includes ``cached_prompt_tokens``; ``completion_tokens`` includes
    ``reasoning_tokens``.
    """

    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    total_tokens: Count | None = None
    cached_prompt_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    reported: bool = True
    raw: JsonObject | None = None


class ToolCallRequest(Value):
    """A tool call as the model produced it.

    ``arguments_text`` is the model's text, always kept. ``arguments`` is its parsed form, or
    ``parse_error`` says why there is none. ``provider_id`` is not unique within a conversation.
    """

    name: Name
    arguments_text: str
    arguments: JsonObject | None = None
    parse_error: str | None = None
    provider_id: Handle | None = None
    raw: JsonObject | None = None


class ToolCallDelta(Value):
    """A piece of a streamed tool call; ``index`` is its place among the message's calls."""

    index: Count
    provider_id: Handle | None = None
    name: Name | None = None
    arguments: str = ""


class PartialToolCall(Value):
    """A tool call that a broken stream left unfinished; it was never executed."""

    index: Count
    provider_id: Handle | None = None
    name: Name | None = None
    arguments_text: str = ""


class Artifact(Value):
    """A thing that a run produced, by path or by value."""

    name: Name
    path: str | None = None
    media_type: str | None = None
    content: Any = None


class RunNode(Value):
    """A node of a workflow; ``brief`` tells the model what the node is for."""

    node_id: Name
    title: str | None = None
    brief: str | None = None
    depends_on: tuple[Name, ...] = ()


WIDGET_BYTES = 32_768
"""How large a widget may be, as JSON."""


def _bounded(widget: JsonObject) -> JsonObject:
    size = len(json.dumps(widget, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass"))
    if size > WIDGET_BYTES:
        raise ValueError(
            f"a widget of {size:,} bytes is too large: the limit is {WIDGET_BYTES:,}; keep the "
            "data in an artifact or a tool's result, and name it in the widget"
        )
    return widget


class Ui(Value):
    """How a user interface shows a message; models are never told (document 000, 4.1).

    ``collapsed`` overrules what the timeline folds by default. A collapsed answer whose
    ``part_type`` is neither ``text`` nor ``error`` is an event of the user interface alone: it
    is sent to models only if the settings say ``include_collapsed_ui_events``.
    """

    part_type: str | None = Field(default=None, max_length=64)
    collapsed: bool | None = None
    widget: Annotated[JsonObject, AfterValidator(_bounded)] | None = None


class VersionRange(Value):
    """Versions from ``first`` to ``last``, both included."""

    first: Ordinal
    last: Ordinal


class Quoting(Value):
    """Versions that hold the words of others, by what they are.

    ``input``, ``answer``, ``call``, ``task``, ``summary`` and ``request`` are the recorder's own
    copies; a ``quotation`` repeats a text.
    """

    what: Name
    versions: tuple[VersionRange, ...]
