"""Transcripts into a store: what is there already stays, what is missing is appended.

A conversation is appended in batches, each a transaction; if the process dies between two, loading
the file again adds the rest, because the id of an event is derived from its place. What stands at a
place already is compared by what it says, so that ids and rows need no trace of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from uuid import UUID

from sqlalchemy import Connection

from agent_eventstore.errors import ImportFailed
from agent_eventstore.formats.transcript import Transcript
from eventstore import NO_STREAM, EventStore, RecordedEvent
from eventstore.errors import (
    ConversationNotFound,
    EventIdConflict,
    InvalidEvent,
    OwnerMismatch,
    WriterFenced,
    WrongExpectedVersion,
)
from eventstore.events import ToolResult, UnknownEvent
from eventstore.events.codec import decode, encode
from eventstore.events.records import EventData
from eventstore.ids import derived_id
from eventstore.redaction import redacted
from eventstore.sql.requests import check
from eventstore.sql.streams import claim, find

__all__ = ["BATCH_EVENTS", "ImportReport", "load"]

BATCH_EVENTS = 500
"""How many events one transaction appends."""

_SHORT = {"preview": None, "alias": None}  # what a result gets when it goes to a blob
_REFUSALS = (InvalidEvent, WrongExpectedVersion, EventIdConflict, OwnerMismatch, WriterFenced)


@dataclass(slots=True)
class ImportReport:
    """What an import has done so far.

    ``conversations`` counts those that got events, ``unchanged`` those that had them all; ``ids``
    are those of both, in order.
    """

    conversations: int = 0
    events_added: int = 0
    unchanged: int = 0
    failures: list[ImportFailed] = field(default_factory=list)
    ids: list[UUID] = field(default_factory=list, compare=False)


def load(
    store: EventStore,
    transcripts: Iterable[Transcript | ImportFailed],
    *,
    on_progress: Callable[[ImportReport], None] | None = None,
    strict: bool = False,
) -> ImportReport:
    """Append transcripts to a store and return what was done.

    A conversation whose stored events are not the beginning of the transcript is left as it is and
    reported, and so is one that was erased, or that the store refuses; one that has gone on since
    is unchanged. Nothing is known of a source without an id after an erasure: it becomes a new one.
    Each batch of `BATCH_EVENTS` is one transaction.

    Args:
        store: Where to.
        transcripts: What to load; reports of bad records among them are passed on.
        on_progress: Called after each of them with the report so far.
        strict: Stop at the first bad record; what was loaded before it stays.

    Raises:
        ImportFailed: A record is bad, and ``strict`` is set.
    """
    report = ImportReport()
    for item in transcripts:
        try:
            if isinstance(item, ImportFailed):
                raise item
            conversation_id, added = _load(store, item)
        except ImportFailed as failure:
            if strict:
                raise
            report.failures.append(failure)
        else:
            report.ids.append(conversation_id)
            report.events_added += added
            report.conversations += added > 0
            report.unchanged += added == 0
        if on_progress is not None:
            on_progress(report)
    return report


def _load(store: EventStore, transcript: Transcript) -> tuple[UUID, int]:
    """Append what is missing; return the conversation, and how many events that was."""
    try:
        source, known = _found(store, transcript)
        events, stored = (
            transcript.events,
            0 if known is None else _stored(store, transcript, known),
        )
        missing = events[stored:]
        if len(missing) > BATCH_EVENTS:
            # A bad event in a later batch must not leave half a conversation behind.
            check(missing, store.max_event_bytes, store.redact)
        done = stored
        if known is None:
            with store.writing() as connection:
                known = claim(connection, source)
                _append(store, transcript, known, 0, connection)
            done = BATCH_EVENTS
        for first in range(done, len(events), BATCH_EVENTS):
            _append(store, transcript, known, first)
        return known, len(missing)
    except _REFUSALS as error:
        raise _failed(transcript, str(error)) from error


def _found(store: EventStore, transcript: Transcript) -> tuple[str, UUID | None]:
    """Return what stands for a source without an id, and the conversation, which may be new."""
    owner, origin = (transcript.tenant_id, transcript.user_id), transcript.origin
    known = transcript.conversation_id or origin.conversation_id(*owner)
    if known is not None:
        return "", known
    if store.redact is not None:
        # What is not stored leaves no digest either.
        content = UnknownEvent("imported", 1, list(origin.content))
        kept = redacted(content, store.redact)
        origin = replace(origin, content=tuple(getattr(kept, "raw", ())))
    source = origin.digest(*owner)
    with store.reading() as connection:
        return source, find(connection, source)


def _append(
    store: EventStore,
    transcript: Transcript,
    conversation_id: UUID,
    first: int,
    connection: Connection | None = None,
) -> None:
    batch = transcript.events[first : first + BATCH_EVENTS]
    store.append(
        conversation_id,
        [
            replace(event, event_id=derived_id(conversation_id, place))
            for place, event in enumerate(batch, start=first)
        ],
        expected_version=first or NO_STREAM,
        tenant_id=transcript.tenant_id,
        user_id=transcript.user_id,
        connection=connection,
    )


def _stored(store: EventStore, transcript: Transcript, conversation_id: UUID) -> int:
    """Return how many of the transcript's events are there already."""
    try:
        store.get(conversation_id)
    except ConversationNotFound:
        return 0
    stored = list(store.read(conversation_id, limit=len(transcript.events)))
    if all(event.erased for event in stored):
        raise _failed(
            transcript,
            f"conversation {conversation_id} was erased here, and is not imported again: take it "
            "out of the file",
        )
    for place, event in enumerate(stored):
        at_its_place = event.event_id == derived_id(conversation_id, place)
        # Products rewrite what the first event holds, the conversation's metadata, while it grows.
        if not at_its_place or (place and not _same(store, event, transcript.events[place].data)):
            raise _failed(
                transcript,
                f"conversation {conversation_id} is in the store with other events: the record's "
                "beginning has changed since it was imported, or it went on here",
            )
    return len(stored)


def _same(store: EventStore, stored: RecordedEvent, data: EventData) -> bool:
    """Whether an event says what a record does; of an erased one nobody knows."""
    there = stored.data
    if there is None:
        return True
    if store.redact is not None:
        data = redacted(data, store.redact)
    told = decode(data.type, data.schema_version, encode(data))
    if isinstance(there, ToolResult) and there.blob is not None and isinstance(told, ToolResult):
        kept = store.blob(stored.conversation_id, there.blob.digest)
        content = kept.decode("utf-8", "surrogatepass")
        there = there.model_copy(update={"content": content, "blob": None, **_SHORT})
        told = told.model_copy(update=_SHORT)
    return there == told


def _failed(transcript: Transcript, reason: str) -> ImportFailed:
    return ImportFailed(transcript.file, transcript.line, reason)
