"""Checkpoints of a LangGraph thread, compared with LangGraph's own SQLite checkpointer."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from sqlalchemy import make_url

from agent_eventstore.integrations.langgraph.saver import EventStoreSaver
from benchmarks.bench import SQLITE, Bench
from benchmarks.measure import Amount, Figure, in_turns
from benchmarks.results import Target, Work, work
from eventstore import EventStore

__all__ = ["langgraph_threads"]

_LENGTHS = (100, 1_000, 5_000)
_PIECES = 50
_ROUNDS = 20
_PEER, _OURS, _COLD = "SqliteSaver", "EventStoreSaver", "EventStoreSaver, nothing read yet"
_TEXT = "What the user asked, and what the model has answered to it, in a few plain words. " * 5
_MEGABYTES = 10.0
_MB = 1e6


class _Thread:
    """A thread whose list of messages grows from checkpoint to checkpoint."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        self.saver, self.version = saver, None
        self.messages: list[AnyMessage] = []
        self.config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}

    def put(self, count: int = 1) -> None:
        """Add messages, and save a checkpoint."""
        self.messages += [_message(len(self.messages) + place) for place in range(count)]
        self.version = self.saver.get_next_version(self.version, None)
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": list(self.messages)}
        checkpoint["channel_versions"] = {"messages": self.version}
        step = {"source": "loop", "step": len(self.messages), "parents": {}}
        self.config = self.saver.put(self.config, checkpoint, step, {"messages": self.version})


def langgraph_threads(bench: Bench) -> Iterator[Work]:
    """Measure saving and loading by the length of the thread, and a long one's size."""
    lengths = _LENGTHS if bench.scale.rounds >= _PIECES else _LENGTHS[:1]
    for length in lengths:
        yield from _at(bench, length)
    yield _size(bench)


def _at(bench: Bench, length: int) -> Iterator[Work]:
    with bench.fresh(SQLITE) as url, ExitStack() as stack:
        ours, peer = _Thread(_ours(stack, url)), _Thread(_peer(stack, url))
        for thread in (ours, peer):
            for _ in range(_PIECES):
                thread.put(length // _PIECES)
        rounds = min(_ROUNDS, bench.scale.rounds)
        put = in_turns({_PEER: peer.put, _OURS: ours.put}, rounds)
        reach = Target(ratio=1.0, against=_PEER)
        yield _work(f"LangGraph: put with {length:,} messages", put, {_OURS: reach})
        store = ours.saver.store
        load = {_PEER: _get(peer.saver), _OURS: _get(ours.saver)}
        get = in_turns(
            {**load, _COLD: lambda: _get(EventStoreSaver(store))()}, min(_ROUNDS, rounds)
        )
        yield _work(f"LangGraph: get_tuple with {length:,} messages", get, {_OURS: reach})


def _work(name: str, figures: list[Figure], targets: dict[str, Target]) -> Work:
    note = (
        "SQLite, both with a write-ahead log and synchronous=FULL, both called in the same thread; "
        "each checkpoint adds one message of 400 bytes."
    )
    return work(name, figures, targets, note=note)


def _get(saver: BaseCheckpointSaver[Any]) -> Callable[[], object]:
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    return lambda: saver.get_tuple(config)


def _size(bench: Bench) -> Work:
    turns = bench.scale.turns
    amounts = []
    for name, opened in ((_PEER, _peer), (_OURS, _ours)):
        with bench.fresh(SQLITE) as url:
            with ExitStack() as stack:
                thread = _Thread(opened(stack, url))
                for _ in range(4 * turns):
                    thread.put()
            folder = Path(str(make_url(url).database)).parent
            size = sum(file.stat().st_size for file in folder.iterdir())
        amounts.append(Amount(name, size / _MB, "MB"))
    return work(
        f"LangGraph: storage of {turns:,} turns with a tool call each",
        amounts,
        {_OURS: Target(amount=_MEGABYTES)},
        note="In MB of 10^6 bytes: four messages of 400 bytes per turn, and a checkpoint for each.",
    )


def _ours(stack: ExitStack, url: str) -> EventStoreSaver:
    return EventStoreSaver(stack.enter_context(EventStore.open(url)))


def _peer(stack: ExitStack, url: str) -> SqliteSaver:
    connection = sqlite3.connect(f"{make_url(url).database}.peer", check_same_thread=False)
    return SqliteSaver(stack.enter_context(closing(connection)))


def _message(place: int) -> AnyMessage:
    text = f"{place} {_TEXT}"
    match place % 4:
        case 0:
            return HumanMessage(text, id=f"m{place}")
        case 1:
            call = {"name": "look", "args": {"at": place}, "id": f"c{place}"}
            return AIMessage(text, id=f"m{place}", tool_calls=[call])
        case 2:
            return ToolMessage(text, id=f"m{place}", tool_call_id=f"c{place - 1}", name="look")
    spent = {"input_tokens": place, "output_tokens": 90, "total_tokens": place + 90}
    return AIMessage(text, id=f"m{place}", usage_metadata=spent)
