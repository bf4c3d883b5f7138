"""Whether anything is new in a conversation that an adapter keeps in memory: one row tells."""

from __future__ import annotations

from eventstore import EventStore
from eventstore.sql.backend import Statement, backend_of, cursor

__all__ = ["head_of"]

_HEAD = Statement(
    "SELECT version, chain FROM conversations WHERE conversation_id = :conversation_id"
)


def head_of(store: EventStore, conversation: str) -> tuple[int, bytes] | None:
    """Return version and chain of a conversation's last event: they tell if anything is new."""
    stream = store.stream(conversation)
    with store._on_driver() as connection:
        backend, cur = backend_of(connection), cursor(connection)
        cur.execute(_HEAD.on(backend), {"conversation_id": backend.from_id(stream)})
        row = cur.fetchone()
        cur.close()
    return None if row is None else (row[0], bytes(row[1]))
