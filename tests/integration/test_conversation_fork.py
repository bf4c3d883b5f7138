"""`Conversation.fork`: going on from a turn of another conversation, as a branch of it."""

from __future__ import annotations

from uuid import UUID

import pytest

from agent_eventstore.conversation import Conversation
from eventstore import EventStore
from eventstore.errors import ConversationInUse, ConversationNotFound, ForkRefused, OwnerMismatch
from eventstore.events import ToolPolicy
from projections import Views
from tests.integration.recording import Recorder, ask, ask_for_tool


def version_of(store: EventStore, conversation_id: UUID, kind: str, turn: int) -> int:
    """Return the version of a turn's first event of this type."""
    return next(
        event.version
        for event in store.read(conversation_id)
        if (event.type, event.meta.turn) == (kind, turn)
    )


def messages(store: EventStore, conversation_id: UUID) -> list[tuple[str, str]]:
    """Return what was said by the messages[] of a conversation: role and text."""
    view = Views(store).context(conversation_id, max_tokens=8_000, model="gpt-4o")
    said = [(each["role"], str(each["content"])) for each in view.messages]
    return [each for each in said if each[0] != "system"]


@pytest.fixture
def talked(recording: Recorder) -> Conversation:
    """Give a conversation of two turns, which is still open."""
    conversation = recording.start(
        mode="agent", title="Sums", user_id="ada", tool_policy=ToolPolicy(denied=("rm",))
    )
    for said, answered in (("one?", "1"), ("two?", "2")):
        with conversation.turn(said) as turn:
            ask(turn, [answered])
    return conversation


def test_a_message_is_said_in_other_words(recording: Recorder, talked: Conversation) -> None:
    """Forked before a user message, the fork goes on without it and its answer."""
    store = recording.store
    edited = version_of(store, talked.id, "user_message", 2)

    with (
        recording.fork(talked.id, before=edited, user_id="ada") as fork,
        fork.turn("zwei?") as turn,
    ):
        ask(turn, ["zwei"])

    begun = [("user", "one?"), ("assistant", "1")]
    assert [*begun, ("user", "zwei?"), ("assistant", "zwei")] == messages(store, fork.id)
    assert [*begun, ("user", "two?"), ("assistant", "2")] == messages(store, talked.id)


def test_the_fork_is_recorded_as_the_parent_was(recording: Recorder, talked: Conversation) -> None:
    """Mode, number of the next turn and tool policy are those of the parent at that place."""
    with recording.fork(talked.id) as fork, fork.turn("three?") as turn:
        assert (3, "agent") == (turn.number, fork.mode)
        with pytest.raises(Exception, match="rm"), turn.tool(ask_for_tool(turn, "rm")) as tool:
            tool.result("gone")

    with recording.fork(
        talked.id, before=version_of(recording.store, talked.id, "turn_end", 1)
    ) as (first):
        assert 1 == first.turn("again").number


def test_a_fork_is_in_use_while_its_session_lives(
    recording: Recorder, talked: Conversation
) -> None:
    """A second session is refused, as of any conversation."""
    with recording.fork(talked.id) as fork:
        with pytest.raises(ConversationInUse):
            recording.open(fork.id)
    recording.open(fork.id).close()


@pytest.mark.parametrize("kind", ["user_message", "llm_request", "assistant_message", "turn_end"])
def test_a_turn_is_shared_whole_or_not_at_all(
    recording: Recorder, talked: Conversation, kind: str
) -> None:
    """A version within a turn stands for the turn's beginning."""
    within = version_of(recording.store, talked.id, kind, 2)

    with recording.fork(talked.id, before=within) as fork:
        begun = version_of(recording.store, talked.id, "turn_start", 2)
        assert begun - 1 == recording.store.get(fork.id).parent_version
        assert [("user", "one?"), ("assistant", "1")] == messages(recording.store, fork.id)


def test_a_turn_that_is_open_is_left_out(recording: Recorder, talked: Conversation) -> None:
    """A fork made while the parent is answering shares what was said before; both go on."""
    with talked.turn("three?") as turn:
        call = ask_for_tool(turn)
        with recording.fork(talked.id) as fork:
            with fork.turn("drei?") as other:
                ask(other, ["drei"])
        with turn.tool(call) as tool:
            tool.result("3")
        ask(turn, ["three"])

    said = messages(recording.store, fork.id)
    assert [("user", "drei?"), ("assistant", "drei")] == said[4:]
    assert [("user", "three?"), ("assistant", "three")] == [
        each for each in messages(recording.store, talked.id) if "three" in each[1]
    ]


def test_opening_a_fork_seals_nothing_of_its_parent(
    recording: Recorder, talked: Conversation
) -> None:
    """The parent's session, which may go on, is not open work of the fork's."""
    recording.fork(talked.id).close()

    fork = recording.fork(talked.id)
    fork.close()
    with recording.open(fork.id) as again:
        assert again.recovery is not None
        assert () == again.recovery.sealed


def test_usage_is_counted_once(recording: Recorder, talked: Conversation) -> None:
    """The calls that are shared are the parent's; the fork's own are its own."""
    views = Views(recording.store)
    with recording.fork(talked.id) as fork, fork.turn("three?") as turn:
        ask(turn, ["3"])

    assert [2, 1] == [
        sum(total.calls for total in views.usage(by="conversation", conversation_id=each))
        for each in (talked.id, fork.id)
    ]


def test_a_fork_is_listed_with_its_parent(recording: Recorder, talked: Conversation) -> None:
    """Under a title of its own or the parent's, with where it comes from."""
    views = Views(recording.store)
    with recording.fork(talked.id) as plain, recording.fork(talked.id, title="Zwei") as titled:
        listed = {each.conversation_id: each for each in views.conversations(user_id="ada")}

    found = [listed[each.id] for each in (plain, titled)]
    assert ["Sums", "Zwei"] == [each.title for each in found]
    assert [str(talked.id)] * 2 == [each.parent_conversation_id for each in found]


def test_the_timeline_shows_the_fork(recording: Recorder, talked: Conversation) -> None:
    """What is shared, then where the fork begins, then its own; no session of the parent's runs."""
    with recording.fork(talked.id, title="Zwei") as fork:
        items = Views(recording.store).timeline(fork.id)

    assert ["one?", "two?"] == [item.text for item in items if item.kind == "user"]
    assert ["Sums", "Zwei"] == [item.title for item in items if item.kind == "conversation"]
    assert ["complete", "running"] == [item.status for item in items if item.kind == "session"]


def test_outputs_that_are_shared_are_found(recording: Recorder, talked: Conversation) -> None:
    """A large output of the parent's is read through the fork by its alias."""
    text = "line\n" * 20_000
    with talked.turn("read it") as turn:
        with turn.tool(ask_for_tool(turn)) as tool:
            tool.result(text)
        ask(turn, ["read"])

    with recording.fork(talked.id) as fork:
        result = Views(recording.store).tool_calls(conversation_id=fork.id)[-1]
        assert result.alias is not None
        assert text == fork.resolve(result.alias)


def test_what_cannot_be_forked(recording: Recorder, talked: Conversation) -> None:
    """Nothing, somebody else's, and what lies before the first turn's beginning."""
    with pytest.raises(ConversationNotFound):
        recording.fork(UUID(int=7))
    with pytest.raises(OwnerMismatch):
        recording.fork(talked.id, user_id="bob")
    for before in (1, 0, -1):
        with pytest.raises(ForkRefused):
            recording.fork(talked.id, before=before)
