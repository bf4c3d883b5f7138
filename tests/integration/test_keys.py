"""Conversations that a product starts, opens and reads by keys of its own."""

from __future__ import annotations

from typing import Any

import pytest

from agent_eventstore import recover
from eventstore import EventStore, new_id
from eventstore.errors import ConversationExists, ConversationNotFound, InvalidEvent, OwnerMismatch
from projections import Views
from tests.integration.recording import Recorder, ask


@pytest.fixture
def key() -> str:
    """Give a key that no other test uses."""
    return f"user-42:chat-{new_id()}"


def test_conversation_is_started_and_opened_by_its_key(recording: Recorder, key: str) -> None:
    """And read by it; the list shows it."""
    with recording.start(key=key) as conversation, conversation.turn("Hi") as turn:
        ask(turn)
    with recording.open(key) as again, again.turn("And?") as turn:
        assert 2 == turn.number

    views = Views(recording.store)
    assert conversation.id == again.id
    assert views.timeline(key) == views.timeline(again.id)
    assert [key] == [each.key for each in views.conversations() if each.key == key]
    assert not recover(recording.store, views, key).sealed


def test_starting_a_key_twice_is_refused(recording: Recorder, key: str) -> None:
    """The error names the key and the way out."""
    first = recording.start(key=key)
    first.close()

    with pytest.raises(ConversationExists, match="if_exists") as caught:
        recording.start(key=key)
    assert (first.id, key) == (caught.value.conversation_id, caught.value.key)


def test_starting_may_open_what_is_there(recording: Recorder, key: str) -> None:
    """One call serves the first request and all later ones."""
    for number in (1, 2, 3):
        with recording.start(key=key, if_exists="open") as conversation:
            with conversation.turn("Hi") as turn:
                assert number == turn.number


def test_opening_what_is_there_asks_whose_it_is(recording: Recorder, key: str) -> None:
    """A key of another user's is refused, not opened."""
    recording.start(key=key, tenant_id="acme", user_id="ada").close()

    with pytest.raises(OwnerMismatch):
        recording.start(key=key, tenant_id="acme", user_id="bob", if_exists="open")
    with pytest.raises(OwnerMismatch):
        recording.open(key, tenant_id="acme", user_id="bob")
    with pytest.raises(ConversationNotFound):
        recording.open(key)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"key": str(new_id())}, "is a UUID"),
        ({"key": "a", "conversation_id": new_id()}, "pass one of them"),
        ({"key": ""}, "is not a conversation"),
        ({"key": "k" * 1_025}, "1,024 bytes"),
        ({"user_id": 42}, "user_id must be text"),
        ({"tenant_id": ""}, "tenant_id is empty"),
    ],
)
def test_names_that_cannot_be_kept_are_refused(
    recording: Recorder, named: dict[str, Any], said: str
) -> None:
    """In words that say which and why."""
    with pytest.raises(InvalidEvent, match=said):
        recording.start(**named)


def test_unknown_key_is_not_found(common: EventStore, key: str) -> None:
    """By a view, which names it."""
    with pytest.raises(ConversationNotFound):
        Views(common).timeline(key)
