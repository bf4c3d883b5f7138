"""Events that no append writes, put into the log by SQL: as an older version, or an attacker, may.

They stand behind a conversation's last event, and the conversation's row is moved on; only
`verify` finds that they were not appended.
"""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import text

from eventstore import EventStore, new_id

__all__ = ["insert_raw_event"]

_SQLITE = """
    INSERT INTO events (conversation_id, version, event_id, type, schema_version, recorded_at,
        data, meta, salt, data_digest, chain)
    SELECT :cid, version + 1, :event_id, :type, 1, last_active_at, :data, :meta, x'00', x'00',
        chain FROM conversations WHERE conversation_id = :cid
    """
_POSTGRESQL = """
    INSERT INTO events (conversation_id, version, event_id, type, schema_version, recorded_at,
        data, meta, salt, data_digest, chain, epoch, tx_id)
    SELECT CAST(:cid AS uuid), version + 1, CAST(:event_id AS uuid), :type, 1, last_active_at,
        CAST(:data AS json), CAST(:meta AS json), '\\x00', '\\x00', chain,
        (SELECT max(epoch) FROM store_epochs), pg_current_xact_id()
    FROM conversations WHERE conversation_id = CAST(:cid AS uuid)
    """


def insert_raw_event(store: EventStore, cid: UUID, kind: str, data: str, meta: str = "{}") -> None:
    """Put an event of this type, payload and metadata behind the last of a conversation."""
    sqlite = store.engine.dialect.name == "sqlite"
    values = {"cid": str(cid), "event_id": str(new_id()), "type": kind, "data": data, "meta": meta}
    with store.writing() as connection:
        connection.execute(text(_SQLITE if sqlite else _POSTGRESQL), values)
        connection.execute(
            text("UPDATE conversations SET version = version + 1 WHERE conversation_id = :cid")
            if sqlite
            else text(
                "UPDATE conversations SET version = version + 1 "
                "WHERE conversation_id = CAST(:cid AS uuid)"
            ),
            {"cid": str(cid)},
        )
