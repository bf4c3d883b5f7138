"""The database for the packages above this one: all that `eventstore.sql` offers them.

Projections and adapters read rows of events and keep tables of their own. They import what they
need for that from here; an import contract refuses `eventstore.sql` to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

from eventstore.events import NewEvent
from eventstore.ids import StreamId
from eventstore.sql import feed

# Connections, and statements on them.
from eventstore.sql.append_requests import check, require_content
from eventstore.sql.backend import (
    STREAM_COLUMNS,
    AnyConnection,
    Backend,
    Bound,
    DriverConnection,
    Statement,
    TransactionOptions,
    backend_named,
    backend_of,
    cursor,
    fetch,
    has_table,
    keys_of,
    raw_of,
    run_each,
    text_out,
)
from eventstore.sql.connection_cache import TURN_S
from eventstore.sql.distribute import DEFAULT_SHARDS, MOST_SHARDS, distribute
from eventstore.sql.driver_errors import is_away, lacks_connection, translated
from eventstore.sql.engines import open_engine
from eventstore.sql.feed import delayed_events

# The schema, the rights of logins, and row-level security.
from eventstore.sql.migrate import (
    REVISIONS,
    VERSION_TABLE,
    current_revision,
    require_free,
    schema_lock,
)
from eventstore.sql.partitions import MOST_PARTITIONS, partition
from eventstore.sql.pools import may_fork

# Rows of events.
from eventstore.sql.read import (
    END,
    SPECIAL,
    VERSION,
    EventText,
    WholeStreams,
    chain_at,
    chains_stand,
    decode_meta,
    decode_rows,
    read_page,
    read_texts,
)
from eventstore.sql.residues import without_statistics
from eventstore.sql.rights import grant, relations, share_rights
from eventstore.sql.row_security import secure, unsecure
from eventstore.sql.schema import VIEWS, Xid8, metadata_for

# Rows of conversations.
from eventstore.sql.streams import (
    absent,
    claim,
    count_events,
    descendants,
    find,
    fork_point,
    get_stream,
    lineage,
    owner_of,
    store_id_of,
    version_of,
)
from eventstore.sql.transactions import require_connection

# Types of columns.
from eventstore.sql.types import (
    Digest,
    Id,
    IndexedText,
    SafeJson,
    SafeText,
    Timestamp,
    all_json_in,
    escape,
    indexed,
    json_in,
    json_out,
    unescape,
)
from eventstore.sql.urls import file_of, is_in_memory
from eventstore.sql.waits import long_running
from eventstore.sql.watch import Watch

if TYPE_CHECKING:
    from eventstore.owners import Owned
    from eventstore.standby import Standby
    from eventstore.store import EventStore

__all__ = [
    "DEFAULT_SHARDS",
    "END",
    "MOST_PARTITIONS",
    "MOST_SHARDS",
    "REVISIONS",
    "SPECIAL",
    "STREAM_COLUMNS",
    "TURN_S",
    "VERSION",
    "VERSION_TABLE",
    "VIEWS",
    "AnyConnection",
    "Backend",
    "Bound",
    "Digest",
    "DriverConnection",
    "EventText",
    "Id",
    "IndexedText",
    "SafeJson",
    "SafeText",
    "Statement",
    "Timestamp",
    "Watch",
    "WholeStreams",
    "Xid8",
    "absent",
    "all_json_in",
    "backend_named",
    "backend_of",
    "chain_at",
    "chains_stand",
    "check",
    "claim",
    "count_events",
    "current_revision",
    "cursor",
    "decode_meta",
    "decode_rows",
    "delayed_events",
    "descendants",
    "distribute",
    "driver_transaction",
    "erase_for",
    "escape",
    "feed",
    "fetch",
    "file_of",
    "find",
    "fork_point",
    "get_stream",
    "grant",
    "has_table",
    "indexed",
    "is_away",
    "is_in_memory",
    "json_in",
    "json_out",
    "keys_of",
    "lacks_connection",
    "lineage",
    "long_running",
    "may_fork",
    "metadata_for",
    "open_engine",
    "owner_of",
    "partition",
    "raw_of",
    "read_page",
    "read_texts",
    "relations",
    "require_connection",
    "require_content",
    "require_free",
    "run_each",
    "run_query",
    "schema_lock",
    "secure",
    "seen_version",
    "share_rights",
    "standby_of",
    "store_id_of",
    "text_out",
    "translated",
    "unescape",
    "unsecure",
    "version_of",
    "without_statistics",
    "writer_raised",
]


def driver_transaction(
    store: EventStore, **options: Unpack[TransactionOptions]
) -> AbstractContextManager[DriverConnection]:
    """Return a transaction on the driver's own connection, for the hot paths of every turn.

    On PostgreSQL writing transactions are pipelined: the error of a statement may be raised at a
    later one.
    """
    return store._driver_transaction(**options)


def seen_version(store: EventStore, conversation_id: UUID) -> int:
    """Return the version that this store last appended to, from memory; it may be outdated."""
    return store._seen_version(conversation_id)


def standby_of(store: EventStore) -> Standby[EventStore] | None:
    """Return the standby that answers a store's reads, if it was opened with one."""
    return store._standby


def writer_raised(store: EventStore, conversation_id: UUID, epoch: int) -> None:
    """Remember the epoch of a conversation's new writer, once it is committed."""
    store._writer_raised(conversation_id, epoch)


def run_query(
    store: EventStore, statement: str, *, limit: int, timeout_s: float
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns and at most ``limit`` rows of one query that a person has written.

    It runs in a transaction that cannot write, on SQLite on a connection of its own.

    Raises:
        ValueError: The SQLite database is in memory.
        Exception: The driver's error: the statement is not a query, or took longer.
    """
    backend = backend_of(store.engine)
    return backend.query(store.engine, statement, limit=limit, timeout_s=timeout_s)


def erase_for(
    store: EventStore,
    conversation_id: StreamId,
    append: Callable[[int], Sequence[NewEvent]],
    *,
    reason: str,
    versions: Iterable[int] | None,
    expected_version: int,
    **owner: Unpack[Owned],
) -> int:
    """Erase payloads, and append the events that replace them, in one transaction.

    ``append`` returns the events, given the version that they follow. Returns the last version.

    Raises:
        WrongExpectedVersion: The conversation is at another version.
        EventStoreError: See `EventStore.erase` and `EventStore.append`.
    """
    return store._erase_for(
        conversation_id,
        append,
        reason=reason,
        versions=versions,
        expected_version=expected_version,
        **owner,
    )
