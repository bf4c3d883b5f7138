"""What transcripts hold in addition to messages: failed calls, and a project's own fields.

Some transcripts keep a failed model call as an assistant message (document 000, 4.3) with the
partial text and an ``LLM_ERROR`` block, as messages[] renders it. A message in exactly that form
becomes an `LlmError` again; anything else stays an assistant message.

A project's message has fields that OpenAI's does not have, for its user interface and for us.
``partType``, ``isCollapsed`` and ``widget`` are those of document 000 (4.1). ``status``, ``error``,
``instruction``, ``continues`` and ``summarises`` are this project's additions: without them an
exported conversation could not be restored. Other readers ignore them.

For export, `facts_of` yields a conversation's events with complete payloads, without erased ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, get_args
from uuid import UUID

from pydantic import ValidationError

from agent_eventstore.transcripts.json_fields import text_at
from agent_eventstore.transcripts.openai_parts import known, text_of
from agent_eventstore.transcripts.openai_wire import marked, slim
from agent_eventstore.transcripts.transcript import mode_of, moment_of
from eventstore import EventStore, RecordedEvent
from eventstore.erasure.plan import ranges
from eventstore.events import (
    AssistantMessage,
    LlmError,
    PartialToolCall,
    Retraction,
    Summary,
    SystemInstruction,
    ToolResult,
    Ui,
    VersionRange,
)
from eventstore.events.records import EventData
from eventstore.events.values import LlmErrorKind, ToolStatus
from projections.context.fold import rows_in_memory
from projections.context.prompts import llm_error
from projections.version_ranges import retracted

__all__ = [
    "NAMES",
    "PROJECT_MESSAGE",
    "Extras",
    "count_of",
    "error_in",
    "facts_of",
    "known",
    "left_out",
    "moment",
    "ui_of",
    "whole",
]

PROJECT_MESSAGE = "project_message"
"""The key under which `raw` keeps a message of a project's `messages.json`."""

NAMES = {"part_type": "partType", "collapsed": "isCollapsed", "widget": "widget"}
"""The names of the fields of `Ui` in a project's message."""

_BLOCK = re.compile(
    r"(?:(?P<partial>.+)\n\n)?LLM_ERROR\n- kind: (?P<kind>\w+)\n- attempt: (?P<attempt>\d{1,9})\n"
    r"- message: (?P<message>.*?)"
    r"(?:\n- tool calls left unfinished, never executed: (?P<tools>[^\n]+))?",
    re.DOTALL,
)

_GONE = ("withdrawn", "inactive", "superseded")


def error_in(text: str) -> LlmError | None:
    """Return the failure that an assistant message describes, or None."""
    if "LLM_ERROR\n" not in text:
        return None
    found = _BLOCK.fullmatch(text)
    kind = next((k for k in get_args(LlmErrorKind) if found and k == found["kind"]), None)
    if found is None or kind is None or int(found["attempt"]) < 1:
        return None
    tools = tuple(found["tools"].split(", ")) if found["tools"] else ()
    error = LlmError(
        kind=kind,
        message=found["message"],
        attempt=int(found["attempt"]),
        partial_text=found["partial"] or "",
        partial_tool_calls=tuple(
            PartialToolCall(index=index, name=name) for index, name in enumerate(tools)
        ),
    )
    again = llm_error(
        error.kind,
        error.message,
        attempt=error.attempt,
        partial_text=error.partial_text,
        partial_tools=tools,
    )
    return error if again == text else None


def ui_of(message: Any) -> Ui | None:
    """Return how a message is shown, or None if it does not say.

    A field of the wrong type is omitted. A widget that is too large is replaced by a note.
    """
    if not isinstance(message, Mapping):
        return None
    fields: dict[str, Any] = {}
    ui_fields = {name: message.get(key) for name, key in NAMES.items()}
    for name, value in ui_fields.items():
        if value is None:
            continue
        try:
            Ui.model_validate({name: value}, strict=True)
        except ValidationError as error:
            too_large = isinstance(value, dict) and error.errors()[0]["type"] == "value_error"
            if not too_large:
                continue
            value = {"left_out": error.errors()[0]["msg"].removeprefix("Value error, ")}
        fields[name] = value
    return Ui(**fields) if fields else None


class Extras:
    """Carries over the additional fields of one conversation's messages, in order."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}

    def event_fields(self, message: Mapping[str, Any], version: int) -> dict[str, Any]:
        """Return the metadata of the message at ``version``."""
        if isinstance(name := message.get("id"), str):
            self._versions[name] = version
        return {
            "mode": mode_of(message.get("mode")),
            "run_id": text_at(message, "runId"),
            "workflow_id": text_at(message, "workflowId"),
            "agent_id": text_at(message, "agentId"),
            "in_context": message.get("includeInContext") is not False,
            "occurred_at": moment_of(message),
        }

    def payload(self, message: Mapping[str, Any], data: EventData, original: str) -> EventData:
        """Return a message's payload with the message's additional fields.

        Args:
            message: The original message.
            data: The payload made from its OpenAI fields.
            original: The key in ``raw`` under which the message is kept.
        """
        if isinstance(data, AssistantMessage) and not data.tool_calls:
            data = error_in(text_of(message.get("content"))) or data
        fields: dict[str, Any] = {"raw": {original: slim(message, data)}}
        if isinstance(data, ToolResult | AssistantMessage | LlmError):
            fields["duration_ms"] = count_of(message.get("duration"))
        if isinstance(data, ToolResult):
            fields |= _executed(message, data)
        if isinstance(data, Summary):
            fields["versions"] = self._ranges(message)
        if isinstance(data, SystemInstruction):
            fields["continues"] = message.get("continues") is True
        if hasattr(data, "ui"):
            fields["ui"] = ui_of(message)
        return marked(data, fields)

    def _ranges(self, message: Mapping[str, Any]) -> tuple[VersionRange, ...]:
        listed = message.get("summarises")
        names = listed if isinstance(listed, list) else []
        known = {self._versions.get(name) for name in names if isinstance(name, str)}
        return VersionRange.of(ranges(sorted(each for each in known if each is not None)))


def _executed(message: Mapping[str, Any], data: ToolResult) -> dict[str, Any]:
    status = next((s for s in get_args(ToolStatus) if s == message.get("status")), None)
    if status is None:
        return {}
    return {"status": status, "error": text_at(message, "error") or data.error}


def count_of(value: Any) -> int | None:
    """Return a count that a line gives, such as milliseconds; None for anything else."""
    return round(value) if type(value) in (int, float) and value >= 0 else None


def facts_of(store: EventStore, conversation_id: UUID) -> Iterator[tuple[RecordedEvent, EventData]]:
    """Iterate over the events in order of version, with texts from blobs put back.

    Raises:
        ConversationNotFound: The conversation does not exist.
    """
    store.get(conversation_id)
    for event in store.read(conversation_id):
        if event.data is not None:
            yield event, whole(store, conversation_id, event.data)


def left_out(events: Iterable[RecordedEvent]) -> set[int]:
    """Return the versions of messages that no request holds any more: withdrawn, or replaced.

    Messages whose own metadata keeps them out of the context are not included.
    """
    gone = set[int]()

    def retractions_noted() -> Iterator[RecordedEvent]:
        for event in events:
            if isinstance(event.data, Retraction):
                for first, last in retracted(event.data, event):
                    gone.update(range(first, last + 1))
            yield event

    for row in rows_in_memory(retractions_noted()):
        if row["hidden"] in _GONE:
            own = row["version"] if row["part"] == 0 else row["result_version"]
            gone.add(row["summary_version"] or own or 0)
    return gone


def whole(store: EventStore, conversation_id: UUID, data: EventData) -> EventData:
    """Return a payload with its text put back if a blob holds it."""
    if not isinstance(data, ToolResult) or data.blob is None or data.content is not None:
        return data
    text = store.blob(conversation_id, data.blob.digest).decode("utf-8", "surrogatepass")
    return data.model_copy(update={"content": text})


def moment(value: datetime) -> str:
    """Return a time in UTC in the format of document 001."""
    return value.isoformat().replace("+00:00", "Z")
