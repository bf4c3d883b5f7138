"""Reads streams in order of version: one stream page by page, or many whole streams at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, Self, TypedDict, TypeVar, Unpack
from uuid import UUID

from pydantic import ValidationError

from eventstore.blobs import resolve
from eventstore.errors import EventDamaged
from eventstore.events.bounds import clamped, read_json
from eventstore.events.codec import decode, dumps
from eventstore.events.records import EventData, Meta, RecordedEvent, recorded
from eventstore.security.hash_chain import unwrapped
from eventstore.security.sealing import DATA, META, SEALED, Keyring, SealingKey, key_of, opened
from eventstore.sql.backend import (
    EVENT_COLUMNS,
    STREAM_COLUMNS,
    STREAM_PAYLOAD,
    AnyConnection,
    Backend,
    Statement,
    backend_of,
    cursor,
    keys_of,
)
from eventstore.sql.streams import Shared, lineage
from eventstore.sql.types import is_plain

__all__ = [
    "END",
    "SPECIAL",
    "VERSION",
    "EventText",
    "WholeStreams",
    "chain_at",
    "chains_stand",
    "decode_meta",
    "decode_rows",
    "decoded",
    "is_closed",
    "open_rows",
    "read_page",
    "read_rows",
    "read_texts",
]


VERSION = 2  # among the columns


_STREAM_COLUMN, _EVENT_ID, _DATA, _META = 1, 3, 7, 8


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
            raise EventDamaged(backend.to_id(row[_STREAM_COLUMN]), row[VERSION]) from error
        yield row


def is_closed(row: Sequence[Any]) -> bool:
    """Whether a row must be opened before it can be decoded."""
    data = row[_DATA]
    return row[_META].startswith(SEALED) or (data is not None and data.startswith(SPECIAL))


def _opened(
    cur: Any, backend: Backend, row: Sequence[Any], keys: Keyring | None
) -> tuple[Any, ...]:
    stream, event_id = backend.to_id(row[_STREAM_COLUMN]), str(row[_EVENT_ID])
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


class EventText(NamedTuple):
    """An event with its payload as JSON text, not decoded; None once it is erased."""

    version: int
    type: str
    schema_version: int
    text: str | None
    meta: str


_E = TypeVar("_E")


@dataclass(frozen=True, slots=True)
class _Wanted(Generic[_E]):
    """How to read each event: the queries of a page, the decoder of rows, the version's column."""

    forward: Statement
    backward: Statement
    made: Callable[..., list[_E]]
    version: int


def _page(order: str, columns: str) -> Statement:
    return Statement(
        f"""
        SELECT {columns} FROM events
        WHERE conversation_id = :conversation_id AND version > :after AND version < :before
        ORDER BY version {order} LIMIT :page_size
        """  # noqa: S608 - built from constants
    )


_FORWARD = _page("ASC", STREAM_COLUMNS)


_TEXTS = f"version, type, schema_version, {STREAM_PAYLOAD}, meta::text"


_IDS = Statement(
    "SELECT version, event_id FROM events WHERE conversation_id = :conversation_id "
    "AND version BETWEEN :first AND :last"
)


_VERSIONS = """
    SELECT version FROM events
    WHERE conversation_id = :conversation_id AND version > :after AND version < :before
    ORDER BY version
    """


_CHAIN = Statement(
    "SELECT chain FROM events WHERE conversation_id = :conversation_id AND version = :version"
)


END = 2**62


"""A version that no stream reaches."""


class Bounds(TypedDict, total=False):
    """Which events of a stream to read: up to ``limit`` with ``after < version < before``.

    Attributes:
        after: The version before the first event to read; by default read from the first.
        before: The version after the last event to read; by default read to the last.
        backward: Newest first.
        limit: The most events to return; by default 1,000.
    """

    after: int
    before: int
    backward: bool
    limit: int


def read_page(
    connection: AnyConnection,
    conversation_id: UUID,
    *,
    keys: Keyring | None = None,
    **bounds: Unpack[Bounds],
) -> list[RecordedEvent]:
    """Return events of a stream.

    Events that a fork shares are read from its ancestors.

    Args:
        connection: In a transaction of the caller's.
        conversation_id: The stream; one that does not exist has no events.
        keys: The store's keys, if the connection is not one of the store's own.
        bounds: Which events to return.

    Raises:
        EventDamaged: A row holds values that no append has written.
        BlobNotFound: The blob of a payload is missing.
        BlobDamaged: A blob's bytes cannot be unpacked.
        KeyUnavailable: An event is sealed, and its key is not available.
    """
    rows = _page_of(connection, conversation_id, _Window(**bounds), keys, _EVENT_ROWS)
    return [*decoded(backend_of(connection), rows, conversation_id)]


def read_rows(
    connection: AnyConnection, conversation_id: UUID, **bounds: Unpack[Bounds]
) -> list[Any]:
    """Return the same events as `read_page`, as rows for `decoded`, which needs no transaction."""
    return _page_of(connection, conversation_id, _Window(**bounds), None, _EVENT_ROWS)


def read_texts(
    connection: AnyConnection, conversation_id: UUID, **bounds: Unpack[Bounds]
) -> list[EventText]:
    """Return the same events as `read_page`, in the caller's transaction, without decoding them.

    For readers that decode payloads they wrote themselves, in a tenth of the time.

    Raises:
        EventDamaged, BlobNotFound, BlobDamaged, KeyUnavailable: See `read_page`.
    """
    return _page_of(connection, conversation_id, _Window(**bounds), None, _EVENT_TEXTS)


def _page_of(
    connection: AnyConnection,
    conversation_id: UUID,
    window: _Window,
    keys: Keyring | None,
    wanted: _Wanted[_E],
) -> list[_E]:
    """Return the events of a window, including those that a fork shares, decoded as wanted."""
    after, _, limit, backward = window
    keys = keys or keys_of(connection)
    own = _read(connection, conversation_id, window, wanted)
    begins = bool(own) and own[-1 if backward else 0][wanted.version] == after + 1
    parts: list[tuple[UUID, _Window]] = []
    if not begins and not (backward and len(own) == limit):
        # The beginning of the window is missing: it does not exist, or an ancestor has it.
        parts = _parts(lineage(connection, conversation_id), window)
    rows = [(conversation_id, own)] if backward else []
    left = limit - len(own) if backward else limit
    for holder, part in parts:
        rows.append((holder, _read(connection, holder, part._replace(limit=left), wanted)))
        left -= len(rows[-1][1])
    if not backward:
        rows.append((conversation_id, own[:left]))
    backend = backend_of(connection)
    return [
        each
        for holder, some in rows
        if some
        for each in wanted.made(backend.reading(connection), backend, some, keys, holder)
    ]


class _Window(NamedTuple):
    """Which events of a stream to read: those between two versions, from one end."""

    after: int = 0
    before: int = END
    limit: int = 1_000
    backward: bool = False


def _parts(shared: Sequence[Shared], window: _Window) -> list[tuple[UUID, _Window]]:
    """Return the ancestors that hold a fork's window below its own rows, in reading order."""
    parts = []
    for place, (holder, version) in enumerate(shared):
        start = shared[place + 1].version if place + 1 < len(shared) else 0
        part = window._replace(
            after=max(window.after, start), before=min(window.before, version + 1)
        )
        if part.after + 1 < part.before:
            parts.append((holder, part))
    return parts if window.backward else parts[::-1]


def _read(
    connection: AnyConnection,
    conversation_id: UUID,
    window: _Window,
    wanted: _Wanted[Any],
) -> list[Any]:
    """Return a stream's own rows: payloads in blobs are fetched later, if the row is wanted."""
    if window.limit <= 0:
        return []
    backend = backend_of(connection)
    cur = backend.reading(connection)
    place = {
        "conversation_id": backend.from_id(conversation_id),
        "after": window.after,
        "before": window.before,
        "page_size": window.limit,
    }
    cur.execute((wanted.backward if window.backward else wanted.forward).on(backend), place)
    try:
        rows: list[Any] = cur.fetchall()
    except sqlite3.OperationalError as error:
        if hasattr(error, "sqlite_errorcode"):
            raise
        # Python found bytes that are not text, but does not say in which row.
        version = _no_text(cur, backend, place)
        # An unfinished query would keep its snapshot beyond the transaction.
        cur.close()
        raise EventDamaged(conversation_id, version) from error
    cur.close()
    return rows


def _texts(
    cur: Any, backend: Backend, rows: Sequence[Any], keys: Keyring | None, stream: UUID
) -> list[EventText]:
    """Return a stream's rows of `_TEXTS`, unsealed and with the content of blobs."""
    found = [*map(partial(tuple.__new__, EventText), rows)]  # the cheapest way for plain rows
    special = [at for at, row in enumerate(rows) if row[3] and row[3].startswith(SPECIAL)]
    ids: dict[int, Any] = {}
    if any(found[at].text.startswith(SEALED) for at in special):  # type: ignore[union-attr]
        first, last = sorted((found[0].version, found[-1].version))
        wanted = {"conversation_id": backend.from_id(stream), "first": first, "last": last}
        ids = dict(cur.execute(_IDS.on(backend), wanted).fetchall())
    for at in special:
        version, _, _, data, meta = rows[at]
        try:
            key: SealingKey | None = None
            if data.startswith(SEALED):
                key, event_id = key_of(keys, stream, data), str(ids[version])
                if meta.startswith(SEALED):
                    meta = opened(key, META, event_id, meta) or "{}"
                data = opened(key, DATA, event_id, data)
            if data is not None and (data := unwrapped(data)[0]).startswith('{"$blob":'):
                data = resolve(cur, backend, stream, data, key)
        except (AttributeError, RecursionError, TypeError, ValueError) as error:
            raise EventDamaged(stream, version) from error
        found[at] = found[at]._replace(text=data, meta=meta)
    return found


_EVENT_ROWS: _Wanted[Any] = _Wanted(
    _FORWARD,
    _page("DESC", STREAM_COLUMNS),
    lambda *arguments: [*open_rows(*arguments[:4])],
    VERSION,
)


_EVENT_TEXTS = _Wanted(_page("ASC", _TEXTS), _page("DESC", _TEXTS), _texts, 0)


def chain_at(connection: AnyConnection, conversation_id: UUID, version: int) -> bytes | None:
    """Return the chain value of a stream's event, or None, in the caller's transaction."""
    found = _CHAIN.rows(connection, conversation_id=conversation_id, version=version)
    if not found and version:
        shared = lineage(connection, conversation_id)
        for holder in [each for each in shared if each.version >= version][-1:]:
            found = _CHAIN.rows(connection, conversation_id=holder.conversation_id, version=version)
    return found[0][0] if found else None


def chains_stand(
    connection: AnyConnection, expected: Mapping[UUID, tuple[int, bytes | None]]
) -> bool:
    """Return whether streams have events with these versions and chain values, in one query.

    They no longer have them if the database has been restored to an older state.
    """
    backend, cur = backend_of(connection), cursor(connection)
    wanted = [(backend.from_id(stream), *place) for stream, place in expected.items()]
    found = backend.count_matching(cur, wanted)
    cur.close()
    return found == len(wanted)


def _no_text(cur: sqlite3.Cursor, backend: Backend, wanted: dict[str, Any]) -> int:
    """Return the first of these versions whose row Python cannot decode as text."""
    cur.execute(_VERSIONS, wanted)
    for (version,) in cur.fetchall():
        try:
            one = {"after": version - 1, "before": version + 1}
            cur.execute(_FORWARD.on(backend), wanted | one).fetchall()
        except sqlite3.OperationalError:
            return int(version)
    return int(wanted["after"]) + 1


_WHOLE = Statement(
    f"SELECT {EVENT_COLUMNS} FROM events WHERE conversation_id = ANY(:ids) "  # noqa: S608 - constants
    "ORDER BY conversation_id, version"
)


_STREAM = 1  # among the columns


class WholeStreams:
    """Rows of several streams, read by one query and decoded on demand.

    A query per stream costs as much as several of its events, and a busy server answers each late.
    """

    def __init__(self, backend: Backend, rows: Sequence[Any]) -> None:
        self._backend = backend
        self._rows: dict[Any, list[Any]] = {}
        for row in rows:
            self._rows.setdefault(row[_STREAM], []).append(row)

    @classmethod
    def read(cls, connection: AnyConnection, ids: Sequence[UUID]) -> Self:
        """Read all rows of these streams."""
        backend = backend_of(connection)
        cur = backend.reading(connection)
        wanted = {"ids": backend.array([backend.from_id(each) for each in ids])}
        try:
            cur.execute(_WHOLE.on(backend), wanted)
            rows = cur.fetchall()
        except sqlite3.OperationalError as error:
            if hasattr(error, "sqlite_errorcode"):
                raise
            rows = []  # One holds bytes that are not text; reading its stream alone finds it.
        finally:
            cur.close()
        return cls(backend, rows)

    def take(
        self, conversation_id: UUID, connection: AnyConnection | None = None
    ) -> list[RecordedEvent] | None:
        """Return a stream's events and forget them; None if the caller must use `read_page`.

        The caller must use `read_page` if the stream has no events of its own, or is a fork that
        shares its first ones. Without a connection, sealed text and blobs cannot be opened: then
        return None and forget nothing.

        Raises:
            EventDamaged, BlobNotFound, BlobDamaged, KeyUnavailable: See `read_page`.
        """
        stream = self._backend.from_id(conversation_id)
        rows = self._rows.get(stream)
        if rows is None or rows[0][VERSION] != 1:
            return None
        if connection is None:
            if self._must_be_opened(rows):
                return None
            del self._rows[stream]
            return [*decoded(self._backend, rows)]
        del self._rows[stream]
        cur = self._backend.reading(connection)
        try:
            return decode_rows(cur, self._backend, rows, keys_of(connection))
        finally:
            cur.close()

    @staticmethod
    def _must_be_opened(rows: Sequence[Any]) -> bool:
        try:
            return any(map(is_closed, rows))
        except (AttributeError, TypeError):  # SQLite accepts any value in any column.
            return True
