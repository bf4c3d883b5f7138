"""Requests are composed for the mode that their conversation is in, unless another is asked for."""

from __future__ import annotations

from uuid import UUID

import pytest

from agent_eventstore.conversation import Conversation
from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.events import RunNode
from eventstore.events.values import MODES, Mode
from projections import Views
from projections.context import ContextView
from tests.integration.recording import Recorder, ask

NODES = [RunNode(node_id="plan", brief="Make a plan.")]


def headings(view: ContextView) -> list[str]:
    """Return the first lines of a request's messages."""
    return [str(message["content"]).splitlines()[0] for message in view.messages]


def banner(view: ContextView) -> str | None:
    """Return the mode that a request's banner names."""
    found = [each["content"] for each in view.messages if str(each["content"])[:5] == "MODE\n"]
    return found[0].splitlines()[1] if found else None


@pytest.mark.parametrize("mode", [*MODES, "free_chat"])
def test_the_view_is_the_turns_request(recording: Recorder, mode: Mode) -> None:
    """The same conversation gives the same messages, whoever asks (it gave no system part)."""
    conversation = recording.start(mode=mode, base_instructions="Be brief.")
    conversation.start_run("report", directive="Report.", nodes=NODES)
    with conversation.turn("hello") as turn:
        request = turn.context()
    view = conversation.views.context(conversation.id)

    assert request.messages == list(view.messages)
    assert f"- active: {mode}" == banner(view)
    assert (mode == "run") == ("RUN_DIRECTIVE" in headings(view))


def test_none_composes_nothing(recording: Recorder) -> None:
    """In a turn as in the views, in a run as elsewhere (a turn took None for its own mode)."""
    conversation = recording.start(mode="run", base_instructions="Be brief.")
    run = conversation.start_run("report", directive="Report.", nodes=NODES)
    with conversation.turn("go", run_id=run.run_id) as turn:
        assert ["Be brief.", "go"] == headings(turn.context(mode=None).view)
        assert "RUN_DIRECTIVE" in headings(turn.context(mode=None, run=run.run_id).view)
    assert ["Be brief.", "go"] == headings(conversation.views.context(conversation.id, mode=None))


def test_the_mode_is_the_one_last_switched_to(recording: Recorder) -> None:
    """And of the past, the one that was active then."""
    conversation = recording.start(mode="chat")
    with conversation.turn("hello") as turn:
        ask(turn)
    before = conversation.version
    conversation.switch_mode("agent")
    views = conversation.views

    assert "- active: agent" == banner(views.context(conversation.id))
    assert "- active: chat" == banner(views.context(conversation.id, at=before))
    assert "- active: chat" == banner(views.context(conversation.id, mode="chat"))


def test_a_run_is_left_out_where_none_is_wanted(recording: Recorder) -> None:
    """``run=False`` leaves the mode as it is."""
    conversation = recording.start(mode="run")
    conversation.start_run("report", directive="Report.")
    view = conversation.views.context(conversation.id, run=False)

    assert "- active: run" == banner(view)
    assert "RUN_DIRECTIVE" not in headings(view)


def test_a_strategy_that_searches_is_told_too(recording: Recorder) -> None:
    """What reads the history another way asks the conversation for its mode all the same."""
    conversation = recording.start(mode="run")
    conversation.start_run("report", directive="Report.")
    with conversation.turn("hello"):
        pass
    view = conversation.views.context(conversation.id, strategy="retrieval")

    assert "- active: run" == banner(view)
    assert "RUN_DIRECTIVE" in headings(view)


@pytest.fixture
def plain(shared_store: EventStore) -> UUID:
    """Give the id of a conversation that has no mode."""
    cid = new_id()
    shared_store.append(cid, [e.UserMessage.text("hello")])
    return cid


def test_a_conversation_without_a_mode_has_no_system_part(
    shared_store: EventStore, plain: UUID
) -> None:
    """As imported ones mostly have none; one that is opened for writing stays as it is."""
    assert ["hello"] == headings(Views(shared_store).context(plain))
    with Conversation.open(shared_store, plain) as conversation, conversation.turn("on") as turn:
        assert ["hello", "on"] == headings(turn.context().view)


def test_a_read_only_store_tells_it_too(recorded_url: str, recording: Recorder) -> None:
    """What is folded in memory includes the mode."""
    conversation = recording.start(mode="run")
    conversation.start_run("report", directive="Report.")
    with EventStore.open(recorded_url, read_only=True) as replica:
        view = Views(replica).context(conversation.id)

    assert "- active: run" == banner(view)
    assert "RUN_DIRECTIVE" in headings(view)
