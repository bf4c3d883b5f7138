"""``messages.json`` of a project's conversation (document 000, sections 3.1 and 4.1).

The file is an array of messages in a superset of OpenAI's shape; fields that older files lack get
the defaults of section 6. An ``index.json`` beside the file, or beside its directory, adds title
and mode. An element that is no message is reported, and the others are imported.

The conversation's id comes from the ``conversationId`` in its messages if they name one, then from
its entry in the index, otherwise from its first message: all of them stay as they are while the
product rewrites the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eventstore.errors import ImportFailed
from eventstore.events import ConversationStart, Meta
from eventstore.events.records import EventData

from .extras import Extras
from .openai_wire import payload_of
from .project_index import Entry, entry_of, name_of
from .source import Parsed, Record, Source
from .transcript import (
    Draft,
    Origin,
    Transcript,
    anchored,
    explicit_id,
    mode_of,
    moment_of,
)

__all__ = ["FORMAT", "ORIGINAL", "read", "read_entry", "recognises"]

FORMAT = "messages-json"
ORIGINAL = "project_message"
"""The key in ``raw`` under which the message stands as it came, but for a text content."""

_OWN_FIELDS = {"createdAt", "partType", "isCollapsed", "includeInContext", "toolName"}


def recognises(value: Any) -> bool:
    """Whether a value is a message of such a file."""
    return isinstance(value, dict) and "role" in value and not _OWN_FIELDS.isdisjoint(value)


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Give the file's one conversation, after reports of what could not be read."""
    messages = list[Record]()
    yield from _messages(source, messages)
    stated = explicit_id(messages[0].value) if messages else None
    entry: Entry = {}
    for found in entry_of(source.path, {source.path.absolute().parent.name, stated}):
        if isinstance(found, ImportFailed):
            yield found
        else:
            entry = found
    if messages:
        yield _transcript(source, messages, entry)


def read_entry(source: Source, entry: Entry) -> Iterator[Transcript | ImportFailed]:
    """Give the conversation of an index's entry, also if nothing has been said in it yet.

    A file that holds no message but broken ones gives none.
    """
    messages, broken = list[Record](), False
    for failure in _messages(source, messages):
        broken = True
        yield failure
    if messages or not broken:
        yield _transcript(source, messages, entry)


def _messages(source: Source, messages: list[Record]) -> Iterator[ImportFailed]:
    """Collect a file's messages, and give reports of what is none."""
    for element in _elements(source):
        if isinstance(element, ImportFailed):
            yield element
        elif not isinstance(element.value, dict):
            yield source.failed(element.line, "a message must be an object")
        else:
            messages.append(element)


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


def _transcript(source: Source, messages: list[Record], entry: Entry) -> Transcript:
    line = messages[0].line if messages else None
    draft = Draft(_origin(messages, entry), source.file, line)
    title = entry.get("title")
    start = ConversationStart(
        title=title if isinstance(title, str) else None,
        mode=mode_of(entry.get("activeType", entry.get("mode"))),
        raw={"index_entry": dict(entry)} if entry else None,
    )
    draft.start(start, Meta(occurred_at=moment_of(entry)))
    extras = Extras()
    for record in messages:
        message = record.value
        data = extras.payload(message, _payload(message, draft), ORIGINAL)
        meta = draft.place(data, **extras.told(message, draft.next_version))
        ours = message.get("instruction") is True
        draft.add(data, meta, as_told=ours)
    return draft.finish()


def _origin(messages: list[Record], entry: Entry) -> Origin:
    stated = explicit_id(messages[0].value) if messages else None
    if stated is None and entry:
        # Ids such as "1" recur in other projects; the time sets them apart.
        return Origin(FORMAT, place=("index entry", name_of(entry), entry.get("createdAt")))
    return anchored(FORMAT, stated, messages)


def _payload(message: dict[str, Any], draft: Draft) -> EventData:
    known = message
    if message.get("role") == "tool" and "name" not in message:
        known = {**message, "name": message.get("toolName")}
    return payload_of(known, draft.next_version, draft.calls)
