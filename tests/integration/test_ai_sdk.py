"""Answers as streams of Vercel's AI SDK: valid, whole, and the same after a reload."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Iterable
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any, Union
from uuid import UUID

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter
from pydantic_ai.ui.vercel_ai.request_types import UIMessage
from pydantic_ai.ui.vercel_ai.response_types import BaseChunk, DoneChunk

from agent_eventstore import AsyncViews, Conversation, Turn
from agent_eventstore.integrations.ai_sdk.message_stream import astream_turn, stream_turn
from agent_eventstore.transcripts.ui_messages import export_ui_messages
from eventstore import AsyncEventStore, EventStore, NewEvent
from eventstore.events import Meta, TurnEnd, TurnStart, UserMessage
from eventstore.ids import new_id
from projections import Views
from tests.docs.document import blocks
from tests.growth.steps import steps_of
from tests.warm import Programs

EXAMPLE = Path(__file__).parents[2] / "examples" / "ai_sdk_chat.py"
# As another implementation of the protocol has them: it refuses fields that it does not know.
_KINDS: Any = Union[tuple(each for each in BaseChunk.__subclasses__() if each is not DoneChunk)]  # noqa: UP007
CHUNK: TypeAdapter[Any] = TypeAdapter(_KINDS)


@pytest.fixture
def store(alone: EventStore) -> EventStore:
    """Give an empty store."""
    return alone


def _url(store: EventStore) -> str:
    return store.engine.url.render_as_string(hide_password=False)


def _chunks(events: Iterable[str]) -> list[dict[str, Any]]:
    """Return the chunks of a stream that has ended; each is one that the SDK takes."""
    sent = [event.removeprefix("data: ") for event in events if not event.startswith(":")]
    assert "[DONE]\n\n" == sent.pop()
    found: list[dict[str, Any]] = [json.loads(each) for each in sent]
    for chunk in found:
        CHUNK.validate_python(chunk)
    return found


def _assembled(chunks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the message that a client makes of the chunks; ids of tools are the stream's own."""
    message: dict[str, Any] = {"role": "assistant", "parts": []}
    open_parts: dict[str, dict[str, Any]] = {}
    for chunk in chunks:
        kind, _, stage = chunk["type"].rpartition("-")
        match chunk["type"]:
            case "start":
                message["id"] = chunk["messageId"]
            case "start-step":
                message["parts"].append({"type": "step-start"})
            case "text-start" | "reasoning-start":
                part = {"type": kind, "text": "", "state": "streaming"}
                message["parts"].append(part)
                open_parts[chunk["id"]] = part
            case "text-delta" | "reasoning-delta":
                open_parts[chunk["id"]]["text"] += chunk["delta"]
            case "text-end" | "reasoning-end":
                open_parts.pop(chunk["id"])["state"] = "done"
            case "tool-input-available":
                part = {"type": f"tool-{chunk['toolName']}", "input": chunk["input"]}
                message["parts"].append(part)
                open_parts[chunk["toolCallId"]] = part
            case "tool-output-available" | "tool-output-error":
                told = {k: v for k, v in chunk.items() if k in ("output", "errorText")}
                open_parts[chunk["toolCallId"]] |= {"state": f"output-{stage}", **told}
    return message


def _exported(store: EventStore, conversation: Conversation) -> dict[str, Any]:
    message = export_ui_messages(store, conversation.id)[-1]
    UIMessage.model_validate(message)
    for part in message["parts"]:
        part.pop("toolCallId", None)
    return message


def _wish(text: str) -> dict[str, Any]:
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    calls = [
        {"index": n, "id": f"call_{n}", "type": "function", "function": function} for n in (0, 1)
    ]
    message = {"role": "assistant", "content": text, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return {"object": "chat.completion", "choices": [choice]}


def _use_tools(turn: Turn) -> None:
    with turn.llm_call() as call:
        call.response(_wish("I look."))
    with turn.tool(call.tool_calls[0]) as tool:
        tool.result("18 degrees")
    turn.deny(call.tool_calls[1], "not twice")


def test_a_client_assembles_what_is_exported(store: EventStore) -> None:
    """Text, reasoning, steps and tools: the stream of a turn and the messages say the same."""
    with Conversation.start(store) as conversation:
        with conversation.turn("How warm is it?") as turn:
            _use_tools(turn)
            with turn.llm_call() as call:
                call.delta(reasoning="Easy.")
                call.delta("It is ")
                call.delta("18 degrees.")
        stream = stream_turn(Views(store), conversation.id, 1)
        assert stream is not None
        chunks = _chunks(stream)
        assert "finish" == chunks[-1]["type"]
        assert _exported(store, conversation) == _assembled(chunks)


@pytest.mark.parametrize("given", ['{"celsius": 18}', "[1, 2]", "{not JSON", "18"])
def test_a_structured_result_is_the_same_value_in_both(store: EventStore, given: str) -> None:
    """A result that is JSON is a value while the turn streams, as it is after a reload."""
    with Conversation.start(store) as conversation:
        with conversation.turn("How warm is it?") as turn:
            with turn.llm_call() as call:
                call.response(_wish("I look."))
            for wanted in call.tool_calls:
                with turn.tool(wanted) as tool:
                    tool.result(given)
        stream = stream_turn(Views(store), conversation.id, 1)
        assert stream is not None
        assert _exported(store, conversation) == _assembled(_chunks(stream))


@pytest.mark.parametrize("given", ["long", "json", "parts"])
def test_a_large_result_is_whole_in_both(store: EventStore, given: str) -> None:
    """A result of which the log keeps a preview beside a blob, or that has parts, streams whole."""
    long = "line\n" * 40_000
    results: dict[str, Any] = {
        "long": long,
        "json": json.dumps({"rows": [long]}),
        "parts": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    }
    with Conversation.start(store) as conversation:
        with conversation.turn("How warm is it?") as turn:
            with turn.llm_call() as call:
                call.response(_wish("I look."))
            for wanted in call.tool_calls:
                with turn.tool(wanted) as tool:
                    tool.result(results[given])
        kept = [each.data for each in store.read(conversation.id) if each.type == "tool_result"]
        assert [given != "parts"] * 2 == [each.blob is not None for each in kept]  # type: ignore[union-attr]
        stream = stream_turn(Views(store), conversation.id, 1)
        assert stream is not None
        message = _assembled(_chunks(stream))
        assert _exported(store, conversation) == message
        outputs = {json.dumps(part.get("output")) for part in message["parts"][2:4]}
        told = {"long": long, "json": {"rows": [long]}}
        assert given == "parts" or {json.dumps(told[given])} == outputs


def test_a_turn_that_does_not_exist(store: EventStore) -> None:
    """It has no stream, which is known without reading the whole conversation."""
    views = Views(store)

    def steps(turns: int, asked: int) -> int:
        with Conversation.start(store) as conversation:
            for _ in range(turns):
                with conversation.turn("hi") as turn, turn.llm_call() as call:
                    call.delta("hello")
        assert stream_turn(views, conversation.id, asked) is None
        return steps_of(lambda: stream_turn(views, conversation.id, asked))

    for asked in (0, 1_000, 2**70):
        assert steps(40, asked) < 2 * steps(10, asked)


def test_messages_without_turns(store: EventStore) -> None:
    """No turn is in progress, which is known without reading the whole conversation."""
    views = Views(store)

    def steps(messages: int, asked: int | None) -> int:
        stream = new_id()
        store.append(stream, [UserMessage.text("hi")] * messages)
        assert stream_turn(views, stream, asked) is None
        return steps_of(lambda: stream_turn(views, stream, asked))

    for asked in (None, 1):
        assert steps(400, asked) < 2 * steps(10, asked)


def test_a_replaced_turn_ends_late(store: EventStore) -> None:
    """The turn that has replaced it is in progress, although the other one's end came later."""
    start, end = TurnStart(input="hi"), TurnEnd(status="aborted", reason="replaced")
    stream = new_id()
    turns = [(start, 1), (start, 2), (end, 1)]
    store.append(stream, [NewEvent(data, meta=Meta(turn=turn)) for data, turn in turns])

    found = [stream_turn(Views(store), stream, turn, timeout_s=0.001) for turn in (None, 2)]
    newest, second = (_chunks(each) for each in found if each is not None)
    assert newest == second


def test_a_reload_begins_again_and_goes_on(store: EventStore) -> None:
    """Who comes back in the middle gets the beginning, and then what comes, as the first does."""
    with Conversation.start(store) as conversation:
        with conversation.turn("hi") as turn:
            _use_tools(turn)
            first = stream_turn(Views(store), conversation.id)
            assert first is not None
            seen = list(takewhile(lambda event: '"tool-output-error"' not in event, first))
            second = stream_turn(Views(store), conversation.id)
            with turn.llm_call() as call:
                call.delta("hello")
        third = stream_turn(Views(store), conversation.id, 1)
        assert second is not None
        assert third is not None
        whole = _chunks(second)
        assert whole == _chunks(third)
        assert _chunks(first) == whole[len(seen) + 1 :]
        assert stream_turn(Views(store), conversation.id) is None


def test_a_turn_that_is_stopped_aborts(store: EventStore) -> None:
    """What was open is closed before."""
    with Conversation.start(store) as conversation:
        with suppress(asyncio.CancelledError), conversation.turn("hi") as turn:
            with turn.llm_call() as call:
                call.delta("hel")
                raise asyncio.CancelledError
        stream = stream_turn(Views(store), conversation.id, 1)
        assert stream is not None
        kinds = [chunk["type"] for chunk in _chunks(stream)]
    assert ["text-end", "finish-step", "abort"] == kinds[-3:]


def test_a_turn_that_failed_says_so(store: EventStore) -> None:
    """The error is the last that the client is told."""
    with Conversation.start(store) as conversation:
        with pytest.raises(ValueError, match="broken"), conversation.turn("hi"):
            raise ValueError("broken")
        stream = stream_turn(Views(store), conversation.id, 1)
        assert stream is not None
        assert "error" == _chunks(stream)[-1]["type"]


def test_the_same_of_asynchronous_views(store: EventStore) -> None:
    """The events are those of the synchronous ones."""

    async def asked(cid: UUID) -> list[str]:
        async with await AsyncEventStore.open(_url(store)) as opened:
            stream = await astream_turn(AsyncViews(opened), cid, 1)
            assert stream is not None
            return [event async for event in stream]

    with Conversation.start(store) as conversation:
        with conversation.turn("hi") as turn, turn.llm_call() as call:
            call.delta("hello")
        expected = stream_turn(Views(store), conversation.id, 1)
        assert expected is not None
        assert list(expected) == asyncio.run(asked(conversation.id))


def _example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ai_sdk_chat", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_answers(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a message, streams the answer, has it after a reload, and streams no more."""
    monkeypatch.setenv("STORE", _url(store))
    assert len(EXAMPLE.read_text("utf-8").splitlines()) <= 40
    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    with TestClient(_example().app) as client:
        done = client.post("/api/chat", json={"id": "chat-1", "messages": [message]})
        assert "v1" == done.headers["x-vercel-ai-ui-message-stream"]
        answer = _assembled(_chunks(f"{event}\n\n" for event in done.text.split("\n\n") if event))
        assert "You said: hi " == answer["parts"][-1]["text"]
        assert answer == export_ui_messages(store, "chat-1")[-1]
        assert 204 == client.get("/api/chat/chat-1/stream").status_code


def test_the_program_of_the_page(programs: Programs, tmp_path: Path) -> None:
    """What ``docs/integrations.md`` shows runs by itself, and prints a whole stream."""
    page = EXAMPLE.parents[1] / "docs" / "integrations.md"
    [program] = [
        each for each in blocks(page, "python") if "agent_eventstore.integrations.ai_sdk " in each
    ]
    done = programs.run("-c", program, directory=tmp_path)
    done.check_returncode()
    assert "hello" in done.stdout
    assert done.stdout.endswith("data: [DONE]\n")
