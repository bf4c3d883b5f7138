"""Rows of `events` to recorded events, a page at a time.

Every read and every fold comes through here once an event, so that what pages have in common is
made once, and events and ids are put together without their classes' own initialisers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from eventstore.blobs import resolve
from eventstore.envelope import unwrapped
from eventstore.errors import EventDamaged
from eventstore.events.bounds import clamped, read_json
from eventstore.events.codec import decode, dumps
from eventstore.events.meta import Meta
from eventstore.events.records import EventData, RecordedEvent
from eventstore.ids import stored_id
from eventstore.sealing import DATA, META, SEALED, Keyring, SealingKey, key_of, opened
from eventstore.sql.dialect import Dialect
from eventstore.sql.types import is_plain

__all__ = ["COLUMNS", "decode_meta", "decode_rows"]

COLUMNS = {
    "sqlite": """position, conversation_id, version, event_id, type, schema_version, recorded_at,
        data, meta, data_digest, chain""",
    "postgresql": """position, conversation_id, version, event_id, type, schema_version,
        recorded_at, data::text, meta::text, data_digest, chain""",
}
"""The columns of an event row, in the order in which `decode_rows` takes them."""


class _Unfrozen(RecordedEvent):
    """An event that is being put together; the initialiser of a frozen one takes twice as long."""

    __slots__ = ()
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__


def decode_rows(
    cur: Any, dialect: Dialect, rows: Sequence[Any], keys: Keyring | None = None
) -> list[RecordedEvent]:
    """Return the events of rows of `COLUMNS`; payloads in blobs are fetched with ``cur``.

    What was sealed is opened with ``keys``; where its key has been destroyed it reads as erased.

    Raises:
        EventDamaged: A row holds what no append has written.
        BlobNotFound, BlobDamaged: A payload's blob is gone, or cannot be unpacked.
        KeyUnavailable: A row is sealed, and its key is not to be had.
    """
    to_id = stored_id if dialect.is_sqlite else dialect.to_id
    streams: dict[Any, UUID] = {}
    times: dict[Any, datetime] = {}
    events: list[RecordedEvent] = []
    new = object.__new__
    for (
        position, stream, version, event_id, kind, schema_version, at, data, meta, digest, chain
    ) in rows:  # fmt: skip
        conversation_id = streams.get(stream)
        if conversation_id is None:
            conversation_id = streams[stream] = dialect.to_id(stream)
        try:
            payload: EventData | None = None
            quotable = False
            key: SealingKey | None = None
            if meta.startswith(SEALED):
                key = key_of(keys, conversation_id, meta)
                meta = opened(key, META, str(event_id), meta) or "{}"
            if data is not None and data.startswith(SEALED):
                key = key_of(keys, conversation_id, data)
                data = opened(key, DATA, str(event_id), data)
            private = ""
            if data is not None:
                data, private = unwrapped(data)
                if data.startswith('{"$blob":'):
                    data = resolve(cur, dialect, conversation_id, data, key)
                else:  # SQL finds nothing in what is sealed.
                    quotable = key is None and is_plain(data)
                payload = decode(kind, schema_version, data)
            recorded_at = times.get(at)
            if recorded_at is None:
                recorded_at = times[at] = dialect.to_time(at)
            event: Any = new(_Unfrozen)
            event.conversation_id = conversation_id
            event.version = version
            event.event_id = to_id(event_id)
            event.position = position
            event.type = kind
            event.schema_version = schema_version
            event.recorded_at = recorded_at
            event.data = payload
            event.meta = _with_private(meta, private) if private else decode_meta(meta)
            event.data_digest = digest if digest.__class__ is bytes else bytes(memoryview(digest))
            event.chain = chain if chain.__class__ is bytes else bytes(memoryview(chain))
            event.quotable = quotable
            event.__class__ = RecordedEvent
        except (AttributeError, RecursionError, TypeError, ValueError) as error:
            raise EventDamaged(conversation_id, version) from error
        events.append(event)
    return events


@lru_cache(maxsize=4096)
def _with_private(text: str, private: str) -> Meta:
    """Return the metadata of two JSON texts: what stays, and what goes with the payload."""
    return decode_meta(dumps({**read_json(text), **read_json(private)}))


@lru_cache(maxsize=4096)
def decode_meta(text: str) -> Meta:
    """Return the metadata of its JSON text; fields from the future are left out.

    Numbers beyond their bounds are clamped.
    """
    try:
        return clamped(Meta.model_validate_json(text))
    except ValidationError:
        known = {key: value for key, value in read_json(text).items() if key in Meta.model_fields}
        return clamped(Meta.model_validate(known))
