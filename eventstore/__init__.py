"""The write side: immutable, typed events of conversations, on SQLite or PostgreSQL.

::

    from eventstore import EventStore, NO_STREAM, events

    store = EventStore.open("sqlite:///agent.db")
    store.append(conversation_id, [events.UserMessage.text("hello")], expected_version=NO_STREAM)
"""

from eventstore import errors, events
from eventstore.aio import AsyncEventStore
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
