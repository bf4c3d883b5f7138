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

import sys

if sys.argv[:1] == ["-m"] and "agent_eventstore.cli" in sys.orig_argv:
    # ``python -m agent_eventstore.cli`` imports this package before its own first line runs.
    from eventstore_command import guard

    guard()

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
