"""Requests to append, prepared outside the transaction, and their results."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from uuid import UUID

from eventstore.blobs import Blob, externalise
from eventstore.errors import InvalidEvent
from eventstore.events.base import Payload
from eventstore.events.bounds import Excess, excess_of, excesses
from eventstore.events.codec import dumps, encode, unreadable
from eventstore.events.content import UserMessage
from eventstore.events.lifecycle import Erasure
from eventstore.events.model import AssistantMessage, RetainedUsage
from eventstore.events.own import READ_BACK
from eventstore.events.records import NO_META, EventData, Meta, NewEvent, RecordedEvent
from eventstore.events.registry import UnknownEvent
from eventstore.ids import DerivedId, fresh_id
from eventstore.security.hash_chain import PRIVATE, commit_to, wrapped
from eventstore.security.redaction import Redactor, redacted, redacted_meta
from eventstore.security.sealing import DATA, META, Keyring, SealingKey
from eventstore.sql.types import escape

__all__ = [
    "ANY",
    "MOST_BYTES",
    "NO_STREAM",
    "OUTLIVING",
    "Anchor",
    "Append",
    "Appended",
    "Expected",
    "Prepared",
    "check",
    "check_owner",
    "many",
    "prepare",
]


class Expected(Enum):
    """What a writer may expect of a stream, other than an exact version."""

    ANY = "any"
    """Any version."""
    NO_STREAM = "no stream"
    """That the stream has no events yet."""


ANY = Expected.ANY
NO_STREAM = Expected.NO_STREAM
MOST_BYTES = 128 * 1024 * 1024
"""The most bytes of a payload's JSON, unless a store is opened with another limit."""

OUTLIVING = frozenset({Erasure.type, RetainedUsage.type})
"""Events that an erasure leaves behind; they outlive the conversation's key and are not sealed."""

_SALT = 16
_NO_META_TEXT = "{}"
_PRIVATE = set(PRIVATE)
_MOST_OF_AN_OWNER = 1_024  # bytes; an index of PostgreSQL holds 2,704 of both together


@dataclass(slots=True)
class Prepared:
    """An encoded event with its commitment: everything that needs no transaction."""

    id_text: str
    id_bytes: bytes
    chosen: UUID | None
    """The event's id if the writer chose it."""
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


@dataclass(frozen=True, slots=True)
class Anchor:
    """The last event of an append; its chain value identifies the log up to it.

    A later append can require it: see ``EventStore.append(anchor=...)``.
    """

    version: int
    chain: bytes
    line: object = field(default=None, compare=False, repr=False)
    """Identifies heads that one store appended in a row, so that it need not query the chain."""


@dataclass(slots=True)
class Append:
    """One append: the stream, the events and the conditions."""

    conversation_id: UUID
    events: tuple[Prepared, ...]
    expected: Expected | int
    tenant_id: str | None = None
    user_id: str | None = None
    writer_epoch: int | None = None
    parent: tuple[UUID, int] | None = None
    keys: Keyring | None = None
    """The store's keys; with them the events are sealed before they are written."""
    key: SealingKey | None = None
    """The key that ``events`` are sealed with."""
    anchor: Anchor | None = None
    """An event that the stream must still have."""
    exact_tenant: bool = False
    """Whether the stream must have ``tenant_id``, even if that is None."""
    stream_key: str | None = None
    """The product's key for the stream; stored when the stream is created."""
    plain: tuple[Prepared, ...] = ()
    """The unsealed events, in case the key has changed."""

    def __post_init__(self) -> None:
        """Refuse conditions of a wrong type, which a database may read as something else.

        Raises:
            InvalidEvent: A condition has the wrong type.
        """
        match self.parent:
            case None | (UUID(), int()):
                pass
            case _:
                raise _wrong("parent", "a conversation's UUID and a version", self.parent)
        if type(self.expected) is not int and not isinstance(self.expected, Expected):
            raise _wrong("expected_version", "ANY, NO_STREAM or a version", self.expected)
        if self.writer_epoch is not None and type(self.writer_epoch) is not int:
            raise _wrong("writer_epoch", "an integer", self.writer_epoch)
        if self.anchor is not None and not isinstance(self.anchor, Anchor):
            raise _wrong("anchor", "the anchor of an append's result", self.anchor)

    def seal(self, key: SealingKey) -> None:
        """Seal the events with a key of the conversation, in place of an earlier one."""
        if self.key is None:
            self.plain = self.events
        self.events, self.key = tuple([_sealed(event, key) for event in self.plain]), key

    def owns(self, tenant_id: str | None, user_id: str | None) -> bool:
        """Whether a stream of this tenant and user has the owner that the append asks for."""
        same_tenant = tenant_id == self.tenant_id or (
            self.tenant_id is None and not self.exact_tenant
        )
        return same_tenant and (self.user_id is None or self.user_id == user_id)

    def require_free_id(self) -> None:
        """Refuse a bound store to create a stream under an id that may be that of another's key.

        Raises:
            InvalidEvent: The id is a UUID of version 5, which is what a key becomes.
        """
        stream = self.conversation_id
        if self.exact_tenant and stream.version == 5 and self.stream_key is None:
            if not isinstance(stream, DerivedId):
                message = (
                    f"conversation {stream} does not exist, and UUIDs of version 5 are reserved "
                    "for conversations with a key: pass the key, or an id of another version"
                )
                raise InvalidEvent(message, field="conversation_id")

    @property
    def has_blobs(self) -> bool:
        """Whether a payload is large enough to be stored in a blob."""
        for event in self.events:  # each append asks, and a generator costs more than the loop
            if event.blob is not None:
                return True
        return False


class Appended:
    """The result of an append: the stream's new version, and the events as recorded.

    The events are created on first access.
    """

    __slots__ = ("_events", "anchor", "conversation_id", "size", "version")

    def __init__(
        self,
        conversation_id: UUID,
        version: int,
        events: tuple[RecordedEvent, ...] | Callable[[], tuple[RecordedEvent, ...]],
        anchor: Anchor,
        size: int = 0,
    ) -> None:
        self.conversation_id = conversation_id
        self.version = version
        self._events = events
        self.anchor = anchor
        """The last of the events, which a later append can require."""
        self.size = size
        """The size of the payloads, in characters or bytes; 0 for a repeated append."""

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


def many(
    events: Sequence[NewEvent | EventData] | NewEvent | EventData,
) -> Sequence[NewEvent | EventData]:
    """Return the events of an append as a sequence; a single event is allowed.

    Raises:
        InvalidEvent: The argument is neither an event nor a sequence.
    """
    if isinstance(events, NewEvent | Payload | UnknownEvent):
        return (events,)
    if isinstance(events, Sequence) and not isinstance(events, str | bytes):
        return events
    raise InvalidEvent(f"{events!r:.80} is neither an event nor a list of events")


def prepare(
    events: Sequence[NewEvent | EventData],
    meta: Meta | None,
    threshold: int,
    most: int = MOST_BYTES,
    redact: Redactor | None = None,
    *,
    allow_empty: bool = False,
    receipts: bool = False,
) -> tuple[Prepared, ...]:
    """Encode events for an append.

    Args:
        events: The events to append.
        meta: Metadata for events without their own.
        threshold: Payloads of more bytes are stored in a blob.
        most: The most bytes of a payload.
        redact: The redactor, if any.
        allow_empty: Whether messages without content are allowed.
        receipts: Whether receipts of erasures are allowed: an erasure alone writes them.

    Raises:
        InvalidEvent: ``events`` is empty, a message has no content, an event is a receipt, cannot
            be encoded or exceeds a limit, or an event id is used twice.
        RedactionFailed: The redactor raised or returned an invalid value.
    """
    if not events:
        raise InvalidEvent("an append needs at least one event")
    salts = os.urandom(_SALT * len(events))
    prepared: list[Prepared] = []
    before = stored_meta = NO_META
    meta_text, private = _NO_META_TEXT, ""
    for place, event in enumerate(events):
        if isinstance(event, NewEvent):
            payload, chosen, own_meta = event.data, event.event_id, event.meta
            if meta is not None and own_meta == NO_META:
                own_meta = meta
        else:
            payload, chosen, own_meta = event, None, meta or NO_META
        if not isinstance(payload, (Payload, UnknownEvent)):
            raise InvalidEvent(f"{payload!r} is not an event: use a class of eventstore.events")
        if own_meta is not before:  # Events of a turn usually share their metadata.
            before = own_meta
            stored_meta = _stored_meta(own_meta, redact, place)
            meta_text, private = _meta_text(stored_meta, place), _private_text(stored_meta)
        if not allow_empty:
            require_content(payload, place)
        if payload.type == Erasure.type and not receipts:
            message = "a receipt of an erasure cannot be appended: erase() writes it"
            raise InvalidEvent(f"event {place}: {message}")
        payload, text = _encoded(payload, place, most, redact)
        data, text, blob = externalise(payload, text, threshold)
        text = wrapped(text, private)
        id_text, id_bytes = fresh_id() if chosen is None else _id_of(chosen, place)
        salt = salts[_SALT * place : _SALT * (place + 1)]
        digest = commit_to(salt, text)
        prepared.append(
            Prepared(
                id_text, id_bytes, chosen, data, text, stored_meta, meta_text, salt, digest, blob
            )
        )
    chosen_ids = [event.chosen for event in prepared if event.chosen is not None]
    if len(set(chosen_ids)) != len(chosen_ids):
        raise InvalidEvent("an append holds the same event id twice")
    return tuple(prepared)


def _sealed(event: Prepared, key: SealingKey) -> Prepared:
    if event.data.type in OUTLIVING:
        return event
    text, meta = key.seal_text(DATA, event.id_text, event.text), event.meta_text
    return Prepared(
        event.id_text,
        event.id_bytes,
        event.chosen,
        event.data,
        text,
        event.meta,
        meta if meta == _NO_META_TEXT else key.seal_text(META, event.id_text, meta),
        event.salt,
        commit_to(event.salt, text),
        None if event.blob is None else event.blob.sealed(key),
    )


def _encoded(
    payload: EventData, place: int, most: int, redact: Redactor | None
) -> tuple[EventData, str]:
    """Return a payload that is within all bounds, redacted, and its JSON text."""
    if redact is not None:
        _check_bounds(payload, place)
        payload = redacted(payload, redact, index=place)
    try:
        text = encode(payload)
    except InvalidEvent:
        _check_bounds(payload, place)  # whose error names the field that is nested too deeply
        raise
    _check_bounds(payload, place, text)
    # A quarter of the limit in characters cannot exceed it in bytes.
    if len(text) * 4 > most and (size := len(text.encode())) > most:
        excess = Excess("the payload", f"has {size:,} bytes", f"{most:,} (max_event_bytes)")
        raise _too_large(excess, payload.type, place)
    if type(payload) not in READ_BACK and isinstance(payload, Payload):
        if (message := unreadable(payload, text)) is not None:
            message = f"event {place} of the append ({payload.type}): {message}"
            raise InvalidEvent(message, index=place)
    return payload, text


def require_content(payload: EventData, place: int | None = None) -> None:
    """Refuse a user message or an answer that is empty.

    Raises:
        InvalidEvent: It has no content.
    """
    if isinstance(payload, UserMessage | AssistantMessage) and payload.is_empty:
        wanted = (
            "a part or a section with content"
            if isinstance(payload, UserMessage)
            else "content, a tool call or a finish reason"
        )
        where = "" if place is None else f"event {place} of the append: "
        message = f"{where}the {payload.type} is empty; it needs {wanted}"
        raise InvalidEvent(message, index=place, field="parts")


def _check_bounds(payload: EventData, place: int, text: str | None = None) -> None:
    if isinstance(payload, Payload):
        found = excesses(payload, text)
    else:
        found = excess_of(Any, "raw", payload.raw)
    if found:
        raise _too_large(found[0], payload.type, place)


def check(
    events: Sequence[NewEvent], most: int = MOST_BYTES, redact: Redactor | None = None
) -> None:
    """Refuse events that an append would refuse, without preparing them.

    Raises:
        InvalidEvent: An event cannot be encoded or redacted, or exceeds a limit.
    """
    for place, event in enumerate(events):
        _meta_text(_stored_meta(event.meta, redact, place), place)
        _encoded(event.data, place, most, redact)


def _wrong(field: str, wanted: str, value: object, place: int | None = None) -> InvalidEvent:
    return InvalidEvent(f"{field} must be {wanted}, not {value!r:.80}", index=place, field=field)


def check_owner(field: str, name: str | None) -> str | None:
    """Return a tenant's id, a user's id or a key, if it is short enough for an index.

    Raises:
        InvalidEvent: It is too long.
    """
    if name is not None and len(name) * 4 > _MOST_OF_AN_OWNER:
        size = len(escape(name).encode())
        if size > _MOST_OF_AN_OWNER:
            limit = f"{_MOST_OF_AN_OWNER:,} bytes"
            message = f"{field} has {size:,} bytes; at most {limit} can be stored"
            raise InvalidEvent(message, field=field, limit=limit)
    return name


def _too_large(excess: Excess, kind: str, place: int) -> InvalidEvent:
    message = f"event {place} of the append ({kind}): {excess}"
    return InvalidEvent(message, index=place, field=excess.field, limit=excess.limit)


def _id_of(chosen: UUID, place: int) -> tuple[str, bytes]:
    if not isinstance(chosen, UUID):
        raise _wrong("event_id", "a UUID", chosen, place)
    return str(chosen), chosen.bytes


def _stored_meta(meta: Meta, redact: Redactor | None, place: int) -> Meta:
    if not isinstance(meta, Meta):
        raise _wrong("meta", "a Meta", meta, place)
    return meta if redact is None else redacted_meta(meta, redact, index=place)


def _meta_text(meta: Meta, place: int) -> str:
    if found := excesses(meta):
        raise _too_large(found[0], "metadata", place)
    try:
        written = meta.__pydantic_serializer__
        return written.to_json(meta, exclude=_PRIVATE, exclude_defaults=True).decode()
    except ValueError:  # lone surrogates
        return dumps(meta.model_dump(mode="json", exclude=_PRIVATE, exclude_defaults=True))


def _private_text(meta: Meta) -> str:
    """Return the JSON text of the metadata stored with the payload, or an empty text."""
    private = {name: value for name in PRIVATE if (value := getattr(meta, name)) is not None}
    return dumps(private) if private else ""
