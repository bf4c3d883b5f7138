"""``messages.json`` of a project's conversation (document 000, sections 3.1 and 4.1).

The file is an array of messages in a superset of OpenAI's shape; fields that older files lack get
the defaults of section 6. An ``index.json`` beside the file, or beside its directory, adds title
and mode. An element that is no message is reported, and the others are imported.

The conversation's id comes from the ``conversationId`` in its messages if they name one, otherwise
from its first message: that one stays as it is while the product rewrites the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eventstore.errors import ImportFailed
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    Meta,
    Summary,
    ToolResult,
)
from eventstore.events.records import EventData

from .openai_wire import marked, payload_of, slim
from .source import Parsed, Record, Source
from .transcript import Draft, Transcript, anchored, canonical, explicit_id, mode_of, moment_of

__all__ = ["FORMAT", "ORIGINAL", "read", "recognises"]

FORMAT = "messages-json"
ORIGINAL = "project_message"
"""The key in ``raw`` under which the message stands as it came, but for a text content."""

_SUMMARY_MARKS = ("SUMMARY", "CONVERSATION_SUMMARY")
_OWN_FIELDS = {"createdAt", "partType", "isCollapsed", "includeInContext", "toolName"}


def recognises(value: Any) -> bool:
    """Whether a value is a message of such a file."""
    return isinstance(value, dict) and "role" in value and not _OWN_FIELDS.isdisjoint(value)


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Give the file's one conversation, after reports of what could not be read."""
    messages: list[Record] = []
    entry: dict[str, Any] = {}
    for element in _elements(source):
        if isinstance(element, ImportFailed):
            yield element
        elif not isinstance(element.value, dict):
            yield source.failed(element.line, "a message must be an object")
        else:
            messages.append(element)
    for found in _index_entry(source, messages):
        if isinstance(found, ImportFailed):
            yield found
        else:
            entry = found
    if messages:
        yield _transcript(source, messages, entry)


def _elements(source: Source) -> Iterator[Parsed]:
    if source.is_array():
        yield from source.document()
        return
    for item in source.document():
        held = (
            item.value.get("messages")
            if isinstance(item, Record) and isinstance(item.value, dict)
            else None
        )
        if isinstance(item, Record) and isinstance(held, list):
            yield from (Record(message, item.line) for message in held)
        else:
            yield item


def _transcript(source: Source, messages: list[Record], entry: Mapping[str, Any]) -> Transcript:
    stated = explicit_id(messages[0].value)
    draft = Draft(anchored(FORMAT, stated, messages), source.file, messages[0].line)
    title = entry.get("title")
    start = ConversationStart(
        title=title if isinstance(title, str) else None,
        mode=mode_of(entry.get("activeType", entry.get("mode"))),
        raw={"index_entry": dict(entry)} if entry else None,
    )
    draft.start(start, Meta(occurred_at=moment_of(entry)))
    for record in messages:
        message = record.value
        data = _payload(message, draft)
        fields = {
            "mode": mode_of(message.get("mode")),
            "run_id": _text(message.get("runId")),
            "workflow_id": _text(message.get("workflowId")),
            "agent_id": _text(message.get("agentId")),
            "in_context": message.get("includeInContext") is not False,
            "occurred_at": moment_of(message),
        }
        draft.add(data, canonical(message), draft.place(data, **fields))
    return draft.finish()


def _payload(message: dict[str, Any], draft: Draft) -> EventData:
    content = message.get("content")
    data: EventData
    if (
        message.get("role") == "system"
        and isinstance(content, str)
        and content.startswith(_SUMMARY_MARKS)
    ):
        data = Summary(text=content, versions=(), strategy="imported")
    else:
        known = message
        if message.get("role") == "tool" and "name" not in message:
            known = {**message, "name": message.get("toolName")}
        data = payload_of(known, draft.next_version, draft.calls)
    fields: dict[str, Any] = {"raw": {ORIGINAL: slim(message, data)}}
    if isinstance(data, ToolResult | AssistantMessage):
        fields["duration_ms"] = _milliseconds(message.get("duration"))
    return marked(data, fields)


def _index_entry(source: Source, messages: list[Record]) -> Iterator[Any]:
    """Give the conversation's entry in ``index.json``, or a report of why there is none."""
    stated = explicit_id(messages[0].value) if messages else None
    names = {source.path.absolute().parent.name, stated}
    entries: list[Any] = []
    for found in source.beside("index.json", levels=2):
        if isinstance(found, ImportFailed):
            yield found
        elif isinstance(found, dict) and explicit_id(found, "id") is None:
            listed = found.get("conversations", found)
            entries += listed if isinstance(listed, list) else _keyed(listed)
        else:
            entries.append(found)
    for entry in entries:
        if isinstance(entry, dict) and explicit_id(entry, "id") in names:
            yield entry
            return


def _keyed(entries: Any) -> list[Any]:
    if not isinstance(entries, dict):
        return []
    return [{"id": key, **value} for key, value in entries.items() if isinstance(value, dict)]


def _milliseconds(value: Any) -> int | None:
    return round(value) if type(value) in (int, float) and value >= 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
