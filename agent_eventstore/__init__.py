"""The public API: the names that an agent product imports.

::

    from agent_eventstore import Conversation, EventStore

    store = EventStore.open("sqlite:///agent.db")
    with Conversation.start(store, user_id="ada") as conversation:
        with conversation.turn("hello") as turn:
            ...

The other modules of this package implement these names, on top of `eventstore` (the log) and
`projections` (the read side).
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING


def _require_own(name: str) -> None:
    """Refuse a module of the product's that has the name of one of our packages."""
    found = find_spec(name)
    place = Path(found.origin or "") if found is not None else None
    if place is None or place.parent != Path(__file__).parents[1] / name:
        what = "is not installed" if place is None else f"is another module: {place}"
        raise ImportError(
            f"agent_eventstore needs its own package {name}, which {what}. Rename your module, or "
            "start the program from another directory",
            name=name,
        )


_require_own("eventstore")
_require_own("projections")

from eventstore.lazy import exports  # noqa: E402

if TYPE_CHECKING:
    from agent_eventstore import errors
    from agent_eventstore.agents import (
        AgentSession,
        AsyncAgentSession,
        ChatSession,
        JsonlHistorySink,
        LegacyXmlSink,
        MemoryNotebook,
        ModelRequest,
        ProviderRouter,
        Route,
        Scheduler,
        TaskPlan,
    )
    from agent_eventstore.aio import AsyncConversation
    from agent_eventstore.clients import record
    from agent_eventstore.conversation import Conversation
    from agent_eventstore.participants import Participant
    from agent_eventstore.recovery import recover, recover_all
    from agent_eventstore.turn import Turn
    from agent_eventstore.turn_aio import AsyncTurn
    from eventstore import (
        ANY,
        NO_STREAM,
        AsyncEventStore,
        DirectoryKeys,
        EventStore,
        Meta,
        NewEvent,
        RecordedEvent,
        events,
        new_id,
        redact_secrets,
    )
    from eventstore.events import register_event
    from projections import (
        AsyncViews,
        Column,
        Patch,
        Projection,
        ProjectionSet,
        Put,
        ReadTable,
        Views,
        worker,
    )
    from projections.context import ContextSettings
    from projections.upkeep import compare, rebuild

__all__ = [
    "ANY",
    "NO_STREAM",
    "AgentSession",
    "AsyncAgentSession",
    "AsyncConversation",
    "AsyncEventStore",
    "AsyncTurn",
    "AsyncViews",
    "ChatSession",
    "Column",
    "ContextSettings",
    "Conversation",
    "DirectoryKeys",
    "EventStore",
    "JsonlHistorySink",
    "LegacyXmlSink",
    "MemoryNotebook",
    "Meta",
    "ModelRequest",
    "NewEvent",
    "Participant",
    "Patch",
    "Projection",
    "ProjectionSet",
    "ProviderRouter",
    "Put",
    "ReadTable",
    "RecordedEvent",
    "Route",
    "Scheduler",
    "TaskPlan",
    "Turn",
    "Views",
    "compare",
    "errors",
    "events",
    "new_id",
    "rebuild",
    "record",
    "recover",
    "recover_all",
    "redact_secrets",
    "register_event",
    "worker",
]

__getattr__ = exports(
    __name__,
    {
        "ANY": "eventstore.sql.append_requests",
        "NO_STREAM": "eventstore.sql.append_requests",
        "Meta": "eventstore.events.records",
        "RecordedEvent": "eventstore.events.records",
        "AgentSession": "agent_eventstore.agents.agent_session",
        "AsyncAgentSession": "agent_eventstore.agents.agent_session_aio",
        "AsyncConversation": "agent_eventstore.aio",
        "AsyncEventStore": "eventstore.aio",
        "AsyncTurn": "agent_eventstore.turn_aio",
        "AsyncViews": "projections.aio",
        "ChatSession": "agent_eventstore.agents.chat_session",
        "Column": "projections.engine.projection",
        "ContextSettings": "projections.context.settings",
        "Conversation": "agent_eventstore.conversation",
        "DirectoryKeys": "eventstore.security.key_directory",
        "EventStore": "eventstore.store",
        "JsonlHistorySink": "agent_eventstore.agents.sinks",
        "LegacyXmlSink": "agent_eventstore.agents.sinks",
        "MemoryNotebook": "agent_eventstore.agents.widgets",
        "ModelRequest": "agent_eventstore.agents.model_calls",
        "NewEvent": "eventstore.events.records",
        "Participant": "agent_eventstore.participants",
        "Patch": "projections.engine.projection",
        "Projection": "projections.engine.projection",
        "ProjectionSet": "projections.catalogue",
        "ProviderRouter": "agent_eventstore.agents.model_calls",
        "Put": "projections.engine.projection",
        "ReadTable": "projections.engine.projection",
        "Route": "agent_eventstore.agents.model_calls",
        "Scheduler": "agent_eventstore.agents.scheduler",
        "TaskPlan": "agent_eventstore.agents.queue",
        "Turn": "agent_eventstore.turn",
        "Views": "projections.views",
        "compare": "projections.upkeep",
        "errors": "agent_eventstore.errors",
        "events": "agent_eventstore.events",
        "new_id": "eventstore.ids",
        "rebuild": "projections.upkeep",
        "record": "agent_eventstore.clients.proxy",
        "recover": "agent_eventstore.recovery",
        "recover_all": "agent_eventstore.recovery",
        "redact_secrets": "eventstore.security.redaction",
        "register_event": "eventstore.events.own",
        "worker": "projections.worker",
    },
)
