"""Values that several payloads share: content parts, tool calls, token usage, levels of detail.

A field called ``raw`` keeps a provider's own object verbatim, so that no data of a provider
or importer is lost, even if this catalogue has no name for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field

from eventstore.events.base import JsonObject, Value
from eventstore.events.bounds import Count, Handle, Name, Ordinal, Size

__all__ = [
    "MODES",
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
    "is_empty_part",
    "is_mode",
]

MODES = ("chat", "agent", "run")
"""The modes of document 000; a product may define others."""

_MODE = re.compile(r"(?!active\Z)[a-z][a-z0-9_-]{0,63}")  # views use this word themselves


def is_mode(name: object) -> bool:
    """Whether a name is a valid mode: up to 64 lowercase letters, digits, ``_`` and ``-``."""
    return isinstance(name, str) and _MODE.fullmatch(name) is not None


def _mode(name: str) -> str:
    if not is_mode(name):
        raise ValueError(
            f"{name!r:.80} is not a valid mode: choose from {', '.join(MODES)}, or a name of up "
            "to 64 lowercase letters, digits, _ and -"
        )
    return name


Mode = Annotated[str, AfterValidator(_mode)]
"""The name of a mode; see `MODES`."""

ToolStatus = Literal["success", "failed", "skipped", "denied", "not_started", "outcome_unknown"]
LlmErrorKind = Literal[
    "timeout", "network", "rate_limit", "provider", "cancelled", "interrupted", "invalid"
]


class TextPart(Value):
    """Plain text.

    Attributes:
        text: The text.
    """

    kind: Literal["text"] = "text"
    text: str


class ImagePart(Value):
    """An image by URL (``https:`` or ``data:``).

    Attributes:
        url: Its address, or its data.
        detail: The resolution requested from the provider.
        media_type: Its MIME type.
    """

    kind: Literal["image"] = "image"
    url: str
    detail: str | None = None
    media_type: str | None = None


class FilePart(Value):
    """A file by its path, its provider id or its data as a ``data:`` URL.

    Attributes:
        name: Its name.
        path: Its path, as the product knows it.
        file_id: The provider's id of the file.
        url: Its address, or its data.
        media_type: Its MIME type.
    """

    kind: Literal["file"] = "file"
    name: str | None = None
    path: str | None = None
    file_id: str | None = None
    url: str | None = None
    media_type: str | None = None


class ReasoningPart(Value):
    """The model's reasoning, with the signature that some providers require back unchanged.

    Attributes:
        text: The text of the reasoning.
        signature: The signature that some providers require back unchanged.
    """

    kind: Literal["reasoning"] = "reasoning"
    text: str
    signature: str | None = None
    raw: JsonObject | None = None


class RefusalPart(Value):
    """The model's refusal.

    Attributes:
        text: The text of the refusal.
    """

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


def is_empty_part(part: ContentPart) -> bool:
    """Whether a part is a text without a character, and nothing but that."""
    if isinstance(part, TextPart | RefusalPart):
        return not part.text
    return isinstance(part, ReasoningPart) and not (part.text or part.signature or part.raw)


class Mention(Value):
    """A participant that a user message names (``@reviewer``), and the place in the text.

    Attributes:
        participant: The id of the participant.
        text: The text of the mention.
        start: Where the mention begins in the text, in characters.
    """

    participant: Name
    text: str
    start: Count | None = None


class Section(Value):
    """A titled piece of text; an empty key means no title.

    Attributes:
        key: The title.
        text: The text.
    """

    key: str = ""
    text: str


class Sections(Value):
    """The same content at three levels of detail, each an ordered list of sections.

    ``None`` means that the level was not written; an empty tuple means that it is empty.

    Attributes:
        live: The full content.
        summary: A shorter form.
        gist: The shortest form.
    """

    live: tuple[Section, ...]
    summary: tuple[Section, ...] | None = None
    gist: tuple[Section, ...] | None = None


class BlobRef(Value):
    """A reference to a payload over the threshold: SHA-256 of the bytes, and their number.

    Attributes:
        digest: SHA-256 of the bytes.
        size_bytes: The number of bytes.
        media_type: Their MIME type.
    """

    digest: Name
    size_bytes: Size
    media_type: str = "text/plain"


class Invocation(Value):
    """The model that was called: the provider, the API specification, the model's name.

    Attributes:
        provider: The provider that was called, such as ``openai``.
        specification: The API specification that was used, such as ``openai_chat``.
        model: The model's name.
    """

    provider: Name | None = None
    specification: Name | None = None
    model: Name | None = None


class TokenUsage(Value):
    """Token counts; ``reported`` by the provider, otherwise estimated by the writer.

    ``prompt_tokens`` includes cached tokens, ``completion_tokens`` includes reasoning.

    Attributes:
        prompt_tokens: Tokens of the request.
        completion_tokens: Tokens of the answer.
        total_tokens: The total, as the provider reported it.
        cached_prompt_tokens: Request tokens that came from the provider's cache.
        cache_write_tokens: Request tokens that were written to that cache.
        reasoning_tokens: Answer tokens that were not shown.
        reported: Whether the provider reported the counts; otherwise they are estimates.
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
    ``parse_error`` says why parsing failed. ``provider_id`` is not unique within a conversation.

    Attributes:
        name: The tool.
        arguments_text: The arguments as the model wrote them.
        arguments: The parsed arguments.
        parse_error: Why they could not be parsed, without a sentence around it: such as
            ``Expecting value: line 1 column 1 (char 0)``, or ``nested too deeply``.
        parse_warning: What was unusual about them, if they could be parsed.
        long_running: Whether the tool goes on after it has returned: each result of the call
            replaces the one before.
    """

    name: Name
    arguments_text: str
    arguments: JsonObject | None = None
    parse_error: str | None = None
    parse_warning: str | None = None
    provider_id: Handle | None = None
    long_running: bool = False
    raw: JsonObject | None = None


class ToolCallDelta(Value):
    """A delta of a streamed tool call; ``index`` is the call's place among the message's calls.

    Attributes:
        index: The index of the call within the message, from 0.
        name: The tool, in the first delta.
        arguments: A piece of the arguments' text.
    """

    index: Count
    provider_id: Handle | None = None
    name: Name | None = None
    arguments: str = ""


class PartialToolCall(Value):
    """A tool call that a broken stream left unfinished; it was never executed.

    Attributes:
        index: The index of the call within the message, from 0.
        name: The tool, if its name had arrived.
        arguments_text: The part of the arguments that had arrived.
    """

    index: Count
    provider_id: Handle | None = None
    name: Name | None = None
    arguments_text: str = ""


class Artifact(Value):
    """An artifact that a run produced, by path or by value.

    Attributes:
        name: Its name within the run.
        path: Its path, as the product knows it.
        media_type: Its MIME type.
        content: The artifact itself, if it is stored by value.
    """

    name: Name
    path: str | None = None
    media_type: str | None = None
    content: Any = None


class RunNode(Value):
    """A node of a workflow; ``brief`` describes its purpose to the model.

    Attributes:
        node_id: The node, by its id in the workflow.
        title: The title shown to people.
        brief: Describes the purpose of the node to the model.
        depends_on: The nodes that must come before it.
    """

    node_id: Name
    title: str | None = None
    brief: str | None = None
    depends_on: tuple[Name, ...] = ()


WIDGET_BYTES = 32_768  # as JSON


def _bounded(widget: JsonObject) -> JsonObject:
    size = len(json.dumps(widget, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass"))
    if size > WIDGET_BYTES:
        raise ValueError(
            f"a widget of {size:,} bytes is too large: the limit is {WIDGET_BYTES:,}; keep the "
            "data in an artifact or a tool's result, and name it in the widget"
        )
    return widget


class Ui(Value):
    """How a user interface shows a message; never sent to a model (document 000, 4.1).

    ``collapsed`` overrides the timeline's default. A collapsed answer whose
    ``part_type`` is neither ``text`` nor ``error`` is an event for the user interface only: it
    is sent to models only if the settings include ``include_collapsed_ui_events``.

    Attributes:
        part_type: The kind of element that the product's user interface shows.
        collapsed: Whether it is shown collapsed; null leaves that to the timeline.
        widget: An element of the user interface, at most 32,768 bytes as JSON.
    """

    part_type: str | None = Field(default=None, max_length=64)
    collapsed: bool | None = None
    widget: Annotated[JsonObject, AfterValidator(_bounded)] | None = None


class VersionRange(Value):
    """Versions from ``first`` to ``last``, both included.

    Attributes:
        first: The first version.
        last: The last version, inclusive.
    """

    first: Ordinal
    last: Ordinal

    @classmethod
    def of(cls, runs: Iterable[tuple[int, int]]) -> tuple[Self, ...]:
        """Create ranges from pairs of first and last versions."""
        return tuple(cls(first=first, last=last) for first, last in runs)


class Quoting(Value):
    """Versions that repeat the text of other events, by kind.

    ``input``, ``answer``, ``call``, ``task``, ``summary`` and ``request`` are the recorder's own
    copies; a ``quotation`` repeats a text, and ``unreadable`` events may repeat one.

    Attributes:
        what: Their kind.
        versions: The versions.
    """

    what: Name
    versions: tuple[VersionRange, ...]
