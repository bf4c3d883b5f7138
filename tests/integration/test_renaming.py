"""Conversations that are renamed, put away and taken out again."""

from __future__ import annotations

from typing import Any

from agent_eventstore import Conversation
from projections import Views
from tests.integration.recording import Recorder, ask


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


class TestTitleOfTheFirstMessage:
    """``title=`` as a function of the product's."""

    def test_it_is_made_once(self, recording: Recorder) -> None:
        """After the first turn, of its message; until then the message itself is shown."""
        asked: list[str] = []

        def made(said: str) -> str:
            asked.append(said)
            return said.upper()

        conversation = recording.start(title=made)
        with conversation.turn("about norway") as turn:
            assert "about norway" == listed(recording, conversation)[0]
            ask(turn)
        assert "ABOUT NORWAY" == listed(recording, conversation)[0]
        with conversation.turn("about sweden") as turn:
            ask(turn)

        assert ["about norway"] == asked
        assert "ABOUT NORWAY" == listed(recording, conversation)[0]

    def test_one_that_fails(self, recording: Recorder) -> None:
        """The conversation goes on, and shows the message."""
        conversation = recording.start(title=lambda said: said[1 // 0 :])
        with conversation.turn("about norway") as turn:
            ask(turn)

        assert "about norway" == listed(recording, conversation)[0]
