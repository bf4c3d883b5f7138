"""A conversation as OpenTelemetry spans: OTLP in its JSON encoding, with the GenAI conventions.

A turn is a trace: ``invoke_agent`` around a ``chat`` for each model call and an ``execute_tool``
for each tool. Ids are derived from the conversation, so exporting twice produces the same spans.
Work that was traced live keeps the ids of its live spans. Content is omitted unless it is
requested, and so are calls and turns in progress.

The names are those of the semantic conventions for GenAI as of ``opentelemetry-semantic-
conventions`` 0.66b2; the encoding is that of OTLP 1.x: ids in hexadecimal, 64-bit numbers as text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from uuid import UUID

from agent_eventstore.transcripts.extras import facts_of
from agent_eventstore.transcripts.openai_parts import wire_parts
from eventstore import EventStore
from eventstore.events import (
    AssistantMessage,
    ContentPart,
    Invocation,
    LlmError,
    LlmRequest,
    ReasoningPart,
    RecordedEvent,
    RefusalPart,
    TextPart,
    TokenUsage,
    ToolCall,
    ToolCallRequest,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from eventstore.events.codec import dumps
from eventstore.events.records import EventData
from eventstore.ids import StreamId, call_id

__all__ = [
    "FORMAT",
    "answered",
    "captures_content",
    "encoded",
    "export_otlp",
    "message_json",
    "of_call",
    "result_json",
    "result_text",
    "text",
]


_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}


_PARAMETERS = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "max_output_tokens": "gen_ai.request.max_tokens",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
    "stream": "gen_ai.request.stream",
}


_WHOLE = frozenset({"gen_ai.request.max_tokens", "gen_ai.request.seed"})


_NO_INT64 = 2**63


_NO_INVOCATION = Invocation()


Json = dict[str, Any]


def encoded(values: Mapping[str, Any]) -> list[Json]:
    """Return attributes in OTLP's JSON form, without those that have no value."""
    return [
        {"key": key, "value": _value(value)} for key, value in values.items() if value is not None
    ]


def _value(value: Any) -> Json:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list() | tuple():
            return {"arrayValue": {"values": [_value(each) for each in value]}}
    return {"stringValue": value.encode("utf-8", "replace").decode()}


def text(value: Any) -> str:
    """Return a value as an attribute's JSON text."""
    return dumps(value)


def of_call(request: LlmRequest | None, ended: AssistantMessage | LlmError) -> Json:
    """Return everything known about a model call except its content."""
    request_invocation = request.invocation if request is not None else _NO_INVOCATION
    invocation = ended.invocation or request_invocation
    provider = request_invocation.provider or invocation.provider
    found: Json = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _PROVIDERS.get(provider or "", provider),
        "gen_ai.request.model": request_invocation.model or invocation.model,
        **(_parameters(request.parameters) if request is not None else {}),
        **_tokens(ended.usage),
    }
    if request is not None and request.attempt > 1:
        found["eventstore.attempt"] = request.attempt
    if isinstance(ended, AssistantMessage):
        found["gen_ai.response.model"] = invocation.model
        found["gen_ai.response.id"] = ended.response_id
        if ended.finish_reason is not None:
            found["gen_ai.response.finish_reasons"] = [ended.finish_reason]
        if ended.first_token_ms is not None:
            found["gen_ai.response.time_to_first_chunk"] = ended.first_token_ms / 1_000
    elif ended.status_code is not None:
        found["http.response.status_code"] = ended.status_code
    return found


def _parameters(given: Mapping[str, Any]) -> Json:
    found: Json = {}
    for key, name in _PARAMETERS.items():
        value = given.get(key)
        if isinstance(value, int) and abs(value) >= _NO_INT64:
            continue
        if isinstance(value, bool) is (key == "stream") and isinstance(value, bool | int | float):
            found[name] = value if name in _WHOLE or isinstance(value, bool) else float(value)
    return {
        name: value for name, value in found.items() if name not in _WHOLE or isinstance(value, int)
    }


def _tokens(usage: TokenUsage | None) -> Json:
    if usage is None or not usage.reported:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_prompt_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }


def message_json(role: str, parts: Iterable[ContentPart]) -> Json:
    """Return a message in the form of the conventions."""
    return {"role": role, "parts": [_part(part) for part in parts]}


def _part(part: ContentPart) -> Json:
    match part:
        case TextPart() | RefusalPart():
            return {"type": "text", "content": part.text}
        case ReasoningPart():
            return {"type": "reasoning", "content": part.text}
    [wire] = wire_parts([part])
    return wire if isinstance(wire, dict) and "type" in wire else {"type": "other", "content": wire}


def answered(data: AssistantMessage) -> Json:
    """Return an answer in the form of the conventions."""
    message = message_json("assistant", data.parts)
    message["parts"] += [
        {
            "type": "tool_call",
            "id": call.provider_id,
            "name": call.name,
            "arguments": call.arguments if call.arguments is not None else call.arguments_text,
        }
        for call in data.tool_calls
    ]
    return {**message, "finish_reason": data.finish_reason or "stop"}


def result_text(data: ToolResult) -> str:
    """Return a tool's output as text."""
    content = data.content
    if isinstance(content, tuple):
        return text([_part(part) for part in content])
    return content or data.error or data.preview or ""


def result_json(data: ToolResult) -> Json:
    """Return a result as the message that the model receives."""
    response = {"type": "tool_call_response", "id": data.provider_id, "result": result_text(data)}
    return {"role": "tool", "parts": [response]}


FORMAT = "otlp-json"


CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


"""The environment variable of the conventions that requests content."""


_INTERNAL, _CLIENT = 1, 3


_ERROR = 2


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_FAILED_TURNS = ("error", "aborted")


def captures_content() -> bool:
    """Whether the environment requests content, by the conventions' values."""
    return os.environ.get(CAPTURE, "").lower() in ("true", "1", "span_only", "span_and_event")


def export_otlp(
    store: EventStore, conversation_id: StreamId, *, content: bool | None = None
) -> Json:
    """Return a conversation's spans as an OTLP request, in order of their ends.

    Args:
        store: The store that holds it.
        conversation_id: The conversation.
        content: Whether the spans hold messages, arguments and results; by default as the
            environment says (`CAPTURE`), otherwise not.

    Raises:
        ConversationNotFound: The conversation does not exist.
    """
    info = store.get(conversation_id)
    spans = _Spans(
        info.conversation_id, captures_content() if content is None else content, info.user_id
    )
    found = [
        span
        for event, data in facts_of(store, info.conversation_id)
        for span in spans.of(event, data)
    ]
    found += spans.rest()
    scope = {"name": "agent-eventstore", "version": _version()}
    resource = {"attributes": encoded({"service.name": "agent-eventstore"})}
    return {
        "resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": found}]}]
    }


@dataclass(slots=True)
class _Turn:
    """A turn in progress: when it began, and its attributes."""

    number: int | None
    started: int
    ended: int
    marked: bool
    trace_id: str
    span_id: str
    request_messages: list[Json] = field(default_factory=list)
    answered: Json | None = None


@dataclass(slots=True)
class _SpanCall:
    """A model call or a tool that began: when, and in which event."""

    started: int
    data: Any


class _Spans:
    """The spans of one conversation, built as its events arrive."""

    def __init__(self, conversation_id: UUID, content: bool, user_id: str | None) -> None:
        self._conversation = str(conversation_id)
        self._content = content
        self._about: Json = {"gen_ai.conversation.id": self._conversation}
        self._user = user_id
        self._turn: _Turn | None = None
        self._requests: dict[str, _SpanCall] = {}
        self._wanted: dict[str, _SpanCall] = {}
        self._new: list[Json] = []
        self._used: set[str] = set()

    def of(self, event: RecordedEvent, data: EventData) -> Iterator[Json]:
        """Yield the spans that an event ends."""
        at = _nanoseconds(event)
        yield from self._in_turn(event, data, at)
        match data:
            case UserMessage():
                self._hear(message_json("user", data.parts))
                if self._turn is not None and event.meta.in_context:
                    self._turn.request_messages.append(message_json("user", data.parts))
            case LlmRequest():
                self._requests[data.llm_call_id] = _SpanCall(at, data)
            case AssistantMessage():
                yield self._chat(event, data, at)
                for index, call in enumerate(data.tool_calls):
                    self._wanted[call_id(event.version, index)] = _SpanCall(at, call)
            case LlmError():
                yield self._chat(event, data, at)
            case ToolCall() if (wanted := self._wanted.get(data.call_id)) is not None:
                wanted.started = at
            case ToolCall():
                self._wanted[data.call_id] = _SpanCall(at, data)
            case ToolResult():
                yield self._tool(event, data, at)
                self._hear(result_json(data))
            case TurnEnd() if self._turn is not None:
                yield self._agent(self._turn, at, data)
                self._turn = None

    def rest(self) -> list[Json]:
        """Return the span of the last turn, if no event says when it ended."""
        return [] if self._turn is None or self._turn.marked else [self._agent(self._turn, None)]

    def _hear(self, message: Json) -> None:
        if self._content:
            self._new.append(message)

    def _in_turn(self, event: RecordedEvent, data: EventData, at: int) -> Iterator[Json]:
        """Note the current turn; a turn of a transcript ends where the next begins."""
        number = event.meta.turn
        if number is None:
            return
        if self._turn is not None and self._turn.number != number:
            if not self._turn.marked:
                yield self._agent(self._turn, None)
            self._turn = None
        if self._turn is None and not isinstance(data, TurnEnd):
            marked, where = isinstance(data, TurnStart), f"{self._conversation}/turn-{number}"
            trace = event.meta.trace_id or _digest(where, 16)
            own = self._own_id(event if marked else None, f"{where}/agent")
            self._turn = _Turn(number, at, at, marked, trace, own)
        if self._turn is not None:
            self._turn.marked |= isinstance(data, TurnStart)
            self._turn.ended = max(self._turn.ended, at)

    def _chat(self, event: RecordedEvent, data: AssistantMessage | LlmError, at: int) -> Json:
        request = self._requests.pop(data.llm_call_id or "", None)
        request_data = request.data if request is not None else None
        started = request.started if request is not None else _before(at, data.duration_ms)
        attributes = of_call(request_data, data)
        if self._content:
            attributes["gen_ai.input.messages"] = text(self._new)
            if isinstance(data, AssistantMessage):
                answer = answered(data)
                attributes["gen_ai.output.messages"] = text([answer])
                if self._turn is not None:
                    self._turn.answered = answer
        self._new = []
        error = None if isinstance(data, AssistantMessage) else (data.kind, data.message)
        key = f"call-{data.llm_call_id or event.version}"
        if isinstance(data, LlmError):  # an attempt has the id of its call
            key = f"{key}-failed-{event.version}"
        model = attributes.get("gen_ai.request.model")
        name = f"chat {model}" if model else "chat"
        return self._span(event, key, name, _CLIENT, (started, at), attributes, error)

    def _tool(self, event: RecordedEvent, data: ToolResult, at: int) -> Json:
        wanted = self._wanted.pop(data.call_id, None)
        call = wanted.data if wanted is not None else None
        name = data.name or (call.name if call is not None else "unknown")
        provider_id = data.provider_id or (call.provider_id if call is not None else None)
        attributes: Json = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": provider_id or data.call_id,
            "eventstore.call_id": data.call_id,
        }
        if self._content:
            if isinstance(call, ToolCallRequest):
                attributes["gen_ai.tool.call.arguments"] = call.arguments_text
            elif call is not None and call.arguments is not None:
                attributes["gen_ai.tool.call.arguments"] = text(call.arguments)
            attributes["gen_ai.tool.call.result"] = result_text(data)
        requested_at = wanted.started if wanted is not None else at
        started = _before(at, data.duration_ms) if data.duration_ms is not None else requested_at
        error = None if data.status == "success" else (data.status, data.error)
        key = f"tool-{data.call_id}-{event.version}"
        times = (min(started, at), at)
        return self._span(event, key, f"execute_tool {name}", _INTERNAL, times, attributes, error)

    def _agent(self, turn: _Turn, at: int | None, end: TurnEnd | None = None) -> Json:
        attributes: Json = {
            "gen_ai.operation.name": "invoke_agent",
            "session.id": self._conversation,
        }
        attributes |= {"user.id": self._user, "eventstore.turn": turn.number}
        if end is not None and end.tokens is not None:
            attributes["gen_ai.usage.input_tokens"] = end.tokens.prompt_tokens
            attributes["gen_ai.usage.output_tokens"] = end.tokens.completion_tokens
        if self._content:
            attributes["gen_ai.input.messages"] = text(turn.request_messages)
            attributes["gen_ai.output.messages"] = text([turn.answered or {}])
        failed = end is not None and end.status in _FAILED_TURNS
        error = (end.status, end.error) if end is not None and failed else None
        times = (turn.started, turn.ended if at is None else at)
        found = self._made(turn.trace_id, "invoke_agent", _INTERNAL, times, attributes, error)
        return {**found, "spanId": turn.span_id}

    def _span(
        self,
        event: RecordedEvent,
        key: str,
        name: str,
        kind: int,
        times: tuple[int, int],
        attributes: Json,
        error: tuple[str, str | None] | None,
    ) -> Json:
        attributes = {
            **attributes,
            "gen_ai.agent.id": event.meta.agent_id,
            "eventstore.version": event.version,
        }
        turn, own = self._turn, self._own_id(event, f"{self._conversation}/{key}")
        if turn is None:
            trace = event.meta.trace_id or _digest(f"{self._conversation}/no turn", 16)
            return {**self._made(trace, name, kind, times, attributes, error), "spanId": own}
        found = self._made(turn.trace_id, name, kind, times, attributes, error)
        return {**found, "spanId": own, "parentSpanId": turn.span_id}

    def _own_id(self, event: RecordedEvent | None, key: str) -> str:
        """Return the id of the event's live span if no other span has it, or a derived one."""
        span_id = None if event is None else event.meta.span_id
        found = _digest(key, 8) if span_id is None or span_id in self._used else span_id
        self._used.add(found)
        return found

    def _made(
        self,
        trace: str,
        name: str,
        kind: int,
        times: tuple[int, int],
        attributes: Json,
        error: tuple[str, str | None] | None,
    ) -> Json:
        attributes = {**self._about, **attributes}
        status: Json = {}
        if error is not None:
            attributes["error.type"] = error[0]
            # An error message may quote content.
            status_message = {"message": error[1]} if self._content and error[1] else {}
            status = {"code": _ERROR, **status_message}
        return {
            "traceId": trace,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(times[0]),
            "endTimeUnixNano": str(times[1]),
            "attributes": encoded(attributes),
            "status": status,
        }


def _digest(text: str, size: int) -> str:
    """Return an id of the given number of bytes, in hexadecimal."""
    return sha256(text.encode()).digest()[:size].hex()


def _nanoseconds(event: RecordedEvent) -> int:
    moment = event.meta.occurred_at or event.recorded_at
    since = moment - _EPOCH
    whole = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return max(whole, 0) * 1_000


def _before(at: int, duration_ms: int | None) -> int:
    return max(at - (duration_ms or 0) * 1_000_000, 0)


def _version() -> str:
    try:
        return version("agent-eventstore")
    except PackageNotFoundError:  # run from its source
        return "0"
