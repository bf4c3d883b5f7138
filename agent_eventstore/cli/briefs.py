"""One line for any event, for the list of a conversation's events."""

from __future__ import annotations

import json

from agent_eventstore.cli.text import call, plural
from eventstore.events import (
    AssistantChunk,
    AssistantMessage,
    ConversationEnd,
    ConversationStart,
    Erasure,
    LlmError,
    LlmRequest,
    ModeSwitch,
    Notebook,
    RecordedEvent,
    Retraction,
    RunEnd,
    RunStart,
    RunStepEnd,
    RunStepStart,
    SessionStart,
    Summary,
    SystemInstruction,
    ToolCall,
    ToolResult,
    TurnEnd,
    UnknownEvent,
    UserMessage,
)
from eventstore.events.codec import encode
from eventstore.events.records import EventData
from projections.folding import result_text, sections_text, text_of

__all__ = ["brief"]


def brief(event: RecordedEvent) -> str:
    """Return what an event says, in short; it may have line breaks and be long."""
    return "(erased)" if event.data is None else _said(event.data) or _told(event.data)


def _said(data: EventData) -> str:
    """Return what people, models and tools said."""
    match data:
        case UserMessage():
            return text_of(data.parts) or sections_text(data.sections)
        case AssistantMessage():
            calls = (
                call(each.name, each.arguments or each.arguments_text) for each in data.tool_calls
            )
            return " ".join(filter(None, (text_of(data.parts), *(f"→ {each}" for each in calls))))
        case AssistantChunk():
            pieces = (each.arguments for each in data.tool_calls)
            return f"#{data.index} " + "".join((data.reasoning, data.text, data.refusal, *pieces))
        case ToolCall():
            return f"{data.call_id} {call(data.name, data.arguments)}"
        case ToolResult():
            return f"{data.call_id} {data.status}: {data.error or result_text(data) or ''}"
        case LlmError():
            return f"{data.kind}: {data.message}"
        case Summary() | SystemInstruction() | Notebook():
            return data.text
    return ""


def _told(data: EventData) -> str:
    """Return what the other events tell; those without a form of their own, as JSON."""
    match data:
        case LlmRequest():
            counted = "" if data.counted_tokens is None else plural(data.counted_tokens, "token")
            again = f"attempt {data.attempt}" if data.attempt > 1 else None
            return ", ".join(filter(None, (data.invocation.model, counted, again)))
        case ConversationStart():
            return " · ".join(filter(None, (data.title, data.mode, data.base_instructions)))
        case ConversationEnd():
            return " · ".join(filter(None, (data.reason, data.message)))
        case SessionStart():
            return f"{data.mode} {json.dumps(data.config, ensure_ascii=False)}"
        case TurnEnd():
            steps = "" if data.step_count is None else plural(data.step_count, "step")
            return ", ".join(filter(None, (data.status, data.reason, steps, data.error)))
        case ModeSwitch():
            return " → ".join(filter(None, (data.previous, data.mode)))
        case Retraction():
            ranges = (f"{each.first}-{each.last}" for each in data.versions)
            return f"versions {', '.join(ranges)}: {data.reason or 'no reason given'}"
        case RunStart():
            return f"{data.workflow_id}: {data.directive}"
        case RunEnd():
            return data.status
        case RunStepStart() | RunStepEnd():
            return " · ".join(filter(None, (data.node_id, getattr(data, "status", None))))
        case Erasure():
            return f"{plural(data.event_count, 'event')} erased: {data.reason}"
        case UnknownEvent():
            return f"not readable: {data.reason or 'unknown type or version'}"
    plain = encode(data)
    return "" if plain == "{}" else plain
