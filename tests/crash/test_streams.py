"""Real recorded streams, cut off after every chunk: what was said is there, but for one batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore.conversation import Conversation
from agent_eventstore.llm_call import LlmCall
from agent_eventstore.recovery import Recovery, recover
from eventstore import EventStore
from eventstore.events import AssistantChunk, AssistantMessage
from projections import Views
from projections.providers import parser_for
from tests.checkers import check_openai_messages

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "streams"
STREAMS = sorted(FOLDER.glob("*.jsonl"))
LARGEST_BATCH = 512
Chunk = dict[str, Any]

every_stream = pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventStore]:
    """Give a store that the tests share."""
    folder = tmp_path_factory.mktemp("streams")
    with EventStore.open(f"sqlite:///{folder / 'store.db'}", synchronous="NORMAL") as found:
        yield found


def test_there_are_streams() -> None:
    """Without recorded streams nothing would be tested here."""
    assert len(STREAMS) >= 11


@every_stream
def test_cut_off_after_every_chunk(store: EventStore, path: Path) -> None:
    """Recovery would give back what had been heard, less at most a batch, after any chunk."""
    views, chunks = Views(store), read(path)
    conversation, call = begin(store)
    parser = parser_for(chunks[0])
    seen = 0
    for number, chunk in enumerate(chunks, start=1):
        call.feed(chunk)
        parser.feed(chunk)
        if conversation.version != seen:
            seen = conversation.version
            kept = kept_by(recover(store, views, conversation.id, dry_run=True))
        for heard, found in zip(heard_by(parser), kept, strict=True):
            assert heard.startswith(found), f"chunk {number}"
        lost = sum(map(len, heard_by(parser))) - sum(map(len, kept))
        longest = max(len(str(each)) for each in chunks[:number])
        assert lost < LARGEST_BATCH + longest, f"chunk {number}"


@every_stream
def test_opened_again_after_every_write(store: EventStore, path: Path) -> None:
    """Opened anew, the call is sealed, and the stream is recorded whole by the next request."""
    chunks = read(path)
    whole = outcome_of(record(store, chunks)[1])
    for cut in places_of_writes(store, chunks):
        conversation, call = begin(store)
        for chunk in chunks[:cut]:
            call.feed(chunk)

        with Conversation.open(store, conversation.id, if_busy="take_over") as again:
            (sealed,) = again.recovery.found.model_calls  # type: ignore[union-attr]
            with again.turn("continue") as turn:
                assert [] == check_openai_messages(turn.context().messages)
                with turn.llm_call() as repeated:
                    for chunk in chunks:
                        repeated.feed(chunk)
        assert call.id == sealed.llm_call_id
        assert whole == outcome_of(repeated)
        assert store.verify(conversation.id).ok


@every_stream
def test_message_is_what_the_chunks_say(store: EventStore, path: Path) -> None:
    """The recorded message has the text and arguments of its recorded chunks, put together."""
    conversation, call = record(store, read(path))
    parts = [event.data for event in store.read(conversation.id)]
    chunks = [part for part in parts if isinstance(part, AssistantChunk)]
    said = {
        "text": "".join(chunk.text for chunk in chunks),
        "reasoning": "".join(chunk.reasoning for chunk in chunks),
        "refusal": "".join(chunk.refusal for chunk in chunks),
    }
    arguments: dict[int, str] = {}
    for delta in (delta for chunk in chunks for delta in chunk.tool_calls):
        arguments[delta.index] = arguments.get(delta.index, "") + delta.arguments

    if call.answer is None:
        assert call.error is not None
        assert said["text"] + said["refusal"] == call.error.partial_text
        return
    (message,) = [part for part in parts if isinstance(part, AssistantMessage)]
    assert call.answer == message
    for kind, text in said.items():
        parts_of_kind = [part for part in message.parts if part.kind == kind]
        assert text == "".join(part.text for part in parts_of_kind)  # type: ignore[union-attr]
    assert list(arguments.values()) == [each.arguments_text for each in message.tool_calls]


def read(path: Path) -> list[Chunk]:
    """Return the chunks of a recorded stream."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def begin(store: EventStore) -> tuple[Conversation, LlmCall]:
    """Begin a model call, to be abandoned or ended."""
    conversation = Conversation.start(store)
    return conversation, conversation.turn("hello").__enter__().llm_call().__enter__()


def record(store: EventStore, chunks: list[Chunk]) -> tuple[Conversation, LlmCall]:
    """Record a whole stream."""
    conversation, call = begin(store)
    for chunk in chunks:
        call.feed(chunk)
    call.__exit__(None, None, None)
    return conversation, call


def places_of_writes(store: EventStore, chunks: list[Chunk]) -> list[int]:
    """Return after which chunks the log has grown: between them, a crash leaves the same log."""
    conversation, call = begin(store)
    places, seen = [0], conversation.version
    for number, chunk in enumerate(chunks, start=1):
        call.feed(chunk)
        if conversation.version != seen:
            places.append(number)
            seen = conversation.version
    return [*places, len(chunks)]


def heard_by(parser: Any) -> tuple[str, str, str]:
    """Return text, reasoning and arguments of all that a parser was fed."""
    partial = parser.partial()
    arguments = "".join(call.arguments_text for call in partial.tool_calls)
    return partial.text + partial.refusal, partial.reasoning, arguments


def kept_by(recovery: Recovery) -> tuple[str, str, str]:
    """Return text, reasoning and arguments that recovery found."""
    (call,) = recovery.found.model_calls
    arguments = "".join(each.arguments_text for each in call.tool_calls)
    return call.text + call.refusal, call.reasoning, arguments


def outcome_of(call: LlmCall) -> Any:
    """Return how a call ended, without what differs from one recording to the next."""
    told = call.answer or call.error
    assert told is not None
    own = {"llm_call_id": None, "duration_ms": None, "first_token_ms": None}
    update = {name: value for name, value in own.items() if name in type(told).model_fields}
    return told.model_copy(update=update)
