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
    from agent_eventstore import errors, participants
    from agent_eventstore.agents import (
        AgentSession,
        AsyncAgentSession,
        ChatOptions,
        ChatReply,
        ChatResult,
        ChatSession,
        Closure,
        FunctionTool,
        HistorySink,
        JsonlHistorySink,
        LegacyXmlSink,
        MemoryNotebook,
        ModelRequest,
        ProviderRouter,
        Route,
        Scheduler,
        TaskPlan,
        TaskResult,
        ToolArgumentParser,
        ToolUse,
        TurnResult,
        TurnStep,
        Widget,
        run_agent,
    )
    from agent_eventstore.aio import AsyncConversation
    from agent_eventstore.clients import UnrecordedCall, record
    from agent_eventstore.conversation import (
        Conversation,
        ForkOptions,
        NewOptions,
        OpenOptions,
        SessionOptions,
        StartOptions,
    )
    from agent_eventstore.llm_call import AsyncLlmCall, LlmCall
    from agent_eventstore.participants import Participant
    from agent_eventstore.recovery import Recoveries, Recovery, recover, recover_all
    from agent_eventstore.requests import Request
    from agent_eventstore.run_blocks import AsyncRun, Run
    from agent_eventstore.session import TurnOutcome
    from agent_eventstore.tool_call import AsyncToolBlock, ToolBlock
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
        StoreOptions,
        events,
        new_id,
        redact_secrets,
    )
    from eventstore.events import register_event
    from projections import (
        AsyncViews,
        Column,
        ContextOptions,
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
    "AsyncLlmCall",
    "AsyncRun",
    "AsyncToolBlock",
    "AsyncTurn",
    "AsyncViews",
    "ChatOptions",
    "ChatReply",
    "ChatResult",
    "ChatSession",
    "Closure",
    "Column",
    "ContextOptions",
    "ContextSettings",
    "Conversation",
    "DirectoryKeys",
    "EventStore",
    "ForkOptions",
    "FunctionTool",
    "HistorySink",
    "JsonlHistorySink",
    "LegacyXmlSink",
    "LlmCall",
    "MemoryNotebook",
    "Meta",
    "ModelRequest",
    "NewEvent",
    "NewOptions",
    "OpenOptions",
    "Participant",
    "Patch",
    "Projection",
    "ProjectionSet",
    "ProviderRouter",
    "Put",
    "ReadTable",
    "RecordedEvent",
    "Recoveries",
    "Recovery",
    "Request",
    "Route",
    "Run",
    "Scheduler",
    "SessionOptions",
    "StartOptions",
    "StoreOptions",
    "TaskPlan",
    "TaskResult",
    "ToolArgumentParser",
    "ToolBlock",
    "ToolUse",
    "Turn",
    "TurnOutcome",
    "TurnResult",
    "TurnStep",
    "UnrecordedCall",
    "Views",
    "Widget",
    "compare",
    "errors",
    "events",
    "new_id",
    "participants",
    "rebuild",
    "record",
    "recover",
    "recover_all",
    "redact_secrets",
    "register_event",
    "run_agent",
    "worker",
]

__getattr__ = exports(
    __name__,
    {
        "ANY": "eventstore.sql.append_requests",
        "AgentSession": "agent_eventstore.agents.agent_session",
        "AsyncAgentSession": "agent_eventstore.agents.agent_session_aio",
        "AsyncConversation": "agent_eventstore.aio",
        "AsyncEventStore": "eventstore.aio",
        "AsyncLlmCall": "agent_eventstore.llm_call",
        "AsyncRun": "agent_eventstore.run_blocks",
        "AsyncToolBlock": "agent_eventstore.tool_call",
        "AsyncTurn": "agent_eventstore.turn_aio",
        "AsyncViews": "projections.aio",
        "ChatOptions": "agent_eventstore.agents.agent_options",
        "ChatReply": "agent_eventstore.agents.chat_session",
        "ChatResult": "agent_eventstore.agents.chat_session",
        "ChatSession": "agent_eventstore.agents.chat_session",
        "Closure": "agent_eventstore.agents.queue",
        "Column": "projections.engine.projection",
        "ContextOptions": "projections.context.settings",
        "ContextSettings": "projections.context.settings",
        "Conversation": "agent_eventstore.conversation",
        "DirectoryKeys": "eventstore.security.key_directory",
        "EventStore": "eventstore.store",
        "ForkOptions": "agent_eventstore.conversation",
        "FunctionTool": "agent_eventstore.agents.function_tools",
        "HistorySink": "agent_eventstore.agents.sinks",
        "JsonlHistorySink": "agent_eventstore.agents.sinks",
        "LegacyXmlSink": "agent_eventstore.agents.sinks",
        "LlmCall": "agent_eventstore.llm_call",
        "MemoryNotebook": "agent_eventstore.agents.widgets",
        "Meta": "eventstore.events.records",
        "ModelRequest": "agent_eventstore.agents.model_calls",
        "NO_STREAM": "eventstore.sql.append_requests",
        "NewEvent": "eventstore.events.records",
        "NewOptions": "agent_eventstore.conversation",
        "OpenOptions": "agent_eventstore.conversation",
        "Participant": "agent_eventstore.participants",
        "Patch": "projections.engine.projection",
        "Projection": "projections.engine.projection",
        "ProjectionSet": "projections.catalogue",
        "ProviderRouter": "agent_eventstore.agents.model_calls",
        "Put": "projections.engine.projection",
        "ReadTable": "projections.engine.projection",
        "RecordedEvent": "eventstore.events.records",
        "Recoveries": "agent_eventstore.recovery",
        "Recovery": "agent_eventstore.recovery",
        "Request": "agent_eventstore.requests",
        "Route": "agent_eventstore.agents.model_calls",
        "Run": "agent_eventstore.run_blocks",
        "Scheduler": "agent_eventstore.agents.scheduler",
        "SessionOptions": "agent_eventstore.conversation",
        "StartOptions": "agent_eventstore.conversation",
        "StoreOptions": "eventstore.store",
        "TaskPlan": "agent_eventstore.agents.queue",
        "TaskResult": "agent_eventstore.agents.queue",
        "ToolArgumentParser": "agent_eventstore.agents.function_tools",
        "ToolBlock": "agent_eventstore.tool_call",
        "ToolUse": "agent_eventstore.agents.turn_results",
        "Turn": "agent_eventstore.turn",
        "TurnOutcome": "agent_eventstore.session",
        "TurnResult": "agent_eventstore.agents.turn_results",
        "TurnStep": "agent_eventstore.agents.turn_results",
        "UnrecordedCall": "agent_eventstore.clients.client_requests",
        "Views": "projections.views",
        "Widget": "agent_eventstore.agents.widgets",
        "compare": "projections.upkeep",
        "errors": "agent_eventstore.errors",
        "events": "agent_eventstore.events",
        "new_id": "eventstore.ids",
        "participants": "agent_eventstore.participants",
        "rebuild": "projections.upkeep",
        "record": "agent_eventstore.clients.proxy",
        "recover": "agent_eventstore.recovery",
        "recover_all": "agent_eventstore.recovery",
        "redact_secrets": "eventstore.security.redaction",
        "register_event": "eventstore.events.own",
        "run_agent": "agent_eventstore.agents.agent_session",
        "worker": "projections.worker",
    },
)
