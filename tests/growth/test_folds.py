"""Whatever a log holds, folding it costs what it is long.

Steps are counted, not timed (see `tests.growth.steps`): of the fold, and of the rows that it
changes in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eventstore import events as e
from eventstore.events import Meta
from projections.catalogue import PROJECTIONS
from projections.context import fold
from projections.engine.folds import RowBuffer
from projections.models import directory
from tests.growth.steps import assert_linear
from tests.projections.support import turn
from tests.unit.projections.history import Entry, history

_SIZE = 35
Entries = Callable[[int], Iterator[Entry]]


def _each(entry: Callable[[int], Entry]) -> Entries:
    return lambda count: (entry(number) for number in range(count))


def _range(first: int, last: int | None = None) -> tuple[e.VersionRange, ...]:
    return (e.VersionRange(first=first, last=last or first),)


def _chunk(number: int, **fields: Any) -> e.AssistantChunk:
    return e.AssistantChunk(llm_call_id="a", index=number, **fields)


def _delta(index: int) -> tuple[e.ToolCallDelta, ...]:
    return (e.ToolCallDelta(index=index, name="f", arguments="{"),)


def _talk(count: int) -> Iterator[Entry]:
    for number in range(count // 7):
        yield from turn(7 * number, f"w{number}")


def _then(later: Callable[[int], Entry]) -> Entries:
    """Return a conversation, and then as many events that look back on it."""

    def entries(count: int) -> Iterator[Entry]:
        yield from _talk(count)
        for number in range(count):
            yield later(number + 1)

    return entries


def _withdraw_all(count: int) -> Iterator[Entry]:
    """Yield a conversation, and one retraction of every second of its events."""
    yield from _talk(count)
    apart = [e.VersionRange(first=number, last=number) for number in range(1, count, 2)]
    yield e.Retraction(versions=tuple(apart))


def _summarise_all(count: int) -> Iterator[Entry]:
    yield from _talk(count)
    apart = [e.VersionRange(first=number, last=number) for number in range(1, count, 2)]
    yield e.Summary(text="s", versions=tuple(apart))


def _nodes(count: int) -> Iterator[Entry]:
    nodes = tuple(e.RunNode(node_id=f"n{number}") for number in range(count))
    yield e.RunStart(run_id="r", workflow_id="w", nodes=nodes)
    for number in range(count):
        yield e.RunStepStart(run_id="r", node_id=f"n{number}")
        yield e.RunStepEnd(run_id="r", node_id=f"n{number}", status="completed")


def _many_calls(count: int) -> Iterator[Entry]:
    requests = (e.ToolCallRequest(name="f", arguments_text="{}"),) * count
    yield e.AssistantMessage(tool_calls=requests)
    for index in range(count):
        yield e.ToolResult(call_id=f"1.{index}", content="done")


def _retries(count: int) -> Iterator[Entry]:
    for number in range(count):
        retry = f"c{number - 1}" if number else None
        yield e.LlmRequest(llm_call_id=f"c{number}", retry_of=retry)
        yield e.LlmError(llm_call_id=f"c{number}", kind="network", message="no", partial_text="a")


KINDS: dict[str, Entries] = {
    "messages": _talk,
    "chunks": _each(lambda n: _chunk(n, text="a", reasoning="b")),
    "pieces of arguments": _each(lambda n: _chunk(n, tool_calls=_delta(0))),
    "chunks of many answers": _each(
        lambda n: e.AssistantChunk(llm_call_id=f"c{n}", index=0, text="a")
    ),
    "requests without an answer": _each(lambda n: e.LlmRequest(llm_call_id=f"c{n}")),
    "results of unknown calls": _each(lambda n: e.ToolResult(call_id=f"{n + 1}.0", content="a")),
    "calls without a request": _each(lambda n: e.ToolCall(call_id=f"{n + 1}.0", name="f")),
    "results again and again": _each(lambda n: e.ToolResult(call_id="1.0", status="not_started")),
    "a message of many calls": _many_calls,
    "retries": _retries,
    "retractions": _then(lambda n: e.Retraction(versions=_range(n))),
    "retractions of everything": _then(lambda n: e.Retraction(versions=_range(1, 10**6))),
    "a retraction of many ranges": _withdraw_all,
    "summaries of one range": _then(lambda n: e.Summary(text="s", versions=_range(1, 7))),
    "summaries of everything": _then(lambda n: e.Summary(text="s", versions=_range(1, 10**6))),
    "summaries of each message": _then(lambda n: e.Summary(text="s", versions=_range(n))),
    "a summary of many ranges": _summarise_all,
    "nodes of a run": _nodes,
    "runs": _each(lambda n: e.RunStart(run_id=f"r{n}", workflow_id="w")),
    "steps of unknown runs": _each(
        lambda n: e.RunStepEnd(run_id=f"r{n}", node_id="n", status="completed")
    ),
    "mode switches": _each(lambda n: e.ModeSwitch(mode="agent" if n % 2 else "chat")),
    "modes of events": _each(
        lambda n: (e.UserMessage.text("a"), Meta(mode="agent" if n % 2 else "chat"))
    ),
    "system texts": _each(lambda n: e.SystemInstruction(text="a")),
    "system texts that go on": _each(lambda n: e.SystemInstruction(text="a", continues=True)),
    "notebooks": _each(lambda n: e.Notebook(text="a")),
    "turns without an end": _each(lambda n: (e.TurnStart(input="a"), Meta(turn=n + 1))),
    "sessions without an end": _each(lambda n: (e.SessionStart(), Meta(session_id=f"s{n}"))),
    "tasks without an end": _each(lambda n: e.TaskEnqueue(task_id=f"t{n}")),
    "erased events": _each(lambda n: "tool_result"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fold_costs_what_the_log_is_long(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A retraction of n ranges took the square of n; so did a run of n nodes."""
    monkeypatch.setattr(fold, "MOST_SUMMARIES", 8)
    monkeypatch.setattr(directory, "_RECENT", 2)
    for projection in PROJECTIONS:

        def work(count: int, projection: Any = projection) -> Callable[[], None]:
            events = history(*KINDS[kind](count))

            def fold() -> None:
                state, buffer = projection.initial(), RowBuffer(projection, fresh=True)
                for event in events:
                    state, changes = projection.fold(state, event)
                    buffer.add(changes)

            return fold

        assert_linear(work, _SIZE)
