"""What an append asks for, made ready outside the transaction, and what came of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from eventstore.blobs import Blob, externalise
from eventstore.errors import InvalidEvent
from eventstore.events.base import Payload
from eventstore.events.codec import dumps, encode
from eventstore.events.meta import NO_META, Meta
from eventstore.events.records import EventData, NewEvent, RecordedEvent
from eventstore.events.registry import UnknownEvent
from eventstore.ids import fresh_id
from eventstore.integrity import commit_to

__all__ = ["ANY", "NO_STREAM", "Append", "Appended", "Expected", "Prepared", "prepare"]


class Expected(Enum):
    """What a writer may expect of a stream, besides an exact version."""

    ANY = "any"
    """Whatever its version is."""
    NO_STREAM = "no stream"
    """That it has no events yet."""


ANY = Expected.ANY
NO_STREAM = Expected.NO_STREAM
_SALT = 16


@dataclass(slots=True)
class Prepared:
    """An event, encoded, with its commitment: all that can be done outside the transaction."""

    id_text: str
    id_bytes: bytes
    chosen: UUID | None
    """The event's id if the writer has chosen it."""
    data: EventData
    text: str
    meta: Meta
    meta_text: str
    salt: bytes
    digest: bytes
    blob: Blob | None

    @property
    def event_id(self) -> UUID:
        """The event's id."""
        return self.chosen or UUID(bytes=self.id_bytes)


@dataclass(slots=True)
class Append:
    """One append: to which stream, what, and under which conditions."""

    conversation_id: UUID
    events: tuple[Prepared, ...]
    expected: Expected | int
    tenant_id: str | None = None
    user_id: str | None = None
    writer_epoch: int | None = None
    parent: tuple[UUID, int] | None = None

    @property
    def has_blobs(self) -> bool:
        """Whether a payload is large enough to be kept in a blob."""
        for event in self.events:
            if event.blob is not None:
                return True
        return False


class Appended:
    """What an append did: the stream's version after it, and the events as recorded.

    The events are put together when they are first asked for.
    """

    __slots__ = ("_events", "conversation_id", "version")

    def __init__(
        self,
        conversation_id: UUID,
        version: int,
        events: tuple[RecordedEvent, ...] | Callable[[], tuple[RecordedEvent, ...]],
    ) -> None:
        self.conversation_id = conversation_id
        self.version = version
        self._events = events

    @property
    def events(self) -> tuple[RecordedEvent, ...]:
        """The events of this append, in order."""
        if not isinstance(self._events, tuple):
            self._events = self._events()
        return self._events

    def __eq__(self, other: object) -> bool:
        """Whether both appends recorded the same events."""
        return isinstance(other, Appended) and self.events == other.events

    def __hash__(self) -> int:
        return hash((self.conversation_id, self.version))

    def __repr__(self) -> str:
        return f"Appended({self.conversation_id}, version={self.version}, events={self.events!r})"


def prepare(
    events: Sequence[NewEvent | EventData], meta: Meta | None, threshold: int
) -> tuple[Prepared, ...]:
    """Encode events for an append; ``meta`` is for those that bring none of their own.

    Raises:
        InvalidEvent: There are none, one cannot be encoded, or an event id is used twice.
    """
    if not events:
        raise InvalidEvent("an append needs at least one event")
    salts = os.urandom(_SALT * len(events))
    prepared: list[Prepared] = []
    before, meta_text = NO_META, "{}"
    for place, event in enumerate(events):
        if isinstance(event, NewEvent):
            payload, chosen, own_meta = event.data, event.event_id, event.meta
            if meta is not None and own_meta == NO_META:
                own_meta = meta
        else:
            payload, chosen, own_meta = event, None, meta or NO_META
        if not isinstance(payload, (Payload, UnknownEvent)):
            raise InvalidEvent(f"{payload!r} is no event: use a class of eventstore.events")
        if own_meta is not before:  # Events of a turn mostly share theirs.
            before, meta_text = own_meta, _meta_text(own_meta)
        data, text, blob = externalise(payload, encode(payload), threshold)
        id_text, id_bytes = fresh_id() if chosen is None else (str(chosen), chosen.bytes)
        salt = salts[_SALT * place : _SALT * (place + 1)]
        digest = commit_to(salt, text)
        prepared.append(
            Prepared(id_text, id_bytes, chosen, data, text, own_meta, meta_text, salt, digest, blob)
        )
    chosen_ids = [event.chosen for event in prepared if event.chosen is not None]
    if len(set(chosen_ids)) != len(chosen_ids):
        raise InvalidEvent("an append holds the same event id twice")
    return tuple(prepared)


def _meta_text(meta: Meta) -> str:
    try:
        return meta.__pydantic_serializer__.to_json(meta, exclude_defaults=True).decode()
    except ValueError:  # lone surrogates
        return dumps(meta.model_dump(mode="json", exclude_defaults=True))
