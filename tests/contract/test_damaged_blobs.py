"""A blob whose bytes were damaged is named as such wherever it is read."""

from __future__ import annotations

from uuid import UUID

import pytest

from eventstore import EventStore, events
from eventstore.errors import BlobDamaged

_LARGE = "x" * 200_000


@pytest.fixture
def damaged(database_url: str, cid: UUID) -> EventStore:
    """Return a store whose only conversation has a message and a result in damaged blobs."""
    store = EventStore.open(database_url)
    result = events.ToolResult(call_id="1.0", content=_LARGE)
    store.append(cid, [events.UserMessage.text(_LARGE), result])
    with store.writing() as connection:
        connection.exec_driver_sql("UPDATE blobs SET content = substr(content, 1, 8)")
    return store


def test_reading_an_event_says_which_blob_is_damaged(damaged: EventStore, cid: UUID) -> None:
    """The payload of the message cannot be resolved."""
    with damaged, pytest.raises(BlobDamaged):
        list(damaged.read(cid))


def test_reading_a_blob_says_that_it_is_damaged(damaged: EventStore, cid: UUID) -> None:
    """The text of the tool result cannot be unpacked."""
    [result] = [event.data for event in damaged.read(cid, after=1)]
    assert isinstance(result, events.ToolResult)
    assert result.blob is not None
    with damaged, pytest.raises(BlobDamaged):
        damaged.blob(cid, result.blob.digest)
