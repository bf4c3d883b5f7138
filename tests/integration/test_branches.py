"""Editing, answering again and rewinding: what leaves the branch stays an alternative."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from agent_eventstore.conversation import Conversation
from agent_eventstore.errors import BranchRefused, TurnStillOpen
from eventstore import EventStore
from eventstore import events as e
from projections import Views
from projections.payload_text import text_of
from projections.upkeep import compare, rebuild
from tests.integration.recording import Recorder, ask, ask_for_tool


def say(conversation: Conversation, text: str, answer: str) -> int:
    """Have a turn, and return the version of the user's message."""
    with conversation.turn(text) as turn:
        said = conversation.version
        ask(turn, [answer])
    return said


def edit(conversation: Conversation, version: int, text: str, answer: str) -> int:
    """Say a message in other words, and return its version."""
    with conversation.edit(version, text) as turn:
        said = conversation.version
        ask(turn, [answer])
    return said


def regenerate(conversation: Conversation, answer: str) -> None:
    """Have the last message answered again."""
    with conversation.regenerate() as turn:
        ask(turn, [answer])


def told(store: EventStore, conversation_id: UUID) -> list[str]:
    """Return what messages[] says."""
    view = Views(store).context(conversation_id, max_tokens=8_000, model="gpt-4o", mode=None)
    return [str(each["content"]) for each in view.messages]


def shown(store: EventStore, conversation_id: UUID) -> list[str]:
    """Return what the screen says."""
    items = Views(store).timeline(conversation_id)
    return [item.text or "" for item in items if item.kind in ("user", "assistant")]


def arrows(store: EventStore, conversation_id: UUID) -> list[tuple[str, str]]:
    """Return what stands between the arrows, such as ``2/3``, for each place."""
    found: list[tuple[str, str]] = []
    for point in Views(store).branches(conversation_id):
        active = [at for at, each in enumerate(point.alternatives, start=1) if each.active]
        found.append((point.kind, f"{active[0] if active else 0}/{len(point.alternatives)}"))
    return found


@pytest.fixture
def talked(recording: Recorder) -> Conversation:
    """Give a conversation of two turns, which is still open."""
    conversation = recording.start(mode="chat")
    say(conversation, "one?", "1")
    return conversation


class TestEditing:
    """A message in other words."""

    def test_what_followed_leaves_messages_and_screen(
        self, recording: Recorder, talked: Conversation
    ) -> None:
        """Only the new words and their answer are told; the log has both."""
        store = recording.store
        second = say(talked, "two?", "2")
        say(talked, "three?", "3")

        edit(talked, second, "zwei?", "zwei")

        assert ["one?", "1", "zwei?", "zwei"] == told(store, talked.id) == shown(store, talked.id)
        assert ["one?", "two?", "three?", "zwei?"] == [
            text_of(event.data.parts)
            for event in store.read(talked.id)
            if isinstance(event.data, e.UserMessage)
        ]
        assert [("message", "2/2")] == arrows(store, talked.id)

    def test_one_goes_back_and_forth(self, recording: Recorder, talked: Conversation) -> None:
        """An alternative comes back with all that followed it, and goes on from there."""
        store = recording.store
        second = say(talked, "two?", "2")
        say(talked, "three?", "3")
        edit(talked, second, "zwei?", "zwei")
        [point] = Views(store).branches(talked.id)

        talked.switch_branch(point.alternatives[0].version)
        before = ["one?", "1", "two?", "2", "three?", "3"]
        assert before == told(store, talked.id) == shown(store, talked.id)
        assert [("message", "1/2")] == arrows(store, talked.id)
        say(talked, "four?", "4")
        talked.switch_branch(point.alternatives[1].version)
        assert ["one?", "1", "zwei?", "zwei"] == told(store, talked.id)
        talked.switch_branch(point.alternatives[0].version)

        assert [*before, "four?", "4"] == told(store, talked.id) == shown(store, talked.id)
        assert talked.switch_branch(point.alternatives[0].version) is None

    def test_places_within_an_alternative_come_back_with_it(
        self, recording: Recorder, talked: Conversation
    ) -> None:
        """What was edited on a branch has its arrows while that branch is shown."""
        store = recording.store
        first = say(talked, "two?", "2")
        edit(talked, say(talked, "three?", "3"), "drei?", "drei")
        assert [("message", "2/2")] == arrows(store, talked.id)

        edit(talked, first, "zwei?", "zwei")
        assert [("message", "2/2")] == arrows(store, talked.id)
        [point] = Views(store).branches(talked.id)
        talked.switch_branch(point.alternatives[0].version)

        assert [("message", "1/2"), ("message", "2/2")] == arrows(store, talked.id)
        assert ["one?", "1", "two?", "2", "drei?", "drei"] == told(store, talked.id)

    def test_the_first_message_gives_title_and_preview(
        self, recording: Recorder, talked: Conversation
    ) -> None:
        """A list shows the title and the last message of the active branch."""
        views = Views(recording.store)
        edit(talked, 4, "eins?", "eins")
        entry = views.conversations().entries[0]
        assert ("eins?", "eins") == (entry.title, entry.last_message_text)

        talked.switch_branch(views.branches(talked.id)[0].alternatives[0].version)

        entry = views.conversations().entries[0]
        assert ("one?", "1") == (entry.title, entry.last_message_text)

    def test_what_was_rewound_is_not_listed(
        self, recording: Recorder, talked: Conversation
    ) -> None:
        """Neither as the last message of the user's, nor as the title."""
        views = Views(recording.store)
        second = say(talked, "two?", "2")
        talked.rewind(second)
        entry = views.conversations().entries[0]
        assert ("one?", "one?", "1") == (
            entry.title,
            entry.last_user_text,
            entry.last_message_text,
        )

        talked.rewind(4)

        entry = views.conversations().entries[0]
        assert (None, None, None) == (entry.title, entry.last_user_text, entry.last_message_text)
        talked.switch_branch(views.branches(talked.id)[0].alternatives[0].version)
        entry = views.conversations().entries[0]
        assert ("one?", "one?") == (entry.title, entry.last_user_text)

    def test_nothing_changes_before_it_is_entered(
        self, recording: Recorder, talked: Conversation
    ) -> None:
        """A turn that nobody enters leaves the log as it is."""
        version = talked.version
        talked.edit(4, "eins?")

        assert version == talked.version
        assert ["one?", "1"] == told(recording.store, talked.id)

    def test_a_turn_that_is_open_is_in_the_way(self, talked: Conversation) -> None:
        """The branch does not change beneath a turn."""
        with talked.turn("two?") as turn:
            for change in (
                lambda: talked.edit(4, "eins?"),
                talked.regenerate,
                lambda: talked.rewind(4),
                lambda: talked.switch_branch(3),
            ):
                with pytest.raises(TurnStillOpen, match="turn 2"):
                    change()
            ask(turn)

    @pytest.mark.parametrize(
        ("version", "why"), [(5, "llm_request"), (99, "no version"), (0, "no")]
    )
    def test_only_a_message_of_a_users(self, talked: Conversation, version: int, why: str) -> None:
        """Anything else is refused by entering, and nothing is written."""
        before = talked.version
        with pytest.raises(BranchRefused, match=why), talked.edit(version, "eins?"):
            raise AssertionError

        assert before == talked.version
        say(talked, "two?", "2")

    def test_an_edit_that_is_posted_twice(self, recording: Recorder, talked: Conversation) -> None:
        """The second one has the first one's outcome, and changes nothing."""
        for _ in range(2):
            with talked.edit(4, "eins?", message_id="m1") as turn:
                if turn.outcome is None:
                    ask(turn, ["eins"])

        assert turn.outcome is not None
        assert ("ok", "eins") == (turn.outcome.status, turn.outcome.text)
        assert [("message", "2/2")] == arrows(recording.store, talked.id)

    def test_a_message_that_was_left_is_refused(self, talked: Conversation) -> None:
        """One goes to its branch first."""
        edit(talked, 4, "eins?", "eins")

        with pytest.raises(BranchRefused, match="switch_branch"), talked.edit(4, "uno?"):
            raise AssertionError


class TestRegenerating:
    """Another answer to the same message."""

    def test_the_message_stays(self, recording: Recorder, talked: Conversation) -> None:
        """The answers are alternatives of one message, which stands in the log once."""
        store = recording.store
        say(talked, "two?", "2")
        regenerate(talked, "two")
        regenerate(talked, "II")

        assert ["one?", "1", "two?", "II"] == told(store, talked.id) == shown(store, talked.id)
        assert [("answer", "3/3")] == arrows(store, talked.id)
        [point] = Views(store).branches(talked.id)
        talked.switch_branch(point.alternatives[1].version)

        assert ["one?", "1", "two?", "two"] == told(store, talked.id)
        say(talked, "three?", "3")
        regenerate(talked, "drei")
        assert ["one?", "1", "two?", "two", "three?", "drei"] == told(store, talked.id)
        assert [("answer", "2/3"), ("answer", "2/2")] == arrows(store, talked.id)

    def test_an_edit_of_an_answered_message(
        self, recording: Recorder, talked: Conversation
    ) -> None:
        """A message whose answer was regenerated is edited with all of its answers."""
        store = recording.store
        regenerate(talked, "one")
        edit(talked, 4, "eins?", "eins")
        assert ["eins?", "eins"] == told(store, talked.id)
        [point] = Views(store).branches(talked.id)

        talked.switch_branch(point.alternatives[0].version)

        assert ["one?", "one"] == told(store, talked.id)
        assert [("message", "1/2"), ("answer", "2/2")] == arrows(store, talked.id)

    def test_nothing_was_said(self, recording: Recorder) -> None:
        """Without a message there is nothing to answer."""
        conversation = recording.start()
        with pytest.raises(BranchRefused, match="no user message"), conversation.regenerate():
            raise AssertionError


class TestRewinding:
    """Going back to before a turn."""

    def test_what_is_said_next_is_an_alternative(
        self, recording: Recorder, talked: Conversation
    ) -> None:
        """The turn of the version leaves with all after it, and can come back."""
        store = recording.store
        second = say(talked, "two?", "2")
        say(talked, "three?", "3")

        talked.rewind(second + 1)
        assert ["one?", "1"] == told(store, talked.id) == shown(store, talked.id)
        assert [("message", "0/1")] == arrows(store, talked.id)
        say(talked, "zwei?", "zwei")
        assert [("message", "2/2")] == arrows(store, talked.id)
        talked.switch_branch(Views(store).branches(talked.id)[0].alternatives[0].version)

        assert ["one?", "1", "two?", "2", "three?", "3"] == told(store, talked.id)

    def test_what_belongs_to_no_branch_stays(
        self, recording: Recorder, talked: Conversation
    ) -> None:
        """A new title and a new session are not undone."""
        second = say(talked, "two?", "2")
        talked.rename("Numbers")
        talked.close()
        with recording.open(talked.id) as again:
            again.rewind(second)

        views = Views(recording.store)
        assert "Numbers" == views.conversations().entries[0].title
        assert 2 == [item.kind for item in views.timeline(talked.id)].count("session")


def test_a_fork_is_rewound_without_its_parent(recording: Recorder, talked: Conversation) -> None:
    """Shared events leave the fork's branch, and stay on the parent's."""
    store = recording.store
    say(talked, "two?", "2")
    with recording.fork(talked.id) as fork:
        edit(fork, 4, "eins?", "eins")
        assert ["eins?", "eins"] == told(store, fork.id)
        fork.switch_branch(Views(store).branches(fork.id)[0].alternatives[0].version)
        assert ["one?", "1", "two?", "2"] == told(store, fork.id)
        fork.switch_branch(Views(store).branches(fork.id)[0].alternatives[1].version)
        assert ["eins?", "eins"] == told(store, fork.id)

    assert ["one?", "1", "two?", "2"] == told(store, talked.id)
    assert [] == Views(store).branches(talked.id)


def test_tools_are_audited_and_tokens_counted_on_all_branches(recording: Recorder) -> None:
    """An edit makes nothing unpaid or undone; results go with their calls."""
    views, conversation = Views(recording.store), recording.start(mode="agent")

    def calls() -> int:
        """Return how many model calls are paid."""
        mine = str(conversation.id)
        return sum(row.calls for row in views.usage(by="conversation") if row.key == mine)

    with conversation.turn("look") as turn:
        said = conversation.version
        with turn.tool(ask_for_tool(turn, "search", query="x")) as tool:
            tool.result("found")
        ask(turn, ["done"])
    paid = calls()

    edit(conversation, said, "look again", "nothing")

    assert (2, 3) == (paid, calls())
    [call] = views.tool_calls(conversation_id=conversation.id)
    assert ("success", True) == (call.status, call.inactive)
    assert ["look again", "nothing"] == told(recording.store, conversation.id)
    conversation.switch_branch(views.branches(conversation.id)[0].alternatives[0].version)
    assert ["look", "None", "found", "done"] == told(recording.store, conversation.id)
    assert not views.tool_calls(conversation_id=conversation.id)[0].inactive


def test_search_finds_the_active_branch(recording: Recorder, talked: Conversation) -> None:
    """A message that was left is found again once its branch is."""
    views = Views(recording.store)

    def found(word: str) -> int:
        """Return how often a word is found in the conversation."""
        return [hit.conversation_id for hit in views.search(word)].count(talked.id)

    said = say(talked, "about zebras", "stripes")
    edit(talked, said, "about okapis", "legs")
    assert (0, 1) == (found("zebras"), found("okapis"))

    talked.switch_branch(views.branches(talked.id)[0].alternatives[0].version)

    assert (1, 0) == (found("zebras"), found("okapis"))


def test_alternatives_outlive_rebuild_recovery_and_erasure(
    recording: Recorder, talked: Conversation
) -> None:
    """What is folded anew says the same, and what was erased is gone from all branches."""
    store = recording.store
    second = say(talked, "two?", "2")
    edit(talked, second, "zwei?", "zwei")
    conversation_id: Any = talked.id
    talked.close()
    with recording.open(conversation_id) as again:
        again.switch_branch(Views(store).branches(conversation_id)[0].alternatives[0].version)

    rebuild(store)
    assert compare(store, conversations=[conversation_id]).ok
    assert [("message", "1/2")] == arrows(store, conversation_id)
    store.erase(conversation_id, versions=[second], reason="asked to")

    assert [("message", "1/2")] == arrows(store, conversation_id)
    assert "two?" not in told(store, conversation_id)
    assert "2" in told(store, conversation_id)
