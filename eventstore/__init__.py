"""The write side: immutable, typed events of conversations, on SQLite or PostgreSQL.

::

    from eventstore import EventStore, NO_STREAM, events

    store = EventStore.open("sqlite:///agent.db")
    store.append(conversation_id, [events.UserMessage.text("hello")], expected_version=NO_STREAM)
"""

from eventstore import errors, events
from eventstore.aio import AsyncEventStore
from eventstore.erasure import ErasureReceipt
from eventstore.events import Meta, NewEvent, RecordedEvent
from eventstore.ids import new_id
from eventstore.integrity import Problem, Verification
from eventstore.sql.feed import FeedPage
from eventstore.sql.requests import ANY, NO_STREAM, Appended
from eventstore.sql.streams import StreamInfo
from eventstore.store import EventStore

__all__ = [
    "ANY",
    "NO_STREAM",
    "Appended",
    "AsyncEventStore",
    "ErasureReceipt",
    "EventStore",
    "FeedPage",
    "Meta",
    "NewEvent",
    "Problem",
    "RecordedEvent",
    "StreamInfo",
    "Verification",
    "errors",
    "events",
    "new_id",
]
