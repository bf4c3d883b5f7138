"""Values that several payloads share: content parts, tool calls, token usage, levels of detail.

A field called ``raw`` keeps a provider's own object verbatim, so that nothing which a provider
or an importer knew is lost, even where this catalogue has no name for it.
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
    "is_mode",
]

MODES = ("chat", "agent", "run")
"""The modes of document 000; a product may have others, by names of its own."""

_MODE = re.compile(r"(?!active\Z)[a-z][a-z0-9_-]{0,63}")  # views have a use for that word


def is_mode(name: object) -> bool:
    """Whether a mode may be called so: small letters, digits, ``_`` and ``-``, at most 64."""
    return isinstance(name, str) and _MODE.fullmatch(name) is not None


def _mode(name: str) -> str:
    if not is_mode(name):
        raise ValueError(
            f"no mode can be called {name!r:.80}: choose from {', '.join(MODES)}, or a name of up "
            "to 64 small letters, digits, _ and -"
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
        url: Where it is, or its data.
        detail: The resolution that a provider is asked for.
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
        path: Where it lies, for the product.
        file_id: The provider's id of it.
        url: Where it is, or its data.
        media_type: Its MIME type.
    """

    kind: Literal["file"] = "file"
    name: str | None = None
    path: str | None = None
    file_id: str | None = None
    url: str | None = None
    media_type: str | None = None


class ReasoningPart(Value):
    """What the model thought, with the signature that some providers demand back unchanged.

    Attributes:
        text: What was thought.
        signature: What some providers demand back unchanged.
    """

    kind: Literal["reasoning"] = "reasoning"
    text: str
    signature: str | None = None
    raw: JsonObject | None = None


class RefusalPart(Value):
    """The model's own words for refusing.

    Attributes:
        text: The refusal.
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


class Mention(Value):
    """A participant that a user message names (``@reviewer``), and where it stands.

    Attributes:
        participant: Who is meant, by id.
        text: The words that name them.
        start: Where they begin in the text, in characters.
    """

    participant: Name
    text: str
    start: Count | None = None


class Section(Value):
    """A titled piece of text; an empty key means no title.

    Attributes:
        key: The title.
        text: What it says.
    """

    key: str = ""
    text: str


class Sections(Value):
    """The same content at three levels of detail, each an ordered list of sections.

    ``None`` means that the level was not written; an empty tuple, that it is empty.

    Attributes:
        live: The whole.
        summary: A shorter form.
        gist: The shortest form.
    """

    live: tuple[Section, ...]
    summary: tuple[Section, ...] | None = None
    gist: tuple[Section, ...] | None = None


class BlobRef(Value):
    """Where a payload over the threshold is kept: SHA-256 of the bytes, and their count.

    Attributes:
        digest: SHA-256 of the bytes.
        size_bytes: How many bytes those are.
        media_type: Their MIME type.
    """

    digest: Name
    size_bytes: Size
    media_type: str = "text/plain"


class Invocation(Value):
    """Which model was called: the provider, the API specification it speaks, the model.

    Attributes:
        provider: Who was asked, such as ``openai``.
        specification: The API that was spoken, such as ``chat_completions``.
        model: The model's name.
    """

    provider: Name | None = None
    specification: Name | None = None
    model: Name | None = None


class TokenUsage(Value):
    """Token counts; ``reported`` by the provider, otherwise estimated by the writer.

    ``prompt_tokens`` includes what was cached, ``completion_tokens`` the reasoning.

    Attributes:
        prompt_tokens: Tokens of the request.
        completion_tokens: Tokens of the answer.
        total_tokens: Both, as the provider added them up.
        cached_prompt_tokens: Those of the request that came from the provider's cache.
        cache_write_tokens: Those that were written to it.
        reasoning_tokens: Those of the answer that nobody was shown.
        reported: Whether the provider said so; otherwise it is an estimate.
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

    Attributes:
        name: The tool.
        arguments_text: The arguments as the model wrote them.
        arguments: The same, parsed.
        parse_error: Why they could not be.
        parse_warning: What was odd about them, though they could be.
    """

    name: Name
    arguments_text: str
    arguments: JsonObject | None = None
    parse_error: str | None = None
    parse_warning: str | None = None
    provider_id: Handle | None = None
    raw: JsonObject | None = None


class ToolCallDelta(Value):
    """A piece of a streamed tool call; ``index`` is its place among the message's calls.

    Attributes:
        index: Which of the message's calls it is a piece of, from 0.
        name: The tool, in the first piece.
        arguments: A piece of the text of the arguments.
    """

    index: Count
    provider_id: Handle | None = None
    name: Name | None = None
    arguments: str = ""


class PartialToolCall(Value):
    """A tool call that a broken stream left unfinished; it was never executed.

    Attributes:
        index: Which of the message's calls it was, from 0.
        name: The tool, if it had arrived.
        arguments_text: What had arrived of the arguments.
    """

    index: Count
    provider_id: Handle | None = None
    name: Name | None = None
    arguments_text: str = ""


class Artifact(Value):
    """A thing that a run produced, by path or by value.

    Attributes:
        name: What it is called in its run.
        path: Where it lies, for the product.
        media_type: Its MIME type.
        content: The thing itself, if it is kept here.
    """

    name: Name
    path: str | None = None
    media_type: str | None = None
    content: Any = None


class RunNode(Value):
    """A node of a workflow; ``brief`` tells the model what the node is for.

    Attributes:
        node_id: The node, by its id in the workflow.
        title: What people are shown.
        brief: What the model is told that it is for.
        depends_on: The nodes that come before it.
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
    """How a user interface shows a message; models are never told (document 000, 4.1).

    ``collapsed`` overrules what the timeline folds by default. A collapsed answer whose
    ``part_type`` is neither ``text`` nor ``error`` is an event of the user interface alone: it
    is sent to models only if the settings say ``include_collapsed_ui_events``.

    Attributes:
        part_type: What the product's user interface shows it as.
        collapsed: Whether it is folded; null leaves that to the timeline.
        widget: An element of the user interface, of at most 32,768 bytes as JSON.
    """

    part_type: str | None = Field(default=None, max_length=64)
    collapsed: bool | None = None
    widget: Annotated[JsonObject, AfterValidator(_bounded)] | None = None


class VersionRange(Value):
    """Versions from ``first`` to ``last``, both included.

    Attributes:
        first: The first version.
        last: The last one, which belongs to it.
    """

    first: Ordinal
    last: Ordinal

    @classmethod
    def of(cls, runs: Iterable[tuple[int, int]]) -> tuple[Self, ...]:
        """Make ranges of first and last versions."""
        return tuple(cls(first=first, last=last) for first, last in runs)


class Quoting(Value):
    """Versions that hold the words of others, by what they are.

    ``input``, ``answer``, ``call``, ``task``, ``summary`` and ``request`` are the recorder's own
    copies; a ``quotation`` repeats a text.

    Attributes:
        what: What they are.
        versions: Which they are.
    """

    what: Name
    versions: tuple[VersionRange, ...]
