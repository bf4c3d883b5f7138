"""What a store should hold, worked out in memory: lists of events and the rules of `append`.

It knows nothing of databases. The events in it are those that the store has answered with, so that
what was once recorded is compared to its last byte ever after; what the store may choose (clock,
position, salted digest, chain) is taken from its answer, everything else is predicted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from eventstore import ANY, NewEvent, RecordedEvent
from eventstore.blobs import alias_of
from eventstore.errors import (
    EventIdConflict,
    EventStoreError,
    OwnerMismatch,
    WriterFenced,
    WrongExpectedVersion,
)
from eventstore.events import BlobRef, Erasure, RetainedUsage, ToolResult
from eventstore.events.codec import encode
from eventstore.events.records import EventData
from eventstore.sql.append_requests import Expected

__all__ = ["THRESHOLD", "Attempt", "Model", "Stream"]

THRESHOLD = 4_000
"""Bytes of JSON above which the stores of the machine keep a payload as a blob."""

Bytes = tuple[str, bytes]
"""A blob: its digest, and what it holds."""


@dataclass(frozen=True)
class Attempt:
    """One append that somebody tries."""

    stream: UUID
    events: tuple[NewEvent, ...]
    expected: Expected | int = ANY
    tenant_id: str | None = None
    user_id: str | None = None
    parent: tuple[UUID, int] | None = None
    writer_epoch: int | None = None


@dataclass
class Stream:
    """One conversation: its events as they are now, and what was said when it began."""

    tenant_id: str | None
    user_id: str | None
    parent: tuple[UUID, int] | None
    events: list[RecordedEvent] = field(default_factory=list)
    blobs: dict[int, Bytes] = field(default_factory=dict)
    epoch: int = 0

    @property
    def version(self) -> int:
        """The version of the last event."""
        return len(self.events)


class Model:
    """All streams of a store."""

    def __init__(self) -> None:
        self.streams: dict[UUID, Stream] = {}

    def outcome(self, attempt: Attempt) -> type[EventStoreError] | int:
        """Return the error of an append, or the version at which its first event will be found."""
        stream = self.streams.get(attempt.stream)
        epoch, version = (stream.epoch, stream.version) if stream else (0, 0)
        owned = stream
        if stream is None and attempt.parent is not None:  # A new stream is its parent's owner's.
            owned = self.streams.get(attempt.parent[0])
        if owned is not None and (
            attempt.tenant_id not in (None, owned.tenant_id)
            or attempt.user_id not in (None, owned.user_id)
        ):
            return OwnerMismatch
        if attempt.writer_epoch not in (None, epoch):
            return WriterFenced
        known = {event.event_id: event.version for event in stream.events} if stream else {}
        found = [known.get(event.event_id) if event.event_id else None for event in attempt.events]
        if any(found):
            first = _wanted(attempt.expected, found[0] or 0)
            wanted = list(range(first, first + len(found)))
            return first if found == wanted else EventIdConflict
        wanted_first = _wanted(attempt.expected, version + 1)
        return version + 1 if wanted_first == version + 1 else WrongExpectedVersion

    def take(self, attempt: Attempt, first: int, recorded: Sequence[RecordedEvent]) -> None:
        """Take in what an append answered whose first event stands at ``first``."""
        stream = self.streams.setdefault(
            attempt.stream, Stream(attempt.tenant_id, attempt.user_id, attempt.parent)
        )
        versions = list(range(first, first + len(attempt.events)))
        assert versions == [event.version for event in recorded]
        if first <= stream.version:
            assert stream.events[first - 1 : versions[-1]] == list(recorded), "a repetition differs"
            return
        for new, event in zip(attempt.events, recorded, strict=True):
            said = (
                attempt.stream,
                new.data.type,
                new.data.schema_version,
                _kept(new.data),
                new.meta,
            )
            stored = (event.conversation_id, event.type, event.schema_version, event.data)
            assert said == (*stored, event.meta)
            assert new.event_id in (None, event.event_id)
            if (blob := _apart(new.data)) is not None:
                stream.blobs[event.version] = blob
        stream.events.extend(recorded)

    def erase(self, cid: UUID, versions: Iterable[int] | None) -> tuple[tuple[int, ...], set[str]]:
        """Take payloads away; return the versions that lost theirs, and the blobs that went."""
        stream = self.streams[cid]
        before = dict(stream.blobs.values())
        wanted = None if versions is None else set(versions)
        gone = tuple(
            event.version
            for event in stream.events
            if event.data is not None
            and event.type not in (Erasure.type, RetainedUsage.type)
            and (wanted is None or event.version in wanted)
        )
        for version in gone:
            event = stream.events[version - 1]
            # Who caused an event is erased with what it says.
            meta = event.meta.model_copy(
                update={"actor": None, "causation_id": None, "correlation_id": None}
            )
            stream.events[version - 1] = replace(event, data=None, meta=meta)
            stream.blobs.pop(version, None)
        return gone, before.keys() - dict(stream.blobs.values()).keys()


def _wanted(expected: Expected | int, otherwise: int) -> int:
    """Return the version at which the writer expects the first event."""
    if isinstance(expected, int):
        return expected + 1
    return otherwise if expected is ANY else 1


def _kept(data: EventData) -> EventData:
    """Return a payload as reading gives it back: only a large tool result's text is apart."""
    if not isinstance(data, ToolResult) or not isinstance(data.content, str) or _fits(data):
        return data
    raw = data.content.encode("utf-8", "surrogatepass")
    short = data.model_copy(
        update={
            "content": None,
            "blob": BlobRef(digest=hashlib.sha256(raw).hexdigest(), size_bytes=len(raw)),
            "preview": f"{data.content[:1_497]}\n…\n{data.content[-500:]}",
            "alias": alias_of(data.call_id, data.content),
        }
    )
    return short if _fits(short) else data


def _apart(data: EventData) -> Bytes | None:
    """Return what of a payload is kept as a blob, if anything is."""
    if _fits(data):
        return None
    text = data.content if isinstance(data, ToolResult) and _kept(data) != data else encode(data)
    raw = str(text).encode("utf-8", "surrogatepass")
    return hashlib.sha256(raw).hexdigest(), raw


def _fits(data: EventData) -> bool:
    text = encode(data)
    return len(text.encode()) <= THRESHOLD and not text.startswith('{"$blob":')
