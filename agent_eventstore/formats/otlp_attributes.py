"""Attributes of GenAI spans: which attribute names payloads map to, and OTLP's JSON of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent_eventstore.formats.openai_parts import wire_parts
from eventstore.events import (
    AssistantMessage,
    ContentPart,
    Invocation,
    LlmError,
    LlmRequest,
    ReasoningPart,
    RefusalPart,
    TextPart,
    TokenUsage,
    ToolResult,
)
from eventstore.events.codec import dumps

__all__ = [
    "answered",
    "encoded",
    "of_call",
    "result_said",
    "result_text",
    "said",
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


def encoded(told: Mapping[str, Any]) -> list[Json]:
    """Return attributes in OTLP's JSON form, without those that have no value."""
    return [
        {"key": key, "value": _value(value)} for key, value in told.items() if value is not None
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
    asked = request.invocation if request is not None else _NO_INVOCATION
    invocation = ended.invocation or asked
    provider = asked.provider or invocation.provider
    found: Json = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _PROVIDERS.get(provider or "", provider),
        "gen_ai.request.model": asked.model or invocation.model,
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


def said(role: str, parts: Iterable[ContentPart]) -> Json:
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
    message = said("assistant", data.parts)
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


def result_said(data: ToolResult) -> Json:
    """Return a result as the message that the model receives."""
    response = {"type": "tool_call_response", "id": data.provider_id, "result": result_text(data)}
    return {"role": "tool", "parts": [response]}
