"""The write side: immutable, typed events of conversations, on SQLite or PostgreSQL.

::

    from eventstore import EventStore, NO_STREAM, events

    store = EventStore.open("sqlite:///agent.db")
    store.append(conversation_id, [events.UserMessage.text("hello")], expected_version=NO_STREAM)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventstore.lazy import exports

if TYPE_CHECKING:
    from eventstore import errors, events
    from eventstore.aio import AsyncEventStore
    from eventstore.archive import ArchivedConversation, ArchiveReport
    from eventstore.erasure.erase import ErasureReceipt
    from eventstore.erasure.purge import PurgeReceipt
    from eventstore.events import Meta, NewEvent, RecordedEvent
    from eventstore.ids import new_id
    from eventstore.security.checkpoints import Checkpoint
    from eventstore.security.hash_chain import Problem, Verification
    from eventstore.security.key_directory import DirectoryKeys
    from eventstore.security.redaction import Redactor, redact_secrets
    from eventstore.security.sealing import KeyProvider
    from eventstore.sql.append_requests import ANY, NO_STREAM, Anchor, Appended
    from eventstore.sql.feed import FeedPage
    from eventstore.sql.streams import StreamInfo
    from eventstore.store import EventStore, StoreOptions, UserErasure

__all__ = [
    "ANY",
    "NO_STREAM",
    "Anchor",
    "Appended",
    "ArchiveReport",
    "ArchivedConversation",
    "AsyncEventStore",
    "Checkpoint",
    "DirectoryKeys",
    "ErasureReceipt",
    "EventStore",
    "FeedPage",
    "KeyProvider",
    "Meta",
    "NewEvent",
    "Problem",
    "PurgeReceipt",
    "RecordedEvent",
    "Redactor",
    "StoreOptions",
    "StreamInfo",
    "UserErasure",
    "Verification",
    "errors",
    "events",
    "new_id",
    "redact_secrets",
]

__getattr__ = exports(
    __name__,
    {
        "ANY": "eventstore.sql.append_requests",
        "Anchor": "eventstore.sql.append_requests",
        "Appended": "eventstore.sql.append_requests",
        "ArchiveReport": "eventstore.archive",
        "ArchivedConversation": "eventstore.archive",
        "AsyncEventStore": "eventstore.aio",
        "Checkpoint": "eventstore.security.checkpoints",
        "DirectoryKeys": "eventstore.security.key_directory",
        "ErasureReceipt": "eventstore.erasure.erase",
        "EventStore": "eventstore.store",
        "FeedPage": "eventstore.sql.feed",
        "KeyProvider": "eventstore.security.sealing",
        "Meta": "eventstore.events.records",
        "NO_STREAM": "eventstore.sql.append_requests",
        "NewEvent": "eventstore.events.records",
        "Problem": "eventstore.security.hash_chain",
        "PurgeReceipt": "eventstore.erasure.purge",
        "RecordedEvent": "eventstore.events.records",
        "Redactor": "eventstore.security.redaction",
        "StoreOptions": "eventstore.store",
        "StreamInfo": "eventstore.sql.streams",
        "UserErasure": "eventstore.store",
        "Verification": "eventstore.security.hash_chain",
        "errors": "eventstore.errors",
        "events": "eventstore.events",
        "new_id": "eventstore.ids",
        "redact_secrets": "eventstore.security.redaction",
    },
)
