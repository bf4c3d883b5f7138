"""A row of the table is a row like others; it decodes what is asked for, when it is asked for."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from eventstore.events import AssistantMessage, OtherPart, ToolCallRequest, UserMessage
from eventstore.sql.types import json_in
from projections.context import ContextRow
from projections.context.detail import shortened
from projections.context.rows import COLUMNS, FoldedRow, StoredRow
from tests.unit.context.log import Log

CALL = ToolCallRequest(name="find", arguments_text='{"id": "#W2378156"}')
ROWS = Log([UserMessage.text("Hello. " * 90), AssistantMessage(tool_calls=(CALL,))]).rows()
_JSON = ("message", "given", "result", "source_versions", "native")
_FLAGS = ("tokens_exact", "sealed")


def raw(row: ContextRow) -> list[Any]:
    """Return the columns of a row as SQLite's driver gives them, and that it quotes nothing."""
    values = {name: getattr(row, name) for name in COLUMNS}
    values |= {name: json.dumps(values[name]) for name in _JSON if values[name] is not None}
    values |= {name: int(values[name]) for name in _FLAGS}
    return [*values.values(), None]


def test_the_columns_are_those_of_a_row() -> None:
    """In their order."""
    assert [field.name for field in fields(ContextRow)] == list(COLUMNS)


@pytest.mark.parametrize("row", ROWS, ids=[str(row.key) for row in ROWS])
def test_it_equals_the_row_that_was_stored(row: ContextRow) -> None:
    """Column by column, with the same hash."""
    stored = StoredRow(raw(row))
    assert row == stored
    assert stored == row
    assert hash(row) == hash(stored)


ODD = OtherPart(raw={"type": "text", "text": "a", "score": 1.50, "at": "\ud800\x00"})


def test_a_folded_row_is_the_row_that_is_stored_later() -> None:
    """With the parts of a product as JSON returns them; a changed copy is as new as the row."""
    for row in (*ROWS, *Log([UserMessage(parts=(ODD,))]).rows()):
        values = [getattr(row, name) for name in COLUMNS]
        columns = raw(row)
        columns[COLUMNS.index("message")] = json_in(row.message)
        folded, stored = FoldedRow(values), StoredRow(columns)
        assert folded == stored
        assert (folded.fresh, folded.with_(tokens=1).fresh, stored.fresh) == (True, True, False)
        assert folded.bytes > 2 * len(str(row.message["content"]))


def test_json_that_nobody_looks_at_is_not_parsed() -> None:
    """A broken one does no harm until then."""
    columns = raw(ROWS[0])
    columns[COLUMNS.index("message")] = "{broken"
    stored = StoredRow(columns)
    assert (ROWS[0].key, ROWS[0].tokens) == (stored.key, stored.tokens)
    with pytest.raises(ValueError, match=r"not (a )?JSON"):
        _ = stored.message


def test_a_column_is_decoded_once() -> None:
    """The same object is given again."""
    stored = StoredRow(raw(ROWS[0]))
    assert stored.message is stored.message


def test_a_message_that_is_quoted_is_put_together() -> None:
    """Of the row's role and the text that its event has."""
    *columns, _ = raw(ROWS[0])
    columns[COLUMNS.index("message")] = None
    stored = StoredRow([*columns, "Hello. " * 90])
    assert ROWS[0] == stored
    assert json.dumps(ROWS[0].message) == json.dumps(stored.message)


def test_a_column_without_a_value_is_none() -> None:
    """Whatever its type."""
    stored = StoredRow(raw(ROWS[2]))
    assert (None, None, None) == (stored.given, stored.native, stored.result)


def test_it_can_be_shortened() -> None:
    """Into a row of its own."""
    assert shortened(ROWS[0]) == shortened(StoredRow(raw(ROWS[0])))
    assert shortened(ROWS[0]) != ROWS[0]


def test_there_are_no_other_attributes() -> None:
    """A name that is not a column is an error, as everywhere."""
    with pytest.raises(AttributeError, match="colour"):
        _ = StoredRow(raw(ROWS[0])).colour
