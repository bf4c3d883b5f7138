"""Payloads of what people and tools say, and of what later requests render.

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
    """What a person (or the product on a person's behalf) said.

    Attributes:
        parts: What was said, in order.
        name: Who said it, where several people speak.
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

    @classmethod
    def text(cls, text: str, **fields: Any) -> UserMessage:
        """Make a message of one text part."""
        return cls(parts=(TextPart(text=text),), **fields)


class ToolCall(Payload):
    """A tool is about to be executed: written, and durable, before it runs.

    ``call_id`` is our own (``<version of the assistant_message>.<index>``). The tool gets the
    ``idempotency_key``, so that it can recognise a second execution of the same call.

    Attributes:
        call_id: Our own id of the call, by which its result names it.
        name: The tool.
        arguments: What the tool is called with; null if the model's text was not a JSON object.
        idempotency_key: What a tool can recognise a second execution by.
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
    """What came of a tool call.

    ``content`` is a text or a list of parts. Text over the store's threshold is moved to a blob
    on append: then ``content`` is None, ``blob`` names the bytes, ``preview`` holds the start of
    the text and ``alias`` the path under which a model may ask for the whole.

    Attributes:
        call_id: The call that it answers.
        status: What came of it; only ``success`` and ``failed`` tell that it ran.
        name: The tool.
        content: What the tool returned; null if it is in the blob.
        blob: Where a large result is kept.
        preview: How a large result begins.
        alias: The path under which a model may ask for the whole.
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
    raw: Any = None
    ui: Ui | None = None


class Summary(Payload):
    """A text that stands in the context for the events of ``versions``; the events stay.

    Attributes:
        text: The summary.
        versions: The events that it stands for.
        strategy: The compression strategy that made it.
        strategy_version: The version of that strategy.
        llm_call_id: The model call that wrote it, if one did.
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

    One that ``continues`` stands behind those before it, instead of replacing them. One that is
    not in the context (`Meta.in_context`) is not an instruction: it is what a transcript once said.

    Attributes:
        text: The instruction.
        role: The role that it is sent with.
        name: The name that it is sent with.
        continues: Whether it stands behind those before it, instead of replacing them.
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
    """The agent's notebook as it now reads; a newer one replaces it.

    Attributes:
        text: The whole notebook.
        name: Which notebook it is.
    """

    type: ClassVar[str] = "notebook"

    text: str
    name: Name = "notebook"


class Retraction(Payload):
    """Versions withdrawn from the context (undo, rewind, pop); the facts stay in the log.

    Attributes:
        versions: The events withdrawn.
    """

    type: ClassVar[str] = "retraction"

    versions: tuple[VersionRange, ...]
    reason: str | None = None


class BranchSwitch(Payload):
    """Another branch of the conversation becomes the active one; each keeps all that was said.

    Attributes:
        reason: What was asked for: a message in other words, its answer again, the state before a
            message, or an alternative that was left before.
        kind: What there are alternatives of: a message with all that followed, or its answer.
        after: The version that the alternatives follow; 0 where there is none.
        left: The version by which the alternative that is left is named, its first.
        turn: The number of that one's turn.
        withdrawn: The events that leave the active branch.
        taken: The version of the alternative that is gone back to; None if a new one begins.
        restored: The events that come back with it.
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
    r"""Return sections as one text, under their titles; one alone, and the screen, have none.

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
    """Return sections without the screen, and the screen; None if there is none."""
    screens = [each.text for each in sections if each.key == LIVE_SCREEN]
    rest = tuple(each for each in sections if each.key != LIVE_SCREEN)
    return rest, screens[-1] if screens else None


def with_live_section(sections: Sections, key: str, text: str) -> Sections:
    """Return sections that have this one among the live ones, in the place of one of its title."""
    section = Section(key=key, text=text)
    if all(each.key != key for each in sections.live):
        return sections.model_copy(update={"live": (*sections.live, section)})
    live = tuple(section if each.key == key else each for each in sections.live)
    return sections.model_copy(update={"live": live})
