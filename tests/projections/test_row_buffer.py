"""Merged changes, written in any pages, leave what the same changes leave one by one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import select

from eventstore import EventStore, new_id
from projections.engine import tables
from projections.engine.folds import RowBuffer
from projections.engine.projection import Change, Patch, Put
from tests.projections.support import plain_value
from tests.projections.toys import NOTES, Notes
from tests.scaled_settings import scaled_settings
from tests.unit.projections.history import apply

PROJECTION = Notes()
KEYS = st.tuples(st.integers(1, 2), st.integers(0, 1))
TEXTS = st.none() | st.sampled_from(["a", "b", "a\x00b", "\ud800"])
VALUES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "mark": st.none() | st.integers(1, 2),
        "text": TEXTS,
        "data": st.sampled_from([None, [1, 2], {"k": "\x00"}]),
    },
)
PUTS = st.builds(Put, table=st.just("notes"), key=KEYS, values=VALUES)
PATCHES = st.builds(
    Patch,
    table=st.just("notes"),
    column=st.sampled_from(["version", "part", "mark"]),
    first=st.integers(0, 2),
    last=st.integers(1, 2),
    values=VALUES.filter(bool),
)
PAGES = st.lists(st.lists(PUTS | PATCHES, max_size=5), min_size=2, max_size=4)


@pytest.fixture
def notes(store: EventStore) -> EventStore:
    """Give a store with the table of the toy projection."""
    with store.writing() as connection:
        tables.create(connection, PROJECTION, 1)
    return store


def written(store: EventStore, pages: list[list[Change]]) -> dict[Any, dict[str, Any]]:
    """Write pages of changes for a new conversation; return the rows by key."""
    conversation_id = new_id()
    found = tables.tables_of(PROJECTION, 1)
    buffer = RowBuffer(PROJECTION, fresh=True)
    with store.writing(durable=False) as connection:
        for page in pages:
            buffer.add(page)
            buffer.write(connection, found, conversation_id)
        return held(connection, conversation_id)


def held(connection: Any, conversation_id: UUID) -> dict[Any, dict[str, Any]]:
    """Return a conversation's rows by key."""
    table = tables.tables_of(PROJECTION, 1)["notes"]
    rows = connection.execute(select(table).where(table.c.conversation_id == conversation_id))
    return {
        (row.version, row.part): {
            column.name: plain_value(getattr(row, column.name)) for column in NOTES.columns
        }
        for row in rows
    }


def one_by_one(pages: list[list[Change]]) -> dict[Any, dict[str, Any]]:
    """Return the rows after the changes, each applied at once."""
    changes = [change for page in pages for change in page]
    blank = {column.name: None for column in NOTES.columns}
    rows = apply(changes, PROJECTION).get("notes", {})
    return {key: {n: plain_value(v) for n, v in (blank | row).items()} for key, row in rows.items()}


@given(pages=PAGES)
@example(pages=[[Put("notes", (1, 0), {"mark": 1})], [Put("notes", (1, 0), {})]])
@scaled_settings(20)
def test_pages_of_changes_leave_what_single_changes_leave(
    notes: EventStore, pages: list[list[Change]]
) -> None:
    """However changes are cut into pages, the rows are those of applying them in order."""
    assert one_by_one(pages) == written(notes, pages)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            [
                Put("notes", (1, 0), {"text": "put"}),
                Patch("notes", "mark", 5, 5, {"text": "patched"}),
            ],
            id="a patch after a put, matched by a column that only the table holds",
        ),
        pytest.param(
            [
                Put("notes", (1, 0), {"mark": 6}),
                Patch("notes", "mark", 5, 5, {"text": "patched"}),
            ],
            id="a patch after a put that moved the row out of its range",
        ),
        pytest.param(
            [
                Patch("notes", "mark", 5, 5, {"mark": 6}),
                Patch("notes", "mark", 6, 6, {"text": "patched"}),
            ],
            id="a patch of what an earlier patch changed",
        ),
        pytest.param(
            [
                Patch("notes", "mark", 5, 5, {"text": "patched"}),
                Put("notes", (1, 0), {"text": "put"}),
            ],
            id="a put after a patch",
        ),
    ],
)
def test_a_patch_sees_what_the_page_did_before_it(notes: EventStore, page: list[Change]) -> None:
    """Rows of earlier pages are patched in the order in which the fold gave the changes."""
    pages: list[list[Change]] = [[Put("notes", (1, 0), {"mark": 5, "text": "old"})], page]
    assert one_by_one(pages) == written(notes, pages)
