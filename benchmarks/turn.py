"""What a turn costs as its conversation grows: four appends, then the messages[] view."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from uuid import UUID

from benchmarks import peers
from benchmarks.bench import POSTGRESQL, SQLITE, Bench
from benchmarks.floors import Bare, Row, bare, rows_of
from benchmarks.measure import in_turns
from benchmarks.results import Target, Work, work
from eventstore import EventStore, NewEvent, events, new_id
from eventstore.ids import call_id
from projections import Views

__all__ = ["turns_by_length"]

_BUDGET = 4_000
# About sixty tokens, so that the budget is full at every length and the windows are alike.
_PROSE = "the quick brown fox jumps over the lazy dog and thinks about it for a while; " * 4
_WINDOW = 66
_RATIO, _SQLITE_MS = 1.2, 3.0


def turns_by_length(bench: Bench) -> Iterator[Work]:
    """Measure turns on conversations that begin at two numbers of messages, on each database."""
    for database in bench.databases:
        yield _turns(bench, database)


def _turns(bench: Bench, database: str) -> Work:
    lengths = bench.scale.lengths
    with ExitStack() as stack:
        url = stack.enter_context(bench.fresh(database))
        store = stack.enter_context(EventStore.open(url))
        views, floor = Views(store), bare(url)
        stack.callback(floor.close)
        rows = rows_of(_messages(version=0), database == POSTGRESQL)
        ours = {
            f"at {length:,} messages": _turn(store, views, _conversation(store, length))
            for length in lengths
        }
        # So that the projection is as warm as that of a conversation in use.
        for candidate in ours.values():
            for _ in range(10):
                candidate()
        candidates: dict[str, Callable[[], object]] = {
            f"{floor.name}, the newest {_WINDOW} rows": partial(_floor, floor, rows),
            **ours,
        }
        others = stack.enter_context(peers.writers(url))
        for peer in others:
            for length in lengths:
                name = f"{peer.name}, {length:,} messages"
                candidates[name] = peer.turns(_messages(version=0), length)
        figures = in_turns(candidates, max(bench.scale.rounds // 8, 1))
    shortest, longest = ours
    return work(
        f"A turn: four appends and the messages[] view, {database}",
        figures,
        {
            longest: Target(
                ratio=_RATIO,
                against=shortest,
                median_ms=_SQLITE_MS if database == SQLITE else None,
            )
        },
        note=f"The view is within {_BUDGET:,} tokens. Peers append the same four events and load "
        "the conversation as they do; they keep no budget.",
    )


def _floor(floor: Bare, rows: list[Row]) -> None:
    for row in rows:
        floor.insert([row])
    for data in floor.newest(_WINDOW):
        json.loads(data)


def _conversation(store: EventStore, messages: int) -> UUID:
    conversation_id = new_id()
    filling = _filling(messages)
    while batch := list(islice(filling, 500)):
        store.append(conversation_id, batch)
    return conversation_id


def _filling(messages: int) -> Iterator[NewEvent]:
    for number in range(messages):
        text = f"{number}: {_PROSE}"
        if number % 2:
            yield NewEvent(events.AssistantMessage.of(text, final=True))
        else:
            yield NewEvent(events.UserMessage.text(text))


def _messages(version: int) -> list[NewEvent]:
    """Return a turn's four events, of which the first is ``version + 1``."""
    wanted = events.ToolCallRequest(name="search", arguments_text="{}", provider_id="call_1")
    return [
        NewEvent(events.UserMessage.text(_PROSE)),
        NewEvent(events.AssistantMessage.of(None, tool_calls=(wanted,))),
        NewEvent(events.ToolResult(call_id=call_id(version + 2, 0), content=_PROSE)),
        NewEvent(events.AssistantMessage.of(_PROSE, final=True)),
    ]


def _turn(store: EventStore, views: Views, conversation_id: UUID) -> Callable[[], None]:
    version = store.get(conversation_id).version

    def turn() -> None:
        nonlocal version
        for event in _messages(version):
            store.append(conversation_id, [event])
        version += 4
        view = views.context(conversation_id, max_tokens=_BUDGET)
        assert view.messages[-1]["content"] == _PROSE

    return turn
