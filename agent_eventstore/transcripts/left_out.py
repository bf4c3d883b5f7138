"""What an import leaves out, counted by kind; `Transcript`s and reports have it.

A line that did not become an event is either known to carry no content, or unknown. A message or a
piece of its content that is not understood becomes an event and is kept verbatim; models see at
most its type.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from eventstore.events import AssistantMessage, OtherPart, ToolResult, UnknownEvent, UserMessage
from eventstore.events.own import UNINTERPRETED
from eventstore.events.records import EventData
from projections.provider_actions import mention

__all__ = ["UI_MESSAGE", "LeftOut"]

UI_MESSAGE = "ui_message"
"""The key in ``raw`` under which a message of the AI SDK is kept verbatim."""

_LONGEST_KIND, _MOST_KINDS = 80, 100
_OF_NO_CALL = "0."
_UI_PARTS = re.compile(
    "type (text|reasoning|file|step-start|dynamic-tool|source-(url|document)|(tool|data)-.+)$",
    re.DOTALL,
)


@dataclass(slots=True)
class LeftOut:
    """What an import leaves out, counted by kind: lines that did not become events, and more.

    Attributes:
        passed_over: Lines or messages that say nothing about the conversation, such as snapshots of
            files.
        unknown: Lines whose meaning is unknown.
        uninterpreted: Messages, and pieces of their content, that are kept verbatim because their
            meaning is unknown; a model sees at most the type of such a piece.
    """

    passed_over: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    uninterpreted: Counter[str] = field(default_factory=Counter)

    def __iadd__(self, other: LeftOut) -> Self:
        """Add what was left out of another file."""
        self.passed_over += other.passed_over
        self.unknown += other.unknown
        self.uninterpreted += other.uninterpreted
        return self

    def note(self, kind: Any, *, known: bool) -> None:
        """Count a line; after a hundred kinds, all further kinds count as one."""
        _count(self.passed_over if known else self.unknown, kind)

    def note_event(self, data: EventData) -> None:
        """Count what an event keeps verbatim, except a product's own types, which contain a dot."""
        raw = getattr(data, "raw", None)
        fields = raw if isinstance(raw, Mapping) else {}
        for part in _ui_parts_in(fields):
            _count(self.uninterpreted, f"part of {_kind_of(part)}")
        if isinstance(data, UnknownEvent):
            if data.type in UNINTERPRETED and len(fields) == 1:
                _count(self.uninterpreted, f"message of {_kind_of(*fields.values())}")
        elif isinstance(data, UserMessage | AssistantMessage | ToolResult):
            if isinstance(data, ToolResult) and data.call_id.startswith(_OF_NO_CALL):
                _count(self.uninterpreted, "result without a call before it")
            parts = data.content if isinstance(data, ToolResult) else data.parts
            for part in parts or () if not isinstance(parts, str) else ():
                if isinstance(part, OtherPart):
                    kind = _kind_of(part.raw)
                    if mention(part.raw) in ("[other content]", f"[{kind.removeprefix('type ')}]"):
                        _count(self.uninterpreted, f"content of {kind}")


def _ui_parts_in(raw: Mapping[str, Any]) -> list[Any]:
    """Return the parts of an AI SDK message whose type is unknown."""
    message = raw.get(UI_MESSAGE)
    parts = message.get("parts") if isinstance(message, Mapping) else None
    return [part for part in parts or () if not _UI_PARTS.match(_kind_of(part))]


def _kind_of(raw: Any) -> str:
    """Return the name under which to count an uninterpreted piece."""
    for key in ("type", "role", "from", "action", "observation", "kind"):
        if isinstance(raw, Mapping) and isinstance(kind := raw.get(key), str):
            return f"{key} {kind}"
    return "no type"


def _count(counts: Counter[str], kind: Any) -> None:
    name = kind[:_LONGEST_KIND] if isinstance(kind, str) else "without a type"
    counts[name if name in counts or len(counts) < _MOST_KINDS else "of other kinds"] += 1
