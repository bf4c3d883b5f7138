"""Forking: a conversation that continues from a version of another one, without copying events.

The fork's row in `conversations` starts at the last shared version, and its chain starts from its
own identity and its parent's chain value there. From then on, appends work as for any other
conversation.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from eventstore.errors import ForkRefused, OwnerMismatch, WrongExpectedVersion
from eventstore.security.hash_chain import chain_start, fork_start
from eventstore.sql.append import append, refuse_left
from eventstore.sql.append_requests import Append, Appended
from eventstore.sql.backend import AnyConnection, Statement, backend_of, run_each, text_in, text_out
from eventstore.sql.read import chain_at
from eventstore.sql.streams import MOST_ANCESTORS, absent, ancestors

__all__ = ["ForkOrigin", "fork", "locate"]

# An erasure of the shared events waits for the fork's commit, and then includes the fork.
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


class ForkOrigin(NamedTuple):
    """Where a fork branches off: the parent, the last shared version, its chain, and the owner."""

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
) -> ForkOrigin:
    """Return where a fork of a conversation branches off, and lock the shared events from erasure.

    Args:
        connection: In the transaction that creates the fork.
        source: The conversation.
        before: The first version that is not shared; None shares all events.
        tenant_id: The tenant that the source must have, if given.
        user_id: The user that the source must have, if given.

    Raises:
        ConversationNotFound: The conversation does not exist.
        OwnerMismatch: It belongs to another tenant or user.
        ForkRefused: It has no such version, or too many ancestors.
    """
    line = ancestors(connection, source)
    rows = []
    # The oldest first, in the same order as an erasure locks: a conversation, then its forks.
    for stream in (*(each.conversation_id for each in reversed(line)), source):
        backend_of(connection).pin(connection, stream)
        rows = _SHARE.rows(connection, source=stream)
    if not rows:
        raise absent(connection, source)
    [(last, *texts)] = rows
    actual, owners = int(last), (text_out(texts[0]), text_out(texts[1]))
    for requested, owner in zip((tenant_id, user_id), owners, strict=True):
        if requested is not None and requested != owner:
            raise OwnerMismatch(source)
    if not isinstance(before, int | None):
        raise ForkRefused(source, f"before must be a version, not {before!r:.80}")
    version = actual if before is None else before - 1
    if not 1 <= version <= actual:
        raise ForkRefused(source, f"before must be from 2 to {actual + 1:,}, not {before}")
    if len(line) >= MOST_ANCESTORS:
        raise ForkRefused(
            source,
            f"it already has {MOST_ANCESTORS} ancestors, the maximum; fork one of them",
        )
    chain = chain_at(connection, source, version)
    if chain is None:
        raise ForkRefused(source, f"its event {version} is missing: verify it, restore a backup")
    return ForkOrigin(source, version, bytes(memoryview(chain)), *owners)


def fork(connection: AnyConnection, point: ForkOrigin, request: Append, now: datetime) -> Appended:
    """Create a fork with its first events, in the caller's transaction, which called `locate`.

    If the conversation was already forked there with the same events, nothing is written.

    Raises:
        WrongExpectedVersion: Another conversation has this id.
        ConversationDamaged: Events of a conversation without a row have this id.
        EventStoreError: See `append`.
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
    request.require_free_id()
    run_each(connection, _CREATE.on(backend), [made])
    rows = _MADE.rows(connection, conversation_id=request.conversation_id)
    if not rows:  # It exists, but row-level security hides it.
        raise OwnerMismatch(request.conversation_id)
    [(version, *parent)] = rows
    if parent != [source, point.version]:
        raise WrongExpectedVersion(request.conversation_id, 0, int(version))
    if version == point.version:  # It was just created: a fork has events of its own.
        refuse_left(connection, request.conversation_id)
    return append(connection, request, now)
