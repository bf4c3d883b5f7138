"""What a namespace of LangGraph's long-term memory holds, folded from its events: pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from agent_eventstore.integrations.langgraph_events import LanggraphItem
from eventstore import RecordedEvent
from eventstore.events.codec import dumps_json, loads_json

__all__ = ["Held", "Items", "Namespace", "fields_of"]

Namespace = tuple[str, ...]


class Held(NamedTuple):
    """An item: the version of its event, its JSON, and when it was put first and last."""

    version: int
    text: str
    created_at: datetime
    updated_at: datetime


class Items:
    """What a namespace holds by key, up to a version."""

    def __init__(self) -> None:
        self.version, self.chain = 0, b""
        self.held: dict[str, Held] = {}

    def fold(self, event: RecordedEvent) -> None:
        """Take in what comes next."""
        self.version, self.chain, data = event.version, event.chain, event.data
        if isinstance(data, LanggraphItem):
            before, at = self.held.pop(data.key, None), event.recorded_at
            if data.value is not None:
                created = at if before is None else before.created_at
                text = dumps_json(data.value)
                self.held[data.key] = Held(event.version, text, created, at)


def fields_of(namespace: Namespace, key: str, held: Held) -> dict[str, Any]:
    """Return what an `Item` is made of; its value is the reader's own."""
    return {
        "namespace": namespace,
        "key": key,
        "value": loads_json(held.text),
        "created_at": held.created_at,
        "updated_at": held.updated_at,
    }
