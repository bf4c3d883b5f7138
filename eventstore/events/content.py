"""Payloads of messages and tool results, and of text that later requests render.

Sources: document 000 (user input, tool results, summaries), 002 (mentions), 004 (sections by level
of detail, system instruction, notebook).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from eventstore.events.base import JsonObject, Payload
from eventstore.events.bounds import Count, Handle, Name, Ordinal, Size
from eventstore.events.values import (
    BlobRef,
    ContentPart,
    Mention,
    Section,
    Sections,
    TextPart,
    ToolStatus,
    Ui,
    VersionRange,
    is_empty_part,
)

__all__ = [
    "LIVE_SCREEN",
    "BranchSwitch",
    "Notebook",
    "Retraction",
    "Summary",
    "SystemInstruction",
    "ToolCall",
    "ToolResult",
    "UserMessage",
    "to_plain_text",
    "with_live_section",
    "without_live_screen",
]


class UserMessage(Payload):
    """A message from a person, or from the product on a person's behalf.

    Attributes:
        parts: The content of the message, in order.
        name: The speaker, if several people take part.
        mentions: The participants that the message names.
    """

    type: ClassVar[str] = "user_message"
    schema_version: ClassVar[int] = 2

    parts: tuple[ContentPart, ...]
    name: Name | None = None
    mentions: tuple[Mention, ...] = ()
    sections: Sections | None = None
    raw: Any = None
    ui: Ui | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has no content: neither a part nor a section, or only ones without text."""
        sections = () if self.sections is None else self.sections.live
        return all(map(is_empty_part, self.parts)) and not any(each.text for each in sections)

    @classmethod
    def text(cls, text: str, **fields: Any) -> UserMessage:
        """Create a message with one text part."""
        return cls(parts=(TextPart(text=text),), **fields)


class ToolCall(Payload):
    """A tool is about to be executed; the event is durable before the tool runs.

    ``call_id`` is the store's own id (``<version of the assistant_message>.<index>``). The tool
    gets the ``idempotency_key``, so that it can detect a second execution of the same call.

    Attributes:
        call_id: The store's own id of the call; its result refers to it.
        name: The tool.
        arguments: The arguments of the call; null if the model's text was not a JSON object.
        idempotency_key: A key by which the tool can detect a second execution.
        idempotent: Whether the call may be executed again after a crash.
    """

    type: ClassVar[str] = "tool_call"

    call_id: Name
    name: Name
    arguments: JsonObject | None = None
    provider_id: Handle | None = None
    idempotency_key: Name | None = None
    idempotent: bool = False


class ToolResult(Payload):
    """The outcome of a tool call.

    ``content`` is text or a list of parts. Text over the store's threshold is moved to a blob
    on append: then ``content`` is None, ``blob`` names the bytes, ``preview`` holds the start of
    the text, and ``alias`` is the path by which a model may request the full text.

    Attributes:
        call_id: The call that it answers.
        status: The outcome; only ``success`` and ``failed`` mean that the tool ran.
        name: The tool.
        content: The tool's return value; null if it is in the blob.
        blob: Where a large result is stored.
        preview: The beginning of a large result.
        alias: The path by which a model may request the full text.
        interim: Whether the tool goes on, and a later result will replace this one.
    """

    type: ClassVar[str] = "tool_result"
    schema_version: ClassVar[int] = 2

    call_id: Name
    status: ToolStatus = "success"
    name: Name | None = None
    content: str | tuple[ContentPart, ...] | None = None
    blob: BlobRef | None = None
    preview: str | None = None
    alias: Name | None = None
    error: str | None = None
    sections: Sections | None = None
    duration_ms: Size | None = None
    provider_id: Handle | None = None
    interim: bool = False
    raw: Any = None
    ui: Ui | None = None


class Summary(Payload):
    """A text that replaces the events of ``versions`` in the context; the events stay in the log.

    Attributes:
        text: The summary.
        versions: The events that it replaces.
        strategy: The compression strategy that created it.
        strategy_version: The version of that strategy.
        llm_call_id: The model call that wrote it, if any.
    """

    type: ClassVar[str] = "summary"
    schema_version: ClassVar[int] = 2

    text: str
    versions: tuple[VersionRange, ...]
    strategy: Name | None = None
    strategy_version: Name | None = None
    llm_call_id: Name | None = None
    raw: Any = None
    ui: Ui | None = None


class SystemInstruction(Payload):
    """Text that later requests render as the system part; a newer one replaces it.

    An instruction that ``continues`` is added after the earlier ones instead of replacing them. One
    that is not in the context (`Meta.in_context`) has no effect: it records an old transcript.

    Attributes:
        text: The instruction.
        role: The role that it is sent with.
        name: The name that it is sent with.
        continues: Whether it is added after the earlier ones instead of replacing them.
    """

    type: ClassVar[str] = "system_instruction"
    schema_version: ClassVar[int] = 2

    text: str
    role: Literal["system", "developer"] = "system"
    name: Name | None = None
    continues: bool = False
    raw: Any = None
    ui: Ui | None = None


class Notebook(Payload):
    """The agent's notebook in its current form; a newer one replaces it.

    Attributes:
        text: The whole notebook.
        name: The name of the notebook.
    """

    type: ClassVar[str] = "notebook"

    text: str
    name: Name = "notebook"


class Retraction(Payload):
    """Versions withdrawn from the context (undo, rewind, pop); the facts stay in the log.

    Messages that were edited or moved are recorded again after their retraction, as ``replaced_by``
    says. They count once in usage and lists, and the audit table shows only the later calls.

    Attributes:
        versions: The withdrawn events.
        replaced_by: The later events that record the withdrawn messages again.
    """

    type: ClassVar[str] = "retraction"

    versions: tuple[VersionRange, ...]
    reason: str | None = None
    replaced_by: tuple[VersionRange, ...] = ()


class BranchSwitch(Payload):
    """Another branch of the conversation becomes active; every branch keeps its events.

    Attributes:
        reason: The operation: edit a message, regenerate its answer, rewind to the state before a
            message, or switch to an alternative that was left before.
        kind: What the alternatives are of: a message with everything after it, or its answer.
        after: The version that the alternatives follow; 0 if there is none.
        left: The first version of the alternative that is left, which identifies it.
        turn: The number of that alternative's turn.
        withdrawn: The events that leave the active branch.
        taken: The version of the alternative to return to; None if a new one begins.
        restored: The events that return with it.
    """

    type: ClassVar[str] = "branch_switch"

    reason: Literal["edit", "regenerate", "rewind", "switch"]
    kind: Literal["message", "answer"]
    after: Count = 0
    left: Ordinal | None = None
    turn: Ordinal | None = None
    withdrawn: tuple[VersionRange, ...] = ()
    taken: Ordinal | None = None
    restored: tuple[VersionRange, ...] = ()


LIVE_SCREEN = "[LiveScreen]"
"""The title of the section that holds the screen."""


def to_plain_text(sections: Sequence[Section]) -> str:
    r"""Join sections into one text with titles. A single section and the screen get no title.

    >>> to_plain_text([Section(key="Task", text="Sort."), Section(text="Fast.")])
    '# Task\nSort.\n\nFast.'
    """
    if len(sections) == 1:
        return sections[0].text
    return "\n\n".join(
        f"# {each.key}\n{each.text}" if each.key not in ("", LIVE_SCREEN) else each.text
        for each in sections
    )


def without_live_screen(sections: Sequence[Section]) -> tuple[tuple[Section, ...], str | None]:
    """Return the sections without the screen, and the screen's text or None."""
    screens = [each.text for each in sections if each.key == LIVE_SCREEN]
    rest = tuple(each for each in sections if each.key != LIVE_SCREEN)
    return rest, screens[-1] if screens else None


def with_live_section(sections: Sections, key: str, text: str) -> Sections:
    """Return the sections with this one added to the live ones, replacing one of the same title."""
    section = Section(key=key, text=text)
    if all(each.key != key for each in sections.live):
        return sections.model_copy(update={"live": (*sections.live, section)})
    live = tuple(section if each.key == key else each for each in sections.live)
    return sections.model_copy(update={"live": live})
