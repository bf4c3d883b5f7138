"""The cost of recording a long stream, compared with its duration, and of opening after a crash."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from uuid import UUID

from agent_eventstore.conversation import Conversation
from benchmarks.bench import Bench
from benchmarks.measure import Figure
from benchmarks.results import Work, work
from eventstore import EventStore, NewEvent, events, new_id
from eventstore.events import Meta
from eventstore.ids import call_id

__all__ = ["recordings"]

CHUNKS = 2_000
PACE_S = 0.02
STREAM_S = CHUNKS * PACE_S
"""Forty seconds: fifty chunks a second, as a fast model streams."""

_PIECES = ("The", " quick", " brown", " fox", " jumps", " over", " it", ",", " then", " rests.")


def recordings(bench: Bench) -> Iterator[Work]:
    """Measure the recording of a stream, and opening after a crash, on each database."""
    rounds, stream = max(bench.scale.rounds // 200, 1), "the stream itself"
    for database in bench.databases:
        with bench.fresh(database) as url:
            figures = [Figure(stream, (STREAM_S,)), *_stream_recordings(url, rounds)]
        yield work(
            f"Recording a stream of {CHUNKS:,} chunks, {database}",
            figures,
            note="The total time of `feed`; the stream's pauses pass on the recorder's clock only.",
        )
        with bench.fresh(database) as url:
            yield work(
                f"Opening after a crash, {database}", _openings(url, bench.scale.opening, rounds)
            )


def _stream_recordings(url: str, rounds: int) -> list[Figure]:
    """Time ``feed`` over a stream of 2,000 chunks that arrive 20 ms apart by the recorder's clock.

    Each time is the total of all calls of ``feed`` and of leaving the block. The benchmark does not
    wait for the stream's 40 seconds, but batches are written as often as if it did.
    """
    with EventStore.open(url) as store:
        times = []
        for _ in range(rounds + 1):
            gc.collect()
            times.append(_record(store))
        # The first one warms up.
        return [Figure(f"recording {CHUNKS:,} chunks", tuple(times[1:]))]


def _openings(url: str, length: int, rounds: int) -> list[Figure]:
    """Time opening and recovering a conversation of ``length`` events after a crash in mid-stream.

    Warm: earlier turns kept its views up to date, as in a product, and the crash left
    a request, a chunk and a tool call. Cold: no view of the conversation has ever been read.
    """
    with EventStore.open(url) as store:
        Conversation.open(store, _crashed(store, 10))
        warm, cold = [], []
        for _ in range(rounds):
            conversation_id = _crashed(store, length)
            cold.append(_timed(partial(Conversation.open, store, conversation_id)))
        for _ in range(rounds):
            _crash(store, conversation_id)
            warm.append(_timed(partial(Conversation.open, store, conversation_id)))
    name = f"open and recover, {length:,} events"
    return [Figure(f"{name}, warm", tuple(warm)), Figure(f"{name}, cold", tuple(cold))]


def _record(store: EventStore) -> float:
    ahead = 0.0

    def now() -> float:
        """Return the time of a clock that runs as if the stream's pauses had passed."""
        return time.monotonic() + ahead

    with (
        patch("agent_eventstore.llm_call.time", SimpleNamespace(monotonic=now)),
        Conversation.start(store) as conversation,
        conversation.turn("write") as turn,
    ):
        call, spent = turn.llm_call(model="gpt-4o").__enter__(), 0.0
        for chunk in _chunks():
            ahead += PACE_S
            spent += _timed(partial(call.feed, chunk))
        spent += _timed(partial(call.__exit__, None, None, None))
    batches = sum(event.type == "assistant_chunk" for event in store.read(conversation.id))
    assert STREAM_S / 0.2 < batches < STREAM_S / 0.1 + 1
    return spent


def _chunks() -> Iterator[dict[str, Any]]:
    for number in range(CHUNKS):
        last = number == CHUNKS - 1
        delta = {} if last else {"content": _PIECES[number % len(_PIECES)]}
        choice = {"index": 0, "delta": delta, "finish_reason": "stop" if last else None}
        yield {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1_760_000_000,
            "model": "gpt-4o-2024-08-06",
            "choices": [choice],
            "usage": None,
        }


def _crashed(store: EventStore, length: int) -> UUID:
    conversation_id = new_id()
    filling = _filling(length)
    while batch := [event for _, event in zip(range(500), filling, strict=False)]:
        store.append(conversation_id, batch)
    _crash(store, conversation_id)
    return conversation_id


def _filling(length: int) -> Iterator[NewEvent]:
    """Yield turns of six events: start, input, request, chunk, message, end."""
    for number in range(length // 6):
        meta = Meta(session_id="1", turn=number + 1)
        step = meta.model_copy(update={"step": 0})
        call = f"call-{number}"
        yield NewEvent(events.TurnStart(), meta=meta)
        yield NewEvent(events.UserMessage.text(f"question {number}"), meta=meta)
        yield NewEvent(events.LlmRequest(llm_call_id=call), meta=step)
        yield NewEvent(events.AssistantChunk(llm_call_id=call, index=0, text="answer"), meta=step)
        yield NewEvent(
            events.AssistantMessage.of(f"answer {number}", llm_call_id=call, final=True), meta=step
        )
        yield NewEvent(events.TurnEnd(status="ok"), meta=meta)


def _crash(store: EventStore, conversation_id: UUID) -> None:
    """Leave a model call and a tool call open, as a killed process does."""
    wanted = (events.ToolCallRequest(name="save", arguments_text="{}", arguments={}),)
    done = store.append(
        conversation_id,
        [events.TurnStart(), events.AssistantMessage.of(None, tool_calls=wanted)],
    )
    store.append(
        conversation_id,
        [
            events.ToolCall(
                call_id=call_id(done.version, 0), name="save", arguments={}, idempotency_key="1"
            ),
            events.LlmRequest(llm_call_id=f"open-{done.version}"),
            events.AssistantChunk(llm_call_id=f"open-{done.version}", index=0, text="The ans"),
        ],
    )


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
