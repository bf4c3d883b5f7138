"""The conversations of a scheduler, as ``conv.list`` and ``conv.history`` show them.

A conversation belongs to a scheduler once a task was enqueued for it; one that was destroyed is
shown no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any
from uuid import UUID

from agent_eventstore.scheduling.queue import TaskQueue
from eventstore.events import (
    AssistantMessage,
    ContentPart,
    ImagePart,
    JsonObject,
    TextPart,
    UserMessage,
)
from eventstore.ids import uuid_in
from projections import Views

__all__ = ["Members"]


class Members:
    """The root conversation, and those that tasks were enqueued for.

    Args:
        views: The store's views.
        root: The root conversation.
        queue: The scheduler's queue.
    """

    def __init__(self, views: Views, root: UUID, queue: TaskQueue) -> None:
        self._views, self._root, self._queue = views, root, queue

    def find(self, conversation_id: str) -> UUID | None:
        """Return the id of a conversation that exists; None if none has this id."""
        wanted = uuid_in(conversation_id)
        return wanted if wanted in self._ids() and self._row(wanted) is not None else None

    def listed(self) -> list[JsonObject]:
        """Return id, number of messages and last activity of each, in the order of their coming."""
        found = ((each, self._row(each)) for each in self._ids())
        return [
            {
                "id": str(each),
                "message_count": len(self.history(each)),
                "last_active_at": _rfc3339(row["last_activity_at"]),
            }
            for each, row in found
            if row is not None
        ]

    def history(self, conversation_id: UUID, limit: int | None = None) -> list[JsonObject]:
        """Return what was said in a conversation, by users and the model, and nothing of tools.

        Args:
            conversation_id: One of them.
            limit: Only so many, of the latest.
        """
        shown = {
            item.message_version
            for item in self._views.timeline(conversation_id)
            if item.kind in ("user", "assistant") and item.status != "withdrawn"
        }
        entries = [
            entry
            for event in self._views.store.read(conversation_id)
            if event.version in shown and (entry := _entry(event.data)) is not None
        ]
        return entries if limit is None else entries[-limit:]

    def _ids(self) -> list[UUID]:
        targets = (uuid_in(task.target_conversation_id or "") for task in self._queue.all())
        return list(dict.fromkeys((self._root, *(each for each in targets if each is not None))))

    def _row(self, conversation_id: UUID) -> dict[str, Any] | None:
        rows = self._views.rows("directory", conversation_id=conversation_id)
        return next((row for row in rows if row["status"] not in ("destroyed", "erased")), None)


def _entry(said: object) -> JsonObject | None:
    if not isinstance(said, UserMessage | AssistantMessage):
        return None
    entry: JsonObject = {"role": "user" if isinstance(said, UserMessage) else "assistant"}
    if text := _text(said.parts):
        entry["text"] = text
    images = [part.url for part in said.parts if isinstance(part, ImagePart)]
    entry["attachments"] = [{"type": "image", "image_url": url} for url in images]
    return entry if text or images else None


def _text(parts: Sequence[ContentPart]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


def _rfc3339(moment: Any) -> str:
    return str(moment.astimezone(UTC).isoformat(timespec="milliseconds")).replace("+00:00", "Z")
