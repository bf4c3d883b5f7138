"""The caller's own transaction: an append commits with it, and is rolled back with it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
from sqlalchemy import text

from eventstore import EventStore, NewEvent, new_id
from eventstore.errors import WrongExpectedVersion
from eventstore.events import ToolResult
from tests.contract.facade import say, texts


@pytest.fixture
def own(shared_url: str) -> Iterator[EventStore]:
    """Give a synchronous store; a connection belongs to one thread."""
    with EventStore.open(shared_url) as store:
        yield store


def test_nothing_is_seen_before_the_commit(own: EventStore, cid: UUID) -> None:
    """Until the caller commits, nobody else sees the event; then everybody does."""
    with own.writing() as connection:
        done = own.append(cid, say("1"), connection=connection)
        during = list(own.read(cid))

    assert ([], list(done.events)) == (during, list(own.read(cid)))


def test_rollback_takes_everything_back(own: EventStore, cid: UUID) -> None:
    """Events, blobs and the conversation itself go when the caller rolls back."""
    large = ToolResult(call_id="1.0", content="x" * 100_000)
    with own.writing() as connection:
        own.append(cid, [*say("1"), large], connection=connection)
        connection.rollback()

    with own.reading() as connection:
        counts = [
            connection.execute(
                text(f"SELECT count(*) FROM {table} WHERE conversation_id = '{cid}'")
            ).scalar()
            for table in ("events", "conversations", "blobs")
        ]
    assert [0, 0, 0] == counts


def test_two_appends_are_one_transaction(own: EventStore) -> None:
    """Several conversations are appended to together, or not at all."""
    one, two = new_id(), new_id()
    own.append(two, say("there already"))

    def append_both() -> None:
        with own.writing() as connection:
            own.append(one, say("1"), connection=connection)
            own.append(two, say("2"), expected_version=0, connection=connection)

    with pytest.raises(WrongExpectedVersion):
        append_both()

    assert [] == list(own.read(one))


def test_a_conflict_leaves_the_transaction_usable(own: EventStore, cid: UUID) -> None:
    """The caller may catch the conflict and go on; what it did before is kept."""
    with own.writing() as connection:
        own.append(cid, say("1"), connection=connection)
        with pytest.raises(WrongExpectedVersion):
            own.append(cid, say("no"), expected_version=7, connection=connection)
        own.append(cid, say("2"), expected_version=1, connection=connection)

    assert ["1", "2"] == texts(own.read(cid))


def test_the_next_append_goes_on_from_an_own_one(own: EventStore, cid: UUID) -> None:
    """Retries and versions know nothing of who owned the transaction."""
    events = [NewEvent(message, new_id()) for message in say("1", "2")]
    with own.writing() as connection:
        first = own.append(cid, events, connection=connection)

    assert first == own.append(cid, events)
    assert 3 == own.append(cid, say("3"), expected_version=2).version
    assert own.verify(cid).ok
