"""A head that a process has kept since its last read, and the snapshot in which a read continues.

Nearly every read within a turn needs only the new events; the process remembers the rest. One
statement returns them and says whether log and tables are unchanged; a single statement is its own
snapshot. A transaction begins only when the read asks for more, provided that nothing has changed
by then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from sqlalchemy import Connection

from eventstore.database import (
    STREAM_COLUMNS,
    VERSION,
    AnyConnection,
    DriverConnection,
    Statement,
    backend_of,
    decode_rows,
    keys_of,
    raw_of,
)
from eventstore.erasure.erase import ERASURES
from eventstore.events import RecordedEvent
from projections.engine import heads
from projections.engine.heads import FoldHead
from projections.engine.pages import DAMAGED
from projections.errors import GenerationGone

__all__ = ["CachedHead", "current_head", "current_head_and_events", "snapshot_later"]

C = TypeVar("C", Connection, DriverConnection)

_KEPT_AT = f"""
    SELECT head.version AS saved, {ERASURES.format("= :conversation_id")} AS erased, (
        SELECT chain FROM events
        WHERE conversation_id = :conversation_id AND version = :version
    ) AS mark
    FROM projection_heads AS head
    JOIN projections AS live ON live.name = head.projection
        AND live.generation = head.generation AND live.status = 'live'
    WHERE head.conversation_id = :conversation_id
        AND head.projection = :projection AND head.generation = :generation
    """  # noqa: S608 - a constant
_KEPT = Statement(_KEPT_AT)
_KEPT_AND_SINCE = Statement(
    f"""
    WITH kept AS MATERIALIZED ({_KEPT_AT})
    SELECT {STREAM_COLUMNS}, saved, erased, mark FROM kept
    LEFT JOIN events ON conversation_id = :conversation_id AND version > :version
    ORDER BY version LIMIT :most
    """  # noqa: S608 - constants
)


class CachedHead(NamedTuple):
    """A current head and the events after it, up to a limit."""

    head: FoldHead
    events: Sequence[RecordedEvent]


def current_head(connection: AnyConnection, head: FoldHead, conversation_id: UUID) -> FoldHead:
    """Return a kept head if log and tables are unchanged, otherwise the table's head.

    ``unsaved`` is removed if another process has saved those rows since.

    Raises:
        GenerationGone: The generation is not live, or has no head of the conversation.
    """
    found = _looked_up(connection, head, conversation_id)
    return found or heads.of(connection, [head.generation], conversation_id)[0]


def current_head_and_events(
    connection: AnyConnection, head: FoldHead, conversation_id: UUID, most: int
) -> CachedHead | None:
    """Return a kept head and the events since, in one statement.

    None if the head has changed or an event cannot be read; then query them separately.
    """
    backend = backend_of(connection)
    run = backend.reading(connection)
    try:
        wanted = {"conversation_id": backend.from_id(conversation_id), "most": most}
        run.execute(_KEPT_AND_SINCE.on(backend), _place(head, conversation_id) | wanted)
        found = run.fetchall()
        now = _as_it_was(head, *found[0][-3:]) if found else None
        rows = [row[:-3] for row in found if row[0] is not None]
        if now is None or (rows and rows[0][VERSION] != head.version + 1):
            return None
        return CachedHead(now, decode_rows(run, backend, rows, keys_of(connection)))
    except DAMAGED:
        return None
    except sqlite3.OperationalError as error:
        if hasattr(error, "sqlite_errorcode"):
            raise
        return None  # Bytes that are not valid text.
    finally:
        run.close()


@contextmanager
def snapshot_later(
    like: AnyConnection,
    begin: Callable[[], AbstractContextManager[C]],
    now: Callable[[], FoldHead],
    conversation_id: UUID,
) -> Iterator[C]:
    """Yield a connection whose transaction begins at its first use, and ends with the block.

    The first use raises `GenerationGone` if another process has saved or erased in the meantime, or
    if the log was replaced: earlier and later reads would then see different states.

    Args:
        like: A connection of the same store.
        begin: Begins the transaction.
        now: Returns the head from which the block continues.
        conversation_id: The conversation.
    """

    def take(stack: ExitStack) -> C:
        connection, head = stack.enter_context(begin()), now()
        found = _looked_up(connection, head, conversation_id)
        if found is None or found.unsaved is not head.unsaved:
            raise GenerationGone(head.generation.projection.name)
        return connection

    with ExitStack() as stack:
        later: Any = _LazyConnection(like, partial(take, stack))
        yield later


class _LazyConnection(DriverConnection):
    """A connection that is acquired at its first use."""

    __slots__ = ("_taken", "_taking")
    _taken: AnyConnection | None
    _taking: Callable[[], AnyConnection]

    def __init__(self, like: AnyConnection, taking: Callable[[], AnyConnection]) -> None:
        known = {"backend": backend_of(like), "keys": keys_of(like)}
        for name, value in (known | {"_taken": None, "_taking": taking}).items():
            object.__setattr__(self, name, value)

    @property
    def raw(self) -> Any:
        """The driver's connection, in the transaction."""
        if self._taken is None:
            object.__setattr__(self, "_taken", self._taking())
        assert self._taken is not None  # noqa: S101 - taken
        return raw_of(self._taken)


def _looked_up(connection: AnyConnection, head: FoldHead, conversation_id: UUID) -> FoldHead | None:
    rows = _KEPT.rows(connection, **_place(head, conversation_id))
    if not rows:
        raise GenerationGone(head.generation.projection.name)
    return _as_it_was(head, *rows[0])


def _place(head: FoldHead, conversation_id: UUID) -> dict[str, Any]:
    return {
        "conversation_id": conversation_id,
        "projection": head.generation.projection.name,
        "generation": head.generation.number,
        "version": head.version,
    }


def _as_it_was(head: FoldHead, saved: int, erased: int, mark: bytes | None) -> FoldHead | None:
    """Return a kept head if log and tables are unchanged, without rows that are saved by now."""
    if (int(erased), mark) != (head.erasures, head.chain):
        return None
    if saved == head.version:
        return replace(head, unsaved=None)
    return head if head.unsaved is not None and saved == head.unsaved.saved[0] else None
