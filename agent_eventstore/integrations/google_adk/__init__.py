"""Google ADK: a session service on the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventstore.lazy import exports

if TYPE_CHECKING:
    from agent_eventstore.integrations.google_adk.recorded_streams import RecordedStreams
    from agent_eventstore.integrations.google_adk.service import EventStoreSessionService

__all__ = ["EventStoreSessionService", "RecordedStreams"]


__getattr__ = exports(
    __name__,
    {
        "EventStoreSessionService": f"{__name__}.service",
        "RecordedStreams": f"{__name__}.recorded_streams",
    },
)
