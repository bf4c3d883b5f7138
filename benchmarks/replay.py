"""The cost of restoring the state of a run: folding its events, which are already in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

from benchmarks.bench import Bench
from benchmarks.measure import in_turns
from benchmarks.results import Work, work
from eventstore import EventStore, Meta, NewEvent, RecordedEvent, events, new_id
from projections.engine.folds import begin
from projections.engine.generations import Generation
from projections.engine.projection import State
from projections.models.runs import RUNS

__all__ = ["run_state_replay"]

_EVENTS = 1_000
_NODES = 4
_CALLS = 3


def run_state_replay(bench: Bench) -> Iterator[Work]:
    """Measure the replay of 1,000 events of run state: the fold alone, and with its rows.

    The floor iterates over the events without folding them. About half of the events belong to
    runs, steps and tool calls; the others affect run state only through their turn.
    """
    history = _recorded(_story())
    yield work(
        f"Replay of run state, {_EVENTS:,} events in memory",
        in_turns(
            {
                "a look at each event": _looking(history),
                "run state": _folding(history),
                "run state, and its rows": _keeping_rows(history),
            },
            max(bench.scale.rounds // 10, 1),
            events=_EVENTS,
        ),
    )


def _looking(history: Sequence[RecordedEvent]) -> Callable[[], int]:
    return lambda: sum(event.data is not None for event in history)


def _folding(history: Sequence[RecordedEvent]) -> Callable[[], State]:
    def fold() -> State:
        state = RUNS.initial()
        for event in history:
            state, _ = RUNS.fold(state, event)
        return state

    assert fold()["active_node"] is not None
    return fold


def _keeping_rows(history: Sequence[RecordedEvent]) -> Callable[[], None]:
    generation = Generation(RUNS, 0, None)

    def fold() -> None:
        folding = begin(generation)
        folding.feed(history)
        assert folding.version == _EVENTS

    return fold


def _recorded(new: Sequence[NewEvent]) -> list[RecordedEvent]:
    with EventStore.open("sqlite://") as store:
        conversation_id: UUID = new_id()
        store.append(conversation_id, new)
        return list(store.read(conversation_id))


def _story() -> list[NewEvent]:
    told: list[NewEvent] = []
    turn = 0
    while len(told) < _EVENTS:
        run_id = f"run-{turn}"
        names = [f"node-{number}" for number in range(_NODES)]
        nodes = tuple(events.RunNode(node_id=name, brief="do it") for name in names)
        start = events.RunStart(run_id=run_id, workflow_id="w", directive="work", nodes=nodes)
        told.append(NewEvent(start, meta=Meta(mode="run", run_id=run_id)))
        for name in names:
            turn += 1
            where = Meta(mode="run", run_id=run_id, turn=turn, step=0, session_id="s")
            told.extend(NewEvent(data, meta=where) for data in _step(run_id, name, len(told)))
        told.append(NewEvent(events.RunEnd(run_id=run_id, status="completed")))
    return told[:_EVENTS]


def _step(run_id: str, node_id: str, version: int) -> list[events.Payload]:
    asked = events.ToolCallRequest(name="search", arguments_text="{}", arguments={})
    told: list[events.Payload] = [
        events.RunStepStart(run_id=run_id, node_id=node_id),
        events.TurnStart(),
        events.UserMessage.text("go on"),
    ]
    for number in range(_CALLS):
        own_id = f"{version + len(told) + 3}.0"
        told += [
            events.LlmRequest(llm_call_id=f"{version}-{number}"),
            events.AssistantChunk(llm_call_id=f"{version}-{number}", index=0, text="I look"),
            events.AssistantMessage.of("I look", tool_calls=(asked,)),
            events.ToolCall(call_id=own_id, name="search", idempotency_key=own_id),
            events.ToolResult(call_id=own_id, name="search", content="found"),
        ]
    made = (events.Artifact(name="report", path="report.md"),)
    return [
        *told,
        events.AssistantMessage.of("done", final=True),
        events.TurnEnd(status="ok"),
        events.RunStepEnd(run_id=run_id, node_id=node_id, status="completed", artifacts=made),
    ]
