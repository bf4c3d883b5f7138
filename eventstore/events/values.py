"""Values that several payloads share: content parts, tool calls, token usage, levels of detail.

A field called ``raw`` keeps a provider's own object verbatim, so that nothing which a provider
or an importer knew is lost, even where this catalogue has no name for it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from eventstore.events.base import JsonObject, Value

__all__ = [
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
    "ToolPolicy",
    "ToolStatus",
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

    participant: str
    text: str
    start: int | None = Field(default=None, ge=0)


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

    digest: str
    size_bytes: int = Field(ge=0)
    media_type: str = "text/plain"


class Invocation(Value):
    """Which model was called: the provider, the API specification it speaks, the model."""

    provider: str | None = None
    specification: str | None = None
    model: str | None = None


class TokenUsage(Value):
    """Token counts; ``reported`` by the provider, otherwise estimated by the writer.

    ``prompt_tokens`` includes ``cached_prompt_tokens``; ``completion_tokens`` includes
    ``reasoning_tokens``.
    """

    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    total_tokens: int | None = Field(default=None, ge=0)
    cached_prompt_tokens: int | None = Field(default=None, ge=0)
    cache_write_tokens: int | None = Field(default=None, ge=0)
    reasoning_tokens: int | None = Field(default=None, ge=0)
    reported: bool = True
    raw: JsonObject | None = None


class ToolCallRequest(Value):
    """A tool call as the model produced it.

    ``arguments_text`` is the model's text, always kept. ``arguments`` is its parsed form, or
    ``parse_error`` says why there is none. ``provider_id`` is not unique within a conversation.
    """

    name: str
    arguments_text: str
    arguments: JsonObject | None = None
    parse_error: str | None = None
    provider_id: str | None = None
    raw: JsonObject | None = None


class ToolCallDelta(Value):
    """A piece of a streamed tool call; ``index`` is its place among the message's calls."""

    index: int = Field(ge=0)
    provider_id: str | None = None
    name: str | None = None
    arguments: str = ""


class PartialToolCall(Value):
    """A tool call that a broken stream left unfinished; it was never executed."""

    index: int = Field(ge=0)
    provider_id: str | None = None
    name: str | None = None
    arguments_text: str = ""


class ToolPolicy(Value):
    """Which tools a conversation may use; ``None`` allows every tool that is not denied."""

    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()
    mcp_allowlist: tuple[str, ...] | None = None
    internal_tools: dict[str, bool] = Field(default_factory=dict)
    text: str | None = None


class Artifact(Value):
    """A thing that a run produced, by path or by value."""

    name: str
    path: str | None = None
    media_type: str | None = None
    content: Any = None


class RunNode(Value):
    """A node of a workflow; ``brief`` tells the model what the node is for."""

    node_id: str
    title: str | None = None
    brief: str | None = None
    depends_on: tuple[str, ...] = ()


class VersionRange(Value):
    """Versions from ``first`` to ``last``, both included."""

    first: int = Field(ge=1)
    last: int = Field(ge=1)
