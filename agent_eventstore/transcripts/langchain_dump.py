"""LangChain messages as it writes them, in any of three ways, without LangChain.

``messages_to_dict``, ``dumpd`` and ``model_dump`` each have their own form. A file holds one
conversation: an array of messages, JSON Lines of them, an object with them under ``messages``, or
the state of a LangGraph thread, as its server's API returns it. Understood are those of users,
models, the system and tools, with tool calls and usage. Any other (``chat``, ``function``,
``remove``, or a malformed one) is kept verbatim, and counted. Each event keeps its message under
``raw["langchain_message"]``, except for a text that the event holds. There is no export to this
format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.json_fields import object_in, text_at
from agent_eventstore.transcripts.langchain_messages import message_payload
from agent_eventstore.transcripts.openai_parts import text_of
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import (
    UNINTERPRETED,
    Transcript,
    TranscriptDraft,
    anchored,
    explicit_id,
    moment_of,
    title_of,
)
from eventstore.events import ConversationStart, Meta, ToolResult, UnknownEvent
from eventstore.events.records import EventData

__all__ = ["FORMAT", "ORIGINAL", "read", "recognises"]

FORMAT = "langchain"
ORIGINAL = "langchain_message"
"""The key in ``raw`` of the original message, without its text."""

_TYPES = ("human", "ai", "system", "tool", "function", "chat", "remove")
_OF_DUMP = frozenset({"additional_kwargs", "response_metadata"})
_FIELDS: dict[str, Any] = {
    "content": "",
    "name": None,
    "id": None,
    "tool_call_id": None,
    "status": "success",
    "additional_kwargs": {},
    "response_metadata": {},
    "tool_calls": [],
    "invalid_tool_calls": [],
    "usage_metadata": None,
}


def recognises(value: Any) -> bool:
    """Whether a value is a message, an array of them, or an object that holds them."""
    values = object_in(value, "values") if isinstance(value, dict) else {}
    for holder in (value, values):
        if isinstance(holder, dict) and isinstance(holder.get("messages"), list):
            value = holder["messages"]
            break
    first = value[0] if isinstance(value, list) and value else value
    fields = _fields(first) if isinstance(first, dict) else None
    return fields is not None and fields["type"] in _TYPES


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the file's conversations: bare messages as one, and one per object with messages."""
    for found in source.lists("messages", "values.messages"):
        yield found if isinstance(found, ImportFailed) else _conversation(source, *found)


def _conversation(
    source: Source, rest: dict[str, Any], messages: list[Record]
) -> Transcript | ImportFailed:
    """Return a conversation; one broken message excludes all of it."""
    field_maps = [
        _fields(each.value) if isinstance(each.value, dict) else None for each in messages
    ]
    for number, (record, fields) in enumerate(zip(messages, field_maps, strict=True), start=1):
        if fields is None:
            return source.failed(record.line, f"message {number} has no type, or no data")
    known = [
        Record(fields, record.line) for record, fields in zip(messages, field_maps, strict=True)
    ]
    draft = TranscriptDraft(
        anchored(FORMAT, explicit_id(rest, "id") or _thread_of(rest), known),
        source.file,
        messages[0].line,
    )
    start = ConversationStart(title=title_of(rest), raw=rest or None)
    draft.start(start, Meta(occurred_at=moment_of(rest)))
    for record, flat in zip(messages, known, strict=True):
        data = _payload(record.value, flat.value, draft)
        named = text_at(flat.value, "id") or getattr(data, "response_id", None)
        draft.add(data, draft.place(data), named=named)
    return draft.finish()


def _thread_of(state: Mapping[str, Any]) -> str | None:
    """Return the id of the thread whose state this is, or None."""
    configurable = object_in(object_in(state, "config"), "configurable")
    return text_at(object_in(state, "checkpoint"), "thread_id") or text_at(
        configurable, "thread_id"
    )


def _fields(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the type and the fields of a message, whichever way it was written."""
    kind, data = message.get("type"), message.get("data")
    if message.get("lc") == 1 and isinstance(path := message.get("id"), list) and path:
        named = str(path[-1]).removesuffix("Chunk")
        data = message.get("kwargs")
        kind = named.removesuffix("Message").lower() if named.endswith("Message") else None
    elif data is None and not _OF_DUMP.isdisjoint(message):
        data = {key: value for key, value in message.items() if key != "type"}
        kind = "ai" if kind == "AIMessageChunk" else kind
    if not isinstance(kind, str) or not isinstance(data, dict):
        return None
    # An id that is null identifies nobody.
    return {key: value for key, value in data.items() if value is not None} | {"type": kind}


def _payload(message: dict[str, Any], fields: dict[str, Any], draft: TranscriptDraft) -> EventData:
    content = fields.get("content")
    slim = _without_text(message) if isinstance(content, str) else message
    message_object = SimpleNamespace(**{**_FIELDS, **fields, "text": text_of(content)})
    try:
        data = message_payload(message_object, {ORIGINAL: slim}, draft.next_version, {})
    except (TypeError, ValueError, KeyError, AttributeError):
        data = None  # LangChain would not have written it this way
    if data is None:
        return UnknownEvent(UNINTERPRETED, 1, {ORIGINAL: message})
    if isinstance(data, ToolResult):
        call = draft.calls.answer(data.provider_id, data.name)
        data = data.model_copy(update={"call_id": call})
    return data


def _without_text(message: dict[str, Any]) -> dict[str, Any]:
    holder = next((each for each in ("kwargs", "data") if each in message), None)
    if holder is None:
        return {**message, "content": None}
    return {**message, holder: {**message[holder], "content": None}}
