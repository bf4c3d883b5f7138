"""Tasks of Cline and Roo Code: ``api_conversation_history.json``, in a folder of its own.

It is an array of messages in Anthropic's form. Roo marks what it no longer sends: a message with a
``condenseParent`` is in the summary with that ``condenseId``, one with a ``truncationParent`` was
hidden by the marker with that ``truncationId``. Each becomes a `Summary` of those messages. A mark
whose summary is gone means nothing, as for Roo; a summary without marks, of its earlier versions,
replaces everything before it. The task's title is read from ``ui_messages.json`` beside it, whose
other entries repeat the conversation for the editor. There is no export to this format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.anthropic_messages import payloads_of
from agent_eventstore.transcripts.json_fields import text_at
from agent_eventstore.transcripts.openai_messages import with_facts
from agent_eventstore.transcripts.openai_parts import text_of
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import (
    Transcript,
    TranscriptDraft,
    anchored,
    moment_of,
)
from eventstore.erasure.plan import ranges
from eventstore.events import ConversationStart, Meta, Summary, VersionRange

__all__ = ["FILE", "FORMAT", "is_marked", "is_task", "read", "recognises"]

FORMAT = "cline"
FILE = "api_conversation_history.json"
"""The name of a task's messages, in a folder that is named by the task."""

Message = dict[str, Any]

_KINDS = (
    ("condenseParent", "isSummary", "condenseId"),
    ("truncationParent", "isTruncationMarker", "truncationId"),
)
_REPLACES = re.compile(rb'[{,]\s*"(?:isSummary|isTruncationMarker)"\s*:\s*true\b')
_MARKS = frozenset(chain.from_iterable(_KINDS))
_TITLE_CHARS = 200


def is_task(path: Path) -> bool:
    """Whether a file has the name of a task's messages."""
    return path.name == FILE


def is_marked(source: Source) -> bool:
    """Whether a file is an array of messages, in which Roo has marked what it no longer sends."""
    if not source.is_array() or not all(map(_is_message, source.first_values())):
        return False
    with source.path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return _REPLACES.search(content) is not None


def recognises(value: Any) -> bool:
    """Whether a value is a message with one of Roo's marks."""
    return _is_message(value) and not _MARKS.isdisjoint(value)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and value.get("role") in ("user", "assistant")


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the file's conversation; one broken message excludes all of it."""
    records: list[Record] = []
    for number, record in enumerate(source.records(), start=1):
        if isinstance(record, ImportFailed):
            yield record
            return
        if not _is_message(record.value):
            yield source.failed(record.line, f"message {number} is none of a user or a model")
            return
        records.append(record)
    if records:
        yield _transcript(source, records)
    else:
        yield source.failed(1, "there are no messages")


def _transcript(source: Source, records: list[Record]) -> Transcript:
    stated = source.path.absolute().parent.name if is_task(source.path) else None
    bare = [Record(_without_marks(record.value), record.line) for record in records]
    draft = TranscriptDraft(anchored(FORMAT, stated, bare), source.file, records[0].line)
    start = ConversationStart(title=_title(source))
    draft.start(start, Meta(occurred_at=moment_of(records[0].value)))
    places: list[set[int]] = []
    for record, message in zip(records, bare, strict=True):
        replaced = _replaced(record.value, records[: len(places)], places)
        first, moment = draft.next_version, moment_of(message.value)
        if replaced is None:
            for each in payloads_of(message.value, first, draft.calls):
                data = with_facts(message.value, each)
                draft.add(data, draft.place(data, occurred_at=moment))
        elif replaced:
            summary = Summary(
                text=text_of(message.value.get("content")),
                versions=VersionRange.of(ranges(sorted(replaced))),
                strategy=FORMAT,
            )
            draft.add(summary, draft.place(summary, occurred_at=moment))
        places.append({*range(first, draft.next_version), *(replaced or ())})
    return draft.finish()


def _replaced(message: Message, before: list[Record], places: list[set[int]]) -> set[int] | None:
    """Return the versions that a summary or a marker replaces; None for any other message.

    An earlier summary among them brings what it has replaced itself.
    """
    for parent, mark, named in _KINDS:
        if message.get(mark) is not True:
            continue
        own_id = text_at(message, named)
        marked = [own_id is not None and text_at(each.value, parent) == own_id for each in before]
        everything = own_id is None
        pairs = zip(marked, places, strict=True)
        return {version for is_in, at in pairs if is_in or everything for version in at}
    return None


def _without_marks(message: Message) -> Message:
    """Return a message without what Roo changes later, so that it stays the same message."""
    return {key: value for key, value in message.items() if key not in _MARKS}


def _title(source: Source) -> str | None:
    """Return the first line of the task, as the editor shows it."""
    for shown in source.beside("ui_messages.json"):
        entry = shown[0] if isinstance(shown, list) and shown else shown
        if lines := (text_at(entry, "text") or "").split("\n"):
            return lines[0].strip()[:_TITLE_CHARS] or None
        break
    return None
