"""Google ADK's own event types, readable without ADK, and its events in the events of the log."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, ClassVar

from agent_eventstore.inputs import content_of
from agent_eventstore.integrations.conversation_events import Places
from agent_eventstore.machines.seals import RESULT_UNSEEN
from eventstore.database import EventText
from eventstore.events import (
    AssistantMessage,
    ContentPart,
    Invocation,
    JsonObject,
    LlmError,
    NewEvent,
    OtherPart,
    Payload,
    ReasoningPart,
    TextPart,
    ToolResult,
    UserMessage,
    register_event,
)
from eventstore.events.bounds import fitted
from eventstore.events.codec import loads_json
from eventstore.events.values import LlmErrorKind, ToolStatus
from projections.providers.answer import request_of
from projections.providers.content_blocks import content_part
from projections.providers.usage import gemini_usage

__all__ = [
    "KEY",
    "GoogleADKEvent",
    "GoogleADKShared",
    "GoogleADKState",
    "event_in",
    "events_of",
    "parts_in",
]


KEY = "google_adk"


"""The key in ``raw`` that holds an ADK event."""


@register_event
class GoogleADKEvent(Payload):
    """An ADK event that yields no other event, such as a change of state.

    Attributes:
        raw: The ADK event, under the key ``google_adk``.
    """

    type: ClassVar[str] = "google_adk.event"

    raw: Any


@register_event
class GoogleADKState(Payload):
    """A snapshot of a session's state; later ADK events change it.

    Attributes:
        state: The session's own state, without that of its user and app.
        updated: The time of the last change, in seconds since 1970.
    """

    type: ClassVar[str] = "google_adk.state"

    state: JsonObject
    updated: float


@register_event
class GoogleADKShared(Payload):
    """The state that all sessions of a user, or of an app, share.

    Attributes:
        state: The whole state; a newer event replaces it.
    """

    type: ClassVar[str] = "google_adk.shared_state"

    state: JsonObject


def event_in(event: EventText) -> JsonObject | None:
    """Return the ADK event in the ``raw`` of a log event, as JSON; None if it has none."""
    if event.text is None or f'"{KEY}"' not in event.text:
        return None
    raw = loads_json(event.text).get("raw")
    return raw.get(KEY) if isinstance(raw, dict) else None


_CONSENTS = ("requested_tool_confirmations", "requested_auth_configs")


_ABORTED = "INVOCATION_ABORTED"


_REJECTED = {"error": "This tool call is rejected."}


def events_of(event: JsonObject, places: Places, llm_call_id: str | None = None) -> list[NewEvent]:
    """Return the log events of an ADK event, given as JSON; the last one holds it in ``raw``."""
    payloads = [fitted(data, lambda _: None) for data in _payloads(event, places)]
    if llm_call_id is not None and payloads and isinstance(payloads[0], AssistantMessage):
        payloads[0] = payloads[0].model_copy(update={"llm_call_id": llm_call_id})
    raw = {KEY: event}
    if not payloads:
        return [places.put(GoogleADKEvent(raw=raw))]
    events = [places.put(data) for data in payloads[:-1]]
    return [*events, places.put(payloads[-1].model_copy(update={"raw": raw}))]


def parts_in(event: JsonObject) -> list[JsonObject]:
    """Return the parts of an ADK event's content, given as JSON."""
    content = event.get("content") or {}
    return [each for each in content.get("parts") or () if isinstance(each, dict)]


def _payloads(event: JsonObject, places: Places) -> Iterator[Payload]:
    parts = parts_in(event)
    content = tuple(each for part in parts for each in _parts(part))
    if event.get("author") == "user":
        if content:
            yield from _abandoned(places)
            yield UserMessage(parts=content)
    elif event.get("error_code") and not parts:
        yield from _failed(event, places)
    elif content or any("function_call" in part for part in parts):
        yield _answer(event, content, parts)
    actions = event.get("actions") or {}
    waiting = {call_id for name in _CONSENTS for call_id in actions.get(name) or ()}
    for part in parts:
        if isinstance(result := part.get("function_response"), dict):
            own_id = result.get("id")
            user, long_running = event.get("author") == "user", places.calls.is_long_running(own_id)
            if user and places.calls.is_answered(own_id) and not long_running:
                # An update from a tool that did not say that it would go on.
                response_text = json.dumps(result.get("response"), ensure_ascii=False)
                yield UserMessage.text(f"{result.get('name')}: {response_text}")
            else:
                data = _result(result, places, waits=own_id in waiting)
                # What the agent gets at once is interim; the user brings what the tool has done.
                interim = long_running and not user and data.status == "success"
                yield data.model_copy(update={"interim": interim})


def _abandoned(places: Places) -> Iterator[Payload]:
    """Yield stand-ins for results that a new message of the user shows will not come.

    Their process was killed. ADK itself never notices, and sends the call without a result.
    """
    for call_id in places.calls.abandoned():
        places.calls.settle(call_id, answered=False)
        yield ToolResult(call_id=call_id, status="outcome_unknown", content=RESULT_UNSEEN)


def _failed(event: JsonObject, places: Places) -> Iterator[Payload]:
    """Yield the results of the agent's tools that an error has ended; if none ran, its error."""
    error_text = str(event.get("error_message") or event["error_code"])
    running = places.calls.unanswered(event.get("author"), places.last_user_version)
    for call_id in running:
        places.calls.settle(call_id)
        yield ToolResult(call_id=call_id, status="failed", content=error_text, error=error_text)
    if not running:
        kind: LlmErrorKind = "cancelled" if event["error_code"] == _ABORTED else "provider"
        yield LlmError(kind=kind, message=error_text, retryable=False, attempt=1)


def _answer(
    event: JsonObject, content: tuple[ContentPart, ...], parts: list[Any]
) -> AssistantMessage:
    requests = [each for each in parts if isinstance(each.get("function_call"), dict)]
    long_running = set(event.get("long_running_tool_ids") or ())
    calls = tuple(
        request_of(
            (call := each["function_call"]).get("name") or "",
            json.dumps(call.get("args") or {}, ensure_ascii=False),
            call.get("id"),
        ).model_copy(update={"raw": _signed(each), "long_running": call.get("id") in long_running})
        for each in requests
    )
    return AssistantMessage(
        parts=content,
        tool_calls=calls,
        tools_elsewhere=bool(calls),
        final=not calls,
        name=event.get("author"),
        usage=gemini_usage(event.get("usage_metadata")),
        finish_reason=event.get("finish_reason"),
        invocation=Invocation(model=event.get("model_version")),
    )


def _result(function_response: JsonObject, places: Places, *, waits: bool) -> ToolResult:
    """Return a tool result; if the tool ``waits`` for consent, the real one replaces it later."""
    response = function_response.get("response") or {}
    failed = "error" in response and not waits
    only = response.get("result") if set(response) == {"result"} else response
    call_id = places.calls.answer(function_response.get("id"), function_response.get("name"))
    if waits:
        places.calls.settle(call_id, answered=False)
    denied: ToolStatus = "denied" if response == _REJECTED else "failed"
    return ToolResult(
        call_id=call_id,
        status="not_started" if waits else denied if failed else "success",
        name=function_response.get("name"),
        content=content_of(only),
        error=str(response["error"]) if failed else None,
        provider_id=function_response.get("id"),
    )


def _signed(part: JsonObject) -> JsonObject | None:
    """Return Gemini's signature of a part in standard base64, or None; ADK's is URL-safe."""
    signature = part.get("thought_signature")
    if not isinstance(signature, str) or not signature:
        return None
    return {"thoughtSignature": signature.replace("-", "+").replace("_", "/")}


def _parts(part: JsonObject) -> Iterator[ContentPart]:
    match part:
        case {"function_call": _} | {"function_response": _}:
            return
        case {"text": str(words), "thought": True}:
            signed = _signed(part)
            signature = None if signed is None else signed["thoughtSignature"]
            yield ReasoningPart(text=words, signature=signature, raw=signed)
        case {"text": str(words)}:
            if (signed := _signed(part)) is not None:
                yield ReasoningPart(text="", signature=signed["thoughtSignature"], raw=signed)
            yield TextPart(text=words)
        case {"executable_code": {**inner}}:
            yield OtherPart(raw={"type": "executable_code", **inner})
        case {"code_execution_result": {**inner}}:
            yield OtherPart(raw={"type": "code_execution_result", **inner})
        case {"inline_data": {"data": str(data), **inner}}:  # ADK writes base64 for URLs
            plain = base64.b64encode(base64.urlsafe_b64decode(data))
            yield content_part({"inline_data": {**inner, "data": plain.decode()}}) or _other(part)
        case _:
            yield content_part(part) or _other(part)


def _other(part: JsonObject) -> OtherPart:
    return OtherPart(raw={"kinds": sorted(part)})
