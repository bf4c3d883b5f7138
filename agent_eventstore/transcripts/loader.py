"""Append transcripts to a store: stored events stay, missing ones are appended.

A conversation is appended in batches, one transaction each. If the process dies between two
batches, loading the file again adds the rest, because an event's id is derived from its place. An
event that is already stored at a place is compared by content, so ids and rows need not contain any
trace of the content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from uuid import UUID

from sqlalchemy import Connection

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.agent_session_log import cuts_in
from agent_eventstore.transcripts.left_out import LeftOut
from agent_eventstore.transcripts.transcript import Stream, Transcript
from eventstore import NO_STREAM, EventStore, NewEvent, RecordedEvent
from eventstore.database import check, claim, find
from eventstore.errors import (
    BlobNotFound,
    ConversationNotFound,
    EventIdConflict,
    InvalidEvent,
    OwnerMismatch,
    WriterFenced,
    WrongExpectedVersion,
)
from eventstore.events import ConversationStart, ToolResult, UnknownEvent
from eventstore.events.codec import decode, encode
from eventstore.events.records import EventData
from eventstore.ids import derived_id
from eventstore.security.redaction import redacted
from eventstore.telemetry.log import get_logger
from projections.context_reading import INDEXED_FROM, bring_up

__all__ = ["BATCH_EVENTS", "MOST_FAILURES", "MOST_IDS", "ImportReport", "load"]

BATCH_EVENTS = 500
"""How many events one transaction appends."""

MOST_FAILURES = 1_000
"""How many failures a report holds; it counts all of them."""

MOST_IDS = 100_000
"""How many ids of conversations a report holds; it counts all of them."""

_log = get_logger("agent_eventstore")

_SHORT = {"preview": None, "alias": None}  # set on a result that goes to a blob
_REFUSALS = (InvalidEvent, WrongExpectedVersion, EventIdConflict, OwnerMismatch, WriterFenced)


@dataclass(slots=True)
class ImportReport:
    """The result of an import so far.

    ``conversations`` counts those that gained events, ``unchanged`` those that had all of them;
    ``ids`` has the first `MOST_IDS` of both, in order. ``failed`` counts the records that could not
    be used, and ``failures`` has the first `MOST_FAILURES` of them. ``left_out`` counts what was
    not understood or was passed over.
    """

    conversations: int = 0
    events_added: int = 0
    unchanged: int = 0
    failed: int = 0
    failures: list[ImportFailed] = field(default_factory=list)
    ids: list[UUID] = field(default_factory=list, compare=False)
    left_out: LeftOut = field(default_factory=LeftOut)

    def note(self, conversation_id: UUID, added: int) -> None:
        """Count a conversation that gained this many events, and keep its id."""
        self.events_added += added
        self.conversations += added > 0
        self.unchanged += added == 0
        if len(self.ids) < MOST_IDS:
            self.ids.append(conversation_id)

    def fail(self, failure: ImportFailed) -> None:
        """Count a failure, and keep it if it is among the first."""
        self.failed += 1
        if len(self.failures) < MOST_FAILURES:
            # Without its traceback and cause, whose frames hold the conversation.
            self.failures.append(ImportFailed(failure.file, failure.line, failure.reason))


def load(
    store: EventStore,
    transcripts: Iterable[Transcript | ImportFailed],
    *,
    on_progress: Callable[[ImportReport], None] | None = None,
    strict: bool = False,
) -> ImportReport:
    """Append transcripts to a store and return a report.

    A conversation is left unchanged and reported if its stored events are not the beginning of the
    transcript, if it was erased, or if the store refuses it. A conversation that has been continued
    in the store is left unchanged. After an erasure, a source without an id is unknown and becomes
    a new conversation. Each batch of `BATCH_EVENTS` is one transaction.

    A conversation that is long enough to be searched by an index is folded and indexed here, in
    short transactions, so that its first request does not wait for that.

    Args:
        store: The store to append to.
        transcripts: The transcripts to load; reports of bad records among them are passed on.
        on_progress: Called after each item with the report so far.
        strict: Stop at the first bad record; everything loaded before it stays.

    Raises:
        ImportFailed: A record is bad, and ``strict`` is set.
    """
    report = ImportReport()
    for item in transcripts:
        try:
            conversation_id, added = _load_item(store, item, report, strict)
        except ImportFailed as failure:
            if strict:
                raise
            report.fail(failure)
        else:
            report.note(conversation_id, added)
            _index(store, conversation_id)
        if on_progress is not None:
            on_progress(report)
    return report


def _load_item(
    store: EventStore, item: Transcript | ImportFailed, report: ImportReport, strict: bool
) -> tuple[UUID, int]:
    """Append the missing events; return the conversation, and how many events were appended."""
    if isinstance(item, ImportFailed):
        raise item
    if item.stream is not None:
        return _load_stream(store, item, item.stream, report, strict)
    found = _load(store, item)
    for event in item.events:
        report.left_out.note_event(event.data)
    report.left_out += item.left_out
    return found


def _index(store: EventStore, conversation_id: UUID) -> None:
    """Index a long conversation; one that cannot be indexed now is left to readers and workers."""
    try:
        if store.get(conversation_id).version > INDEXED_FROM:
            bring_up(store, conversation_id)
    except Exception as error:
        # The events are recorded, and the next conversation waits.
        _log.warning("not indexed", conversation_id=str(conversation_id), why=str(error))


def _load(store: EventStore, transcript: Transcript) -> tuple[UUID, int]:
    """Append what is missing of a transcript that is held in memory."""
    try:
        source, known = _found(store, transcript)
        events, stored = transcript.events, 0
        if known is not None:
            events, stored = _stored(store, transcript, known)
        missing = events[stored:]
        if len(missing) > BATCH_EVENTS:
            # A bad event in a later batch must not leave half a conversation behind.
            check(missing, store.max_event_bytes, store.redact)
        done, added = stored, 0
        if known is None:
            with store.writing() as connection:
                known = claim(connection, source)
                batch = events[:BATCH_EVENTS]
                added = _append(store, transcript, known, 0, batch, connection)
            done = BATCH_EVENTS
        for first in range(done, len(events), BATCH_EVENTS):
            batch = events[first : first + BATCH_EVENTS]
            added += _append(store, transcript, known, first, batch)
        return known, added
    except _REFUSALS as error:
        raise _failed(transcript, str(error)) from error


def _load_stream(
    store: EventStore, transcript: Transcript, stream: Stream, report: ImportReport, strict: bool
) -> tuple[UUID, int]:
    """Append what is missing of a file that is read twice: to compare and check, then to append."""
    try:
        _, known = _found(store, transcript)
        assert known is not None  # noqa: S101 - a stream's origin is a place
        stored_count, cuts = _count_stored(store, transcript, known)
        stored, count = store.read(known, limit=stored_count), 0
        for item in stream.read(cuts):
            if isinstance(item, ImportFailed):
                if strict:
                    raise item
                report.fail(item)
                continue
            report.left_out.note_event(item.data)
            if count < stored_count:
                _compare(store, transcript, known, count, next(stored, None), item.data)
            else:
                check([item], store.max_event_bytes, store.redact)
            count += 1
        report.left_out += stream.left_out
        events = (item for item in stream.read(cuts) if isinstance(item, NewEvent))
        missing = islice(events, stored_count, count)  # the file may have grown in the meantime
        added = 0
        for first in range(stored_count, count, BATCH_EVENTS):
            batch = list(islice(missing, BATCH_EVENTS))
            added += _append(store, transcript, known, first, batch)
        return known, added
    except _REFUSALS as error:
        raise _failed(transcript, str(error)) from error
    except OSError as error:
        reason = f"the file cannot be read: {error.strerror or error}"
        raise _failed(transcript, reason) from error


def _count_stored(
    store: EventStore, transcript: Transcript, conversation_id: UUID
) -> tuple[int, dict[int, int]]:
    """Return how many events an import has stored, and how many lines each of its answers has."""
    stored_count, erased, cuts = 0, 0, dict[int, int]()
    for place, event in enumerate(store.read(conversation_id)):
        if event.event_id != derived_id(conversation_id, place):
            break  # recorded since the import
        stored_count, erased = stored_count + 1, erased + event.erased
        cuts |= cuts_in([event])
    if stored_count and erased == stored_count:
        raise _erased(transcript, conversation_id)
    return stored_count, cuts


def _found(store: EventStore, transcript: Transcript) -> tuple[str, UUID | None]:
    """Return the digest of a source without an id, and its conversation, which may be new."""
    owner, origin = (transcript.tenant_id, transcript.user_id), transcript.origin
    known = transcript.conversation_id or origin.conversation_id(*owner)
    if known is not None:
        return "", known
    if store.redact is not None:
        # Text that is not stored must not leave a digest either.
        content = UnknownEvent("imported", 1, list(origin.content))
        redacted_content = redacted(content, store.redact)
        origin = replace(origin, content=tuple(getattr(redacted_content, "raw", ())))
    source = origin.digest(*owner)
    with store.reading() as connection:
        return source, find(connection, source)


def _append(
    store: EventStore,
    transcript: Transcript,
    conversation_id: UUID,
    first: int,
    batch: Sequence[NewEvent],
    connection: Connection | None = None,
) -> int:
    """Append a batch; return its length, or 0 if another import appended it in the meantime."""
    if first == 0:
        batch = [_opened(batch[0], transcript), *batch[1:]]
    done = store.append(
        conversation_id,
        [
            replace(event, event_id=derived_id(conversation_id, place))
            for place, event in enumerate(batch, start=first)
        ],
        expected_version=first or NO_STREAM,
        tenant_id=transcript.tenant_id,
        user_id=transcript.user_id,
        connection=connection,
        allow_empty=True,
    )
    if done.size:
        return len(batch)
    for place, event in enumerate(done.events, start=first):
        _compare(store, transcript, conversation_id, place, event, batch[place - first].data)
    return 0


def _opened(event: NewEvent, transcript: Transcript) -> NewEvent:
    """Return the first event, which names the conversation that this one was opened from."""
    owner = (transcript.tenant_id, transcript.user_id)
    parent = None if transcript.parent is None else transcript.parent.conversation_id(*owner)
    if parent is None or not isinstance(event.data, ConversationStart):
        return event
    parent_fields = {"parent_conversation_id": str(parent)}
    return replace(event, data=event.data.model_copy(update=parent_fields))


def _stored(
    store: EventStore, transcript: Transcript, conversation_id: UUID
) -> tuple[tuple[NewEvent, ...], int]:
    """Return the transcript's events, and how many of them are already stored."""
    events, grown = transcript.events, transcript.grown
    try:
        store.get(conversation_id)
    except ConversationNotFound:
        return events, 0
    stored = list(store.read(conversation_id, limit=None if grown else len(events)))
    if stored and all(event.erased for event in stored):
        raise _erased(transcript, conversation_id)
    if grown is not None:
        events = grown(stored)
    del stored[len(events) :]
    for place, event in enumerate(stored):
        _compare(store, transcript, conversation_id, place, event, events[place].data)
    return events, len(stored)


def _compare(
    store: EventStore,
    transcript: Transcript,
    conversation_id: UUID,
    place: int,
    stored: RecordedEvent | None,
    data: EventData,
) -> None:
    """Raise unless the event stored at a place is the transcript's."""
    if stored is None:
        reason = f"conversation {conversation_id} was purged during the import: import it again"
        raise _failed(transcript, reason)
    at_its_place = stored.event_id == derived_id(conversation_id, place)
    # While a conversation grows, products rewrite its metadata, which the first event holds.
    if not at_its_place or (place and not _same(store, stored, data)):
        raise _failed(
            transcript,
            f"conversation {conversation_id} is in the store with other events: the record's "
            "beginning has changed since it was imported, or it was continued here",
        )


def _same(store: EventStore, stored: RecordedEvent, data: EventData) -> bool:
    """Whether a stored event equals a record; unknown, and so true, if it was erased."""
    there = stored.data
    if there is None:
        return True
    if store.redact is not None:
        data = redacted(data, store.redact)
    decoded = decode(data.type, data.schema_version, encode(data))
    if isinstance(there, ToolResult) and there.blob is not None and isinstance(decoded, ToolResult):
        try:
            blob = store.blob(stored.conversation_id, there.blob.digest)
        except BlobNotFound:
            return True
        content = blob.decode("utf-8", "surrogatepass")
        there = there.model_copy(update={"content": content, "blob": None, **_SHORT})
        decoded = decoded.model_copy(update=_SHORT)
    return there == decoded


def _erased(transcript: Transcript, conversation_id: UUID) -> ImportFailed:
    reason = (
        f"conversation {conversation_id} was erased here, and is not imported again: remove it "
        "from the file"
    )
    return _failed(transcript, reason)


def _failed(transcript: Transcript, reason: str) -> ImportFailed:
    return ImportFailed(transcript.file, transcript.line, reason)
