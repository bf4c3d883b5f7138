"""Rows of `writer_leases`: which session writes to a conversation, and until when that is known.

A lease tells others that a writer lives; it protects nothing. Two writers are kept apart by the
writer's epoch alone, so that a lease which ran out too early costs a writer its session, and no
event. Times are the server's on PostgreSQL, and the machine's on SQLite, which has no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, Table, delete, insert, select, update

from eventstore.processes import has_ended
from eventstore.sql.backend import backend_of
from eventstore.sql.schema import metadata_for

__all__ = ["Lease", "lease_of", "leases_of", "let_go", "now_of", "renew", "take"]


@dataclass(frozen=True, slots=True)
class Lease:
    """A session's word that it writes to a conversation.

    Attributes:
        conversation_id: The conversation.
        session_id: The session.
        process: What tells the process from all others of its machine; empty if nothing does.
        who: Process and machine, in words.
        since: When the session was opened.
        expires_at: Until when the word stands, unless it is renewed.
        live: Whether it stood when it was read, and the process was not known to have ended.
    """

    conversation_id: UUID
    session_id: str
    process: str
    who: str
    since: datetime
    expires_at: datetime
    live: bool


def now_of(connection: Connection) -> datetime:
    """Return the time by which leases run out."""
    return backend_of(connection).now(connection)


def lease_of(connection: Connection, conversation_id: UUID) -> Lease | None:
    """Return the lease of a conversation's writer; None if none was left, or none ever given."""
    return next(iter(leases_of(connection, (conversation_id,))), None)


def leases_of(connection: Connection, conversation_ids: Collection[UUID]) -> list[Lease]:
    """Return the leases of these conversations' writers, in no order; none where there is none."""
    table = _table(connection)
    query = select(table).where(table.c.conversation_id.in_(conversation_ids))
    rows = connection.execute(query).mappings().all()
    now = now_of(connection) if rows else None
    return [
        Lease(**row, live=row["expires_at"] > now and not has_ended(row["process"])) for row in rows
    ]


def take(connection: Connection, writer: tuple[UUID, str, str, str], lease_s: float) -> None:
    """Write a lease that stands for some seconds from now; there must be none.

    ``writer`` is conversation, session, process and who that is in words.
    """
    now = now_of(connection)
    row = (*writer, now, now + timedelta(seconds=lease_s))
    names = ("conversation_id", "session_id", "process", "who", "since", "expires_at")
    connection.execute(insert(_table(connection)).values(dict(zip(names, row, strict=True))))


def renew(connection: Connection, sessions: Iterable[tuple[UUID, str, float]]) -> None:
    """Let leases stand for so many seconds from now; those of others stay as they are."""
    table, now = _table(connection), now_of(connection)
    for conversation_id, session_id, lease_s in sorted(sessions):
        connection.execute(
            update(table)
            .where(table.c.conversation_id == conversation_id, table.c.session_id == session_id)
            .values(expires_at=now + timedelta(seconds=lease_s))
        )


def let_go(connection: Connection, conversation_id: UUID, session_id: str | None = None) -> None:
    """Delete the lease of a session, or whosever it is."""
    table = _table(connection)
    query = delete(table).where(table.c.conversation_id == conversation_id)
    if session_id is not None:
        query = query.where(table.c.session_id == session_id)
    connection.execute(query)


def _table(connection: Connection) -> Table:
    return metadata_for(connection.dialect.name).tables["writer_leases"]
