"""Pydantic AI: conversations, and runs that are saved while they go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventstore.lazy import exports

if TYPE_CHECKING:
    from agent_eventstore.integrations.pydantic_ai.conversations import (
        EventStoreConversations,
        MessageNotFound,
    )
    from agent_eventstore.integrations.pydantic_ai.saving import SavedRun, StreamedRun

__all__ = ["EventStoreConversations", "MessageNotFound", "SavedRun", "StreamedRun"]


__getattr__ = exports(
    __name__,
    {
        "EventStoreConversations": f"{__name__}.conversations",
        "MessageNotFound": f"{__name__}.conversations",
        "SavedRun": f"{__name__}.saving",
        "StreamedRun": f"{__name__}.saving",
    },
)
