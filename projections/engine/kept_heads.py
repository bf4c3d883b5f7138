"""A head that a process has kept since its last read, and the snapshot of a read that goes on.

Nearly every read of a turn needs the new events alone: all else it remembers. One statement finds
them and tells whether log and tables are as they were, which is a snapshot by itself; a transaction
is begun once the read asks for more, if nothing has moved until then.
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

from eventstore.erasure import ERASURES
from eventstore.events import RecordedEvent
from eventstore.sql.backend import (
    EVENT_COLUMNS,
    AnyConnection,
    DriverConnection,
    Statement,
    backend_of,
    keys_of,
    raw_of,
)
from eventstore.sql.decoding import VERSION, decode_rows
from projections.engine import heads
from projections.engine.heads import Head
from projections.engine.pages import DAMAGED
from projections.errors import GenerationGone

__all__ = ["Kept", "kept", "kept_and_since", "snapshot_later"]

C = TypeVar("C", Connection, DriverConnection)

_KEPT_AT = f"""
    SELECT head.version AS saved, {ERASURES.format("= head.conversation_id")} AS erased, (
        SELECT chain FROM events
        WHERE conversation_id = head.conversation_id AND version = :version
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
    SELECT {EVENT_COLUMNS}, saved, erased, mark FROM kept
    LEFT JOIN events ON conversation_id = :conversation_id AND version > :version
    ORDER BY version LIMIT :most
    """  # noqa: S608 - constants
)


class Kept(NamedTuple):
    """A head as it stands, and the events since, up to a number of them."""

    head: Head
    events: Sequence[RecordedEvent]


def kept(connection: AnyConnection, head: Head, conversation_id: UUID) -> Head:
    """Return a head that a process has kept, if log and tables are as they were, or the table's.

    Without ``unsaved`` if somebody has saved that since.

    Raises:
        GenerationGone: The generation is not the live one, or knows nothing of the conversation.
    """
    found = _looked_up(connection, head, conversation_id)
    return found or heads.of(connection, [head.generation], conversation_id)[0]


def kept_and_since(
    connection: AnyConnection, head: Head, conversation_id: UUID, most: int
) -> Kept | None:
    """Return a head that a process has kept, and the events since, in one statement.

    None where the head is another one now, and where an event cannot be read: then ask for each.
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
        return Kept(now, decode_rows(run, backend, rows, keys_of(connection)))
    except DAMAGED:
        return None
    except sqlite3.OperationalError as error:
        if hasattr(error, "sqlite_errorcode"):
            raise
        return None  # Bytes that are not text.
    finally:
        run.close()


@contextmanager
def snapshot_later(
    like: AnyConnection,
    begin: Callable[[], AbstractContextManager[C]],
    now: Callable[[], Head],
    conversation_id: UUID,
) -> Iterator[C]:
    """Yield a connection whose transaction begins when it is first used, and ends with the block.

    Its first use raises `GenerationGone` where others have saved or erased meanwhile, or the log is
    another one: what was read before is then of another state than what would be read now.

    Args:
        like: A connection of the same store.
        begin: Begins the transaction.
        now: Returns the head as the block goes on from it.
        conversation_id: The conversation.
    """

    def take(stack: ExitStack) -> C:
        connection, head = stack.enter_context(begin()), now()
        found = _looked_up(connection, head, conversation_id)
        if found is None or found.unsaved is not head.unsaved:
            raise GenerationGone(head.generation.projection.name)
        return connection

    with ExitStack() as stack:
        later: Any = _Later(like, partial(take, stack))
        yield later


class _Later(DriverConnection):
    """A connection that is taken when it is first used."""

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


def _looked_up(connection: AnyConnection, head: Head, conversation_id: UUID) -> Head | None:
    rows = _KEPT.rows(connection, **_place(head, conversation_id))
    if not rows:
        raise GenerationGone(head.generation.projection.name)
    return _as_it_was(head, *rows[0])


def _place(head: Head, conversation_id: UUID) -> dict[str, Any]:
    return {
        "conversation_id": conversation_id,
        "projection": head.generation.projection.name,
        "generation": head.generation.number,
        "version": head.version,
    }


def _as_it_was(head: Head, saved: int, erased: int, mark: bytes | None) -> Head | None:
    """Return a kept head if log and tables are as they were, without what is saved by now."""
    if (int(erased), mark) != (head.erasures, head.chain):
        return None
    if saved == head.version:
        return replace(head, unsaved=None)
    return head if head.unsaved is not None and saved == head.unsaved.saved[0] else None
