"""The cost of a turn as its conversation grows: four appends, then the messages[] view."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import cycle, islice
from uuid import UUID

from benchmarks import peers
from benchmarks.bench import POSTGRESQL, SQLITE, Bench
from benchmarks.context.transcripts import TAU_BENCH, Message, read_tau_bench
from benchmarks.floors import Bare, Row, bare, rows_of
from benchmarks.measure import in_turns, processor_time
from benchmarks.results import Target, Work, work
from eventstore import EventStore, NewEvent, events, new_id
from eventstore.ids import call_id
from projections import Views

__all__ = ["turns_by_length"]

_BUDGET = 4_000
# About sixty tokens, so that the budget is full at every length and the windows are similar.
_PROSE = "the quick brown fox jumps over the lazy dog and thinks about it for a while; " * 4
_WINDOW = 66
_RATIO, _SQLITE_MS = 1.2, 3.0
_REAL_LENGTHS = (20, 100)
_REAL_BUDGET = 8_000
_REAL_RATIO = 1.3
_OURS = "four appends and messages[]"


def turns_by_length(bench: Bench) -> Iterator[Work]:
    """Measure turns on conversations that begin at two numbers of messages, on each database."""
    for database in bench.databases:
        yield _turns(bench, database)
        if TAU_BENCH.exists():
            for length in _REAL_LENGTHS:
                yield _real_turns(bench, database, length)


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
        # The projection is then as warm as for a conversation in use.
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
                candidates[name] = peer.turns(_messages(version=0), list(_filling(length)))
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
        "the conversation in their own way; they have no budget.",
    )


def _real_turns(bench: Bench, database: str, length: int) -> Work:
    """Measure turns of real transcripts, each in its own conversation that was read before."""
    rounds = max(bench.scale.rounds // 40, 1)
    told = real_messages()
    history, asked = list(islice(told, length)), next(_whole_turns(length))
    with ExitStack() as stack:
        url = stack.enter_context(bench.fresh(database))
        store = stack.enter_context(EventStore.open(url))
        views = Views(store)
        ours = []
        for _ in range(rounds + 1):
            cid = new_id()
            store.append(cid, history)
            views.context(cid, max_tokens=_REAL_BUDGET)
            ours.append(_real_turn(store, views, cid, asked))
        candidates: dict[str, Callable[[], object]] = {_OURS: _each_once(ours)}
        for peer in stack.enter_context(peers.writers(url)):
            others = [peer.turns(asked, history) for _ in range(rounds + 1)]
            candidates[peer.name] = _each_once(others)
        figures = in_turns(candidates, rounds, processor=True)
    peer_names = list(candidates)[1:]
    reach = {
        named(_OURS): Target(ratio=_REAL_RATIO, against=named(peer_names[-1]))
        for named in (str, processor_time)
        if peer_names
    }
    return work(
        f"A turn of real transcripts at {length} messages, {database}",
        figures,
        reach,
        note="tau-bench's airline conversations, one after the other; four appends of a turn with "
        f"a tool call, then the messages[] view within {_REAL_BUDGET:,} tokens. Peers load all. "
        "Each commits four times, durably: on SQLite with a write-ahead log and synchronous=FULL, "
        "the default of each. Ours also counts tokens, enforces the budget, and keeps rows and "
        "counts in memory, which are saved with those of later turns. The SDK's session runs each "
        "call in a thread, as it always does; its processor time includes the threads.",
    )


def _real_turn(
    store: EventStore, views: Views, cid: UUID, asked: list[NewEvent]
) -> Callable[[], None]:
    def turn() -> None:
        for event in asked:
            store.append(cid, [event])
        views.context(cid, max_tokens=_REAL_BUDGET)

    return turn


def _each_once(several: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """Return a function that calls the next one each time."""
    waiting = iter(several)
    return lambda: next(waiting)()


def real_messages(first: int = 1, *, forever: bool = False) -> Iterator[NewEvent]:
    """Yield the messages of tau-bench's conversations; the first message gets this version.

    With ``forever``, they begin again after the last.
    """
    version, asked = first, dict[str, str]()
    told = read_tau_bench()
    for transcript in cycle(told) if forever else told:
        for message in transcript.messages:
            if message["role"] != "system":
                yield NewEvent(_said(message, version, asked))
                version += 1


def _said(message: Message, version: int, asked: dict[str, str]) -> events.Payload:
    """Return a message of a transcript as an event; ``asked`` has the calls' own ids."""
    text = message.get("content") or ""
    if message["role"] == "user":
        return events.UserMessage.text(text)
    if message["role"] == "tool":
        own_id = asked.get(message["tool_call_id"], call_id(version, 0))
        return events.ToolResult(call_id=own_id, name=message.get("name"), content=text)
    calls = []
    for place, call in enumerate(message.get("tool_calls") or ()):
        asked[call["id"]] = call_id(version, place)
        called = call["function"]
        calls.append(
            events.ToolCallRequest(
                name=called["name"], arguments_text=called["arguments"], provider_id=call["id"]
            )
        )
    return events.AssistantMessage.of(text or None, tool_calls=tuple(calls))


def _whole_turns(length: int) -> Iterator[list[NewEvent]]:
    """Yield turns of a question, a tool call, its result and an answer, after this many events."""
    kinds = [events.UserMessage, events.AssistantMessage, events.ToolResult]
    kinds.append(events.AssistantMessage)
    told = list(real_messages())
    for place in range(length, len(told) - len(kinds)):
        some = told[place : place + len(kinds)]
        answer = some[-1].data
        if [type(each.data) for each in some] != kinds or not isinstance(
            answer, events.AssistantMessage
        ):
            continue
        if not answer.tool_calls:
            moved = some[2].data
            assert isinstance(moved, events.ToolResult)
            own_id = call_id(length + 2, 0)
            some[2] = NewEvent(moved.model_copy(update={"call_id": own_id}))
            yield some


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
    """Return a turn's four events; the first is ``version + 1``."""
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
