"""Decodes rows of events into recorded events.

Every read and every fold passes through here once per event, so values that the events of a page
share are created once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import ValidationError

from eventstore.blobs import resolve
from eventstore.errors import EventDamaged
from eventstore.events.bounds import clamped, read_json
from eventstore.events.codec import decode, dumps
from eventstore.events.records import EventData, Meta, RecordedEvent, recorded
from eventstore.integrity import unwrapped
from eventstore.sealing import DATA, META, SEALED, Keyring, SealingKey, key_of, opened
from eventstore.sql.backend import Backend
from eventstore.sql.types import is_plain

__all__ = ["SPECIAL", "VERSION", "decode_meta", "decode_rows", "decoded", "is_closed", "open_rows"]

VERSION = 2  # among the columns
_STREAM, _EVENT_ID, _DATA, _META = 1, 3, 7, 8

SPECIAL = '{"$'
"""The start of a payload that is sealed, wrapped or in a blob instead of plain JSON text."""


class _Opened(NamedTuple):
    """The value in the payload's column once a row is opened: its JSON text, or None.

    ``private`` is the text of the metadata stored with it; ``quotable`` says whether SQL can find
    the text's content in the row.
    """

    text: str | None
    private: str = ""
    quotable: bool = False


def decode_rows(
    cur: Any,
    backend: Backend,
    rows: Iterable[Any],
    keys: Keyring | None = None,
) -> list[RecordedEvent]:
    """Return the events of rows of `EVENT_COLUMNS`, each in the stream of its row.

    Raises:
        EventDamaged, BlobNotFound, BlobDamaged, KeyUnavailable: See `open_rows` and `decoded`.
    """
    return [*decoded(backend, open_rows(cur, backend, rows, keys))]


def open_rows(
    cur: Any, backend: Backend, rows: Iterable[Any], keys: Keyring | None
) -> Iterator[Any]:
    """Yield opened rows of `EVENT_COLUMNS`, for which `decoded` needs no database and no keys.

    Payloads in blobs are fetched with ``cur``. Sealed text is opened with ``keys``; if its key has
    been destroyed, it reads as erased.

    Raises:
        EventDamaged: A row holds values that no append has written.
        BlobNotFound, BlobDamaged: A payload's blob is missing or cannot be unpacked.
        KeyUnavailable: A row is sealed, and its key is not available.
    """
    for row in rows:
        data, meta = row[_DATA], row[_META]
        try:  # inlined `is_closed`: for each event the call would cost more than the check
            if meta.startswith(SEALED) or (data is not None and data.startswith(SPECIAL)):
                row = _opened(cur, backend, row, keys)
        except (AttributeError, RecursionError, TypeError, ValueError) as error:
            raise EventDamaged(backend.to_id(row[_STREAM]), row[VERSION]) from error
        yield row


def is_closed(row: Sequence[Any]) -> bool:
    """Whether a row must be opened before it can be decoded."""
    data = row[_DATA]
    return row[_META].startswith(SEALED) or (data is not None and data.startswith(SPECIAL))


def _opened(
    cur: Any, backend: Backend, row: Sequence[Any], keys: Keyring | None
) -> tuple[Any, ...]:
    stream, event_id = backend.to_id(row[_STREAM]), str(row[_EVENT_ID])
    data, meta = row[_DATA], row[_META]
    key: SealingKey | None = None
    quotable, private = True, ""
    if meta.startswith(SEALED):
        key = key_of(keys, stream, meta)
        meta = opened(key, META, event_id, meta) or "{}"
    if data is not None and data.startswith(SEALED):
        key = key_of(keys, stream, data)
        data = opened(key, DATA, event_id, data)
    if data is not None:
        data, private = unwrapped(data)
        if data.startswith('{"$blob":'):
            data, quotable = resolve(cur, backend, stream, data, key), False
        # SQL cannot search sealed text.
        quotable = quotable and key is None and is_plain(data)
    return (*row[:_DATA], _Opened(data, private, quotable), meta, *row[_META + 1 :])


def decoded(
    backend: Backend, rows: Iterable[Any], reader: UUID | None = None
) -> Iterator[RecordedEvent]:
    """Yield the events of opened rows, each created on demand.

    Python's garbage collector scans live objects; if the reader keeps no events, there are hardly
    any.

    Args:
        backend: The backend of the database that the rows are from.
        rows: The rows from `open_rows`.
        reader: The conversation being read; for a fork, rows may be in another stream.

    Raises:
        EventDamaged: A row holds values that no append has written.
    """
    to_id = backend.to_id
    streams: dict[Any, UUID] = {}
    last_stream = last_at = object()
    for (
        position, stream, version, event_id, kind, schema_version, at, data, meta, digest, chain
    ) in rows:  # fmt: skip
        if stream != last_stream:
            last_stream = stream
            if (known := streams.get(stream)) is None:
                known = streams[stream] = to_id(stream)
            conversation_id = known
            inherited = reader is not None and known != reader
        try:
            payload: EventData | None = None
            quotable, private = False, ""
            if data.__class__ is str:
                quotable = is_plain(data)
            elif data is not None:
                data, private, quotable = data
            if data is not None:
                payload = decode(kind, schema_version, data)
            if at != last_at:
                last_at, recorded_at = at, backend.to_time(at)
            event = recorded(
                reader or conversation_id,
                version,
                to_id(event_id),
                position,
                kind,
                schema_version,
                recorded_at,
                payload,
                _with_private(meta, private) if private else decode_meta(meta),
                digest if digest.__class__ is bytes else bytes(memoryview(digest)),
                chain if chain.__class__ is bytes else bytes(memoryview(chain)),
                quotable and not inherited,  # SQL would search the fork's own rows
                inherited,
            )
        except (AttributeError, RecursionError, TypeError, ValueError) as error:
            raise EventDamaged(conversation_id, version) from error
        yield event


def _with_private(text: str, private: str) -> Meta:
    """Return the metadata from two JSON texts: the permanent and the erasable part."""
    return decode_meta(dumps({**read_json(text), **read_json(private)}))


@lru_cache(maxsize=4096)
def decode_meta(text: str) -> Meta:
    """Decode metadata from its JSON text; fields of newer versions are ignored.

    Numbers beyond their bounds are clamped.
    """
    try:
        return clamped(Meta.model_validate_json(text))
    except ValidationError:
        known = {key: value for key, value in read_json(text).items() if key in Meta.model_fields}
        return clamped(Meta.model_validate(known))
