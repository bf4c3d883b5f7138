"""Conversations that are renamed, put away and taken out again."""

from __future__ import annotations

from typing import Any

from agent_eventstore import Conversation
from projections import Views
from tests.integration.recording import Recorder


def listed(recording: Recorder, conversation: Conversation) -> tuple[Any, Any]:
    """Return title and status of a conversation in the list."""
    (entry,) = (
        each
        for each in Views(recording.store).conversations(limit=1_000)
        if each.conversation_id == conversation.id
    )
    return entry.title, entry.status


def test_new_title_is_shown_at_once(recording: Recorder) -> None:
    """In place of the first one, and later messages do not change it."""
    with recording.start(title="Untitled") as conversation:
        conversation.rename("Norway")
        assert ("Norway", "open") == listed(recording, conversation)
        with conversation.turn("What about Sweden?"):
            pass
        assert ("Norway", "open") == listed(recording, conversation)


def test_archived_conversation_is_open_once_it_is_taken_out(recording: Recorder) -> None:
    """The title stays; it can be gone on with all the while."""
    with recording.start(title="Norway") as conversation:
        conversation.archive()
        assert ("Norway", "archived") == listed(recording, conversation)
        with conversation.turn("Hi"):
            pass
        conversation.unarchive()
        assert ("Norway", "open") == listed(recording, conversation)


def test_timeline_tells_of_it(recording: Recorder) -> None:
    """Folded, as all that concerns the conversation."""
    with recording.start() as conversation:
        conversation.rename("Norway")

    items = Views(recording.store).timeline(conversation.id)
    assert ["Norway"] == [
        each.title for each in items if each.kind == "conversation" and each.title
    ]
