"""Messages of no provider with what their events say of them besides (document 004)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from eventstore import EventStore
from eventstore.events import (
    AssistantMessage,
    JsonObject,
    RecordedEvent,
    TextPart,
    ToolResult,
)

__all__ = ["with_facts"]


def with_facts(
    store: EventStore, conversation_id: UUID, messages: Iterable[Mapping[str, Any]]
) -> tuple[JsonObject, ...]:
    """Return messages of the format ``neutral``, each with what its events say besides.

    Reads the events between the first message and the last.
    """
    held = [*messages]
    versions = {version for message in held for version in message["versions"]}
    events: dict[int, RecordedEvent] = {}
    if versions:
        span = store.read(conversation_id, after=min(versions) - 1, before=max(versions) + 1)
        events = {event.version: event for event in span if event.version in versions}
    return tuple(_told(message, events) for message in held)


def _told(message: Mapping[str, Any], events: Mapping[int, RecordedEvent]) -> JsonObject:
    own = [events[version] for version in message["versions"] if version in events]
    last = own[-1] if own else None
    said = last.data if last is not None and isinstance(last.data, AssistantMessage) else None
    invocation = said.invocation if said is not None else None
    parts = said.parts if said is not None else ()
    return {
        **message,
        "timestamp": None if last is None else last.occurred_at.isoformat(),
        "metadata": {} if last is None else dict(last.meta.extra or {}),
        "invocation": None if invocation is None else invocation.model_dump(mode="json"),
        "contents": [part.text for part in parts if isinstance(part, TextPart)],
        "execute_error": _error([each.data for each in own if isinstance(each.data, ToolResult)]),
    }


def _error(results: list[ToolResult]) -> str | None:
    """Return why a whole batch of tool calls failed; None if one of them went well."""
    if not results or any(each.status == "success" for each in results):
        return None
    told = (
        each.error or (each.content if isinstance(each.content, str) else "") for each in results
    )
    return "; ".join(dict.fromkeys(filter(None, told))) or results[0].status
