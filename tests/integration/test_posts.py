"""A message that is posted twice is recorded once, and both posts are told the same."""

from __future__ import annotations

from contextlib import suppress

import pytest

from agent_eventstore import Conversation
from agent_eventstore.errors import BlockNotOpen, TurnRunning
from eventstore import EventStore
from eventstore.errors import ConversationInUse, InvalidEvent, WriterFenced
from eventstore.events import Notebook
from projections import Views
from tests.integration.recording import Recorder, ask, events_of
from tests.projections.support import statements


def test_second_post_is_told_of_the_first(recording: Recorder) -> None:
    """Also by another session, whatever was said meanwhile; nothing is written for it."""
    with recording.start() as conversation:
        with conversation.turn("Hi", message_id="m-1") as turn:
            assert turn.outcome is None
            ask(turn, ["Hello", " there"])
        with conversation.turn("More", message_id="m-2") as turn:
            ask(turn, ["Gladly"])
    with recording.open(conversation.id) as again:
        before = again.version
        with again.turn("Hi", message_id="m-1") as turn:
            outcome = turn.outcome
        assert before == again.version

    assert outcome is not None
    assert (1, "ok", "Hello there") == (outcome.turn, outcome.status, outcome.text)
    assert 2 == len(events_of(recording.store, conversation, "user_message"))


def test_nothing_is_done_in_a_second_post(recording: Recorder) -> None:
    """A block that forgets to look at the outcome asks no model."""
    with recording.start() as conversation:
        with conversation.turn("Hi", message_id="m-1") as turn:
            ask(turn)
        with conversation.turn("Hi", message_id="m-1") as turn:
            with pytest.raises(BlockNotOpen, match="outcome"):
                turn.context()
        with conversation.turn("Next") as turn:
            ask(turn)


def test_first_post_is_running(recording: Recorder) -> None:
    """The error names the turn, and its block goes on."""
    with recording.start() as conversation:
        with conversation.turn("Hi", message_id="m-1") as turn:
            with pytest.raises(TurnRunning) as caught:
                conversation.turn("Hi", message_id="m-1").__enter__()
            assert (1, "m-1") == (caught.value.turn, caught.value.message_id)
            ask(turn)


def test_a_long_turn_is_not_read_again_by_each_post(recording: Recorder) -> None:
    """That it runs is read from the open work; before, each post read all its events."""
    with recording.start() as conversation:
        with conversation.turn("Hi", message_id="m-1"):
            notes = [Notebook(text=str(number)) for number in range(300)]
            recording.store.append(conversation.id, notes)
            Views(recording.store).open_work(conversation.id)
            with statements(recording.store) as seen, pytest.raises(TurnRunning):
                conversation.turn("Hi", message_id="m-1").__enter__()

    assert [] == [each for each in seen if each.startswith("SELECT position, conversation_id")]


def test_first_post_died(recording: Recorder) -> None:
    """Opening has sealed it, and the second post is answered, without a second message."""
    first = recording.start()
    first.turn("Hi", message_id="m-1").__enter__()

    with recording.open(first.id, if_busy="take_over") as again:
        with again.turn("Hi", message_id="m-1") as turn:
            assert turn.outcome is None
            ask(turn)
    assert 1 == len(events_of(recording.store, first, "user_message"))


def test_failed_turn_is_answered_again_by_its_message(recording: Recorder) -> None:
    """Each post tries again until one succeeds; then it is repeated. No answer is shown twice."""
    with recording.start() as conversation:
        for words in ("one", "two"):
            with suppress(ValueError), conversation.turn("Hi", message_id="m-1") as turn:
                assert turn.outcome is None
                ask(turn, [words])
                raise ValueError("the provider failed")
        with conversation.turn("Hi", message_id="m-1") as turn:
            context = [each["content"] for each in turn.context().messages]
            ask(turn, ["three"])
        with conversation.turn("Hi", message_id="m-1") as turn:
            outcome = turn.outcome

    assert outcome is not None
    assert ("ok", "three") == (outcome.status, outcome.text)
    assert not {"one", "two"} & set(context)
    assert 1 == len(events_of(recording.store, conversation, "user_message"))


def test_failed_turn_that_others_have_followed_stays_as_it_is(recording: Recorder) -> None:
    """Answering it again would take the later messages off the branch."""
    with recording.start() as conversation:
        with suppress(ValueError), conversation.turn("Hi", message_id="m-1"):
            raise ValueError("the provider failed")
        with conversation.turn("More") as turn:
            ask(turn)
        with conversation.turn("Hi", message_id="m-1") as turn:
            outcome = turn.outcome

    assert outcome is not None
    assert "error" == outcome.status


def test_message_whose_turn_runs_in_another_session(recording: Recorder) -> None:
    """Opening for it says so, and for another message that the conversation is in use."""
    with recording.start() as first, first.turn("Hi", message_id="m-1") as turn:
        with pytest.raises(TurnRunning):
            recording.open(first.id, message_id="m-1")
        with pytest.raises(ConversationInUse):
            recording.open(first.id, message_id="m-2")
        ask(turn)


def test_fenced_writer_posts_nothing(common: EventStore) -> None:
    """A message that goes to two processes at once has one turn: the newer session's."""
    old = Conversation.start(common)
    with Conversation.open(common, old.id, if_busy="take_over") as new:
        with pytest.raises(WriterFenced):
            old.turn("Hi", message_id="m-1").__enter__()
        with new.turn("Hi", message_id="m-1") as turn:
            ask(turn)

    assert 1 == len(events_of(common, new, "user_message"))


def test_message_and_actor_are_kept_with_the_input(recording: Recorder) -> None:
    """And with nothing that the model has done."""
    with recording.start() as conversation:
        with conversation.turn("Hi", actor="ada", message_id="m-1") as turn:
            ask(turn)

    said, answered = events_of(recording.store, conversation, "user_message", "assistant_message")
    assert ("ada", "m-1") == (said.meta.actor, said.meta.causation_id)
    assert (None, None) == (answered.meta.actor, answered.meta.causation_id)


@pytest.mark.parametrize("wrong", ["", "m" * 2_000])
def test_message_ids_are_bounded(recording: Recorder, wrong: str) -> None:
    """One that cannot be kept is refused before anything is written."""
    with recording.start() as conversation:
        with pytest.raises(InvalidEvent):
            conversation.turn("Hi", message_id=wrong)
        with conversation.turn("Hi") as turn:
            assert 1 == turn.number
