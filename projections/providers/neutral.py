"""Rows as messages of no particular provider, for products with their own adapters.

Each message is a dict with all of these keys, in this order:

- ``role``: system, user, assistant or tool; ``kind``: the kind of its row (user, assistant,
  tool, summary, error, system, notebook, aside);
- ``versions``: the versions of its events; ``name``: the author's name, or None;
- ``parts``: ``{"type": "text", "text"}``, ``{"type": "refusal", "text"}``, ``{"type": "image",
  "url", "detail"}``, ``{"type": "file", "name", "file_id", "url"}``, ``{"type": "other", "raw"}``;
- ``calls``: of an assistant, ``{"id", "provider_id", "name", "arguments", "arguments_text"}``,
  where ``id`` is this store's own, unique in the conversation, and ``arguments`` is None if they
  are not an object; ``results``: of tools, all results of one assistant message together,
  ``{"call_id", "status", "sealed", "parts", "versions", "full_alias"}``;
- ``native``: content that the maker of the message needs back verbatim, with the maker's name, or
  None. A call in it is ``{"call": index}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from eventstore import EventStore
from eventstore.events import (
    AssistantMessage,
    JsonObject,
    RecordedEvent,
    TextPart,
    ToolResult,
)
from eventstore.ids import call_id
from projections.context.payload_messages import INVALID, strict_object, text_in_arguments
from projections.context.rows import ContextRow
from projections.providers.request_base import Json, Wire, arguments_of, outcome, parts_of

__all__ = ["SPECIFICATION", "wire", "with_facts"]


SPECIFICATION = "neutral"


def wire(rows: Iterable[ContextRow], *, provider: str | None = None) -> Wire:
    """Return the rows in this format; ``provider`` is ignored."""
    messages: list[Json] = []
    for row in rows:
        if row.kind != "tool":
            messages.append(_message(row))
        elif messages and messages[-1]["role"] == "tool":
            messages[-1]["results"].append(_result(row))
            versions = {*messages[-1]["versions"], *row.source_versions}
            messages[-1]["versions"] = sorted(versions)
        else:
            messages.append({**_message(row), "parts": [], "results": [_result(row)]})
            messages[-1]["native"] = None
    return Wire(SPECIFICATION, tuple(messages))


def _message(row: ContextRow) -> Json:
    message = row.message
    parts = [_part(part) for part in parts_of(message)]
    if message.get("refusal"):
        parts.append({"type": "refusal", "text": message["refusal"]})
    calls = [
        {
            "id": call_id(row.version, index),
            "provider_id": call["id"] or None,
            "name": call["function"]["name"],
            **_arguments(call["function"]["arguments"]),
        }
        for index, call in enumerate(message.get("tool_calls") or ())
    ]
    return {
        "role": "system" if row.role == "developer" else row.role,
        "kind": row.kind,
        "versions": list(row.source_versions),
        "name": message.get("name"),
        "parts": parts,
        "calls": calls,
        "results": [],
        "native": row.native,
    }


def _arguments(sent: str) -> Json:
    """Return the arguments of a call; if they are not an object, the text that came."""
    text = text_in_arguments(sent, INVALID)
    if text is not None and strict_object(text) is None:
        return {"arguments": None, "arguments_text": text}
    return {"arguments": arguments_of(sent), "arguments_text": sent}


def _result(row: ContextRow) -> Json:
    rich: Any = (row.native or {}).get("content")
    return {
        "call_id": call_id(row.version, row.part - 1),
        "status": outcome(row),
        "sealed": row.sealed,
        "parts": [_part(part) for part in rich or parts_of(row.message)],
        "versions": list(row.source_versions),
        "full_alias": row.full_alias,
    }


def _part(part: Json) -> Json:
    match part.get("type"):
        case "text":
            return {"type": "text", "text": part["text"]}
        case "image_url":
            image = part["image_url"]
            return {"type": "image", "url": image["url"], "detail": image.get("detail")}
        case "file":
            file = part["file"]
            named = {"name": file.get("filename"), "file_id": file.get("file_id")}
            return {"type": "file", **named, "url": file.get("file_data")}
    return {"type": "other", "raw": part}


def with_facts(
    store: EventStore, conversation_id: UUID, messages: Iterable[Mapping[str, Any]]
) -> tuple[JsonObject, ...]:
    """Return messages of the format ``neutral``, each with additional fields from its events.

    Reads all events from the first message to the last.
    """
    written = [*messages]
    versions = {version for message in written for version in message["versions"]}
    events: dict[int, RecordedEvent] = {}
    if versions:
        span = store.read(conversation_id, after=min(versions) - 1, before=max(versions) + 1)
        events = {event.version: event for event in span if event.version in versions}
    return tuple(_facts(message, events) for message in written)


def _facts(message: Mapping[str, Any], events: Mapping[int, RecordedEvent]) -> JsonObject:
    own = [events[version] for version in message["versions"] if version in events]
    last = own[-1] if own else None
    answer = last.data if last is not None and isinstance(last.data, AssistantMessage) else None
    if message["role"] == "tool":  # a missing result has only the version of the answer
        answer = None
    invocation = answer.invocation if answer is not None else None
    parts = answer.parts if answer is not None else ()
    made = answer.tool_calls if answer is not None else ()
    elapsed = {
        each.data.call_id: each.data.duration_ms
        for each in own
        if isinstance(each.data, ToolResult)
    }
    return {
        **message,
        "calls": [
            {
                **call,
                "parse_error": made[place].parse_error if place < len(made) else None,
                "parse_warning": made[place].parse_warning if place < len(made) else None,
            }
            for place, call in enumerate(message["calls"])
        ],
        "results": [
            {**result, "elapsed_ms": elapsed.get(result["call_id"])}
            for result in message["results"]
        ],
        "usage": _usage(answer),
        "timestamp": None if last is None else last.occurred_at.isoformat(),
        "metadata": {} if last is None else dict(last.meta.extra or {}),
        "invocation": None if invocation is None else invocation.model_dump(mode="json"),
        "contents": [part.text for part in parts if isinstance(part, TextPart)],
        "execute_error": _error([each.data for each in own if isinstance(each.data, ToolResult)]),
    }


def _usage(answer: AssistantMessage | None) -> JsonObject | None:
    """Return the counts of a model call: prompt, completion and cached tokens."""
    if answer is None or answer.usage is None:
        return None
    return answer.usage.model_dump(mode="json", exclude={"raw"})


def _error(results: list[ToolResult]) -> str | None:
    """Return why all tool calls of a batch failed; None if one of them succeeded."""
    if not results or any(each.status == "success" for each in results):
        return None
    error = (
        each.error or (each.content if isinstance(each.content, str) else "") for each in results
    )
    return "; ".join(dict.fromkeys(filter(None, error))) or results[0].status
