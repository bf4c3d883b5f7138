"""`compare` finds every way in which a live table can differ from a fresh fold."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Table, delete, insert, select, update

from eventstore import EventStore, Meta, NewEvent, new_id
from eventstore import events as e
from projections import Views
from projections.catalogue import PROJECTIONS
from projections.engine.diff import Difference
from projections.engine.projection import Projection, ReadTable
from projections.engine.quoting import PLACE
from projections.upkeep import compare, status
from tests.feed_wait import wait_for_feed
from tests.projections.support import everything, live_of, turn

TABLES = [(projection, table) for projection in PROJECTIONS for table in projection.tables]
CHANGED = {
    "text": "damaged",
    "json": {"damaged": True},
    "integer": -7,
    "float": -7.5,
    "boolean": None,
}


@pytest.fixture
def damaged(store: EventStore, views: Views) -> EventStore:
    """Give a store whose tables all hold rows, and are about to be damaged."""
    node = e.RunNode(node_id="n1")
    report = e.Artifact(name="report", content={"a": 1})
    store.append(
        new_id(),
        [
            e.ConversationStart(title="t", mode="run", tool_policy=e.ToolPolicy(denied=("x",))),
            e.RunStart(run_id="r1", workflow_id="w", nodes=(node,)),
            e.RunStepStart(run_id="r1", node_id="n1"),
            *turn(3, "x"),
            e.RunStepEnd(run_id="r1", node_id="n1", status="completed", artifacts=(report,)),
            e.TaskEnqueue(task_id="t1"),
            e.BranchSwitch(reason="rewind", kind="message", after=3, left=4),
        ],
    )
    talk = [e.SessionStart(), e.TurnStart(input="x"), e.AssistantMessage.of("x")]
    where = Meta(session_id="s1", turn=1, step=0)
    store.append(new_id(), [NewEvent(data, new_id(), where) for data in talk])
    # So that the cursors, which a comparison moves, are at their end.
    assert compare(wait_for_feed(store)).ok
    return store


def test_damage_to_a_row_is_found(damaged: EventStore) -> None:
    """In every table a row that is gone, and each column changed, are named with their place."""
    for projection, declared in TABLES:
        check_damage(damaged, projection, declared)


def check_damage(damaged: EventStore, projection: Projection, declared: ReadTable) -> None:
    """Change every column of a row, then delete it, and expect both to be found."""
    table = live_of(damaged, projection).tables[declared.name]
    row = a_row(damaged, table)
    same = [table.c[name] == row[name] for name in ("conversation_id", *declared.key)]
    changes = {
        column.name: CHANGED[column.type]
        for column in declared.columns
        if column.name not in declared.key
        # Where these say that an event has the text, the row's own is not read.
        and column not in PLACE
        and column.type in CHANGED
        and row[column.name] != CHANGED[column.type]
    }
    with damaged.writing() as connection:
        connection.execute(update(table).where(*same).values(changes))
    found = differences(damaged, projection, declared)
    assert set(changes) == {each.column for each in found}
    key = {name: row[name] for name in declared.key}
    places = [("changed", row["conversation_id"], key)]
    assert places * len(changes) == [(each.kind, each.conversation_id, each.key) for each in found]
    with damaged.writing() as connection:
        connection.execute(delete(table).where(*same))
    [gone] = differences(damaged, projection, declared)
    assert ("missing", key) == (gone.kind, gone.key)


def a_row(store: EventStore, table: Table) -> dict[str, Any]:
    """Return some row of a table."""
    with store.reading() as connection:
        return dict(connection.execute(select(table).limit(1)).mappings().one())


def differences(store: EventStore, projection: Projection, declared: ReadTable) -> list[Difference]:
    """Return the differences in a table."""
    report = compare(store, [projection.name])
    return [each for each in report.differences if each.table == declared.name]


@pytest.mark.parametrize("known", [True, False], ids=["conversation exists", "it does not"])
def test_a_row_too_many_is_found(damaged: EventStore, known: bool) -> None:
    """A row that no event made is extra, also one of a conversation that nobody knows."""
    for projection, declared in TABLES:
        table = live_of(damaged, projection).tables[declared.name]
        row = a_row(damaged, table)
        if known and not declared.key:
            continue
        if not known:
            row["conversation_id"] = new_id()
        for name in declared.key if known else ():
            row[name] = 99 if isinstance(row[name], int) else "99.0"
        with damaged.writing() as connection:
            connection.execute(insert(table).values(row))
        [found] = differences(damaged, projection, declared)
        assert ("extra", row["conversation_id"]) == (found.kind, found.conversation_id)


def test_comparing_writes_nothing(damaged: EventStore) -> None:
    """What differs is left as it is, and so is everything else."""
    table = live_of(damaged, PROJECTIONS[1]).tables["timeline_items"]
    with damaged.writing() as connection:
        connection.execute(update(table).values(status="damaged"))
    before = everything(damaged)
    assert not compare(damaged).ok
    after = everything(damaged)
    assert before == after


def test_only_the_conversations_asked_for_are_compared(damaged: EventStore) -> None:
    """The parts of a comparison, by conversation, find together what the whole finds."""
    table = live_of(damaged, PROJECTIONS[1]).tables["timeline_items"]
    with damaged.writing() as connection:
        connection.execute(update(table).values(status="damaged"))
    whole = compare(damaged)
    parts = [compare(damaged, conversations=[info.conversation_id]) for info in damaged.list()]
    assert whole.differences
    assert whole.differences == tuple(each for part in parts for each in part.differences)
    assert [1] * len(parts) == [part.conversations for part in parts]
    assert whole.rows == sum(part.rows for part in parts)


def test_comparing_counts_what_it_looked_at(store: EventStore, views: Views) -> None:
    """The report says how many conversations and rows were compared."""
    for _ in range(3):
        store.append(new_id(), turn(0, "x"))
    progress: list[tuple[int, int]] = []
    report = compare(store, ["tool_calls"], on_progress=lambda *both: progress.append(both))
    assert (3, 3, True) == (report.conversations, report.rows, report.ok)
    assert [(7, 21), (14, 21), (21, 21)] == progress
    assert [0] == [each.behind for each in status(store) if each.name == "tool_calls"]
