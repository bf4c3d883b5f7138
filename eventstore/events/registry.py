"""The payload classes, and the upcasters from their older versions.

`EVENT_TYPES` is the catalogue: a class that is not in it cannot be read back as itself. To change
a payload, raise its ``schema_version``, register the upcaster from the version before, and add
the golden file of the new version (``tests/golden/<type>.v<version>.json``); a type is never
renamed and a golden file never edited.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eventstore.events import content, lifecycle, model, run
from eventstore.events.base import JsonObject, Payload

__all__ = ["EVENT_TYPES", "REGISTRY", "UPCASTERS", "UnknownEvent"]

EVENT_TYPES: tuple[type[Payload], ...] = (
    lifecycle.ConversationStart,
    lifecycle.ConversationFork,
    lifecycle.ConversationUpdate,
    lifecycle.ConversationEnd,
    lifecycle.SessionStart,
    lifecycle.SessionEnd,
    lifecycle.ModeSwitch,
    lifecycle.ModeState,
    lifecycle.TurnStart,
    lifecycle.TurnEnd,
    content.UserMessage,
    model.LlmRequest,
    model.AssistantChunk,
    model.AssistantMessage,
    model.LlmError,
    content.ToolCall,
    content.ToolResult,
    run.RunStart,
    run.RunEnd,
    run.RunStepStart,
    run.RunStepEnd,
    lifecycle.TaskEnqueue,
    lifecycle.TaskStart,
    lifecycle.TaskEnd,
    content.Summary,
    content.SystemInstruction,
    content.Notebook,
    content.Retraction,
    content.BranchSwitch,
    lifecycle.Erasure,
    model.RetainedUsage,
)

REGISTRY: dict[str, type[Payload]] = {cls.type: cls for cls in EVENT_TYPES}


def _unchanged(payload: JsonObject) -> JsonObject:
    """Optional fields were added, so nothing changes."""
    return payload


def _without_digests(erasure: JsonObject) -> JsonObject:
    """The digests of erased blobs are replaced by their count and total size."""
    rest = {name: value for name, value in erasure.items() if name != "blobs"}
    blobs = erasure.get("blobs", [])
    return {
        **rest,
        "blob_count": len(blobs),
        "blob_bytes": sum(blob["size_bytes"] for blob in blobs),
    }


_GOT_METADATA = (lifecycle.ConversationStart, lifecycle.ConversationUpdate)
_GOT_UI = (
    content.UserMessage,
    model.AssistantMessage,
    model.LlmError,
    content.ToolResult,
    content.Summary,
    content.SystemInstruction,
)

UPCASTERS: dict[tuple[str, int], Callable[[JsonObject], JsonObject]] = {
    **{(cls.type, 1): _unchanged for cls in (*_GOT_UI, *_GOT_METADATA)},
    (model.AssistantMessage.type, 2): _unchanged,
    (lifecycle.Erasure.type, 1): _without_digests,
    (lifecycle.Erasure.type, 2): _unchanged,
}
"""For each (type, version), the function that converts a payload to the next version."""


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """A payload that this code cannot interpret, with its JSON value unchanged.

    ``reason`` is None for a type or version from the future; otherwise it says why the payload
    does not fit its class.
    """

    type: str
    schema_version: int
    raw: Any
    reason: str | None = None
