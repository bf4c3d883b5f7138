"""The demo's agent, its model and its tools, piece by piece."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from agent_eventstore.conversation import Conversation
from agent_eventstore.demo import script
from agent_eventstore.demo.agent import DemoAgent
from agent_eventstore.demo.scripted_model import Reply, ScriptedModel, Wanted, Workspace
from eventstore import EventStore, events
from eventstore.events import RecordedEvent
from eventstore.events.codec import dumps
from projections import Views
from tests.checkers import check_openai_messages


def begun(store: EventStore) -> Conversation:
    """Begin the demo's conversation."""
    return Conversation.start(store, mode="agent", base_instructions=script.INSTRUCTIONS)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EventStore, UUID]]:
    """Give the store and the id of a conversation of the demo's agent; only to be read."""
    directory = tmp_path_factory.mktemp("held")
    model = ScriptedModel(script.REPLIES, delay_s=0.0)
    with EventStore.open(f"sqlite:///{directory / 'store.db'}") as store:
        with begun(store) as conversation:
            agent = DemoAgent(conversation, model, Workspace(directory, script.PROJECT))
            for text in script.USER:
                agent.turn(text)
        yield store, conversation.id


def recorded(held: tuple[EventStore, UUID]) -> list[RecordedEvent]:
    """Return the conversation's events."""
    return list(held[0].read(held[1]))


def test_streamed_pieces_make_the_message(held: tuple[EventStore, UUID]) -> None:
    """The pieces of each answer, put together, are the message or what had arrived of it."""
    pieces: dict[str | None, str] = {}
    answers: dict[str | None, str] = {}
    for event in recorded(held):
        match event.data:
            case events.AssistantChunk() as chunk:
                pieces[chunk.llm_call_id] = pieces.get(chunk.llm_call_id, "") + chunk.text
            case events.AssistantMessage() as message:
                answers[message.llm_call_id] = "".join(part.text for part in message.parts)  # type: ignore[union-attr]
            case events.LlmError() as error:
                answers[error.llm_call_id] = error.partial_text
    assert answers == pieces
    assert len(script.REPLIES) == len(answers)


def test_failed_call_is_made_again(held: tuple[EventStore, UUID]) -> None:
    """A call that broke off is followed by a second attempt that names it."""
    data = [event.data for event in recorded(held)]
    [error] = [each for each in data if isinstance(each, events.LlmError)]
    [retry] = [each for each in data if isinstance(each, events.LlmRequest) and each.retry_of]
    assert (error.llm_call_id, 2, "network", True) == (
        retry.retry_of,
        retry.attempt,
        error.kind,
        error.retryable,
    )


def test_tools_are_announced_before_they_run(held: tuple[EventStore, UUID]) -> None:
    """Each result follows directly on the call that was written before the tool ran."""
    found = [event for event in recorded(held) if event.type in ("tool_call", "tool_result")]
    pairs = list(zip(found[::2], found[1::2], strict=True))
    assert [("tool_call", "tool_result")] * 7 == [(call.type, done.type) for call, done in pairs]
    assert [each.data.call_id for each, _ in pairs if isinstance(each.data, events.ToolCall)] == [
        each.data.call_id for _, each in pairs if isinstance(each.data, events.ToolResult)
    ]


def test_tests_fail_first_and_pass_then(held: tuple[EventStore, UUID]) -> None:
    """The tests of the project are really run, before and after the change."""
    runs = Views(held[0]).tool_calls(conversation_id=held[1], tool="run_tests")
    firsts = [(each.result_text or "").splitlines()[0] for each in reversed(runs)]
    assert ["exit status 1", "exit status 0"] == firsts


def test_agent_gives_up_after_its_steps(tmp_path: Path, sqlite_url: str) -> None:
    """A model that never stops asking for tools does not keep the agent for ever."""
    endless = [Reply("Again.", (Wanted("list_files"),))] * 20
    with EventStore.open(sqlite_url) as store, begun(store) as conversation:
        model = ScriptedModel(endless, delay_s=0.0)
        DemoAgent(conversation, model, Workspace(tmp_path, {})).turn("Go on.")
        [last] = store.read(conversation.id, backward=True, limit=1)
    assert isinstance(last.data, events.TurnEnd)
    assert "max_steps" == last.data.status


def test_agent_gives_up_after_its_attempts(tmp_path: Path, sqlite_url: str) -> None:
    """A model that never answers ends the turn with an error, which goes on to the caller."""
    broken = [Reply("Well,", breaks_off="connection reset by peer")] * 3
    with EventStore.open(sqlite_url) as store, begun(store) as conversation:
        agent = DemoAgent(conversation, ScriptedModel(broken, delay_s=0.0), Workspace(tmp_path, {}))
        with pytest.raises(ConnectionError, match="3 attempts"):
            agent.turn("Are you there?")
        [last] = store.read(conversation.id, backward=True, limit=1)
    assert isinstance(last.data, events.TurnEnd)
    assert "error" == last.data.status


def test_model_is_sent_valid_messages(held: tuple[EventStore, UUID]) -> None:
    """The view after the conversation is valid for the provider."""
    messages = Views(held[0]).context(held[1]).messages
    assert [] == check_openai_messages(messages)


def test_request_has_the_digest_of_what_was_sent(tmp_path: Path, sqlite_url: str) -> None:
    """A request's digest is that of the exact messages that the model got."""
    sent: list[str] = []

    class Listening(ScriptedModel):
        def stream(self, messages):  # type: ignore[no-untyped-def]
            sent.append(hashlib.sha256(dumps(list(messages)).encode()).hexdigest())
            return super().stream(messages)

    with EventStore.open(sqlite_url) as store, begun(store) as conversation:
        model = Listening(script.REPLIES, delay_s=0.0)
        DemoAgent(conversation, model, Workspace(tmp_path, script.PROJECT)).turn(
            "Do the tests pass?"
        )
        requests = [event.data for event in store.read(conversation.id)]
    digests = [each.digest for each in requests if isinstance(each, events.LlmRequest)]
    assert sent == digests


@pytest.mark.parametrize("path", ["../secret", "/etc/hostname"])
def test_tools_cannot_leave_their_folder(tmp_path: Path, path: str) -> None:
    """A path outside of the folder is refused."""
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    status, content = Workspace(folder, {}).run("read_file", {"path": path})
    assert ("failed", True) == (status, "is outside of the project" in content)


@pytest.mark.parametrize(
    ("name", "arguments"), [("no_such_tool", {}), ("read_file", {}), ("read_file", None)]
)
def test_wrong_calls_fail_as_results(
    tmp_path: Path, name: str, arguments: dict[str, str] | None
) -> None:
    """Whatever a model asks for, a tool answers and never raises."""
    assert "failed" == Workspace(tmp_path, {}).run(name, arguments)[0]


def test_model_streams_as_the_provider_does() -> None:
    """Every chunk is one of the chat endpoint's, and the arguments come in pieces of JSON."""
    chunks = list(ScriptedModel(script.REPLIES, delay_s=0.0).stream([]))
    calls = [
        call
        for chunk in chunks
        for choice in chunk["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    arguments = "".join(each["function"]["arguments"] for each in calls if each["index"] == 1)
    assert {"chat.completion.chunk"} == {each["object"] for each in chunks}
    assert {"path": "README.md"} == json.loads(arguments)
    assert "tool_calls" == chunks[-2]["choices"][0]["finish_reason"]
    assert [] == chunks[-1]["choices"]
    assert chunks[-1]["usage"]["total_tokens"] > 0
