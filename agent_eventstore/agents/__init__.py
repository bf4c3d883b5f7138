"""Agents that talk: sessions, turns and steps of document 001, on top of the recorder.

`AgentSession` is the loop around a conversation. ``react`` is its protocol with tags, ``sinks``
write history files in addition to the log, and ``function_tools`` and ``model_calls`` adapt
functions and model clients.
"""

from __future__ import annotations

from agent_eventstore.agents.agent_options import ChatOptions
from agent_eventstore.agents.agent_session import AgentSession, run_agent
from agent_eventstore.agents.agent_session_aio import AsyncAgentSession
from agent_eventstore.agents.chat_session import ChatReply, ChatResult, ChatSession
from agent_eventstore.agents.function_tools import FunctionTool, ToolArgumentParser
from agent_eventstore.agents.model_calls import ModelRequest, ProviderRouter, Route
from agent_eventstore.agents.queue import Closure, TaskPlan, TaskResult
from agent_eventstore.agents.scheduler import Scheduler
from agent_eventstore.agents.sinks import HistorySink, JsonlHistorySink, LegacyXmlSink
from agent_eventstore.agents.turn_results import ToolUse, TurnResult, TurnStep
from agent_eventstore.agents.widgets import MemoryNotebook, Widget

__all__ = [
    "AgentSession",
    "AsyncAgentSession",
    "ChatOptions",
    "ChatReply",
    "ChatResult",
    "ChatSession",
    "Closure",
    "FunctionTool",
    "HistorySink",
    "JsonlHistorySink",
    "LegacyXmlSink",
    "MemoryNotebook",
    "ModelRequest",
    "ProviderRouter",
    "Route",
    "Scheduler",
    "TaskPlan",
    "TaskResult",
    "ToolArgumentParser",
    "ToolUse",
    "TurnResult",
    "TurnStep",
    "Widget",
    "run_agent",
]
