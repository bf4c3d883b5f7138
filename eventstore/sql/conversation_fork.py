"""Making a fork: a conversation that goes on from a version of another's, and copies nothing.

Its row in `conversations` stands at the version up to which both share their events, and its chain
begins with what it is and with its parent's chain there. From then on it is appended to like any
other.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from eventstore.errors import ConversationNotFound, ForkRefused, OwnerMismatch, WrongExpectedVersion
from eventstore.integrity import chain_start, fork_start
from eventstore.sql.append import append
from eventstore.sql.backend import AnyConnection, Statement, backend_of, run_each, text_in, text_out
from eventstore.sql.lineage import MOST_ANCESTORS, ancestors
from eventstore.sql.read import chain_at
from eventstore.sql.requests import Append, Appended

__all__ = ["ForkPoint", "fork", "locate"]

# An erasure of what is shared waits for the fork's commit, and then reaches it.
_SHARE = Statement(
    "SELECT version, tenant_id, user_id FROM conversations WHERE conversation_id = :source "
    "FOR SHARE"
)
_CREATE = Statement(
    """
    INSERT INTO conversations (conversation_id, version, chain, writer_epoch, tenant_id, user_id,
        created_at, last_active_at, parent_conversation_id, parent_version, key)
    VALUES (:conversation_id, :version, :chain, 0, :tenant_id, :user_id, :now, :now,
        :source, :version, :key)
    ON CONFLICT (conversation_id) DO NOTHING
    """
)
_MADE = Statement(
    """
    SELECT version, parent_conversation_id, parent_version FROM conversations
    WHERE conversation_id = :conversation_id
    """
)


class ForkPoint(NamedTuple):
    """Where a fork leaves its parent: the last version that they share, the chain there, whose."""

    source: UUID
    version: int
    chain: bytes
    tenant_id: str | None
    user_id: str | None


def locate(
    connection: AnyConnection,
    source: UUID,
    before: int | None,
    tenant_id: str | None,
    user_id: str | None,
) -> ForkPoint:
    """Return where a fork of a conversation begins, and keep what it shares from being erased.

    Args:
        connection: In the transaction that makes the fork.
        source: The conversation.
        before: The first version that is not shared; None shares all that there are.
        tenant_id: Whose it must be, if given.
        user_id: Likewise.

    Raises:
        ConversationNotFound: There is no such conversation.
        OwnerMismatch: It belongs to another tenant or user.
        ForkRefused: It has no such version, or its line of parents is too long.
    """
    line = ancestors(connection, source)
    rows = []
    # The eldest first, as an erasure goes from a conversation to its forks.
    for stream in (*(each.conversation_id for each in reversed(line)), source):
        rows = _SHARE.rows(connection, source=stream)
    if not rows:
        raise ConversationNotFound(source)
    [(last, *texts)] = rows
    actual, owners = int(last), (text_out(texts[0]), text_out(texts[1]))
    for asked, owner in zip((tenant_id, user_id), owners, strict=True):
        if asked is not None and asked != owner:
            raise OwnerMismatch(source)
    version = actual if before is None else before - 1
    if not 1 <= version <= actual:
        raise ForkRefused(source, f"before is to be from 2 to {actual + 1:,}, and is {before}")
    if len(line) >= MOST_ANCESTORS:
        raise ForkRefused(
            source,
            f"it has {MOST_ANCESTORS} parents in line already, the most; fork one of them",
        )
    chain = chain_at(connection, source, version)
    if chain is None:
        raise ForkRefused(source, f"its event {version} is gone: verify it, restore a backup")
    return ForkPoint(source, version, bytes(memoryview(chain)), *owners)


def fork(connection: AnyConnection, point: ForkPoint, request: Append, now: datetime) -> Appended:
    """Make a fork with its first events, in the caller's transaction, which has located it.

    The same events again, of a conversation that was forked there already, are not written again.

    Raises:
        WrongExpectedVersion: There is another conversation of this id.
        EventStoreError: As `append` raises.
    """
    backend = backend_of(connection)
    stream, source = backend.from_id(request.conversation_id), backend.from_id(point.source)
    start = chain_start(
        request.conversation_id,
        request.tenant_id,
        request.user_id,
        point.source,
        point.version,
        request.stream_key,
    )
    made = {
        "conversation_id": stream,
        "version": point.version,
        "chain": fork_start(start, point.chain),
        "tenant_id": text_in(request.tenant_id),
        "user_id": text_in(request.user_id),
        "now": backend.from_time(now),
        "source": source,
        "key": text_in(request.stream_key),
    }
    run_each(connection, _CREATE.on(backend), [made])
    [(version, *parent)] = _MADE.rows(connection, conversation_id=request.conversation_id)
    if parent != [source, point.version]:
        raise WrongExpectedVersion(request.conversation_id, 0, int(version))
    return append(connection, request, now)
