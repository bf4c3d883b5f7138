"""Events of OpenHands' newer SDK (`openhands-sdk`), which name their class as ``kind``.

An `ActionEvent` is a tool call; those of one ``llm_response_id`` are one answer; an event with a
call's ``tool_call_id`` is its result. As of version 1.37 of the SDK, September 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_eventstore.formats.agent_session import SessionLog
from agent_eventstore.formats.json_fields import object_in, text_at
from agent_eventstore.formats.openai_wire import request_of
from agent_eventstore.formats.transcript import moment_of
from eventstore.events import (
    ContentPart,
    ImagePart,
    ReasoningPart,
    SystemInstruction,
    TextPart,
    ToolResult,
    UserMessage,
)
from eventstore.events.codec import dumps

__all__ = ["KINDS", "SILENT_KINDS", "take_kind"]
from projections.context.formats.reasoning import thought_of

_RESULTS = ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent")
SILENT_KINDS = (
    "CondensationRequest",
    "ConversationStateUpdateEvent",
    "LLMCompletionLogEvent",
    "PauseEvent",
    "StreamingDeltaEvent",
    "TokenEvent",
)
"""Events that say nothing about the conversation."""

KINDS = frozenset(
    {"SystemPromptEvent", "MessageEvent", "ActionEvent", "Condensation", *_RESULTS, *SILENT_KINDS}
)
"""The kinds that identify a file."""


def take_kind(event: dict[str, Any], log: SessionLog, key: str) -> bool:
    """Add an event's content to a log; return whether the event is understood here.

    Args:
        event: The event; a silent one is not understood here.
        log: The log to add to.
        key: The key in ``raw`` under which events are kept.
    """
    kind, at = event["kind"], moment_of(event)
    said = object_in(event, "llm_message")
    if kind == "SystemPromptEvent":
        texts = (_text_in(event, name) for name in ("system_prompt", "dynamic_context"))
        text = "\n\n".join(filter(None, texts))
        log.add(SystemInstruction(text=text, raw={key: event}), occurred_at=at)
    elif kind == "MessageEvent" and said.get("role") == "user":
        parts = _parts(said.get("content"))
        log.prompt(UserMessage(parts=parts, raw={key: event}), occurred_at=at)
    elif kind == "ActionEvent" or (kind == "MessageEvent" and said.get("role") == "assistant"):
        _answered(event, said or event, log, key)
    elif kind in _RESULTS and isinstance(event.get("tool_call_id"), str):
        log.result(_result(event, key), occurred_at=at)
    else:
        return False
    return True


def _answered(event: dict[str, Any], told: Mapping[str, Any], log: SessionLog, key: str) -> None:
    response = text_at(event, "llm_response_id") or text_at(event, "id") or "openhands"
    answer = log.answer(response[:200], occurred_at=moment_of(event))
    if answer.lines == 1:  # each action of an answer may repeat the thought
        answer.parts += _reasoning(told)
    answer.parts += _parts(told.get("content", told.get("thought")))
    if event["kind"] == "ActionEvent":
        call = object_in(event, "tool_call")
        call = object_in(call, "function") or call
        action = dict(object_in(event, "action"))
        action.pop("kind", None)
        name = text_at(call, "name") or text_at(event, "tool_name") or ""
        arguments = text_at(call, "arguments")
        text = dumps(action) if arguments is None else arguments
        answer.calls.append(request_of(name, text, text_at(event, "tool_call_id")))
    if named := text_at(event, "llm_response_id"):
        answer.identity = ("openhands", named)
    answer.keep(key, event)


def _result(event: dict[str, Any], key: str) -> ToolResult:
    observed = object_in(event, "observation")
    given = {"provider_id": event["tool_call_id"], "name": text_at(event, "tool_name")}
    if event["kind"] == "UserRejectObservation":
        content = text_at(event, "rejection_reason")
        return ToolResult(call_id="", status="denied", content=content, raw={key: event}, **given)
    if event["kind"] == "AgentErrorEvent":
        content = text_at(event, "error")
        return ToolResult(call_id="", status="failed", content=content, raw={key: event}, **given)
    code = observed.get("exit_code", object_in(observed, "metadata").get("exit_code"))
    failed = observed.get("is_error") is True or (isinstance(code, int) and code != 0)
    held = "content" if "content" in observed else "output"
    parts = _parts(observed.get(held))
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    return ToolResult(
        call_id="",
        status="failed" if failed else "success",
        content=texts[0] if len(texts) == len(parts) == 1 else parts,
        raw={key: {**event, "observation": {**observed, held: None}}},
        **given,
    )


def _text_in(event: Mapping[str, Any], name: str) -> str | None:
    found = event.get(name)
    return found if isinstance(found, str) else text_at(found, "text")


def _parts(content: Any) -> tuple[ContentPart, ...]:
    """Return the texts and images of a content, which is a list of them or a text."""
    if isinstance(content, str):
        return (TextPart(text=content),) if content else ()
    parts: list[ContentPart] = []
    for each in content if isinstance(content, list) else ():
        if text := text_at(each, "text"):
            parts.append(TextPart(text=text))
        urls = each.get("image_urls") if isinstance(each, dict) else None
        for url in urls if isinstance(urls, list) else ():
            parts += (ImagePart(url=url),) if isinstance(url, str) else ()
    return tuple(parts)


def _reasoning(told: Mapping[str, Any]) -> list[ContentPart]:
    item = told.get("responses_reasoning_item")
    if isinstance(item, dict) and (sealed := thought_of({"type": "reasoning", **item})) is not None:
        return [sealed]
    listed = told.get("thinking_blocks")
    blocks = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    signed = [part for part in map(thought_of, blocks) if part is not None]
    if any(part.text or part.raw for part in signed):
        return [*signed]
    thoughts = [text_at(each, "thinking") for each in blocks]
    if not any(thoughts):
        thoughts = [text_at(told, "reasoning_content")]
    return [ReasoningPart(text=text) for text in thoughts if text]
