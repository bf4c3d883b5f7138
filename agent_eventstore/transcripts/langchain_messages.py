"""A LangChain message as an event: its content, author and cost.

The message that the framework gets back is kept with it, in ``raw``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent_eventstore.transcripts.openai_parts import parts_of
from eventstore.events import (
    AssistantMessage,
    ContentPart,
    Invocation,
    OtherPart,
    Payload,
    ReasoningPart,
    SystemInstruction,
    TextPart,
    TokenUsage,
    ToolCallRequest,
    ToolResult,
    UserMessage,
)
from eventstore.events.bounds import fitted
from eventstore.ids import call_id
from projections.providers.answer import request_of
from projections.providers.reasoning import thought_of
from projections.providers.stream_base import plain
from projections.providers.usage import any_usage

__all__ = ["calls_of", "message_payload"]

_SIGNATURES = "__gemini_function_call_thought_signatures__"
_BESIDE = ("reasoning_details", "thinking_blocks")
_THOUGHTS = {"thinking": "thinking", "reasoning": "reasoning"}


def message_payload(
    message: Any, raw: dict[str, Any], version: int, calls: Mapping[str, str]
) -> Payload | None:
    """Return the payload of a message, or None if the log has no event for its kind.

    Args:
        message: A LangChain `BaseMessage`.
        raw: The same message in the form that the framework wants back.
        version: The version that the event will have.
        calls: Our own ids of the known tool calls, by the provider's.
    """
    data = _interpreted(message, version, calls)
    if data is None:
        return None
    return fitted(data, lambda _: None).model_copy(update={"raw": raw})


def calls_of(version: int, answer: AssistantMessage) -> dict[str, str]:
    """Return our own ids of an answer's tool calls, by the provider's; by name without one."""
    return {
        request.provider_id or request.name: call_id(version, index)
        for index, request in enumerate(answer.tool_calls)
    }


def _interpreted(message: Any, version: int, calls: Mapping[str, str]) -> Payload | None:
    name = message.name if isinstance(message.name, str) else None
    match message.type:
        case "human" | "HumanMessageChunk":
            return UserMessage(parts=_parts(message.content), name=name)
        case "system" | "SystemMessageChunk":
            return SystemInstruction(text=str(message.text), name=name)
        case "ai" | "AIMessageChunk":
            return _answer(message, name)
        case "tool" | "ToolMessageChunk":
            requested = str(message.tool_call_id)
            return ToolResult(
                call_id=calls.get(requested, call_id(0, version)),
                status="failed" if message.status == "error" else "success",
                name=name,
                content=_result(message.content),
                provider_id=requested,
            )
        case "function" | "FunctionMessageChunk":
            return ToolResult(
                call_id=calls.get(str(name), call_id(0, version)),
                name=name,
                content=_result(message.content),
            )
    return None


def _answer(message: Any, name: str | None) -> AssistantMessage:
    response_metadata, more = message.response_metadata or {}, message.additional_kwargs or {}
    signatures = more.get(_SIGNATURES)
    signatures = signatures if isinstance(signatures, dict) else {}
    requests = tuple(_request(each, signatures.get(each.get("id"))) for each in message.tool_calls)
    requests = requests or (() if message.invalid_tool_calls else _requests_beside(more))
    broken = tuple(
        ToolCallRequest(
            name=each.get("name") or "",
            arguments_text=each.get("args") or "",
            parse_error=each.get("error") or "invalid JSON",
            provider_id=each.get("id"),
        )
        for each in message.invalid_tool_calls
    )
    return AssistantMessage(
        parts=_thoughts_beside(more) + _parts(message.content),
        tool_calls=requests + broken,
        tools_elsewhere=bool(requests),
        finish_reason=_text(
            response_metadata.get("finish_reason") or response_metadata.get("stop_reason")
        ),
        usage=_usage(message.usage_metadata),
        invocation=Invocation(
            provider=_text(response_metadata.get("model_provider")),
            model=_text(response_metadata.get("model_name") or response_metadata.get("model")),
        ),
        final=not requests,
        name=name,
        response_id=_text(response_metadata.get("id") or message.id),
    )


def _request(call: Mapping[str, Any], signature: Any) -> ToolCallRequest:
    arguments = json.dumps(call["args"], ensure_ascii=False, default=str)
    found = request_of(call["name"], arguments, call.get("id"))
    signed = {"thoughtSignature": signature} if _text(signature) else None
    return found.model_copy(update={"raw": signed})


def _requests_beside(more: Mapping[str, Any]) -> tuple[ToolCallRequest, ...]:
    """Return the calls that older messages have next to their content only, in OpenAI's form."""
    calls, legacy = more.get("tool_calls"), more.get("function_call")
    functions = [
        (each.get("function"), _text(each.get("id")))
        for each in (calls if isinstance(calls, list) else ())
        if isinstance(each, dict)
    ] or [(legacy, None)]
    return tuple(
        request_of(function["name"], _text(function.get("arguments")) or "", named)
        for function, named in functions
        if isinstance(function, dict) and _text(function.get("name"))
    )


def _thoughts_beside(more: Mapping[str, Any]) -> tuple[ContentPart, ...]:
    """Return the reasoning that integrations keep next to a message's content."""
    found: list[ContentPart] = []
    item, text = more.get("reasoning"), _text(more.get("reasoning_content"))
    if isinstance(item, dict) and (signed := thought_of({"type": "reasoning", **item})):
        found.append(signed)
    present = {key: more[key] for key in _BESIDE if isinstance(more.get(key), list) and more[key]}
    if text or present:
        found.append(ReasoningPart(text=text or "", raw=_plain(present) if present else None))
    return tuple(found)


def _usage(counts: Mapping[str, Any] | None) -> TokenUsage | None:
    return any_usage(plain(counts)) if counts else None


def _result(content: Any) -> str | tuple[ContentPart, ...]:
    return content if isinstance(content, str) else _parts(content)


def _parts(content: Any) -> tuple[ContentPart, ...]:
    if isinstance(content, str):
        return (TextPart(text=content),) if content else ()
    return tuple(part for block in content for part in _part(block))


def _part(block: Any) -> tuple[ContentPart, ...]:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in ("tool_use", "tool_call", "function_call", "input_json_delta"):
        return ()  # It is among the message's tool calls.
    if isinstance(block, dict) and (signed := thought_of(block)) is not None:
        return (signed,)
    thought = block.get(_THOUGHTS[kind]) if kind in _THOUGHTS else None
    if kind == "reasoning" and isinstance(summary := block.get("summary"), list):
        texts = [each.get("text") for each in summary if isinstance(each, dict)]
        thought = "\n".join(text for text in texts if isinstance(text, str))
    if isinstance(thought, str):
        return (ReasoningPart(text=thought, signature=_text(block.get("signature"))),)
    found = parts_of([block])
    return tuple(
        OtherPart(raw=_plain(part.raw)) if isinstance(part, OtherPart) else part for part in found
    )


def _plain(value: Any) -> Any:
    """Return a value as JSON; bytes and the like in Python's notation."""
    try:
        return json.loads(json.dumps(value, default=repr, allow_nan=False))
    except (ValueError, TypeError, RecursionError):
        return repr(value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
