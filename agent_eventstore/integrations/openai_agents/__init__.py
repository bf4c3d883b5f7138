"""OpenAI Agents: a session, and models that record their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventstore.lazy import exports

if TYPE_CHECKING:
    from agent_eventstore.integrations.openai_agents.branching_session import BranchingSession
    from agent_eventstore.integrations.openai_agents.recording import (
        RecordedModel,
        RecordedProvider,
        RecordedRun,
        RecordedSpans,
    )
    from agent_eventstore.integrations.openai_agents.session import EventStoreSession

__all__ = [
    "BranchingSession",
    "EventStoreSession",
    "RecordedModel",
    "RecordedProvider",
    "RecordedRun",
    "RecordedSpans",
]


__getattr__ = exports(
    __name__,
    {
        "BranchingSession": f"{__name__}.branching_session",
        "EventStoreSession": f"{__name__}.session",
        "RecordedModel": f"{__name__}.recording",
        "RecordedProvider": f"{__name__}.recording",
        "RecordedRun": f"{__name__}.recording",
        "RecordedSpans": f"{__name__}.recording",
    },
)
