"""Reads streams in order of version: one stream page by page, or many whole streams at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, Self, TypedDict, TypeVar, Unpack
from uuid import UUID

from eventstore.blobs import resolve
from eventstore.errors import EventDamaged
from eventstore.events.records import RecordedEvent
from eventstore.integrity import unwrapped
from eventstore.sealing import DATA, META, SEALED, Keyring, SealingKey, key_of, opened
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
from eventstore.sql.decoding import (
    SPECIAL,
    VERSION,
    decode_rows,
    decoded,
    is_closed,
    open_rows,
)
from eventstore.sql.lineage import Shared, lineage

__all__ = [
    "END",
    "EventText",
    "WholeStreams",
    "chain_at",
    "chains_stand",
    "read_page",
    "read_rows",
    "read_texts",
]


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
        begun = shared[place + 1].version if place + 1 < len(shared) else 0
        part = window._replace(
            after=max(window.after, begun), before=min(window.before, version + 1)
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
    lambda *given: [*open_rows(*given[:4])],
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
    found = backend.count_standing(cur, wanted)
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
