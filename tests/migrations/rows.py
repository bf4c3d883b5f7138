"""Rows as each revision's code wrote them: to be upgraded, and read by today's code.

A new revision adds a function here when the tables it leaves behind take other rows; the functions
of older revisions are never changed.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import Connection, text

CONVERSATION = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
TEXTS = ["hello", "good day"]
_RECORDED_AT = datetime(2025, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
_MICROSECONDS = 1_735_787_045_678_901
_META = '{"turn":1}'


def insert_0001(connection: Connection) -> None:
    """Insert a conversation of two user messages, with its chain."""
    sqlite = connection.dialect.name == "sqlite"
    at = "2025-01-02T03:04:05.678901Z" if sqlite else _RECORDED_AT
    start = b"agent-eventstore chain 2" + CONVERSATION.bytes
    chain = hashlib.sha256(start + b'["acme", "ada", null, null]').digest()
    extra = ("", "") if sqlite else (", epoch, tx_id", ", 1, pg_current_xact_id()")
    for version, words in enumerate(TEXTS, start=1):
        event_id = UUID(int=CONVERSATION.int + version)
        data = f'{{"parts":[{{"kind":"text","text":"{words}"}}],"mentions":[]}}'
        salt = bytes([version]) * 16
        digest = hashlib.sha256(salt + data.encode()).digest()
        header = f"{version}|{_MICROSECONDS}|1|{len(_META)}|user_message|{_META}".encode()
        chain = hashlib.sha256(chain + event_id.bytes + header + digest).digest()
        connection.execute(
            text(
                f"""
                INSERT INTO events (conversation_id, version, event_id, type, schema_version,
                    recorded_at, data, meta, salt, data_digest, chain{extra[0]})
                VALUES (:conversation_id, :version, :event_id, 'user_message', 1, :at, :data,
                    :meta, :salt, :digest, :chain{extra[1]})
                """
            ),
            {
                "conversation_id": str(CONVERSATION),
                "version": version,
                "event_id": str(event_id),
                "at": at,
                "data": data,
                "meta": _META,
                "salt": salt,
                "digest": digest,
                "chain": chain,
            },
        )
    connection.execute(
        text(
            """
            INSERT INTO conversations (conversation_id, version, chain, writer_epoch, tenant_id,
                user_id, created_at, last_active_at)
            VALUES (:conversation_id, 2, :chain, 0, 'acme', 'ada', :at, :at)
            """
        ),
        {"conversation_id": str(CONVERSATION), "chain": chain, "at": at},
    )


INSERT = dict.fromkeys(("0001", "0002", "0003", "0004", "0005"), insert_0001)
"""From the revision to what inserts its rows."""
