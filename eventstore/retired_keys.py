"""Keys that an erasure has retired: noted in its transaction, and destroyed after it.

In this order neither a crash nor a failing provider leaves a conversation that was erased in the
database and can be opened in a backup, without somebody who knows: the note stays until the key
is destroyed.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, delete, insert, select, update

from eventstore.errors import KeyUnavailable
from eventstore.sealing import Keyring
from eventstore.sql.schema import metadata_for
from eventstore.sql.transactions import Transactions

__all__ = ["destroy_retired", "retire"]


def retire(connection: Connection, conversation_id: UUID, key_id: str, now: datetime) -> None:
    """Take a conversation's key away from it, in the caller's transaction, to be destroyed."""
    tables = metadata_for(connection.dialect.name).tables
    streams, retired = tables["conversations"], tables["retired_keys"]
    connection.execute(
        insert(retired).values(conversation_id=conversation_id, key_id=key_id, retired_at=now)
    )
    connection.execute(
        update(streams).where(streams.c.conversation_id == conversation_id).values(key_id=None)
    )


def destroy_retired(
    transactions: Transactions, keys: Keyring, conversation_id: UUID | None = None
) -> None:
    """Destroy the retired keys of a conversation, or of all, and then forget them.

    Raises:
        KeyUnavailable: The provider could not destroy one of them, the first of which this names.
    """
    retired = metadata_for(transactions.engine.dialect.name).tables["retired_keys"]
    query = select(retired.c.conversation_id, retired.c.key_id)
    if conversation_id is not None:
        query = query.where(retired.c.conversation_id == conversation_id)
    with transactions.reading() as connection:
        found = connection.execute(query).all()
    failed: KeyUnavailable | None = None
    for stream, key_id in found:
        try:
            keys.destroy(stream, key_id)
        except KeyUnavailable as error:  # The others are destroyed all the same.
            failed = failed or error
            continue
        with transactions.writing() as connection:
            connection.execute(
                delete(retired).where(
                    retired.c.conversation_id == stream, retired.c.key_id == key_id
                )
            )
    if failed is not None:
        raise failed
