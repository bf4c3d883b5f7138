"""Events of other makers, and rows of a log in a provider's format, checked."""

from __future__ import annotations

from typing import Any

from eventstore.events import (
    AssistantMessage,
    ContentPart,
    Invocation,
    Payload,
    ReasoningPart,
    TextPart,
    ToolCallRequest,
)
from projections.providers.request_formats import FORMATS, Wire
from tests.checkers import CHECKERS
from tests.list_row_source import ListRowSource
from tests.unit.context.log import Log

CLAUDE = Invocation(provider="anthropic", specification="anthropic_messages", model="claude")
GPT = Invocation(provider="openai", specification="openai_responses", model="gpt")
DEEPSEEK = Invocation(provider="deepseek", specification="openai_chat", model="deepseek-reasoner")


def written(name: str, *events: Payload, provider: str | None = None) -> Wire:
    """Return the whole view of a log in a format that its checker has nothing against."""
    source = ListRowSource(Log(events).rows())
    rows = [*source.head().system, *reversed(list(source.newest(64)))]
    wire = FORMATS[name](rows, provider=provider)
    assert CHECKERS[name](wire.body) == []
    return wire


def call(name: str = "f", arguments: str = "{}", provider_id: str = "id") -> ToolCallRequest:
    """Return a tool call."""
    return ToolCallRequest(name=name, arguments_text=arguments, provider_id=provider_id)


def thinking(*calls: ToolCallRequest, signature: str | None = "signed") -> AssistantMessage:
    """Return what Claude answered after some thought."""
    parts: tuple[ContentPart, ...] = (
        ReasoningPart(text="hm", signature=signature),
        TextPart(text="Let me see."),
    )
    return AssistantMessage(parts=parts, tool_calls=calls, invocation=CLAUDE)


def responded(*output: dict[str, Any], text: str = "", calls: Any = ()) -> AssistantMessage:
    """Return what a model of OpenAI's answered, with its output items."""
    parts = (TextPart(text=text),) if text else ()
    return AssistantMessage(
        parts=parts, tool_calls=tuple(calls), invocation=GPT, raw={"output": list(output)}
    )
