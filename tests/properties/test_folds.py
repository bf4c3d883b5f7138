"""What holds for every fold and every history, however strange."""

from __future__ import annotations

import copy
import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import events as e
from eventstore.events import RecordedEvent
from projections.context.fold import CONTEXT
from projections.engine.projection import Projection, Put
from projections.models.directory import DIRECTORY
from projections.models.open_work import OPEN_WORK
from projections.models.runs import RUNS
from projections.models.tasks import TASKS
from projections.models.timeline import TIMELINE
from projections.models.tool_calls import TOOL_CALLS
from projections.models.usage import USAGE
from projections.tokens.counts import TokenCounts
from tests.properties.histories import histories
from tests.unit.projections.history import apply, fold, history

# One history is folded by each of them: it takes longer to make than to fold.
FOLDS: tuple[Projection, ...] = (TIMELINE, USAGE, TOOL_CALLS, RUNS, DIRECTORY, TASKS)
each_fold = pytest.mark.parametrize("projection", FOLDS, ids=lambda item: item.name)

_PYTHON_TYPES: dict[str, Any] = {
    "text": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "timestamp": datetime,
    "json": (str, int, float, bool, dict, list),
}


@given(events=histories(), data=st.data())
def test_folding_in_two_pieces_gives_the_same(
    events: list[RecordedEvent], data: st.DataObject
) -> None:
    """Where a catch-up stops, with its state stored as JSON, makes no difference."""
    cut = data.draw(st.integers(0, len(events)))
    for projection in FOLDS:
        state, whole = fold(projection, events)
        middle, first = fold(projection, events[:cut])
        end, second = fold(projection, events[cut:], json.loads(json.dumps(middle)))
        assert (state, whole) == (end, first + second), projection.name


@given(events=histories())
def test_the_given_state_stays_as_it_was(events: list[RecordedEvent]) -> None:
    """A fold answers with a new state; one that was stored before is still good afterwards."""
    for projection in (*FOLDS, CONTEXT, OPEN_WORK):
        state = projection.initial()
        for event in events:
            before = copy.deepcopy(state)
            after, _ = projection.fold(state, event)
            assert before == state, projection.name
            state = after


@given(events=histories())
def test_changes_fit_the_declared_tables(events: list[RecordedEvent]) -> None:
    """Each change names a table, a whole key and columns that exist, with values of their type.

    As they are written: what a fold leaves to be counted is counted before.
    """
    tables = {table.name: table for projection in FOLDS for table in projection.tables}
    changes = [
        (projection, change) for projection in FOLDS for change in fold(projection, events)[1]
    ]
    for projection, change in changes:
        table = tables[change.table]
        assert table in projection.tables
        types = {column.name: column.type for column in table.columns}
        if isinstance(change, Put):
            assert len(table.key) == len(change.key)
            assert None not in change.key
        else:
            assert types[change.column] == "integer"
        values = dict(change.values)
        if table.counting is not None:
            table.counting.fill(values, TokenCounts())
        for name, value in values.items():
            assert value is None or isinstance(value, _PYTHON_TYPES[types[name]]), name


@given(events=histories())
def test_the_key_of_a_table_is_among_its_columns(events: list[RecordedEvent]) -> None:
    """Applied to empty tables, the changes leave rows that hold their own keys."""
    for projection in FOLDS:
        rows = apply(fold(projection, events)[1], projection)
        for table in projection.tables:
            assert set(table.key) <= {column.name for column in table.columns}
            for key, row in rows.get(table.name, {}).items():
                assert key == tuple(row[name] for name in table.key), table.name


@each_fold
def test_the_state_of_a_long_conversation_stays_small(projection: Projection) -> None:
    """What a state remembers is bounded, whatever was left open or answered before."""
    request = e.ToolCallRequest(name="search", arguments_text="{}")
    turn = (
        e.UserMessage.text("hello"),
        e.LlmRequest(llm_call_id="open"),
        e.AssistantMessage.of("hi", tool_calls=(request, request)),
    )
    state, _ = fold(
        projection,
        history(
            *(entry for _ in range(400) for entry in turn),
            *(e.ToolResult(call_id=f"{3 * n}.0", content="ok") for n in range(1, 401)),
        ),
    )
    sizes = [len(value) for value in state.values() if isinstance(value, dict)]
    assert max(sizes, default=0) <= 256


@each_fold
def test_what_has_ended_is_not_remembered_as_open(projection: Projection) -> None:
    """Ended things leave their place to open ones, which a full memory would forget."""
    request = e.ToolCallRequest(name="search", arguments_text="{}")
    events = history(
        e.TurnStart(),
        e.RunStart(run_id="r", workflow_id="w"),
        e.LlmRequest(llm_call_id="a"),
        e.AssistantMessage.of(None, llm_call_id="a", tool_calls=(request,)),
        e.ToolCall(call_id="4.0", name="search"),
        e.ToolResult(call_id="4.0", content="ok"),
        e.RunEnd(run_id="r", status="completed"),
        e.TurnEnd(status="ok"),
    )
    state, _ = fold(projection, events)
    memories = {name for name, value in state.items() if isinstance(value, dict) and value}
    assert memories <= {"answered", "ended"}
