"""Transcripts into a store: what is there already stays, what is missing is appended.

A conversation is appended in batches, each a transaction; if the process dies between two, loading
the file again adds the rest, because ids and places are derived from the content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from eventstore import NO_STREAM, EventStore
from eventstore.errors import (
    ConversationNotFound,
    EventIdConflict,
    ImportFailed,
    InvalidEvent,
    OwnerMismatch,
    WriterFenced,
    WrongExpectedVersion,
)
from eventstore.events.codec import encode

from .transcript import Transcript

__all__ = ["BATCH_EVENTS", "ImportReport", "load"]

BATCH_EVENTS = 500
"""How many events one transaction appends."""

_REFUSALS = (InvalidEvent, WrongExpectedVersion, EventIdConflict, OwnerMismatch, WriterFenced)


@dataclass(slots=True)
class ImportReport:
    """What an import has done so far.

    ``conversations`` counts those that got events, ``unchanged`` those that had them all.
    """

    conversations: int = 0
    events_added: int = 0
    unchanged: int = 0
    failures: list[ImportFailed] = field(default_factory=list)


def load(
    store: EventStore,
    transcripts: Iterable[Transcript | ImportFailed],
    *,
    on_progress: Callable[[ImportReport], None] | None = None,
    strict: bool = False,
) -> ImportReport:
    """Append transcripts to a store and return what was done.

    A conversation whose stored events are not the beginning of the transcript is left as it is and
    reported, and so is one that the store refuses; one that has gone on since is unchanged.
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
            added = _load(store, item)
        except ImportFailed as failure:
            if strict:
                raise
            report.failures.append(failure)
        else:
            report.events_added += added
            report.conversations += added > 0
            report.unchanged += added == 0
        if on_progress is not None:
            on_progress(report)
    return report


def _load(store: EventStore, transcript: Transcript) -> int:
    """Append what is missing and return how many events that was."""
    try:
        stored = _stored_ids(store, transcript)
        events = transcript.events
        if stored != [event.event_id for event in events[: len(stored)]]:
            raise _failed(
                transcript,
                f"conversation {transcript.conversation_id} is in the store with other events: the "
                "record's beginning has changed since it was imported",
            )
        missing = events[len(stored) :]
        if len(missing) > BATCH_EVENTS:
            # A bad event in a later batch must not leave half a conversation behind.
            for event in missing:
                encode(event.data)
        for first in range(len(stored), len(events), BATCH_EVENTS):
            store.append(
                transcript.conversation_id,
                events[first : first + BATCH_EVENTS],
                expected_version=first or NO_STREAM,
                tenant_id=transcript.tenant_id,
                user_id=transcript.user_id,
            )
        return len(missing)
    except _REFUSALS as error:
        raise _failed(transcript, str(error)) from error


def _stored_ids(store: EventStore, transcript: Transcript) -> list[UUID]:
    """Return the ids of the events that stand where the transcript's events belong."""
    try:
        store.get(transcript.conversation_id)
    except ConversationNotFound:
        return []
    stored = store.read(transcript.conversation_id, limit=len(transcript.events))
    return [event.event_id for event in stored]


def _failed(transcript: Transcript, reason: str) -> ImportFailed:
    return ImportFailed(transcript.file, transcript.line, reason)
