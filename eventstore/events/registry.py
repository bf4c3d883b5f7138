"""Which payload classes exist, and how older versions of them become current ones.

`EVENT_TYPES` is the catalogue: a class that is not in it cannot be read back as itself. To change
a payload, raise its ``schema_version``, register the upcaster from the version before, and add
the golden file of the new version (``tests/golden/<type>.v<version>.json``); a type is never
renamed and a golden file never edited.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eventstore.events.base import JsonObject, Payload
from eventstore.events.content import (
    BranchSwitch,
    Notebook,
    Retraction,
    Summary,
    SystemInstruction,
    ToolCall,
    ToolResult,
    UserMessage,
)
from eventstore.events.lifecycle import (
    ConversationEnd,
    ConversationFork,
    ConversationStart,
    ConversationUpdate,
    Erasure,
    ModeState,
    ModeSwitch,
    SessionEnd,
    SessionStart,
    TaskEnd,
    TaskEnqueue,
    TaskStart,
    TurnEnd,
    TurnStart,
)
from eventstore.events.model import (
    AssistantChunk,
    AssistantMessage,
    KeptUsage,
    LlmError,
    LlmRequest,
)
from eventstore.events.runs import RunEnd, RunStart, RunStepEnd, RunStepStart

__all__ = ["EVENT_TYPES", "REGISTRY", "UPCASTERS", "UnknownEvent"]

EVENT_TYPES: tuple[type[Payload], ...] = (
    ConversationStart,
    ConversationFork,
    ConversationUpdate,
    ConversationEnd,
    SessionStart,
    SessionEnd,
    ModeSwitch,
    ModeState,
    TurnStart,
    TurnEnd,
    UserMessage,
    LlmRequest,
    AssistantChunk,
    AssistantMessage,
    LlmError,
    ToolCall,
    ToolResult,
    RunStart,
    RunEnd,
    RunStepStart,
    RunStepEnd,
    TaskEnqueue,
    TaskStart,
    TaskEnd,
    Summary,
    SystemInstruction,
    Notebook,
    Retraction,
    BranchSwitch,
    Erasure,
    KeptUsage,
)

REGISTRY: dict[str, type[Payload]] = {cls.type: cls for cls in EVENT_TYPES}


def _unchanged(payload: JsonObject) -> JsonObject:
    """Fields that may be missing were added; there is nothing to fill in."""
    return payload


def _without_digests(erasure: JsonObject) -> JsonObject:
    """The digests of what is gone are counted, and no longer shown."""
    rest = {name: value for name, value in erasure.items() if name != "blobs"}
    blobs = erasure.get("blobs", [])
    return {
        **rest,
        "blob_count": len(blobs),
        "blob_bytes": sum(blob["size_bytes"] for blob in blobs),
    }


_GOT_METADATA = (ConversationStart, ConversationUpdate)
_GOT_UI = (UserMessage, AssistantMessage, LlmError, ToolResult, Summary, SystemInstruction)

UPCASTERS: dict[tuple[str, int], Callable[[JsonObject], JsonObject]] = {
    **{(cls.type, 1): _unchanged for cls in (*_GOT_UI, *_GOT_METADATA)},
    (AssistantMessage.type, 2): _unchanged,
    (Erasure.type, 1): _without_digests,
    (Erasure.type, 2): _unchanged,
}
"""From (type, version) to the function that returns the payload of the version after it."""


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """A payload that this code cannot interpret, with its JSON value as it was written.

    ``reason`` is None for a type or version from the future, and tells otherwise why the payload
    does not fit its class.
    """

    type: str
    schema_version: int
    raw: Any
    reason: str | None = None
